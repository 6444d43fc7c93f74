"""Stands where haproxy would be when only targets are served: it has nothing to do and serves at once."""

from collections.abc import Callable, Mapping

from pyconfd.errors import Problem
from pyconfd.model.balancing import TakesAll
from pyconfd.model.context import Census
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Applied, Generation, Outcome, Stored
from pyconfd.model.plan import Noop, Plan, Reload
from pyconfd.model.rendering import Rendering
from pyconfd.system.state_file import StateLock
from pyconfd.targets.memory import Applied as TargetApplied

_NOTHING = Rendering(())


class NoBalancer(TakesAll):
    """``applied`` gives what each target was last told; the guard compares with the largest number of endpoints."""

    def __init__(self, state_dir: str, applied: Callable[[], tuple[TargetApplied | None, ...]]) -> None:
        self._applied = applied
        self._served = False
        self._lock = StateLock(state_dir)

    def startup(self) -> tuple[Problem, ...]:
        """Take the lock; raises TransientError where another pyconfd has it."""
        self._lock.acquire()
        return ()

    def close(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def last_good(self) -> Stored | None:
        """Return a generation numbered 0 once a target was told something, or :meth:`apply` was called."""
        known = [item for item in self._applied() if item is not None]
        if not known and not self._served:
            return None
        census = Census(
            max((item.census.claimed for item in known), default=0),
            max((item.census.total for item in known), default=0),
        )
        applied_at = max((item.applied_at for item in known), default=0.0)
        return Stored(Generation(0, _NOTHING.digest, applied_at, census=census), _NOTHING)

    def plan(self, rendering: Rendering) -> Plan:
        """Return nothing to do."""
        del rendering
        return Noop()

    def contested(self, rendering: Rendering) -> Mapping[Listener, str]:
        """Return none: nothing is bound here."""
        del rendering
        return {}

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, census: Census, now: float) -> Applied:
        """Note that the cluster was read."""
        self._served = True
        generation = Generation(0, rendering.digest, now, curdate, census=census)
        return Applied(generation, plan, verified=True)

    def restore_last_good(self, now: float) -> Outcome | None:
        """Return None: targets keep what they have."""
        del now
        return None

    def report_progress(self, progress: Callable[[], None]) -> None:
        """Take what a long apply would call; there is none."""

    def runs(self) -> bool:
        """Say that nothing has to be started."""
        return True
