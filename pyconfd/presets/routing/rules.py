"""What rules of routes and Ingresses ask for besides their servers, as fragments write it into backends.

Texts that HAProxy reads as a format come escaped (``%`` is doubled); the fragment quotes them. Rules with the same
lines share a *profile*, and values that HAProxy can read from a map are entries of one.
"""

import hashlib
from functools import lru_cache
from typing import NamedTuple

from pyconfd.model.context import PresetName
from pyconfd.model.gateway_api import BackendRef
from pyconfd.presets import values
from pyconfd.presets.policies.types import NO_POLICY, RoutePolicy
from pyconfd.presets.routing.types import RouteBackend
from pyconfd.presets.views import PortAt

_VALUE = "="
"""Stands for a value that is in a map."""


class HeaderEdit(NamedTuple):
    """One header to ``set``, ``add`` or ``del``; ``format`` is a format of HAProxy, "" where it is deleted."""

    action: str
    name: str
    format: str = ""


class PathEdit(NamedTuple):
    r"""A path that replaces the former one: all of it where ``pattern`` is "", else what ``pattern`` matches.

    ``format`` is a format of HAProxy; with a pattern it may refer to what that matched (``\1``).
    """

    pattern: str
    format: str


class Redirect(NamedTuple):
    """A redirect. ``scheme`` and ``host`` "" are those of the request.

    ``port`` is "" where the URL needs none; the port that clients connected to where it is None.
    """

    code: int
    scheme: str
    host: str
    port: str | None


class Cors(NamedTuple):
    """Cross-origin rules. ``conditions`` are those of an allowed origin, each enough for itself.

    ``methods`` and ``headers`` are lists as in the headers; "*" allows what is asked for, "" nothing.
    """

    conditions: tuple[str, ...]
    credentials: bool
    methods: str
    headers: str
    exposed: str
    max_age: int


class Mirror(NamedTuple):
    """Copies of ``share`` of ``of`` requests go where ``reference`` leads, which stands in ``field`` of the rule."""

    field: str
    reference: BackendRef
    share: int
    of: int


class Filters(NamedTuple):
    """All filters of one rule or reference."""

    request: tuple[HeaderEdit, ...] = ()
    response: tuple[HeaderEdit, ...] = ()
    host: str = ""
    path: PathEdit | None = None
    redirect: Redirect | None = None
    cors: Cors | None = None
    mirrors: tuple[Mirror, ...] = ()

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """The texts that HAProxy can read from a map, each by its name there: they need no line of their own."""
        edits = (("request", self.request), ("response", self.response))
        found = [
            (f"{name}{number}", _text_of(edit.format))
            for name, some in edits
            for number, edit in enumerate(some)
            if edit.format
        ]
        if self.host:
            found.append(("host", self.host))
        if self.path and not self.path.pattern:
            found.append(("path", _text_of(self.path.format)))
        if self.redirect and self.redirect.host:
            found.append(("redirect", self.redirect.host))
        return tuple(found)

    @property
    def lines(self) -> "Filters":
        """These without their values: equal ones have the same lines."""
        is_whole = self.path is not None and not self.path.pattern
        return self._replace(
            request=tuple(edit._replace(format=edit.format and _VALUE) for edit in self.request),
            response=tuple(edit._replace(format=edit.format and _VALUE) for edit in self.response),
            host=self.host and _VALUE,
            path=PathEdit("", _VALUE) if is_whole else self.path,
            redirect=self.redirect and self.redirect._replace(host=self.redirect.host and _VALUE),
        )

    def followed_by(self, later: "Filters") -> "Filters":
        """Return these and, after them, those of a reference."""
        return Filters(
            self.request + later.request,
            # Answers come the other way.
            later.response + self.response,
            later.host or self.host,
            later.path or self.path,
            self.redirect,
            self.cors,
            self.mirrors,
        )

    def beside(self, usual: "Filters") -> "Filters":
        """Return these, and what ``usual`` asks for where these say nothing of it."""
        # A path is that of the redirect, or the one that pods are asked for.
        path = self.path if self.redirect or (self.path and not usual.redirect) else usual.path
        return Filters(
            usual.request + self.request,
            usual.response + self.response,
            self.host or usual.host,
            path,
            self.redirect or usual.redirect,
            self.cors or usual.cors,
            usual.mirrors + self.mirrors,
        )


NO_FILTERS = Filters()


def as_format(value: str) -> str:
    """Return a text as it stands in a format of HAProxy."""
    # In a rule these words begin a condition even in quotes.
    if value in values.CONDITION_WORDS | {"{", "}", "!", "||"}:
        return f"%[str({value})]"
    return value.replace("%", "%%")


def _text_of(format_: str) -> str:
    """Return the text that :func:`as_format` made a format of."""
    return format_[len("%[str(") : -len(")]")] if format_.startswith("%[str(") else format_.replace("%%", "%")


MOST_ATTEMPTS = 100
RETRIED_STATUSES = frozenset({401, 403, 404, 408, 425, 500, 501, 502, 503, 504})
"""Statuses that HAProxy can try again on. Source: configuration manual, ``retry-on``."""


class Retry(NamedTuple):
    """How often a request is tried again, and ``on`` what, in HAProxy's words."""

    attempts: int
    on: str


class Handling(NamedTuple):
    """How requests of a rule are handled in each of its backends; None: as usual.

    ``timeout_ms`` is how long a server may be silent, ``deadline_ms`` is for all attempts together, ``tunnel_ms`` is
    how long both sides may be silent once they have switched protocols, ``connect_ms`` and ``queue_ms`` how long it may
    take to reach a server, and for one to have room.
    """

    timeout_ms: int | None = None
    retry: Retry | None = None
    deadline_ms: int | None = None
    tunnel_ms: int | None = None
    connect_ms: int | None = None
    queue_ms: int | None = None

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """The times that HAProxy can read from a map, each by its name there."""
        found = (("server", self.timeout_ms), ("deadline", self.deadline_ms), ("tunnel", self.tunnel_ms))
        return tuple((name, str(ms)) for name, ms in found if ms is not None)

    @property
    def lines(self) -> "Handling":
        """Itself without its values: equal ones have the same lines."""
        return self._replace(
            timeout_ms=None if self.timeout_ms is None else 0,
            deadline_ms=None if self.deadline_ms is None else 0,
            tunnel_ms=None if self.tunnel_ms is None else 0,
        )

    def beside(self, usual: "Handling") -> "Handling":
        """Return this, and what ``usual`` asks for where this says nothing; no silence is longer than the deadline."""
        deadline = usual.deadline_ms if self.deadline_ms is None else self.deadline_ms
        silence = usual.timeout_ms if self.timeout_ms is None else self.timeout_ms
        times = [each for each in (silence, deadline) if each is not None]
        return Handling(
            min(times, default=None),
            usual.retry if self.retry is None else self.retry,
            deadline,
            usual.tunnel_ms if self.tunnel_ms is None else self.tunnel_ms,
            usual.connect_ms if self.connect_ms is None else self.connect_ms,
            usual.queue_ms if self.queue_ms is None else self.queue_ms,
        )


AS_USUAL = Handling()


class MirrorSection(NamedTuple):
    """Where copies of ``share`` of ``of`` requests go."""

    name: str
    share: int
    of: int


class RuleProfile(NamedTuple):
    """The lines of a backend besides its servers: backends of many rules have the same."""

    filters: Filters
    failing: int
    of: int
    handling: Handling
    options: str
    sans: tuple[str, ...]
    policy: RoutePolicy = NO_POLICY
    divided: bool = False
    preset: str = PresetName.GATEWAY

    @property
    def name(self) -> str:
        """The name of the defaults section that has these lines."""
        return _name_of_profile(self)

    def section(self, rules: int) -> "RuleBackend":
        """Return what the section says; about so many rules use it."""
        owner = "What rules with the same filters have in common"
        return RuleBackend(self.name, owner, "", "", (), (), route="", is_profile=True, rules=rules, **self._asdict())


@lru_cache(maxsize=1024)
def _name_of_profile(profile: RuleProfile) -> str:
    return f"{profile.preset}-profile-{hashlib.sha256(repr(profile).encode()).hexdigest()[:32]}"


EMPTY_OF = 1_000_000
"""The fineness of shares: the largest weight of a reference."""


class RuleBackend(RouteBackend, frozen=True, gc=False):
    """A backend of a rule. ``route`` is what its ``entries`` lead to: its own name, or the route of choices.

    ``failing`` of ``of`` requests are answered with 500, since they belong to references that lead nowhere; all of them
    where both are 1. ``options`` are words for each of its servers. ``sans`` are parts of their certificates in
    hexadecimal digits, of which one has to be there. ``profile`` is the section that has the lines for all of this, ""
    where the backend has its own; or it ``is_profile`` itself, and ``rules`` use it. ``ports`` are those that its
    servers answer for, each with the weight that these share. ``asking`` is whose limits are counted together.
    ``divided``: of the requests for several references those of one without endpoints are answered with 503, which are
    ``empty`` of :data:`EMPTY_OF`. ``said`` has the words behind all of this, each with what says it.
    """

    route: str = ""
    filters: Filters = NO_FILTERS
    failing: int = 0
    of: int = 1
    handling: Handling = AS_USUAL
    options: str = ""
    sans: tuple[str, ...] = ()
    mirrors: tuple[MirrorSection, ...] = ()
    profile: str = ""
    is_profile: bool = False
    rules: int = 0
    ports: tuple[tuple[int, PortAt], ...] = ()
    policy: RoutePolicy = NO_POLICY
    divided: bool = False
    empty: int = 0
    preset: str = PresetName.GATEWAY
    asking: str = ""
    said: tuple[tuple[str, str], ...] = ()

    @property
    def lines(self) -> RuleProfile | None:
        """What its lines say besides its servers, None for nothing, or where it is a matter of this backend alone."""
        if self.mode != "http" or self.mirrors:
            return None
        found = RuleProfile(
            self.filters.lines,
            self.failing,
            self.of,
            self.handling.lines,
            self.options,
            self.sans,
            self.policy.lines,
            self.divided,
            self.preset,
        )
        return None if found[:-1] == _PLAIN[:-1] else found


_PLAIN = RuleProfile(NO_FILTERS, 0, 1, AS_USUAL, "", ())
