"""Preset ``configmap``: services, certificates and the template in ConfigMaps, as kubernetes-haproxy read them.

Source: the README of muchlearning/kubernetes-haproxy, and what its program does.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import ClusterTemplate, PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import ConfigMap, ObjectRef, Pod
from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.model.snapshot import Key, Named, Resource, Snapshot
from pyconfd.model.versioned import differing
from pyconfd.predecessors import pods as pods_of_services
from pyconfd.predecessors.pods import address_of, address_of_text, is_ready
from pyconfd.presets import values
from pyconfd.presets.certificates import from_base64, pair
from pyconfd.presets.cluster import Cluster
from pyconfd.presets.conflicts import reuse_if_same
from pyconfd.presets.policy import ANYWHERE, AllowedAddresses, ClaimOptions
from pyconfd.presets.preset import Preset, PresetOptions, PresetResult, Translation

if TYPE_CHECKING:
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
    """``fields`` is the whole entry; a template may print each text in it. ``path`` is "" where it has none."""

    name: str
    namespace: str
    selector: dict[str, str]
    hostnames: tuple[str, ...]
    path: str
    fields: dict[str, Any]


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
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnfitError("", text, f"not JSON: {values.shown(str(error))}") from None
    if not isinstance(given, dict):
        raise UnfitError("", text, "not a JSON object")
    namespace, selector = given.get("namespace"), given.get("selector")
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace) or namespace in values.CONDITION_WORDS:
        raise UnfitError("namespace", namespace, "the name of a namespace is required")
    if not isinstance(selector, dict) or not all(_is_label(*item) for item in selector.items()):
        raise UnfitError("selector", "", "an object of labels and their values is required")
    fields: dict[str, Any] = {"namespace": namespace, "selector": dict(sorted(selector.items()))}
    for key, value in sorted(given.items()):
        if key in fields or key in {"name", "pods"} or key in ignored:
            continue
        if not values.is_word(key):
            raise UnfitError(values.shown(key), key, "the name of the field is no plain word")
        read = _KNOWN.get(key)
        kept = read(value, refuse) if read else _data(key, value, ignored, 0)
        if kept is not None:
            fields[key] = kept
    hostnames = fields.get("hostnames", [])
    path = fields.get("path", "")
    return ConfigmapService(name, namespace, fields["selector"], tuple(hostnames), str(path), fields)


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
                raise UnfitError(f"{field}.{values.shown(key)}", key, "the name of the field is no plain word")
            kept[key] = _data(f"{field}.{key}", item, ignored, depth + 1)
        return kept
    return value


FEW = 16
"""For how many services it is cheaper to look at every pod than to make an index of the pods."""

_Label = tuple[str, str, str]
"""Namespace, label and value; the last two are "" for a service that takes all pods of its namespace."""


@dataclass(frozen=True, slots=True)
class ServedEntry:
    """One service with its ready pods in order of their names; ``entry`` is what templates get."""

    service: ConfigmapService
    hostnames: list[str]
    pods: tuple[Pod, ...]
    entry: dict[str, Any] = field(repr=False)


def addresses_of(served: ServedEntry) -> list[str]:
    """Return the addresses of the pods."""
    return [pod.status.pod_ip or "" for pod in served.pods]


@dataclass(frozen=True, slots=True)
class WantedServices:
    """The services by name, sorted; ``by_label`` has each under one label of its selector. It never changes.

    ``wrong`` has the pods that are where none may be (``places``).
    """

    served: Mapping[str, ServedEntry]
    by_label: Mapping[_Label, Collection[str]] = field(default_factory=dict)
    places: AllowedAddresses = ANYWHERE
    wrong: Mapping[Key, Pod] = field(default_factory=dict)

    def with_services(
        self, asked: Mapping[str, tuple[ConfigmapService, list[str]]], pods: Mapping[Key, Pod]
    ) -> "WantedServices":
        """Return these services; who selects as before keeps the pods, so that :meth:`with_pods` goes first."""
        others = [service for name, (service, _) in asked.items() if not self._selects_alike(name, service)]
        found = dict(_found(others, pods, self.places))
        served = {}
        by_label: defaultdict[_Label, list[str]] = defaultdict(list)
        for name, (service, hostnames) in asked.items():
            by_label[_label_of(service)].append(name)
            former = self.served.get(name)
            if former is not None and former.service is service and former.hostnames == hostnames:
                served[name] = former
            else:
                mine = found[name] if name in found or former is None else former.pods
                served[name] = _served(service, hostnames, mine)
        return replace(self, served=served, by_label=by_label)

    def with_pods(self, old: Mapping[Key, Pod], new: Mapping[Key, Pod]) -> "WantedServices":
        """Return the services after the pods changed."""
        touched: dict[str, set[Key]] = {}
        wrong = dict(self.wrong)
        for key in differing(old, new):
            wrong.pop(key, None)
            if key in new and self.places.wrong(pods_of_services.address_of(new[key])):
                wrong[key] = new[key]
            for pod in (old.get(key), new.get(key)):
                for name in self._candidates(pod) if pod is not None else ():
                    touched.setdefault(name, set()).add(key)
        served = dict(self.served)
        for name, keys in touched.items():
            former = served[name]
            kept = [pod for pod in former.pods if _key(pod) not in keys]
            come = [new[key] for key in keys if key in new and _is_of(former.service, key, new[key], self.places)]
            found = reuse_if_same(former.pods, tuple(sorted(kept + come, key=_key)))
            if found is not former.pods:
                served[name] = _served(former.service, former.hostnames, found)
        return replace(self, served=served, wrong=wrong)

    def refused(self, cluster: str) -> Iterator[Refusal]:
        """Return the pods that services select and that are where none may be."""
        for _, pod in sorted(self.wrong.items()):
            services = (self.served[name].service for name in self._candidates(pod))
            if any(each.selector.items() <= (pod.metadata.labels or {}).items() for each in services):
                address = pods_of_services.address_of(pod)
                yield pods_of_services.wrong_address(pod, self.places.wrong(address), cluster)

    def _selects_alike(self, name: str, service: ConfigmapService) -> bool:
        former = self.served.get(name)
        if former is None:
            return False
        return (former.service.namespace, former.service.selector) == (service.namespace, service.selector)

    def _candidates(self, pod: Pod) -> Iterator[str]:
        namespace = pod.metadata.namespace
        yield from self.by_label.get((namespace, "", ""), ())
        for label, value in (pod.metadata.labels or {}).items():
            yield from self.by_label.get((namespace, label, value), ())


def _label_of(service: ConfigmapService) -> _Label:
    label, value = next(iter(service.selector.items()), ("", ""))
    return service.namespace, label, value


def _key(pod: Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.name)


def _is_of(service: ConfigmapService, key: Key, pod: Pod, places: AllowedAddresses) -> bool:
    if key.namespace != service.namespace or not service.selector.items() <= (pod.metadata.labels or {}).items():
        return False
    return values.is_object_name(key.name) and pods_of_services.may_serve(pod, places)


def _found(
    services: Collection[ConfigmapService], pods: Mapping[Key, Pod], places: AllowedAddresses
) -> Iterator[tuple[str, tuple[Pod, ...]]]:
    """Return the pods of each of these services."""
    if len(services) > FEW:
        index = pods_of_services.PodIndex(pods, places)
        for service in services:
            yield service.name, tuple(index.ready(service.namespace, service.selector))
        return
    for service in services:
        mine = [pod for key, pod in pods.items() if _is_of(service, key, pod, places)]
        yield service.name, tuple(sorted(mine, key=_key))


def _served(service: ConfigmapService, hostnames: list[str], pods: tuple[Pod, ...]) -> ServedEntry:
    whole = {pod.metadata.name: pods_of_services.whole(pod) for pod in pods}
    entry = {**service.fields, "name": service.name, "pods": whole}
    if "hostnames" in entry:
        entry["hostnames"] = hostnames
    return ServedEntry(service, hostnames, pods, entry)


NAMES = frozenset({"services", "certificates", "ssldir", "stats", "env"})
KNOWN_PASSWORD = "IAmAnIdiotForNotChangingTheDefaultPassword"  # noqa: S105 - kubernetes-haproxy printed it in its README
"""The predecessor's default; it opens nothing here."""

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}", re.ASCII)
_ENV_REMEDY = "name it in configmap.env, and give it a value (empty will do) in pyconfd's environment"
_PASSWORD = re.compile(r"[^\s\"'\\#$%{}\x00-\x1f\x7f]+")


@dataclass(slots=True)
class _ConfigmapReader:
    snapshot: Snapshot
    options: ConfigmapOptions
    rules: ClaimOptions
    refused: list[Refusal]

    def data(self, name: str) -> Mapping[str, str]:
        """Return the data of a ConfigMap, nothing where there is none."""
        found = self.snapshot.config_maps.get(Key(self.options.namespace, name))
        return (found.data or {}) if found is not None else {}

    def refuse(self, of: tuple[str, str], field: str, value: str, reason: RefusalReason, detail: str) -> None:
        """Refuse ``field`` of an object, ``of`` being its kind and name."""
        kind, name = of
        ref = ObjectRef(kind, self.options.namespace, name, self.snapshot.cluster)
        self.refused.append(Refusal(ref, values.shown(field), values.shown(value), reason, detail))


@dataclass(frozen=True, slots=True)
class _ConfigmapFormer:
    """What a result was made of, and its services; ``refused`` is what was refused in their ConfigMap."""

    inputs: tuple[object, ...]
    record: ConfigMap | None
    pods: Mapping[Key, Pod]
    wanted: WantedServices
    refused: tuple[Refusal, ...]


def _updated(memo: _ConfigmapFormer, reader: _ConfigmapReader) -> _ConfigmapFormer:
    """Return the services: all of them read again where the ConfigMap changed, else those whose pods did."""
    snapshot, own = reader.snapshot, reader.options
    record = snapshot.config_maps.get(Key(own.namespace, own.services))
    if record is not None and record is memo.record:
        return replace(memo, pods=snapshot.pods, wanted=memo.wanted.with_pods(memo.pods, snapshot.pods))
    inner = replace(reader, refused=[])
    asked = _services(inner)
    wanted = memo.wanted.with_pods(memo.pods, snapshot.pods).with_services(asked, snapshot.pods)
    return _ConfigmapFormer(memo.inputs, record, snapshot.pods, wanted, tuple(inner.refused))


def _template(
    reader: _ConfigmapReader, names: Mapping[str, Any], required: Mapping[str, str]
) -> Iterator[ClusterTemplate]:
    own = reader.options
    if own.template_key in (data := reader.data(own.config)):
        ref = ObjectRef("ConfigMap", own.namespace, own.config, reader.snapshot.cluster)
        place = f"configmap {own.namespace}/{own.config}"
        yield ClusterTemplate(place, data[own.template_key], names, required, ref, own.template_key)
        return
    detail = f"there is no ConfigMap {own.config} with the key {own.template_key}, so nothing is served from it"
    reader.refuse(("ConfigMap", own.config), own.template_key, "", RefusalReason.INCOMPLETE, detail)


def _services(reader: _ConfigmapReader) -> dict[str, tuple[ConfigmapService, list[str]]]:
    """Return the services that can be served with the host names that they got, sorted by name."""
    own = reader.options
    if Key(own.namespace, own.services) not in reader.snapshot.config_maps:
        detail = f"there is no ConfigMap {own.services}, so no service is served from it"
        reader.refuse(("ConfigMap", own.services), "", "", RefusalReason.INCOMPLETE, detail)
    owners: dict[str, str] = {}
    claims: dict[tuple[str, str, str], str] = {}
    result = {}
    for name, text in sorted(reader.data(own.services).items()):
        refuse = _refusing(reader, name)
        try:
            service = service_of(name, text, own.ignored_fields, refuse)
            _check_mode(service, reader.rules)
            _claim_name(name, owners)
            result[name] = service, _claimed(service, claims, reader.rules, refuse)
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


def _certificates(reader: _ConfigmapReader) -> Iterator[OutputFile]:
    own = reader.options
    chains = reader.data(own.certificates)
    secret = reader.snapshot.secrets.get(Key(own.namespace, own.keys))
    keys = (secret.data or {}) if secret is not None else {}
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

    def read(self, cluster: Cluster, options: PresetOptions, former: PresetResult | None = None) -> PresetResult:
        """Return the names of :data:`NAMES`, the files of the certificates, and the template."""
        own, snapshot = options.of(ConfigmapOptions), cluster.snapshot
        reader = _ConfigmapReader(snapshot, own, options.claims, [])
        known = former.memo if former else None
        inputs = (snapshot.cluster, own, options.claims, cluster.places)
        if not isinstance(known, _ConfigmapFormer) or known.inputs != inputs:
            known = _ConfigmapFormer(inputs, None, {}, WantedServices({}, places=cluster.places), ())
        memo = _updated(known, reader)
        reader.refused.extend(memo.refused)
        reader.refused.extend(memo.wanted.refused(snapshot.cluster))
        files = tuple(_certificates(reader))
        stats, required = _stats(own)
        required["env.*"] = _ENV_REMEDY
        names = {
            "services": [served.entry for served in memo.wanted.served.values()],
            "certificates": [file.path.rpartition("/")[2].removesuffix(".pem") for file in files],
            "ssldir": own.ssldir,
            "stats": stats,
            "env": dict(sorted(own.env.items())),
        }
        templates = tuple(_template(reader, names, required))
        refused = tuple(sorted(reader.refused))
        if former and refused == former.refused:
            refused = former.refused
        claimed = sum([len(served.pods) for served in memo.wanted.served.values()])
        return PresetResult(
            names,
            refused,
            claimed,
            templates=templates,
            files=files,
            serves=memo.wanted.served,
            addresses_of=addresses_of,
            memo=memo,
        )

    def named_objects(self, options: PresetOptions) -> tuple[Named, ...]:
        """Return the four objects that are read by name."""
        own = options.of(ConfigmapOptions)
        maps = (own.services, own.certificates, own.config)
        return (
            *(Named(Resource.CONFIGMAPS, own.namespace, name) for name in maps),
            Named(Resource.SECRETS, own.namespace, own.keys),
        )

    def claims(self, translation: Translation) -> Iterator[Claim]:
        """Return a claim for each key of the ConfigMap of services."""
        own, snapshot = translation.options.of(ConfigmapOptions), translation.snapshot
        entries = {entry["name"]: entry for entry in translation.given.get("services", ())}
        pods_of: defaultdict[str, list[tuple[Mapping[str, str], EndpointView]]] = defaultdict(list)
        for pod_key, pod in sorted(snapshot.pods.items()):
            view = pods_of_services.endpoint(address_of(pod), pod_key.name, ready=is_ready(pod))
            pods_of[pod_key.namespace].append((pod.metadata.labels or {}, view))
        key = Key(own.namespace, own.services)
        record, ref = snapshot.config_maps.get(key), translation.ref("ConfigMap", key)
        for name in sorted((record.data or {}) if record is not None else {}):
            because = f"key {values.shown(name) or '(missing)'}"
            entry = entries.get(name)
            if entry is None:
                yield Claim(ref, self.name, because, (), (), item=name)
                continue
            names = tuple(entry.get("hostnames", ()))
            addresses = (address_of_text(pod["status"]["podIP"]) for pod in entry["pods"].values())
            given = tuple(pods_of_services.endpoint(address) for address in addresses if address)
            backend = ClaimedBackend(name, name, name, given, frozenset(names))
            selector = entry["selector"].items()
            pods = tuple(view for labels, view in pods_of[entry["namespace"]] if selector <= labels.items())
            yield Claim(ref, self.name, because, names, (backend,), pods, name)

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the ConfigMap."""
        own = options.of(ConfigmapOptions)
        return f"enter it into the ConfigMap {own.namespace}/{own.services}"
