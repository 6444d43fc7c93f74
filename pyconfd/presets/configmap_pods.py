"""The services of preset ``configmap`` with their pods, brought up to date where a pod or an entry changed."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyconfd.model.context import Refusal
from pyconfd.model.kubernetes import Pod
from pyconfd.model.layered import differing
from pyconfd.model.snapshot import Key
from pyconfd.presets import pods as pods_of_services
from pyconfd.presets import values
from pyconfd.presets.changes import same_members
from pyconfd.presets.configmap_values import Service
from pyconfd.presets.places import ANYWHERE, Places

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


def addresses_of(served: Served) -> list[str]:
    """Return the addresses of the pods."""
    return [pod.status.pod_ip or "" for pod in served.pods]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The services by name, sorted; ``by_label`` has each under one label of its selector. It never changes.

    ``wrong`` has the pods that are where none may be (``places``).
    """

    served: Mapping[str, Served]
    by_label: Mapping[_Label, Collection[str]] = field(default_factory=dict)
    places: Places = ANYWHERE
    wrong: Mapping[Key, Pod] = field(default_factory=dict)

    def with_services(self, asked: Mapping[str, tuple[Service, list[str]]], pods: Mapping[Key, Pod]) -> "Wanted":
        """Return these services; who selects as before keeps the pods, so that :meth:`with_pods` goes first."""
        anew = [service for name, (service, _) in asked.items() if not self._selects_alike(name, service)]
        found = dict(_found(anew, pods, self.places))
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

    def with_pods(self, old: Mapping[Key, Pod], new: Mapping[Key, Pod]) -> "Wanted":
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
            found = same_members(former.pods, tuple(sorted(kept + come, key=_key)))
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


def _is_of(service: Service, key: Key, pod: Pod, places: Places) -> bool:
    if key.namespace != service.namespace or not service.selector.items() <= (pod.metadata.labels or {}).items():
        return False
    return values.is_object_name(key.name) and pods_of_services.may_serve(pod, places)


def _found(
    services: Collection[Service], pods: Mapping[Key, Pod], places: Places
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


def _served(service: Service, hostnames: list[str], pods: tuple[Pod, ...]) -> Served:
    whole = {pod.metadata.name: pods_of_services.whole(pod) for pod in pods}
    entry = {**service.fields, "name": service.name, "pods": whole}
    if "hostnames" in entry:
        entry["hostnames"] = hostnames
    return Served(service, hostnames, pods, entry)
