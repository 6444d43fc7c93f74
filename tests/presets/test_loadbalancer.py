"""What Services of type LoadBalancer are given, and what they say in their status."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pyconfd.daemon.name_register import NameRegisterFile
from pyconfd.daemon.translation import FormerNames, Translator
from pyconfd.model.context import Context, RefusalReason
from pyconfd.model.kubernetes import (
    EndpointPort,
    ObjectRef,
    Service,
    ServicePort,
    ServiceSpec,
    SessionAffinityClientIp,
    SessionAffinityConfig,
)
from pyconfd.model.listener import Listener, Listeners
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import Name, NameRegister, namespaces_of_changes
from pyconfd.model.snapshot import HostFacts, Key, Resource, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.addresses import ADDRESSES_ANNOTATION, LOAD_BALANCER_CLASS, AddressOptions
from pyconfd.presets.loadbalancer import PROXY_PROTOCOL, BalancedPort, LoadbalancerPreset
from pyconfd.presets.policy import ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.presets.asking import claims, counted
from tests.presets.objects import Named, endpoint, node, slice_, snapshot

POOL = AddressOptions(("192.0.2.1", "192.0.2.2"))
OPTIONS = PresetOptions(addresses=POOL)
WEB = ServicePort("web", 80, "web", 30080)
PODS = (endpoint("10.0.0.1", node="n1"), endpoint("10.0.0.2", node="n2"))


def balanced(
    name: str = "web",
    *,
    ports: tuple[ServicePort, ...] = (WEB,),
    annotations: Mapping[str, str] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    class_: str | None = LOAD_BALANCER_CLASS,
    **spec: Any,
) -> Service:
    meta = ObjectMeta(name, "shop", f"uid-{name}", creation_timestamp=created, annotations=dict(annotations or {}))
    return Service(meta, ServiceSpec(ports, "LoadBalancer", load_balancer_class=class_, **spec))


def behind(name: str = "web", *pods: Any) -> Named:
    return slice_(name, *(pods or PODS), namespace="shop", ports=[EndpointPort("web", 8080, "TCP")])


def read(*objects: Named, options: PresetOptions = OPTIONS, host: HostFacts | None = None) -> Context:
    found = snapshot(*objects)
    return registry.translate(replace(found, host=host) if host else found, ("loadbalancer",), options)


def served(context: Context) -> list[BalancedPort]:
    return list(context.names["loadbalancer"].values())


def listening(context: Context) -> list[str]:
    return [f"{address}:{port.port}" for port in served(context) for address in port.addresses]


def refused(context: Context) -> list[tuple[str, str, str]]:
    return [(each.field, each.value, each.reason) for each in context.refused]


def status(context: Context, name: str = "web") -> dict[str, Any]:
    (statuses,) = context.statuses
    return dict(statuses[ObjectKey(Resource.SERVICES, Key("shop", name))].body)


def ingress(context: Context, name: str = "web") -> dict[str, list[str]]:
    """Return the ports of each address in the status."""
    found = status(context, name)["loadBalancer"].get("ingress", [])
    return {
        each["ip"]: [f"{port['port']}/{port['protocol']}{port.get('error', '')}" for port in each["ports"]]
        for each in found
    }


@dataclass
class Case:
    """One Service, and what it is given."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    options: PresetOptions = OPTIONS
    listening: tuple[str, ...] = ("192.0.2.1:80",)
    refused: tuple[tuple[str, str, RefusalReason], ...] = ()
    entry: Mapping[str, Any] = field(default_factory=dict)
    ingress: Mapping[str, list[str]] | None = None


def _annotated(**annotations: str) -> dict[str, Any]:
    names = {"proxy": PROXY_PROTOCOL, "wish": ADDRESSES_ANNOTATION}
    return {"annotations": {names[name]: value for name, value in annotations.items()}}


def _only(**rule: Any) -> PresetOptions:
    return replace(OPTIONS, claims=ClaimOptions((Rule(("shop",), **rule),)))


def _networks(count: int) -> tuple[str, ...]:
    return tuple(f"10.{number // 256}.{number % 256}.0/24" for number in range(count))


def _ports(count: int) -> tuple[ServicePort, ...]:
    return tuple(ServicePort(f"p{number}", number) for number in range(1, count + 1))


_OUTSIDE = tuple(f"192.0.2.{number}" for number in range(10, 26))
_UDP = ServicePort("dns", 53, 53, protocol="UDP")
_ADMIN = ServicePort("admin", 81, "web", 30081)
_AFFINE = SessionAffinityConfig(SessionAffinityClientIp(60))
_ANNOTATION = f"annotation {PROXY_PROTOCOL}"
_R = RefusalReason

CASES: Mapping[str, Case] = {
    "a port": Case(entry={"source_ranges": (), "affinity_s": 0, "proxy_protocol": ""}),
    "two ports": Case({"ports": (WEB, _ADMIN)}, listening=("192.0.2.1:80", "192.0.2.1:81")),
    "UDP is refused by port": Case(
        {"ports": (WEB, _UDP)},
        refused=(("spec.ports", "53/UDP", _R.INVALID_VALUE),),
        ingress={"192.0.2.1": ["80/TCP", "53/UDPpyconfd.io/UnsupportedProtocol"]},
    ),
    "UDP alone": Case({"ports": (_UDP,)}, listening=(), refused=(("spec.ports", "53/UDP", _R.INVALID_VALUE),)),
    "no port": Case({"ports": ()}, listening=(), refused=(("spec.ports", "", _R.INCOMPLETE),)),
    "source ranges": Case(
        {"load_balancer_source_ranges": ("10.0.0.0/8", " 192.0.2.9/24 ", "10.0.0.0/8")},
        entry={"source_ranges": ("10.0.0.0/8", "192.0.2.0/24")},
    ),
    "a source range that is none": Case(
        {"load_balancer_source_ranges": ("10.0.0.0/8", "all")},
        listening=(),
        refused=(("spec.loadBalancerSourceRanges", "all", _R.INVALID_VALUE),),
    ),
    "as many networks for its ports as there may be": Case(
        {"ports": (WEB, _ADMIN), "load_balancer_source_ranges": _networks(5_000)},
        listening=("192.0.2.1:80", "192.0.2.1:81"),
    ),
    "more networks for its ports": Case(
        {"ports": (WEB, _ADMIN), "load_balancer_source_ranges": _networks(5_001)},
        listening=(),
        refused=(("spec.loadBalancerSourceRanges", "", _R.INVALID_VALUE),),
    ),
    "as many ports as there may be": Case(
        {"ports": _ports(1_000)}, listening=tuple(f"192.0.2.1:{number}" for number in range(1, 1_001))
    ),
    "more ports": Case({"ports": _ports(1_001)}, listening=(), refused=(("spec.ports", "", _R.INVALID_VALUE),)),
    "as many addresses as are looked at": Case(
        _annotated(wish=",".join((*_OUTSIDE[1:], _OUTSIDE[1], "192.0.2.2"))),
        listening=("192.0.2.2:80",),
        refused=tuple((f"annotation {ADDRESSES_ANNOTATION}", each, _R.NO_SUCH_ADDRESS) for each in _OUTSIDE[1:]),
    ),
    "more addresses than are looked at": Case(
        # One that is named twice counts once.
        _annotated(wish=",".join((*_OUTSIDE, _OUTSIDE[0], "192.0.2.2"))),
        listening=(),
        refused=(
            (f"annotation {ADDRESSES_ANNOTATION}", "", _R.INVALID_VALUE),
            *((f"annotation {ADDRESSES_ANNOTATION}", each, _R.NO_SUCH_ADDRESS) for each in _OUTSIDE),
        ),
    ),
    "affinity": Case({"session_affinity": "ClientIP"}, entry={"affinity_s": 10_800}),
    "affinity with a time": Case(
        {"session_affinity": "ClientIP", "session_affinity_config": _AFFINE}, entry={"affinity_s": 60}
    ),
    "a time without affinity": Case({"session_affinity_config": _AFFINE}, entry={"affinity_s": 0}),
    "PROXY protocol": Case(_annotated(proxy="v2"), entry={"proxy_protocol": "v2"}),
    "PROXY protocol of another version": Case(
        _annotated(proxy="v3"), listening=(), refused=((_ANNOTATION, "v3", _R.INVALID_VALUE),)
    ),
    "an address of the pool": Case({"load_balancer_ip": "192.0.2.2"}, listening=("192.0.2.2:80",)),
    "two addresses of the pool": Case(
        _annotated(wish="192.0.2.2,192.0.2.1"), listening=("192.0.2.2:80", "192.0.2.1:80")
    ),
    "an address outside of the pool": Case(
        {"load_balancer_ip": "192.0.2.9"},
        listening=(),
        refused=(("spec.loadBalancerIP", "192.0.2.9", _R.NO_SUCH_ADDRESS),),
    ),
    "something that is no address": Case(
        _annotated(wish="any"), listening=(), refused=((f"annotation {ADDRESSES_ANNOTATION}", "any", _R.INVALID_VALUE),)
    ),
    "no pool": Case(
        options=PresetOptions(),
        listening=(),
        refused=(("spec.loadBalancerClass", "", _R.NO_FREE_ADDRESS),),
    ),
    "a family that the pool does not have": Case(
        {"ip_families": ("IPv6",)},
        listening=(),
        refused=(("spec.loadBalancerClass", "IPv6", _R.NO_FREE_ADDRESS),),
    ),
    "a port on all addresses is nobody's here": Case(
        options=replace(OPTIONS, reserved=Listeners({Listener.at("*", 80): "frontend http-in"})),
    ),
    "a port of the operator on this address": Case(
        {"ports": (WEB, _ADMIN)},
        replace(OPTIONS, reserved=Listeners({Listener.at("192.0.2.1", 80): "frontend mine"})),
        listening=("192.0.2.1:81",),
        refused=(("spec.ports", "80", _R.PORT_TAKEN),),
        ingress={"192.0.2.1": ["81/TCP", "80/TCPpyconfd.io/PortTaken"]},
    ),
    "a port of another program": Case(
        options=replace(OPTIONS, taken_listeners={Listener.at("192.0.2.1", 80): "sshd listens on *:80"}),
        listening=(),
        refused=(("spec.ports", "80", _R.PORT_TAKEN),),
    ),
    "a namespace that may have some ports": Case(
        {"ports": (WEB, _ADMIN)}, _only(ports=((81, 90),)), ("192.0.2.1:81",), (("spec.ports", "80", _R.NOT_ALLOWED),)
    ),
    "a namespace that may have no TCP": Case(
        options=_only(protocols=("http",)), listening=(), refused=(("spec.type", "LoadBalancer", _R.NOT_ALLOWED),)
    ),
    "a namespace that may name no address": Case(
        {"load_balancer_ip": "192.0.2.2"}, _only(), (), (("spec.loadBalancerIP", "192.0.2.2", _R.NOT_ALLOWED),)
    ),
    "a port that is not allowed beside one that is": Case(
        {"ports": (WEB, _ADMIN)},
        _only(ports=((80, 80),)),
        refused=(("spec.ports", "81", _R.NOT_ALLOWED),),
        ingress={"192.0.2.1": ["80/TCP", "81/TCPpyconfd.io/NotAllowed"]},
    ),
    "no node port": Case(
        {"ports": (WEB, ServicePort("admin", 81, "web"))},
        replace(OPTIONS, node_ports=True),
        refused=(("spec.ports", "81", _R.NO_NODE_PORT),),
        ingress={"192.0.2.1": ["80/TCP", "81/TCPpyconfd.io/NoNodePort"]},
    ),
}


REASONS = {
    _R.INCOMPLETE: "Incomplete",
    _R.INVALID_VALUE: "InvalidValue",
    _R.NOT_ALLOWED: "NotAllowed",
    _R.NO_FREE_ADDRESS: "NoFreeAddress",
    _R.NO_NODE_PORT: "NoNodePort",
    _R.NO_SUCH_ADDRESS: "NoSuchAddress",
    _R.PORT_TAKEN: "PortTaken",
}
"""What the condition of a Service says where nothing of it is served."""


@pytest.mark.parametrize("name", CASES)
def test_a_service(name: str) -> None:
    case = CASES[name]
    context = read(balanced(**case.spec), behind(), options=case.options)

    assert tuple(listening(context)) == case.listening
    assert refused(context) == list(case.refused)
    for port in served(context):
        assert {key: getattr(port, key) for key in case.entry} == case.entry
    of_address: dict[str, list[str]] = {}
    for each in case.listening:
        address, _, port_number = each.rpartition(":")
        of_address.setdefault(address, []).append(f"{port_number}/TCP")
    if case.ingress is not None or not case.refused or not case.listening:
        assert ingress(context) == (case.ingress if case.ingress is not None else of_address)
    (condition,) = status(context)["conditions"]
    reason = REASONS[case.refused[0][2]] if case.refused else "Accepted"
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "pyconfd.io/Accepted",
        "True" if case.listening else "False",
        "PartlyAccepted" if case.listening and case.refused else reason,
    )
    assert set(context.listeners) == {
        Listener(each.rpartition(":")[0], int(each.rpartition(":")[2])) for each in case.listening
    }


def test_the_whole_status_of_a_service() -> None:
    service = balanced(ports=(WEB, _UDP))
    service = Service(replace_meta(service.metadata, generation=3), service.spec)
    (statuses,) = read(service, behind()).statuses
    found = statuses[ObjectKey(Resource.SERVICES, Key("shop", "web"))]
    assert (found.uid, found.generation) == ("uid-web", 3)
    assert found.body == {
        "loadBalancer": {
            "ingress": [
                {
                    "ip": "192.0.2.1",
                    "ipMode": "Proxy",
                    "ports": [
                        {"port": 80, "protocol": "TCP"},
                        {"port": 53, "protocol": "UDP", "error": "pyconfd.io/UnsupportedProtocol"},
                    ],
                }
            ]
        },
        "conditions": [
            {
                "type": "pyconfd.io/Accepted",
                "status": "True",
                "reason": "PartlyAccepted",
                "message": "spec.ports 53/UDP: HAProxy balances only TCP: this port is not served, the TCP ports are",
                "observedGeneration": 3,
            }
        ],
    }


@pytest.mark.parametrize(
    ("changed", "is_same"),
    [
        (balanced(), True),
        (balanced(annotations={"a": "b"}), True),
        # Neither the name nor the target of a port is in a line of the frontend.
        (balanced(ports=(ServicePort("other", 80, "web"),)), True),
        (balanced(ports=(ServicePort("web", 81, "web"),)), False),
        (balanced(ports=(WEB, _ADMIN)), False),
        (balanced(load_balancer_ip="192.0.2.2"), False),
        (balanced(load_balancer_source_ranges=("10.0.0.0/8",)), False),
        (balanced(session_affinity="ClientIP"), False),
        (balanced(annotations={PROXY_PROTOCOL: "v2"}), False),
    ],
)
def test_what_a_service_asks_for_otherwise_is_put_down_to_it(changed: Service, is_same: bool) -> None:
    before, after = read(balanced(), behind()).owners, read(changed, behind()).owners
    name = Name("services shop/web", "")
    owner = before["loadbalancer"][name]
    assert before["loadbalancer"] == {name: owner}
    assert owner[:3] == ("Service", "shop", "web")
    assert (after["loadbalancer"] == {name: owner}) is is_same
    assert namespaces_of_changes(before, after) == (frozenset() if is_same else {"shop"})


def test_a_service_without_a_port_or_an_address_takes_no_reload() -> None:
    for context in (read(balanced(ports=()), behind()), read(balanced(), behind(), options=PresetOptions())):
        assert "loadbalancer" not in context.owners


def test_of_a_default_class_a_service_says_that_it_names_none() -> None:
    options = replace(OPTIONS, addresses=replace(POOL, default_class=True))
    for class_, said in ((None, "(none)"), (LOAD_BALANCER_CLASS, LOAD_BALANCER_CLASS)):
        (claim,) = registry.claims_of(read(balanced(class_=class_), behind(), options=options))
        assert claim.because == f"type LoadBalancer and loadBalancerClass {said}"


def test_each_refusal_and_claim_names_its_cluster() -> None:
    """What is refused while a Service is read, and what only when ports are given."""
    seen = replace(snapshot(balanced(ports=(WEB, _UDP)), behind()), cluster="east")
    taken = {Listener.at("192.0.2.1", 80): "sshd listens on *:80"}
    ref = ObjectRef("Service", "shop", "web", "east")
    for options, values in ((OPTIONS, ["53/UDP"]), (replace(OPTIONS, taken_listeners=taken), ["53/UDP", "80"])):
        context = registry.translate(seen, ("loadbalancer",), options)
        assert [(each.ref, each.field, each.value) for each in context.refused] == [
            (ref, "spec.ports", value) for value in values
        ]
        assert [claim.ref for claim in registry.claims_of(context)] == [ref]


def test_foreign_services_are_never_touched() -> None:
    context = read(balanced("a", class_="example.com/lb"), balanced("b", class_=None), behind("a"), behind("b"))
    assert (served(context), context.refused, context.statuses) == ([], (), ({},))


def test_an_exhausted_pool_touches_nobody_else() -> None:
    services = [balanced(name, created=f"2026-01-0{age}T00:00:00Z") for age, name in enumerate("abc", 1)]
    context = read(*services, behind("a"), behind("b"), behind("c"))

    assert listening(context) == ["192.0.2.1:80", "192.0.2.2:80"]
    assert [(each.ref.name, each.reason) for each in context.refused] == [("c", RefusalReason.NO_FREE_ADDRESS)]
    assert (ingress(context, "a"), ingress(context, "c")) == ({"192.0.2.1": ["80/TCP"]}, {})
    (condition,) = status(context, "c")["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "NoFreeAddress")


def test_an_address_that_is_not_here_is_told() -> None:
    context = read(balanced(), behind(), host=HostFacts(frozenset({"127.0.0.1"})))
    assert refused(context) == [("status.loadBalancer", "192.0.2.1", RefusalReason.NO_SUCH_ADDRESS)]
    # It is bound all the same: the address may come without a reload.
    assert (listening(context), ingress(context)) == (["192.0.2.1:80"], {})
    here = read(balanced(), behind(), host=HostFacts(frozenset({"192.0.2.1"})))
    assert (here.refused, ingress(here)) == ((), {"192.0.2.1": ["80/TCP"]})


class TestTargets:
    @pytest.mark.parametrize("policy", ["Cluster", "Local", None])
    def test_pods(self, policy: str | None) -> None:
        (port,) = served(read(balanced(external_traffic_policy=policy), behind()))
        assert [(each.address, each.port) for each in port.endpoints] == [("10.0.0.1", 8080), ("10.0.0.2", 8080)]

    @pytest.mark.parametrize(("policy", "nodes"), [("Cluster", ["n1", "n2", "n3"]), ("Local", ["n1"])])
    def test_node_ports(self, policy: str, nodes: list[str]) -> None:
        machines = [node(f"n{number}", f"10.1.0.{number}") for number in (1, 2, 3)]
        service = balanced(external_traffic_policy=policy)
        context = read(service, behind("web", PODS[0]), *machines, options=replace(OPTIONS, node_ports=True))

        (port,) = served(context)
        assert [(each.node, each.port) for each in port.endpoints] == [(name, 30080) for name in nodes]

    def test_without_pods_it_has_its_address(self) -> None:
        context = read(balanced())
        assert listening(context) == ["192.0.2.1:80"]
        assert ingress(context) == {"192.0.2.1": ["80/TCP"]}


def test_kube2lb_leaves_its_services_alone() -> None:
    objects = (balanced(), balanced("other", class_=None), behind(), behind("other"))
    context = registry.translate(snapshot(*objects), ("kube2lb", "loadbalancer"), OPTIONS)

    assert [each.name for each in context.names["kube2lb"]["services"]] == ["other"]
    assert [each.name for each in context.names["loadbalancer"].values()] == ["web"]


def test_claims_say_what_asks_and_where_it_is_served() -> None:
    found = snapshot(balanced(ports=(WEB, _UDP)), behind())
    context = registry.translate(found, ("loadbalancer",), OPTIONS)
    (claim,) = registry.claims_of(context)

    assert claim.names == ("192.0.2.1",)
    assert [(each.section, each.key) for each in claim.backends] == [("lb-shop:web:80", "shop:web:80")]
    assert [each.value for each in claim.refused] == ["53/UDP"]


@pytest.mark.parametrize(
    ("service", "hint"),
    [
        (balanced(class_="pyconfd.io/LB"), "pyconfd.io/lb"),
        (balanced(annotations={"pyconfd.io/proxy-protokol": "v1"}), PROXY_PROTOCOL),
        (balanced(annotations={"pyconfd.io/address": "192.0.2.1"}), ADDRESSES_ANNOTATION),
        (balanced(annotations={"pyconfd.io/domain": "a.example.com", PROXY_PROTOCOL: "v1"}), ""),
        (balanced(class_="example.com/lb", annotations={"pyconfd.io/address": "192.0.2.1"}), ""),
    ],
)
def test_mistakes(service: Service, hint: str) -> None:
    found = list(LoadbalancerPreset().mistakes(service, Snapshot(), PresetOptions()))
    assert [hint in each for each in found] == ([True] if hint else [])


def replace_meta(meta: ObjectMeta, *, generation: int) -> ObjectMeta:
    return ObjectMeta(meta.name, meta.namespace, meta.uid, generation=generation)


def test_another_endpoint_changes_one_port_and_no_other_object() -> None:
    memo = Memo()
    objects = [balanced(name, ports=(ServicePort("web", 80 + number, "web"),)) for number, name in enumerate("abc")]
    slices = [behind(name) for name in "abc"]
    first = registry.translate(snapshot(*objects, *slices), ("loadbalancer",), OPTIONS, memo)
    slices[1] = behind("b", endpoint("10.0.0.9"))
    second = registry.translate(snapshot(*objects, *slices), ("loadbalancer",), OPTIONS, memo)

    old, new = first.names["loadbalancer"], second.names["loadbalancer"]
    assert [key for key in new if new[key] is not old[key]] == ["shop:b:81"]
    assert (second.statuses[0] is first.statuses[0], second.refused is first.refused) == (True, True)
    assert second.totals.claimed == first.totals.claimed - 1


def test_an_address_stays_with_the_namespace_of_a_deleted_service_for_a_while() -> None:
    register = NameRegister()

    def names(now: float, *services: Service) -> dict[str, str]:
        nonlocal register
        previous = FormerNames(register, now, keep_s=60)
        one = replace(OPTIONS, addresses=AddressOptions(POOL.pool[:1]))
        context = Translator(("loadbalancer",), one, names=previous).translate(snapshot(*services))
        register = context.register
        return {f"{port.namespace}/{port.name}": port.addresses[0] for port in served(context)}

    shop = balanced()
    waiting = in_namespace("bank", balanced("waiting", created="2026-02-01T00:00:00Z"))
    again = balanced(created="2026-03-01T00:00:00Z")
    assert names(0, shop, waiting) == {"shop/web": "192.0.2.1"}
    assert names(1, waiting) == {}
    assert names(2, waiting, again) == {"shop/web": "192.0.2.1"}
    assert names(3, waiting, again) == {"shop/web": "192.0.2.1"}
    assert names(4, waiting) == {}
    assert names(65, waiting) == {"bank/waiting": "192.0.2.1"}


def test_an_address_stays_with_its_service_over_a_restart_whatever_others_write(tmp_path: Path) -> None:
    def addresses_at(now: float, *services: Service) -> dict[str, str]:
        """Translate as a process that has just started, with the register that is on the disk."""
        register = NameRegisterFile(str(tmp_path), keep_s=60)
        context = Translator(("loadbalancer",), OPTIONS, names=register.at(now)).translate(snapshot(*services))
        register.keep(context.register)
        register.flush()
        return {f"{port.namespace}/{port.name}": port.addresses[0] for port in served(context)}

    victim = in_namespace("bank", balanced(created="2026-02-01T00:00:00Z"))
    asks = {ADDRESSES_ANNOTATION: "192.0.2.1"}
    thief = balanced(created="2025-01-01T00:00:00Z", annotations=asks)
    thief = msgspec.structs.replace(thief, status={"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}})
    assert addresses_at(0, victim) == {"bank/web": "192.0.2.1"}
    assert addresses_at(1, victim, thief) == {"bank/web": "192.0.2.1"}
    moved = in_namespace("bank", balanced(ports=(ServicePort("web", 8443),)))
    assert addresses_at(2, thief, moved) == {"bank/web": "192.0.2.1"}


def in_namespace(namespace: str, service: Service) -> Service:
    meta = ObjectMeta(service.metadata.name, namespace, creation_timestamp=service.metadata.creation_timestamp)
    return Service(meta, service.spec)


TAKEN = replace(OPTIONS, taken_listeners={Listener("192.0.2.1", 80): "an older one has it"})


@pytest.mark.parametrize(
    ("service", "options", "detail"),
    [
        (
            balanced(annotations={PROXY_PROTOCOL: "v3"}),
            OPTIONS,
            "expected v1 or v2; the whole Service is left out",
        ),
        (
            balanced(ports=(WEB, _UDP)),
            OPTIONS,
            "HAProxy balances only TCP: this port is not served, the TCP ports are",
        ),
        (
            balanced(ports=(WEB, ServicePort("again", 80, "web", 30081))),
            OPTIONS,
            "not a port from 1 to 65535 that the Service has once",
        ),
        (
            balanced(ports=(ServicePort("web", 80, "web"),)),
            replace(OPTIONS, node_ports=True),
            "traffic goes to node ports (presets.backend_target) but this port has none: {}",
        ),
        (balanced(), TAKEN, "an older one has it; choose another port"),
        (
            balanced(load_balancer_source_ranges=("everybody",)),
            OPTIONS,
            "not a network like 192.0.2.0/24; the whole Service is left out, lest anybody reach it",
        ),
    ],
)
def test_refusals_in_words(service: Service, options: PresetOptions, detail: str) -> None:
    context = read(service, behind(), options=options)
    [refusal] = context.refused
    assert refusal.detail == detail.format("set spec.allocateLoadBalancerNodePorts")
    where = f"{refusal.field} {refusal.value}" if refusal.value else refusal.field
    assert status(context)["conditions"][0]["message"] == f"{where}: {refusal.detail}"


def test_what_is_claimed_and_served() -> None:
    seen = snapshot(balanced(ports=(WEB, _UDP)), behind(), balanced("other", class_="example.com/lb"))
    assert claims(seen, "loadbalancer", OPTIONS) == {
        "Service shop/web": (
            "type LoadBalancer and loadBalancerClass pyconfd.io/lb",
            ("192.0.2.1",),
            {"lb-shop:web:80": ("web:80", "shop:web:80", ["10.0.0.1", "10.0.0.2"], ["192.0.2.1"], False)},
            ["10.0.0.1:8080 ready", "10.0.0.2:8080 ready"],
        )
    }
    assert counted(seen, "loadbalancer", OPTIONS) == {"shop:web:80": ["10.0.0.1", "10.0.0.2"]}
