import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.dns.activity import reasons
from pyconfd.dns.node import NodeReader, answers, holds, nodes_that_accept
from pyconfd.dns.records import Marker
from pyconfd.settings import resolve
from tests.dns.nodes import FieldNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FieldNode]:
    with FieldNode(tmp_path, "n0", "192.0.2.1", "http://127.0.0.1:1") as started:
        yield started


def why(node: FieldNode, **changes: str) -> tuple[str, ...]:
    reader = NodeReader(resolve({}, node.environ(**changes), lambda _: "").settings)
    try:
        return reasons(reader.facts(), changes.get("DNS_VIP", ""))
    finally:
        reader.close()


@pytest.mark.haproxy
def test_a_node_that_serves_has_no_reason_not_to(node: FieldNode) -> None:
    assert why(node) == ()
    by_its_own_file = {"HAPROXY_RUNTIME_SOCKET": "", "HAPROXY_CONF": str(node.haproxy.conf)}
    assert why(node, **by_its_own_file) == ()


@pytest.mark.haproxy
def test_each_thing_that_is_missing_is_named(node: FieldNode) -> None:
    assert why(node, DNS_FRONTENDS="tcp://127.0.0.1:1") == ("tcp://127.0.0.1:1 does not answer",)
    assert why(node, DNS_VIP="192.0.2.200") == ("the floating address 192.0.2.200 is elsewhere",)
    assert why(node, DNS_VIP="127.0.0.1") == ()
    (node.folder / "run" / "status.json").write_text("torn")
    assert why(node) == ("no configuration was applied yet",)
    node.haproxy.stop()
    assert len(why(node)) == 3


@pytest.mark.haproxy
def test_what_a_hook_left_behind_counts_only_where_the_settings_have_one(node: FieldNode) -> None:
    report = {"at": 0.0, "routers": [{"drained": {"at": 1.0}, "addresses": [], "holds": False}]}
    (node.folder / "status.json").write_text(json.dumps(report))
    assert why(node, VIP_RUNTIME_DIR=str(node.folder)) == ()
    assert "drained" in why(node, VIP_RUNTIME_DIR=str(node.folder), VIP_INTERFACE="eth0")[0]


@pytest.mark.haproxy
def test_one_reader_finds_the_haproxy_that_came_back(node: FieldNode) -> None:
    reader = NodeReader(resolve({}, node.environ(), lambda _: "").settings)
    for serves in (True, False, True):
        assert reader.facts().haproxy_answers is serves
        if serves:
            node.haproxy.stop()
        else:
            node.haproxy.start()
    reader.close()


@pytest.mark.haproxy
def test_a_frontend_that_says_503_answers(node: FieldNode) -> None:
    text = node.haproxy.conf.read_text().replace("return status 200", "return status 503")
    node.haproxy.stop()
    node.haproxy.conf.write_text(text)
    node.haproxy.start()
    assert answers(f"http://127.0.0.1:{node.port}/x?y=1")


def test_all_nodes_are_asked_at_once_and_one_answers_at_any_of_its_addresses() -> None:
    silent = [Marker("prod", f"s{number}", (f"192.0.2.{number}",)) for number in range(1, 40)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        both, closed = Marker("prod", "n1", ("::1", "127.0.0.1")), Marker("prod", "n2", ("127.0.0.9",))
        assert nodes_that_accept([both, closed, *silent], port) == {"n1"}
    assert nodes_that_accept([both], port) == frozenset()
    assert nodes_that_accept([], port) == frozenset()
    assert nodes_that_accept([Marker("prod", "n3", ("no address", ""))], port) == frozenset()


def test_an_address_of_this_host_is_told_from_others() -> None:
    assert holds("127.0.0.1")
    assert not holds("192.0.2.200")
    assert not holds("not an address")
