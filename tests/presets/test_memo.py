"""A translation that builds on former ones gives what a fresh one gives, and what did not change is the same object."""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.context import AUTOMATIC_PRESETS, Context, PresetName
from pyconfd.model.kubernetes import EndpointPort, Endpoints, ObjectRef, Secret, Service, ServicePort, ServiceSpec
from pyconfd.model.listener import Listener
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import Name, Owner, Reservation, owned_by
from pyconfd.model.snapshot import HostFacts, Key, Snapshot
from pyconfd.predecessors.hosts import CONFIG, MASTER, ROUTE53, HostsOptions
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.presets import registry
from pyconfd.presets.addresses import LOAD_BALANCER_CLASS, AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.graph import PresetGraph
from pyconfd.presets.policy import ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.presets.registry import Memo
from tests.derived.checking import CheckedCalls, items_of, see_that_changes_are_told
from tests.presets import objects
from tests.presets.objects import endpoint, endpoints, node, service, slice_, subset
from tests.presets.pods import certificate, config_map, pod, secret

ALL = tuple(PresetName)
POOL = ("192.0.2.1", "192.0.2.2")
TAKEN = {Listener.at("*", 443): "another program listens there"}
TAKEN_TWO = {Listener.at("*", port): "another program listens there" for port in (80, 5432)}
NAMES = st.sampled_from(["a", "b", "c", "d"])
NAMESPACES = st.sampled_from(["demo", "shop"])
DOMAINS = st.sampled_from(["a.example.com", "b.example.com", "*.example.com", "no good"])
PORTS = st.sampled_from(["80", "443", "5432", "8080", "99999"])
CREATED = st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", None])
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "none"])
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        "domain": DOMAINS,
        "proto": st.sampled_from(["http", "redis", "postgres", "a b"]),
        "pyconfd.io/listen-port": PORTS,
        "pyconfd.io/tls-secret": st.sampled_from(["tls", "tls", "other", "- -"]),
        "pyconfd.io/ssl-redirect": st.sampled_from(["false", "maybe"]),
        "haproxy-kubefigurator.web.hostname": DOMAINS,
        "haproxy-kubefigurator.web.listen-port": PORTS,
        "haproxy-kubefigurator.web.haproxy-mode": st.sampled_from(["http", "tcp"]),
        "haproxy-kubefigurator.web.use-ssl": st.sampled_from(["true", "false"]),
        "haproxy-kubefigurator.wrong": st.just("yes"),
        "kube2lb/external-domains": st.sampled_from(["a.example.com,b.example.com", "~^x$,c.example.com", "- -"]),
        "kube2lb/port-mode": st.sampled_from(['{"web": "tcp"}', '{"other": "http"}', "["]),
        "kube2lb/backend-timeout": st.just('{"web": 500}'),
        ROUTE53: DOMAINS,
        CONFIG: st.just("{{ hosts }}"),
    },
)
OWNERS = st.sampled_from(["a", "a", "b"])
LABELS = st.fixed_dictionaries({}, optional={"app": st.sampled_from(["a", "b", "two words"]), "tier": st.just("x")})


@st.composite
def services(draw: st.DrawFn, name: str, namespace: str) -> Service:
    enabled = {"haproxy-kubefigurator.enabled": "yes"} if draw(st.booleans()) else {}
    meta = ObjectMeta(name, namespace, creation_timestamp=draw(CREATED), labels=enabled, annotations=draw(ANNOTATIONS))
    ports = [ServicePort("web", 80, "web", draw(st.sampled_from([0, 30080])), "TCP")]
    ports += [ServicePort("db", 5432, 5432, 30432, "TCP")] if draw(st.booleans()) else []
    kind = draw(st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]))
    class_ = draw(st.sampled_from([None, LOAD_BALANCER_CLASS])) if kind == "LoadBalancer" else None
    status = {"loadBalancer": {"ingress": [{"ip": draw(st.sampled_from(POOL))}]}} if draw(st.booleans()) else None
    spec = ServiceSpec(tuple(ports), kind, draw(st.sampled_from([None, "Local"])), load_balancer_class=class_)
    return Service(meta, spec, status)


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, Key, Any]:
    """One object that appears, changes or (None) goes away."""
    name, namespace = draw(NAMES), draw(NAMESPACES)
    members = draw(st.lists(st.builds(endpoint, ADDRESSES, node=st.just("n1"), ready=st.booleans()), max_size=3))
    kind = draw(st.sampled_from(["services", "endpointslices", "endpoints", "nodes", "secrets", "config_maps", "pods"]))
    made: Any = None
    match kind:
        case "services":
            made = draw(services(name, namespace))
        case "endpointslices":
            ports = (EndpointPort("web", 8080, "TCP"), EndpointPort("db", 5432, "TCP"))
            suffix = draw(st.sampled_from("xy"))
            made = slice_(draw(NAMES), *members, namespace=namespace, suffix=suffix, ports=ports)
        case "endpoints":
            found = draw(st.lists(ADDRESSES, max_size=2))
            made = endpoints(name, draw(ANNOTATIONS), subset(*found, name="web"), namespace=namespace)
        case "nodes":
            made = node(draw(st.sampled_from(["n1", "n2"])), "192.0.2.1", ready=draw(st.booleans()))
        case "secrets":
            name = draw(st.sampled_from(["keys", "tls"]))
            pair = {"tls.key": certificate(draw(OWNERS))[0], "tls.crt": certificate(draw(OWNERS))[1]}
            data = {"tls": certificate("a")[0]} if name == "keys" else pair
            made = replace_type(secret(name, data, "lb" if name == "keys" else namespace), name)
            if name == "tls" and draw(st.booleans()):
                kind = "former_secrets"
        case "config_maps":
            name = draw(st.sampled_from(["services", "certificates", "config"]))
            made = config_map(name, draw(DATA[name]))
        case "pods":
            made = draw(
                st.builds(
                    pod,
                    NAMES,
                    ADDRESSES,
                    LABELS,
                    namespace=NAMESPACES,
                    annotations=st.sampled_from([{}, {MASTER: "lb"}, {MASTER: "lb", CONFIG: "x"}]),
                    ready=st.booleans(),
                    created=CREATED.filter(bool),
                )
            )
    key = Key(made.metadata.namespace, made.metadata.name)
    return kind, key, made if draw(st.integers(0, 3)) else None


def replace_type(made: Secret, name: str) -> Secret:
    return made if name == "keys" else Secret(made.metadata, "kubernetes.io/tls", made.data)


ENTRY = st.fixed_dictionaries(
    {"namespace": NAMESPACES, "selector": st.sampled_from([{}, {"app": "a"}, {"app": "b", "tier": "x"}, {"app": 1}])},
    optional={"hostnames": st.lists(DOMAINS, max_size=2), "path": st.sampled_from(["/x", ""]), "ssl": st.booleans()},
)
DATA: Mapping[str, st.SearchStrategy[dict[str, str]]] = {
    "services": st.dictionaries(st.sampled_from(["a", "A", "b", "c", "- -"]), ENTRY.map(json.dumps) | st.just("{")),
    "certificates": st.dictionaries(st.sampled_from(["tls", "other"]), st.just(certificate("a")[1])),
    "config": st.dictionaries(st.just("template"), st.sampled_from(["one", "two"])),
}
FACTS = st.sampled_from(
    [
        HostFacts(),
        HostFacts(frozenset({"127.0.0.1"})),
        HostFacts(frozenset({"127.0.0.1"}), certificates={}),
        HostFacts(hour=10_000_000),  # when all certificates have expired
    ]
)
RESERVATION = Reservation(Owner("Service", "shop", "a", "2026-01-01T12:00:00Z"))
OWN = PresetOptions(
    addresses=AddressOptions(POOL),
    own=own_options(
        Kube2lbOptions(server_name_templates=("{{ .Service.Name }}.example.com",)),
        HostsOptions(master="lb", selector={"app": "b"}, config=ObjectRef("Service", "demo", "a")),
    ),
    tls=TlsOptions("/f", ("demo",)),
)
RULES = ClaimOptions((Rule(("demo",), ("a.example.com",), ("http",)), Rule(("*",))), (), frozenset({"10.0.0.2"}))
KEPT = {
    "shared-hosts": {
        Name("", "a.example.com"): RESERVATION._replace(until=99.0),
        Name("", "b.example.com"): RESERVATION,
    },
    "domains": {Name("port 5432", ""): RESERVATION},
    "kubefigurator": {Name("*:443", "a.example.com"): RESERVATION, Name("*:80", ""): RESERVATION},
    "kube2lb": {Name("0.0.0.0:80/tcp", "a.example.com"): RESERVATION, Name("0.0.0.0:5432/tcp", ""): RESERVATION},
    "addresses": {Name("192.0.2.1:80", ""): RESERVATION, Name("192.0.2.2", ""): RESERVATION._replace(until=99.0)},
    "hosts": {Name("", "a"): RESERVATION, Name("", "b"): Reservation(owned_by("demo"))},
}
OPTIONS = st.sampled_from(
    [
        replace(OWN, claims=RULES),
        replace(OWN, reservations=KEPT),
        replace(OWN, claims=RULES, reservations={name: KEPT[name] for name in ("hosts", "kube2lb", "shared-hosts")}),
        OWN,
        OWN,
        replace(OWN, node_ports=True, own={**OWN.own, KubefiguratorOptions: KubefiguratorOptions(node_ports=False)}),
        replace(OWN, taken_listeners=TAKEN_TWO),
        replace(OWN, tls=TlsOptions("/f", ("*",), Key("demo", "tls"))),
        replace(
            OWN, own={**OWN.own, HostsOptions: replace(OWN.of(HostsOptions), config=ObjectRef("Pod", "demo", "a"))}
        ),
    ]
)
STEPS = st.lists(st.tuples(st.lists(changes(), max_size=4), FACTS, OPTIONS), min_size=1, max_size=8)


@dataclass(frozen=True, slots=True)
class Seen:
    """All of a Context that can be compared by value."""

    context: Context
    names: dict[str, Any]
    server_names: list[list[str]]
    nodes: list[tuple[str, str, str]]


def seen(context: Context) -> Seen:
    own = dict(context.names.get("kube2lb", {}))
    names = {name: value for name, value in context.names.items() if name not in {"kube2lb", "ServerNames"}}
    give = own.pop("ServerNames", None)
    given_names = [give(each, domain) for each in own.get("services", ()) for domain in ("local", "other.example")]
    nodes = [(str(each), each.address, each.zone) for each in own.get("nodes", ())]
    return Seen(replace(context, names={}), {**names, "own": own}, given_names, nodes)


def snapshots(steps: Any) -> Iterator[tuple[Snapshot, PresetOptions]]:
    stores: dict[str, dict[Key, Any]] = {}
    for changed, facts, options in steps:
        for kind, key, record in changed:
            store = dict(stores.get(kind, {}))
            store.pop(key, None)
            stores[kind] = store if record is None else {**store, key: record}
        yield Snapshot(host=facts, **stores), options  # type: ignore[arg-type]


@given(steps=STEPS)
@settings(deadline=None, max_examples=40)
def test_collections_are_those_of_a_new_graph_and_no_call_is_superfluous(steps: Any) -> None:
    def see(graph: PresetGraph, snapshot: Snapshot, options: PresetOptions) -> PresetGraph:
        graph.see(snapshot, options)
        return graph

    graph = PresetGraph("", [registry.PRESETS[name] for name in ALL])
    calls = CheckedCalls(graph.graph)
    for snapshot, options in snapshots(steps):
        before = items_of(graph.graph)
        see(graph, snapshot, options)
        calls.settled()
        mine, fresh = (
            items_of(graph.graph),
            items_of(see(PresetGraph("", [registry.PRESETS[name] for name in ALL]), snapshot, options).graph),
        )
        assert [(name, mine[name], fresh[name]) for name in mine if mine[name] != fresh[name]] == []
        see_that_changes_are_told(before, graph.graph)


@pytest.mark.parametrize("names", [ALL, ALL[::-1]], ids="+".join)
@given(steps=STEPS)
@settings(deadline=None, max_examples=25)
def test_any_sequence_of_changes_gives_what_a_fresh_translation_gives(names: tuple[str, ...], steps: Any) -> None:
    memo = Memo()
    for snapshot, options in snapshots(steps):
        assert seen(registry.translate(snapshot, names, options, memo)) == seen(
            registry.translate(snapshot, names, options)
        )
        taken_listeners = replace(options, taken_listeners=TAKEN)
        assert seen(registry.translate(snapshot, names, taken_listeners, memo)) == seen(
            registry.translate(snapshot, names, taken_listeners)
        )


def test_a_name_that_new_rules_forbid_is_gone_at_once() -> None:
    memo, seen_ = Memo(), objects.snapshot(service("a", {"domain": "b.example.com", "proto": "http"}))
    assert list(registry.translate(seen_, ("domains",), OWN, memo).names["domains"]) == ["b.example.com"]
    assert registry.translate(seen_, ("domains",), replace(OWN, claims=RULES), memo).names["domains"] == {}


def world(count: int) -> Snapshot:
    stores: dict[str, dict[Key, Any]] = {"services": {}, "endpointslices": {}, "pods": {}, "config_maps": {}}
    entries = {}
    for number in range(count):
        name, key = f"s{number}", Key("demo", f"s{number}")
        notes = {
            "domain": f"{name}.example.com",
            "proto": "http",
            "haproxy-kubefigurator.web.hostname": f"{name}.example.com",
        }
        plain = service(name, notes, ports=[ServicePort("web", 80, "web", 30000 + number)], type_="NodePort")
        meta = ObjectMeta(name, "demo", labels={"haproxy-kubefigurator.enabled": "yes"}, annotations=notes)
        stores["services"][key] = Service(meta, plain.spec)
        stores["endpointslices"][Key("demo", f"{name}-a")] = slice_(name, endpoint(f"10.0.0.{number}"))
        stores["pods"][key] = pod(name, f"10.0.0.{number}", {"app": name}, annotations={MASTER: "lb"})
        entries[name] = json.dumps({"namespace": "demo", "selector": {"app": name}})
    stores["config_maps"][Key("lb", "services")] = config_map("services", entries)
    return Snapshot(**stores)  # type: ignore[arg-type]


def with_new_address(snapshot: Snapshot, name: str) -> Snapshot:
    slices = {**snapshot.endpointslices, Key("demo", f"{name}-a"): slice_(name, endpoint("10.9.9.9"))}
    pods = {**snapshot.pods, Key("demo", name): pod(name, "10.9.9.9", {"app": name}, annotations={MASTER: "lb"})}
    return replace(snapshot, endpointslices=slices, pods=pods)


OPTIONS_OF_PODS = PresetOptions(own=own_options(KubefiguratorOptions(node_ports=False), HostsOptions(master="lb")))


def by_service(context: Context) -> dict[str, Any]:
    """Return what each service's block would be rendered from."""
    names = context.names
    found = {f"view {each.name}": each for each in names["cluster"].services}
    found |= {f"domain {name}": each for name, each in names["domains"].items()}
    found |= {f"backend {each.name}": each for each in names["backends"]}
    found |= {f"kube2lb {each.name}": each for each in names["kube2lb"]["services"]}
    found |= {f"configmap {each['name']}": each for each in names["configmap"]["services"]}
    return found | {f"host {app}": each for app, each in names["hosts"].items()}


def test_what_did_not_change_is_the_same_object() -> None:
    memo, before = Memo(), world(5)
    first = by_service(registry.translate(before, ALL, OPTIONS_OF_PODS, memo))
    second = by_service(registry.translate(with_new_address(before, "s3"), ALL, OPTIONS_OF_PODS, memo))

    assert len(first) == 6 * 5
    assert first.keys() == second.keys()
    again = {name for name, each in second.items() if each is not first[name]}
    assert again == {
        "view s3", "domain s3.example.com", "backend k8s-service_demo_s3_web_backend", "kube2lb s3", "configmap s3",
        "host s3",
    }  # fmt: skip


def test_the_same_snapshot_is_not_read_again() -> None:
    memo, snapshot = Memo(), world(3)
    first = registry.translate(snapshot, ALL, OPTIONS_OF_PODS, memo)
    taken_listeners = replace(OPTIONS_OF_PODS, taken_listeners=TAKEN)
    registry.translate(snapshot, ALL, taken_listeners, memo)
    again = registry.translate(snapshot, ALL, OPTIONS_OF_PODS, memo)

    assert all(again.names[name] is first.names[name] for name in ("cluster", "domains", "hosts"))
    assert again == first


def test_after_a_bug_all_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    memo, seen = Memo(), world(2)
    first = registry.translate(seen, ("domains",), OPTIONS_OF_PODS, memo)
    with monkeypatch.context() as patched:
        patched.setattr(PresetGraph, "result", lambda *_: 1 // 0)
        with pytest.raises(RejectedInput) as raised:
            registry.translate(seen, ("domains",), OPTIONS_OF_PODS, memo)
    message = "a bug of pyconfd (ZeroDivisionError): the presets can make nothing of the cluster"
    remedy = "the running configuration stays; report it with the traceback:"
    remedy += " journalctl -u pyconfd | grep translation.failed"
    assert raised.value.problems == (Problem("presets", message, remedy),)
    assert raised.value.step == "render"
    with pytest.raises(RuntimeError):
        _ = memo.graph
    again = registry.translate(seen, ("domains",), OPTIONS_OF_PODS, memo)
    assert again == first
    assert again.names["domains"] is not first.names["domains"]


def test_with_other_presets_in_use_there_are_their_collections_only() -> None:
    memo, seen = Memo(), world(2)

    def collections() -> set[str]:
        return {each.name for each in memo.graph.graph.collections}

    assert registry.translate(seen, ("domains",), OPTIONS_OF_PODS, memo).names["domains"]
    few = collections()
    both = registry.translate(seen, ("ingress", "kubefigurator"), OPTIONS_OF_PODS, memo)
    assert both == registry.translate(seen, ("ingress", "kubefigurator"), OPTIONS_OF_PODS)
    assert {each for each in collections() - few if "kubefigurator" in each}
    assert not {each for each in few if "kubefigurator" in each}
    assert registry.translate(seen, ("domains",), OPTIONS_OF_PODS, memo).names["domains"]
    assert collections() == few


def test_endpoints_beside_slices_leave_the_names_the_same_object() -> None:
    """A controller manager writes both for each pod: the second event changes nothing that templates see."""
    memo, before = Memo(), world(5)

    def names(snapshot: Snapshot) -> Mapping[str, Any]:
        return registry.translate(snapshot, AUTOMATIC_PRESETS, OPTIONS_OF_PODS, memo).names

    first, key = names(before), Key("demo", "s1")
    beside = Endpoints(ObjectMeta(key.name, key.namespace), (subset("10.0.0.9", name="web"),))
    assert names(replace(before, endpoints={**before.endpoints, key: beside})) is first
    assert names(with_new_address(before, "s1")) is not first


def test_what_a_template_does_to_a_whole_does_not_reach_the_next_translation() -> None:
    memo, before = Memo(), world(3)
    first = registry.translate(before, ALL, OPTIONS_OF_PODS, memo).names
    entries = first["configmap"]["services"]
    pods = entries[0]["pods"]
    for given_ in (
        first["domains"],
        first["hosts"],
        first["hosts"]["s1"],
        entries,
        entries[0],
        pods,
        pods["s0"]["spec"],
    ):
        with pytest.raises(TypeError):
            given_.clear()
    for each in (first["kube2lb"]["services"], first["backends"]):
        each.clear()
    after = with_new_address(before, "s1")

    assert seen(registry.translate(after, ALL, OPTIONS_OF_PODS, memo)) == seen(
        registry.translate(after, ALL, OPTIONS_OF_PODS)
    )


@pytest.mark.parametrize("preset", ALL)
def test_what_is_gone_is_forgotten(preset: str) -> None:
    memo, snapshot = Memo(), world(3)
    key = Key("demo", "s1")
    options = (OPTIONS_OF_PODS, replace(OPTIONS_OF_PODS, taken_listeners=TAKEN))
    for each in options:
        registry.translate(snapshot, (preset,), each, memo)
    gone = [snapshot.services[key], snapshot.endpointslices[Key("demo", "s1-a")], snapshot.pods[key]]
    for kind in ("services", "endpointslices", "pods"):
        store = {k: v for k, v in getattr(snapshot, kind).items() if not k.name.startswith("s1")}
        snapshot = replace(snapshot, **{kind: store})  # type: ignore[arg-type]
    for _ in range(3):
        snapshot = replace(snapshot)
        registry.translate(snapshot, (preset,), options[0], memo)

    # One reference is that of the list, one that of the comprehension, one that of the call.
    assert [sys.getrefcount(record) for record in gone] == [3, 3, 3]
