"""Judges whether a pod answers a client that the words of its object refuse.

Beside each cluster stands the *open* one: the same objects, none of which says a word, each with pods of its own. Who
answers there is the object that a request is for. If the words of that one refuse the client, no pod answers in the
cluster as it is: neither its own, nor that of a shorter path, a wildcard or another namespace.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from itertools import product
from random import Random
from typing import Any, NamedTuple

from pyconfd.daemon.translation import FormerNames, Translator
from pyconfd.model.route_policy import POLICY_KIND
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets.annotations import misspelled_words, read_foreign, words_of
from pyconfd.presets.policies.attached import field_of, text_of
from pyconfd.presets.policies.nginx import NOTHING_OF_NGINX, PREFIX, read_nginx
from pyconfd.presets.policies.words import WORDS, asked_by
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.fuzz.clusters import HOSTS, PATHS, PODS_OF, SHARED_ADDRESS, Cluster, Document, Slot, listeners_at, slice_of
from tests.fuzz.haproxy_model import Config, Request, route
from tests.fuzz.words import CLIENTS, NGINX_CLASS

SAYING = ("Ingress", "HTTPRoute", "GRPCRoute")
_OWN_NETWORK = "10.200."
_USE_REGEX, _REWRITE = f"{PREFIX}use-regex", f"{PREFIX}rewrite-target"
_KEPT = frozenset({"pyconfd.io/hsts", "pyconfd.io/ssl-redirect", "pyconfd.io/shared-with", _USE_REGEX})
_ASKED = (*(host.replace("*", "z") for host in HOSTS), "q.p.x.test")
_ASKED_PATHS = (*PATHS, "/app/x", "/application", "/login/", "/LOGIN", "/a//b", "/x", "/.well-known/acme-challenge/t")
_MOST_ASKED = 24


@dataclass(slots=True)
class OpenCluster:
    """Follows a cluster with one whose objects say no words, each with pods of its own."""

    memo: Memo = field(default_factory=Memo)
    _made: dict[Slot, tuple[Document, Mapping[Slot, Document]]] = field(default_factory=dict)
    _records: dict[Slot, tuple[Document, Any]] = field(default_factory=dict)
    _addresses: dict["Asked", str] = field(default_factory=dict)

    def snapshot(self, cluster: Cluster) -> Snapshot:
        """Return what there is of a cluster without its words."""
        objects: dict[Slot, Document] = {}
        for slot, document in cluster.objects.items():
            if slot[0] == POLICY_KIND:
                continue
            if slot[0] not in SAYING:
                objects[slot] = document
                continue
            known = self._made.get(slot)
            if known is None or known[0] is not document:
                known = self._made[slot] = document, dict(self._opened(slot, document))
            objects |= known[1]
        opened = copy(cluster)
        opened.objects, opened._records = objects, self._records
        return opened.snapshot()

    def _opened(self, slot: Slot, document: Document) -> Iterator[tuple[Slot, Document]]:
        said = document["metadata"]["annotations"]
        kept = {each: text for each, text in said.items() if each in _KEPT or each.endswith("/canary")}
        if said.get(_REWRITE, "").strip():  # whatever it is, all paths are expressions
            kept[_REWRITE] = "/rewritten"
        services: dict[Key, str] = {}
        spec = self._with_services(document["spec"], slot, services)
        yield slot, {**document, "metadata": document["metadata"] | {"annotations": kept}, "spec": spec}
        for of, service in services.items():
            ports = [{"name": "http", "port": 80, "targetPort": 8080}]
            metadata = {"name": service, "namespace": slot[1], "annotations": {}}
            yield ("Service", slot[1], service), {"metadata": metadata, "spec": {"ports": ports}}
            yield (
                ("EndpointSlice", slot[1], service),
                slice_of(slot[1], service, service, self._address(Asked(slot, of))),
            )

    def _address(self, asked: "Asked") -> str:
        if asked not in self._addresses:
            count = len(self._addresses)
            self._addresses[asked] = f"{_OWN_NETWORK}{count // 250}.{count % 250 + 1}"
        return self._addresses[asked]

    def _with_services(self, spec: Any, slot: Slot, services: dict[Key, str]) -> Any:
        """Return a part of an object in which each Service that it names is another one; add these to ``services``."""

        def name_of(namespace: str, name: str) -> str:
            of = f"{PODS_OF}{slot[0].lower()}-{slot[2]}-{name}-{namespace}"
            return services.setdefault(Key(namespace, name), of)

        if isinstance(spec, list):
            return [self._with_services(each, slot, services) for each in spec]
        if not isinstance(spec, dict):
            return spec
        if "service" in spec:
            return {"service": {"name": name_of(slot[1], spec["service"]["name"]), "port": {"number": 80}}}
        if "backendRefs" in spec:
            references = [
                {"name": name_of(each.get("namespace", slot[1]), each["name"]), "port": 80}
                for each in spec["backendRefs"]
            ]
            return {**spec, "backendRefs": references}
        return {key: self._with_services(value, slot, services) for key, value in spec.items()}

    def asked_for(self, config: Config, request: Request) -> set["Asked"]:
        """Return what a request is for."""
        addresses = {each.rpartition(":")[0] for each in route(config, request).servers}
        return {asked for asked, address in self._addresses.items() if address in addresses}


class Asked(NamedTuple):
    """The object that a request is for, and the Service that it leads to there."""

    slot: Slot
    service: Key


class Listener(NamedTuple):
    """Where a request comes in: the object that has the listener, its name there, and the Gateway."""

    of: Slot
    name: str
    gateway: Slot


Objects = Mapping[Slot, Document]


def refuses(objects: Objects, asked: Asked, client: str, listener: Listener | None = None) -> bool:
    """Return whether words let a client in to none of the pods that a request is for."""
    kind, namespace, _ = slot = asked.slot
    said: Mapping[str, str] = objects[slot]["metadata"]["annotations"]
    is_nginx = kind == "Ingress" and objects[slot]["spec"].get("ingressClassName") == NGINX_CLASS
    of_nginx = read_nginx(said) if is_nginx else NOTHING_OF_NGINX
    if any(fault.restricts for fault in misspelled_words(said, kind)):
        return True
    if kind == "Ingress" and read_foreign(said, kind, (), {*of_nginx.read, _USE_REGEX, _REWRITE}).restricting:
        return True
    words = {**_inherited(objects, asked, listener), **dict((*of_nginx.words, *words_of(said)))}
    if any(fault.restricts for fault in asked_by(words.items(), kind, namespace)[1]):
        return True
    if any(WORDS[word].names_object and WORDS[word].restricts for word in words):
        return True  # no object that a word names is what it has to be
    allowed, denied = (_networks(words.get(word, "")) for word in ("allow-networks", "deny-networks"))
    address = ip_address(client)
    return ("allow-networks" in words and not any(address in each for each in allowed)) or any(
        address in each for each in denied
    )


def _inherited(objects: Objects, asked: Asked, listener: Listener | None) -> dict[str, str]:
    """Return the words of RoutePolicies for a request, of each the most specific text."""
    slot = asked.slot
    levels = [(slot, "")]
    if asked.service.namespace == slot[1]:
        levels.append((("Service", *asked.service), ""))
    if listener is not None:
        levels += [(listener.of, listener.name), (listener.of, ""), (listener.gateway, "")]
    found: dict[str, str] = {}
    for target, section in levels:
        for word, text in _policies(objects, target, section):
            # What is for several kinds says a word for those that it is for.
            if target == slot or slot[0] in WORDS[word].kinds:
                found.setdefault(word, text)
    return found


def _policies(objects: Objects, target: Slot, section: str) -> Iterator[tuple[str, str]]:
    """Return the words that policies say for a target, those of older ones first."""
    kind, namespace, name = target
    of = [slot for slot in objects if slot[0] == POLICY_KIND and slot[1] == namespace]
    for slot in sorted(of, key=lambda each: (objects[each]["metadata"]["creationTimestamp"], each)):
        spec = objects[slot]["spec"]
        named = {(each["kind"], each["name"], each.get("sectionName", "")) for each in spec["targetRefs"]}
        for word in WORDS if (kind, name, section) in named else ():
            if field_of(word) in spec:
                yield word, text_of(spec[field_of(word)], WORDS[word].form)


def _networks(text: str) -> list[Any]:
    return [ip_network(each.strip()) for each in text.split(",") if each.strip()]


@dataclass(slots=True)
class Restrictions:
    """Judges one step after the other."""

    opened: OpenCluster = field(default_factory=OpenCluster)
    asked: int = 0
    refused: int = 0

    def translated(self, presets: tuple[str, ...], options: PresetOptions, cluster: Cluster, names: FormerNames) -> Any:
        """Return what is made of the cluster without its words; ``names`` as for the cluster as it is."""
        return Translator(presets, options, self.opened.memo, names).translate(self.opened.snapshot(cluster))

    def judged(self, cluster: Cluster, alone: Config, seen: Config, rng: Random) -> Iterator[str]:
        """Return who is answered though words refuse it; ``alone`` is the configuration of the open cluster."""
        places: list[tuple[str, int, Slot | None]] = [(SHARED_ADDRESS, 80, None), (SHARED_ADDRESS, 443, None)]
        for section, binds in alone.frontends:
            if section.name.startswith("gw_"):
                _, namespace, name, *_ = section.name.split("_")
                of = "Gateway", namespace, name
                places += [(bind.address.strip("[]"), bind.port, of) for bind in binds if bind.port in {80, 443}]
        everything = [*product(places, _ASKED, _ASKED_PATHS)]
        for (address, port, gateway), host, path in rng.sample(everything, min(_MOST_ASKED, len(everything))):
            request = Request(address, port, host, path)
            asked = self.opened.asked_for(alone, request)
            listeners = [*_listeners(cluster.objects, gateway, port)] if gateway is not None else [None]
            for client in CLIENTS if asked else ():
                self.asked += 1
                # Which listener it is does not matter where all refuse.
                if not all(refuses(cluster.objects, each, client, at) for each in asked for at in listeners):
                    continue
                self.refused += 1
                for server in route(seen, replace(request, source=client)).servers:
                    yield f"{client} is refused by {sorted(asked)}, and answered by {server} at {host}:{port}{path}"


def _listeners(objects: Objects, gateway: Slot, port: int) -> Iterator[Listener]:
    for of, _, listener in listeners_at(objects, gateway[1], gateway[2]):
        if listener["port"] == port:
            yield Listener(of, listener["name"], gateway)
