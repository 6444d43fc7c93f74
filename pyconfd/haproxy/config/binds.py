"""Judge new binds before a reload. Pure.

``haproxy -c`` does not open sockets. A bind that fails at the reload stops the listeners of the running worker for
about two seconds, for everybody, at each attempt; so what can be known is known before.
"""

import ipaddress
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyconfd.errors import NO_CLUES, Clues, Problem
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


PlaceOf = Callable[[int], tuple[str, int]]
"""Returns fragment and line for a line of the candidate."""


@dataclass(frozen=True, slots=True)
class BindFault:
    """What is wrong with a bind; ``unavailable`` says for each listener that it asks for why that cannot be had."""

    problem: Problem
    unavailable: Mapping[Listener, str] = field(default_factory=dict)


def judge(
    new: Sequence[Bind],
    current: Sequence[Bind],
    facts: HostFacts,
    *,
    place_of: PlaceOf = lambda line: ("", line),
    may_bind_low_ports: bool = True,
) -> tuple[BindFault, ...]:
    """Return what is wrong with the binds of a candidate.

    ``current`` are the binds that the running worker holds: they are inherited at a reload and not judged again.
    ``facts.listening`` must not contain the sockets of that worker where they could be recognised.
    """
    shared = [_shared(earlier, later, place_of) for earlier, later in _overlapping([one for one in new if one.judged])]
    return (*shared, *unbindable(new, current, facts, place_of=place_of, may_bind_low_ports=may_bind_low_ports))


def unbindable(
    new: Sequence[Bind],
    current: Sequence[Bind],
    facts: HostFacts,
    *,
    place_of: PlaceOf = lambda line: ("", line),
    may_bind_low_ports: bool = True,
) -> tuple[BindFault, ...]:
    """Return what would keep HAProxy from opening the binds of a candidate; the arguments are those of :func:`judge`.

    What two proxies share is none of it: HAProxy starts with that.
    """
    held = _InheritedBinds(current)
    sockets = _OtherSockets(facts, held)
    found: list[BindFault] = []
    for bind in (one for one in new if one.judged):
        if held.holds(bind):
            continue
        if _is_literal(bind.address):
            if _is_absent(bind, facts):
                family = "ipv6" if ":" in bind.address else "ipv4"
                remedy = (
                    f"add it to an interface, or set net.{family}.ip_nonlocal_bind=1 if it moves between hosts, or "
                    "correct it"
                )
                message = f"the address {bind.address} is not on this host"
                unavailable = _all_of(bind, f"{message}, and the fragment binds it without `transparent`")
                found.append(_fault(bind, place_of, message, remedy, unavailable))
            if taking := list(sockets.taking(bind)):
                first = taking[0]
                unavailable = {
                    bind.listener(one.port): f"{one.owner or 'another program'} of this machine listens on "
                    f"{one.listener}"
                    for one in reversed(taking)
                }
                message = f"port {first.port} is taken by {first.owner or 'another process'} on {first.address}"
                remedy = (
                    f"stop what listens there (`ss -ltnp 'sport = :{first.port}'` names it), or choose another port"
                )
                found.append(_fault(bind, place_of, message, remedy, unavailable))
        if not may_bind_low_ports and bind.first_port < facts.unprivileged_port_start:
            message = f"haproxy may not bind ports below {facts.unprivileged_port_start}"
            remedy = "give its unit AmbientCapabilities=CAP_NET_BIND_SERVICE, or use a higher port"
            found.append(_fault(bind, place_of, message, remedy, _all_of(bind, message)))
    return tuple(found)


def addresses_and_ports(binds: Sequence[Bind], current: Sequence[Bind]) -> tuple[frozenset[str], frozenset[int]]:
    """Return the literal addresses and the ports of new binds, about which the host has to be asked."""
    held = _InheritedBinds(current)
    fresh = [bind for bind in binds if bind.judged and not held.holds(bind)]
    addresses = frozenset(bind.address for bind in fresh if _is_literal(bind.address) and bind.address not in ANY)
    ports = frozenset(port for bind in fresh for port in range(bind.first_port, bind.last_port + 1))
    return addresses, ports


def _fault(bind: Bind, place_of: PlaceOf, message: str, remedy: str, unavailable: Mapping[Listener, str]) -> BindFault:
    fragment, line = place_of(bind.number)
    clues = Clues(lines=((fragment, line),)) if fragment else NO_CLUES
    text = f"{bind.text} of {bind.proxy}: {message}"
    return BindFault(Problem(_place(bind, place_of), text, remedy, fragment, clues=clues), unavailable)


def _all_of(bind: Bind, why: str) -> Mapping[Listener, str]:
    """Return why each listener of a bind cannot be had."""
    return dict.fromkeys(map(bind.listener, range(bind.first_port, bind.last_port + 1)), why)


def _place(bind: Bind, place_of: PlaceOf) -> str:
    fragment, line = place_of(bind.number)
    return f"{fragment} line {line}" if fragment else f"line {bind.number}"


def _is_absent(bind: Bind, facts: HostFacts) -> bool:
    nonlocal_bind = facts.nonlocal_bind_v6 if ":" in bind.address else facts.nonlocal_bind_v4
    return not (bind.address in ANY or bind.address in facts.addresses or nonlocal_bind or bind.transparent)


def _is_literal(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def _shared(earlier: Bind, later: Bind, place_of: PlaceOf) -> BindFault:
    """Two proxies with one address and port are no error for HAProxy: the kernel deals connections out at random."""
    message = f"also bound by {earlier.proxy} ({_place(earlier, place_of)}): connections would go to either at random"
    remedy = "give one of them another address or port, or join them in one frontend"
    ports = range(max(earlier.first_port, later.first_port), min(earlier.last_port, later.last_port) + 1)
    unavailable = {
        listener: f"{earlier.proxy} and {later.proxy} of the rendered text both listen on {listener}"
        for listener in map(later.listener, ports)
    }
    return _fault(later, place_of, message, remedy, unavailable)


def _overlapping(binds: Sequence[Bind]) -> Iterator[tuple[Bind, Bind]]:
    """Return pairs of binds of two proxies that ask for one socket, each pair in the order of the text."""
    reaching: list[Bind] = []
    for bind in sorted(binds, key=lambda bind: (bind.address, bind.interface, bind.first_port)):
        place = bind.address, bind.interface
        reaching = [
            each for each in reaching if (each.address, each.interface) == place and bind.first_port <= each.last_port
        ]
        if (other := next((each for each in reaching if each.proxy != bind.proxy), None)) is not None:
            earlier, later = sorted((other, bind), key=lambda bind: bind.number)
            yield earlier, later
        reaching.append(bind)
