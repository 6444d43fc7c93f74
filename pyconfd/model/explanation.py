"""Answers to "what became of it, and why": plain data that goes over HTTP and back unchanged.

Times are seconds since the epoch, 0.0 where it is not known; texts are fit to be printed.
"""

import msgspec

from pyconfd.model.condition import Condition


class ServerReport(msgspec.Struct, frozen=True, gc=False):
    """One server of the running configuration, or for a request of the newest one.

    ``state`` is what HAProxy says (``up``, ``down``, ``drain``, ``maint``), "" where it could not be asked, ``absent``
    where it has no such server; ``state_s`` is for how many seconds that is so, -1 where it is not known. ``place``
    and ``line`` say where the server line stands: fragment, and line of haproxy.cfg. ``object`` and ``pod`` are whose
    address it is, "" where nothing in the cluster has it. ``draining``: its pod terminates, or HAProxy sends it nothing
    new. ``held``: the cluster does not call it ready any more, and removal protection keeps it. ``by_hand``: somebody
    set it to ``drain`` or ``maint`` though its pod is ready. ``why`` is what the health check said of one that is down,
    and what is wrong with the way there.
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
    by_hand: bool = False
    why: str = ""


class EndpointReport(msgspec.Struct, frozen=True, gc=False):
    """An address of the cluster without a server; ``state`` is ``ready``, ``draining`` or ``down``."""

    address: str
    state: str
    pod: str = ""
    node: str = ""
    why: str = ""


class ClaimReport(msgspec.Struct, frozen=True, gc=False):
    """What became of one claim. ``because`` is what of the object claims, ``names`` what for.

    ``conditions`` are in the order of the stages, and several of one type where several values were refused. Traffic
    reaches it by ``servers``; a Secret is in the certificate ``files``. ``endpoints`` are shown where none can answer.
    ``preset`` is "" where no preset reads a claim from the object.
    """

    object: str
    conditions: tuple[Condition, ...]
    preset: str = ""
    because: str = ""
    names: tuple[str, ...] = ()
    servers: tuple[ServerReport, ...] = ()
    endpoints: tuple[EndpointReport, ...] = ()
    files: tuple[str, ...] = ()
    remedy: str = ""
    created: str = ""


class LineOrigin(msgspec.Struct, frozen=True, gc=False):
    """Where a line of haproxy.cfg came from.

    ``fragment`` gave it as its line ``rendered_line``; ``template_lines`` are those lines of the fragment that it can
    have come from, each with its number and text.
    """

    number: int
    text: str
    section: str
    fragment: str
    rendered_line: int
    template_lines: tuple[tuple[int, str], ...]


class RequestStep(msgspec.Struct, frozen=True, gc=False):
    """One thing that was looked at on the way of a request.

    ``part`` is ``listener``, ``certificate``, ``host``, ``rule``, ``filter``, ``backend``, ``log``, ``timeout`` or
    ``answer``.
    ``result`` is ``chosen``, ``lost`` or ``""`` where nothing is chosen from. ``object`` (kind, namespace, name and
    rule) and ``field`` are where it is written, "" where no object of the cluster says it.
    """

    part: str
    text: str
    result: str = ""
    object: str = ""
    field: str = ""


class RequestAnswer(msgspec.Struct, frozen=True, gc=False):
    """What becomes of a request: the steps in their order, and the end.

    ``backends`` are the sections that it may go to, each with its share of such requests in percent. ``status`` is what
    HAProxy itself answers, 0 where a server does; ``location`` is where a redirect leads. ``closed``: there is no
    answer.
    ``sometimes`` are statuses that a part of such requests get instead, in percent; 0 is a closed connection.
    ``uncovered`` says what is not known of it: then the end may be another one.
    """

    steps: tuple[RequestStep, ...]
    backends: tuple[tuple[str, float], ...] = ()
    status: int = 0
    location: str = ""
    closed: bool = False
    sometimes: tuple[tuple[int, float], ...] = ()
    uncovered: tuple[str, ...] = ()


class InstanceState(msgspec.Struct, frozen=True, gc=False):
    """What the instance runs, and what keeps the newest configuration from being applied.

    ``generation`` is 0 where nothing was applied; ``phase`` is that of the status, "" without a daemon; ``since`` is
    when the newest outcome was of this kind for the first time. ``held_since`` is when removals began to be held while
    all else goes on, 0.0 where none are. Changes of the namespaces of ``spent_share`` wait for former workers to end.
    """

    phase: str = ""
    generation: int = 0
    since: float = 0.0
    paused: bool = False
    hold_id: str = ""
    held_since: float = 0.0
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    spent_share: tuple[str, ...] = ()


class Explanation(msgspec.Struct, frozen=True, gc=False):
    """The answer to ``query``, as of ``now``; ``subject`` is what it was taken for.

    ``claims`` are those that it concerns, programmed ones first. About a pod, address, backend, server or line there
    are its ``servers``, and the ``endpoints`` without one. An ambiguous query has ``candidates``, each of which is a
    query with one answer. Where nothing was found, ``looked_in`` says among what, ``close`` what was perhaps meant.
    ``notes`` are beside that, say of a host without an object for which namespace it is kept, or what was left out of
    an answer that would be too long. ``request`` is what becomes of a request that was asked about: its ``servers`` are
    those that could be chosen; where HAProxy answers itself, ``claims`` are those that are not served as they ask.
    """

    query: str
    now: float
    instance: InstanceState
    subject: str = ""
    claims: tuple[ClaimReport, ...] = ()
    servers: tuple[ServerReport, ...] = ()
    endpoints: tuple[EndpointReport, ...] = ()
    line: LineOrigin | None = None
    candidates: tuple[str, ...] = ()
    looked_in: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    request: RequestAnswer | None = None

    @property
    def found(self) -> bool:
        """Whether the query stands for one thing."""
        return not self.candidates and not self.looked_in
