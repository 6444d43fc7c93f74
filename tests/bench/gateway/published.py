"""The seven tests of gateway-api-bench: each yields what it measured, and deletes what it created.

Source: github.com/howardjohn/gateway-api-bench, whose names they have.
"""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import psutil

from tests.bench.gateway.harness import Background, Client, Harness, Seen
from tests.bench.gateway.measures import OK, times, wrk_figures
from tests.bench.gateway.objects import (
    ADDED,
    BACKEND,
    GATEWAY,
    NAMESPACE,
    Obj,
    adds,
    deployment,
    endpoint_slice,
    gateway,
    ingress_class,
    namespace,
    probed_host,
    probed_route,
    route,
    rule,
    service,
)

Figures = dict[str, object]
Scenario = Callable[[Harness, int], Iterator[Figures]]
PODS = 4
"""Of the backend that all tests share."""
CHANGES = 20
NAMESPACES = 10
CHURN_S, CHURN_EVERY_S = 20.0, 0.2
CONNECTIONS = (1, 16, 128)
TRAFFIC_S = 5
PHASE_S = 12.0
"""How long a pod is well, and how long it is not; gateway-api-bench has 22 s and five rounds."""
ROUNDS = 2
PATHS = 16
DOWN = {"refused": "reject with tcp reset", "dropped": "drop"}
"""What the kernel of the pod that fails does with TCP."""


def prepare(harness: Harness) -> None:
    """Create the Gateway, the class of Ingresses and the backend, and wait until they are there."""
    api, made = harness.api, gateway(GATEWAY, harness.class_name)
    for obj in (namespace(NAMESPACE), ingress_class(harness.class_name, "pyconfd.io/ingress"), made):
        api.create(obj)
    api.create(deployment(BACKEND, PODS))
    api.create(service(BACKEND, selected=True, ports=(80, 8080)))
    harness.until(lambda: len(api.pods()) == PODS, "the pods run")

    def address() -> str:
        addresses = api.get(made).get("status", {}).get("addresses", ())
        return addresses[0]["value"] if addresses else ""

    harness.until(address, "the Gateway has an address")
    harness.gateway = (address(), 80)


def attached_routes(harness: Harness, routes: int) -> Iterator[Figures]:
    """Measure how soon the status of the Gateway counts all routes, and none, and how often it is written."""
    made = [route(f"attached-{number}", f"a{number}.example.com", [rule(BACKEND)]) for number in range(routes)]
    counts: list[int] = []
    ended, figures = threading.Event(), Figures()

    def follow() -> None:
        for state in harness.api.watch(gateway(GATEWAY, harness.class_name), ended):
            listeners = state.get("status", {}).get("listeners", [])
            count = listeners[0]["attachedRoutes"] if listeners else 0
            if not counts or counts[-1] != count:
                counts.append(count)

    def reached(count: int) -> bool:
        return counts[-1:] == [count]

    following = threading.Thread(target=follow)
    following.start()
    harness.until(lambda: counts, "the Gateway is watched")
    with harness.counted(figures):
        created = harness.api.create_all(made)
        setup_s = harness.until(lambda: reached(routes), "all routes are attached") - created
        deleted = harness.api.delete_all(made)
        teardown_s = harness.until(lambda: reached(0), "no route is attached") - deleted
    ended.set()
    following.join()
    yield {"setup_s": round(setup_s, 2), "teardown_s": round(teardown_s, 2), "writes": len(counts) - 1} | figures


def route_probe(harness: Harness, routes: int) -> Iterator[Figures]:
    """Measure new routes in turn: from the return of the call that creates one to its first right answer."""
    yield probed(harness, routes)


def probed(harness: Harness, routes: int) -> Figures:
    """Return what that measured."""
    seen, figures = Seen(), Figures()
    client = Client(*harness.gateway)
    with harness.counted(figures):
        for number in range(routes):
            created = harness.api.create(probed_route(number))
            host, path = probed_host(number), f"/{number}"
            harness.probe(seen, created, harness.gateway, host, path, headers=ADDED, client=client)
    client.close()
    harness.api.delete_all(probed_route(number) for number in range(routes))
    return times(seen.seconds) | seen.figures() | figures


def route_change(harness: Harness, routes: int) -> Iterator[Figures]:
    """Change backend and filter of a route under traffic: no request may fail; and measure how soon it shows."""
    host, name = "route.example.com", "my-added-header"

    def changed(turn: int) -> Obj:
        filters = [] if turn % 2 else [adds("response", name, "added-value")]
        return route("route", host, [rule(BACKEND, port=8080 if turn % 2 else 80, filters=filters)])

    seen, looks, figures = Seen(), Seen(), Figures()
    harness.probe(seen, harness.api.replace(changed(1)), harness.gateway, host)
    seen.seconds.clear()
    with harness.counted(figures), traffic_to(harness, host, looks):
        for turn in range(CHANGES):
            since, client = harness.api.replace(changed(turn)), Client(*harness.gateway)
            harness.until(lambda: (name in client.ask(host).headers) is (turn % 2 == 0), "the change shows")  # noqa: B023
            seen.seconds.append(time.monotonic() - since)
            client.close()
    harness.api.delete(changed(0))
    yield times(seen.seconds) | looks.figures() | figures


@contextmanager
def traffic_to(harness: Harness, host: str, seen: Seen) -> Iterator[None]:
    """Ask all the time; every answer but 200 is wrong."""
    client = Client(*harness.gateway)

    def ask(_: int) -> None:
        seen.requests += 1
        status = client.ask(host).status
        if status != OK:
            seen.wrong[status] += 1

    with Background(ask, 0.001):
        yield
    client.close()


def route_scale(harness: Harness, routes: int) -> Iterator[Figures]:
    """Create routes with a Service each in several namespaces, then change one of them, or endpoints, all the time."""
    api, pods = harness.api, sorted(harness.api.pods().values())
    spaces = [f"scale-{number}" for number in range(NAMESPACES)]
    for space in spaces:
        api.create(namespace(space))

    def made(number: int, turn: int = 0) -> list[Obj]:
        space, name = spaces[number % NAMESPACES], f"web-{number}"
        filters = [adds("response", "x-turn", str(turn))] if turn else []
        return [
            service(name, selected=False, in_namespace=space),
            endpoint_slice(name, [pods[(number + turn) % len(pods)]], in_namespace=space),
            route(name, f"{name}.example.com", [rule(name, filters=filters)], in_namespace=space),
        ]

    figures, seen = Figures(), Seen()
    with harness.counted(figures):
        since = api.create_all(obj for number in range(routes) for obj in made(number))
        for number in reversed(range(routes)):
            harness.probe(seen, since, harness.gateway, f"web-{number}.example.com")
    yield {"phase": "setup", "all_served_s": round(seen.seconds[-1], 2)} | seen.figures() | figures
    figures, looks = Figures(), Seen()
    with (
        harness.counted(figures),
        traffic_to(harness, "web-0.example.com", looks),
        Background(lambda turn: api.replace(made(turn // 2 % routes, turn)[1 + turn % 2]), CHURN_EVERY_S) as churning,
    ):
        time.sleep(CHURN_S)
    yield {"phase": "churn", "changes": churning.turns} | looks.figures() | figures
    api.delete_all(namespace(space) for space in spaces)


def traffic(harness: Harness, routes: int) -> Iterator[Figures]:
    """Let wrk ask as fast as it can, over more and more connections; the echo servers are on the same machine."""
    host = "traffic.example.com"
    made = route("traffic", host, [rule(BACKEND)])
    harness.probe(Seen(), harness.api.create(made), harness.gateway, host)
    url = "http://{}:{}/".format(*harness.gateway)
    for connections in CONNECTIONS:
        used = harness.haproxy_cpu_s()
        argv = [
            "wrk",
            "--latency",
            "-t1",
            f"-c{connections}",
            f"-d{TRAFFIC_S}s",
            "-H",
            "Host: traffic.example.com",
            url,
        ]
        found = wrk_figures(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
        used = harness.haproxy_cpu_s() - used
        yield {"connections": connections, "haproxy_us_per_request": round(used / found["requests"] * 1e6, 1), **found}
    harness.api.delete(made)


def listenerset_scale(harness: Harness, routes: int) -> Iterator[Figures]:
    """Say that pyconfd reads no ListenerSets."""
    yield {"supported": False, "why": "not supported"}


def backend_failover(harness: Harness, routes: int) -> Iterator[Figures]:
    """Let one of the pods fail and come back under traffic over many paths, and count what clients notice."""
    host = "failover.example.com"
    made = route("failover", host, [rule(BACKEND, f"/{number}") for number in range(PATHS)])
    harness.probe(Seen(), harness.api.create(made), harness.gateway, host, "/0")
    pod, address = min(harness.api.pods().items())
    inside = ["nsenter", f"--net=/proc/{_pid_of(address)}/ns/net", "nft"]
    for form, action in DOWN.items():
        seen, back, slow, client, figures = Seen(), list[float](), 0.0, Client(*harness.gateway), Figures()

        def ask(phase_s: float, *, until: str = "") -> float:
            """Ask every 5 ms; return the longest answer. With ``until`` note when that pod answered."""
            longest, began, noted = 0.0, time.monotonic(), False
            while time.monotonic() < began + phase_s:
                sent = time.monotonic()
                answer = client.ask(host, f"/{seen.requests % PATHS}")  # noqa: B023
                longest = max(longest, time.monotonic() - sent)
                seen.requests += 1  # noqa: B023
                if answer.status != OK:
                    seen.wrong[answer.status] += 1  # noqa: B023
                elif until and not noted and until in answer.body:
                    back.append(time.monotonic() - began)  # noqa: B023
                    noted = True
                time.sleep(max(0.0, sent + 0.005 - time.monotonic()))
            return longest

        ask(PHASE_S / 2)
        with harness.counted(figures):
            for _ in range(ROUNDS):
                rules = "add table inet down; add chain inet down in { type filter hook input priority 0; }; "
                subprocess.run([*inside, f"{rules}add rule inet down in meta l4proto tcp {action}"], check=True)
                slow = max(slow, ask(PHASE_S))
                subprocess.run([*inside, "delete table inet down"], check=True)
                ask(PHASE_S, until=pod)
        client.close()
        counts = {"failed": seen.wrong.total(), "requests": seen.requests, "longest_while_down_ms": round(slow * 1000)}
        yield {"pod": form, **counts, "back_in_use_s": [round(each, 2) for each in back], **figures}
    harness.api.delete(made)


def _pid_of(address: str) -> int:
    """Return the process of the echo server with this address; it has a network namespace of its own."""
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "echo":
            argv = [
                "nsenter",
                f"--net=/proc/{process.pid}/ns/net",
                "ip",
                "-oneline",
                "-4",
                "address",
                "show",
                "dev",
                "eth0",
            ]
            if f" {address}/" in subprocess.run(argv, capture_output=True, text=True, check=True).stdout:
                return process.pid
    raise AssertionError(f"no echo server has the address {address}")


PUBLISHED: Mapping[str, Scenario] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            attached_routes,
            route_probe,
            route_change,
            route_scale,
            traffic,
            listenerset_scale,
            backend_failover,
        )
    }
)
