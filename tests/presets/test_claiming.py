"""Rules by namespace, ports on a list, and endpoints where no pod can be."""

import json
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import msgspec
import pytest

from pyconfd.model.context import RefusalReason
from pyconfd.model.kubernetes import EndpointPort, Endpoints, EndpointSlice, ServicePort
from pyconfd.model.snapshot import HostFacts, Snapshot
from pyconfd.predecessors.hosts import HostsOptions
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.presets import registry, values
from pyconfd.presets.policy import AllowedAddresses, ClaimOptions, Rule, network
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.presets.registry import Memo
from tests.presets.objects import endpoint, endpoints, node, read, service, slice_, snapshot, subset
from tests.presets.pods import config_map, pod
from tests.presets.pods import read as read_pods

PROD = Rule(("prod", "prod-*"), domains=("example.com",), protocols=("http", "redis"), ports=((6379, 6380),))
REST = Rule(("*",), domains=("dev.example.com",))
RULES = ClaimOptions((PROD, REST))


@pytest.mark.parametrize(
    ("namespace", "name", "allowed"),
    [
        ("prod", "example.com", True),
        ("prod-eu", "a.b.example.com", True),
        ("prod", "*.example.com", True),
        ("prod", "badexample.com", False),
        ("prod", "example.com.evil.org", False),
        ("prod", "*.com", False),
        ("prod", "10.0.0.1", False),
        ("team", "a.dev.example.com", True),
        ("team", "example.com", False),
        ("prod", r"^a[0-9]+\.example\.com$", True),
        ("prod", r"~^(a|b)[.]example[.]com$", True),
        ("prod", r"~^a\.example\.com(:[0-9]+)?$", True),
        ("prod", r"^a\.example\.com", False),
        ("prod", r"^a\.evil\.org|b\.example\.com$", False),
        ("prod", r"^(a\.evil\.org|b)\.example\.com$", True),
        ("prod", r"^.*$", False),
        ("prod", r"^a.example.com$", False),
        ("prod", r"^evilexample\.com$", False),
        ("prod", r"^a\\.example\.com$", False),
        ("prod", r"^a[|]\.example\.com$", True),
        ("prod", r"^[]a|]\.example\.com$", True),
        ("prod", r"^[a[.]|.*|x].\.example\.com$", False),
        ("prod", r"^[a[.]|[^x][.]example[.]com$", False),
        ("prod", r"^a[b\]|c]d|e\.example\.com$", False),
        ("prod", r"^(\[[)\$\.example\.com(:[0-9]+)?$", False),
    ],
)
def test_names_end_with_an_allowed_domain(namespace: str, name: str, allowed: bool) -> None:
    wrong = RULES.domain(namespace, name)
    assert (wrong == "") is allowed
    assert allowed or namespace in wrong


TEAM = ClaimOptions(
    (
        Rule(
            ("team",),
            ("a.com", "b.com"),
            ("http", "https"),
            ((80, 80), (8000, 8999)),
            (network("192.0.2.0/28"), network("2001:db8::/64")),
        ),
        Rule(("none",), (), (), ()),
    ),
    own_addresses=frozenset({"192.0.2.1"}),
)
NOBODYS = "an address of the balancer is everybody's, and no host: choose a name, or list it (claims.rules)"


def may_not(namespace: str, what: str, allowed: str = "") -> str:
    may = f"; it may claim: {allowed}" if allowed else ""
    return f"the namespace {namespace} may not claim {what} (setting claims.rules){may}"


@pytest.mark.parametrize(
    ("namespace", "name", "why"),
    [
        ("team", "a.com", ""),
        ("team", "x.b.com", ""),
        ("team", "c.com", may_not("team", "this name", "a.com, b.com")),
        ("none", "a.com", may_not("none", "this name")),
        ("other", "a.com", may_not("other", "this name")),
        ("team", "192.0.2.1", NOBODYS),
        ("none", "192.0.2.1", NOBODYS),
        ("team", "192.0.2.2", may_not("team", "this name", "a.com, b.com")),
        ("team", r"^x\.a\.com$", ""),
        ("team", r"~^x\.c\.com$", may_not("team", "this name", "a.com, b.com")),
        ("team", "^x", may_not("team", r"a regular expression unless it ends like \.example\.com$")),
    ],
)
def test_why_a_host_may_not_be_claimed(namespace: str, name: str, why: str) -> None:
    assert TEAM.domain(namespace, name) == why
    assert ClaimOptions(own_addresses=TEAM.own_addresses).domain(namespace, name) == (NOBODYS if why == NOBODYS else "")


def test_an_address_of_the_balancer_may_be_listed_as_a_host() -> None:
    rules = ClaimOptions((Rule(("team",), ("192.0.2.1",)),), own_addresses=TEAM.own_addresses)
    assert rules.domain("team", "192.0.2.1") == ""


@pytest.mark.parametrize(
    ("namespace", "protocol", "why"),
    [
        ("team", "https", ""),
        ("team", "tcp", may_not("team", "this protocol", "http, https")),
        ("none", "http", may_not("none", "this protocol")),
        ("other", "http", may_not("other", "this protocol")),
    ],
)
def test_why_a_protocol_may_not_be_claimed(namespace: str, protocol: str, why: str) -> None:
    assert TEAM.protocol(namespace, protocol) == why
    assert ClaimOptions().protocol(namespace, protocol) == ""


@pytest.mark.parametrize(
    ("namespace", "number", "is_allowed"),
    [
        ("team", 79, False),
        ("team", 80, True),
        ("team", 81, False),
        ("team", 7999, False),
        ("team", 8000, True),
        ("team", 8999, True),
        ("team", 9000, False),
        ("none", 80, False),
    ],
)
def test_why_a_port_may_not_be_claimed(namespace: str, number: int, is_allowed: bool) -> None:
    why = may_not(namespace, "this port", "80, 8000-8999" if namespace == "team" else "")
    assert TEAM.port(namespace, number) == ("" if is_allowed else why)
    assert ClaimOptions().port(namespace, number) == ""


@pytest.mark.parametrize(
    ("namespace", "address", "is_allowed"),
    [
        ("team", "192.0.2.15", True),
        ("team", "192.0.2.16", False),
        ("team", "2001:db8::9", True),
        ("team", "0.0.0.0", True),  # where everybody listens
        ("team", "::", True),
        ("none", "192.0.2.15", False),
        ("none", "::", True),
    ],
)
def test_why_an_address_may_not_be_claimed(namespace: str, address: str, is_allowed: bool) -> None:
    why = may_not(namespace, "this address", "192.0.2.0/28, 2001:db8::/64" if namespace == "team" else "")
    assert TEAM.address(namespace, ip_address(address)) == ("" if is_allowed else why)
    assert ClaimOptions().address(namespace, ip_address(address)) == ""


def test_the_first_rule_that_names_a_namespace_decides_and_without_one_nothing_is_allowed() -> None:
    assert RULES.protocol("prod", "postgres")
    assert not RULES.protocol("team", "postgres"), "what a rule does not mention it does not limit"
    assert RULES.port("prod", 5432)
    assert not RULES.port("prod", 6380)
    only = ClaimOptions((PROD,))
    assert only.domain("team", "a.com")
    assert only.protocol("team", "http")
    assert only.port("team", 6379)
    assert not ClaimOptions((Rule(("team",)),)).domain("team", "a.com")
    assert ClaimOptions((Rule(("team",), domains=()),)).domain("team", "a.com")
    assert not ClaimOptions().domain("anybody", "a.com")


@pytest.mark.parametrize(
    ("preset", "asks"),
    [
        ("domains", {"domain": "shop.example.org", "proto": "http"}),
        ("domains", {"domain": "shop.example.com", "proto": "postgres", "pyconfd.io/listen-port": "6379"}),
        ("domains", {"domain": "shop.example.com", "proto": "redis", "pyconfd.io/listen-port": "5432"}),
        ("kube2lb", {"kube2lb/external-domains": "shop.example.org"}),
        ("kube2lb", {"kube2lb/port-mode": '{"web": "tcp"}'}),
    ],
)
def test_what_a_rule_does_not_allow_is_refused_by_every_preset(preset: str, asks: dict[str, str]) -> None:
    rules = ClaimOptions((Rule(("demo",), ("example.com", "svc.local"), ("http", "redis"), ((80, 80), (6379, 6379))),))
    seen = snapshot(service("shop", asks, type_="NodePort"), slice_("shop", endpoint("10.0.0.1")))
    context = registry.translate(seen, (preset,), PresetOptions(claims=rules))
    (refusal,) = context.refused
    assert (refusal.ref.name, refusal.reason) == ("shop", RefusalReason.NOT_ALLOWED)
    assert "claims.rules" in refusal.detail
    assert not registry.translate(seen, (preset,), PresetOptions()).refused


@pytest.mark.parametrize("address", ["192.0.2.10", "192.0.2.10.", "2001:db8::10", "[2001:DB8:0::10]"])
@pytest.mark.parametrize(
    ("preset", "asks"),
    [
        ("domains", {"domain": "{}", "proto": "http"}),
        ("kube2lb", {"kube2lb/external-domains": "{}"}),
        (
            "kubefigurator",
            {
                "haproxy-kubefigurator.web.hostname": "{}",
                "haproxy-kubefigurator.web.use-ssl": "false",
                "haproxy-kubefigurator.web.listen-port": "80",
            },
        ),
    ],
)
def test_an_address_of_the_balancer_is_nobodys_host(preset: str, asks: dict[str, str], address: str) -> None:
    own = frozenset({"192.0.2.10", "2001:db8::10"})
    options = PresetOptions(
        claims=ClaimOptions(own_addresses=own), own=own_options(KubefiguratorOptions(node_ports=False))
    )
    notes = {name: value.format(address) for name, value in asks.items()}
    asking = service("shop", notes, type_="NodePort", ports=(ServicePort("web", 80, "web", 30080),))
    labelled = msgspec.structs.replace(asking.metadata, labels={"haproxy-kubefigurator.enabled": "yes"})
    asking = msgspec.structs.replace(asking, metadata=labelled)
    seen = snapshot(asking, slice_("shop", endpoint("10.0.0.1")))

    def refused(options: PresetOptions) -> list[RefusalReason]:
        context = registry.translate(seen, (preset,), options)
        assert bool(context.refused) is not any(host in str(context.owners) for host in own)
        return [each.reason for each in context.refused]

    assert refused(options) == [RefusalReason.NOT_ALLOWED]
    assert refused(PresetOptions(own=options.own)) == [], "another address is a host"
    listed = (Rule(("demo",), domains=("192.0.2.10", "2001:db8::10", "svc.local")),)
    assert refused(replace(options, claims=ClaimOptions(listed, own_addresses=own))) == []
    below = (Rule(("demo",), domains=("2.10", "::10", "svc.local")),)
    assert refused(replace(options, claims=ClaimOptions(below, own_addresses=own))) == [RefusalReason.NOT_ALLOWED]


@pytest.mark.parametrize("name", ["*.0.2.10", "*.10", "*.2.10"])
def test_a_wildcard_of_addresses_is_no_host(name: str) -> None:
    with pytest.raises(ValueError, match="not a host name"):
        values.host_name(name)


@pytest.mark.parametrize(("field", "value"), [("hostnames", ["a.example.org"]), ("mode", "tcp")])
def test_entries_of_a_configmap_are_judged_by_the_namespace_of_their_pods(field: str, value: Any) -> None:
    entry = {"namespace": "demo", "selector": {}, "hostnames": ["a.example.com"], field: value}
    objects = (config_map("config", {"template": "x"}), config_map("services", {"a": json.dumps(entry)}))
    rules = ClaimOptions((Rule(("demo",), ("example.com",), ("http",)),))
    context = read_pods("configmap", *objects, options=PresetOptions(claims=rules))
    assert context.names["services"] == []
    assert "claims.rules" in str(context.refused)


LOOPBACK, METADATA = "a loopback address", "the address of a cloud's metadata"
BALANCER, NO_MACHINE = "an address of the balancer itself", "no address of a machine"
LINK_LOCAL, MULTICAST = "a link-local address", "a multicast or broadcast address"
API_SERVER = "an address of an API server"
BAD = {
    "127.0.0.1": LOOPBACK,
    "127.255.0.9": LOOPBACK,
    "0.0.0.0": NO_MACHINE,
    "0.1.2.3": NO_MACHINE,
    "169.254.1.1": LINK_LOCAL,
    "169.254.169.254": METADATA,
    "100.100.100.200": METADATA,
    "168.63.129.16": METADATA,
    "192.0.0.192": METADATA,
    "224.0.0.1": MULTICAST,
    "239.255.255.250": MULTICAST,
    "255.255.255.255": MULTICAST,
    "192.0.2.10": BALANCER,
    "192.0.2.20": API_SERVER,
    "::": NO_MACHINE,
    "::1": LOOPBACK,
    "fe80::1": LINK_LOCAL,
    "ff02::1": MULTICAST,
    "fd00:ec2::254": METADATA,
    "2001:db8::10": BALANCER,
    "::ffff:127.0.0.1": LOOPBACK,
    "::ffff:a9fe:a9fe": METADATA,
    "::ffff:192.0.2.10": BALANCER,
    "64:ff9b::7f00:1": LOOPBACK,
    "2002:7f00:1::": LOOPBACK,
}
GOOD = ["10.0.0.1", "100.64.0.1", "172.16.0.1", "1.27.0.1", "192.0.2.11", "2001:db8::11", "fd00::1", "::ffff:10.0.0.1"]
OWN = AllowedAddresses(frozenset({"192.0.2.10", "2001:db8::10"}), api_servers=frozenset({"192.0.2.20"}))


@pytest.mark.parametrize("address", BAD)
def test_no_endpoint_may_be_there(address: str) -> None:
    remedy = "no traffic goes there; where it has to, list its network in the setting claims.allow_endpoints"
    assert OWN.wrong(address) == f"this is {BAD[address]}, and no pod: {remedy}"
    wide = tuple(map(network, ("0.0.0.0/0", "::/0")))
    assert not replace(OWN, allowed=wide).wrong(address)


@pytest.mark.parametrize("address", GOOD)
def test_pods_may_be_anywhere_else(address: str) -> None:
    assert not OWN.wrong(address)


def test_a_network_that_is_allowed_counts_in_disguise_too() -> None:
    places = AllowedAddresses(allowed=(network("127.0.0.0/8"),))
    assert not places.wrong("127.0.0.1")
    assert not places.wrong("::ffff:127.0.0.1")
    assert places.wrong("::ffff:169.254.169.254")


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:169.254.169.254", "192.0.2.10"])
@pytest.mark.parametrize("way", ["slices", "endpoints"])
def test_such_an_endpoint_is_refused_by_name_and_the_others_go_on(address: str, way: str) -> None:
    notes = {"domain": "a.example.com", "proto": "http"}
    behind = (
        slice_("a", endpoint(address), endpoint("10.0.0.1"))
        if way == "slices"
        else endpoints("a", None, subset(address, "10.0.0.1", name="web"))
    )
    options = PresetOptions(claims=ClaimOptions(own_addresses=frozenset({"192.0.2.10"})))
    context = read(service("a", notes), behind, options=options)
    assert context.names["domains"]["a.example.com"]["ips"] == ["10.0.0.1"]
    (refusal,) = context.refused
    assert refusal.ref.kind == ("EndpointSlice" if way == "slices" else "Endpoints")
    assert (refusal.field, refusal.reason) == ("endpoints.addresses", RefusalReason.FORBIDDEN_ADDRESS)
    (view,) = context.names["cluster"].services
    assert [each.address for port in view.ports for each in port.endpoints] == ["10.0.0.1"]


@pytest.mark.parametrize("preset", ["hosts", "configmap"])
def test_pods_are_judged_alike(preset: str) -> None:
    entry = {"namespace": "demo", "selector": {"app": "shop"}}
    objects = (
        config_map("config", {"template": "x"}),
        config_map("services", {"shop": json.dumps(entry)}),
        pod("good", "10.0.0.1", {"app": "shop"}),
        pod("bad", "127.0.0.1", {"app": "shop"}),
        pod("unasked", "127.0.0.1", {"app": "other"}) if preset == "configmap" else pod("x", "10.0.0.9", {"app": "x"}),
    )
    options = PresetOptions(own=own_options(HostsOptions(selector={"app": "shop"})))
    context = read_pods(preset, *objects, options=options)
    if preset == "hosts":
        assert context.names["hosts"] == {"shop": ["10.0.0.1"]}
    else:
        assert [list(each["pods"]) for each in context.names["services"]] == [["good"]]
    found = [each.ref.name for each in context.refused if each.reason is RefusalReason.FORBIDDEN_ADDRESS]
    assert found == ["bad"]


def test_a_node_may_be_the_balancer_itself_and_nothing_special() -> None:
    seen = snapshot(node("n1", "192.0.2.10"), node("n2", "127.0.0.1"))
    here = replace(seen, host=HostFacts(frozenset({"127.0.0.1", "192.0.2.10"})))
    context = registry.translate(here, ("domains",), PresetOptions())
    assert [each.addresses for each in context.names["cluster"].nodes] == [(("InternalIP", "192.0.2.10"),), ()]
    assert [(each.ref.kind, each.ref.name) for each in context.refused] == [("Node", "n2")]


def api_slice(name: str, *addresses: str, namespace: str = "default") -> EndpointSlice:
    port = EndpointPort("https", 6443)
    of_service = slice_("kubernetes", *map(endpoint, addresses), namespace=namespace, ports=[port])
    return msgspec.structs.replace(of_service, metadata=msgspec.structs.replace(of_service.metadata, name=name))


@pytest.mark.parametrize("source", ["slice", "endpoints", "settings"])
def test_an_api_server_is_no_endpoint_and_its_own_service_is_no_fault(source: str) -> None:
    notes = {"domain": "a.example.com", "proto": "http"}
    tenant = (service("a", notes), slice_("a", *map(endpoint, ("10.0.0.1", "192.0.2.31", "192.0.2.32"))))
    servers = "192.0.2.31", "192.0.2.32"
    objects: dict[str, list[EndpointSlice | Endpoints]] = {
        "slice": [api_slice("kubernetes", *servers)],
        "endpoints": [endpoints("kubernetes", None, subset(*servers, name="https"), namespace="default")],
        "settings": [],
    }
    kubernetes = service("kubernetes", namespace="default", ports=(ServicePort("https", 443, 6443),))
    seen = snapshot(*tenant, kubernetes, *objects[source], node("n1", "192.0.2.31"))
    if source == "settings":
        seen = replace(seen, host=HostFacts(frozenset({"127.0.0.1"}), api_servers=frozenset(servers)))
    context = registry.translate(seen, ("domains",), PresetOptions())
    assert context.names["domains"]["a.example.com"]["ips"] == ["10.0.0.1"]
    assert {each.ref.namespace for each in context.refused} == {"demo"}
    assert {each.value for each in context.refused} == set(servers)
    assert [each.addresses for each in context.names["cluster"].nodes] == [(("InternalIP", "192.0.2.31"),)]
    allowed = PresetOptions(claims=ClaimOptions(allow_endpoints=(network("192.0.2.31"),)))
    context = registry.translate(seen, ("domains",), allowed)
    assert context.names["domains"]["a.example.com"]["ips"] == ["10.0.0.1", "192.0.2.31"]


def test_nobody_but_api_servers_says_where_they_are() -> None:
    """A slice beside theirs would take the endpoints of others away."""
    notes = {"domain": "a.example.com", "proto": "http"}
    forged = api_slice("kubernetes-2", "10.0.0.1"), api_slice("kubernetes", "10.0.0.1", namespace="tenant")
    context = read(service("a", notes), slice_("a", endpoint("10.0.0.1")), *forged)
    assert context.names["domains"]["a.example.com"]["ips"] == ["10.0.0.1"]


@pytest.mark.parametrize(
    ("address", "wrong"),
    [
        ("10.244.0.1", ""),
        ("fd00:1::7", ""),
        ("203.0.113.7", ""),
        ("10.0.0.1", "claims.endpoint_networks"),
        ("2001:db8::1", "claims.endpoint_networks"),
        ("::ffff:10.244.0.1", "claims.endpoint_networks"),
        ("10.244.0.9", "an API server"),
        ("127.0.0.1", "claims.allow_endpoints"),
    ],
)
def test_endpoints_are_in_the_networks_of_pods(address: str, wrong: str) -> None:
    options = ClaimOptions(
        allow_endpoints=(network("203.0.113.0/24"),),
        endpoint_networks=tuple(map(network, ("10.244.0.0/16", "fd00:1::/64"))),
    )
    places = options.places(Snapshot(host=HostFacts(api_servers=frozenset({"10.244.0.9"}))))
    assert wrong in places.wrong(address)
    assert bool(places.wrong(address)) is bool(wrong)
    assert not places.of_nodes.wrong("10.0.0.1")


def test_an_address_that_comes_to_this_host_takes_its_endpoints_away_and_gives_them_back() -> None:
    notes = {"domain": "a.example.com", "proto": "http"}
    seen = snapshot(
        service("a", notes), slice_("a", endpoint("10.0.0.1")), service("b"), slice_("b", endpoint("10.0.0.2"))
    )
    memo = Memo()

    def ips(facts: HostFacts) -> tuple[Any, Snapshot]:
        context = registry.translate(replace(seen, host=facts), ("domains",), PresetOptions(), memo)
        return context.names["domains"]["a.example.com"]["ips"], context.names["cluster"].services[1]

    away, same = ips(HostFacts(frozenset({"127.0.0.1"})))
    here, still_same = ips(HostFacts(frozenset({"127.0.0.1", "10.0.0.1"})))
    assert (away, here) == (["10.0.0.1"], [])
    assert still_same is same, "what it does not concern is the same object"
    assert ips(HostFacts(frozenset({"127.0.0.1"})))[0] == ["10.0.0.1"]
