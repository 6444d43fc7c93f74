"""One virtual router in the hook's hands: what it was decided to do, and when to decide again."""

from pyconfd.vip.files import SmallFile
from pyconfd.vip.policy import Alarm, Hold, Limits, Role, Shared, Stance
from pyconfd.vip.topology import Router
from pyconfd.vip.tracking import Sight

CALM_S = 0.09
"""How long nothing is decided where nothing has happened: what only time tells can wait for the next question but one
to haproxy."""


class RouterState:
    """One virtual router in the hook's hands."""

    def __init__(self, router: Router, now: float, probe_s: float, limits: Limits) -> None:
        self.router = router
        self.sight = Sight(router.instance, now, 2.5 * probe_s, limits)
        self.stance = Stance(since=now)
        self.track = SmallFile(router.track_file)
        self.handing_over: float | None = None
        self.alarms: frozenset[Alarm | Shared] = frozenset()
        self.probe_at = self.announce_at = 0.0
        self.left: frozenset[str] = frozenset()
        """Addresses that this node had, and whose connections are still here."""
        self.left_at = 0.0
        self.decided = False

    def moved(self, came: frozenset[str], went: frozenset[str], now: float) -> None:
        """Take that addresses came and went."""
        self.left = (self.left | went) - came
        if went:
            self.left_at = now

    @property
    def holds(self) -> bool:
        """Return whether one of its addresses is here."""
        return bool(self.sight.held)

    @property
    def stands_by(self) -> bool:
        """Return whether the adverts of whoever holds the addresses are keepalived's business alone."""
        is_able = self.stance.hold is Hold.ABLE and self.handing_over is None
        return is_able and not self.holds and not self.left

    def decide_at(self, now: float) -> float:
        """Return when to decide again if nothing happens until then."""
        sight = self.sight
        if self.stands_by and sight.role is Role.BACKUP and not self.alarms:
            return now + CALM_S
        fine = self.stance.hold is Hold.ABLE and self.handing_over is None and not self.alarms
        if fine and sight.role is Role.MASTER and sight.complete and sight.announced == sight.held:
            limits = sight.limits
            return min(now + CALM_S, sight.silent_since + (limits.hang_s if sight.is_late(now) else limits.late_s))
        return now
