"""What a balancer says that takes every change as a whole, since nothing of it can be changed while it runs."""

from abc import ABC, abstractmethod
from collections.abc import Collection

from pyconfd.model.changes import RoomForReload
from pyconfd.model.context import EndpointTotals
from pyconfd.model.outcome import Applied, Deferred, Stored
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import BalancerStatus, HaproxyState


class TakesAll(ABC):
    """The part of the contract of balancers that is about live changes, for one that knows none."""

    @abstractmethod
    def last_good(self) -> Stored | None:
        """Return the last applied generation."""

    @abstractmethod
    def plan(self, rendering: Rendering) -> Plan:
        """Compare a rendering with the running configuration."""

    def check(self, rendering: Rendering) -> None:
        """Find nothing: the consumer validates it."""
        del rendering

    def updates_at_runtime(self) -> bool:
        """Return False: there are no runtime updates."""
        return False

    def sync(self, *, may_repair: bool = True) -> BalancerStatus:
        """Return nothing: nothing is left behind."""
        del may_repair
        return BalancerStatus()

    def condition(self) -> HaproxyState:
        """Return nothing: there is no HAProxy to look at."""
        return HaproxyState()

    @property
    def file_behind(self) -> bool:
        """Return False: what is written is what is applied."""
        return False

    def order_due_s(self) -> float | None:
        """Return None: no reload is put off."""
        return None

    def make_room(self) -> RoomForReload:
        """Return that there is room: a reload never has to wait."""
        return RoomForReload(free=True)

    def may_reload_for(self, namespaces: Collection[str]) -> bool:
        """Return True: a reload leaves nothing behind."""
        del namespaces
        return True

    def refresh(self) -> Plan:
        """Compare the running configuration with the desired one."""
        last = self.last_good()
        return Noop() if last is None else self.plan(last.rendering)

    def change(
        self,
        rendering: Rendering,
        plan: RuntimeUpdate,
        *,
        curdate: str,
        totals: EndpointTotals,
        now: float,
        in_slices: bool = False,
    ) -> Applied | Deferred | Reload:
        """Return a reload: nothing can be changed at run time."""
        del rendering, curdate, totals, now, in_slices
        return Reload((ReloadReason.NOT_LIVE,), plan.details)

    def defer(self, plan: Reload, *, now: float, in_slices: bool = False) -> Deferred:
        """Do nothing yet."""
        del now, in_slices
        last = self.last_good()
        return Deferred(plan, last.generation if last else None)
