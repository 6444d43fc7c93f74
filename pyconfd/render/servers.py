"""The filter that turns endpoints into what server lines need."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from pyconfd.render.filters import field_of, hostport, server_ids, server_name
from pyconfd.render.invalid import InvalidValueError, shown

READY = "ready"
DRAINING = "draining"


class Server(NamedTuple):
    """One server line: ``server NAME TARGET id ID``, with ``weight 0`` where ``draining``."""

    name: str
    target: str
    id: int
    draining: bool


def servers(endpoints: Iterable[Any]) -> list[Server]:
    """Return the servers of one backend, sorted by name in byte order, without duplicates.

    Endpoints have ``pod``, ``address``, ``port`` and ``state`` ("ready" or "draining"). A draining one keeps its
    connections and gets no new ones (``weight 0``) while another is ready. If none is, all take traffic: a pod that
    is about to go still answers, and Kubernetes itself does the same (KEP-1669).

    Raises:
        InvalidValueError: an endpoint lacks one of these, or has an address, port or state that is none.

    """
    by_name = {server_name(endpoint): endpoint for endpoint in endpoints}
    states = {name: field_of(endpoint, "state") for name, endpoint in by_name.items()}
    for name, state in states.items():
        if state not in (READY, DRAINING):
            raise InvalidValueError(f"endpoint {name} has the state {shown(state)}", f"give {READY!r} or {DRAINING!r}")
    any_ready = READY in states.values()
    ids = server_ids(by_name)
    return [
        Server(
            name,
            hostport(field_of(by_name[name], "address"), field_of(by_name[name], "port")),
            ids[name],
            any_ready and states[name] == DRAINING,
        )
        for name in sorted(by_name)
    ]
