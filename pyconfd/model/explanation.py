"""Answers to "what became of it, and why": plain data that goes over HTTP and back unchanged.

Times are seconds since the epoch, 0.0 where it is not known; texts are fit to be printed.
"""

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False):
    """What all parts of an explanation are."""


class RefusedValue(Record, frozen=True, gc=False):
    """One refusal; ``since`` is when this daemon first saw it, ``at_least`` says that it may be older."""

    object: str
    field: str
    value: str
    reason: str
    detail: str
    remedy: str
    since: float = 0.0
    at_least: bool = False


class ServerState(Record, frozen=True, gc=False):
    """One server of the configuration.

    ``state`` is what HAProxy says (``up``, ``down``, ``drain``, ``maint``), "" where it could not be asked, ``absent``
    where it has no such server; ``state_s`` is for how many seconds that is so, -1 where it is not known. ``place``
    and ``line`` say where the server line stands: fragment, and line of haproxy.cfg. ``object`` and ``pod`` are whose
    address it is, "" where nothing in the cluster has it. ``draining``: its
    pod terminates, or HAProxy sends it nothing new. ``held``: the cluster does not call it ready any more, and
    removal protection keeps it.
    """

    backend: str
    name: str
    address: str
    state: str
    place: str
    line: int
    weight: int = -1
    state_s: int = -1
    object: str = ""
    pod: str = ""
    held: bool = False
    draining: bool = False


class EndpointState(Record, frozen=True, gc=False):
    """One address behind a Service; ``state`` is ``ready``, ``draining`` or ``down``."""

    address: str
    state: str
    pod: str = ""
    node: str = ""


class Fate(msgspec.Struct, frozen=True, gc=False, tag_field="fate"):
    """What happened to something that asks to be served."""


class Served(Fate, frozen=True, gc=False, tag="served"):
    """Traffic can reach it through these servers; a Secret is in the certificate ``files``."""

    servers: tuple[ServerState, ...]
    files: tuple[str, ...] = ()


class NotApplied(Fate, frozen=True, gc=False, tag="not_applied"):
    """The newest configuration has it, and is not what serves; :class:`Standing` says why."""

    held: bool = False


class NotReady(Fate, frozen=True, gc=False, tag="not_ready"):
    """Nothing that could answer is behind it; ``why`` says in words what is missing."""

    why: str
    endpoints: tuple[EndpointState, ...] = ()


class NotRendered(Fate, frozen=True, gc=False, tag="not_rendered"):
    """The fragments got it and made nothing of it; ``why`` says where that is known."""

    names: tuple[str, ...] = ()
    why: str = ""


class TurnedAway(Fate, frozen=True, gc=False, tag="refused"):
    """It was refused: ``reasons`` are the words of the metric, sorted."""

    reasons: tuple[str, ...]


class NotAsked(Fate, frozen=True, gc=False, tag="not_asked"):
    """Nothing about it asks to be served; ``hints`` say what would."""

    hints: tuple[str, ...]


class Unexplained(Fate, frozen=True, gc=False, tag="unexplained"):
    """It asks to be served, is not, and nothing says why: that is a bug."""


AnyFate = Served | NotApplied | NotReady | NotRendered | TurnedAway | NotAsked | Unexplained


class ObjectFate(Record, frozen=True, gc=False):
    """One object, as one preset reads it. ``because`` is what of it asks to be served, ``names`` what for.

    ``refused`` are its refusals, also those that left only a part of it out. ``changed`` is the last change of its
    backends that is still known, in words, and ``changed_at`` when that was.
    """

    object: str
    cluster: str
    preset: str
    because: str
    names: tuple[str, ...]
    fate: AnyFate
    refused: tuple[RefusedValue, ...] = ()
    remedy: str = ""
    created: str = ""
    changed: str = ""
    changed_at: float = 0.0


class Objects(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="objects"):
    """The answer about a service, a domain, or any other object; who has what is asked for comes first."""

    subject: str
    objects: tuple[ObjectFate, ...]


class Servers(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="servers"):
    """The answer about a pod, an address, a backend or a server.

    ``unserved`` are endpoints of the cluster for which there is no server line, each with why that is so.
    """

    subject: str
    servers: tuple[ServerState, ...]
    unserved: tuple[tuple[EndpointState, str], ...] = ()
    objects: tuple[ObjectFate, ...] = ()


class LineOrigin(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="line"):
    """Where a line of haproxy.cfg came from.

    ``fragment`` gave it as its line ``rendered_line``; ``template_lines`` are those lines of the fragment that it can
    have come from, each with its number and text. ``objects`` are what it stands for.
    """

    number: int
    text: str
    section: str
    fragment: str
    rendered_line: int
    template_lines: tuple[tuple[int, str], ...]
    objects: tuple[ObjectFate, ...] = ()
    servers: tuple[ServerState, ...] = ()


class Refusals(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="refusals"):
    """Everything that is refused at present."""

    refused: tuple[RefusedValue, ...]


class Ambiguous(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="ambiguous"):
    """The name stands for several things; each of ``candidates`` is a question with one answer."""

    candidates: tuple[str, ...]


class Unknown(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="unknown"):
    """Nothing has this name; ``looked_in`` says among what it was looked for, ``kept`` for whom it is kept."""

    looked_in: tuple[str, ...]
    close: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


Answer = Objects | Servers | LineOrigin | Refusals | Ambiguous | Unknown


class Standing(Record, frozen=True, gc=False):
    """How things stand as a whole: what serves, and what keeps the newest configuration from it.

    ``generation`` is 0 where nothing was applied; ``phase`` is that of the status, "" without a daemon; ``since`` is
    when the newest outcome was of this kind for the first time. ``unasked`` says why HAProxy could not be asked.
    ``held_since`` is when removals began to be held while all else goes on, 0.0 where none are.
    """

    phase: str = ""
    generation: int = 0
    applied_at: float = 0.0
    since: float = 0.0
    hold_id: str = ""
    problems: tuple[str, ...] = ()
    unasked: str = ""
    notes: tuple[str, ...] = ()
    held_since: float = 0.0


class Explanation(Record, frozen=True, gc=False):
    """The answer to ``query``, as of ``now``."""

    query: str
    now: float
    standing: Standing
    answer: Answer
