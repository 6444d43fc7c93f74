"""Judge new binds before a reload. Pure.

``haproxy -c`` does not open sockets. A bind that fails at the reload stops the listeners of the running worker for
about two seconds, for everybody, at each attempt; so what can be known is known before.
"""

import ipaddress
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from pyconfd.errors import Problem
from pyconfd.haproxy.config.text import Bind
from pyconfd.model.listener import ANY, Listener
from pyconfd.model.snapshot import HostFacts, ListeningSocket


class _InheritedBinds:
    """The binds that a reload inherits; to ask takes the same time however many there are."""

    def __init__(self, binds: Iterable[Bind]) -> None:
        judged = [bind for bind in binds if bind.judged]
        self._exact = {bind.identity for bind in judged}
        self._ranges = [bind for bind in judged if bind.first_port < bind.last_port]
        self._sockets = {(bind.address, bind.first_port) for bind in judged}

    def holds(self, bind: Bind) -> bool:
        """Return whether one of them is ``bind``, or a wider range."""
        return bind.identity in self._exact or any(
            held.address == bind.address
            and held.interface == bind.interface
            and held.first_port <= bind.first_port
            and bind.last_port <= held.last_port
            for held in self._ranges
        )

    def has(self, socket: ListeningSocket) -> bool:
        """Return whether ``socket`` is one of theirs."""
        return (socket.address, socket.port) in self._sockets or any(
            held.address == socket.address and held.first_port <= socket.port <= held.last_port for held in self._ranges
        )


class _OtherSockets:
    """The sockets of others, by port."""

    def __init__(self, facts: HostFacts, held: _InheritedBinds) -> None:
        self._by_port: dict[int, list[ListeningSocket]] = defaultdict(list)
        for socket in sorted(facts.listening):
            # Whose socket it is may not be visible to an unprivileged pyconfd.
            if socket.owner or not held.has(socket):
                self._by_port[socket.port].append(socket)

    def taking(self, bind: Bind) -> Iterator[ListeningSocket]:
        """Return those that have what ``bind`` asks for, sorted by port."""
        if bind.first_port == bind.last_port:
            ports = [bind.first_port] if bind.first_port in self._by_port else []
        else:
            ports = sorted(port for port in self._by_port if bind.first_port <= port <= bind.last_port)
        for port in ports:
            wanted = bind.listener(port)
            yield from (socket for socket in self._by_port[port] if socket.listener.overlaps(wanted))


def judge(
    new: Sequence[Bind],
    current: Sequence[Bind],
    facts: HostFacts,
    *,
    place_of: Callable[[int], tuple[str, int]] = lambda line: ("", line),
    may_bind_low_ports: bool = True,
) -> tuple[Problem, ...]:
    """Return what is wrong with the binds of a candidate.

    ``current`` are the binds that the running worker holds: they are inherited at a reload and not judged again.
    ``facts.listening`` must not contain the sockets of that worker where they could be recognised. ``place_of``
    gives fragment and line for a line of the candidate.
    """
    held = _InheritedBinds(current)
    sockets = _OtherSockets(facts, held)
    problems = list(_shared(new, place_of))
    for bind in new:
        if not bind.judged or held.holds(bind):
            continue
        place = _place(bind, place_of)
        for message, remedy in _faults(bind, sockets, facts, may_bind_low_ports=may_bind_low_ports):
            problems.append(Problem(place, f"{bind.text} of {bind.proxy}: {message}", remedy, place_of(bind.number)[0]))
    return tuple(problems)


def contested(new: Sequence[Bind], current: Sequence[Bind], facts: HostFacts) -> Mapping[Listener, str]:
    """Return what new binds ask for and another process, or another proxy of the candidate, has; and who that is.

    The owner is a sentence about who listens where.
    """
    held = _InheritedBinds(current)
    sockets = _OtherSockets(facts, held)
    judged = [bind for bind in new if bind.judged]
    found: dict[Listener, str] = {}
    for bind in judged:
        if not held.holds(bind) and _is_literal(bind.address):
            for socket in sockets.taking(bind):
                owner = f"{socket.owner or 'another program'} of this machine listens on {socket.listener}"
                found.setdefault(bind.listener(socket.port), owner)
    for earlier, later in _overlapping(judged):
        for port in range(max(earlier.first_port, later.first_port), min(earlier.last_port, later.last_port) + 1):
            listener = later.listener(port)
            found.setdefault(
                listener, f"{earlier.proxy} and {later.proxy} of the rendered text both listen on {listener}"
            )
    return found


def addresses_and_ports(binds: Sequence[Bind], current: Sequence[Bind]) -> tuple[frozenset[str], frozenset[int]]:
    """Return the literal addresses and the ports of new binds, about which the host has to be asked."""
    held = _InheritedBinds(current)
    fresh = [bind for bind in binds if bind.judged and not held.holds(bind)]
    addresses = frozenset(bind.address for bind in fresh if _is_literal(bind.address) and bind.address not in ANY)
    ports = frozenset(port for bind in fresh for port in range(bind.first_port, bind.last_port + 1))
    return addresses, ports


def _place(bind: Bind, place_of: Callable[[int], tuple[str, int]]) -> str:
    fragment, line = place_of(bind.number)
    return f"{fragment} line {line}" if fragment else f"line {bind.number}"


def _faults(
    bind: Bind, sockets: _OtherSockets, facts: HostFacts, *, may_bind_low_ports: bool
) -> Iterator[tuple[str, str]]:
    if _is_literal(bind.address):
        yield from _absent(bind, facts)
        yield from _taken(bind, sockets)
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


def _taken(bind: Bind, sockets: _OtherSockets) -> Iterator[tuple[str, str]]:
    socket = next(sockets.taking(bind), None)
    if socket is not None:
        yield (
            f"port {socket.port} is taken by {socket.owner or 'another process'} on {socket.address}",
            f"stop what listens there (`ss -ltnp 'sport = :{socket.port}'` names it), or choose another port",
        )


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
    """Return pairs of binds of two proxies that ask for one socket, in the order of the text."""
    ordered = sorted(binds, key=lambda bind: (bind.address, bind.interface, bind.first_port))
    for first, second in pairwise(ordered):
        same_socket = first.address == second.address and first.interface == second.interface
        if same_socket and second.first_port <= first.last_port and first.proxy != second.proxy:
            earlier, later = sorted((first, second), key=lambda bind: bind.number)
            yield earlier, later
