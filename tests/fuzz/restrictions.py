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
from typing import Any

from pyconfd.daemon.translation import FormerNames, Translator
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.annotations import misspelled_words, read_foreign, words_of
from pyconfd.presets.policies.nginx import NOTHING_OF_NGINX, PREFIX, read_nginx
from pyconfd.presets.policies.words import WORDS, asked_by
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.fuzz.clusters import HOSTS, PATHS, PODS_OF, SHARED_ADDRESS, Cluster, Document, Slot, slice_of
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
    _pods: dict[str, Slot] = field(default_factory=dict)

    def snapshot(self, cluster: Cluster) -> Snapshot:
        """Return what there is of a cluster without its words."""
        objects: dict[Slot, Document] = {}
        for slot, document in cluster.objects.items():
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
        kind, namespace, name = slot
        service = f"{PODS_OF}{kind.lower()}-{name}"
        address = next((each for each, of in self._pods.items() if of == slot), "")
        if not address:
            address = f"{_OWN_NETWORK}{len(self._pods) // 250}.{len(self._pods) % 250 + 1}"
            self._pods[address] = slot
        said = document["metadata"]["annotations"]
        kept = {each: text for each, text in said.items() if each in _KEPT or each.endswith("/canary")}
        if said.get(_REWRITE, "").strip():  # whatever it is, all paths are expressions
            kept[_REWRITE] = "/rewritten"
        spec = _with_service(document["spec"], service)
        yield slot, {**document, "metadata": document["metadata"] | {"annotations": kept}, "spec": spec}
        ports = [{"name": "http", "port": 80, "targetPort": 8080}]
        metadata = {"name": service, "namespace": namespace, "annotations": {}}
        yield ("Service", namespace, service), {"metadata": metadata, "spec": {"ports": ports}}
        yield ("EndpointSlice", namespace, service), slice_of(namespace, service, service, address)

    def objects_for(self, config: Config, request: Request) -> set[Slot]:
        """Return the objects that a request is for."""
        addresses = (each.rpartition(":")[0] for each in route(config, request).servers)
        return {self._pods[each] for each in addresses if each in self._pods}


def _with_service(spec: Any, service: str) -> Any:
    """Return a part of an object in which all references to Services are to this one."""
    if isinstance(spec, list):
        return [_with_service(each, service) for each in spec]
    if not isinstance(spec, dict):
        return spec
    if "service" in spec:
        return {"service": {"name": service, "port": {"number": 80}}}
    if "backendRefs" in spec:
        return {**spec, "backendRefs": [{"name": service, "port": 80} for _ in spec["backendRefs"]]}
    return {key: _with_service(value, service) for key, value in spec.items()}


def refuses(slot: Slot, document: Document, client: str) -> bool:
    """Return whether the words of an object let a client in to none of its pods."""
    kind, namespace, _ = slot
    said: Mapping[str, str] = document["metadata"]["annotations"]
    is_nginx = kind == "Ingress" and document["spec"].get("ingressClassName") == NGINX_CLASS
    of_nginx = read_nginx(said) if is_nginx else NOTHING_OF_NGINX
    words = dict((*of_nginx.words, *words_of(said)))
    if any(fault.restricts for fault in (*asked_by(words.items(), kind, namespace)[1], *misspelled_words(said, kind))):
        return True
    if kind == "Ingress" and read_foreign(said, kind, (), {*of_nginx.read, _USE_REGEX, _REWRITE}).restricting:
        return True
    if any(WORDS[word].names_object and WORDS[word].restricts for word in words):
        return True  # no object that a word names is what it has to be
    allowed, denied = (_networks(words.get(word, "")) for word in ("allow-networks", "deny-networks"))
    address = ip_address(client)
    return ("allow-networks" in words and not any(address in each for each in allowed)) or any(
        address in each for each in denied
    )


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
        places = [(SHARED_ADDRESS, 80), (SHARED_ADDRESS, 443)]
        for section, binds in alone.frontends:
            if section.name.startswith("gw_"):
                places += [(bind.address.strip("[]"), bind.port) for bind in binds if bind.port in {80, 443}]
        asked = [*product(places, _ASKED, _ASKED_PATHS)]
        for (address, port), host, path in rng.sample(asked, min(_MOST_ASKED, len(asked))):
            request = Request(address, port, host, path)
            objects = self.opened.objects_for(alone, request)
            if not objects or not any(cluster.objects[each]["metadata"]["annotations"] for each in objects):
                continue
            for client in CLIENTS:
                self.asked += 1
                if not all(refuses(each, cluster.objects[each], client) for each in objects):
                    continue
                self.refused += 1
                for server in route(seen, replace(request, source=client)).servers:
                    yield f"{client} is refused by {sorted(objects)}, and answered by {server} at {host}:{port}{path}"
