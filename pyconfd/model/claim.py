"""What one object of the cluster asks this balancer to serve, and how far that came."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyconfd.model.context import Refusal
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.snapshot import Key

ANY_PORT = 0
"""The port of an endpoint where a preset gives addresses only, and the templates choose the port."""


@dataclass(frozen=True, eq=False)
class ClaimedBackend:
    """What the templates were given for a claim, mostly one port: ``name`` is for people.

    ``section`` is the word that its section in haproxy.cfg is known by, ``key`` what the preset serves it under.
    ``endpoints`` have an ``address`` and a ``port``. ``hosts`` are the names that clients reach it by. ``unreachable``
    says why no listener can lead to it, "" where one may.
    """

    name: str
    section: str
    key: str
    endpoints: Sequence[Any] = field(repr=False)
    hosts: frozenset[str] = frozenset()
    unreachable: str = ""

    @cached_property
    def _places(self) -> frozenset[tuple[str, int]]:
        return frozenset((each.address, each.port) for each in self.endpoints)

    def is_at(self, address: str, port: int) -> bool:
        """Return whether traffic is to go there."""
        return (address, port) in self._places or (address, ANY_PORT) in self._places


@dataclass(frozen=True, eq=False)
class Claim:
    """What one object asks one preset for.

    ``item`` tells several claims of one object apart (the key of a ConfigMap); ``because`` is what asks, ``names`` what
    for. ``endpoints`` are all that stand behind it, in any state: those of ``services``, or its own. ``refused`` is
    what was refused of it: each one sets the condition of :func:`pyconfd.model.condition.condition_of_refusal`.
    ``listens`` is True for an object that has ports and no servers of its own; ``frontends`` are the sections of those
    that are served.
    """

    ref: ObjectRef
    preset: str
    because: str
    names: tuple[str, ...]
    backends: tuple[ClaimedBackend, ...]
    endpoints: tuple[Any, ...] = field(default=(), repr=False)
    item: str = ""
    refused: tuple[Refusal, ...] = ()
    listens: bool = False
    frontends: tuple[str, ...] = ()
    services: tuple[Key, ...] = ()

    @property
    def has_ready(self) -> bool:
        """Whether there is an endpoint that could answer."""
        return any(each.state == "ready" for each in self.endpoints)
