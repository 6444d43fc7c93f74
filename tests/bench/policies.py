"""Words of policies: how soon a new value counts, what they cost requests, and how a cluster moves from ingress-nginx.

Processor time is that of haproxy's one thread for each answered request, as in tests/bench/requests.py: all sides of a
ratio take turns in one run. What is asked as fast as it can be has as many answers a second as that time allows.
"""

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pyconfd.fragments import directory
from pyconfd.haproxy.runtime.sockets import processes
from pyconfd.model.snapshot import Resource
from pyconfd.presets import registry
from pyconfd.presets.annotations import OWN_PREFIX
from pyconfd.presets.policies.nginx import PREFIX
from pyconfd.presets.policies.words import WORDS, asked_by
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from pyconfd.trying.own_haproxy import short_folder
from tests.bench.figures import Figure, median
from tests.bench.live import FIRST, LAST
from tests.bench.requests import HOSTS, Load, Proxy, on_the_pod, serve_pod
from tests.bench.routing import ROUTES, ingress_objects
from tests.bench.serving import OPTIONS, Event, Serving
from tests.fragments.shipped import write_rendering
from tests.fuzz.words import sound
from tests.moving.oracle import NUMBER, generated
from tests.presets.ingress.objects import Obj, ingress, ingress_class, path, service, snapshot
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.haproxy import free_port
from tests.world.objects import EndpointSpec, PortSpec

PAIRS = int(os.environ.get("PAIRS", "8"))
BESIDE, CHANGES, QUIET_S = 500, int(os.environ.get("CHANGES", "10")), 0.1
"""Ingresses beside those that are looked at, changes of each word, and the pause before each."""
VALUE_GOAL_MS, MOVE_GOAL_S = 15.0, 5.0
NGINX = "nginx"
GROUPS: Mapping[str, Mapping[str, str]] = {
    "nothing": {},
    "control": {},
    "networks": {"allow-networks": "127.0.0.0/8, 2001:db8::/32", "deny-networks": "192.0.2.0/24"},
    "limit_of_a_second": {"limit-rps": "1000000"},
    "limits_with_burst": {"limit-rps": "1000000", "limit-rpm": "1000000", "limit-burst": "1000000"},
    "limit_of_connections": {"limit-connections": "1000000"},
    "limit_by_header": {"limit-rps": "1000000", "limit-by": "header:User-Agent"},
    "body_size": {"max-body-size": "1m"},
    "timeouts": {"server-timeout": "30s", "tunnel-timeout": "1h", "connect-timeout": "2s", "queue-timeout": "5s"},
    "request_timeout": {"request-timeout": "10s"},
    "retries": {"retries": "2", "retry-on": "conn-failure 503"},
    "hash_by_path": {"hash-by": "path"},
    "session_cookie": {"session-cookie": "SESSION"},
    "headers": {
        "request-headers": "X-A: one\nX-B: two",
        "response-headers": "X-C: three",
        "remove-response-headers": "Server",
    },
    "rewrite": {"rewrite-path": "/index.html", "upstream-host": "app.internal.example"},
    "cors": {"cors-allow-origins": "https://app.example.com", "cors-allow-methods": "GET, PUT"},
    "app_root": {"app-root": "/app"},
}
"""Words that are in use together, by a name. None of them answers instead of the pod here."""


def _load(name: str) -> Figure:
    return Figure(f"policies_{name}_load_average", os.getloadavg()[0], f"processes of {os.cpu_count()} processors")


# How soon a new value counts


def _two(word: str) -> tuple[Mapping[str, str], Mapping[str, str]] | None:
    """Return two ways to say a word that ask for the same lines with other values, beside another word if need be.

    None is for a word that says nothing without an object.
    """
    others = [{}, *({name: other.example} for name, other in WORDS.items() if not other.names_object and name != word)]
    for beside in others:
        found: dict[object, dict[object, Mapping[str, str]]] = {}
        for text in sound(word):
            said = {**beside, word: text}
            asked, faults = asked_by(said.items())
            if not faults:
                lines = asked.policy.lines, asked.filters.lines, asked.handling.lines
                found.setdefault(lines, {}).setdefault(asked, said)
        if several := [[*each.values()] for each in found.values() if len(each) > 1]:
            return several[0][0], several[0][1]
    return None


def _web(name: str, words: Mapping[str, str], **more: Any) -> Obj:
    annotations = {f"{OWN_PREFIX}{word}": text for word, text in words.items()}
    host = {f"{name}.example.com": [path("/", "app:80")]}
    return ingress(name, host, namespace="words", annotations=annotations, **more)


def _edited(item: Obj) -> Event:
    return Event(Resource.INGRESSES, msgspec.json.encode({"type": "MODIFIED", "object": item}))


def policies_new_value() -> Iterator[Figure]:
    """Give each word that is a runtime update one value after the other, beside 500 Ingresses.

    The clock stops when HAProxy has the entry of the map, and was asked whether it has it.
    """
    live = [name for name, word in WORDS.items() if word.live and "Ingress" in word.kinds]
    said = {word: both for word in live if (both := _two(word)) is not None}
    objects = [*ingress_objects(BESIDE), *(_web(word, both[0]) for word, both in said.items())]
    with tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as name, ExitStack() as stack:
        os.sched_setaffinity(0, {LAST})
        whole = snapshot(*objects, *service("app", "127.19.0.1", namespace="words"))
        presets = ("domains", "ingress")
        serving = stack.enter_context(Serving(Path(name), whole, pods=1, presets=presets, options=OPTIONS))
        serving.first()
        os.sched_setaffinity(0, {FIRST})
        reloads = processes(serving.haproxy.master_socket).reloads
        took: dict[str, list[tuple[float, float]]] = {word: [] for word in said}
        for turn in range(1, CHANGES + 1):
            for word, both in said.items():
                took[word].append(_timed(serving, _web(word, both[turn % 2])))
        reloads = processes(serving.haproxy.master_socket).reloads - reloads
    every = sorted(each for times in took.values() for each, _ in times)
    used = sorted(each for times in took.values() for _, each in times)
    yield _load("new_value")
    yield Figure("policies_new_value_words", len(said), f"words of {len(live)}")
    yield Figure("policies_new_value_p50", median(every) * 1e3, "ms", VALUE_GOAL_MS)
    yield Figure("policies_new_value_p99", every[int(len(every) * 0.99)] * 1e3, "ms")
    yield Figure("policies_new_value_cpu_p50", median(used) * 1e3, "ms")
    yield Figure("policies_new_value_cpu_p99", used[int(len(used) * 0.99)] * 1e3, "ms")
    yield Figure("policies_new_value_reloads", reloads, "reloads", 0)
    of_words = {word: median([used for _, used in times]) for word, times in took.items()}
    slowest = max(of_words, key=lambda word: of_words[word])
    yield Figure(f"policies_new_value_slowest_word_{slowest}_cpu_p50", of_words[slowest] * 1e3, "ms")


def _timed(serving: Serving, item: Obj) -> tuple[float, float]:
    """Return the seconds that a change takes, and those of this process's processor time."""
    time.sleep(QUIET_S)
    serving.daemon.step(0)  # what is due by the clock
    began, used = time.perf_counter(), time.thread_time()
    serving.live(_edited(item))
    took = time.perf_counter() - began, time.thread_time() - used
    assert serving.balancer.updates_at_runtime(), item
    return took


# What a request costs


def _side(folder: Path, objects: Iterable[Obj], pod_port: int) -> Proxy:
    """Return haproxy with what the shipped fragments make of Ingresses, all of which lead to one pod."""
    folder.mkdir()
    port = free_port()
    options = replace(OPTIONS, nginx_classes=(NGINX,))
    context = registry.translate(snapshot(*on_the_pod(objects, pod_port)), ("domains", "ingress"), options)
    assert not context.refused, context.refused[:3]
    variables = {
        "http_bind": f"127.0.0.1:{port}",
        "https_bind": "",
        "stats_bind": "",
        "runtime_socket": f"{short_folder('policies-')}/s",
    }
    renderer = Renderer(read_fragments(directory()), RenderOptions(str(folder / "files"), variables=variables))
    rendering = renderer.render(context, curdate="").rendering
    write_rendering(rendering, folder / "haproxy.cfg")
    return Proxy(folder, rendering.text.replace("default-server check", "default-server"), {"http": port})


def _with_words(objects: Iterable[Obj], words: Callable[[int], Mapping[str, str]], class_name: str = "") -> list[Obj]:
    """Return objects of which 500 Ingresses, whose hosts are not asked, have annotations."""
    found, number = [], 0
    for each in objects:
        item = each
        if each["kind"] == "Ingress":
            if number % (ROUTES // BESIDE) == 5:
                item = {**each, "metadata": each["metadata"] | {"annotations": dict(words(number))}}
                item["spec"] = each["spec"] | ({"ingressClassName": class_name} if class_name else {})
            number += 1
        found.append(item)
    return found


def _own(number: int) -> Mapping[str, str]:
    groups = [*GROUPS.values()]
    return {f"{OWN_PREFIX}{word}": text for word, text in groups[2 + number % (len(groups) - 2)].items()}


def _expressions(_: int) -> Mapping[str, str]:
    return {f"{PREFIX}use-regex": "true"}


def policies_unused_cost() -> Iterator[Figure]:
    """Ask hosts without words: beside 500 Ingresses with words, beside 500 hosts with expressions, and beside none."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyconfd-bench-")))
        pod_port = free_port()
        pod = serve_pod(folder, pod_port)
        stack.callback(pod.wait, 30)
        stack.callback(pod.terminate)
        objects = ingress_objects(ROUTES)
        given = {
            "none": objects,
            "control": objects,
            "words": _with_words(objects, _own),
            "expressions": _with_words([*objects, ingress_class(NGINX)], _expressions, NGINX),
        }
        sides = {name: stack.enter_context(_side(folder / name, each, pod_port)) for name, each in given.items()}
        found = _in_turns(sides, lambda side: side.load("http", HOSTS["http"]))
        yield _load("unused_cost")
        yield Figure("policies_unused_requests_per_second", median([each.each_s for each in found["none"]]), "1/s")
        yield from _compared("policies_unused", found, "none")


def policies_used_cost() -> Iterator[Figure]:
    """Ask hosts with words, of one haproxy: each group of words against a host without any."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyconfd-bench-")))
        pod_port = free_port()
        pod = serve_pod(folder, pod_port)
        stack.callback(pod.wait, 30)
        stack.callback(pod.terminate)
        objects = [ingress_class(), *service("app", "127.0.0.1", namespace="words")]
        objects += [_web(name.replace("_", "-"), words) for name, words in GROUPS.items()]
        side = stack.enter_context(_side(folder / "side", objects, pod_port))
        hosts = {name: f"{name.replace('_', '-')}.example.com" for name in GROUPS}
        found = _in_turns(hosts, lambda host: side.load("http", (host,)))
        yield _load("used_cost")
        yield from _compared("policies_used", found, "nothing")


def _in_turns(sides: Mapping[str, Any], ask: Callable[[Any], Load]) -> dict[str, list[Load]]:
    found: dict[str, list[Load]] = {name: [] for name in sides}
    for turn in range(PAIRS):
        for name in [*sides][:: 1 if turn % 2 else -1]:
            found[name].append(ask(sides[name]))
    return found


def _compared(prefix: str, found: Mapping[str, list[Load]], base: str) -> Iterator[Figure]:
    """Return how many times the processor time of the base each takes, with the quartiles of its pairs."""
    yield Figure(f"{prefix}_{base}_cpu", median([each.cost_us for each in found[base]]), "us")
    for name in found:
        ratios = sorted(mine.cost_us / other.cost_us for other, mine in zip(found[base], found[name], strict=True))
        if name != base:
            yield Figure(f"{prefix}_{name}_of_{base}", median(ratios), "ratio")
            yield Figure(f"{prefix}_{name}_of_{base}_low", ratios[len(ratios) // 4], "ratio")
            yield Figure(f"{prefix}_{name}_of_{base}_high", ratios[-1 - len(ratios) // 4], "ratio")


# From another class


class _Move:
    """A whole daemon beside 300 Ingresses that were written for ingress-nginx, each with a Service of its own."""

    def __init__(self, appliance: Appliance, classes: list[str], class_name: str) -> None:
        self.appliance = appliance
        self.names: list[str] = []
        self._hosts: dict[str, str] = {}
        appliance.values["ingress"] = {"nginx_classes": classes}
        appliance.values["addresses"] = {"shared": ["192.0.2.10"]}
        appliance.serve("shop")
        address = appliance.members("shop")[0].address
        for made in generated(1):
            for item in made.documents:
                name = item["metadata"]["name"]
                self.names.append(name)
                appliance.cluster.add_service(NAMESPACE, name, ports=[PortSpec("web", 80, appliance.pods.port)])
                appliance.cluster.set_endpoints(NAMESPACE, name, [EndpointSpec(address, pod=name, node="node-1")])
                metadata = item["metadata"] | {"namespace": NAMESPACE}
                own = {made.host: [path(made.path, f"{name}:80", made.kind)]}
                spec = ingress(name, own, class_name=class_name)["spec"]
                appliance.cluster.create("ingresses", {"metadata": metadata, "spec": spec})
            if made.said.get("backend-protocol", "HTTP") == "HTTP":  # the pods here speak nothing else
                self._hosts[made.host] = "/app/one"
        appliance.start()
        appliance.until(appliance.settled, "the first configuration is applied and verified")
        appliance.until(lambda: appliance.ask("shop").startswith("shop-"), "shop is served")
        time.sleep(2)

    def measured(self, change: Callable[[], None]) -> tuple[float, float, int]:
        """Return the seconds until the change is written, until all hosts are served, and the reloads until then."""
        socket_ = self.appliance.haproxy.master_socket
        reloads, began = processes(socket_).reloads, time.monotonic()
        change()
        written = time.monotonic() - began
        left = dict(self._hosts)
        while left:
            left = {host: at for host, at in left.items() if self._status(host, at) == 404}
            if time.monotonic() - began > 120:
                raise AssertionError(f"not served: {[*left][:5]} of {len(left)}")
            time.sleep(0.02)
        took = time.monotonic() - began
        time.sleep(10)  # what may follow
        return written, took, processes(socket_).reloads - reloads

    def _status(self, host: str, at: str) -> int:
        """Return the status of an answer; 404 where there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.appliance.http), 5) as connection:
                connection.sendall(f"GET {at} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                return int(connection.makefile("rb").readline().split()[1])
        except (OSError, IndexError):
            return 404


def policies_change_of_class() -> Iterator[Figure]:
    """Move 300 Ingresses to a class that means what ingress-nginx makes of it: by the setting, and one by one."""

    def by_setting(move: _Move) -> None:
        move.appliance.values["ingress"] = {"nginx_classes": [NGINX]}
        move.appliance.write_settings()
        move.appliance.hang_up()

    def by_objects(move: _Move, pause_s: float = 0.0) -> None:
        for name in move.names:
            change = {"spec": {"ingressClassName": NGINX}}
            move.appliance.cluster.patch("ingresses", NAMESPACE, name, change)
            time.sleep(pause_s)

    ways: Mapping[str, tuple[list[str], str, Callable[[_Move], None]]] = {
        "setting": ([], NGINX, by_setting),
        "objects": ([NGINX], "other", by_objects),
        "objects_in_10_s": ([NGINX], "other", partial(by_objects, pause_s=10 / NUMBER)),
    }
    for name, (classes, class_name, change) in ways.items():
        with tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as folder, Appliance(Path(folder)) as appliance:
            move = _Move(appliance, classes, class_name)
            written, took, reloads = move.measured(partial(change, move))
        yield Figure(f"policies_move_by_{name}_written", written, "s")
        yield Figure(f"policies_move_by_{name}_until_all_are_served", took - written, "s", MOVE_GOAL_S)
        yield Figure(f"policies_move_by_{name}_reloads", reloads, "reloads", 1 if written < 1 else None)
        yield _load(f"move_by_{name}")
