"""The eighteen ways in which the predecessors failed, each against the whole program; what is built their way fails.

The tests of some classes are elsewhere: ``ELSEWHERE`` names them.
"""

import ast
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.expect import (
    WATCHED,
    all_is_well,
    beats,
    command_reload,
    complaints,
    new_pod_answers,
    serving,
    undisturbed,
)
from tests.world import objects
from tests.world.apiserver import ApiServer, tls_context
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask, ping_redis
from tests.world.haproxy import BINARY, free_port
from tests.world.objects import EndpointSpec, PortSpec, SlicePort
from tests.world.pki import CertificateAuthority

pytestmark = pytest.mark.haproxy


HTTP = {"domain": "shop.example.com", "proto": "http"}
ELSEWHERE = {
    9: ("haproxy/test_crashes.py::test_whenever_it_is_killed_the_file_loads_and_a_fresh_start_converges",),
    11: ("e2e/test_bad_input.py::test_each_bad_edit_is_told_once_with_its_line_stops_nobody_and_heals",),
    13: (
        # a scene of the demo: a certificate is deleted, and put back
        "demo/kubefigurator.py::missing_certificate",
    ),
    14: (
        # ten reloads in the suite, a hundred by make reload-test
        "haproxy/test_reloads_under_load.py::test_no_request_fails_and_none_is_cut_off_while_it_reloads_again_and_again",
    ),
    15: (
        # DNS tied to a change further down, and the wrong zone
        "dns/test_commands.py::test_the_name_follows_the_nodes_that_can_serve",
        "dns/test_records.py::test_the_longest_zone_on_a_label_boundary_is_taken",
    ),
    16: (
        # a hook that does nothing, and two masters
        "vip/test_faults.py::test_one_holder_in_the_end_and_clients_that_hardly_notice",
        "vip/test_failover.py::test_two_holders_for_want_of_adverts_settle_by_priority",
    ),
}
"""Tests of the classes that are not tested here."""


def raw_endpoints(name: str, **more: Any) -> dict[str, Any]:
    annotations = {"domain": f"{name}.example.com", "proto": "http"}
    return {"metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations}} | more


@contextmanager
def steady_events(appliance: Appliance) -> Iterator[None]:
    """Change something more often than the quiet time, all the time."""
    over = threading.Event()
    appliance.cluster.add_service(NAMESPACE, "noisy")

    def stream() -> None:
        number = 0
        while not over.wait(0.03):
            number += 1
            appliance.cluster.annotate("services", NAMESPACE, "noisy", {"number": str(number)})

    thread = threading.Thread(target=stream, daemon=True)
    thread.start()
    try:
        before = appliance.status()["events_total"]
        appliance.until(lambda: appliance.status()["events_total"] > before + 10, "the stream is seen")
        yield
    finally:
        over.set()
        thread.join()


class TestClass1OneBadObjectTakesEverythingDown:
    POISON = (
        {"domain": "two words.example.com", "proto": "http"},
        {"domain": "a.example.com } || { always_true", "proto": "http"},
        {"domain": "b.example.com", "proto": "http\n    bind :1"},
        {"domain": "c.example.com"},
        {"domain": "d.example.com", "proto": "http", "pyconfd.io/port": "no-such-port"},
        {"domain": "e.example.com", "proto": "redis", "pyconfd.io/listen-port": "99999"},
        {"domain": "${HOME}", "proto": "http"},
    )

    def test_poison_of_each_kind_is_left_out_and_the_others_keep_updating(self, appliance: Appliance) -> None:
        for number, annotations in enumerate(self.POISON):
            appliance.serve(f"poison-{number}", annotations)
        appliance.cluster.put("endpoints", raw_endpoints("null-subsets", subsets=None))
        appliance.cluster.put("endpoints", raw_endpoints("no-ready-address", subsets=[{"notReadyAddresses": []}]))
        appliance.cluster.put("endpoints", raw_endpoints("nonsense", subsets="nonsense"))
        slice_ = {"metadata": {"name": "odd", "namespace": NAMESPACE}, "addressType": "IPv4", "endpoints": 7}
        appliance.cluster.put("endpointslices", slice_)
        serving(appliance)
        refused = {item["ref"]["name"] for item in appliance.status()["refused"]}
        assert refused >= {f"poison-{number}" for number in range(len(self.POISON))} | {"nonsense", "odd"}
        new_pod_answers(appliance)
        appliance.cluster.annotate("services", NAMESPACE, "shop", {"unrelated": "\n\r\0"})
        new_pod_answers(appliance)
        assert appliance.command("status").returncode == 0, "others' mistakes are no problem of the balancer"


def reads(server: ApiServer) -> int:
    """Return how often the Services and their endpoints were listed or watched."""
    return sum(request.resource in WATCHED for request in server.seen())


def test_class_2_a_reload_that_fails_once_is_tried_again_without_a_new_event(appliance: Appliance) -> None:
    appliance.reload_always()
    fail = appliance.folder / "fail"
    command_reload(appliance, f"if [ -e {fail} ]; then rm {fail}; echo no; exit 1; fi")
    serving(appliance)
    (server,) = appliance.servers
    fail.touch()
    with undisturbed(appliance):
        pod = appliance.scale_up("shop")
        events = reads(server)
        appliance.until(lambda: appliance.ask("shop") == pod, "the second attempt succeeds")
    all_is_well(appliance)
    # What else failed is the start: there is nobody to signal until haproxy runs.
    assert len(complaints(appliance, "generation.failed", "ended with 1: no")) == 1
    assert reads(server) == events
    assert appliance.generation == 2, "what failed got no number"


def test_class_3_the_first_boot_needs_nothing_but_an_empty_directory(appliance: Appliance) -> None:
    assert list(appliance.haproxy.conf.parent.iterdir()) == []
    appliance.serve("shop")
    appliance.start()
    all_is_well(appliance)
    assert (appliance.ask("shop"), appliance.generation) == ("shop-1", 1)
    assert complaints(appliance) == []


def test_class_4_api_servers_that_refuse_hang_or_lie_are_passed_over(appliance: Appliance) -> None:
    for _ in range(5):
        appliance.add_api_server()
    refusing, hanging, failing, lying, foreign, good = appliance.servers
    right, wrong = (CertificateAuthority(appliance.folder / name, name) for name in ("right", "wrong"))
    refusing.refuse()
    hanging.faults.hang()
    failing.faults.answer(500)
    lying.faults.html()
    foreign.tls = tls_context(wrong.server())
    good.tls = tls_context(right.server())
    appliance.values["kubernetes"] |= {
        "api_servers": [server.url for server in appliance.servers],
        "ssl_ca": str(right.cert),
        "read_timeout_s": 1,
        "connect_timeout_s": 1,
    }
    serving(appliance)
    states = appliance.status()["source"]["api_servers"]
    assert [state["in_use"] for state in states] == [False] * 5 + [True]
    assert all(state["last_error"] for state in states[:5])
    with undisturbed(appliance):
        new_pod_answers(appliance)
        lying.faults.clear()
        good.refuse()
        new_pod_answers(appliance)
    assert appliance.status()["source"]["api_servers"][3]["in_use"]


def test_class_5_nothing_is_rendered_before_every_resource_was_listed(appliance: Appliance) -> None:
    (server,) = appliance.servers
    held = server.faults.hold("endpointslices")
    appliance.values["apply"]["boot_wait_s"] = 0.2
    appliance.serve("shop", pods=2)
    appliance.spawn()
    appliance.until(lambda: appliance.phase == "waiting", "it is decided that there is nothing to serve")
    server.wait_for_watches("services", "endpoints", "nodes")
    assert not appliance.haproxy.conf.exists()
    assert appliance.status()["reconciliations_total"] == 0
    server.faults.remove(held)
    appliance.until(appliance.haproxy.conf.exists, "it is written when the last list is there")
    appliance.haproxy.start()
    all_is_well(appliance)
    assert {appliance.ask("shop"), appliance.ask("shop")} == {"shop-1", "shop-2"}


def test_class_6_named_ports_protocols_and_several_subsets(appliance: Appliance) -> None:
    """A named targetPort stands for another number on each pod; UDP has the same number as TCP."""
    annotations = HTTP | {"pyconfd.io/port": "web"}
    ports = [PortSpec("admin", 81, "admin"), PortSpec("dns", 80, 80, "UDP"), PortSpec("web", 80, "http")]
    appliance.cluster.add_service(NAMESPACE, "shop", ports=ports, annotations=annotations)
    members = []
    for number in (1, 2):
        web, admin = free_port(), free_port()
        appliance.pods.add(f"shop-{number}", f"127.18.10.{number}", web)
        appliance.pods.add(f"admin-{number}", f"127.18.10.{number}", admin)
        each = (SlicePort("admin", admin), SlicePort("dns", web, "UDP"), SlicePort("web", web))
        members.append(EndpointSpec(f"127.18.10.{number}", pod=f"shop-{number}", ports=each))
    appliance.cluster.set_endpoints(NAMESPACE, "shop", members)
    appliance.start()
    all_is_well(appliance)
    assert {appliance.ask("shop") for _ in range(8)} == {"shop-1", "shop-2"}


def test_class_7_a_terminating_pod_ends_what_it_began_and_gets_nothing_new(appliance: Appliance) -> None:
    appliance.serve("shop", pods=1)
    serving(appliance, "blog")
    appliance.until(lambda: appliance.ask("shop") == "shop-1", "served")
    pod = appliance.pods.pods["shop-1"]
    pod.delay_s = 3.0
    slow: list[str] = []
    thread = threading.Thread(target=lambda: slow.append(appliance.ask("shop")), daemon=True)
    began = pod.accepted
    thread.start()
    appliance.until(lambda: pod.accepted > began, "the request is with the pod")
    appliance.terminate("shop", "shop-1")
    new = appliance.scale_up("shop")
    appliance.until(lambda: " weight 0" in appliance.haproxy.conf.read_text() and appliance.settled(), "it drains")
    assert {appliance.ask("shop") for _ in range(8)} == {new}
    thread.join(20)
    assert slow == ["shop-1"]
    not_ready = EndpointSpec("127.18.10.99", ready=False, pod="shop-99")
    appliance.cluster.set_endpoints(NAMESPACE, "shop", [*appliance.members("shop"), not_ready])
    appliance.remove("shop", "shop-1")
    appliance.until(lambda: " weight 0" not in appliance.haproxy.conf.read_text() and appliance.settled(), "it left")
    assert "127.18.10.99" not in appliance.haproxy.conf.read_text()


def test_class_8_another_order_and_idle_events_cause_no_reload(appliance: Appliance) -> None:
    appliance.serve("blog", pods=3)
    serving(appliance, pods=3)
    before, text, generation = appliance.haproxy.running(), appliance.haproxy.conf.read_bytes(), appliance.generation
    events = appliance.status()["events_total"]
    for stored in appliance.cluster.page("endpointslices").items:
        metadata = stored.obj["metadata"]
        shuffled = {"endpoints": list(reversed(stored.obj["endpoints"]))}
        appliance.cluster.patch("endpointslices", metadata["namespace"], metadata["name"], shuffled)
    for name in ("shop", "blog"):
        appliance.cluster.annotate("services", NAMESPACE, name, {"touched": "yes"})
    appliance.cluster.add_service(NAMESPACE, "unrelated")
    appliance.until(lambda: appliance.status()["events_total"] >= events + 3, "the events have come")
    beats(appliance)
    appliance.servers[0].cut_connections()
    appliance.cluster.annotate("services", NAMESPACE, "shop", {"touched": "again"})
    beats(appliance)
    assert (appliance.haproxy.running(), appliance.generation) == (before, generation)
    assert appliance.haproxy.conf.read_bytes() == text


@pytest.mark.parametrize("change", ["live", "reload"])
def test_class_10_a_steady_stream_of_events_delays_nothing_beyond_the_cap(appliance: Appliance, change: str) -> None:
    appliance.values["apply"] |= {"quiet_s": 0.5, "cap_s": 1.0}
    if change == "reload":
        appliance.reload_always()  # what goes live waits for no quiet time
    serving(appliance)
    with steady_events(appliance):
        new_pod_answers(appliance)


def test_class_12_the_older_object_keeps_a_name_and_a_port_and_the_loser_is_told(appliance: Appliance) -> None:
    redis = {"proto": "redis", "pyconfd.io/listen-port": str(appliance.redis)}
    claims = [
        ("a-younger", HTTP, "2026-02-01T00:00:00Z"),
        ("z-older", HTTP, "2026-01-01T00:00:00Z"),
        ("a-redis", {"domain": "a.example.com", **redis}, "2026-02-01T00:00:00Z"),
        ("z-redis", {"domain": "z.example.com", **redis}, "2026-01-01T00:00:00Z"),
    ]
    for number, (name, annotations, created) in enumerate(claims):
        address = f"127.18.10.{number + 1}"
        appliance.pods.add(name, address)
        port = PortSpec("main", 80, appliance.pods.port)
        made = objects.service(NAMESPACE, name, [port], annotations=annotations)
        made["metadata"]["creationTimestamp"] = created
        appliance.cluster.create("services", made)
        appliance.cluster.set_endpoints(NAMESPACE, name, [EndpointSpec(address, pod=name)])
    appliance.start()
    all_is_well(appliance)
    assert appliance.ask("shop") == "z-older"
    appliance.until(lambda: ping_redis(appliance.redis) == "+PONG", "redis answers")
    assert appliance.pods.pods["a-redis"].requests == 0
    refused = {(item["ref"]["name"], item["reason"]) for item in appliance.status()["refused"]}
    assert refused == {("a-younger", "name_taken"), ("a-redis", "port_taken")}
    assert 'reason="name_taken"' in appliance.get("/metrics")[1]
    assert "demo/z-older" in str(complaints(appliance, "a-younger"))
    appliance.cluster.delete_service(NAMESPACE, "z-older")
    appliance.until(lambda: appliance.ask("shop") == "a-younger", "the name is free again")


class TestClass17OldApis:
    def test_slices_are_enough_where_there_are_no_endpoints_objects(self, appliance: Appliance) -> None:
        appliance.serve("shop")
        appliance.cluster.delete("endpoints", NAMESPACE, "shop")
        appliance.start()
        all_is_well(appliance)
        assert appliance.ask("shop") == "shop-1"
        assert all("selfLink" not in stored.obj["metadata"] for stored in appliance.cluster.page("services").items)

    def test_endpoints_are_enough_where_there_is_neither_service_nor_slice(self, appliance: Appliance) -> None:
        for name in ("shop", "blog"):
            address = f"127.18.10.{len(name) + ord(name[0])}"
            appliance.pods.add(f"{name}-1", address)
            subset = {"addresses": [{"ip": address}], "ports": [{"port": appliance.pods.port}]}
            appliance.cluster.put("endpoints", raw_endpoints(name, subsets=[subset]))
        appliance.start()
        all_is_well(appliance)
        assert (appliance.ask("shop"), appliance.ask("blog")) == ("shop-1", "blog-1")


def _ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _ipv6(), reason="there is no ::1 here")
def test_class_18_ipv6_and_dual_stack(appliance: Appliance) -> None:
    appliance.values["templates.vars"]["http_bind"] = [f"127.0.0.1:{appliance.http}", f"[::1]:{appliance.http}"]
    number = free_port("::1")
    appliance.pods.add("pod-v4", "127.18.10.1", number)
    appliance.pods.add("pod-v6", "::1", number)
    for name, families in (("shop", ("IPv6",)), ("dual", ("IPv4", "IPv6"))):
        annotations = HTTP | {"domain": f"{name}.example.com"}
        port = PortSpec("web", 80, number)
        appliance.cluster.add_service(NAMESPACE, name, ports=[port], annotations=annotations, families=families)
        members = [EndpointSpec("127.18.10.1", pod="pod"), EndpointSpec("::1", pod="pod")]
        appliance.cluster.set_endpoints(NAMESPACE, name, members[-len(families) :])
    appliance.start()
    all_is_well(appliance)
    assert f" [::1]:{number} " in appliance.haproxy.conf.read_text()
    assert (appliance.ask("shop"), appliance.ask("dual")) == ("pod-v6", "pod-v4"), "a dual-stack pod counts once"
    appliance.cluster.set_endpoints(NAMESPACE, "dual", [], family="IPv4")
    appliance.until(lambda: appliance.ask("dual") == "pod-v6", "the other family takes over")
    with socket.create_connection(("::1", appliance.http), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\nHost: shop.example.com\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    assert ask(appliance.http, "[::1]") == "404"
    checked = subprocess.run([BINARY, "-c", "-q", "-f", str(appliance.haproxy.conf)], check=False)
    assert checked.returncode == 0


def _names(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.ClassDef)}


def test_no_class_is_forgotten() -> None:
    """Each class has a test, here or where ``ELSEWHERE`` says."""
    here = {
        int(found[1]) for name in _names(Path(__file__)) if (found := re.match(r"(?:test_class_|TestClass)(\d+)", name))
    }
    assert here | ELSEWHERE.keys() == set(range(1, 19))
    assert not here & ELSEWHERE.keys()
    for each in (one for tests in ELSEWHERE.values() for one in tests):
        path, _, name = each.partition("::")
        assert name in _names(Path(__file__).parent.parent / path), each
