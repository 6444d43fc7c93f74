"""Who listens where, and who has which name there, while claims are decided in order of their age.

What is claimed on all addresses (``*``, ``0.0.0.0``, ``::``) is claimed on each of them: Linux hands a connection to
the listener that names its address, so without this a younger claim that names one would take it over.
"""

from collections import defaultdict
from functools import lru_cache
from typing import Generic, TypeVar

from pyconfd.model.listener import ANY_IPV4, ANY_IPV6, Listener

_C = TypeVar("_C")
_Port = tuple[int, str]


@lru_cache(maxsize=4096)
def covering(listener: Listener) -> tuple[Listener, ...]:
    """Return the listener, and those on all addresses that get its connections where it is not bound."""
    wider = (ANY_IPV6,) if ":" in listener.address else (ANY_IPV4, ANY_IPV6)
    return (listener, *(Listener(each, listener.port) for each in wider if each != listener.address))


def overlap(one: Listener, other: Listener) -> bool:
    """Return whether one of two listeners covers the other."""
    return one.covers(other) or other.covers(one)


class Sockets(Generic[_C]):
    """The claims that were accepted so far, which come in order of their rank."""

    def __init__(self) -> None:
        self._first: dict[tuple[Listener, str], tuple[int, _C]] = {}
        self._names: defaultdict[tuple[_Port, str], list[tuple[Listener, _C]]] = defaultdict(list)

    def first(self, listener: Listener, protocol: str = "tcp") -> _C | None:
        """Return the oldest claim that gets the connections of ``listener``; None where nobody does."""
        places = ((each, protocol) for each in covering(listener))
        found = [self._first[place] for place in places if place in self._first]
        return min(found, key=lambda item: item[0])[1] if found else None

    def take(self, listener: Listener, claim: _C, protocol: str = "tcp") -> None:
        """Note a claim; the first one on a listener decides who else may join it."""
        self._first.setdefault((listener, protocol), (len(self._first), claim))

    def owner(self, listener: Listener, name: str, protocol: str = "tcp") -> _C | None:
        """Return who has ``name`` on a listener that overlaps this one."""
        known = self._names.get(((listener.port, protocol), name), ())
        return next((claim for place, claim in known if overlap(place, listener)), None)

    def name(self, listener: Listener, name: str, claim: _C, protocol: str = "tcp") -> None:
        """Note who has a name."""
        self._names[(listener.port, protocol), name].append((listener, claim))
