"""The services of preset ``configmap`` with their pods, brought up to date where a pod or an entry changed."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyconfd.model.kubernetes import Pod
from pyconfd.model.snapshot import Key
from pyconfd.presets import pods as pods_of_services
from pyconfd.presets import values
from pyconfd.presets.changes import differing, same_members
from pyconfd.presets.configmap_values import Service

FEW = 16
"""For how many services it is cheaper to look at every pod than to make an index of the pods."""

_Label = tuple[str, str, str]
"""Namespace, label and value; the last two are "" for a service that takes all pods of its namespace."""


@dataclass(frozen=True, slots=True)
class Served:
    """One service with its ready pods in order of their names; ``entry`` is what templates get."""

    service: Service
    hostnames: list[str]
    pods: tuple[Pod, ...]
    entry: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The services by name, sorted; ``by_label`` has each under one label of its selector. It never changes."""

    served: Mapping[str, Served]
    by_label: Mapping[_Label, Collection[str]] = field(default_factory=dict)

    def with_services(self, asked: Mapping[str, tuple[Service, list[str]]], pods: Mapping[Key, Pod]) -> "Wanted":
        """Give these services; who selects as before keeps the pods, so that :meth:`with_pods` goes first."""
        anew = [service for name, (service, _) in asked.items() if not self._selects_alike(name, service)]
        found = dict(_found(anew, pods))
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
        return Wanted(served, by_label)

    def with_pods(self, old: Mapping[Key, Pod], new: Mapping[Key, Pod]) -> "Wanted":
        """Give the services after the pods changed."""
        if not self.served:
            return self
        touched: dict[str, set[Key]] = {}
        for key in differing(old, new):
            for pod in (old.get(key), new.get(key)):
                for name in self._candidates(pod) if pod is not None else ():
                    touched.setdefault(name, set()).add(key)
        served = dict(self.served)
        for name, keys in touched.items():
            former = served[name]
            kept = [pod for pod in former.pods if _key(pod) not in keys]
            come = [new[key] for key in keys if key in new and _is_of(former.service, key, new[key])]
            found = same_members(former.pods, tuple(sorted(kept + come, key=_key)))
            if found is not former.pods:
                served[name] = _served(former.service, former.hostnames, found)
        return Wanted(served, self.by_label)

    def _selects_alike(self, name: str, service: Service) -> bool:
        former = self.served.get(name)
        if former is None:
            return False
        return (former.service.namespace, former.service.selector) == (service.namespace, service.selector)

    def _candidates(self, pod: Pod) -> Iterator[str]:
        namespace = pod.metadata.namespace
        yield from self.by_label.get((namespace, "", ""), ())
        for label, value in (pod.metadata.labels or {}).items():
            yield from self.by_label.get((namespace, label, value), ())


def _label_of(service: Service) -> _Label:
    label, value = next(iter(service.selector.items()), ("", ""))
    return service.namespace, label, value


def _key(pod: Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.name)


def _is_of(service: Service, key: Key, pod: Pod) -> bool:
    if key.namespace != service.namespace or not service.selector.items() <= (pod.metadata.labels or {}).items():
        return False
    return values.is_object_name(key.name) and pods_of_services.is_ready(pod)


def _found(services: Collection[Service], pods: Mapping[Key, Pod]) -> Iterator[tuple[str, tuple[Pod, ...]]]:
    """Give the pods of each of these services."""
    if len(services) > FEW:
        index = pods_of_services.PodIndex(pods)
        for service in services:
            yield service.name, tuple(index.ready(service.namespace, service.selector))
        return
    for service in services:
        mine = [pod for key, pod in pods.items() if _is_of(service, key, pod)]
        yield service.name, tuple(sorted(mine, key=_key))


def _served(service: Service, hostnames: list[str], pods: tuple[Pod, ...]) -> Served:
    whole = {pod.metadata.name: pods_of_services.whole(pod) for pod in pods}
    entry = {**service.fields, "name": service.name, "pods": whole}
    if "hostnames" in entry:
        entry["hostnames"] = hostnames
    return Served(service, hostnames, pods, entry)
