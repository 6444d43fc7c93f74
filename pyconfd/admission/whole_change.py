"""Holds a whole change where nothing but numbers is known of what is served [pure].

So it is for a consumer of etcd, for targets beside the balancer, and before the first Snapshot after a start.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.errors import Problem
from pyconfd.model.context import EndpointTotals
from pyconfd.model.hold import PLACE
from pyconfd.model.outcome import Held


def total_loss(
    before: EndpointTotals | None,
    after: EndpointTotals,
    *,
    digest: Callable[[], str],
    allowed: frozenset[str] = frozenset(),
) -> Held | None:
    """Return a hold if every endpoint is gone at once, else None.

    ``before`` is what is applied (None: nothing is), ``digest`` returns that of the rendering in question, and is
    called only where that is held; ``allowed`` are the holds that an operator allowed.
    """
    if before is None or not _is_total(before, after):
        return None
    claims = before.claimed > 0 and not after.claimed
    count, what = (before.claimed, "behind the served names") if claims else (before.total, "in the cluster")
    gone = "the last ready endpoint is" if count == 1 else f"all {count:,} ready endpoints are"
    return _held(f"{gone} gone at once {what}; the last good configuration keeps serving", digest(), allowed)


@dataclass
class WholeChange:
    """A total loss is held without limit, one above the share of the rules until it lasted; belongs to one loop."""

    rules: RemovalRules
    since: float | None = None
    """When the loss that is held and not total began."""

    def is_over(self, now: float) -> bool:
        """Return whether a held loss that is not total has lasted long enough."""
        return self.since is not None and now - self.since >= self.rules.persist_s

    def judge(
        self,
        now: float,
        before: EndpointTotals,
        after: EndpointTotals,
        *,
        lost: int,
        digest: Callable[[], str],
        allowed: frozenset[str],
        confirmed: bool = True,
    ) -> Held | None:
        """Return a hold, or None where the change may pass; ``lost`` of the claimed endpoints of ``before`` are gone.

        ``now`` never jumps; ``confirmed`` says whether the loss was seen in a second full reading.
        """
        if self.rules.total and _is_total(before, after):
            self.since = None
            return total_loss(before, after, digest=digest, allowed=allowed)
        if not self.rules.is_too_much(lost, before.claimed):
            self.since = None
            return None
        self.since = now if self.since is None else self.since
        if confirmed and self.is_over(now):
            return None
        gone = f"{lost:,} of {before.claimed:,} ready endpoints are gone at once"
        until = f"until that has lasted {self.rules.persist_s:g} s"
        return _held(f"{gone}; the last good configuration keeps serving {until}", digest(), allowed)


def _is_total(before: EndpointTotals, after: EndpointTotals) -> bool:
    return bool((before.claimed and not after.claimed) or (before.total and not after.total))


def _held(message: str, digest: str, allowed: frozenset[str]) -> Held | None:
    hold_id = hashlib.sha256(f"{message} {digest}".encode()).hexdigest()[:8]
    remedy = f"look at the cluster and pyconfd's permissions; if this is meant, run: pyconfd allow {hold_id}"
    return None if hold_id in allowed else Held(hold_id, Problem(PLACE, message, remedy))
