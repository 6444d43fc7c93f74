"""Finds what a question is about, and answers it. Pure."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import msgspec

from pyconfd.explain.configuration import ServerLine, canonical, host_and_port, template_lines
from pyconfd.explain.evidence import Evidence
from pyconfd.explain.fates import endpoint_state, object_fate, refused_value, server_state
from pyconfd.explain.hints import hints_for
from pyconfd.explain.secrets import fate_of_secret, why_not_read
from pyconfd.model.explanation import (
    Ambiguous,
    Answer,
    EndpointState,
    Explanation,
    LineOrigin,
    NotApplied,
    NotAsked,
    NotReady,
    NotRendered,
    ObjectFate,
    Objects,
    Refusals,
    Served,
    Servers,
    TurnedAway,
    Unexplained,
    Unknown,
)
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.snapshot import KIND_OF, Key, Resource
from pyconfd.presets import conflicts, values
from pyconfd.presets.asks import Ask
from pyconfd.status.redaction import HIDDEN, redacted

_PASSWORD = re.compile(r"(?i)\b(auth|password|insecure-password)(\s+)\S+")
_WORD = re.compile(r"[\w.:-]+")
_LINE = re.compile(r"(?:line\s+|\S*\.cfg:)(\d+)", re.IGNORECASE)
_ORDER = (Served, NotApplied, NotReady, NotRendered, TurnedAway, NotAsked, Unexplained)
"""Who has what is asked for comes first."""


def explain_refused(evidence: Evidence) -> Explanation:
    """Return everything that is refused, the newest first."""
    told = [refused_value(each, evidence) for each in evidence.refused]
    told.sort(key=lambda each: (-each.since, each.object, each.field))
    return Explanation("", evidence.now, evidence.standing, Refusals(tuple(told)))


def explain(query: str, evidence: Evidence) -> Explanation:
    """Answer ``query``.

    It is a service (``shop/web``, ``web``), a domain, a pod, an address, a backend, a server (``backend/name``) or a
    line (``line 123``, ``haproxy.cfg:123``); a kind before it (``service web``, ``secret/shop/tls``) takes only that.
    """
    return Explanation(query, evidence.now, evidence.standing, _answer(" ".join(query.split()), evidence))


def _answer(query: str, evidence: Evidence) -> Answer:
    if found := _LINE.fullmatch(query):
        return _line(int(found[1]), evidence)
    kind, query = _kind_and_name(query)
    finders = [_FINDERS[kind]] if kind else [finder for finder in _FINDERS.values() if finder is not _secrets]
    subjects = [subject for finder in finders for subject in finder(query, evidence)]
    if not subjects and not kind:
        # A Secret often has the name of the Service whose certificate it holds: that one comes first.
        subjects = list(_secrets(query, evidence))
    unique = {subject.name: subject for subject in subjects}
    if len(unique) == 1:
        return next(iter(unique.values())).answer()
    if unique:
        return Ambiguous(tuple(unique))
    if kind == "secret" and "/" in query:
        namespace, _, name = query.rpartition("/")
        return msgspec.structs.replace(_unknown(query, evidence), kept=(why_not_read(Key(namespace, name), evidence),))
    return _unknown(query, evidence)


def _kind_and_name(query: str) -> tuple[str, str]:
    """Split ``service web`` and ``service/shop/web``; ``web/web-1`` may be a server, so it names no kind."""
    separator = " " if " " in query else "/" if query.count("/") == 2 else ""
    kind, _, rest = query.partition(separator) if separator else ("", "", query)
    return (kind.lower(), rest) if rest and kind.lower() in _FINDERS else ("", query)


@dataclass(frozen=True, slots=True)
class _Subject:
    """Something that a query stands for; ``name`` is a query that stands for nothing else."""

    name: str
    answer: Callable[[], Answer]


_Finder = Callable[[str, Evidence], Iterator[_Subject]]


def _objects(query: str, evidence: Evidence) -> Iterator[_Subject]:
    """Find services, and other objects that ask for something or are refused."""
    namespace, slash, name = query.rpartition("/")
    for key in _keys(evidence):
        if key.name == name and (not slash or key.namespace == namespace):
            yield _Subject(f"service {key.namespace}/{key.name}", partial(_of_key, key, evidence))


def _secrets(query: str, evidence: Evidence) -> Iterator[_Subject]:
    namespace, slash, name = query.rpartition("/")
    for key in sorted(evidence.snapshot.secrets):
        if key.name == name and (not slash or key.namespace == namespace):
            subject = f"{key.namespace}/{key.name}"
            yield _Subject(f"secret {subject}", partial(_of_secret, key, evidence))


def _of_secret(key: Key, evidence: Evidence) -> Answer:
    return Objects(f"secret {key.namespace}/{key.name}", (fate_of_secret(key, evidence),))


def _keys(evidence: Evidence) -> list[Key]:
    snapshot, others_own = evidence.snapshot, {"Pod", "Secret"}
    others = {Key(each.ref.namespace, each.ref.name) for each in evidence.asks if each.ref.kind not in others_own}
    others |= {Key(each.ref.namespace, each.ref.name) for each in evidence.refused if each.ref.kind not in others_own}
    return sorted({*snapshot.services, *snapshot.endpoints, *others})


def _of_key(key: Key, evidence: Evidence) -> Answer:
    subject = f"{key.namespace}/{key.name}".lstrip("/")
    asks = [each for each in evidence.asks if (each.ref.namespace, each.ref.name) == key and each.ref.kind != "Pod"]
    found = _fates(asks, evidence)
    if not found:
        found = _refused_only(key, evidence) or [_not_asked(key, evidence)]
    return Objects(subject, tuple(found))


def _fates(asks: Iterable[Ask], evidence: Evidence, host: str = "") -> list[ObjectFate]:
    told = [object_fate(ask, evidence, host) for ask in asks]
    return sorted(told, key=lambda each: _ORDER.index(type(each.fate)))


def _refused_only(key: Key, evidence: Evidence) -> list[ObjectFate]:
    """Return objects that ask for nothing that could be read, and are refused."""
    of_object: dict[ObjectRef, list[int]] = {}
    for number, each in enumerate(evidence.refused):
        if (each.ref.namespace, each.ref.name) == key and each.ref.kind != "Secret":
            of_object.setdefault(each.ref, []).append(number)
    told = []
    for ref, numbers in of_object.items():
        refused = tuple(refused_value(evidence.refused[number], evidence) for number in numbers)
        reasons = tuple(sorted({each.reason for each in refused}))
        told.append(ObjectFate(str(ref), ref.cluster, "", "", (), TurnedAway(reasons), refused, refused[0].remedy))
    return told


def _not_asked(key: Key, evidence: Evidence) -> ObjectFate:
    kind = "Service" if key in evidence.snapshot.services else "Endpoints"
    ref = ObjectRef(kind, key.namespace, key.name, evidence.snapshot.cluster)
    hints = hints_for(key, evidence)
    return ObjectFate(str(ref), ref.cluster, "", "", (), NotAsked(hints), remedy=hints[0] if hints else "")


def _domains(query: str, evidence: Evidence) -> Iterator[_Subject]:
    try:
        wanted = values.host_name(query)
    except ValueError:
        return
    host, asks = wanted, _asking_for(wanted, evidence)
    if not asks:
        covering = {name for ask in evidence.asks for name in ask.names if _covers(name, wanted)}
        host = max(sorted(covering), key=len, default="")
        asks = _asking_for(host, evidence) if host else []
    if asks:
        yield _Subject(f"domain {wanted}", lambda: Objects(wanted, tuple(_fates(asks, evidence, host))))


def _asking_for(host: str, evidence: Evidence) -> list[Ask]:
    """Return what asks for a name, also where the name was refused."""
    refused = [each for each in evidence.refused if each.value == host and "." in host]
    return [
        ask for ask in evidence.asks if host in ask.names or any(ask.concerns(each.ref, each.field) for each in refused)
    ]


def _covers(name: str, wanted: str) -> bool:
    return name.startswith("*.") and wanted.endswith(name[1:]) and wanted != name


def _pods(query: str, evidence: Evidence) -> Iterator[_Subject]:
    namespace, slash, name = query.rpartition("/")
    known = {key for key in evidence.snapshot.pods if key.name == name}
    known |= {Key(space, pod) for space, pod in _pods_of_services(evidence) if pod == name}
    for key in sorted(known):
        if not slash or key.namespace == namespace:
            yield _Subject(f"pod {key.namespace}/{key.name}", partial(_of_pod, key, evidence))


def _pods_of_services(evidence: Evidence) -> set[tuple[str, str]]:
    view = evidence.context.names.get("cluster")
    services = view.services if view is not None else ()
    return {(s.namespace, e.pod) for s in services for port in s.ports for e in port.endpoints if e.pod}


def _of_pod(key: Key, evidence: Evidence) -> Answer:
    def is_it(ask: Ask, pod: str) -> bool:
        return pod == key.name and (ask.ref.namespace == key.namespace or ask.ref.kind == "ConfigMap")

    return _behind(f"pod {key.namespace}/{key.name}", is_it, evidence, (key,))


def _behind(subject: str, is_it: Callable[[Ask, str], bool], evidence: Evidence, keys: Iterable[Key] = ()) -> Answer:
    """Answer about endpoints: their servers, and why others have none."""
    servers: dict[ServerLine, Ask] = {}
    unserved: list[tuple[EndpointState, str]] = []
    asks = []
    for ask in evidence.asks:
        mine = [endpoint for endpoint in ask.endpoints if is_it(ask, endpoint.pod)]
        if not mine:
            continue
        asks.append(ask)
        lines = evidence.servers_of(ask)
        for endpoint in mine:
            at = [line for line in lines if line.address == endpoint.address and endpoint.port in {0, line.port}]
            servers |= dict.fromkeys(sorted(at, key=lambda line: line.line), ask)
            if not at:
                unserved.append((endpoint_state(endpoint), _why_unserved(endpoint.state, ask, lines)))
    told = tuple(server_state(line, evidence, ask) for line, ask in servers.items())
    own = tuple(_fates(asks, evidence)) or tuple(_services_of_pods(keys, evidence))
    return Servers(subject, told, tuple(unserved), own)


def _why_unserved(state: str, ask: Ask, lines: Sequence[ServerLine]) -> str:
    if state == "down":
        return "it is not ready, so it gets no traffic"
    if lines and any(each.node for each in ask.endpoints):
        return f"{ask.ref} is served by other addresses: its nodes, or another port or address family"
    return f"{ask.ref} is not served"


def _services_of_pods(keys: Iterable[Key], evidence: Evidence) -> Iterator[ObjectFate]:
    """Return the services of pods that nobody asks to serve."""
    view = evidence.context.names.get("cluster")
    wanted = set(keys)
    for service in view.services if view is not None else ():
        pods = {Key(service.namespace, e.pod) for port in service.ports for e in port.endpoints}
        if pods & wanted:
            yield _not_asked(Key(service.namespace, service.name), evidence)


def _addresses(query: str, evidence: Evidence) -> Iterator[_Subject]:
    host, port = host_and_port(query)
    parsed = values.address(host) or values.address(canonical(query))
    if parsed is None:
        return
    address, port = (str(parsed), port) if values.address(host) else (str(parsed), 0)
    lines = evidence.configuration.at(address, port)
    asks = [ask for ask in evidence.asks if any(_is_at(e.address, e.port, address, port) for e in ask.endpoints)]
    if not lines and not asks:
        return
    served = {line.port for line in lines}
    unserved = tuple(
        (endpoint_state(e), _why_unserved(e.state, ask, evidence.servers_of(ask)))
        for ask in asks
        for e in ask.endpoints
        if _is_at(e.address, e.port, address, port) and not (e.port in served or (served and not e.port))
    )
    name = f"{address} port {port}" if port else address
    told = tuple(server_state(line, evidence) for line in lines)
    yield _Subject(f"address {query}", lambda: Servers(name, told, unserved, tuple(_fates(asks, evidence))))


def _is_at(address: str, port: int, wanted: str, wanted_port: int) -> bool:
    return address == wanted and (not wanted_port or port in {0, wanted_port})


def _backends(query: str, evidence: Evidence) -> Iterator[_Subject]:
    named = evidence.configuration.sections(query)
    if named:
        title = next((each.title for each in named if each.keyword in {"backend", "listen"}), named[0].title)
        yield _Subject(f"backend {query}", partial(_of_lines, title, query, "", evidence))


def _servers(query: str, evidence: Evidence) -> Iterator[_Subject]:
    backend, slash, name = query.rpartition("/")
    for line in evidence.configuration.called(name):
        if not slash or line.backend == backend:
            full = f"server {line.backend}/{line.name}"
            yield _Subject(full, partial(_of_lines, full, line.backend, line.name, evidence))


def _of_lines(subject: str, backend: str, name: str, evidence: Evidence) -> Answer:
    lines = [line for line in evidence.configuration.of_backend(backend) if name in {"", line.name}]
    asks = {owner.ref for line in lines if (owner := evidence.owner_of(line)) is not None}
    of_backend = [ask for ask in evidence.asks if ask.ref in asks or any(_is_of(g.section, backend) for g in ask.given)]
    told = tuple(server_state(line, evidence) for line in lines)
    return Servers(subject, told, (), tuple(_fates(of_backend, evidence)))


def _is_of(section: str, backend: str) -> bool:
    return bool(section) and (backend == section or backend.endswith(f"-{section}"))


def _line(number: int, evidence: Evidence) -> Answer:
    configuration = evidence.configuration
    if not 0 < number <= len(configuration.lines) or evidence.serving is None:
        count = len(configuration.lines) if evidence.serving is not None else 0
        return Unknown((f"the {count} lines of the configuration that serves",))
    text = configuration.lines[number - 1]
    fragment, rendered_line = evidence.serving.place_of(number)
    section = configuration.section_at(number)
    source = evidence.fragments.get(fragment, "")
    if fragment.endswith(".conf"):
        came_from: tuple[tuple[int, str], ...] = ((rendered_line, text.strip()),) if text.strip() else ()
    else:
        came_from = template_lines(source, text)
    lines = configuration.on_line(number)
    asks = [owner for each in lines if (owner := evidence.owner_of(each)) is not None]
    if not lines and section.name:
        asks = list(dict.fromkeys(filter(None, map(evidence.owner_of, configuration.of_backend(section.name)))))
        asks = asks or [ask for ask in evidence.asks if any(_is_of(g.section, section.name) for g in ask.given)]
    asks = asks or _mentioned(text, evidence)
    return LineOrigin(
        number=number,
        text=_without_secrets(text.strip(), evidence),
        section=section.title,
        fragment=fragment,
        rendered_line=rendered_line,
        template_lines=tuple((at, _without_secrets(line, evidence)) for at, line in came_from),
        objects=tuple(_fates(asks, evidence)),
        servers=tuple(server_state(each, evidence) for each in lines),
    )


def _mentioned(text: str, evidence: Evidence) -> list[Ask]:
    """Return what a line outside of any backend of its own is about: it has a name, or the backend, of it."""
    found = set(_WORD.findall(text.lower()))
    return [
        ask
        for ask in evidence.asks
        if any(name.removeprefix("*").lower() in found for name in ask.names)
        or any(_is_of(given.section.lower(), word) for given in ask.given for word in found)
    ]


def _without_secrets(line: str, evidence: Evidence) -> str:
    """Return a line of a configuration that fewer people may read than the answer."""
    for secret in evidence.secrets:
        line = line.replace(secret, HIDDEN)
    return redacted(_PASSWORD.sub(rf"\1\2{HIDDEN}", line))


def _unknown(query: str, evidence: Evidence) -> Unknown:
    snapshot = evidence.snapshot
    read = [
        f"{len(getattr(snapshot, resource.field))} {KIND_OF[resource]} objects"
        for resource in Resource
        if getattr(snapshot, resource.field)
    ]
    names = {name for ask in evidence.asks for name in ask.names}
    written = evidence.configuration
    looked = (
        *(read or ["no objects: the cluster gave none"]),
        f"{len(names)} domains and names",
        f"{len(written.names)} sections and {written.server_count} servers of haproxy.cfg",
    )
    known = {
        *(f"{key.namespace}/{key.name}" for key in _keys(evidence)),
        *(key.name for key in _keys(evidence)),
        *names,
        *(pod for _, pod in _pods_of_services(evidence)),
        *evidence.configuration.names,
        *evidence.configuration.server_names,
    }
    close = difflib.get_close_matches(query, sorted(known), n=5, cutoff=0.6)
    return Unknown(looked, tuple(close), tuple(_kept_for_others(query, evidence)))


def _kept_for_others(query: str, evidence: Evidence) -> Iterator[str]:
    """Say of a name that nobody asks for whose it was."""
    wanted = query.lower().removeprefix("domain ")
    for preset, mine in evidence.context.register.reservations.items():
        for name, reservation in mine.items():
            if name.name == wanted and reservation.until:
                yield f"nobody asks for it at present (preset {preset}); {conflicts.kept(reservation)}"


_FINDERS: Mapping[str, _Finder] = MappingProxyType(
    {
        "service": _objects,
        "domain": _domains,
        "pod": _pods,
        "address": _addresses,
        "backend": _backends,
        "server": _servers,
        "secret": _secrets,
    }
)
"""By the word that may stand before a query."""
