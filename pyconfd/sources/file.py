"""Snapshots in files: what ``kubectl get -o yaml|json`` prints, and what ``pyconfd record`` wrote."""

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

import msgspec
import structlog
import yaml

from pyconfd.errors import ConfigurationError, Problem
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.gateway_api import GROUP as GATEWAY_API
from pyconfd.model.kubernetes import AnyObject, ObjectRef, Pod, Secret
from pyconfd.model.secrets import names_secret
from pyconfd.model.snapshot import KIND_OF, Key, Resource, Snapshot
from pyconfd.model.status import SourceHealth

# Objects are decoded by the same rules wherever they come from.
from pyconfd.printable import clean
from pyconfd.sources.kubernetes.decode import DROPPED_ANNOTATIONS, Unreadable, decode_object, key_of
from pyconfd.sources.kubernetes.resources import API_VERSION_OF
from pyconfd.system.secrecy import redacted

STDIN = "-"
EVERY_S = 0.3
_SETTLING_S = 0.05
_FRESH_NS = 50_000_000
_STOP_TIMEOUT_S = 10.0
REDACTED = "REDACTED"
_MAY_BE_SECRET = (
    "args", "command", "env", "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe",
)  # fmt: skip
_WORD_ENDS = re.compile(r"[/.-]")
_CLUSTER_FIELD = "pyconfd.io/cluster"
_RESOURCE_OF = {(API_VERSION_OF[resource], kind): resource for resource, kind in KIND_OF.items()}
# kubectl writes the version that a cluster prefers, which depends on its CustomResourceDefinitions.
_RESOURCE_OF |= {
    (f"{GATEWAY_API}/{version}", KIND_OF[resource]): resource
    for resource in Resource
    for version in ("v1", "v1beta1")
    if API_VERSION_OF[resource].startswith(f"{GATEWAY_API}/")
}
_REMEDY = "give what this prints: kubectl get services,endpoints,endpointslices,nodes -A -o yaml"

log = structlog.get_logger(__name__)


# The pure Python loader is ten times slower, but there is no libyaml everywhere.
_BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Loader(_BaseLoader):  # type: ignore[misc]
    """Leaves times as the text they are in the API."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _BaseLoader.yaml_implicit_resolvers.items()
}


class _Dumper(_BaseDumper):  # type: ignore[misc]
    """Writes no anchors: the same text twice is no reference."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class's signature
        return True


def read_snapshot(
    paths: str | Path | Sequence[str | Path], stdin: TextIO | None = None
) -> tuple[Snapshot, tuple[Refusal, ...]]:
    """Read one or more files ("-" is the standard input, or ``stdin``) into one Snapshot.

    Lists, single objects and several documents may be mixed; kinds that pyconfd does not use are passed over. An
    object that does not have the shape of its kind is refused and the others stay. The same object in a later place
    replaces the former one.

    Raises:
        ConfigurationError: a file cannot be read, is empty, or holds no Kubernetes objects; with the line if known.
    """
    reader = _SnapshotReader()
    for path in (paths,) if isinstance(paths, str | Path) else paths:
        place = "the standard input" if str(path) == STDIN else str(path)
        reader.read(place, _text_of(str(path), place, stdin or sys.stdin))
    if reader.ignored:
        log.info("snapshot.kinds_ignored", **dict(reader.ignored))
    return reader.snapshot(), tuple(sorted(reader.refusals))


def write_snapshot(snapshot: Snapshot, hide: Callable[[str], str] = redacted) -> str:
    """Return a YAML List that :func:`read_snapshot` reads back to an equal Snapshot, apart from what may be secret.

    Every value of a Secret is replaced by ``REDACTED``, and so are annotations and values of ConfigMaps whose names say
    that they are secret; ``hide`` takes credentials out of the others. Of a pod's containers what often holds some is
    left out: command, arguments, environment, probes, hooks.
    """
    items = [
        {"apiVersion": API_VERSION_OF[resource], "kind": KIND_OF[resource], **_public(_plain(record), hide)}
        for resource in Resource
        for _, record in sorted(_part(snapshot, resource).items())
    ]
    metadata = {_CLUSTER_FIELD: snapshot.cluster} if snapshot.cluster else {}
    whole = {"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}
    return yaml.dump(whole, Dumper=_Dumper, sort_keys=False, width=120)


def _part(snapshot: Snapshot, resource: Resource) -> Mapping[Key, AnyObject]:
    return cast("Mapping[Key, AnyObject]", getattr(snapshot, resource.field))


def _plain(record: AnyObject) -> dict[str, Any]:
    if isinstance(record, Secret) and record.data is not None:
        record = msgspec.structs.replace(record, data=dict.fromkeys(record.data, REDACTED))
    if isinstance(record, Pod) and record.whole is not None:
        return _plain_pod(record.whole.json)
    plain: dict[str, Any] = msgspec.to_builtins(record)
    annotations = plain["metadata"].get("annotations", {})
    for name in DROPPED_ANNOTATIONS:
        annotations.pop(name, None)
    return plain


def _plain_pod(json: bytes) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(json)
    spec = plain["spec"]
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or () if isinstance(spec, dict) else ():
            for field in _MAY_BE_SECRET if isinstance(container, dict) else ():
                container.pop(field, None)
    return plain


def _public(plain: dict[str, Any], hide: Callable[[str], str]) -> dict[str, Any]:
    """Remove credentials from annotations, those of a pod template too, from ConfigMaps, and from headers of routes."""
    spec = plain.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    for part in (plain, template):
        metadata = part.get("metadata") if isinstance(part, dict) else None
        for values in (metadata.get("annotations") if isinstance(metadata, dict) else None, plain.get("data")):
            if not isinstance(values, dict):
                continue
            for name, value in values.items():
                if isinstance(value, str) and value != REDACTED:
                    values[name] = _hidden(name, value, hide)
    for rule in spec.get("rules") or () if isinstance(spec, dict) else ():
        _hide_headers(rule, hide)
    return plain


def _hide_headers(part: Any, hide: Callable[[str], str]) -> None:
    """Hide what a filter of a route sets, and what a match compares: ``{name: Authorization, value: ...}``."""
    if isinstance(part, dict) and isinstance(name := part.get("name"), str) and isinstance(part.get("value"), str):
        part["value"] = _hidden(name, part["value"], hide)
    for below in part.values() if isinstance(part, dict) else part if isinstance(part, list | tuple) else ():
        _hide_headers(below, hide)


def _hidden(name: str, value: str, hide: Callable[[str], str]) -> str:
    return REDACTED if names_secret(_WORD_ENDS.sub("_", name)) else hide(value)


class _SnapshotReader:
    def __init__(self) -> None:
        self.records: dict[Resource, dict[Key, AnyObject]] = {resource: {} for resource in Resource}
        self.refusals: set[Refusal] = set()
        self.ignored: Counter[str] = Counter()
        self.cluster = ""

    def read(self, place: str, text: str) -> None:
        if not text.strip():
            raise ConfigurationError(Problem(place, "the file is empty", _REMEDY))
        found = False
        for document in _documents(place, text):
            if document is None:
                continue
            found = True
            if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
                raise ConfigurationError(Problem(place, f"no Kubernetes object: {clean(str(document), 80)!r}", _REMEDY))
            if document["kind"].endswith("List") and not isinstance(document.get("items", ""), list | None):
                raise ConfigurationError(Problem(place, f"a {clean(document['kind'], 80)} without items", _REMEDY))
            self._take(document, "")
        if not found:
            raise ConfigurationError(Problem(place, "the file holds nothing but empty documents", _REMEDY))

    def snapshot(self) -> Snapshot:
        parts: dict[str, Any] = {resource.field: records for resource, records in self.records.items()}
        return Snapshot(self.cluster, **parts)

    def _take(self, document: Any, list_kind: str) -> None:
        if not isinstance(document, dict):
            self._refuse("?", f"an item of the list is no object: {clean(str(document), 80)!r}")
            return
        # Items of a typed list (ServiceList) do not repeat their kind.
        kind = document.get("kind") or list_kind.removesuffix("List")
        version = document.get("apiVersion") or ("v1" if list_kind else "")
        if isinstance(kind, str) and kind.endswith("List") and isinstance(document.get("items", ""), list | None):
            self._take_list(document, kind)
            return
        if not isinstance(kind, str) or not isinstance(version, str):
            self._refuse("?", "an item has no kind, or one that is no text")
            return
        resource = _RESOURCE_OF.get((version, kind))
        if resource is None:
            self.ignored[clean(kind, 80)] += 1
            return
        self._take_object(resource, document)

    def _take_list(self, document: dict[str, Any], kind: str) -> None:
        metadata = document.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get(_CLUSTER_FIELD), str):
            self.cluster = metadata[_CLUSTER_FIELD]
        version = document.get("apiVersion")
        for item in document.get("items") or ():
            if isinstance(item, dict) and kind != "List":
                item = {"apiVersion": version, **item}  # noqa: PLW2901 - completed, not replaced
            self._take(item, kind)

    def _take_object(self, resource: Resource, document: dict[str, Any]) -> None:
        try:
            found = decode_object(resource, msgspec.json.encode(document), self.cluster)
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError) as error:
            self._refuse(KIND_OF[resource], f"it has no form in JSON: {clean(str(error), 80)}")
            return
        if isinstance(found, Unreadable):
            self.refusals.add(found.refusal)
            return
        key = key_of(found)
        if key in self.records[resource]:
            log.warning("snapshot.object_repeated", object=str(ObjectRef(KIND_OF[resource], *key)))
        self.records[resource][key] = found

    def _refuse(self, kind: str, detail: str) -> None:
        ref = ObjectRef(kind, "", "(no name)", self.cluster)
        self.refusals.add(Refusal(ref, "", "", RefusalReason.UNREADABLE, detail))


def _text_of(path: str, place: str, stdin: TextIO) -> str:
    try:
        return stdin.read() if path == STDIN else Path(path).read_text("utf-8")
    except OSError as error:
        raise ConfigurationError(Problem(place, f"cannot be read: {error.strerror}", "look at --snapshot")) from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(Problem(place, f"this is no text: {error.reason}", _REMEDY)) from None


def _documents(place: str, text: str) -> Iterator[Any]:
    if text.lstrip().startswith("{"):
        try:
            yield msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # YAML's reader names the line, and reads several JSON documents.
            pass
        else:
            return
    try:
        yield from yaml.load_all(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigurationError(Problem(_place_of(place, error), _reason_of(error), _REMEDY)) from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(Problem(place, f"cannot be read as YAML: {clean(str(error), 80)}", _REMEDY)) from None


def _place_of(place: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f"{place} line {mark.line + 1}" if mark is not None else place


def _reason_of(error: yaml.YAMLError) -> str:
    return f"neither YAML nor JSON: {clean(getattr(error, 'problem', None) or str(error), 200)}"


_Marks = tuple[tuple[int, int, int] | None, ...]


class FollowedFiles:
    """A source that reads files again whenever they change.

    What cannot be read after an edit changes nothing, and is reported by :meth:`problems`.

    Raises:
        ConfigurationError: the files cannot be read at the start.
    """

    def __init__(self, paths: tuple[str, ...], *, every_s: float = EVERY_S) -> None:
        self._paths = paths
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._problems: tuple[Problem, ...] = ()
        self._marks = self._stat()
        self._read = read_snapshot(paths)
        if any(mark is not None and time.time_ns() - mark[1] < _FRESH_NS for mark in self._marks):
            # It may be written once more within the same tick of its file system's clock, which no mark would show.
            self._marks = ()

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to watch; ``notify`` is called whenever the content changed."""
        notify()
        self._thread = threading.Thread(target=self._follow, args=(notify,), name="followed-files", daemon=True)
        self._thread.start()

    def _follow(self, notify: Callable[[], None]) -> None:
        while not self._stopping.wait(self._every_s):
            marks = self._stat()
            if marks == self._marks:
                continue
            time.sleep(_SETTLING_S)
            if self._stat() != marks:
                continue  # it is being written
            self._marks = marks
            try:
                read = read_snapshot(self._paths)
            except ConfigurationError as error:
                self._problems = error.problems
                log.warning("snapshot.rejected", problem=str(error))
                continue
            self._problems = ()
            if read != self._read:
                self._read = read
                notify()

    def _stat(self) -> _Marks:
        return tuple(_mark(path) for path in self._paths)

    def snapshot(self) -> Snapshot:
        """Return the last content that could be read; the same object until it changes."""
        return self._read[0]

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the objects that could not be decoded."""
        return self._read[1]

    def problems(self) -> tuple[Problem, ...]:
        """Return why the files as they are now are not used."""
        return self._problems

    def health(self) -> SourceHealth:
        """Return that all is read."""
        return SourceHealth(synced=True, last_sync_at=time.time(), note=f"reads {', '.join(self._paths)}")

    def relist(self) -> None:
        """Do nothing: the files are checked all the time."""

    def relisted(self) -> bool:
        """Return True: nothing is awaited."""
        return True

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)


def _mark(path: str) -> tuple[int, int, int] | None:
    if path == STDIN:
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
