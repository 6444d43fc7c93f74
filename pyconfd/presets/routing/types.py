"""The values of routing: what a route asks for, and what fragments are given of it.

A *virtual host* is one host in one frontend; its id is the host itself in the shared frontends, ``FRONTEND|HOST`` in
others. A rule gives one match at one virtual host to one backend. The maps of :mod:`pyconfd.presets.routing.table` lead
a request to a backend, or to a group: backends that are chosen between by conditions on the request.
"""

import hashlib
from enum import StrEnum
from typing import NamedTuple

import msgspec

from pyconfd.model.reservation import Owner
from pyconfd.presets.views import EndpointView

EXACT_PATHS = "exact-paths"
"""Map with keys ``HOST/PATH``, looked up first (``map_str``)."""

PATH_PREFIXES = "path-prefixes"
"""Map with keys ``HOST/PREFIX/``, or ``HOST/BEGINNING``; the longest one counts (``map_beg``)."""

PATH_EXPRESSIONS = "path-expressions"
"""Map with regular expressions of a host and the beginning of a path; the longest one that matches (``map_reg``)."""

GROUP_PREFIX = "group:"
"""What the value of a map entry begins with that leads to a group."""

_LONGEST_SECTION = 120


class PathKind(StrEnum):
    """How a path is compared."""

    EXACT = "exact"
    PREFIX = "prefix"
    """Whole elements: ``/foo`` has ``/foo/bar``, and not ``/foobar``."""
    REGEX = "regex"
    """The whole path."""
    BEGINNING = "beginning"
    """Characters: ``/foo`` has ``/foobar`` too."""
    EXPRESSION = "expression"
    """A regular expression of the beginning of the path, in any case; a longer expression comes first."""


class ValueCondition(NamedTuple):
    """A header, query parameter or cookie that a request has to have; ``regex``: ``value`` matches all of its value."""

    name: str
    value: str
    regex: bool = False


class RouteMatch(NamedTuple):
    """What a request has to be. ``method`` "" is any; names of headers are in lower case."""

    kind: PathKind = PathKind.PREFIX
    path: str = "/"
    method: str = ""
    headers: tuple[ValueCondition, ...] = ()
    query: tuple[ValueCondition, ...] = ()
    cookies: tuple[ValueCondition, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the maps alone decide."""
        return not (self.method or self.headers or self.query or self.cookies or self.kind is PathKind.REGEX)


class RouteRule(NamedTuple):
    """One match of one object at one virtual host; ``number`` is its place among those of the object.

    ``backend`` is what the map entry holds: the name of a section, or, where a rule of the Gateway API has several, the
    ``route`` of their choices (:class:`pyconfd.presets.gateway.http_rules.RuleSections`).

    Rules with a lower ``precedence`` come first whatever their match is: those of a route that names more of the host.
    ``unlogged``: its object wants none of its requests in the access log.
    """

    virtual_host: str
    match: RouteMatch
    backend: str
    owner: Owner
    number: int = 0
    precedence: int = 0
    unlogged: bool = False

    @property
    def rank(self) -> tuple[int, str, str, str, str, int]:
        """The lowest rank wins a match: by precedence, then the older object, its name, and the order in the object."""
        return self.precedence, *self.owner.rank, self.number


class PathEntry(NamedTuple):
    """One key of one of the two maps of paths."""

    map: str
    key: str


class RouteGroup(NamedTuple):
    """Rules to be tried one after the other where ``entry`` was found; a rule without conditions is the last one."""

    id: str
    entry: PathEntry
    rules: tuple[RouteRule, ...]


class HostKind(StrEnum):
    """Which hosts belong to a virtual host."""

    EXACT = "exact"
    ONE_LABEL = "one-label"
    """``*.example.com`` of an Ingress: one label in place of ``*``."""
    ANY_DEPTH = "any-depth"
    """``*.example.com`` of a domain or a Gateway: one label or more."""
    ANY = "any"
    """Every host that no other virtual host of the frontend has."""


class VirtualHost(msgspec.Struct, frozen=True, gc=False):
    """One host in one frontend; ``frontend`` is the name in the names of its maps of hosts.

    ``namespace`` has the host, where the frontend is one that all namespaces share.
    ``above`` has the ids of the virtual hosts whose rules are for the hosts of this wildcard too, the next one first.
    ``expressions``: paths of it are regular expressions (:data:`PATH_EXPRESSIONS`).
    ``listener`` is that of a Gateway whose connections its requests come by, "" where that does not matter.
    ``below_foreign``: the next wildcard above the host belongs to another namespace, whose certificate it does not get.
    """

    id: str
    frontend: str
    host: str
    kind: HostKind
    groups: tuple[RouteGroup, ...] = ()
    namespace: str = ""
    above: tuple[str, ...] = ()
    below_foreign: bool = False
    listener: str = ""
    expressions: bool = False

    @property
    def map(self) -> str:
        """The map that leads to the virtual host."""
        prefix = {HostKind.ONE_LABEL: "one-label", HostKind.ANY_DEPTH: "wildcards"}.get(self.kind, "hosts")
        return f"{prefix}-{self.frontend}"

    @property
    def map_key(self) -> str:
        """The key in that map: wildcards are looked up without their first label."""
        if self.kind is HostKind.ANY:
            return "*"
        return self.host.removeprefix("*") if self.kind is HostKind.ANY_DEPTH else self.host.removeprefix("*.")


class RouteServer(msgspec.Struct, frozen=True, gc=False):
    """One endpoint of one of a backend's references; the filter ``servers`` makes a line of it."""

    address: str
    port: int
    state: str
    family: str
    pod: str = ""
    node: str = ""
    zone: str = ""
    weight: int = 1

    @property
    def terminating(self) -> bool:
        """Whether its pod ends and serves what it has begun."""
        return self.state == "draining"


class Decider(NamedTuple):
    """The object that sends a request to a backend, and the number of its rule where there are several.

    ``name`` has commas where it may be one of several.
    """

    kind: str
    namespace: str
    name: str
    rule: int | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" + (f" rule {self.rule}" if self.rule is not None else "")

    @property
    def logged(self) -> str:
        """What a line of the log has of it."""
        # A value of a map is sent over the socket and read back, so it has no quotation marks.
        return f"{self.kind}/{self.namespace}/{self.name}"


class RouteBackend(msgspec.Struct, frozen=True, gc=False):
    """One section ``backend``. ``owner`` is for its comment, ``entries`` lead to it without conditions.

    ``deciders`` are the objects that send requests to it, as the log has them, by ``HOST|NAME``. ``unlogged`` are keys
    of the map ``access-log-off``: requests whose answers are not logged.
    ``namespace`` and ``service`` are those of the Service where there is only one, else "". ``options`` are more words
    for the line of each server.
    """

    name: str
    owner: str
    namespace: str
    service: str
    entries: tuple[PathEntry, ...]
    servers: tuple[RouteServer | EndpointView, ...]
    mode: str = "http"
    options: str = ""
    deciders: tuple[tuple[str, str], ...] = ()
    unlogged: tuple[str, ...] = ()


def section_name(prefix: str, *parts: str) -> str:
    """Return the name of a section: no other ``parts`` (names of objects, numbers) have the same."""
    name = "_".join((prefix, *parts))
    if len(name) <= _LONGEST_SECTION and not any("_" in part for part in parts):
        return name
    digest = hashlib.sha256("/".join(parts).encode()).hexdigest()[:16]
    return f"{name[: _LONGEST_SECTION - 17]}_{digest}"
