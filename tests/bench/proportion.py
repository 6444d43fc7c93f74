"""Translation, rendering and difference together: for one changed service, for all of them, and after a whole list."""

import gc
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from pyconfd import fragments
from pyconfd.haproxy.config import diff
from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import Comparison
from pyconfd.model.plan import Plan, RuntimeUpdate
from pyconfd.model.snapshot import Resource, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.decode import decode_event, decode_list
from tests.bench import presets, slices
from tests.bench.figures import Figure, median
from tests.world import objects
from tests.world.objects import PortSpec

if TYPE_CHECKING:
    from pyconfd.model.rendering import Rendering

SHARE = 1 / 50
"""Of all services, what one changed service may cost at most."""
OF_ORJSON = 3.0
"""Of the time in which ``orjson`` reads the same bytes, what a whole list may cost at most."""
RESIDENT_MB = 400.0
PAGE_BYTES = 4096
ROUNDS, WHOLE_ROUNDS = 40, 3
SERVICES, ENDPOINTS, EACH = 10_000, 10, 100
_CAN = Abilities(runtime=True, cookies=True)


class Chain:
    """What pyconfd does between the cluster and the runtime socket, with what it remembers from change to change."""

    def __init__(
        self, presets: Sequence[str] = ("domains",), options: PresetOptions | None = None, can: Abilities = _CAN
    ) -> None:
        self._presets, self._options, self._can = presets, options or PresetOptions(), can
        self._renderer = Renderer(read_fragments(fragments.directory()), RenderOptions("/etc/haproxy/generated/files"))
        self._memo = Memo()
        self._comparison = Comparison()
        self._applied: Rendering | None = None

    def forget(self) -> None:
        """Remember nothing but what is applied."""
        applied = self._applied
        self.__init__(self._presets, self._options, self._can)  # type: ignore[misc]
        self._applied = applied

    def follow(self, snapshot: Snapshot) -> Plan:
        """Return what has to be done, and take it that it was."""
        context = registry.translate(snapshot, self._presets, self._options, self._memo)
        rendering = self._renderer.render(context, curdate="").rendering
        found = diff.plan(rendering, self._applied, None, comparison=self._comparison, abilities=self._can)
        self._applied = rendering
        return found

    def digest(self) -> str:
        """Return the digest of what is applied, which joins the whole text as writing the file does."""
        assert self._applied is not None
        return self._applied.digest


def whole_chain() -> Iterator[Figure]:
    """Change one EndpointSlice of 1,000 and 10,000, one in the middle, then every one of them."""
    for services in (1_000, 10_000):
        whole = presets.snapshot_of(services)
        chain, one, everything, middle = Chain(), [], [], services // 2
        chain.follow(whole)
        caches = {each: Cache() for each in (Resource.SERVICES, Resource.ENDPOINTSLICES, Resource.NODES)}
        for resource, cache in caches.items():
            cache.replace(getattr(whole, resource.field).values(), ())
        gc.collect()
        for version in range(1, ROUNDS + 1):
            item = presets.readdressed(whole, version, middle).endpointslices[presets.slice_key(middle)]
            line = msgspec.json.encode({"type": "MODIFIED", "object": item})
            began = time.process_time()
            assert caches[Resource.ENDPOINTSLICES].apply(decode_event(Resource.ENDPOINTSLICES, line))
            found = chain.follow(_snapshot(caches))
            one.append(time.process_time() - began)
            assert isinstance(found, RuntimeUpdate)
            assert found.commands
        for version in range(WHOLE_ROUNDS):
            other = _all_readdressed(whole, version)
            chain.forget()
            gc.collect()
            began = time.process_time()
            found = chain.follow(other)
            everything.append(time.process_time() - began)
            assert isinstance(found, RuntimeUpdate)
            assert len(found.commands) >= services
        name = f"chain_{services}_services"
        yield Figure(f"{name}_one_changed_cpu", median(one) * 1000, "ms")
        yield Figure(f"{name}_all_changed_cpu", median(everything) * 1000, "ms")
        goal = SHARE if services == 10_000 else None
        yield Figure(f"{name}_one_changed_of_all", median(one) / median(everything), "ratio", goal)


def _snapshot(caches: dict[Resource, Cache]) -> Snapshot:
    views: dict[str, Any] = {resource.field: cache.view() for resource, cache in caches.items()}
    return Snapshot(**views)


def _all_readdressed(whole: Snapshot, version: int) -> Snapshot:
    """Return the same with another first address in each EndpointSlice."""
    changed = {}
    for number, (key, item) in enumerate(whole.endpointslices.items()):
        first, *others = item.endpoints or ()
        first = msgspec.structs.replace(first, addresses=(f"10.{100 + version}.{number >> 8}.{number & 255}",))
        changed[key] = msgspec.structs.replace(item, endpoints=(first, *others))
    return Snapshot(services=whole.services, endpointslices=changed, nodes=whole.nodes)


def after_a_list() -> Iterator[Figure]:
    """Read lists of 10,000 Services and 100,000 endpoints, from nothing and after a watch broke; up to the plan."""
    body = _lists(changed=0)
    fresh, again, theirs = [], [], []
    chain, caches = Chain(), _empty()
    for _ in range(WHOLE_ROUNDS):
        chain, caches = Chain(), _empty()
        gc.collect()
        began = time.process_time()
        _read(body, caches)
        chain.follow(_snapshot(caches))
        fresh.append(time.process_time() - began)
    for version in range(1, WHOLE_ROUNDS + 1):
        body = _lists(changed=version)
        gc.collect()
        began = time.process_time()
        _read(body, caches)
        found = chain.follow(_snapshot(caches))
        again.append(time.process_time() - began)
        assert isinstance(found, RuntimeUpdate)
        assert len(found.commands) >= SERVICES // EACH
        gc.collect()
        began = time.process_time()
        read = [orjson.loads(page) for pages in body.values() for page in pages]
        theirs.append(time.process_time() - began)
        del read
    one = median(theirs)
    yield Figure("list_100000_endpoints_orjson_cpu", one * 1000, "ms")
    yield Figure("list_100000_endpoints_again_cpu", median(again) * 1000, "ms")
    yield Figure("list_100000_endpoints_again_of_orjson", median(again) / one, "of orjson.loads", OF_ORJSON)
    yield Figure("list_100000_endpoints_from_nothing_cpu", median(fresh) * 1000, "ms")
    yield Figure("list_100000_endpoints_from_nothing_of_orjson", median(fresh) / one, "of orjson.loads", OF_ORJSON)


def _empty() -> dict[Resource, Cache]:
    return {each: Cache() for each in (Resource.SERVICES, Resource.ENDPOINTSLICES, Resource.NODES)}


def _read(body: dict[Resource, list[bytes]], caches: dict[Resource, Cache]) -> None:
    for resource, pages in body.items():
        caches[resource].replace([item for page in pages for item in decode_list(resource, page).items], ())


def _lists(*, changed: int) -> dict[Resource, list[bytes]]:
    """Return the pages of both lists; ``changed`` numbers what every hundredth slice has in place of one address."""
    found = slices.endpointslices(SERVICES, ENDPOINTS)
    for number in range(0, SERVICES if changed else 0, EACH):
        found[number]["endpoints"][0]["addresses"] = [f"10.{200 + changed}.{number >> 8}.{number & 255}"]
    services = []
    for number in range(SERVICES):
        annotations = {"domain": f"s{number}.example.com", "proto": "http"}
        made = objects.service(
            f"team-{number % 200:03d}", f"service-{number:05d}", [PortSpec("web", 80, 8080)], annotations=annotations
        )
        services.append(objects.with_service_defaults(made))
    whole = {"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": services}
    return {Resource.SERVICES: [orjson.dumps(whole)], Resource.ENDPOINTSLICES: slices.pages(found)}


def chain_memory() -> Iterator[Figure]:
    """Have a new process read both lists, make the first configuration, and then what a hundred changed slices need."""
    with tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as name:
        for changed in (0, 1):
            for resource, pages in _lists(changed=changed).items():
                for number, page in enumerate(pages):
                    (Path(name) / f"{changed}-{resource}-{number:03d}.json").write_bytes(page)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_resident, args=(Path(name), theirs))
        process.start()
        theirs.close()  # so that a child that dies ends the wait
        resident = ours.recv()
        process.join()
    yield Figure("chain_10000_services_resident_memory", resident / 1e6, "MB", RESIDENT_MB)


def _resident(folder: Path, answer: Connection) -> None:
    chain, caches = Chain(), _empty()
    for changed in (0, 1):
        for resource in (Resource.SERVICES, Resource.ENDPOINTSLICES):
            pages = sorted(folder.glob(f"{changed}-{resource}-*.json"))
            found = (item for page in pages for item in decode_list(resource, page.read_bytes()).items)
            caches[resource].replace(found, ())
        chain.follow(_snapshot(caches))
        assert chain.digest()
    answer.send(resident_bytes())


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
