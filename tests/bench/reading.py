"""Reading the cluster: a resync of 100,000 endpoints, and one watch event."""

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import orjson
from kubernetes import client, watch

from pyconfd.model.snapshot import Key, Resource
from pyconfd.presets.endpoints import slices_by_service
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.decode import decode_event, decode_list
from tests.bench import slices
from tests.bench.figures import Figure, median

if TYPE_CHECKING:
    from pyconfd.model.kubernetes import EndpointSlice

SERVICES, ENDPOINTS = 10_000, 10
ROUNDS = 7
PAGE_BYTES = 4096


def _cpu_s(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        result = work()
        times.append(time.process_time() - began)
        del result
    return median(times)


def _resync(body: list[bytes], cache: Cache) -> object:
    """Decode every page, compare with what is cached, and group by service: what a relist costs."""
    items = [item for page in body for item in decode_list(Resource.ENDPOINTSLICES, page).items]
    cache.replace(items, ())
    return slices_by_service(cast("Mapping[Key, EndpointSlice]", cache.view()))


def resync_cpu() -> Iterator[Figure]:
    """Compare decode + index + diff with ``orjson.loads`` of the same bytes; garbage collector on, then off."""
    items = slices.endpointslices(SERVICES, ENDPOINTS)
    whole, body = slices.whole_list(items), slices.pages(items)
    del items
    cache = Cache()
    _resync(body, cache)
    gc.collect()
    for collector in ("on", "off"):
        if collector == "off":
            gc.disable()
        ours, theirs = _cpu_s(lambda: _resync(body, cache)), _cpu_s(lambda: orjson.loads(whole))
        goal = 0.4 if collector == "on" else None
        yield Figure(f"resync_cpu_ratio_gc_{collector}", ours / theirs, "of orjson.loads", goal)
        yield Figure(f"resync_cpu_gc_{collector}", ours * 1000, "ms")
        yield Figure(f"orjson_cpu_gc_{collector}", theirs * 1000, "ms")
    gc.enable()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


def _growth(kind: str, answer: Connection) -> None:
    items = slices.endpointslices(SERVICES, ENDPOINTS)
    whole, body = slices.whole_list(items), slices.pages(items)
    del items
    gc.collect()
    before = _resident_bytes()
    kept: Any
    if kind == "orjson":
        kept = orjson.loads(whole)
    else:
        kept = Cache()
        _resync(body, kept)
    answer.send(_resident_bytes() - before)
    del kept


def resync_memory() -> Iterator[Figure]:
    """Compare the growth of resident memory by a resync with that by ``orjson.loads``; a new process for each."""
    grown = {}
    context = multiprocessing.get_context("spawn")
    for kind in ("orjson", "pyconfd"):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_growth, args=(kind, theirs))
        process.start()
        theirs.close()  # so that a child that dies ends the wait
        grown[kind] = ours.recv()
        process.join()
    yield Figure("resync_memory_ratio", grown["pyconfd"] / grown["orjson"], "of orjson.loads", 0.6)
    yield Figure("resync_memory", grown["pyconfd"] / 1e6, "MB")
    yield Figure("orjson_memory", grown["orjson"] / 1e6, "MB")


class _Lines:
    """Stands in for an HTTP response: the watch of the typed client reads from it as from a socket."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines

    def stream(self, amt: int | None = None, decode_content: bool | None = None) -> Iterator[bytes]:
        yield from self._lines

    def close(self) -> None:
        pass

    release_conn = close


def watch_event_cpu() -> Iterator[Figure]:
    """Compare the CPU for one watch event, decoded and compared, with the typed client's watch on the same lines."""
    items = slices.endpointslices(500, ENDPOINTS)
    lines = slices.watch_lines(items)

    def ours() -> None:
        cache = Cache()
        for line in lines:
            cache.apply(decode_event(Resource.ENDPOINTSLICES, line))

    def typed() -> None:
        api = client.ApiClient()

        def list_slices(**_: object) -> _Lines:
            """:return: V1EndpointSliceList."""
            return _Lines(lines)

        watcher = watch.Watch(return_type="V1EndpointSlice")
        watcher._api_client = api
        for count, _ in enumerate(watcher.stream(list_slices), 1):
            if count == len(lines):
                watcher.stop()

    ours_s, typed_s = _cpu_s(ours) / len(lines), _cpu_s(typed) / len(lines)
    yield Figure("watch_event_cpu_ratio", ours_s / typed_s, "of the typed client", 0.1)
    yield Figure("watch_event_cpu", ours_s * 1e6, "us")
    yield Figure("typed_watch_event_cpu", typed_s * 1e6, "us")
