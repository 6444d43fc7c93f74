"""Preset ``hosts``: the addresses of pods by their label ``app``, as ads-infra-haproxy gave them to its annotation.

Source: the README of UnityTech/ads-infra-haproxy, and what it and its Kontrol base image do.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.derived import Derived, Grouped, Published, Read, SameParts, Source, Tally, Value
from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import ClusterTemplate, PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef, Pod
from pyconfd.model.reservation import NEVER, Name, Owner, Reservation
from pyconfd.model.snapshot import KIND_OF, Key, Named, Resource, Snapshot
from pyconfd.model.versioned import GivenList
from pyconfd.predecessors.pods import address_of, endpoint, is_ready, wrong_address
from pyconfd.presets import values
from pyconfd.presets.address_ownership import AddressOwners
from pyconfd.presets.conflicts import reserved_until
from pyconfd.presets.objects import Objects
from pyconfd.presets.origins import APP
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.preset import Preset, PresetCollections, PresetOptions, PresetResult
from pyconfd.presets.refusals import JoinedRefusals
from pyconfd.presets.views import EndpointView

MASTER = "kontrol.unity3d.com/master"
CONFIG = "haproxy.unity3d.com/config"
ROUTE53 = "haproxy.unity3d.com/route53"

_RESOURCE_OF = {kind: resource for resource, kind in KIND_OF.items()}


@dataclass(frozen=True, slots=True)
class HostsOptions:
    """The settings of the preset ``hosts``.

    A pod is a target if its annotation names ``master``, or if it has the labels of ``selector`` (where that is not
    empty). ``config`` names the Pod, Deployment or Service with the annotations of the balancer; ``own_app`` is the
    label ``app`` of the balancers themselves, "" for that of ``config``. ``dns_suffixes`` are the domains that names of
    its annotation for DNS may be in, () for any.
    """

    master: str = ""
    selector: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    config: ObjectRef | None = None
    own_app: str = ""
    dns_suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _OwnBalancer:
    """The object that carries the balancer's annotations; ``labels`` are those of its pods."""

    ref: ObjectRef
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


def _own_app(balancer: _OwnBalancer | None, options: HostsOptions) -> str:
    return options.own_app or (balancer.labels.get(APP, "") if balancer else "")


def _balancer(snapshot: Snapshot, options: HostsOptions) -> _OwnBalancer | None:
    """Return the object that ``options`` name; None where there is none."""
    if options.config is None:
        return None
    ref = options.config._replace(cluster=snapshot.cluster)
    key = Key(ref.namespace, ref.name)
    if ref.kind == "Deployment" and (deployment := snapshot.deployments.get(key)):
        template = deployment.spec.template.metadata
        annotations = (deployment.metadata.annotations or {}) | (template.annotations or {})
        return _OwnBalancer(ref, annotations, template.labels or {})
    if ref.kind == "Pod" and (pod := snapshot.pods.get(key)):
        return _OwnBalancer(ref, pod.metadata.annotations or {}, pod.metadata.labels or {})
    if ref.kind == "Service" and (service := snapshot.services.get(key)):
        return _OwnBalancer(ref, service.metadata.annotations or {}, service.metadata.labels or {})
    return None


class _HostsTerms(NamedTuple):
    """What pods are read with; ``home`` is the namespace of the balancer, "" where that is not known."""

    options: HostsOptions
    own_app: str

    @property
    def home(self) -> str:
        return self.options.config.namespace if self.options.config else ""


class _Carrier(NamedTuple):
    """The object with the annotations of the balancer, and what its names for DNS may be."""

    options: HostsOptions
    balancer: _OwnBalancer | None
    rules: ClaimOptions


class HostsTarget(NamedTuple):
    """A pod that asks to be a target. ``app`` is its ``label``, "" where that is no name.

    ``unlabelled`` and ``misplaced`` are why it cannot be one.
    """

    app: str
    label: str
    since: str
    endpoint: EndpointView
    unlabelled: Refusal | None
    misplaced: Refusal | None

    @property
    def address(self) -> str:
        """Where it gets traffic, "" while it is not ready."""
        return self.endpoint.address if self.endpoint.ready else ""

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What is refused whatever its app is; that it is misplaced counts for the owner of the app only."""
        return (self.unlabelled,) if self.unlabelled is not None else ()


class App(NamedTuple):
    """The pods of an app: their addresses, sorted, whose they are, and what is refused of them."""

    addresses: list[str]
    owner: Owner | None
    refused: tuple[Refusal, ...]


class Configuration(NamedTuple):
    """What the annotations of the balancer say: the text of its template, and its names in DNS; None for neither."""

    balancer: _OwnBalancer | None
    dns_names: tuple[str, ...] | None
    refused: tuple[Refusal, ...]


class HostsCollections(PresetCollections):
    """Pods by their apps."""

    def __init__(self, objects: Objects) -> None:
        self._objects, graph = objects, objects.graph
        self._terms = Value[_HostsTerms](graph, "preset hosts")
        self._carrier = Value[_Carrier](graph, "annotations of the balancer of hosts")
        self._reserved = Source[Name, Reservation](graph, "reserved apps")
        self.targets = Derived(objects.pods, self._target, "targets")
        by_app = Grouped(self.targets, lambda _, target: (target.app,) if target.app else (), "targets by app")
        self.apps = Derived(by_app, self._decide, "apps")
        self.ready = Tally(self.apps, lambda _, app: (((), len(app.addresses)),), "endpoints of apps")
        self.configuration = Derived(self._carrier, self._configuration, "configuration of hosts")
        self._asked = Published[Key, HostsTarget](self.targets)
        self._hosts = Published[str, list[str]](self.apps, value=lambda app: app.addresses)
        self._owners = Published[Name, Owner](
            self.apps, key=lambda app: Name("", app), rank=None, value=lambda app: app.owner
        )
        self._refused = JoinedRefusals(self.targets, self.apps, self.configuration)
        self._names = SameParts[Mapping[str, Any]]()

    def see(self, snapshot: Snapshot, options: PresetOptions) -> None:
        """Record by which options pods are targets, and what the balancer's own object says."""
        own = options.of(HostsOptions)
        balancer = _balancer(snapshot, own)
        self._terms.set(_HostsTerms(own, _own_app(balancer, own)))
        self._carrier.set(_Carrier(own, balancer, options.claims))
        self._reserved.follow(options.reservations_of(PresetName.HOSTS))

    def result(self) -> PresetResult:
        """Return ``hosts``: app to the addresses of its ready pods, both sorted; and the template of the annotation."""
        hosts, configuration = self._hosts.mapping(), self.configuration.items[()]
        balancer = configuration.balancer
        names = self._names.made((hosts,), lambda: {"hosts": hosts})
        templates: tuple[ClusterTemplate, ...] = ()
        if balancer is not None and CONFIG in balancer.annotations:
            place = f"{balancer.ref.kind.lower()} {balancer.ref.namespace}/{balancer.ref.name}"
            text = balancer.annotations[CONFIG]
            templates = (ClusterTemplate(place, text, names, ref=balancer.ref, field=f"annotation {CONFIG}"),)
        return PresetResult(
            names,
            self._refused.all(),
            self.ready.items.get((), 0),
            partial(_explained, self._asked.mapping(), hosts, self._objects.cluster),
            templates=templates,
            dns_names=configuration.dns_names,
            serves=hosts,
            addresses_of=tuple,
            owners=self._owners.mapping(),
        )

    def _target(self, read: Read, key: Key, pod: Pod) -> HostsTarget | None:
        terms = read.value(self._terms)
        if not is_target(pod, terms.options):
            return None
        cluster, app = self._objects.cluster, (pod.metadata.labels or {}).get(APP, "")
        if app and app == terms.own_app:
            return None
        since, seen = pod.metadata.creation_timestamp or NEVER, endpoint(address_of(pod), key.name, ready=is_ready(pod))
        if not app or not values.is_word(app):
            return HostsTarget("", app, since, seen, _without_app(key, app, cluster), None)
        wrong = read.value(self._objects.places).wrong(seen.address) if seen.ready else ""
        return HostsTarget(app, app, since, seen, None, wrong_address(pod, wrong, cluster) if wrong else None)

    def _decide(self, read: Read, app: str, targets: Sequence[tuple[Key, HostsTarget]]) -> App:
        """Assign an app to one namespace: the balancer's, else that which has it, else that of the oldest pod.

        Pods of other namespaces may not join in.
        """
        by_namespace: defaultdict[str, list[tuple[Key, HostsTarget]]] = defaultdict(list)
        for key, target in targets:
            by_namespace[key.namespace].append((key, target))
        oldest = {namespace: min(each.since for _, each in found) for namespace, found in by_namespace.items()}
        home, reservation = read.value(self._terms).home, read(self._reserved, Name("", app))
        holder = reservation.namespace if reservation is not None else ""
        ranked = sorted(by_namespace, key=lambda each: (each != home, each != holder, oldest[each], each))
        first = ranked[0]
        reason, turned_away, owned = RefusalReason.NAME_TAKEN, ranked[1:], by_namespace[first]
        detail = f"the app {app} belongs to the namespace {values.shortened(first)}; name it differently"
        if reservation is not None and first not in {home, holder}:
            reason, turned_away, owned = RefusalReason.NAME_RESERVED, ranked, []
            detail = reserved_until(reservation)
        refused = [
            Refusal(_pod(key, self._objects.cluster), "label app", app, reason, detail)
            for namespace in turned_away
            for key, _ in by_namespace[namespace]
        ]
        refused += (target.misplaced for _, target in owned if target.misplaced is not None)
        found = {ip_address(each.address) for _, each in owned if each.address and each.misplaced is None}
        addresses = map(str, sorted(found, key=lambda address: (address.version, address.packed)))
        owner = Owner("Pod", first, app, oldest[first]) if owned else None
        return App(GivenList(addresses), owner, tuple(refused))

    def _configuration(self, _: Read, __: object, carrier: _Carrier) -> Configuration:
        options, balancer, rules = carrier
        refused: list[Refusal] = []
        if balancer is None:
            if options.config is not None:
                ref, detail = (
                    options.config._replace(cluster=self._objects.cluster),
                    "hosts.config names it, and it does not exist",
                )
                refused.append(Refusal(ref, "", "", RefusalReason.INCOMPLETE, detail))
            return Configuration(None, None, tuple(refused))
        dns_names = _dns_names(balancer, rules, options.dns_suffixes, refused)
        if CONFIG not in balancer.annotations:
            detail = f"it has no annotation {CONFIG}, so nothing is served from it"
            refused.append(Refusal(balancer.ref, f"annotation {CONFIG}", "", RefusalReason.INCOMPLETE, detail))
        return Configuration(balancer, dns_names, tuple(refused))


def _pod(key: Key, cluster: str) -> ObjectRef:
    return ObjectRef("Pod", values.shortened(key.namespace), values.shortened(key.name), cluster)


def _without_app(key: Key, app: str, cluster: str) -> Refusal:
    detail = "its label app has to be one plain word: pods are grouped by it"
    return Refusal(_pod(key, cluster), "label app", values.shortened(app), RefusalReason.INCOMPLETE, detail)


def is_target(pod: Pod, options: HostsOptions) -> bool:
    """Return whether a pod asks to be a target, by its annotation or its labels."""
    masters = (pod.metadata.annotations or {}).get(MASTER, "")
    if options.master and options.master in (name.strip() for name in masters.split(",")):
        return True
    return bool(options.selector) and options.selector.items() <= (pod.metadata.labels or {}).items()


def _dns_names(
    balancer: _OwnBalancer, rules: ClaimOptions, suffixes: tuple[str, ...], refused: list[Refusal]
) -> tuple[str, ...]:
    names = set()
    for item in balancer.annotations.get(ROUTE53, "").split(","):
        if not item.strip():
            continue
        try:
            name = values.host_name(item)
            if values.address(name) is not None:
                raise ValueError("an address is no name")  # noqa: TRY301 - one place says what is wrong
            if wrong := rules.domain(balancer.ref.namespace, name) or _outside(name, suffixes):
                refused.append(
                    Refusal(
                        balancer.ref, f"annotation {ROUTE53}", values.shortened(item), RefusalReason.NOT_ALLOWED, wrong
                    )
                )
                continue
            names.add(name)
        except ValueError as error:
            field = f"annotation {ROUTE53}"
            refused.append(
                Refusal(balancer.ref, field, values.shortened(item), RefusalReason.INVALID_VALUE, str(error))
            )
    return tuple(sorted(names))


def _outside(name: str, suffixes: tuple[str, ...]) -> str:
    if not suffixes or any(name == each or name.endswith(f".{each}") for each in suffixes):
        return ""
    return f"it is in none of {', '.join(suffixes)} (setting dns.annotation_suffixes)"


class HostsPreset(Preset):
    """Reads pods by their annotation or labels."""

    name = PresetName.HOSTS
    gives = frozenset({"hosts"})
    resources = frozenset({Resource.PODS})

    def collections(self, objects: Objects, addresses: AddressOwners) -> HostsCollections:
        """Return what is made of pods."""
        del addresses
        return HostsCollections(objects)

    def named_objects(self, options: PresetOptions) -> tuple[Named, ...]:
        """Return the Deployment or Service that carries the configuration; a Pod is read with all others."""
        ref = options.of(HostsOptions).config
        if ref is None or ref.kind == "Pod":
            return ()
        return (Named(_RESOURCE_OF[ref.kind], ref.namespace, ref.name),)

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the annotation or the labels."""
        master = options.of(HostsOptions).master
        mark = f"the annotation {MASTER} with {master}" if master else "the labels of hosts.selector"
        return f"give its pods {mark}, and the label {APP}"


def _explained(targets: Mapping[Key, HostsTarget], hosts: Mapping[str, Sequence[str]], cluster: str) -> Iterator[Claim]:
    """Return a claim for each pod that is a target."""
    for key, target in targets.items():
        app, view = target.label, target.endpoint
        backends: tuple[ClaimedBackend, ...] = ()
        if view.ready and view.address in hosts.get(app, ()):
            backends = (ClaimedBackend(app, app, app, (view,), frozenset({app})),)
        because, names = f"label app {values.shortened(app) or '(missing)'}", (app,) if app else ()
        yield Claim(ObjectRef("Pod", *key, cluster), PresetName.HOSTS, because, names, backends, (view,))
