"""Other new things and their way to traffic, measured in the same way as the published tests."""

import random
import shutil
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import MappingProxyType

from tests.bench.gateway.harness import Background, Client, Harness, Seen
from tests.bench.gateway.measures import times
from tests.bench.gateway.objects import (
    BACKEND,
    MOST_ENDPOINTS,
    Obj,
    endpoint_slice,
    ingress,
    namespace,
    route,
    rule,
    service,
    tls_secret,
)
from tests.bench.gateway.published import Figures, Scenario, probed
from tests.world.pki import CertificateAuthority, KeyPair

MEASURED = 50
"""New Ingresses, hosts and paths."""
ENDPOINTS_BEFORE_S = (0.0, 0.1)
CERTIFICATES = 20
CHANGING, CHANGES_PER_S = 50, 20
REPLACED, REPLACEMENTS = 1_000, 15
NEIGHBOUR_AFTER_S = 0.005


def served(harness: Harness, number: int, prefix: str = "web") -> list[Obj]:
    """Return an Ingress with a Service of its own, the Ingress last."""
    name, pods = f"{prefix}-{number}", sorted(harness.api.pods().values())
    made = [service(name, selected=False), endpoint_slice(name, [pods[number % len(pods)]])]
    return [*made, ingress(name, f"{name}.example.com", name, harness.class_name)]


@contextmanager
def populated(harness: Harness, count: int) -> Iterator[None]:
    """Have so many Ingresses with a Service each, all served."""
    made = [obj for number in range(count) for obj in served(harness, number)]
    since = harness.api.create_all(made)
    for number in reversed(range(count)):
        harness.probe(Seen(), since, harness.ingresses, f"web-{number}.example.com")
    harness.until(harness.settled, "all is verified")
    yield
    harness.api.delete_all(made)


def probe_while_endpoints_change(harness: Harness, routes: int) -> Iterator[Figures]:
    """Measure new routes in turn while endpoints of other Services change all the time."""
    rng = random.Random(1)

    def change(_: int) -> None:
        address = f"10.244.{rng.randrange(128, 256)}.{rng.randrange(1, 255)}"
        harness.api.replace(endpoint_slice(f"web-{rng.randrange(CHANGING)}", [address]))

    with populated(harness, CHANGING), Background(change, 1 / CHANGES_PER_S) as changing:
        figures = probed(harness, routes)
    yield figures | {"endpoint_changes": changing.turns}


def new_ingress(harness: Harness, routes: int) -> Iterator[Figures]:
    """Measure new Ingresses with a new Service each, beside as many as ROUTES says.

    Written right after its EndpointSlice, an Ingress may be seen before that, and is answered with 503 until then.
    """
    made = list[Obj]()
    with populated(harness, routes):
        for after_s in ENDPOINTS_BEFORE_S:
            figures, seen = Figures(), Seen()
            with harness.counted(figures):
                for number in range(MEASURED):
                    *before, last = served(harness, number, f"new-{after_s * 1000:.0f}")
                    made += [*before, last]
                    for obj in before:
                        harness.api.create(obj)
                    time.sleep(after_s)
                    host = last["spec"]["rules"][0]["host"]
                    harness.probe(seen, harness.api.create(last), harness.ingresses, host)
            yield {"endpoints_before_s": after_s} | times(seen.seconds) | seen.figures() | figures
        harness.api.delete_all(made)


def secret_first_use(harness: Harness, routes: int) -> Iterator[Figures]:
    """Measure new hosts with a new certificate each: from the Ingress to the first handshake with that certificate."""
    authority = CertificateAuthority(harness.appliance.folder / "pki", "bench")
    made, figures, seconds = list[Obj](), Figures(), list[float]()
    with harness.counted(figures):
        for number in range(CERTIFICATES):
            host = f"tls-{number}.example.com"
            secret, using = _with_certificate(harness, number, authority.server(f"tls-{number}", [host]))
            harness.api.create(secret)
            since = harness.api.create(using)
            made += [using, secret]
            seconds.append(_handshake(harness, authority.cert, host) - since)
    harness.api.delete_all(made)
    yield {"first_of_all_ms": round(seconds[0] * 1000, 1)} | times(seconds[1:]) | figures


def _with_certificate(harness: Harness, number: int, pair: KeyPair) -> tuple[Obj, Obj]:
    name = f"tls-{number}"
    return tls_secret(name, pair), ingress(name, f"{name}.example.com", BACKEND, harness.class_name, secret=name)


def _handshake(harness: Harness, authority: Path, host: str) -> float:
    """Return when the first request was answered over TLS with a certificate for the host."""
    context = ssl.create_default_context(cafile=str(authority))

    def answered() -> bool:
        client = Client("127.0.0.1", harness.appliance.https, context)
        found = client.ask(host).status == 200
        client.close()
        return found

    return harness.until(answered, f"{host} is answered over TLS", pause_s=0.002)


def new_host(harness: Harness, routes: int) -> Iterator[Figures]:
    """Measure a new host, then a new path, of routes whose backend is there."""

    def made(number: int, *more_hosts: str, paths: tuple[str, ...] = ("/a",)) -> Obj:
        found = route(f"host-{number}", f"host-{number}.example.com", [rule(BACKEND)])
        found["spec"]["hostnames"] += more_hosts
        found["spec"]["rules"][0]["matches"] = [{"path": {"type": "PathPrefix", "value": path}} for path in paths]
        return found

    for number in range(MEASURED):
        since = harness.api.create(made(number))
        harness.probe(Seen(), since, harness.gateway, f"host-{number}.example.com", "/a")
    harness.until(harness.appliance.settled, "all is verified")
    for what in ("host", "path"):
        figures, seen = Figures(), Seen()
        with harness.counted(figures):
            for number in range(MEASURED):
                more, paths = f"more-{number}.example.com", ("/a",) if what == "host" else ("/a", "/b")
                since = harness.api.replace(made(number, more, paths=paths))
                harness.probe(seen, since, harness.gateway, more, paths[-1])
        yield {"new": what} | times(seen.seconds) | seen.figures() | figures
    harness.api.delete_all(made(number) for number in range(MEASURED))


def neighbour(harness: Harness, routes: int) -> Iterator[Figures]:
    """Measure one new endpoint just after all of another tenant's have begun to be replaced."""
    api, pods = harness.api, sorted(harness.api.pods().items())
    api.create(namespace("tenant"))

    def large(turn: int) -> list[Obj]:
        block = 100 + turn % 2 * 50
        addresses = [f"10.244.{block + number // 250}.{number % 250 + 1}" for number in range(REPLACED)]
        parts = range(REPLACED // MOST_ENDPOINTS)
        cut = [addresses[part * MOST_ENDPOINTS : (part + 1) * MOST_ENDPOINTS] for part in parts]
        return [endpoint_slice("large", cut[part], part=part, in_namespace="tenant") for part in parts]

    asks = ingress("large", "large.example.com", "large", harness.class_name)
    asks["metadata"]["namespace"] = "tenant"
    api.create_all([service("large", selected=False, in_namespace="tenant"), *large(0), asks])
    near = served(harness, 0, "near")
    api.create_all(near)
    harness.probe(Seen(), time.monotonic(), harness.ingresses, "near-0.example.com")
    for alone in (True, False):
        figures, seconds = Figures(), list[float]()
        with harness.counted(figures):
            for turn in range(1, REPLACEMENTS + 1):
                replacing = Thread(target=_replace_all, args=(api.replace, [] if alone else large(turn)))
                replacing.start()
                time.sleep(NEIGHBOUR_AFTER_S)
                name, address = pods[turn % len(pods)]
                since = api.replace(endpoint_slice("near-0", [address]))
                seconds.append(_answered_by(harness, name) - since)
                replacing.join()
                harness.until(harness.settled, "all is verified")
        yield {"beside_replaced": 0 if alone else REPLACED} | times(seconds) | figures
    api.delete_all([*near, namespace("tenant")])


def _replace_all(replace: Callable[[Obj], float], objects: list[Obj]) -> None:
    for obj in objects:
        replace(obj)


def _answered_by(harness: Harness, pod: str) -> float:
    client = Client(*harness.ingresses)
    at = harness.until(lambda: f'"{pod}"' in client.ask("near-0.example.com").body, "the new pod", pause_s=0.002)
    client.close()
    return at


def start(harness: Harness, routes: int) -> Iterator[Figures]:
    """Measure a start on an empty machine: to the first answer of each Ingress, and over TLS."""
    authority = CertificateAuthority(harness.appliance.folder / "pki", "start")
    secret, using = _with_certificate(harness, 0, authority.server("tls-0", ["tls-0.example.com"]))
    appliance = harness.appliance
    with populated(harness, routes):
        harness.api.create_all([secret, using])
        appliance.stop()
        appliance.haproxy.stop()
        appliance.haproxy.conf.unlink()
        for name in ("state", "run"):
            shutil.rmtree(appliance.folder / name, ignore_errors=True)
        appliance.forks = False  # imports are a part of a start
        since, seen = time.monotonic(), Seen()
        appliance.start()
        haproxy_s = time.monotonic() - since
        harness.probe(seen, since, harness.ingresses, f"web-{routes - 1}.example.com")
        harness.probe(seen, since, harness.ingresses, "web-0.example.com")
        tls_s = _handshake(harness, authority.cert, "tls-0.example.com") - since
        harness.api.delete_all([using, secret])
    seconds = {"haproxy_s": haproxy_s, "serving_s": max(seen.seconds), "tls_s": tls_s}
    yield {name: round(value, 2) for name, value in seconds.items()} | seen.figures()


FURTHER: Mapping[str, Scenario] = MappingProxyType(
    {
        each.__name__: each
        for each in (probe_while_endpoints_change, new_ingress, secret_first_use, new_host, neighbour, start)
    }
)
OF_INGRESSES: Mapping[str, Scenario] = MappingProxyType({"new_ingress": new_ingress, "neighbour": neighbour})
"""Those that any controller of Ingresses can do."""
