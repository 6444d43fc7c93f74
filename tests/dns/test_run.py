"""``pyconfd dns run`` and what stands around it: systemd, the hook, other processes; and names that differ."""

import json
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyconfd.dns.records import Policy, Zone
from tests.dns.nodes import FieldNode, answers, until
from tests.dns.stage import NAME, ZONE
from tests.dns.strict import StrictRoute53
from tests.dns.strict_http import StrictServer
from tests.dns.wire import FaultProxy

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(300)]
PRIVATE = Zone("Z2", "example.com.", private=True)
VIP = "192.0.2.99"


class Systemd:
    """The socket on which services speak; ``heard`` are the messages so far.

    A thread listens: the kernel keeps ten messages, and a service gives up one that finds no room for a second.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._heard: list[dict[str, str]] = []
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while text := self._socket.recv(65536).decode():
            self._heard.append(dict(line.split("=", 1) for line in text.splitlines()))

    def heard(self, key: str) -> list[str]:
        return [message[key] for message in list(self._heard) if key in message]

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(self.path))
        self._thread.join()
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    made = Systemd(tmp_path / "notify")
    yield made
    made.close()


def test_systemd_knows_that_it_is_ready_how_it_is_and_that_it_lives(
    provider: StrictRoute53, aws: FaultProxy, new_node: Callable[[int], FieldNode], systemd: Systemd, tmp_path: Path
) -> None:
    def says(status: str) -> None:
        until(lambda: status in systemd.heard("STATUS")[-1], status)

    path = tmp_path / "pyconfd.toml"
    path.write_text("")
    aws.faults = ["ServiceUnavailable"] * 3
    node = new_node(0)
    node.around = {"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "300000000"}
    node.run(CONFIG=str(path))
    until(lambda: systemd.heard("READY"), "it is ready without Route 53")
    says("Route 53 answers 503")
    says("in; 1 of 1 names in step")
    answers(provider, node)
    beats = len(systemd.heard("WATCHDOG"))
    until(lambda: len(systemd.heard("WATCHDOG")) > beats + 2, "it lives")
    former = "the former settings are still in force"
    path.write_text("[dns")
    node.service.send_signal(signal.SIGHUP)
    says(former)
    path.write_text("")
    node.service.send_signal(signal.SIGHUP)
    until(lambda: former not in systemd.heard("STATUS")[-1], "the settings are good again")
    says("in; 1 of 1 names in step")
    node.haproxy.stop()
    says("out; haproxy does not")
    assert node.stop() == 0
    assert systemd.heard("STOPPING") == ["1"]


def test_a_second_one_for_the_same_node_is_refused(
    provider: StrictRoute53, new_node: Callable[[int], FieldNode]
) -> None:
    node = new_node(0)
    node.run()
    answers(provider, node)
    second = node.pyconfd("run")
    assert second.exit_code == 75
    assert f"pid {node.service.pid}) keeps the names in Route 53" in second.stderr


def test_metrics_are_a_file_for_the_node_exporter(
    provider: StrictRoute53, aws: FaultProxy, new_node: Callable[[int], FieldNode]
) -> None:
    node = new_node(0)
    node.run()
    answers(provider, node)
    path = node.folder / "run" / "dns.prom"
    labels = f'{{name="{NAME}",zone="public"}}'
    wanted = [
        "pyconfd_dns_active 1",
        f"pyconfd_dns_name_in_step{labels} 1",
        f"pyconfd_dns_changes_total{labels} 1",
        f"pyconfd_dns_failures_total{labels} 0",
        "pyconfd_dns_withdrawn_by_command 0",
    ]
    until(lambda: set(wanted) <= set(path.read_text().splitlines()), "all is well")
    figures = dict(line.rsplit(" ", 1) for line in path.read_text().splitlines() if not line.startswith("#"))
    assert 3 <= int(figures["pyconfd_dns_requests_total"]) <= len(aws.seen)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_each_name_has_its_own_mode_owner_zone_and_address(tmp_path: Path, credentials: None) -> None:
    provider = StrictRoute53(ZONE, PRIVATE)
    records = [
        {"name": NAME, "private": True, "mode": "shared", "address": "10.0.0.1", "ttl_s": 5},
        {"name": "w.example.com", "owner": "other", "weight": "7", "address6": "2001:db8::7"},
        {"name": "v.example.com", "mode": "vip", "vip": "127.0.0.1", "zone_id": PRIVATE.zone_id},
    ]
    with (
        StrictServer(provider) as server,
        FieldNode(tmp_path, "n0", "192.0.2.1", f"http://127.0.0.1:{server.port}") as node,
    ):
        node.run(DNS_RECORDS=json.dumps(records))

        def found(zone: Zone) -> set[tuple[str, str, tuple[str, ...], Policy, int | None]]:
            items = (item for item in provider.everything(zone.zone_id) if item.type != "TXT")
            return {(item.name, item.type, item.values, item.policy, item.weight) for item in items}

        public = {
            (f"{NAME}.", "A", ("192.0.2.1",), Policy.MULTIVALUE, None),
            ("w.example.com.", "A", ("192.0.2.1",), Policy.WEIGHTED, 7),
            ("w.example.com.", "AAAA", ("2001:db8::7",), Policy.WEIGHTED, 7),
        }
        private = {
            (f"{NAME}.", "A", ("10.0.0.1",), Policy.SIMPLE, None),
            ("v.example.com.", "A", ("192.0.2.1",), Policy.SIMPLE, None),
        }
        until(lambda: (found(ZONE), found(PRIVATE)) == (public, private), "all are there")
        owners = {item.identifier.split(":")[1] for item in provider.everything() if item.name.startswith("w.")}
        assert owners == {"other"}
        shown = node.pyconfd("status", DNS_RECORDS=json.dumps(records)).stdout
        assert "10.0.0.1" in shown
        assert "192.0.2.1" in shown


def test_the_floating_address_is_followed_until_another_node_holds_it(
    provider: StrictRoute53, new_node: Callable[[int], FieldNode]
) -> None:
    first, second = new_node(0), new_node(1)
    for node in (first, second):
        node.run(DNS_MODE="vip", DNS_VIP=VIP, **node.hook_says(VIP, holds=node is first))
    answers(provider, first)
    first.hook_says(VIP, holds=False)
    second.hook_says(VIP, holds=True)
    answers(provider, second)
    second.hook_says(VIP, holds=True, drained=True)
    until(lambda: "this node is drained" in second.log, "it is drained")
    answers(provider, second)
    first.hook_says(VIP, holds=True)
    answers(provider, first)


def test_a_drained_node_is_taken_out_of_names_with_a_record_for_each(
    provider: StrictRoute53, new_node: Callable[[int], FieldNode]
) -> None:
    first, second = new_node(0), new_node(1)
    for node in (first, second):
        node.run(**node.hook_says(VIP, holds=False))
    answers(provider, first, second)
    first.hook_says(VIP, holds=False, drained=True)
    answers(provider, second)
    first.hook_says(VIP, holds=False)
    answers(provider, first, second)
