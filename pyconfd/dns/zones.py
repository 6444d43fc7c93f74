"""Which hosted zone a name belongs to."""

from collections.abc import Iterable

from pyconfd.dns.records import Zone, inside, normalised
from pyconfd.errors import ConfigurationError, Problem


def zone_of(name: str, zones: Iterable[Zone], *, private: bool) -> Zone:
    """Return the public (or private) zone with the longest name that ``name`` is in, on a label boundary.

    Raises:
        ConfigurationError: there is none, or two of the same name.
    """
    kind = "private" if private else "public"
    fitting = [zone for zone in zones if zone.private is private and inside(name, zone.name)]
    longest = max((len(normalised(zone.name)) for zone in fitting), default=0)
    best = sorted((zone for zone in fitting if len(normalised(zone.name)) == longest), key=lambda zone: zone.zone_id)
    if not best:
        remedy = "set dns.zone_id, or dns.private if it is the other kind"
        raise ConfigurationError(Problem("dns.names", f"no {kind} hosted zone has {name}", remedy))
    if len(best) > 1:
        both = " and ".join(f"{zone.zone_id} ({zone.name})" for zone in best)
        message = f"{name} fits {both}, both {kind}"
        raise ConfigurationError(Problem("dns.zone_id", message, "set dns.zone_id to the one that is meant"))
    return best[0]
