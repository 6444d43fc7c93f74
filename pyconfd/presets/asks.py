"""Who asks to be served, as each preset reads it, and what the templates were given for it. Pure.

It is made when somebody wants an explanation, never on the way to a configuration.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.model.context import Context
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.preset import PresetName
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import domains, hosts, kube2lb, kubefigurator_claims, values
from pyconfd.presets.kube2lb_claims import EXTERNAL_DOMAINS
from pyconfd.presets.pods import is_ready
from pyconfd.presets.reading import PresetOptions
from pyconfd.presets.views import EndpointView, ServiceView

ANY_PORT = 0
"""The port of a target where the preset gives addresses only."""


class Target(NamedTuple):
    """Where traffic is to go; ``port`` is :data:`ANY_PORT` where the templates choose it."""

    address: str
    port: int


@dataclass(frozen=True, eq=False)
class Given:
    """What the templates got for an ask: ``name`` for a person, ``section`` the word that its backend is known by.

    ``key`` is what the preset serves it under; ``ends`` gives addresses and ports. ``hosts`` are the names that clients
    reach it by. ``unreachable`` says why no listener leads to it whatever the templates make of it, "" where one may.
    """

    name: str
    ends: Callable[[], Iterable[tuple[str, int]]] = field(repr=False)
    section: str
    key: str
    hosts: frozenset[str] = frozenset()
    unreachable: str = ""

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """Where traffic is to go."""
        return tuple(Target(*each) for each in self.ends())

    @cached_property
    def _places(self) -> frozenset[Target]:
        return frozenset(self.targets)

    def is_at(self, address: str, port: int) -> bool:
        """Return whether traffic is to go there."""
        return Target(address, port) in self._places or Target(address, ANY_PORT) in self._places


@dataclass(frozen=True, eq=False)
class Ask:
    """One thing that somebody may expect to be served.

    ``item`` tells several of one object apart (the key of a ConfigMap); ``because`` is what asks, ``names`` what for.
    What ``behind`` and ``named`` give is made when it is asked for: few of 10,000 are asked about.
    """

    ref: ObjectRef
    preset: str
    because: str
    names: tuple[str, ...]
    given: tuple[Given, ...]
    behind: Callable[[], tuple[EndpointView, ...]] = field(repr=False)
    named: Callable[[], frozenset[ObjectRef]] = field(repr=False)
    item: str = ""

    @cached_property
    def endpoints(self) -> tuple[EndpointView, ...]:
        """All that stand behind it, in any state."""
        return self.behind()

    @cached_property
    def refs(self) -> frozenset[ObjectRef]:
        """The objects whose refusals concern it."""
        return self.named()

    def concerns(self, ref: ObjectRef, field: str) -> bool:
        """Return whether a refusal of this field of this object is about it."""
        return ref in self.refs and (not self.item or field == self.item or field.startswith(f"{self.item} "))


@dataclass(frozen=True, slots=True)
class _World:
    snapshot: Snapshot
    names: Mapping[str, Any]
    options: PresetOptions
    views: Mapping[Key, ServiceView]

    def endpoints(self, key: Key) -> tuple[EndpointView, ...]:
        view = self.views.get(key)
        return tuple(dict.fromkeys(e for port in view.ports for e in port.endpoints)) if view else ()

    def refs(self, key: Key) -> frozenset[ObjectRef]:
        """Return how refusals name the Service or Endpoints of this key: with and without the cluster."""
        shown = values.shown(key.namespace), values.shown(key.name)
        clusters = {"", self.snapshot.cluster}
        kinds = ("Service", "Endpoints")
        return frozenset(ObjectRef(kind, *pair, at) for kind in kinds for pair in (shown, key) for at in clusters)


def asks(snapshot: Snapshot, context: Context, presets: Sequence[str], options: PresetOptions) -> tuple[Ask, ...]:
    """Return all asks, in order of the presets and of the objects."""
    view = context.names.get("cluster")
    views = {Key(each.namespace, each.name): each for each in view.services} if view is not None else {}
    found: list[Ask] = []
    for preset in presets:
        names = context.names.get(preset, {})
        # A preset that gives a name equal to its own gives just that.
        names = {preset: names} if preset in {PresetName.DOMAINS, PresetName.HOSTS} else names
        found += _READERS[PresetName(preset)](_World(snapshot, names, options, views))
    return tuple(found)


def _domains(world: _World) -> Iterator[Ask]:
    entries: defaultdict[Key, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for domain, entry in world.names.get("domains", {}).items():
        entries[Key(entry["namespace"], entry["name"])].append((domain, entry))
    for kind, found in (("Service", world.snapshot.services), ("Endpoints", world.snapshot.endpoints)):
        for key in sorted(found):
            annotations = domains.asked_by(found[key].metadata, kind)
            if not (annotations["domain"] or annotations["proto"]):
                continue
            wanted = _canonical(annotations["domain"])
            given = tuple(
                Given(
                    domain,
                    partial(_ends, entry["endpoints"]),
                    entry["key"],
                    domain,
                    frozenset({domain}),
                    _unreachable(entry),
                )
                for domain, entry in entries[key]
                if domain == wanted
            )
            because = f"annotations domain {_shown(annotations['domain'])} and proto {_shown(annotations['proto'])}"
            yield Ask(
                ObjectRef(kind, key.namespace, key.name, world.snapshot.cluster),
                PresetName.DOMAINS,
                because,
                (wanted,) if wanted else (),
                given,
                partial(world.endpoints, key),
                partial(world.refs, key),
            )


def _unreachable(entry: Mapping[str, Any]) -> str:
    routed = entry["proto"] in domains.ROUTED_BY_NAME or entry["listen_port"] is not None
    return "" if routed else "it was given no port to listen on"


def _kubefigurator(world: _World) -> Iterator[Ask]:
    backends: defaultdict[Key, list[Any]] = defaultdict(list)
    for backend in world.names.get("backends", ()):
        backends[Key(backend.namespace, backend.service)].append(backend)
    hosts_of: defaultdict[str, set[str]] = defaultdict(set)
    for listener in world.names.get("listeners", ()):
        for route in listener.routes:
            hosts_of[route.backend].add(f"*{route.hostname}" if route.wildcard else route.hostname.strip("[]"))
    prefix = kubefigurator_claims.PREFIX
    cluster = world.options.kubefigurator.cluster
    for key, service in sorted(world.snapshot.services.items()):
        if (service.metadata.labels or {}).get(kubefigurator_claims.LABEL) != "yes":
            continue
        hosts_asked = [
            text.strip().replace("CLUSTER", cluster, 1)
            for name, text in sorted((service.metadata.annotations or {}).items())
            if name.startswith(prefix) and name.endswith(".hostname")
        ]
        given = tuple(
            Given(
                f"port {each.port or '(unnamed)'}",
                partial(_ends, each.endpoints),
                each.name,
                each.name,
                frozenset(hosts_of[each.name]),
            )
            for each in backends[key]
        )
        yield Ask(
            ObjectRef("Service", key.namespace, key.name, world.snapshot.cluster),
            PresetName.KUBEFIGURATOR,
            f"label {kubefigurator_claims.LABEL} yes",
            tuple(dict.fromkeys(_canonical(text) for text in hosts_asked if text)),
            given,
            partial(world.endpoints, key),
            partial(world.refs, key),
        )


def _kube2lb(world: _World) -> Iterator[Ask]:
    entries: defaultdict[Key, list[Any]] = defaultdict(list)
    for entry in world.names.get("services", ()):
        entries[Key(entry.namespace, entry.name)].append(entry)
    own_domain, names_of = world.options.kube2lb.domain, world.names.get("ServerNames")
    for key, service in sorted(world.snapshot.services.items()):
        if service.spec.type not in kube2lb.KINDS:
            continue
        hosts_of = [[str(name) for name in names_of(each, own_domain)] if names_of else [] for each in entries[key]]
        names = [name for found in hosts_of for name in found]
        asked = (service.metadata.annotations or {}).get(EXTERNAL_DOMAINS, "").split(",")
        names += [_canonical(text.strip()) for text in asked if text.strip()]
        given = tuple(
            Given(
                f"port {each.port.bind}",
                partial(_node_ends, each),
                str(each),
                kube2lb.name_of(each),
                frozenset(found),
                "" if each.port.protocol == "tcp" else f"HAProxy balances TCP, not {each.port.protocol.upper()}",
            )
            for each, found in zip(entries[key], hosts_of, strict=True)
        )
        yield Ask(
            ObjectRef("Service", key.namespace, key.name, world.snapshot.cluster),
            PresetName.KUBE2LB,
            f"spec.type {service.spec.type}",
            tuple(dict.fromkeys(names)),
            given,
            partial(world.endpoints, key),
            partial(world.refs, key),
        )


def _configmap(world: _World) -> Iterator[Ask]:
    own, snapshot = world.options.configmap, world.snapshot
    entries = {entry["name"]: entry for entry in world.names.get("services", ())}
    record = snapshot.config_maps.get(Key(own.namespace, own.services))
    ref = ObjectRef("ConfigMap", own.namespace, own.services, snapshot.cluster)
    for name in sorted((record.data or {}) if record is not None else {}):
        entry = entries.get(name)
        given: tuple[Given, ...] = ()
        if entry is not None:
            given = (Given(name, partial(_pod_ends, entry["pods"]), name, name, frozenset(entry.get("hostnames", ()))),)
        names = tuple(entry.get("hostnames", ())) if entry is not None else ()
        selected = partial(_selected, snapshot, entry) if entry is not None else tuple
        yield Ask(
            ref,
            PresetName.CONFIGMAP,
            f"key {_shown(name)}",
            names,
            given,
            selected,
            partial(frozenset, (ref,)),
            values.shown(name),
        )


def _selected(snapshot: Snapshot, entry: Mapping[str, Any]) -> tuple[EndpointView, ...]:
    selector = entry["selector"].items()
    return tuple(
        _of_pod(key.name, pod.status.pod_ip or "", ready=is_ready(pod))
        for key, pod in sorted(snapshot.pods.items())
        if key.namespace == entry["namespace"] and selector <= (pod.metadata.labels or {}).items()
    )


def _hosts(world: _World) -> Iterator[Ask]:
    own, snapshot = world.options.hosts, world.snapshot
    own_app = hosts.app_of_balancers(snapshot, own)
    given_hosts = world.names.get("hosts", {})
    for key, pod in sorted(snapshot.pods.items()):
        if not hosts.is_target(pod, own):
            continue
        app = (pod.metadata.labels or {}).get(hosts.APP, "")
        if app and app == own_app:
            continue  # the balancers themselves
        address, ready = _address(pod.status.pod_ip or ""), is_ready(pod)
        given: tuple[Given, ...] = ()
        if ready and address in given_hosts.get(app, ()):
            given = (Given(app, partial(tuple, ((address, ANY_PORT),)), app, app, frozenset({app})),)
        shown = ObjectRef("Pod", values.shown(key.namespace), values.shown(key.name), snapshot.cluster)
        yield Ask(
            ObjectRef("Pod", key.namespace, key.name, snapshot.cluster),
            PresetName.HOSTS,
            f"label app {_shown(app)}",
            (app,) if app else (),
            given,
            partial(_pod_itself, key.name, address, ready=ready),
            partial(frozenset, (shown,)),
        )


def _of_pod(name: str, address: str, *, ready: bool) -> EndpointView:
    state, family = "ready" if ready else "down", "ipv6" if ":" in address else "ipv4"
    return EndpointView(_address(address), ANY_PORT, state, family, name, ready=ready, serving=ready)


def _ends(endpoints: Iterable[Any]) -> Iterator[tuple[str, int]]:
    return ((each.address, each.port) for each in endpoints)


def _node_ends(entry: Any) -> Iterator[tuple[str, int]]:
    return ((each.ip, each.port) for each in (*entry.endpoints, *entry.draining))


def _pod_ends(pods: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    addresses = (pod.get("status", {}).get("podIP", "") for pod in pods.values())
    return ((_address(each), ANY_PORT) for each in addresses if each)


def _pod_itself(name: str, address: str, *, ready: bool) -> tuple[EndpointView, ...]:
    return (_of_pod(name, address, ready=ready),)


def _address(text: str) -> str:
    parsed = values.address(text)
    return str(parsed) if parsed is not None else ""


def _canonical(text: str) -> str:
    """Return a name as it is compared; what is none as it can be shown."""
    try:
        return values.host_name(text) if text else ""
    except ValueError:
        return values.shown(text)


def _shown(text: str) -> str:
    return values.shown(text) if text else "(missing)"


_READERS: Mapping[PresetName, Callable[[_World], Iterator[Ask]]] = MappingProxyType(
    {
        PresetName.DOMAINS: _domains,
        PresetName.KUBEFIGURATOR: _kubefigurator,
        PresetName.KUBE2LB: _kube2lb,
        PresetName.CONFIGMAP: _configmap,
        PresetName.HOSTS: _hosts,
    }
)
