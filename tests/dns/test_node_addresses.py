import socket
from collections.abc import Iterator

import pytest
from pyroute2 import netns

from pyconfd.dns.names import floating
from pyconfd.dns.node import InstanceMetadata, NodeAddresses, interface_addresses
from pyconfd.dns.planner import DnsNode
from pyconfd.errors import TransientError
from pyconfd.settings import AddressSource, DnsSettings, NameSettings, name_of, names_of, resolve
from tests.dns.imds import FakeMetadata
from tests.vip.network import Network, ip, missing


def kept(source: AddressSource) -> NameSettings:
    return name_of(DnsSettings(address_source=source), "lb.example.com")


def read(imds: FakeMetadata, source: AddressSource) -> DnsNode:
    return NodeAddresses(kept(source), "n0", InstanceMetadata(imds.url)).read()


@pytest.mark.parametrize(
    ("source", "without", "v4", "v6"),
    [
        (AddressSource.IMDS_PUBLIC, "", "198.51.100.4", "2001:db8::4"),
        (AddressSource.IMDS_PUBLIC, "ipv6", "198.51.100.4", ""),
        (AddressSource.IMDS_PRIVATE, "", "10.0.0.4", "2001:db8::4"),
    ],
)
def test_addresses_of_an_instance(imds: FakeMetadata, source: AddressSource, without: str, v4: str, v6: str) -> None:
    imds.values.pop(without, None)
    assert read(imds, source) == DnsNode("n0", v4, v6)


def test_one_token_is_used_until_it_expires(imds: FakeMetadata) -> None:
    imds.good_for = 3
    addresses = NodeAddresses(kept(AddressSource.IMDS_PUBLIC), "n0", InstanceMetadata(imds.url))
    for _ in range(3):
        assert addresses.read().v4 == "198.51.100.4"
    assert imds.tokens == 2


def test_a_service_without_an_address_a_token_or_an_answer_is_an_error(imds: FakeMetadata) -> None:
    imds.values.clear()
    with pytest.raises(TransientError, match="gives no address"):
        read(imds, AddressSource.IMDS_PUBLIC)
    imds.silent = True
    with pytest.raises(TransientError, match="hop limit"):
        read(imds, AddressSource.IMDS_PUBLIC)
    with pytest.raises(TransientError, match="does not answer"):
        InstanceMetadata("http://127.0.0.1:1").value("ipv6")


def test_a_service_that_hangs_is_waited_for_a_moment_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hangs:  # as behind a hop limit that the answer does not survive
        metadata = InstanceMetadata(f"http://127.0.0.1:{hangs.getsockname()[1]}", timeout_s=0.1)
        with pytest.raises(TransientError, match="does not answer: timed out"):
            metadata.value("local-ipv4")


def test_a_proxy_is_never_asked_for_instance_metadata(imds: FakeMetadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url)
    assert InstanceMetadata().value("local-ipv4") == "10.0.0.4"


def test_fixed_addresses_are_as_they_were_given() -> None:
    settings = DnsSettings(address="192.0.2.1", address6="2001:db8::1")
    assert NodeAddresses(name_of(settings, "x.example.com"), "n0").read() == DnsNode("n0", "192.0.2.1", "2001:db8::1")


def test_an_interface_gives_its_global_addresses() -> None:
    assert interface_addresses("lo") == ("", "")  # 127.0.0.1 has the scope of the host
    with pytest.raises(TransientError, match="there is none"):
        interface_addresses("nosuchif0")
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        probe.connect(("192.0.2.1", 9))
    except OSError:
        pytest.skip("this machine has no route")
    finally:
        mine = probe.getsockname()[0]
        probe.close()
    pairs = [interface_addresses(name) for _, name in socket.if_nameindex()]
    assert mine in {v4 for v4, _ in pairs}


@pytest.fixture
def space() -> Iterator[str]:
    """A namespace with an interface ``own0``; this test runs in it."""
    if why := missing():
        pytest.skip(why)
    network = Network()
    try:
        name = network.space("dns")
        ip("-n", name, "link", "add", "own0", "type", "bridge")
        ip("-n", name, "link", "set", "own0", "up")
        netns.pushns(name)
        try:
            yield name
        finally:
            netns.popns()
    finally:
        network.close()


@pytest.mark.parametrize("late", [True, False], ids=["the floating ones came last", "the floating ones came first"])
def test_an_interface_gives_both_families_and_no_floating_address(space: str, late: bool) -> None:
    own = ("192.0.2.4/24", "2001:db8::4/64")
    others = ("192.0.2.9/32", "192.0.2.10/24", "2001:db8::9/128", "2001:db8::10/64")
    for address in (*own, *others) if late else (*others, *own):
        ip("-n", space, "addr", "add", address, "dev", "own0", "nodad")
    settings = resolve(
        {
            "dns.names": "lb.example.com",
            "dns.address_source": "interface",
            "dns.interface": "own0",
            "dns.accept_dead_nodes": "yes",
            "dns.records": '[{"name": "vip.example.com", "mode": "vip", "vip": "2001:db8::9"}]',
            "vip.addresses": "192.0.2.9/24",
            "vip.routers": '[{"virtual_router_id": 9, "addresses": ["192.0.2.10/24", "2001:db8::10/64"]}]',
        },
        {},
        lambda _: "",
    ).settings
    for name in names_of(settings.dns):
        assert NodeAddresses(name, "n0", floating=floating(settings)).read() == DnsNode(
            "n0", "192.0.2.4", "2001:db8::4"
        )
