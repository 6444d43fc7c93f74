"""What becomes of each claim: every one has its conditions, and the first that is not true says why."""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.admission.removal_protection import kept_back
from pyconfd.explain.conditions import Evidence, report_of
from pyconfd.explain.queries import explain
from pyconfd.explain.text import render
from pyconfd.haproxy.runtime.servers_now import ServerNow
from pyconfd.model.claim import Claim
from pyconfd.model.condition import Age, Condition, ConditionStatus, ConditionType, condition_of_refusal, type_of
from pyconfd.model.context import AUTOMATIC_PRESETS, Context, PresetName, Refusal, RefusalReason
from pyconfd.model.explanation import ClaimReport, InstanceState
from pyconfd.model.kubernetes import (
    ConfigMap,
    EndpointPort,
    Endpoints,
    EndpointSlice,
    ObjectRef,
    Secret,
    Service,
    ServicePort,
)
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import FileKind, OutputFile, Rendering
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.predecessors.hosts import HostsOptions
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.presets import registry, values
from pyconfd.presets.preset import PresetOptions, own_options
from tests.explain.world import evidence_of, reasons, reasons_of, reports_of
from tests.presets import kube2lb, objects, pods
from tests.presets.ingress import objects as ingresses
from tests.presets.pods import certificate
from tests.presets.smuggling import SCENES
from tests.presets.smuggling import rendered as smuggled
from tests.presets.smuggling import snapshot as smuggling_snapshot
from tests.presets.test_properties import DATA, OBJECTS, PODS, pods_of

_T = TypeVar("_T")
OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
WEB = Key("shop", "web")
KUBEFIGURATOR = "haproxy-kubefigurator."
ENTRY = {"namespace": "demo", "selector": {"app": "shop"}, "hostnames": ["a.example.com"]}
TCP_ONLY = {
    "04-tcp.tmpl": """{% for domain, items in domains.items() if items.listen_port %}
backend be-{{ items.key }}
{% for server in items.endpoints | servers %}
    server {{ server.name }} {{ server.target }}
{% endfor %}
{% endfor %}
"""
}
"""Without a port there is no backend, as in the shipped fragment."""

HOSTS = HostsOptions(selector={"app": "shop"})
DOMAINS = ("a.example.com", "b.example.com", "*.example.com", "A.example.com", "not a name", "")
ANNOTATIONS = {
    "domain": DOMAINS,
    "proto": ("http", "redis", "sm tp", ""),
    "pyconfd.io/domain": DOMAINS,
    "pyconfd.io/port": ("web", "80", "nope"),
    "pyconfd.io/listen-port": ("6379", "22", "x"),
    "kube2lb/external-domains": ("x.example.com", "~^a", "no name"),
    "haproxy-kubefigurator.web.hostname": DOMAINS,
    "haproxy-kubefigurator.web.use-ssl": ("false", ""),
    "haproxy-kubefigurator.web.listen-port": ("443", "22"),
}


def random_cluster(rng: Random) -> Snapshot:
    """Return Services and Endpoints that claim this and that, with endpoints in all states."""

    def mostly(values: Sequence[_T]) -> _T:
        """Return one of some values, mostly the first, so that a claim is not always spoilt by one of its values."""
        return values[0] if rng.random() < 0.7 else rng.choice(values)

    found: list[Any] = [objects.node("n1", "192.0.2.1", ready=rng.random() < 0.7)]
    for name, namespace in (("web", "shop"), ("api", "shop"), ("web", "prod")):
        annotations = {key: mostly(values) for key, values in ANNOTATIONS.items() if rng.random() < 0.6}
        ports = [
            ServicePort(
                mostly(("web", "redis", None)),
                mostly((80, 443, 6379)),
                None,
                mostly((30080, 0)),
                mostly(("TCP", "UDP")),
            )
            for _ in range(mostly((1, 0, 2)))
        ]
        type_ = rng.choice(("ClusterIP", "NodePort", "LoadBalancer"))
        service = objects.service(name, annotations, namespace=namespace, ports=ports, type_=type_)
        labels = rng.choice(({}, {f"{KUBEFIGURATOR}enabled": "yes"}))
        found.append(
            msgspec.structs.replace(service, metadata=msgspec.structs.replace(service.metadata, labels=labels))
        )
        states = [mostly(("ready", "down", "leaving")) for _ in range(rng.randint(0, 3))]
        ends = [
            objects.endpoint(
                f"10.0.0.{at}",
                pod=f"{name}-{at}",
                node="n1",
                ready=state == "ready",
                serving=state != "down",
                terminating=state == "leaving",
            )
            for at, state in enumerate(states, 1)
        ]
        slice_ports = [EndpointPort("web", 8080, "TCP"), EndpointPort(None, rng.choice((80, 8080)), "TCP")]
        found.append(objects.slice_(name, *ends, namespace=namespace, ports=slice_ports))
        if rng.random() < 0.3:
            found.append(
                objects.endpoints(name, annotations, objects.subset("10.0.0.9", name="web"), namespace=namespace)
            )
    return objects.snapshot(*(each for each in found if rng.random() < 0.9))


def expected(snapshot: Snapshot, presets: tuple[str, ...]) -> Iterator[tuple[str, str, str, str]]:
    """Say, without looking at how presets read, what somebody may expect to be served."""
    for key, service in snapshot.services.items():
        annotations, labels = service.metadata.annotations or {}, service.metadata.labels or {}
        own = {name: annotations.get(f"pyconfd.io/{name}", annotations.get(name, "")) for name in ("domain", "proto")}
        if any(own.values()) and PresetName.DOMAINS in presets:
            yield PresetName.DOMAINS, "Service", *key
        if labels.get("haproxy-kubefigurator.enabled") == "yes" and PresetName.KUBEFIGURATOR in presets:
            yield PresetName.KUBEFIGURATOR, "Service", *key
        if service.spec.type in {"NodePort", "LoadBalancer"} and PresetName.KUBE2LB in presets:
            yield PresetName.KUBE2LB, "Service", *key
    for key, endpoints in snapshot.endpoints.items():
        annotations = endpoints.metadata.annotations or {}
        if (annotations.get("domain") or annotations.get("proto")) and PresetName.DOMAINS in presets:
            yield PresetName.DOMAINS, "Endpoints", *key
    for key, pod in snapshot.pods.items():
        if (pod.metadata.labels or {}).get("app") == "shop" and PresetName.HOSTS in presets:
            yield PresetName.HOSTS, "Pod", *key


@given(
    st.randoms(use_true_random=False),
    st.lists(OBJECTS[Resource.SERVICES], max_size=2),
    PODS,
    DATA,
    st.sets(st.sampled_from(list(PresetName)), min_size=1),
    st.booleans(),
)
def test_every_claim_has_its_conditions_and_a_reason(
    rng: Random,
    hostile: list[dict[str, Any]],
    made: list[dict[str, Any]],
    entries: dict[str, str],
    chosen: set[PresetName],
    node_ports: bool,
) -> None:
    presets = tuple(sorted(chosen))
    options = PresetOptions(
        node_ports=node_ports, own=own_options(KubefiguratorOptions(node_ports=not node_ports), HOSTS)
    )
    snapshot = random_cluster(rng)
    services = {
        Key(each.metadata.namespace, each.metadata.name): each for each in msgspec.convert(hostile, list[Service])
    }
    maps = {Key("lb", "services"): ConfigMap(ObjectMeta("services", "lb"), entries)}
    snapshot = replace(snapshot, services={**services, **snapshot.services}, pods=pods_of(made), config_maps=maps)
    evidence = evidence_of(snapshot, presets, options)

    claims = evidence.claims
    asked = [(claim.preset, claim.ref.kind, claim.ref.namespace, claim.ref.name) for claim in claims]
    unread = set(expected(snapshot, presets)) - set(asked)
    # Of a Service that is refused as a whole nothing is read: its refusal says so.
    refused = {(each.ref.kind, each.ref.namespace, each.ref.name) for each in evidence.refused}
    assert sorted(each for each in unread if (each[1], *map(values.shortened, each[2:])) not in refused) == []
    assert len({(claim.preset, claim.ref, claim.item) for claim in claims}) == len(claims)
    if PresetName.CONFIGMAP in presets:
        assert sum(claim.preset == PresetName.CONFIGMAP for claim in claims) == len(entries)
    for claim in claims:
        report = report_of(claim, evidence)
        found = reasons_of(report)
        assert [each.type for each in report.conditions] == sorted(
            (each.type for each in report.conditions), key=list(ConditionType).index
        )
        assert {each.type for each in report.conditions} == set(ConditionType)
        # The templates render all that they are given, and it is applied: these are never the reason.
        assert found
        assert not {"Unexplained", "NoServer", "NotUsed", "Pending"} & set(found), (claim, found)
        assert ("Programmed" in found) == bool(report.servers)
        for server in report.servers:
            assert f" {server.address}" in evidence.configuration.lines[server.line - 1]


@pytest.mark.parametrize("scene", SCENES)
def test_each_thing_that_is_served_is_a_backend_of_a_claim(scene: str) -> None:
    _, context = smuggled(scene, smuggling_snapshot({}))
    (served,) = context.claimed
    backends = [backend.key for claim in context.claims[served.preset]() for backend in claim.backends]
    assert served.by_name
    assert set(served.by_name) <= set(backends)


def annotated(name: str = "web", **annotations: str) -> Service:
    made = {"domain": "a.example.com", "proto": "http", **annotations}
    record = {
        "metadata": {"name": name, "namespace": "shop", "annotations": made},
        "spec": {"ports": [{"name": "web", "port": 80}]},
    }
    return msgspec.convert(record, Service)


def slice_of(name: str = "web", *, ready: bool = True) -> EndpointSlice:
    record = {
        "metadata": {"name": f"{name}-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": ready}, "targetRef": {"kind": "Pod", "name": "p"}}
        ],
        "ports": [{"name": "web", "port": 8080}],
    }
    return msgspec.convert(record, EndpointSlice)


def evidence(*, ready: bool = True, **more: Any) -> Evidence:
    snapshot = Snapshot(services={WEB: annotated()}, endpointslices={WEB: slice_of(ready=ready)})
    return evidence_of(snapshot, **more)


def rejected(reason: RefusalReason) -> Refusal:
    return Refusal(ObjectRef("Service", "shop", "web"), "annotation domain", "a", reason, "because")


NO_CONFIG = Rendering(())
A, RR, R, P = ConditionType
TRUE, FALSE, UNKNOWN = ConditionStatus


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [(A, TRUE, A), (RR, TRUE, RR), (R, TRUE, R), (P, TRUE, P)]),
        (
            {"ready": False},
            [(A, TRUE, A), (RR, FALSE, "NoReadyEndpoints"), (R, UNKNOWN, "Blocked"), (P, FALSE, "Blocked")],
        ),
        (
            {"templates": {"10.tmpl": "global\n"}},
            [(A, TRUE, A), (RR, TRUE, RR), (R, FALSE, "NoServer"), (P, FALSE, "Blocked")],
        ),
        ({"running": NO_CONFIG}, [(A, TRUE, A), (RR, TRUE, RR), (R, TRUE, R), (P, FALSE, "Pending")]),
        (
            {"running": NO_CONFIG, "instance": InstanceState(phase="held", hold_id="3f9c")},
            [(A, TRUE, A), (RR, TRUE, RR), (R, TRUE, R), (P, FALSE, "Held")],
        ),
        (
            # What waits for a reload is not held because removals are.
            {"running": NO_CONFIG, "instance": InstanceState(phase="held", hold_id="3f9c", held_since=400.0)},
            [(A, TRUE, A), (RR, TRUE, RR), (R, TRUE, R), (P, FALSE, "Pending")],
        ),
        (
            {"running": NO_CONFIG, "instance": InstanceState(paused=True)},
            [(A, TRUE, A), (RR, TRUE, RR), (R, TRUE, R), (P, FALSE, "Paused")],
        ),
        (
            {"templates": {}, "haproxy": False},
            [(A, TRUE, A), (RR, TRUE, RR), (R, TRUE, R), (P, UNKNOWN, "ProgrammedByTargets")],
        ),
    ],
)
def test_each_stage_at_which_a_claim_may_end(more: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    report = reports_of(evidence(**more))["web"]
    assert [(each.type, each.status, each.reason) for each in report.conditions] == expected
    assert bool(report.remedy) == (report.conditions[-1].status is FALSE)


def test_a_note_leaves_an_object_accepted_and_says_what_is_to_be_known() -> None:
    note = rejected(RefusalReason.IGNORED_ANNOTATION)
    report = reports_of(replace(evidence(), refused=(note,)))["web"]
    first = report.conditions[0]
    assert (first.type, first.status, first.reason) == (A, TRUE, "IgnoredAnnotation")
    assert report.conditions[-1].status is TRUE
    assert report.remedy == ""


@pytest.mark.parametrize("reason", [each for each in RefusalReason if not each.is_note])
def test_each_refusal_ends_at_its_stage(reason: RefusalReason) -> None:
    later = {R: {"bad_template", "quarantined", "internal_error"}, RR: set[str]()}
    later[RR] = {"no_such_port", "no_node_port", "no_such_service", "no_such_address", "no_certificate", "forbidden"}
    assert type_of(reason) is next((stage for stage, reasons in later.items() if reason in reasons), A)
    ages = {rejected(reason): Age(400.0)}
    unserved = Context({}, claims={"domains": lambda: [Claim(rejected(reason).ref, "domains", "", ("a",), ())]})
    made = replace(evidence(ages=ages), context=unserved, desired=None, running=None, refused=tuple(ages))
    (report,) = reports_of(made).values()
    (condition,) = [each for each in report.conditions if each.type is type_of(reason)]
    assert condition == condition_of_refusal(rejected(reason), 400.0)
    assert condition.message == "annotation domain a: because"
    assert report.conditions[-1] == Condition(P, FALSE, "Blocked", f"{condition.type} is False")
    assert report.remedy


@pytest.mark.parametrize("items", [[], [{"addresses": [{"ip": "10.0.0.9"}], "ports": [{"name": "web", "port": 80}]}]])
def test_hand_made_endpoints_claim_too(items: list[dict[str, Any]]) -> None:
    meta = {"name": "web", "namespace": "shop", "annotations": {"domain": "a.example.com", "proto": "http"}}
    endpoints = msgspec.convert({"metadata": meta, "subsets": items}, Endpoints)
    (report,) = reports_of(evidence_of(Snapshot(endpoints={WEB: endpoints}))).values()
    assert report.object == "Endpoints shop/web"
    assert ("Programmed" in reasons_of(report)) == bool(items)


def test_each_entry_of_a_configmap_is_a_claim() -> None:
    services = {"good": json.dumps(ENTRY), "later": json.dumps(ENTRY), "wrong": "{"}
    maps = {Key("lb", "services"): ConfigMap(ObjectMeta("services", "lb"), services)}
    snapshot = Snapshot(pods={Key("demo", "p"): pods.pod("p", "10.0.0.1", {"app": "shop"})}, config_maps=maps)
    assert reasons(evidence_of(snapshot, (PresetName.CONFIGMAP,))) == {
        "services good": ["Programmed"],
        "services later": ["InvalidValue", "NameTaken"],
        "services wrong": ["InvalidValue"],
    }


def labelled(name: str, created: str = OLD, **hosts: str) -> Service:
    """Return a Service of kubefigurator with a port for each host."""
    annotations = {f"{KUBEFIGURATOR}{port}.hostname": host for port, host in hosts.items() if host}
    annotations |= {f"{KUBEFIGURATOR}{port}.use-ssl": "false" for port in hosts}
    ports = [ServicePort(port, number, port, 30000 + number) for number, port in enumerate(hosts, 80)]
    made = objects.service(name, annotations, created=created, type_="NodePort", ports=ports)
    labels = {f"{KUBEFIGURATOR}enabled": "yes"}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


def slices(*names: str, ready: bool = True) -> tuple[Any, ...]:
    """Return a slice for each Service, all with the same pod."""
    return tuple(objects.slice_(name, objects.endpoint("10.0.0.1", pod="p", ready=ready)) for name in names)


PODS_OF_KUBEFIGURATOR = PresetOptions(own=own_options(KubefiguratorOptions(node_ports=False)))


def test_claims_of_kubefigurators_services() -> None:
    made = {"a": "a.example.com", "b": "b.example.com", "c": "a.example.com", "d": ""}
    services = [labelled(name, web=host) for name, host in made.items()]
    snapshot = objects.snapshot(*services, *slices("a", "c", "d"), *slices("b", ready=False))
    assert reasons(evidence_of(snapshot, (PresetName.KUBEFIGURATOR,), PODS_OF_KUBEFIGURATOR)) == {
        "a": ["Programmed"],
        "b": ["NoReadyEndpoints"],
        "c": ["NameTaken"],
        "d": ["Incomplete"],
    }


def test_claims_of_kube2lbs_services() -> None:
    services = (kube2lb.service("a"), kube2lb.service("b"), objects.service("c"))
    ends = (
        kube2lb.with_pod("a"),
        objects.slice_("b", objects.endpoint("10.0.0.2", ready=False), ports=(kube2lb.SLICE_HTTP,)),
    )
    found = reasons(evidence_of(objects.snapshot(*services, *ends), (PresetName.KUBE2LB,)))
    assert found == {"a": ["Programmed"], "b": ["NoReadyEndpoints"]}


def test_claims_of_pods() -> None:
    def pod(name: str, address: str, *, app: str = "shop", namespace: str = "demo", ready: bool = True) -> Any:
        return {
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": app, "role": "target"}},
            "status": {"podIP": address, "phase": "Running", "containerStatuses": [{"ready": ready}]},
        }

    made = [
        pod("a", "10.0.0.1"),
        pod("b", "10.0.0.2", ready=False),
        pod("c", "10.0.0.3", namespace="prod"),
        pod("d", "10.0.0.1", app="no word"),
        pod("e", ""),
    ]
    options = PresetOptions(own=own_options(HostsOptions(selector={"role": "target"})))
    assert reasons(evidence_of(Snapshot(pods=pods_of(made)), ("hosts",), options)) == {
        "a": ["Programmed"],
        "b": ["NoReadyEndpoints"],
        "c": ["NameTaken"],
        "d": ["Incomplete"],
        "e": ["NoReadyEndpoints"],
    }


# Whose servers are whose


def domain(name: str, host: str, proto: str = "http", created: str = OLD, **more: Any) -> Service:
    return objects.service(name, {"domain": host, "proto": proto}, created=created, **more)


@pytest.mark.parametrize("templates", [None, TCP_ONLY])
def test_a_refused_port_is_not_served_by_anothers_servers(templates: dict[str, str] | None) -> None:
    ports = (ServicePort("web", 6379, "web"),)
    first = domain("a", "a.example.com", "redis", ports=ports)
    second = domain("b", "b.example.com", "redis", NEW, ports=ports)
    found = reports_of(evidence_of(objects.snapshot(first, second, *slices("a", "b")), templates=templates))
    assert {server.backend for server in found["a"].servers} == {"be-a.example.com"}
    assert reasons_of(found["b"]) == ["PortTaken"]


def test_two_services_with_one_pod_have_their_own_servers() -> None:
    # The name of one backend ends with that of the other.
    first, second = domain("a", "a.example.com"), domain("b", "b-a.example.com")
    found = reports_of(evidence_of(objects.snapshot(first, second, *slices("a", "b"))))
    backends = {name: [server.backend for server in report.servers] for name, report in found.items()}
    assert backends == {"a": ["be-a.example.com"], "b": ["be-b-a.example.com"]}


def of_host(host: str, evidence: Evidence) -> dict[str, ClaimReport]:
    return {report.object.rpartition("/")[2]: report for report in explain(host, evidence).claims}


def test_a_refused_name_is_not_served_though_another_name_is() -> None:
    services = (labelled("a", web="x.example.com"), labelled("b", NEW, web="x.example.com", api="y.example.com"))
    ports = (EndpointPort("web", 8080, "TCP"), EndpointPort("api", 9090, "TCP"))
    ends = [objects.slice_(name, objects.endpoint("10.0.0.1"), ports=ports) for name in "ab"]
    evidence = evidence_of(objects.snapshot(*services, *ends), (PresetName.KUBEFIGURATOR,), PODS_OF_KUBEFIGURATOR)
    found = {name: reasons_of(report) for name, report in of_host("x.example.com", evidence).items()}
    assert found == {"a": ["Programmed"], "b": ["NameTaken"]}
    assert [server.address for server in of_host("y.example.com", evidence)["b"].servers] == ["10.0.0.1:9090"]
    assert reasons(evidence)["b"] == ["NameTaken", "Programmed"]


def test_a_refused_external_domain_of_kube2lb_is_not_served() -> None:
    note = {"kube2lb/external-domains": "x.example.com"}
    services = (kube2lb.service(name, note, created=at) for name, at in (("a", OLD), ("b", NEW)))
    ends = (kube2lb.with_pod("a"), kube2lb.with_pod("b", "10.0.0.2"))
    evidence = evidence_of(objects.snapshot(*services, *ends), (PresetName.KUBE2LB,))
    found = {name: reasons_of(report) for name, report in of_host("x.example.com", evidence).items()}
    assert found == {"a": ["Programmed"], "b": ["NameTaken"]}
    assert reasons(evidence)["b"] == ["NameTaken", "Programmed"]


UDP = (ServicePort("web", 80, "web", 30080, "UDP"),)
UDP_SLICE = objects.slice_("a", objects.endpoint("10.0.0.1"), ports=(EndpointPort("web", 8080, "UDP"),))


@pytest.mark.parametrize(
    ("preset", "service", "reason", "message"),
    [
        ("domains", domain("a", "a.example.com", type_="ExternalName"), "InvalidValue", "spec.type ExternalName"),
        ("domains", domain("a", "a.example.com", ports=UDP), "InvalidValue", "spec.ports UDP"),
        ("domains", domain("a", "a.example.com", "tcp"), "NotAllowed", "presets.listen_ports"),
        ("domains", objects.service("a", {"domian": "a", "proto": "http"}), "Incomplete", "annotation domain"),
        ("kube2lb", kube2lb.service("a", ports=UDP), "NoListener", "HAProxy balances TCP, not UDP"),
    ],
)
def test_what_haproxy_cannot_serve_says_so(preset: str, service: Service, reason: str, message: str) -> None:
    ends = UDP_SLICE if service.spec.ports == UDP else slices("a")[0]
    (report,) = reports_of(evidence_of(objects.snapshot(service, ends), (preset,), templates={})).values()
    (condition,) = [each for each in report.conditions if each.reason == reason]
    assert message in condition.message


@pytest.mark.parametrize(
    ("service", "hint"),
    [
        (objects.service("a", type_="ExternalName"), "ExternalName"),
        (objects.service("a", ports=UDP), "no TCP port"),
        (objects.service("a", {"domian": "a.example.com"}), "domian has no effect: did you mean domain?"),
        (objects.service("a"), "annotate the Service with domain and proto"),
    ],
)
def test_what_claims_nothing_is_told_what_is_missing(service: Service, hint: str) -> None:
    (report,) = explain("demo/a", evidence_of(objects.snapshot(service))).claims
    assert reasons_of(report) == ["NotClaimed"]
    assert hint in report.remedy


@pytest.mark.parametrize(
    ("service", "first"),
    [
        (objects.service("a"), "annotate the Service"),
        (objects.service("a", type_="LoadBalancer"), "give the Service the type LoadBalancer"),
        (objects.service("a", {"domian": "a", "protoo": "http", "domaim": "b"}), "its annotation domaim"),
    ],
)
def test_two_remedies_are_enough_and_the_likeliest_is_first(service: Service, first: str) -> None:
    evidence = evidence_of(objects.snapshot(service), AUTOMATIC_PRESETS, templates={})
    (report,) = explain("demo/a", evidence).claims
    assert report.remedy.startswith(first)
    assert report.remedy.count("; or ") == 1


def test_draining_pods_are_counted_apart() -> None:
    leaving = [
        objects.endpoint(address, ready=False, serving=True, terminating=True) for address in ("10.0.0.2", "10.0.0.3")
    ]
    for ready, expected in (
        ([objects.endpoint("10.0.0.1")], "served by 1 server, 2 more draining"),
        ([], "served by 2 servers, all of them draining: no ready pod is left"),
    ):
        snapshot = objects.snapshot(domain("a", "a.example.com"), objects.slice_("a", *ready, *leaving))
        report = reports_of(evidence_of(snapshot))["a"]
        assert report.conditions[-1].message == expected
        assert sum(server.draining for server in report.servers) == 2


@pytest.mark.parametrize(
    ("states", "message", "remedy"),
    [
        ({"1": "drain", "2": ""}, "served by 1 server, 1 more taken out by hand", ""),
        (
            {"1": "drain", "2": "maint"},
            "served by 2 servers, all of them taken out by hand",
            "pyconfd server ready be-",
        ),
        (
            {"1": "drain", "9": "drain"},
            "served by 2 servers, 1 of them taken out by hand, the others draining",
            "ready",
        ),
        ({"9": "drain"}, "served by 1 server, all of them draining: no ready pod is left", "look at the pods"),
    ],
)
def test_servers_taken_out_by_hand_are_no_leaving_pods(states: dict[str, str], message: str, remedy: str) -> None:
    """Pod 9 terminates."""
    pods_ = [
        objects.endpoint(f"10.0.0.{each}", ready=each != "9", serving=True, terminating=each == "9") for each in states
    ]
    snapshot = objects.snapshot(domain("a", "a.example.com"), objects.slice_("a", *pods_))
    live = {
        (line.backend, line.name): ServerNow(
            line.backend, line.name, line.address, line.port, 1, maint=state == "maint", drain=state == "drain"
        )
        for number, state in states.items()
        for line in evidence_of(snapshot).configuration.at(f"10.0.0.{number}")
    }
    report = reports_of(evidence_of(snapshot, live=live))["a"]
    assert report.conditions[-1].message == message
    assert remedy in report.remedy
    assert bool(remedy) == bool(report.remedy)


@pytest.mark.parametrize(
    ("route", "remedy"), [("", "look at the pods"), ("this machine has no route to 10.0.0.1", "ip route get 10.0.0.1")]
)
def test_a_pod_that_is_not_reached_has_haproxys_reason(route: str, remedy: str) -> None:
    snapshot = objects.snapshot(domain("a", "a.example.com"), objects.slice_("a", objects.endpoint("10.0.0.1")))
    (line,) = evidence_of(snapshot).configuration.servers
    down = ServerNow(line.backend, line.name, "10.0.0.1", 8080, 1, maint=False, drain=False, operating=0)
    checks = {(line.backend, line.name): "L4TOUT Layer4 timeout"}
    evidence = evidence_of(
        snapshot,
        live={(line.backend, line.name): down},
        check=lambda *server: checks[server],
        route={"10.0.0.1": route}.get,
    )
    report = reports_of(evidence)["a"]
    why = "; ".join(filter(None, ("L4TOUT Layer4 timeout", route)))
    assert report.servers[0].why == why
    assert report.conditions[-1].message == f"served by 1 server, none of them up: {why}"
    assert remedy in report.remedy
    assert why in render(explain("demo/a", evidence))


# Servers whose removal is held


ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
NODE_ADDRESSES = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
OF_NODES = PresetOptions(node_ports=True)


def cluster(*, ready: int) -> Snapshot:
    """Return two services; of the pods of one, and of the nodes, only the first so many are left."""
    services = []
    for number, name in enumerate(("web", "other"), 80):
        made = labelled(name, web=f"{name}.example.com")
        annotations = {**(made.metadata.annotations or {}), "domain": f"{name}.example.com", "proto": "http"}
        ports = (ServicePort("web", number, "web", 30000 + number),)
        metadata = msgspec.structs.replace(made.metadata, annotations=annotations)
        spec = msgspec.structs.replace(made.spec, ports=ports)
        services.append(msgspec.structs.replace(made, metadata=metadata, spec=spec))
    ends = [
        objects.slice_(name, *map(objects.endpoint, ADDRESSES[:count]))
        for name, count in (("web", ready), ("other", 3))
    ]
    nodes = [objects.node(f"node-{number}", address) for number, address in enumerate(NODE_ADDRESSES[:ready])]
    return objects.snapshot(*services, *ends, *nodes)


def only_pods(*, ready: int) -> Snapshot:
    labels = {"app": "shop", "role": "target"}
    made = [pods.pod(f"shop-{number}", address, labels) for number, address in enumerate(ADDRESSES[:ready])]
    config = ConfigMap(ObjectMeta("services", "lb"), {"web": json.dumps(ENTRY)})
    return Snapshot(
        pods={Key("demo", each.metadata.name): each for each in made}, config_maps={Key("lb", "services"): config}
    )


GONE, GONE_NODES = {*ADDRESSES[1:]}, {*NODE_ADDRESSES[1:]}


@pytest.mark.parametrize(
    ("preset", "options", "make", "held"),
    [
        (PresetName.DOMAINS, PresetOptions(), cluster, {"web": GONE, "other": set()}),
        (PresetName.DOMAINS, OF_NODES, cluster, {"web": GONE_NODES, "other": GONE_NODES}),
        (PresetName.KUBEFIGURATOR, PresetOptions(), cluster, {"web": GONE_NODES, "other": GONE_NODES}),
        (PresetName.KUBE2LB, PresetOptions(), cluster, {"web": GONE, "other": set()}),
        (PresetName.KUBE2LB, OF_NODES, cluster, {"web": GONE_NODES, "other": GONE_NODES}),
        (PresetName.CONFIGMAP, PresetOptions(), only_pods, {"services web": GONE}),
        (
            PresetName.HOSTS,
            PresetOptions(own=own_options(HOSTS)),
            only_pods,
            {"shop-0": set(), "shop-1": {ADDRESSES[1]}, "shop-2": {ADDRESSES[2]}},
        ),
    ],
)
def test_servers_whose_removal_is_held_are_marked(preset: str, options: PresetOptions, make, held) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001 - two of a kind
    served, newer = make(ready=3), make(ready=1)
    before, now = (registry.translate(each, (preset,), options) for each in (served, newer))
    instance = InstanceState("held", 7, 990.0, hold_id="3f9c", held_since=400.0)
    evidence = evidence_of(served, (preset,), options, instance=instance, kept=kept_back(before, now))
    found = reports_of(evidence)
    assert held == {
        name: {server.address.rpartition(":")[0] for server in report.servers if server.held}
        for name, report in found.items()
    }
    for name, report in found.items():
        assert ("pyconfd allow 3f9c" in report.remedy) == bool(held[name])
        assert ("held by removal protection" in report.conditions[-1].message) == bool(held[name])
    assert kept_back(before, before) == {}


def test_what_waits_for_its_namespaces_share_of_reloads_says_so() -> None:
    instance = InstanceState("serving", 7, 990.0, spent_share=("demo",))
    evidence = evidence_of(cluster(ready=3), (PresetName.DOMAINS,), instance=instance, running=Rendering(()))
    report = reports_of(evidence)["web"]
    assert reasons_of(report) == ["ReloadShareSpent"]
    assert "haproxy.max_old_workers" in report.remedy
    other = replace(evidence, instance=msgspec.structs.replace(instance, spent_share=("evil",)))
    assert reasons_of(reports_of(other)["web"]) == ["Pending"]


def test_nothing_is_served_while_haproxy_does_not_run() -> None:
    evidence = evidence_of(cluster(ready=3), (PresetName.DOMAINS,), instance=InstanceState("down", 7, 990.0))
    report = reports_of(evidence)["web"]
    assert reasons_of(report) == ["HAProxyDown"]
    assert report.conditions[-1].status is FALSE
    assert "pyconfd status" in report.remedy
    assert "served by" not in str(report)


INGRESSES = {
    "07-ingress.tmpl": """{% for name, backend in ingress.backends.items() %}
backend {{ name }}
{% for server in backend.servers | servers %}
    server {{ server.name }} {{ server.target }}
{% endfor %}
{% endfor %}
"""
}


@pytest.mark.parametrize("more", ["/", "/more"])
def test_ingress_is_not_programmed_by_the_servers_of_the_one_that_has_its_path(more: str) -> None:
    snapshot = ingresses.snapshot(
        ingresses.ingress_class(),
        *ingresses.service("web", "10.0.0.1"),
        ingresses.ingress("older", {"a.example.com": [ingresses.path("/")]}, day=1),
        ingresses.ingress("younger", {"a.example.com": [ingresses.path("/"), ingresses.path(more)]}, day=2),
    )
    evidence = evidence_of(snapshot, (PresetName.INGRESS,), templates=INGRESSES)
    served = ["Programmed"] if more != "/" else []
    assert reasons(evidence) == {"older": ["Programmed"], "younger": ["NameTaken", *served]}


# Secrets


KEY, CHAIN = certificate("a")


def tls(key: str = KEY, type_: str = "kubernetes.io/tls") -> Secret:
    data = {"tls.key": base64.b64encode(key.encode()).decode(), "tls.crt": base64.b64encode(CHAIN.encode()).decode()}
    return Secret(ObjectMeta("web-tls", "shop"), type_, data)


def with_secret(secret: Secret | None, *files: str) -> Evidence:
    snapshot = Snapshot(secrets={Key("shop", "web-tls"): secret} if secret else {})
    running = Rendering((), tuple(OutputFile(FileKind.CERTIFICATE, path, KEY + CHAIN) for path in files))
    return evidence_of(snapshot, running=running, secret_namespaces=("shop",))


@pytest.mark.parametrize("query", ["secret/shop/web-tls", "secret web-tls", "shop/web-tls", "web-tls"])
def test_a_secret_is_found_with_the_files_that_hold_it(query: str) -> None:
    found = explain(query, with_secret(tls(), "/certs/web.pem"))
    assert [(reasons_of(each), each.files) for each in found.claims] == [(["Programmed"], ("/certs/web.pem",))]
    assert "PRIVATE KEY" not in repr(found)


@pytest.mark.parametrize(
    ("secret", "reason"),
    [(tls(), "NotUsed"), (tls(type_="Opaque"), "NotClaimed"), (tls(key=certificate("b")[0]), "InvalidValue")],
)
def test_a_secret_in_no_file_has_a_reason(secret: Secret, reason: str) -> None:
    (report,) = explain("secret/shop/web-tls", with_secret(secret)).claims
    assert reasons_of(report) == [reason]


@pytest.mark.parametrize(("query", "note"), [("secret/shop/no", "no Secret no"), ("secret/prod/x", "secret_namesp")])
def test_a_secret_that_is_not_there_has_a_note(query: str, note: str) -> None:
    found = explain(query, with_secret(None))
    assert not found.found
    assert note in found.notes[0]


def test_a_service_comes_before_the_secret_of_its_name() -> None:
    snapshot = replace(evidence().snapshot, secrets={WEB: tls()})
    assert [each.object for each in explain("shop/web", evidence_of(snapshot)).claims] == ["Service shop/web"]
