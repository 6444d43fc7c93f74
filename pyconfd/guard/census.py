"""Judges by numbers alone, where nothing but these is known, and keeps back a whole change."""

import hashlib
from collections.abc import Callable

from pyconfd.errors import Problem
from pyconfd.guard.rules import Rules
from pyconfd.model.context import Census
from pyconfd.model.outcome import Held


def judge(before: Census | None, after: Census, *, digest: Callable[[], str], allowed: frozenset[str]) -> Held | None:
    """Return a hold if every endpoint is gone at once, else None.

    ``before`` is the census of what is applied (None: nothing is), ``digest`` gives that of the rendering in
    question, which is asked for only where it is held, and ``allowed`` are the holds that an operator let through.
    """
    lost = _lost(before, after)
    if before is None or not lost:
        return None
    hold_id = hashlib.sha256(f"{lost} {digest()}".encode()).hexdigest()[:8]
    if hold_id in allowed:
        return None
    count = before.claimed if lost == "claimed" else before.total
    gone = "the last ready endpoint" if count == 1 else f"all {count:,} ready endpoints"
    went = "is" if count == 1 else "are"
    what = "behind the served names" if lost == "claimed" else "in the cluster"
    return Held(
        hold_id,
        Problem(
            "guard",
            f"{gone} {what} {went} gone at once; the last good configuration keeps serving",
            f"check the cluster and pyconfd's permissions; if this is meant, run: pyconfd allow {hold_id}",
        ),
    )


def _lost(before: Census | None, after: Census) -> str:
    """Name the number that fell to nothing, "" for none."""
    if before is None:
        return ""
    return "claimed" if before.claimed and not after.claimed else "total" if before.total and not after.total else ""


class CountingGuard:
    """Holds what would leave nothing, and for a time what would leave too little; belongs to one loop."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._began: float | None = None

    def is_over(self, now: float) -> bool:
        """Return whether a held loss that is not total has lasted long enough."""
        return self._began is not None and now - self._began >= self._rules.persist_s

    def judge(
        self,
        now: float,
        before: Census | None,
        after: Census,
        *,
        lost: int,
        digest: Callable[[], str],
        allowed: frozenset[str],
        confirmed: bool = True,
    ) -> Held | None:
        """Return a hold, or None where the change may pass; ``lost`` of the claimed endpoints of ``before`` are gone.

        ``now`` never jumps; ``confirmed`` says whether the loss was seen in a second full reading.
        """
        if self._rules.total and _lost(before, after):
            self._began = None
            return judge(before, after, digest=digest, allowed=allowed)
        if before is None or not self._rules.is_too_much(lost, before.claimed):
            self._began = None
            return None
        if self._began is None:
            self._began = now
        hold_id = hashlib.sha256(f"share {digest()}".encode()).hexdigest()[:8]
        if hold_id in allowed or (confirmed and self.is_over(now)):
            return None
        return Held(
            hold_id,
            Problem(
                "guard",
                f"{lost:,} of {before.claimed:,} ready endpoints are gone at once; the last good configuration keeps"
                f" serving until that has lasted {self._rules.persist_s:g} s",
                f"if this is meant, run: pyconfd allow {hold_id}",
            ),
        )
