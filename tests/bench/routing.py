"""5,000 routes of three rules each: what one changed endpoint or path costs, from the watch's event to the commands.

Translation, rendering and difference, as one processor counts them; the commands take HAProxy less than 1 ms.
"""

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from pyconfd.haproxy.config.changes import Abilities
from pyconfd.model.plan import Reload, RuntimeUpdate
from pyconfd.model.snapshot import RECORD_OF, Key, Resource, Snapshot
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.gateway.status import CONTROLLER
from pyconfd.presets.preset import PresetOptions
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.decode import decode_event
from tests.bench.figures import Figure, median
from tests.bench.proportion import Chain, resident_bytes
from tests.presets.ingress.objects import ingress, ingress_class, path, service
from tests.world.resources import Obj

ROUTES, RULES, ROUNDS, WARM = 5_000, 3, 100, 10
FILTERED = 40
_TAKES_BACKENDS = Abilities(runtime=True, cookies=True, backends=True)
_KINDS = {
    "Service": Resource.SERVICES,
    "EndpointSlice": Resource.ENDPOINTSLICES,
    "Ingress": Resource.INGRESSES,
    "IngressClass": Resource.INGRESSCLASSES,
    "GatewayClass": Resource.GATEWAYCLASSES,
    "Gateway": Resource.GATEWAYS,
    "HTTPRoute": Resource.HTTPROUTES,
    "BackendTLSPolicy": Resource.BACKENDTLSPOLICIES,
}


class Cluster:
    """Caches as the watches keep them."""

    def __init__(self, *objects: Obj) -> None:
        self.caches = {resource: Cache() for resource in _KINDS.values()}
        for kind, resource in _KINDS.items():
            records = [msgspec.convert(each, RECORD_OF[resource]) for each in objects if each["kind"] == kind]
            self.caches[resource].replace(records, ())

    def apply(self, item: Obj) -> None:
        resource = _KINDS[item["kind"]]
        line = msgspec.json.encode({"type": "MODIFIED", "object": item})
        assert self.caches[resource].apply(decode_event(resource, line))

    def snapshot(self) -> Snapshot:
        views: dict[str, Any] = {resource.field: cache.view() for resource, cache in self.caches.items()}
        return Snapshot(**views)


def service_of(number: int, version: int = 0) -> list[Obj]:
    """Return a Service with its EndpointSlice, whose addresses follow from ``version``."""
    addresses = [f"10.{number >> 8}.{number & 255}.{1 + index + 2 * (version % 100)}" for index in range(2)]
    return service(f"web-{number:05d}", *addresses, namespace=f"team-{number % 200:03d}")


def ingress_route(number: int, version: int = 0, host: str = "") -> Obj:
    """Return an Ingress of three paths; ``version`` is in one of them, ``host`` is one that it has besides."""
    reference = f"web-{number:05d}:80"
    paths = [path("/", reference), path(f"/api/v{version}", reference), path("/cart", reference, "Exact")]
    assert len(paths) == RULES
    hosts = dict.fromkeys((f"s{number}.example.com", *([host] if host else ())), paths)
    return ingress(f"web-{number:05d}", hosts, namespace=f"team-{number % 200:03d}")


def ingress_objects(routes: int) -> list[Obj]:
    """Return so many Ingresses with all that they need."""
    objects = [ingress_class()]
    for number in range(routes):
        objects += [*service_of(number), ingress_route(number)]
    return objects


def ingress_routes() -> Iterator[Figure]:
    """Measure Ingresses."""
    changes: Mapping[str, Callable[[int], Obj]] = {
        "endpoint": lambda version: service_of(ROUTES // 2, version)[1],
        "path": lambda version: ingress_route(ROUTES // 3, version),
        # Its Service is there, and has no backend yet: a section comes, which takes a reload.
        "backend": lambda version: ingress_route(ROUTES + version),
    }
    more = [each for number in range(ROUTES, ROUTES + ROUNDS + WARM + 1) for each in service_of(number)]
    objects = [*ingress_objects(ROUTES), *more]
    yield from _figures("ingress_5000", Cluster(*objects), Chain(("domains", "ingress")), changes)


def http_route(number: int, version: int = 0, host: str = "", weight: int = 1) -> Obj:
    """Return an HTTPRoute of three rules; ``version`` is in one path, ``host`` is one that it has besides."""
    references = [{"name": f"web-{number:05d}", "port": 80, "weight": weight}]
    more = [{"name": f"web-{(number + 200) % ROUTES:05d}", "port": 80, "weight": 100}]
    paths = [("PathPrefix", "/"), ("PathPrefix", f"/api/v{version}"), ("Exact", "/cart")]
    rules = [
        {
            "matches": [{"path": {"type": kind, "value": text}}],
            "backendRefs": references + (more if text == "/" else []),
        }
        for kind, text in paths
    ]
    assert len(rules) == RULES
    return {
        "kind": "HTTPRoute",
        "metadata": _named(f"web-{number:05d}", f"team-{number % 200:03d}", 1000 * version + weight + bool(host)),
        "spec": {
            "parentRefs": [{"name": "web", "namespace": "infra"}],
            "hostnames": [f"s{number}.example.com", *([host] if host else ())],
            "rules": rules,
        },
    }


def _named(name: str, namespace: str, generation: int = 1) -> Obj:
    created = "2026-01-01T00:00:00Z"
    return {
        "name": name, "namespace": namespace, "uid": name, "generation": generation, "creationTimestamp": created,
        "resourceVersion": str(generation),
    }  # fmt: skip


def _gateway(name: str) -> Obj:
    everywhere = {"namespaces": {"from": "All"}}
    listener = {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": everywhere}
    spec = {"gatewayClassName": "pyconfd", "listeners": [listener]}
    return {"kind": "Gateway", "metadata": _named(name, "infra"), "spec": spec}


def filtered_route(number: int) -> Obj:
    """Return an HTTPRoute with a host and two rules, each with a filter that all others have with other values."""
    references = [{"name": f"web-{number % 20 * 200:05d}", "port": 80}]

    def rule(path: str, header: str) -> Obj:
        added = {"add": [{"name": header, "value": f"of-{number}"}]}
        filters = [{"type": "RequestHeaderModifier", "requestHeaderModifier": added}]
        matches = [{"path": {"type": "PathPrefix", "value": path}}]
        return {"matches": matches, "backendRefs": references, "filters": filters}

    return {
        "kind": "HTTPRoute",
        "metadata": _named(f"filtered-{number:05d}", "team-000"),
        "spec": {
            "parentRefs": [{"name": "web", "namespace": "infra"}],
            "hostnames": [f"f{number}.example.com"],
            "rules": [rule(f"/{number}", "x-first"), rule("/other", "x-second")],
        },
    }


def gateway_objects(routes: int) -> list[Obj]:
    """Return so many HTTPRoutes of one Gateway with all that they need."""
    objects: list[Obj] = [
        {"kind": "GatewayClass", "metadata": _named("pyconfd", ""), "spec": {"controllerName": CONTROLLER}},
        _gateway("web"),
    ]
    for number in range(routes):
        objects += [*service_of(number), http_route(number)]
    return objects


def filtered_routes() -> Iterator[Figure]:
    """Create one more HTTPRoute with filters beside 500 and 2,000 of one port; the spares do not run out."""
    for routes in (500, 2_000):
        services = [obj for number in range(0, 4_000, 200) for obj in service_of(number)]
        known = [filtered_route(number) for number in range(routes)]
        cluster = Cluster(*gateway_objects(0), *services, *known)
        chain = Chain(("domains", "gateway"), PresetOptions(addresses=AddressOptions(("192.0.2.1",))), _TAKES_BACKENDS)
        chain.follow(cluster.snapshot())
        gc.collect()
        times = []
        for number in range(routes, routes + FILTERED):
            cluster.apply(filtered_route(number))
            snapshot = cluster.snapshot()
            began = time.process_time()
            found = chain.follow(snapshot)
            times.append(time.process_time() - began)
            assert isinstance(found, RuntimeUpdate), found
        yield Figure(f"chain_{routes}_filtered_routes_one_more_cpu", median(times) * 1000, "ms")


def route_of_all_hosts(number: int) -> Obj:
    """Return an HTTPRoute without a hostname, of one rule: it is for all hosts of its listener."""
    references = [{"name": f"web-{number % 200:05d}", "port": 80}]
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": f"/of-all/{number}"}}], "backendRefs": references}
    spec = {"parentRefs": [{"name": "web", "namespace": "infra"}], "rules": [rule]}
    return {"kind": "HTTPRoute", "metadata": _named(f"all-{number}", f"team-{number % 200:03d}"), "spec": spec}


def more_gateways(count: int) -> list[Obj]:
    """Return so many more Gateways, and as many policies for TLS to the pods of one Service each."""
    objects: list[Obj] = []
    for number in range(count):
        target = {"group": "", "kind": "Service", "name": f"web-{number:05d}"}
        validation = {"hostname": "web.example.com", "wellKnownCACertificates": "System"}
        policy = _named(f"web-{number:05d}", f"team-{number % 200:03d}")
        spec = {"targetRefs": [target], "validation": validation}
        objects += [_gateway(f"web-{number:03d}"), {"kind": "BackendTLSPolicy", "metadata": policy, "spec": spec}]
    return objects


_GATEWAY = ("domains", "gateway"), PresetOptions(addresses=AddressOptions(("192.0.2.1",)))


def gateway_routes() -> Iterator[Figure]:
    """Measure HTTPRoutes of one Gateway, of which one rule in three divides its requests."""
    changes: Mapping[str, Callable[[int], Obj]] = {
        "endpoint": lambda version: service_of(ROUTES // 2, version)[1],
        "weight": lambda version: http_route(ROUTES // 3, weight=version + 1),
        "path": lambda version: http_route(ROUTES // 3, version),
    }
    yield from _figures("gateway_5000", Cluster(*gateway_objects(ROUTES)), Chain(*_GATEWAY), changes)


def _domain_objects() -> list[Obj]:
    objects: list[Obj] = []
    for number in range(ROUTES * RULES):
        made, slices = service_of(number)
        made["metadata"]["annotations"] = {"domain": f"s{number}.example.com", "proto": "http"}
        objects += [made, slices]
    return objects


_MADE = {"domains": _domain_objects, "routes": lambda: gateway_objects(ROUTES)}


def routes_memory() -> Iterator[Figure]:
    """Compare 5,000 HTTPRoutes of three rules with 15,000 domains: memory and the first configuration."""
    context = multiprocessing.get_context("spawn")
    found: dict[str, tuple[int, float]] = {}
    for name in _MADE:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_first, args=(name, theirs))
        process.start()
        theirs.close()  # so that a child that dies ends the wait
        found[name] = ours.recv()
        process.join()
        yield Figure(f"{name}_memory", found[name][0] / 1e6, "MB")
        yield Figure(f"{name}_first_cpu", found[name][1], "s")
    yield Figure("routes_memory_ratio", found["routes"][0] / found["domains"][0], "of 15,000 domains", 1.5)
    yield Figure("routes_first_ratio", found["routes"][1] / found["domains"][1], "of 15,000 domains", 1.5)


def _first(name: str, answer: Connection) -> None:
    cluster, chain = Cluster(*_MADE[name]()), Chain(*_GATEWAY)
    began = time.process_time()
    chain.follow(cluster.snapshot())
    taken = time.process_time() - began
    gc.collect()
    answer.send((resident_bytes(), taken))


def _figures(
    name: str, cluster: Cluster, chain: Chain, changes: Mapping[str, Callable[[int], Obj]]
) -> Iterator[Figure]:
    gc.collect()
    began = time.process_time()
    chain.follow(cluster.snapshot())
    yield Figure(f"{name}_first_cpu", (time.process_time() - began) * 1000, "ms")
    assert cluster.snapshot().services.keys() >= {Key("team-000", "web-00000")}
    for what, change in changes.items():
        times = []
        for version in range(1, ROUNDS + WARM + 1):
            item = change(version)
            began = time.process_time()
            cluster.apply(item)
            found = chain.follow(cluster.snapshot())
            times.append(time.process_time() - began)
            assert isinstance(found, Reload if what == "backend" else RuntimeUpdate), found
            assert isinstance(found, Reload) or found.commands
        times = sorted(times[WARM:])
        goals = (20, 50) if what == "backend" else (5, 20)
        yield Figure(f"{name}_{what}_p50_cpu", times[len(times) // 2] * 1000, "ms", goals[0])
        yield Figure(f"{name}_{what}_p99_cpu", times[len(times) * 99 // 100] * 1000, "ms", goals[1])
