"""Judge new binds before a reload. Pure.

``haproxy -c`` does not open sockets. A bind that fails at the reload stops the listeners of the running worker for
about two seconds, for everybody, at each attempt; so what can be known is known before.
"""

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from pyconfd.errors import Problem
from pyconfd.haproxy.sections import Bind
from pyconfd.model.host import HostFacts, ListeningSocket

ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, never bound


def judge(
    new: Sequence[Bind],
    current: Sequence[Bind],
    facts: HostFacts,
    *,
    place_of: Callable[[int], tuple[str, int]] = lambda line: ("", line),
    may_bind_low_ports: bool = True,
) -> tuple[Problem, ...]:
    """Give what is wrong with the binds of a candidate.

    ``current`` are the binds that the running worker holds: they are inherited at a reload and not judged again.
    ``facts.listening`` must not contain the sockets of that worker where they could be told apart. ``place_of``
    gives fragment and line for a line of the candidate.
    """
    held = [bind for bind in current if bind.judged]
    problems = list(_shared(new, place_of))
    for bind in new:
        if not bind.judged or any(_holds(other, bind) for other in held):
            continue
        place = _place(bind, place_of)
        for message, remedy in _faults(bind, held, facts, may_bind_low_ports=may_bind_low_ports):
            problems.append(Problem(place, f"{bind.text} of {bind.proxy}: {message}", remedy, place_of(bind.number)[0]))
    return tuple(problems)


def contested_ports(new: Sequence[Bind], current: Sequence[Bind], facts: HostFacts) -> frozenset[int]:
    """Give the ports of new binds that another process, or another proxy of the candidate, has already."""
    held = [bind for bind in current if bind.judged]
    judged = [bind for bind in new if bind.judged]
    fresh = [bind for bind in judged if not any(_holds(other, bind) for other in held) and _is_literal(bind.address)]
    contested = [later for _, later in _overlapping(judged)]
    contested += [bind for bind in fresh if any(_taken(bind, held, facts))]
    return frozenset(port for bind in contested for port in range(bind.first_port, bind.last_port + 1))


def addresses_and_ports(binds: Sequence[Bind], current: Sequence[Bind]) -> tuple[frozenset[str], frozenset[int]]:
    """Give the literal addresses and the ports of new binds, about which the host has to be asked."""
    held = [bind for bind in current if bind.judged]
    fresh = [bind for bind in binds if bind.judged and not any(_holds(other, bind) for other in held)]
    addresses = frozenset(bind.address for bind in fresh if _is_literal(bind.address) and bind.address not in ANY)
    ports = frozenset(port for bind in fresh for port in range(bind.first_port, bind.last_port + 1))
    return addresses, ports


def _place(bind: Bind, place_of: Callable[[int], tuple[str, int]]) -> str:
    fragment, line = place_of(bind.number)
    return f"{fragment} line {line}" if fragment else f"line {bind.number}"


def _holds(held: Bind, bind: Bind) -> bool:
    return (
        held.address == bind.address
        and held.interface == bind.interface
        and held.first_port <= bind.first_port
        and bind.last_port <= held.last_port
    )


def _faults(
    bind: Bind, held: Sequence[Bind], facts: HostFacts, *, may_bind_low_ports: bool
) -> Iterator[tuple[str, str]]:
    if _is_literal(bind.address):
        yield from _absent(bind, facts)
        yield from _taken(bind, held, facts)
    if not may_bind_low_ports and bind.first_port < facts.unprivileged_port_start:
        yield (
            f"haproxy may not bind ports below {facts.unprivileged_port_start}",
            "give its unit AmbientCapabilities=CAP_NET_BIND_SERVICE, or use a higher port",
        )


def _absent(bind: Bind, facts: HostFacts) -> Iterator[tuple[str, str]]:
    nonlocal_bind = facts.nonlocal_bind_v6 if ":" in bind.address else facts.nonlocal_bind_v4
    if bind.address in ANY or bind.address in facts.addresses or nonlocal_bind or bind.transparent:
        return
    family = "ipv6" if ":" in bind.address else "ipv4"
    yield (
        f"the address {bind.address} is not on this host",
        f"add it to an interface, or set net.{family}.ip_nonlocal_bind=1 if it moves between hosts, or correct it",
    )


def _taken(bind: Bind, held: Sequence[Bind], facts: HostFacts) -> Iterator[tuple[str, str]]:
    for socket in sorted(facts.listening):
        if not bind.first_port <= socket.port <= bind.last_port or not _overlap(bind, socket):
            continue
        if not socket.owner and any(_is_socket_of(other, socket) for other in held):
            continue
        owner = socket.owner or "another process"
        yield (
            f"port {socket.port} is taken by {owner} on {socket.address}",
            f"stop what listens there (`ss -ltnp 'sport = :{socket.port}'` names it), or choose another port",
        )
        return


def _overlap(bind: Bind, socket: ListeningSocket) -> bool:
    """Tell whether both want the same packets; a wildcard takes every address of its family."""
    bind_v6, socket_v6 = ":" in bind.address, ":" in socket.address
    if bind_v6 == socket_v6:
        return bind.address == socket.address or bind.address in ANY or socket.address in ANY
    if socket_v6:
        return socket.address == "::" and not socket.v6only
    return bind.dual_stack


def _is_socket_of(held: Bind, socket: ListeningSocket) -> bool:
    return held.address == socket.address and held.first_port <= socket.port <= held.last_port


def _is_literal(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def _shared(binds: Sequence[Bind], place_of: Callable[[int], tuple[str, int]]) -> Iterator[Problem]:
    """Two proxies with one address and port are no error for HAProxy: the kernel deals connections out at random."""
    for earlier, later in _overlapping([bind for bind in binds if bind.judged]):
        yield Problem(
            _place(later, place_of),
            f"{later.text} of {later.proxy} is also bound by {earlier.proxy} ({_place(earlier, place_of)}): "
            "connections would go to either at random",
            "give one of them another address or port, or join them in one frontend",
            place_of(later.number)[0],
        )


def _overlapping(binds: Sequence[Bind]) -> Iterator[tuple[Bind, Bind]]:
    """Give pairs of binds of two proxies that ask for one socket, in the order of the text."""
    ordered = sorted(binds, key=lambda bind: (bind.address, bind.interface, bind.first_port))
    for first, second in pairwise(ordered):
        same_socket = first.address == second.address and first.interface == second.interface
        if same_socket and second.first_port <= first.last_port and first.proxy != second.proxy:
            earlier, later = sorted((first, second), key=lambda bind: bind.number)
            yield earlier, later
