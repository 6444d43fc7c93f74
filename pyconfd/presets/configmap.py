"""Preset ``configmap``: services, certificates and the template in ConfigMaps, as kubernetes-haproxy read them.

Source: the README of muchlearning/kubernetes-haproxy, and what its program does.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyconfd.model.context import ClusterTemplate, Refusal, RefusalReason
from pyconfd.model.kubernetes import ConfigMap, ObjectRef, Pod
from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.model.snapshot import Key, Named, Resource, Snapshot
from pyconfd.presets import values
from pyconfd.presets.certificates import from_base64, pair
from pyconfd.presets.claiming import ClaimOptions
from pyconfd.presets.cluster import Translated
from pyconfd.presets.configmap_pods import Wanted, addresses_of
from pyconfd.presets.configmap_values import Service, UnfitError, service_of
from pyconfd.presets.reading import ConfigmapOptions, PresetOptions, Reading

NAMES = frozenset({"services", "certificates", "ssldir", "stats", "env"})
KNOWN_PASSWORD = "IAmAnIdiotForNotChangingTheDefaultPassword"  # noqa: S105 - kubernetes-haproxy printed it in its README
"""The predecessor's default; it opens nothing here."""

_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}", re.ASCII)
_ENV_REMEDY = "name it in configmap.env, and give it a value (empty will do) in pyconfd's environment"
_PASSWORD = re.compile(r"[^\s\"'\\#$%{}\x00-\x1f\x7f]+")


def named(options: PresetOptions) -> tuple[Named, ...]:
    """Return the four objects that are read by name."""
    own = options.configmap
    maps = (own.services, own.certificates, own.config)
    return (
        *(Named(Resource.CONFIGMAPS, own.namespace, name) for name in maps),
        Named(Resource.SECRETS, own.namespace, own.keys),
    )


@dataclass(slots=True)
class _Reader:
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
class _Memo:
    """What a reading was made of, and its services; ``refused`` is what was refused in their ConfigMap."""

    basis: tuple[object, ...]
    record: ConfigMap | None
    pods: Mapping[Key, Pod]
    wanted: Wanted
    refused: tuple[Refusal, ...]


def read(snapshot: Snapshot, cluster: Translated, options: PresetOptions, former: Reading | None = None) -> Reading:
    """Return ``services``, ``certificates``, ``ssldir``, ``stats``, ``env``, the certificates' files, the template."""
    own = options.configmap
    reader = _Reader(snapshot, own, options.claims, [])
    known = former.memo if former else None
    basis = (snapshot.cluster, own, options.claims, cluster.places)
    if not isinstance(known, _Memo) or known.basis != basis:
        known = _Memo(basis, None, {}, Wanted({}, places=cluster.places), ())
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
    return Reading(
        names,
        refused,
        claimed,
        templates=templates,
        files=files,
        serves=memo.wanted.served,
        addresses_of=addresses_of,
        memo=memo,
    )


def _updated(memo: _Memo, reader: _Reader) -> _Memo:
    """Return the services: all of them read anew where the ConfigMap changed, else those whose pods did."""
    snapshot, own = reader.snapshot, reader.options
    record = snapshot.config_maps.get(Key(own.namespace, own.services))
    if record is not None and record is memo.record:
        return replace(memo, pods=snapshot.pods, wanted=memo.wanted.with_pods(memo.pods, snapshot.pods))
    inner = replace(reader, refused=[])
    asked = _services(inner)
    wanted = memo.wanted.with_pods(memo.pods, snapshot.pods).with_services(asked, snapshot.pods)
    return _Memo(memo.basis, record, snapshot.pods, wanted, tuple(inner.refused))


def _template(reader: _Reader, names: Mapping[str, Any], required: Mapping[str, str]) -> Iterator[ClusterTemplate]:
    own = reader.options
    if own.template_key in (data := reader.data(own.config)):
        ref = ObjectRef("ConfigMap", own.namespace, own.config, reader.snapshot.cluster)
        place = f"configmap {own.namespace}/{own.config}"
        yield ClusterTemplate(place, data[own.template_key], names, required, ref, own.template_key)
        return
    detail = f"there is no ConfigMap {own.config} with the key {own.template_key}, so nothing is served from it"
    reader.refuse(("ConfigMap", own.config), own.template_key, "", RefusalReason.INCOMPLETE, detail)


def _services(reader: _Reader) -> dict[str, tuple[Service, list[str]]]:
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


def _refusing(reader: _Reader, name: str) -> Callable[[str, str, RefusalReason, str], None]:
    def refuse(field: str, value: str, reason: RefusalReason, detail: str) -> None:
        place = f"{name} {field}".strip()
        reader.refuse(("ConfigMap", reader.options.services), place, value, reason, detail)

    return refuse


def _check_mode(service: Service, rules: ClaimOptions) -> None:
    mode = service.fields.get("mode", "http")
    if wrong := rules.protocol(service.namespace, mode):
        raise UnfitError("mode", mode, wrong)


def _claim_name(name: str, owners: dict[str, str]) -> None:
    first = owners.setdefault(name.lower(), name)
    if first != name:
        raise UnfitError("", name, f"differs from {first} only in its case, and backends are named after it")


def _claimed(
    service: Service,
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


def _certificates(reader: _Reader) -> Iterator[OutputFile]:
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
