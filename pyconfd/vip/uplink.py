"""The way out: whether the carrier can be trusted, the gateways answer, and the route to them is still there."""

import math
from collections.abc import Sequence

from pyconfd.vip.netlink import Route, route_out
from pyconfd.vip.wire import Ears

FLAPS_WITHIN_S = 60.0
"""A carrier that was lost before within this time is trusted later."""
LONGEST_DISTRUST_S = 32.0
QUIET_S = 0.75
"""Gateways are asked more often than that."""


class Damping:
    """When a carrier that is back is trusted [pure]: after ``settle_s``, twice as long after each further loss."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._carrier = True
        self._losses: list[float] = []
        self._back = -math.inf

    def back_s(self, now: float) -> float:
        """Return how long the carrier has been back; infinite if it was never away."""
        return now - self._back

    def see(self, carrier: bool, now: float) -> bool:
        """Take the carrier as it is; give whether it is trusted. ``now`` is monotonic, in seconds."""
        self._losses = [at for at in self._losses if now - at < FLAPS_WITHIN_S]
        if carrier != self._carrier:
            self._carrier = carrier
            if carrier:
                self._back = now
            else:
                self._losses.append(now)
        if not carrier or not self._losses:
            return carrier
        patience = min(LONGEST_DISTRUST_S, self._settle_s * 2.0 ** (len(self._losses) - 1))
        return now - self._back >= patience


class Uplink:
    """The gateways as they answer ARP and neighbour solicitations, and the route that leads to them."""

    def __init__(self, gateways: Sequence[str], interface: str) -> None:
        self.gateways = tuple(gateways)
        self._interface = interface
        self._answered: dict[str, float] = {}
        self._since = math.inf
        self._routes: dict[int, Route] = {}
        self._ears: Ears | None = None
        self._heard = -math.inf
        self.lost: Route | None = None

    def start(self, now: float) -> None:
        """Begin to count: before now nobody listened."""
        self._since = self._heard = now

    def answered(self, address: str, now: float) -> None:
        """Take that somebody says he has an address."""
        if address in self.gateways:
            self._answered[address] = now

    def age_s(self, now: float) -> float:
        """Return how long no gateway has answered; 0 where none is looked at."""
        if not self.gateways:
            return 0.0
        return now - max(self._since, *self._answered.values(), -math.inf)

    def heard_age_s(self, now: float) -> float:
        """Return how long nothing at all has come in, as far as it was asked for."""
        return now - max(self._heard, self._since)

    @property
    def ways(self) -> tuple[str, ...]:
        """Return the gateways by which a way out was seen."""
        return tuple(sorted(route.gateway for route in self._routes.values()))

    def listen(self, now: float) -> None:
        """See whether anything has come in for this node since; only while the gateways are silent.

        Raises:
            OSError: the interface is gone.
        """
        if self.age_s(now) <= QUIET_S:
            if self._ears is not None:
                self._ears.close()
                self._ears = None
            self._heard = now
        elif self._ears is None:
            self._ears = Ears(self._interface)
            self._heard = now
        elif self._ears.heard():
            self._heard = now

    def follow_routes(self) -> None:
        """See whether a way out by a gateway that was there is no more.

        Raises:
            OSError: the kernel does not tell.
        """
        for family in {6 if ":" in address else 4 for address in self.gateways}:
            route = route_out(family)
            if route is not None and route.gateway in self.gateways:
                self._routes[family] = route
                if self.lost is not None and self.lost.family == family:
                    self.lost = None
            elif family in self._routes:
                self.lost = self._routes[family]
