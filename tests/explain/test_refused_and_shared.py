"""A Service is served only by servers of its own that a listener leads to, whoever else has the same pods."""

import base64
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pyconfd.explain.evidence import Evidence
from pyconfd.explain.queries import explain
from pyconfd.explain.text import render
from pyconfd.model.explanation import (
    AnyFate,
    NotAsked,
    NotRendered,
    ObjectFate,
    Objects,
    Served,
    TurnedAway,
    Unknown,
)
from pyconfd.model.kubernetes import Endpoint, EndpointPort, ObjectMeta, Secret, Service, ServicePort
from pyconfd.model.preset import PresetName
from pyconfd.model.rendering import FileKind, OutputFile, Rendering
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets.reading import KubefiguratorOptions, PresetOptions
from tests.explain.world import evidence_of
from tests.presets import kube2lb, objects
from tests.presets.pods import certificate

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

OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def told(query: str, evidence: Evidence) -> dict[str, ObjectFate]:
    answer = explain(query, evidence).answer
    assert isinstance(answer, Objects), answer
    return {each.object.rpartition("/")[2].split()[0]: each for each in answer.objects}


def fate(query: str, evidence: Evidence) -> AnyFate:
    (only,) = told(query, evidence).values()
    return only.fate


def domain(name: str, host: str, proto: str, created: str = OLD, **more: Any) -> Service:
    return objects.service(name, {"domain": host, "proto": proto}, created=created, **more)


def slices(*names: str) -> tuple[Any, ...]:
    """Return a slice for each Service, all with the same pod."""
    return tuple(objects.slice_(name, objects.endpoint("10.0.0.1", pod="p")) for name in names)


@pytest.mark.parametrize("templates", [None, TCP_ONLY])
def test_a_refused_port_is_not_served_by_anothers_servers(templates: dict[str, str] | None) -> None:
    ports = (ServicePort("web", 6379, "web"),)
    first = domain("a", "a.example.com", "redis", ports=ports)
    second = domain("b", "b.example.com", "redis", NEW, ports=ports)
    evidence = evidence_of(objects.snapshot(first, second, *slices("a", "b")), templates=templates)
    a, b = fate("demo/a", evidence), fate("demo/b", evidence)
    assert isinstance(a, Served)
    assert {server.backend for server in a.servers} == {"be-a.example.com"}
    assert b == TurnedAway(("port_taken",))


def test_two_services_with_one_pod_have_their_own_servers() -> None:
    # The name of one backend ends with that of the other.
    first, second = domain("a", "a.example.com", "http"), domain("b", "b-a.example.com", "http")
    evidence = evidence_of(objects.snapshot(first, second, *slices("a", "b")))
    for name, backend in (("demo/a", "be-a.example.com"), ("demo/b", "be-b-a.example.com")):
        found = fate(name, evidence)
        assert isinstance(found, Served)
        assert [server.backend for server in found.servers] == [backend]


def labelled(name: str, created: str, **hosts: str) -> Service:
    prefix = "haproxy-kubefigurator."
    annotations = {f"{prefix}{port}.hostname": host for port, host in hosts.items()}
    annotations |= {f"{prefix}{port}.use-ssl": "false" for port in hosts}
    ports = [ServicePort(port, number, port, 30000 + number) for number, port in enumerate(hosts, 80)]
    made = objects.service(name, annotations, created=created, type_="NodePort", ports=ports)
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, labels={f"{prefix}enabled": "yes"})
    )


def test_a_refused_name_is_not_served_though_another_name_is() -> None:
    options = PresetOptions(kubefigurator=KubefiguratorOptions(node_ports=False))
    services = (labelled("a", OLD, web="x.example.com"), labelled("b", NEW, web="x.example.com", api="y.example.com"))
    ports = (EndpointPort("web", 8080, "TCP"), EndpointPort("api", 9090, "TCP"))
    ends = [objects.slice_(name, objects.endpoint("10.0.0.1"), ports=ports) for name in "ab"]
    evidence = evidence_of(objects.snapshot(*services, *ends), (PresetName.KUBEFIGURATOR,), options)
    x = told("x.example.com", evidence)
    assert isinstance(x["a"].fate, Served)
    assert x["b"].fate == TurnedAway(("name_taken",))
    y = fate("y.example.com", evidence)
    assert isinstance(y, Served)
    assert [server.address for server in y.servers] == ["10.0.0.1:9090"]
    assert isinstance(fate("demo/b", evidence), Served)
    assert "served by 1 server; 1 of its values refused" in render(explain("demo/b", evidence))


def test_a_refused_external_domain_of_kube2lb_is_not_served() -> None:
    note = {"kube2lb/external-domains": "x.example.com"}
    first, second = (kube2lb.service(name, note, created=at) for name, at in (("a", OLD), ("b", NEW)))
    ends = (kube2lb.with_pod("a"), kube2lb.with_pod("b", "10.0.0.2"))
    evidence = evidence_of(objects.snapshot(first, second, *ends), (PresetName.KUBE2LB,))
    x = told("x.example.com", evidence)
    assert isinstance(x["a"].fate, Served)
    assert x["b"].fate == TurnedAway(("name_taken",))
    assert isinstance(fate("demo/b", evidence), Served)


def test_an_external_name_is_told_as_what_it_is() -> None:
    evidence = evidence_of(objects.snapshot(domain("a", "a.example.com", "http", type_="ExternalName")))
    (found,) = told("demo/a", evidence).values()
    assert found.fate == TurnedAway(("invalid_value",))
    assert [(each.field, each.value) for each in found.refused] == [("spec.type", "ExternalName")]
    assert evidence.context.names["domains"] == {}


def test_an_external_name_that_asks_for_nothing_has_its_hint_first() -> None:
    found = fate("demo/a", evidence_of(objects.snapshot(objects.service("a", type_="ExternalName"))))
    assert isinstance(found, NotAsked)
    assert "ExternalName" in found.hints[0]


UDP = (ServicePort("web", 80, "web", 30080, "UDP"),)
UDP_SLICE = (EndpointPort("web", 8080, "UDP"),)


def test_a_service_with_udp_only_is_told_as_what_it_is() -> None:
    made = domain("a", "a.example.com", "http", ports=UDP)
    ends = objects.slice_("a", objects.endpoint("10.0.0.1"), ports=UDP_SLICE)
    (found,) = told("demo/a", evidence_of(objects.snapshot(made, ends))).values()
    assert found.fate == TurnedAway(("invalid_value",))
    assert [(each.field, each.value) for each in found.refused] == [("spec.ports", "UDP")]


def test_udp_of_kube2lb_is_no_fault_of_the_fragments() -> None:
    made = kube2lb.service("a", ports=UDP)
    ends = objects.slice_("a", objects.endpoint("10.0.0.1"), ports=UDP_SLICE)
    found = fate("demo/a", evidence_of(objects.snapshot(made, ends), (PresetName.KUBE2LB,), templates={}))
    assert isinstance(found, NotRendered)
    assert found.why == "HAProxy balances TCP, not UDP"


def leaving(address: str) -> Endpoint:
    return objects.endpoint(address, ready=False, serving=True, terminating=True)


def test_draining_pods_are_not_counted_as_serving() -> None:
    made = domain("a", "a.example.com", "http")
    ends = objects.slice_("a", objects.endpoint("10.0.0.1"), leaving("10.0.0.2"), leaving("10.0.0.3"))
    evidence = evidence_of(objects.snapshot(made, ends))
    found = fate("demo/a", evidence)
    assert isinstance(found, Served)
    assert {each.address: each.draining for each in found.servers} == {
        "10.0.0.1:8080": False,
        "10.0.0.2:8080": True,
        "10.0.0.3:8080": True,
    }
    assert "served by 1 server, 2 more draining" in render(explain("demo/a", evidence))


def test_that_only_draining_pods_are_left_is_said() -> None:
    made = domain("a", "a.example.com", "http")
    evidence = evidence_of(objects.snapshot(made, objects.slice_("a", leaving("10.0.0.2"))))
    assert "served by 1 server, all of them draining: no ready pod is left" in render(explain("demo/a", evidence))


KEY, CHAIN = certificate("a")


def tls(name: str = "web-tls", key: str = KEY, type_: str = "kubernetes.io/tls") -> Secret:
    data = {"tls.key": base64.b64encode(key.encode()).decode(), "tls.crt": base64.b64encode(CHAIN.encode()).decode()}
    return Secret(ObjectMeta(name, "shop"), type_, data)


def with_secret(secret: Secret | None, *files: str) -> Evidence:
    snapshot = Snapshot(secrets={Key("shop", "web-tls"): secret} if secret else {})
    serving = Rendering((), tuple(OutputFile(FileKind.CERTIFICATE, path, KEY + CHAIN) for path in files))
    return evidence_of(snapshot, serving=serving, secret_namespaces=("shop",))


@pytest.mark.parametrize("query", ["secret/shop/web-tls", "secret web-tls", "shop/web-tls", "web-tls"])
def test_a_secret_is_found_with_the_files_that_hold_it(query: str) -> None:
    evidence = with_secret(tls(), "/certs/web.pem")
    assert fate(query, evidence) == Served((), ("/certs/web.pem",))
    assert "PRIVATE KEY" not in render(explain(query, evidence))


def test_a_secret_that_serves_nowhere_has_a_reason() -> None:
    assert isinstance(fate("secret/shop/web-tls", with_secret(tls())), NotRendered)
    assert isinstance(fate("secret/shop/web-tls", with_secret(tls(type_="Opaque"))), NotAsked)
    refused = with_secret(tls(key=certificate("b")[0]))
    assert fate("secret/shop/web-tls", refused) == TurnedAway(("invalid_value",))


@pytest.mark.parametrize(("query", "named"), [("secret/shop/no", "no Secret no"), ("secret/prod/x", "secret_namesp")])
def test_a_secret_that_is_not_there_is_told_why(query: str, named: str) -> None:
    answer = explain(query, with_secret(None)).answer
    assert isinstance(answer, Unknown)
    assert named in answer.kept[0]


def test_a_service_comes_before_the_secret_of_its_name() -> None:
    snapshot = objects.snapshot(domain("web", "a.example.com", "http"), *slices("web"))
    snapshot = replace(snapshot, secrets={Key("demo", "web"): tls()})
    assert isinstance(fate("demo/web", evidence_of(snapshot)), Served)
