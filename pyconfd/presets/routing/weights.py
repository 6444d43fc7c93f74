"""The servers of several references in one backend: each reference gets its share, however many endpoints it has.

A step of a canary changes weights and nothing else, so it is a runtime update.
"""

from collections.abc import Sequence

from pyconfd.presets.routing.types import RouteServer
from pyconfd.presets.views import EndpointView

MOST = 256
"""HAProxy's largest weight. Source: configuration manual, 5.2 ``weight``."""


References = Sequence[tuple[int, Sequence[EndpointView]]]
"""Each by its weight and endpoints."""


def empty_share(references: References, of: int) -> int:
    """Return how many of ``of`` requests are for references without endpoints that are ready.

    Return 0 where no reference has one: HAProxy answers all requests itself then.
    """
    total = sum(weight for weight, _ in references)
    empty = sum(weight for weight, endpoints in references if not any(each.state == "ready" for each in endpoints))
    return -(-empty * of // total) if empty < total else 0


def weighted_servers(references: References) -> tuple[RouteServer, ...]:
    """Return the servers of references.

    References without endpoints that are ready count for nothing. An endpoint that is behind several of them is one
    server that has the weight of all. Where all are to get the same, each has the weight 1.
    """
    numbers = [sum(endpoint.state == "ready" for endpoint in endpoints) for _, endpoints in references]
    shares = [weight / number for (weight, _), number in zip(references, numbers, strict=True) if weight and number]
    scale = MOST / max(shares) if shares and min(shares) < max(shares) else 0.0
    found: dict[tuple[str, str, int], RouteServer] = {}
    for (weight, endpoints), number in zip(references, numbers, strict=True):
        even = 1 if weight else 0
        weights = iter(_spread(max(even, round(weight * scale)), number))
        for endpoint in endpoints:
            # One that drains takes new connections only where nothing else is left, and then they all do.
            own = next(weights) if scale and endpoint.state == "ready" else even
            key = endpoint.pod, endpoint.address, endpoint.port
            known = found.get(key)
            found[key] = _server(endpoint, min(MOST, own + (known.weight if known is not None else 0)))
    return tuple(found.values())


def _spread(total: int, number: int) -> list[int]:
    """Return ``total`` in ``number`` parts that differ by one at most."""
    whole, rest = divmod(total, number or 1)
    return [whole + (place < rest) for place in range(number)]


def _server(endpoint: EndpointView, weight: int) -> RouteServer:
    return RouteServer(
        endpoint.address, endpoint.port, endpoint.state, endpoint.family, endpoint.pod, endpoint.node, endpoint.zone,
        weight,
    )  # fmt: skip
