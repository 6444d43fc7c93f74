"""Who claims to be served, as each preset reads it, and what the templates were given for it. Pure.

It is made when somebody asks for an explanation, never on the way to a configuration.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from pyconfd.model.context import Context, PresetName
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import domains, hosts, kube2lb, kubefigurator_claims, values
from pyconfd.presets.kube2lb_claims import EXTERNAL_DOMAINS
from pyconfd.presets.pods import address_of, is_ready
from pyconfd.presets.reading import PresetOptions
from pyconfd.presets.views import EndpointView, ServiceView

ANY_PORT = 0
"""The port of an endpoint where the preset gives addresses only, and the templates choose the port."""


class _Address(NamedTuple):
    address: str
    port: int = ANY_PORT


@dataclass(frozen=True, eq=False)
class ClaimedBackend:
    """What the templates were given for a claim, mostly one port: ``name`` is for people.

    ``section`` is the word that its section in haproxy.cfg is known by, ``key`` what the preset serves it under.
    ``hosts`` are the names that clients reach it by. ``unreachable`` says why no listener can lead to it, "" where one
    may.
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
class ObjectClaim:
    """What one object asks one preset for.

    ``item`` tells several claims of one object apart (the key of a ConfigMap); ``because`` is what asks, ``names`` what
    for. The endpoints behind it are those of ``service``, or the ``pods``.
    """

    ref: ObjectRef
    preset: str
    because: str
    names: tuple[str, ...]
    backends: tuple[ClaimedBackend, ...]
    service: ServiceView | None = field(default=None, repr=False)
    pods: tuple[EndpointView, ...] = field(default=(), repr=False)
    item: str = ""

    @cached_property
    def endpoints(self) -> tuple[EndpointView, ...]:
        """All that stand behind it, in any state."""
        ports = self.service.ports if self.service is not None else ()
        return tuple(dict.fromkeys(each for port in ports for each in port.endpoints)) or self.pods

    @property
    def has_ready(self) -> bool:
        """Whether there is an endpoint that could answer."""
        return any(each.state == "ready" for each in self.endpoints)

    def concerns(self, ref: ObjectRef, field: str) -> bool:
        """Return whether a refusal of this field of this object is about it; names may be shortened in refusals."""
        own = self.ref
        if ref.kind != own.kind and {ref.kind, own.kind} != {"Service", "Endpoints"}:
            return False
        shown = values.shown(own.namespace), values.shown(own.name)
        if (ref.namespace, ref.name) not in {(own.namespace, own.name), shown} or ref.cluster not in {"", own.cluster}:
            return False
        return not self.item or field == self.item or field.startswith(f"{self.item} ")


@dataclass(frozen=True, slots=True)
class _Read:
    """What the presets read, and ``names``, which one of them gave to the templates."""

    snapshot: Snapshot
    options: PresetOptions
    services: Mapping[Key, ServiceView]
    names: Mapping[str, Any]

    def ref(self, kind: str, key: Key) -> ObjectRef:
        return ObjectRef(kind, key.namespace, key.name, self.snapshot.cluster)


def claims_of(
    snapshot: Snapshot, context: Context, presets: Sequence[str], options: PresetOptions
) -> tuple[ObjectClaim, ...]:
    """Return all claims, in the order of the presets and of the objects."""
    view = context.names.get("cluster")
    services = {Key(each.namespace, each.name): each for each in view.services} if view is not None else {}
    found: list[ObjectClaim] = []
    for preset in presets:
        names = context.names.get(preset, {})
        # A preset that gives a name equal to its own gives just that.
        names = {preset: names} if preset in {PresetName.DOMAINS, PresetName.HOSTS} else names
        found += _of_preset(PresetName(preset), _Read(snapshot, options, services, names))
    return tuple(found)


def _of_preset(preset: PresetName, read: _Read) -> Iterable[ObjectClaim]:
    match preset:
        case PresetName.DOMAINS:
            return _domains(read)
        case PresetName.KUBEFIGURATOR:
            return _kubefigurator(read)
        case PresetName.KUBE2LB:
            return _kube2lb(read)
        case PresetName.CONFIGMAP:
            return _configmap(read)
        case PresetName.HOSTS:
            return _hosts(read)


def _domains(read: _Read) -> Iterator[ObjectClaim]:
    entries: defaultdict[Key, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    for domain, entry in read.names.get("domains", {}).items():
        entries[Key(entry["namespace"], entry["name"])].append((domain, entry))
    for kind, objects in (("Service", read.snapshot.services), ("Endpoints", read.snapshot.endpoints)):
        for key in sorted(objects):
            asked = domains.asked_by(objects[key].metadata, kind)
            if not (asked["domain"] or asked["proto"]):
                continue
            wanted = _canonical(asked["domain"])
            backends = []
            for domain, entry in entries[key]:
                routed = entry["proto"] in domains.ROUTED_BY_NAME or entry["listen_port"] is not None
                why = "" if routed else "it was given no port to listen on"
                if domain == wanted:
                    section, endpoints = entry["key"], entry["endpoints"]
                    backends.append(ClaimedBackend(domain, section, domain, endpoints, frozenset({domain}), why))
            because = f"annotations domain {_shown(asked['domain'])} and proto {_shown(asked['proto'])}"
            names = (wanted,) if wanted else ()
            yield ObjectClaim(
                read.ref(kind, key), PresetName.DOMAINS, because, names, tuple(backends), read.services.get(key)
            )


def _kubefigurator(read: _Read) -> Iterator[ObjectClaim]:
    backends: defaultdict[Key, list[ClaimedBackend]] = defaultdict(list)
    hosts_of: defaultdict[str, set[str]] = defaultdict(set)
    for listener in read.names.get("listeners", ()):
        for route in listener.routes:
            hosts_of[route.backend].add(f"*{route.hostname}" if route.wildcard else route.hostname.strip("[]"))
    for each in read.names.get("backends", ()):
        title, hosts_here = f"port {each.port or '(unnamed)'}", frozenset(hosts_of[each.name])
        backend = ClaimedBackend(title, each.name, each.name, each.endpoints, hosts_here)
        backends[Key(each.namespace, each.service)].append(backend)
    for key, service in sorted(read.snapshot.services.items()):
        if (service.metadata.labels or {}).get(kubefigurator_claims.LABEL) != "yes":
            continue
        asked = (
            text.strip().replace("CLUSTER", read.options.kubefigurator.cluster, 1)
            for name, text in sorted((service.metadata.annotations or {}).items())
            if name.startswith(kubefigurator_claims.PREFIX) and name.endswith(".hostname")
        )
        names = tuple(dict.fromkeys(_canonical(text) for text in asked if text))
        because = f"label {kubefigurator_claims.LABEL} yes"
        ref, view = read.ref("Service", key), read.services.get(key)
        yield ObjectClaim(ref, PresetName.KUBEFIGURATOR, because, names, tuple(backends[key]), view)


def _kube2lb(read: _Read) -> Iterator[ObjectClaim]:
    backends: defaultdict[Key, list[ClaimedBackend]] = defaultdict(list)
    names_given: defaultdict[Key, list[str]] = defaultdict(list)
    names_of = read.names.get("ServerNames")
    for each in read.names.get("services", ()):
        key = Key(each.namespace, each.name)
        given = [str(name) for name in names_of(each, read.options.kube2lb.domain)] if names_of else []
        names_given[key] += given
        udp = "" if each.port.protocol == "tcp" else f"HAProxy balances TCP, not {each.port.protocol.upper()}"
        title, endpoints = f"port {each.port.bind}", (*each.endpoints, *each.draining)
        backend = ClaimedBackend(title, str(each), kube2lb.name_of(each), endpoints, frozenset(given), udp)
        backends[key].append(backend)
    for key, service in sorted(read.snapshot.services.items()):
        if service.spec.type not in kube2lb.KINDS:
            continue
        asked = (service.metadata.annotations or {}).get(EXTERNAL_DOMAINS, "").split(",")
        external = [_canonical(text.strip()) for text in asked if text.strip()]
        names = tuple(dict.fromkeys([*names_given[key], *external]))
        because, view = f"spec.type {service.spec.type}", read.services.get(key)
        yield ObjectClaim(read.ref("Service", key), PresetName.KUBE2LB, because, names, tuple(backends[key]), view)


def _configmap(read: _Read) -> Iterator[ObjectClaim]:
    own, snapshot = read.options.configmap, read.snapshot
    entries = {entry["name"]: entry for entry in read.names.get("services", ())}
    key = Key(own.namespace, own.services)
    record = snapshot.config_maps.get(key)
    pods_of: defaultdict[str, list[tuple[Mapping[str, str], EndpointView]]] = defaultdict(list)
    for pod_key, pod in sorted(snapshot.pods.items()):
        view = _of_pod(pod_key.name, address_of(pod), ready=is_ready(pod))
        pods_of[pod_key.namespace].append((pod.metadata.labels or {}, view))
    for name in sorted((record.data or {}) if record is not None else {}):
        entry = entries.get(name)
        names: tuple[str, ...] = ()
        backends: tuple[ClaimedBackend, ...] = ()
        pods: tuple[EndpointView, ...] = ()
        if entry is not None:
            names = tuple(entry.get("hostnames", ()))
            given = (values.canonical_address(pod["status"]["podIP"]) for pod in entry["pods"].values())
            endpoints = tuple(_Address(found[0]) for found in given if found)
            backends = (ClaimedBackend(name, name, name, endpoints, frozenset(names)),)
            selector = entry["selector"].items()
            pods = tuple(view for labels, view in pods_of[entry["namespace"]] if selector <= labels.items())
        ref, because = read.ref("ConfigMap", key), f"key {_shown(name)}"
        yield ObjectClaim(ref, PresetName.CONFIGMAP, because, names, backends, pods=pods, item=values.shown(name))


def _hosts(read: _Read) -> Iterator[ObjectClaim]:
    own = read.options.hosts
    balancers = hosts.app_of_balancers(read.snapshot, own)
    given = read.names.get("hosts", {})
    for key, pod in sorted(read.snapshot.pods.items()):
        app = (pod.metadata.labels or {}).get(hosts.APP, "")
        if not hosts.is_target(pod, own) or (app and app == balancers):
            continue
        address, ready = address_of(pod), is_ready(pod)
        backends: tuple[ClaimedBackend, ...] = ()
        if ready and address in given.get(app, ()):
            backends = (ClaimedBackend(app, app, app, (_Address(address),), frozenset({app})),)
        because, names = f"label app {_shown(app)}", (app,) if app else ()
        pods = (_of_pod(key.name, address, ready=ready),)
        yield ObjectClaim(read.ref("Pod", key), PresetName.HOSTS, because, names, backends, pods=pods)


def _of_pod(name: str, address: str, *, ready: bool) -> EndpointView:
    state, family = "ready" if ready else "down", "ipv6" if ":" in address else "ipv4"
    return EndpointView(address, ANY_PORT, state, family, name, ready=ready, serving=ready)


def _canonical(text: str) -> str:
    """Return a name as it is compared; what is none as it can be shown."""
    try:
        return values.host_name(text) if text else ""
    except ValueError:
        return values.shown(text)


def _shown(text: str) -> str:
    return values.shown(text) if text else "(missing)"
