"""Preset ``configmap``: services, certificates and the template in ConfigMaps, as kubernetes-haproxy read them.

Source: the README of muchlearning/kubernetes-haproxy, and what its program does.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from pyconfd.derived import Derived, Grouped, Published, Read, SameParts, Spread, Tally, Value
from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import ClusterTemplate, PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import ConfigMap, ObjectRef, Pod, Secret
from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.model.snapshot import Key, Named, Resource, Snapshot
from pyconfd.model.versioned import GivenDict, GivenList
from pyconfd.predecessors.pods import address_of, endpoint, given, is_ready, whole, wrong_address
from pyconfd.presets import values
from pyconfd.presets.address_ownership import AddressOwners
from pyconfd.presets.certificates import from_base64, pair
from pyconfd.presets.objects import Objects
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.preset import Preset, PresetCollections, PresetOptions, PresetResult
from pyconfd.presets.refusals import JoinedRefusals
from pyconfd.presets.views import EndpointView


@dataclass(frozen=True, slots=True)
class ConfigmapOptions:
    """The settings of the preset ``configmap``: which objects of ``namespace`` it reads, and what templates may know.

    ``ssldir`` is the absolute directory of the certificates, ``stats_password`` is "" if there is none, ``env`` holds
    the variables that the operator listed, ``ignored_fields`` are left out of services at any depth.
    """

    namespace: str = "lb"
    services: str = "services"
    certificates: str = "certificates"
    keys: str = "keys"
    config: str = "config"
    template_key: str = "template"
    ssldir: str = "/etc/haproxy/generated/files/certs"
    stats_password: str = field(default="", repr=False)
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    ignored_fields: frozenset[str] = frozenset()


Refuse = Callable[[str, str, RefusalReason, str], None]
"""Takes the field, its value, the reason and what is wrong."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_DEEPEST = 24


class UnfitError(ValueError):
    """A field cannot be used, and without it the service would not be what was meant."""

    def __init__(self, field: str, value: object, detail: str) -> None:
        self.field = field
        self.value = value if isinstance(value, str) else ""
        self.detail = detail
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class ConfigmapService:
    """``fields`` is the whole entry; a template may print each text in it. ``path`` is "" where it has none.

    Two are equal if their ``text`` is too: ``1`` and ``true`` are equal, and are printed differently.
    """

    name: str
    text: str = field(repr=False)
    namespace: str
    selector: Mapping[str, str]
    hostnames: tuple[str, ...]
    path: str
    fields: Mapping[str, Any]


def service_of(name: str, text: str, ignored: frozenset[str], refuse: Refuse) -> ConfigmapService:
    """Read one entry. What can be left out is refused and left out.

    An entry that was read before is not read again: what is given must not be changed.

    Raises:
        UnfitError: the entry is no JSON object with a namespace and a selector, or a field is unfit.
    """
    service, refused = _remembered(name, text, ignored)
    for each in refused:
        refuse(*each)
    if isinstance(service, UnfitError):
        # A new one: the old one would collect tracebacks.
        raise UnfitError(service.field, service.value, service.detail)
    return service


@lru_cache(maxsize=32_768)
def _remembered(
    name: str, text: str, ignored: frozenset[str]
) -> tuple[ConfigmapService | UnfitError, tuple[tuple[str, str, RefusalReason, str], ...]]:
    refused: list[tuple[str, str, RefusalReason, str]] = []

    def refuse(field: str, value: str, reason: RefusalReason, detail: str) -> None:
        refused.append((field, value, reason, detail))

    try:
        return _read(name, text, ignored, refuse), tuple(refused)
    except UnfitError as error:
        return UnfitError(error.field, error.value, error.detail), tuple(refused)


def _read(name: str, text: str, ignored: frozenset[str], refuse: Refuse) -> ConfigmapService:
    if not _NAME.fullmatch(name) or name in values.CONDITION_WORDS:
        raise UnfitError("", name, "not a name for a backend: expected letters, digits, '.', '_' and '-'")
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnfitError("", text, f"not JSON: {values.shortened(str(error))}") from None
    if not isinstance(decoded, dict):
        raise UnfitError("", text, "not a JSON object")
    namespace, selector = decoded.get("namespace"), decoded.get("selector")
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace) or namespace in values.CONDITION_WORDS:
        raise UnfitError("namespace", namespace, "the name of a namespace is required")
    if not isinstance(selector, dict) or not all(_is_label(*item) for item in selector.items()):
        raise UnfitError("selector", "", "an object of labels and their values is required")
    fields: dict[str, Any] = {"namespace": namespace, "selector": dict(sorted(selector.items()))}
    for key, value in sorted(decoded.items()):
        if key in fields or key in {"name", "pods"} or key in ignored:
            continue
        if not values.is_word(key):
            raise UnfitError(values.shortened(key), key, "the name of the field is no plain word")
        read = _KNOWN.get(key)
        kept = read(value, refuse) if read else _data(key, value, ignored, 0)
        if kept is not None:
            fields[key] = kept
    hostnames = fields.get("hostnames", [])
    path = fields.get("path", "")
    return ConfigmapService(name, text, namespace, fields["selector"], tuple(hostnames), str(path), given(fields))


def _is_label(key: str, value: object) -> bool:
    if key in values.CONDITION_WORDS or value in values.CONDITION_WORDS:
        return False
    return bool(_LABEL.fullmatch(key)) and isinstance(value, str) and bool(_LABEL_VALUE.fullmatch(value))


def _hostnames(value: object, refuse: Refuse) -> list[str]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise UnfitError("hostnames", "", "expected a list of host names")
    kept: list[str] = []
    for item in items:
        try:
            kept.append(_host_name(item))
        except ValueError as error:
            refuse("hostnames", str(item), RefusalReason.INVALID_VALUE, f"{error}; this host name is left out")
    if items and not kept:
        raise UnfitError("hostnames", "", "none of its host names can be used")
    return list(dict.fromkeys(kept))


def _host_name(item: object) -> str:
    if not isinstance(item, str):
        raise ValueError("not a text")  # noqa: TRY004 - it is the value that is wrong
    if item.startswith("^"):
        return values.pattern(item)
    return values.host_name(item)


def _path(value: object, refuse: Refuse) -> Any:
    del refuse
    if value in ("", None):
        return None
    items = value if isinstance(value, list) else [value]
    for item in items:
        try:
            if not isinstance(item, str) or item[:1] not in {"/", "^"}:
                raise UnfitError("path", item, "a path begins with / or, as a regular expression, with ^")
            values.pattern(item)
        except ValueError as error:
            raise UnfitError("path", item, str(error)) from None
    return value


def _ports(value: object, refuse: Refuse) -> list[int]:
    del refuse
    items = value if isinstance(value, list) else [value]
    kept: list[int] = []
    for item in items:
        try:
            if isinstance(item, bool) or not isinstance(item, int | str):
                raise UnfitError("ports", "", "expected numbers from 1 to 65535")
            kept.append(values.port_number(str(item)))
        except ValueError as error:
            raise UnfitError("ports", str(item), str(error)) from None
    return kept


def _ssl(value: object, refuse: Refuse) -> bool | str | None:
    del refuse
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if isinstance(value, str) and values.is_word(value):
        return value
    raise UnfitError("ssl", value, "expected true or false")


def _mode(value: object, refuse: Refuse) -> str:
    del refuse
    if isinstance(value, str) and value.lower() in {"http", "tcp"}:
        return value.lower()
    raise UnfitError("mode", value, "expected http or tcp")


_KNOWN: dict[str, Callable[[object, Refuse], Any]] = {
    "hostnames": _hostnames,
    "path": _path,
    "ports": _ports,
    "ssl": _ssl,
    "mode": _mode,
}


def _data(field: str, value: Any, ignored: frozenset[str], depth: int) -> Any:
    """Return any other value if each text in it is a plain word."""
    if depth > _DEEPEST:
        raise UnfitError(field, "", "it is nested too deeply")
    if isinstance(value, str):
        if values.is_word(value):
            return value
        advice = "templates print it as it is, so it has to be one plain word; configmap.ignored_fields leaves it out"
        raise UnfitError(field, value, f"not a plain word: {advice}")
    if isinstance(value, list):
        return [_data(field, item, ignored, depth + 1) for item in value]
    if isinstance(value, dict):
        kept = {}
        for key, item in sorted(value.items()):
            if key in ignored:
                continue
            if not values.is_word(key):
                raise UnfitError(f"{field}.{values.shortened(key)}", key, "the name of the field is no plain word")
            kept[key] = _data(f"{field}.{key}", item, ignored, depth + 1)
        return kept
    return value


class _Selector(NamedTuple):
    """Which pods an entry asks for."""

    namespace: str
    labels: Mapping[str, str]


_Label = tuple[str, str, str]
"""Namespace, label and value; the last two are "" for a service that takes all pods of its namespace."""


class AskedEntry(NamedTuple):
    """One service that can be served, with the host names that it got."""

    service: ConfigmapService
    hostnames: tuple[str, ...]


class AskedEntries(NamedTuple):
    """The services of the ConfigMap ``ref`` that can be served, by name; ``names`` are all of its keys, sorted."""

    ref: ObjectRef
    names: tuple[str, ...]
    entries: Mapping[str, AskedEntry]
    refused: tuple[Refusal, ...]


class SelectedPod(NamedTuple):
    """A pod that entries select, and their names; it is served where it is ready, and where a pod may be."""

    pod: Pod
    names: tuple[str, ...]
    endpoint: EndpointView
    is_served: bool
    refused: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class ServedEntry:
    """One service with its ready pods in order of their names; ``entry`` is what templates get."""

    service: ConfigmapService
    hostnames: tuple[str, ...]
    pods: tuple[Pod, ...]
    entry: Mapping[str, Any] = field(repr=False, compare=False)


class ConfigmapCertificates(NamedTuple):
    """The files of the complete pairs, and their names."""

    files: tuple[OutputFile, ...]
    names: list[str]
    refused: tuple[Refusal, ...]


class ConfigmapTemplate(NamedTuple):
    """The text of the template, None where there is none."""

    text: str | None
    refused: tuple[Refusal, ...]


def addresses_of(served: ServedEntry) -> list[str]:
    """Return the addresses of the pods."""
    return [pod.status.pod_ip or "" for pod in served.pods]


def _label_of(selector: _Selector) -> _Label:
    label, value = next(iter(selector.labels.items()), ("", ""))
    return selector.namespace, label, value


NAMES = frozenset({"services", "certificates", "ssldir", "stats", "env"})
KNOWN_PASSWORD = "IAmAnIdiotForNotChangingTheDefaultPassword"  # noqa: S105 - kubernetes-haproxy printed it in its README
"""The predecessor's default; it opens nothing here."""

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}", re.ASCII)
_ENV_REMEDY = "name it in configmap.env, and give it a value (empty will do) in pyconfd's environment"
_PASSWORD = re.compile(r"[^\s\"'\\#$%{}\x00-\x1f\x7f]+")


class _Records(NamedTuple):
    """The objects that are read by name, and what they are read with."""

    options: ConfigmapOptions
    rules: ClaimOptions
    services: ConfigMap | None
    certificates: ConfigMap | None
    keys: Secret | None
    config: ConfigMap | None


class _ConfigmapReader:
    """Reads some of the records, and collects what is refused of them."""

    def __init__(self, records: _Records, cluster: str) -> None:
        self.options, self.rules = records.options, records.rules
        self.refused: list[Refusal] = []
        self._cluster = cluster

    def refuse(self, of: tuple[str, str], field: str, value: str, reason: RefusalReason, detail: str) -> None:
        """Refuse ``field`` of an object, ``of`` being its kind and name."""
        kind, name = of
        ref = ObjectRef(kind, self.options.namespace, name, self._cluster)
        self.refused.append(Refusal(ref, values.shortened(field), values.shortened(value), reason, detail))


class ConfigmapCollections(PresetCollections):
    """The entries of the ConfigMap with the pods that they select, the certificates, and the template."""

    def __init__(self, objects: Objects) -> None:
        self._objects, graph = objects, objects.graph
        self._records = Value[_Records](graph, "records of configmap")
        self.asked = Derived(self._records, self._ask, "ConfigMap of services")
        self.entries = Spread(self.asked, lambda _, asked: asked.entries.items(), "entries of configmap")
        selectors = Derived(
            self.entries, lambda _, __, each: _Selector(each.service.namespace, each.service.selector), "selectors"
        )
        self._by_label = Grouped(selectors, lambda _, selector: (_label_of(selector),), "selectors by label")
        self.selected = Derived(objects.pods, self._select, "pods of configmap")
        self._by_entry = Grouped(self.selected, lambda _, pod: pod.names if pod.is_served else (), "pods by entry")
        self.served = Derived(self.entries, self._serve, "served entries of configmap")
        self.ready = Tally(self.served, lambda _, each: (((), len(each.pods)),), "endpoints of configmap")
        self.certificates = Derived(self._records, self._pairs, "certificates of configmap")
        self.template = Derived(self._records, self._template, "template of configmap")
        self._selected = Published[Key, SelectedPod](self.selected)
        self._published = Published[str, ServedEntry](self.served, key=itemgetter(1))
        self._refused = JoinedRefusals(self.asked, self.selected, self.certificates, self.template)
        self._names = SameParts[Mapping[str, Any]]()

    def see(self, snapshot: Snapshot, options: PresetOptions) -> None:
        """Record the objects that are read by name."""
        own = options.of(ConfigmapOptions)
        maps = (
            snapshot.config_maps.get(Key(own.namespace, each)) for each in (own.services, own.certificates, own.config)
        )
        services, certificates, config = maps
        keys = snapshot.secrets.get(Key(own.namespace, own.keys))
        self._records.set(_Records(own, options.claims, services, certificates, keys, config))

    def result(self) -> PresetResult:
        """Return the names of :data:`NAMES`, the files of the certificates, and the template."""
        served, certificates = self._published.mapping(), self.certificates.items[()]
        own, template = self._records.items[()].options, self.template.items[()]
        stats, required = _stats(own)
        names = self._names.made(
            (served, certificates.names, own),
            lambda: {
                "services": GivenList(each.entry for each in served.values()),
                "certificates": certificates.names,
                "ssldir": own.ssldir,
                "stats": GivenDict(stats),
                "env": GivenDict(sorted(own.env.items())),
            },
        )
        templates: tuple[ClusterTemplate, ...] = ()
        if template.text is not None:
            ref = ObjectRef("ConfigMap", own.namespace, own.config, self._objects.cluster)
            place = f"configmap {own.namespace}/{own.config}"
            required["env.*"] = _ENV_REMEDY
            templates = (ClusterTemplate(place, template.text, names, required, ref, own.template_key),)
        return PresetResult(
            names,
            self._refused.all(),
            self.ready.items.get((), 0),
            partial(_explained, self.asked.items[()], served, self._selected.mapping()),
            templates=templates,
            files=certificates.files,
            serves=served,
            addresses_of=addresses_of,
        )

    def _ask(self, _: Read, __: object, records: _Records) -> AskedEntries:
        reader = _ConfigmapReader(records, self._objects.cluster)
        own = records.options
        ref = ObjectRef("ConfigMap", own.namespace, own.services, self._objects.cluster)
        names = tuple(sorted(_data_of(records.services)))
        return AskedEntries(ref, names, _services(reader, records.services), tuple(reader.refused))

    def _select(self, read: Read, key: Key, pod: Pod) -> SelectedPod | None:
        """Find the entries of a pod by its labels: each is found by one label of its selector."""
        labels = pod.metadata.labels or {}
        found = [read(self._by_label, (key.namespace, *each)) or () for each in (("", ""), *labels.items())]
        names = tuple(
            name for pairs in found for (_, name), selector in pairs if selector.labels.items() <= labels.items()
        )
        if not names:
            return None
        seen = endpoint(address_of(pod), key.name, ready=is_ready(pod))
        wrong = read.value(self._objects.places).wrong(seen.address)
        refused = (wrong_address(pod, wrong, self._objects.cluster),) if wrong else ()
        is_served = seen.ready and not wrong and values.is_object_name(key.name)
        return SelectedPod(pod, names, seen, is_served, refused)

    def _serve(self, read: Read, key: tuple[tuple[()], str], asked: AskedEntry) -> ServedEntry:
        service, hostnames = asked
        pods = tuple(each.pod for _, each in read(self._by_entry, key[1]) or ())
        objects = GivenDict({pod.metadata.name: whole(pod) for pod in pods})
        entry = {**service.fields, "name": service.name, "pods": objects}
        if "hostnames" in entry:
            entry["hostnames"] = GivenList(hostnames)
        return ServedEntry(service, hostnames, pods, GivenDict(entry))

    def _pairs(self, _: Read, __: object, records: _Records) -> ConfigmapCertificates:
        reader = _ConfigmapReader(records, self._objects.cluster)
        files = tuple(_certificates(reader, _data_of(records.certificates), _data_of(records.keys)))
        names = GivenList(file.path.rpartition("/")[2].removesuffix(".pem") for file in files)
        return ConfigmapCertificates(files, names, tuple(reader.refused))

    def _template(self, _: Read, __: object, records: _Records) -> ConfigmapTemplate:
        reader, own = _ConfigmapReader(records, self._objects.cluster), records.options
        text = _data_of(records.config).get(own.template_key)
        if text is None:
            detail = f"there is no ConfigMap {own.config} with the key {own.template_key}, so nothing is served from it"
            reader.refuse(("ConfigMap", own.config), own.template_key, "", RefusalReason.INCOMPLETE, detail)
        return ConfigmapTemplate(text, tuple(reader.refused))


def _data_of(record: ConfigMap | Secret | None) -> Mapping[str, str]:
    return (record.data or {}) if record is not None else {}


def _services(reader: _ConfigmapReader, record: ConfigMap | None) -> dict[str, AskedEntry]:
    """Return the services that can be served with the host names that they got, sorted by name."""
    own = reader.options
    if record is None:
        detail = f"there is no ConfigMap {own.services}, so no service is served from it"
        reader.refuse(("ConfigMap", own.services), "", "", RefusalReason.INCOMPLETE, detail)
    owners: dict[str, str] = {}
    claims: dict[tuple[str, str, str], str] = {}
    result = {}
    for name, text in sorted(_data_of(record).items()):
        refuse = _refusing(reader, name)
        try:
            service = service_of(name, text, own.ignored_fields, refuse)
            _check_mode(service, reader.rules)
            _claim_name(name, owners)
            result[name] = AskedEntry(service, tuple(_claimed(service, claims, reader.rules, refuse)))
        except UnfitError as error:
            refuse(error.field, error.value, RefusalReason.INVALID_VALUE, f"{error.detail}; the service is left out")
    return result


def _refusing(reader: _ConfigmapReader, name: str) -> Callable[[str, str, RefusalReason, str], None]:
    def refuse(field: str, value: str, reason: RefusalReason, detail: str) -> None:
        place = f"{name} {field}".strip()
        reader.refuse(("ConfigMap", reader.options.services), place, value, reason, detail)

    return refuse


def _check_mode(service: ConfigmapService, rules: ClaimOptions) -> None:
    mode = service.fields.get("mode", "http")
    if wrong := rules.protocol(service.namespace, mode):
        raise UnfitError("mode", mode, wrong)


def _claim_name(name: str, owners: dict[str, str]) -> None:
    first = owners.setdefault(name.lower(), name)
    if first != name:
        raise UnfitError("", name, f"differs from {first} only in its case, and backends are named after it")


def _claimed(
    service: ConfigmapService,
    claims: dict[tuple[str, str, str], str],
    rules: ClaimOptions,
    refuse: Callable[[str, str, RefusalReason, str], None],
) -> list[str]:
    """Return the host names that no service before this one has for the same path: the first by name wins.

    The rules are those for the namespace whose pods are to be served.
    """
    kept = []
    for host in service.hostnames:
        if wrong := rules.domain(service.namespace, host):
            refuse("hostnames", host, RefusalReason.NOT_ALLOWED, wrong)
            continue
        claim = (host, service.path, str(service.fields.get("ssl", False)))
        owner = claims.setdefault(claim, service.name)
        if owner == service.name:
            kept.append(host)
            continue
        detail = (
            f"the service {owner} has this name{' and path' if service.path else ''} already; the first by name wins"
        )
        refuse("hostnames", host, RefusalReason.NAME_TAKEN, detail)
    if service.hostnames and not kept:
        raise UnfitError("hostnames", "", "none of its host names is left")
    return kept


def _certificates(reader: _ConfigmapReader, chains: Mapping[str, str], keys: Mapping[str, str]) -> Iterator[OutputFile]:
    own = reader.options
    for name in sorted(chains.keys() | keys.keys()):
        if not _FILE_NAME.fullmatch(name) or name in values.CONDITION_WORDS:
            detail = "not a name for a file: expected letters, digits, '.', '_' and '-'"
            reader.refuse(("ConfigMap", own.certificates), name, name, RefusalReason.INVALID_VALUE, detail)
        elif name not in keys:
            detail = f"the certificate has no key: the Secret {own.keys} has no {name}"
            reader.refuse(("ConfigMap", own.certificates), name, "", RefusalReason.INCOMPLETE, detail)
        elif name not in chains:
            detail = f"the key has no certificate: the ConfigMap {own.certificates} has no {name}"
            reader.refuse(("Secret", own.keys), name, "", RefusalReason.INCOMPLETE, detail)
        else:
            try:
                key_name, chain_name = f"{own.keys} {name}", f"{own.certificates} {name}"
                pem = pair(from_base64(keys[name], key_name), chains[name], key_name=key_name, chain_name=chain_name)
            except ValueError as error:
                reader.refuse(("Secret", own.keys), name, "", RefusalReason.INVALID_VALUE, str(error))
            else:
                yield OutputFile(FileKind.CERTIFICATE, f"{own.ssldir}/{name}.pem", pem)


def _stats(options: ConfigmapOptions) -> tuple[dict[str, str], dict[str, str]]:
    """Return ``stats`` and what to do about a password that it lacks: there is no default that everybody knows."""
    problem = ""
    if not options.stats_password:
        problem = "set STATISTICS_PASSWORD in pyconfd's environment"
    elif options.stats_password == KNOWN_PASSWORD:
        problem = "STATISTICS_PASSWORD is the default that everybody knows; set another one"
    elif not _PASSWORD.fullmatch(options.stats_password):
        problem = "STATISTICS_PASSWORD has a blank or one of \" ' \\ # $ % { }; set one without them"
    if problem:
        return {"username": "stats"}, {"stats.password": problem}
    return {"username": "stats", "password": options.stats_password}, {}


class ConfigmapPreset(Preset):
    """Reads the ConfigMaps of one namespace, and pods."""

    name = PresetName.CONFIGMAP
    gives = NAMES
    resources = frozenset({Resource.PODS})

    def collections(self, objects: Objects, addresses: AddressOwners) -> ConfigmapCollections:
        """Return what is made of the four objects, and of pods."""
        del addresses
        return ConfigmapCollections(objects)

    def named_objects(self, options: PresetOptions) -> tuple[Named, ...]:
        """Return the four objects that are read by name."""
        own = options.of(ConfigmapOptions)
        maps = (own.services, own.certificates, own.config)
        return (
            *(Named(Resource.CONFIGMAPS, own.namespace, name) for name in maps),
            Named(Resource.SECRETS, own.namespace, own.keys),
        )

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the ConfigMap."""
        own = options.of(ConfigmapOptions)
        return f"enter it into the ConfigMap {own.namespace}/{own.services}"


def _explained(
    asked: AskedEntries, served: Mapping[str, ServedEntry], selected: Mapping[Key, SelectedPod]
) -> Iterator[Claim]:
    """Return a claim for each key of the ConfigMap of services."""
    pods: defaultdict[str, list[SelectedPod]] = defaultdict(list)
    for pod in selected.values():
        for name in pod.names:
            pods[name].append(pod)
    for name in asked.names:
        because, entry = f"key {values.shortened(name) or '(missing)'}", served.get(name)
        if entry is None:
            yield Claim(asked.ref, PresetName.CONFIGMAP, because, (), (), item=name)
            continue
        endpoints = tuple(each.endpoint for each in pods[name] if each.is_served)
        backend = ClaimedBackend(name, name, name, endpoints, frozenset(entry.hostnames))
        behind = tuple(each.endpoint for each in pods[name])
        yield Claim(asked.ref, PresetName.CONFIGMAP, because, entry.hostnames, (backend,), behind, name)
