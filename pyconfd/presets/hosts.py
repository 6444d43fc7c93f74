"""Preset ``hosts``: the addresses of pods by their label ``app``, as ads-infra-haproxy gave them to its annotation.

Source: the README of UnityTech/ads-infra-haproxy, and what it and its Kontrol base image do.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import itemgetter

from pyconfd.model.context import ClusterTemplate, Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef, Pod
from pyconfd.model.snapshot import KIND_OF, Key, Named, Snapshot
from pyconfd.presets import values
from pyconfd.presets.changes import differing
from pyconfd.presets.cluster import Translated
from pyconfd.presets.pods import is_ready
from pyconfd.presets.reading import HostsOptions, PresetOptions, Reading

MASTER = "kontrol.unity3d.com/master"
CONFIG = "haproxy.unity3d.com/config"
ROUTE53 = "haproxy.unity3d.com/route53"
APP = "app"

_RESOURCE_OF = {kind: resource for resource, kind in KIND_OF.items()}
_NEVER = "9999"


@dataclass(frozen=True, slots=True)
class _Balancer:
    """The object that carries the balancer's annotations; ``labels`` are those of its pods."""

    ref: ObjectRef
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


def named(options: PresetOptions) -> tuple[Named, ...]:
    """Give the Deployment or Service that carries the configuration; a Pod is read with all others."""
    ref = options.hosts.config
    if ref is None or ref.kind == "Pod":
        return ()
    return (Named(_RESOURCE_OF[ref.kind], ref.namespace, ref.name),)


@dataclass(frozen=True, slots=True)
class _Memo:
    """What a reading was made of, and its parts: the pods of each app, and what was refused for a pod or an app."""

    basis: tuple[object, ...]
    pods: Mapping[Key, Pod]
    members: Mapping[str, Mapping[Key, Pod]]
    hosts: dict[str, list[str]]
    refused_pods: Mapping[Key, Refusal]
    refused_apps: Mapping[str, tuple[Refusal, ...]]


def read(snapshot: Snapshot, cluster: Translated, options: PresetOptions, former: Reading | None = None) -> Reading:
    """Give ``hosts``: app to the addresses of its ready pods, both sorted; and the template of the annotation."""
    del cluster
    own = options.hosts
    refused: list[Refusal] = []
    balancer = _balancer(snapshot, own, refused)
    own_app = own.own_app or (balancer.labels.get(APP, "") if balancer else "")
    known = former.memo if former else None
    basis = (snapshot.cluster, own, own_app)
    if not isinstance(known, _Memo) or known.basis != basis:
        known = _Memo(basis, {}, {}, {}, {}, {})
    memo = _updated(known, snapshot, own, own_app)
    refused.extend(memo.refused_pods.values())
    refused.extend(refusal for of_app in memo.refused_apps.values() for refusal in of_app)
    claimed = sum(map(len, memo.hosts.values()))
    # A copy: what a template does to the whole must not reach the next translation.
    names = former.names if former and memo.hosts is known.hosts else {"hosts": dict(memo.hosts)}
    templates: tuple[ClusterTemplate, ...] = ()
    dns_names: tuple[str, ...] = ()
    if balancer is not None:
        dns_names = _dns_names(balancer, refused)
        if CONFIG in balancer.annotations:
            place = f"{balancer.ref.kind.lower()} {balancer.ref.namespace}/{balancer.ref.name}"
            text = balancer.annotations[CONFIG]
            templates = (ClusterTemplate(place, text, names, ref=balancer.ref, field=f"annotation {CONFIG}"),)
        else:
            detail = f"it has no annotation {CONFIG}, so nothing is served from it"
            refused.append(Refusal(balancer.ref, f"annotation {CONFIG}", "", RefusalReason.INCOMPLETE, detail))
    told = tuple(sorted(refused))
    if former and told == former.refused:
        told = former.refused
    return Reading(names, told, claimed, templates=templates, dns_names=dns_names, memo=memo)


def _balancer(snapshot: Snapshot, options: HostsOptions, refused: list[Refusal]) -> _Balancer | None:
    if options.config is None:
        return None
    ref = options.config._replace(cluster=snapshot.cluster)
    key = Key(ref.namespace, ref.name)
    if ref.kind == "Deployment" and (deployment := snapshot.deployments.get(key)):
        template = deployment.spec.template.metadata
        annotations = (deployment.metadata.annotations or {}) | (template.annotations or {})
        return _Balancer(ref, annotations, template.labels or {})
    if ref.kind == "Pod" and (pod := snapshot.pods.get(key)):
        return _Balancer(ref, pod.metadata.annotations or {}, pod.metadata.labels or {})
    if ref.kind == "Service" and (service := snapshot.services.get(key)):
        return _Balancer(ref, service.metadata.annotations or {}, service.metadata.labels or {})
    detail = "hosts.config names it, and it does not exist"
    refused.append(Refusal(ref, "", "", RefusalReason.INCOMPLETE, detail))
    return None


def _updated(memo: _Memo, snapshot: Snapshot, options: HostsOptions, own_app: str) -> _Memo:
    """Give what the pods amount to, read anew only for apps of which a pod came, changed or went."""
    refused_pods = dict(memo.refused_pods)
    touched = _touched(memo, snapshot, options, own_app, refused_pods)
    if not touched:
        return replace(memo, pods=snapshot.pods, refused_pods=refused_pods)
    members = {**memo.members, **touched}
    hosts, refused_apps = dict(memo.hosts), dict(memo.refused_apps)
    for app, found in touched.items():
        refused: list[Refusal] = []
        refused_apps.pop(app, None)
        if not found:
            del members[app]
            hosts.pop(app, None)
            continue
        made = _addresses(_owned(app, _by_namespace(found), snapshot.cluster, options, refused))
        # An equal list stays the object that it was.
        hosts[app] = made if made != hosts.get(app) else hosts[app]
        if refused:
            refused_apps[app] = tuple(refused)
    if hosts.keys() != memo.hosts.keys():
        hosts = dict(sorted(hosts.items(), key=itemgetter(0)))
    elif all(hosts[app] is memo.hosts[app] for app in touched if app in hosts):
        hosts = memo.hosts
    return _Memo(memo.basis, snapshot.pods, members, hosts, refused_pods, refused_apps)


def _touched(
    memo: _Memo, snapshot: Snapshot, options: HostsOptions, own_app: str, refused: dict[Key, Refusal]
) -> dict[str, dict[Key, Pod]]:
    """Give the pods of each app of which a pod came, changed or went; ``refused`` is brought up to date."""
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
        elif app != own_app:
            touched.setdefault(app, dict(memo.members.get(app, {})))[key] = after
    return touched


def _app_of(pod: Pod, options: HostsOptions) -> str | None:
    """Give the label by which a pod is grouped, "" where it has none, and None for a pod that is no target."""
    return (pod.metadata.labels or {}).get(APP, "") if _is_target(pod, options) else None


def _without_app(key: Key, app: str, cluster: str) -> Refusal:
    ref = ObjectRef("Pod", values.shown(key.namespace), values.shown(key.name), cluster)
    detail = "its label app has to be one plain word: pods are grouped by it"
    return Refusal(ref, "label app", values.shown(app), RefusalReason.INCOMPLETE, detail)


def _by_namespace(found: Mapping[Key, Pod]) -> dict[str, list[Pod]]:
    groups: defaultdict[str, list[Pod]] = defaultdict(list)
    for key in sorted(found):
        groups[key.namespace].append(found[key])
    return groups


def _is_target(pod: Pod, options: HostsOptions) -> bool:
    masters = (pod.metadata.annotations or {}).get(MASTER, "")
    if options.master and options.master in (name.strip() for name in masters.split(",")):
        return True
    return bool(options.selector) and options.selector.items() <= (pod.metadata.labels or {}).items()


def _owned(
    app: str, by_namespace: Mapping[str, list[Pod]], cluster: str, options: HostsOptions, refused: list[Refusal]
) -> list[Pod]:
    """Give the pods of one namespace: that of the balancer, else that of the oldest pod; others may not join in."""
    home = options.config.namespace if options.config else ""
    ranked = sorted(
        by_namespace,
        key=lambda name: (
            name != home,
            min(pod.metadata.creation_timestamp or _NEVER for pod in by_namespace[name]),
            name,
        ),
    )
    for namespace in ranked[1:]:
        for pod in by_namespace[namespace]:
            ref = ObjectRef("Pod", values.shown(namespace), values.shown(pod.metadata.name), cluster)
            detail = f"the app {app} belongs to the namespace {values.shown(ranked[0])}; name it differently"
            refused.append(Refusal(ref, "label app", app, RefusalReason.NAME_TAKEN, detail))
    return by_namespace[ranked[0]]


def _addresses(pods: list[Pod]) -> list[str]:
    parsed = {values.address(pod.status.pod_ip or "") for pod in pods if is_ready(pod)}
    known = [address for address in parsed if address is not None]
    return [str(address) for address in sorted(known, key=lambda address: (address.version, address.packed))]


def _dns_names(balancer: _Balancer, refused: list[Refusal]) -> tuple[str, ...]:
    names = set()
    for item in balancer.annotations.get(ROUTE53, "").split(","):
        if not item.strip():
            continue
        try:
            name = values.host_name(item)
            if values.address(name) is not None:
                raise ValueError("an address is no name")  # noqa: TRY301 - one place says what is wrong
            names.add(name)
        except ValueError as error:
            field = f"annotation {ROUTE53}"
            refused.append(Refusal(balancer.ref, field, values.shown(item), RefusalReason.INVALID_VALUE, str(error)))
    return tuple(sorted(names))
