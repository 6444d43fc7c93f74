"""Preset ``hosts``: the addresses of pods by their label ``app``, as ads-infra-haproxy gave them to its annotation.

Source: the README of UnityTech/ads-infra-haproxy, and what it and its Kontrol base image do.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from operator import itemgetter
from types import MappingProxyType

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.context import ClusterTemplate, PresetName, Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef, Pod
from pyconfd.model.reservation import NEVER, NO_RESERVATIONS, Name, Owner, Reservations
from pyconfd.model.snapshot import KIND_OF, Key, Named, Resource, Snapshot
from pyconfd.model.versioned import differing
from pyconfd.predecessors.pods import address_of, endpoint, is_ready, wrong_address
from pyconfd.presets import values
from pyconfd.presets.cluster import Cluster
from pyconfd.presets.conflicts import reserved_until
from pyconfd.presets.origins import APP
from pyconfd.presets.policy import AllowedAddresses, ClaimOptions
from pyconfd.presets.preset import Preset, PresetOptions, PresetResult, Translation

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


@dataclass(frozen=True, slots=True)
class _HostsFormer:
    """What a result was made of, and its parts: the pods of each app, and what was refused for a pod or an app."""

    inputs: tuple[object, ...]
    pods: Mapping[Key, Pod]
    members: Mapping[str, Mapping[Key, Pod]]
    hosts: dict[str, list[str]]
    refused_pods: Mapping[Key, Refusal]
    refused_apps: Mapping[str, tuple[Refusal, ...]]
    owners: Mapping[Name, Owner]
    reservations: Reservations


def _own_app(balancer: _OwnBalancer | None, options: HostsOptions) -> str:
    return options.own_app or (balancer.labels.get(APP, "") if balancer else "")


def _balancer(snapshot: Snapshot, options: HostsOptions, refused: list[Refusal]) -> _OwnBalancer | None:
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
    detail = "hosts.config names it, and it does not exist"
    refused.append(Refusal(ref, "", "", RefusalReason.INCOMPLETE, detail))
    return None


@dataclass(frozen=True, slots=True)
class _HostsReader:
    """What pods are read with."""

    options: HostsOptions
    own_app: str
    places: AllowedAddresses
    reservations: Reservations


def _updated(memo: _HostsFormer, snapshot: Snapshot, reader: _HostsReader) -> _HostsFormer:
    """Return what the pods amount to, read again only for apps of which a pod came, changed or went."""
    refused_pods = dict(memo.refused_pods)
    touched = _touched(memo, snapshot, reader, refused_pods)
    for name in differing(memo.reservations, reader.reservations):
        if name.name in memo.members:
            touched.setdefault(name.name, dict(memo.members[name.name]))
    if not touched:
        return replace(memo, pods=snapshot.pods, refused_pods=refused_pods, reservations=reader.reservations)
    members = {**memo.members, **touched}
    hosts, refused_apps, owners = dict(memo.hosts), dict(memo.refused_apps), dict(memo.owners)
    for app, found in touched.items():
        refused: list[Refusal] = []
        refused_apps.pop(app, None)
        owners.pop(Name("", app), None)
        if not found:
            del members[app]
            hosts.pop(app, None)
            continue
        owned = _owned(app, _by_namespace(found), snapshot.cluster, reader, refused)
        if owned:
            namespace, since = owned[0].metadata.namespace, _oldest(owned)
            owners[Name("", app)] = Owner("Pod", namespace, app, since)
        made = _addresses(owned, reader.places, snapshot.cluster, refused)
        # An equal list stays the object that it was.
        hosts[app] = made if made != hosts.get(app) else hosts[app]
        if refused:
            refused_apps[app] = tuple(refused)
    if hosts.keys() != memo.hosts.keys():
        hosts = dict(sorted(hosts.items(), key=itemgetter(0)))
    elif all(hosts[app] is memo.hosts[app] for app in touched if app in hosts):
        hosts = memo.hosts
    kept_owners = memo.owners if owners == memo.owners else owners
    return _HostsFormer(
        memo.inputs, snapshot.pods, members, hosts, refused_pods, refused_apps, kept_owners, reader.reservations
    )


def _touched(
    memo: _HostsFormer, snapshot: Snapshot, reader: _HostsReader, refused: dict[Key, Refusal]
) -> dict[str, dict[Key, Pod]]:
    """Return the pods of each app of which a pod came, changed or went; ``refused`` is brought up to date."""
    options = reader.options
    touched: dict[str, dict[Key, Pod]] = {}
    for key in differing(memo.pods, snapshot.pods):
        refused.pop(key, None)
        before, after = memo.pods.get(key), snapshot.pods.get(key)
        app = _app_of(before, options) if before is not None else None
        if app is not None and app in memo.members:
            touched.setdefault(app, dict(memo.members[app])).pop(key, None)
        app = _app_of(after, options) if after is not None else None
        if app is None or after is None:
            continue
        if not app or not values.is_word(app):
            refused[key] = _without_app(key, app, snapshot.cluster)
        elif app != reader.own_app:
            touched.setdefault(app, dict(memo.members.get(app, {})))[key] = after
    return touched


def _app_of(pod: Pod, options: HostsOptions) -> str | None:
    """Return the label by which a pod is grouped, "" where it has none, and None for a pod that is no target."""
    return (pod.metadata.labels or {}).get(APP, "") if is_target(pod, options) else None


def _without_app(key: Key, app: str, cluster: str) -> Refusal:
    ref = ObjectRef("Pod", values.shown(key.namespace), values.shown(key.name), cluster)
    detail = "its label app has to be one plain word: pods are grouped by it"
    return Refusal(ref, "label app", values.shown(app), RefusalReason.INCOMPLETE, detail)


def _by_namespace(found: Mapping[Key, Pod]) -> dict[str, list[Pod]]:
    groups: defaultdict[str, list[Pod]] = defaultdict(list)
    for key in sorted(found):
        groups[key.namespace].append(found[key])
    return groups


def is_target(pod: Pod, options: HostsOptions) -> bool:
    """Return whether a pod asks to be a target, by its annotation or its labels."""
    masters = (pod.metadata.annotations or {}).get(MASTER, "")
    if options.master and options.master in (name.strip() for name in masters.split(",")):
        return True
    return bool(options.selector) and options.selector.items() <= (pod.metadata.labels or {}).items()


def _oldest(pods: Iterable[Pod]) -> str:
    return min(pod.metadata.creation_timestamp or NEVER for pod in pods)


def _owned(
    app: str, by_namespace: Mapping[str, list[Pod]], cluster: str, reader: _HostsReader, refused: list[Refusal]
) -> list[Pod]:
    """Return the pods of one namespace: that of the balancer, else that which has the app, else that of the oldest pod.

    Pods of other namespaces may not join in.
    """
    home = reader.options.config.namespace if reader.options.config else ""
    reservation = reader.reservations.get(Name("", app))
    holder = reservation.namespace if reservation is not None else ""
    ranked = sorted(by_namespace, key=lambda each: (each != home, each != holder, _oldest(by_namespace[each]), each))
    first = ranked[0]
    reason, turned_away = RefusalReason.NAME_TAKEN, ranked[1:]
    detail = f"the app {app} belongs to the namespace {values.shown(first)}; name it differently"
    kept = reservation is not None and first not in {home, holder}
    if reservation is not None and kept:
        reason, turned_away, detail = RefusalReason.NAME_RESERVED, ranked, reserved_until(reservation)
    for namespace in turned_away:
        for pod in by_namespace[namespace]:
            ref = ObjectRef("Pod", values.shown(namespace), values.shown(pod.metadata.name), cluster)
            refused.append(Refusal(ref, "label app", app, reason, detail))
    return [] if kept else by_namespace[first]


def _addresses(pods: list[Pod], places: AllowedAddresses, cluster: str, refused: list[Refusal]) -> list[str]:
    found = set()
    for pod in pods:
        if not is_ready(pod):
            continue
        if wrong := places.wrong(address_of(pod)):
            refused.append(wrong_address(pod, wrong, cluster))
        else:
            found.add(ip_address(address_of(pod)))
    return [str(address) for address in sorted(found, key=lambda address: (address.version, address.packed))]


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
                    Refusal(balancer.ref, f"annotation {ROUTE53}", values.shown(item), RefusalReason.NOT_ALLOWED, wrong)
                )
                continue
            names.add(name)
        except ValueError as error:
            field = f"annotation {ROUTE53}"
            refused.append(Refusal(balancer.ref, field, values.shown(item), RefusalReason.INVALID_VALUE, str(error)))
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

    def read(self, cluster: Cluster, options: PresetOptions, former: PresetResult | None = None) -> PresetResult:
        """Return ``hosts``: app to the addresses of its ready pods, both sorted; and the template of the annotation."""
        snapshot, own, places = cluster.snapshot, options.of(HostsOptions), cluster.places
        refused: list[Refusal] = []
        balancer = _balancer(snapshot, own, refused)
        own_app = _own_app(balancer, own)
        known = former.memo if former else None
        inputs = (snapshot.cluster, own, own_app, places)
        if not isinstance(known, _HostsFormer) or known.inputs != inputs:
            former = None
            known = _HostsFormer(inputs, {}, {}, {}, {}, {}, {}, NO_RESERVATIONS)
        memo = _updated(known, snapshot, _HostsReader(own, own_app, places, options.reservations_of("hosts")))
        refused.extend(memo.refused_pods.values())
        refused.extend(refusal for of_app in memo.refused_apps.values() for refusal in of_app)
        claimed = sum(map(len, memo.hosts.values()))
        # A copy: what a template does to the whole must not reach the next translation.
        names = former.names if former and memo.hosts is known.hosts else {"hosts": dict(memo.hosts)}
        templates: tuple[ClusterTemplate, ...] = ()
        dns_names: tuple[str, ...] | None = None
        if balancer is not None:
            dns_names = _dns_names(balancer, options.claims, own.dns_suffixes, refused)
            if CONFIG in balancer.annotations:
                place = f"{balancer.ref.kind.lower()} {balancer.ref.namespace}/{balancer.ref.name}"
                text = balancer.annotations[CONFIG]
                templates = (ClusterTemplate(place, text, names, ref=balancer.ref, field=f"annotation {CONFIG}"),)
            else:
                detail = f"it has no annotation {CONFIG}, so nothing is served from it"
                refused.append(Refusal(balancer.ref, f"annotation {CONFIG}", "", RefusalReason.INCOMPLETE, detail))
        all_refused = tuple(sorted(refused))
        if former and all_refused == former.refused:
            all_refused = former.refused
        return PresetResult(
            names,
            all_refused,
            claimed,
            templates=templates,
            dns_names=dns_names,
            serves=memo.hosts,
            addresses_of=tuple,
            owners=memo.owners,
            memo=memo,
        )

    def named_objects(self, options: PresetOptions) -> tuple[Named, ...]:
        """Return the Deployment or Service that carries the configuration; a Pod is read with all others."""
        ref = options.of(HostsOptions).config
        if ref is None or ref.kind == "Pod":
            return ()
        return (Named(_RESOURCE_OF[ref.kind], ref.namespace, ref.name),)

    def claims(self, translation: Translation) -> Iterator[Claim]:
        """Return a claim for each pod that is a target."""
        snapshot, own = translation.snapshot, translation.options.of(HostsOptions)
        own_app = _own_app(_balancer(snapshot, own, []), own)
        given = translation.given.get("hosts", {})
        for key, pod in sorted(snapshot.pods.items()):
            app = (pod.metadata.labels or {}).get(APP, "")
            if not is_target(pod, own) or (app and app == own_app):
                continue
            view = endpoint(address_of(pod), key.name, ready=is_ready(pod))
            backends: tuple[ClaimedBackend, ...] = ()
            if view.ready and view.address in given.get(app, ()):
                backends = (ClaimedBackend(app, app, app, (view,), frozenset({app})),)
            because, names = f"label app {values.shown(app) or '(missing)'}", (app,) if app else ()
            yield Claim(translation.ref("Pod", key), self.name, because, names, backends, (view,))

    def how_to_claim(self, options: PresetOptions) -> str:
        """Return the annotation or the labels."""
        master = options.of(HostsOptions).master
        mark = f"the annotation {MASTER} with {master}" if master else "the labels of hosts.selector"
        return f"give its pods {mark}, and the label {APP}"
