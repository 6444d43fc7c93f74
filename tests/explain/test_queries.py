"""Queries and what they stand for, without a cluster; the words of the command's output, once."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pyconfd.explain.conditions import Evidence
from pyconfd.explain.queries import explain
from pyconfd.explain.text import render
from pyconfd.haproxy.runtime.servers_now import ServerNow
from pyconfd.model.condition import Age
from pyconfd.model.context import PresetName, Refusal, RefusalReason
from pyconfd.model.explanation import Explanation, InstanceState
from pyconfd.model.gateway_api import HTTPRoute
from pyconfd.model.ingress import Ingress
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import Name, NameRegister, Reservation, owned_by
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets.host_ownership import SCOPE
from pyconfd.system import secrecy
from tests.explain.test_conditions import WEB, annotated, slice_of
from tests.explain.world import evidence_of, reasons_of
from tests.presets.gateway import objects as gateway
from tests.presets.gateway.test_preset import GATEWAY, OPTIONS


def world(**more: Any) -> Evidence:
    """Return two Services with one pod; the younger one claims the name of the other."""
    services = {WEB: annotated(), Key("shop", "web2"): annotated("web2")}
    slices = {Key("shop", "web-1"): slice_of(), Key("shop", "web2-1"): slice_of("web2")}
    return evidence_of(Snapshot(services=services, endpointslices=slices), **more)


def asked(query: str, **more: Any) -> Explanation:
    return explain(query, world(**more))


@pytest.mark.parametrize("query", ["web", "a.example.com", "p", "line 1", "nothing", "10.0.0.1", ""])
def test_an_explanation_survives_json(query: str) -> None:
    found = asked(query)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Explanation) == found


@pytest.mark.parametrize(
    ("query", "subject"),
    [
        ("web", "shop/web"),
        ("shop/web", "shop/web"),
        ("service web", "shop/web"),
        ("service/shop/web", "shop/web"),
        ("a.example.com", "a.example.com"),
        ("A.EXAMPLE.COM", "a.example.com"),
        ("domain a.example.com", "a.example.com"),
        ("p", "pod shop/p"),
        ("pod shop/p", "pod shop/p"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1:8080", "10.0.0.1 port 8080"),
        ("be-a.example.com", "backend be-a.example.com"),
        ("backend be-a.example.com", "backend be-a.example.com"),
        ("be-a.example.com/p:10.0.0.1:8080", "server be-a.example.com/p:10.0.0.1:8080"),
        ("line 2", "line 2"),
        ("haproxy.cfg:2", "line 2"),
        ("/etc/haproxy/generated/haproxy.cfg:2", "line 2"),
        ("", "everything that is refused"),
    ],
)
def test_each_kind_of_query(query: str, subject: str) -> None:
    found = asked(query)
    assert (found.found, found.query, found.subject) == (True, query, subject)
    assert (found.line is not None) == subject.startswith("line")
    is_about_servers = subject.startswith(("pod", "10.", "backend", "server", "line"))
    assert [server.object for server in found.servers] == (["Service shop/web"] if is_about_servers else [])


@pytest.mark.parametrize("query", ["line 0", "line 99", "pod web", "prod/web", " ", "x" * 5000])
def test_nothing_of_that_name(query: str) -> None:
    assert not asked(query).found


def test_the_owner_of_a_name_comes_before_who_lost_it() -> None:
    found = [(each.object, reasons_of(each)) for each in asked("a.example.com").claims]
    assert found == [("Service shop/web", ["Programmed"]), ("Service shop/web2", ["NameTaken"])]


def test_a_wildcard_answers_for_what_it_covers() -> None:
    snapshot = Snapshot(services={WEB: annotated(domain="*.example.com")}, endpointslices={WEB: slice_of()})
    for name, found in (("a.b.example.com", True), ("example.com", False)):
        assert explain(name, evidence_of(snapshot)).found is found


def test_each_candidate_of_an_ambiguous_name_has_one_answer() -> None:
    services = {WEB: annotated(), Key("shop", "p"): annotated("p", domain="p.example.com")}
    evidence = evidence_of(Snapshot(services=services, endpointslices={Key("shop", "web-1"): slice_of()}))
    candidates = explain("p", evidence).candidates
    assert candidates == ("service shop/p", "pod shop/p")
    assert all(explain(each, evidence).found for each in candidates)


def test_the_state_of_servers_is_haproxys() -> None:
    (line,) = world().configuration.at("10.0.0.1", 8080)
    now = ServerNow(line.backend, line.name, "10.0.0.1", 8080, 1, maint=False, drain=False, operating=0, changed_s=240)
    for live, state, message in (
        ({(line.backend, line.name): now}, ("down", 240), "served by 1 server, none of them up"),
        ({}, ("absent", -1), "served by 1 server, none of them up"),
        (None, ("", -1), "served by 1 server"),
    ):
        (report,) = asked("web", live=live).claims
        assert [(server.state, server.state_s) for server in report.servers] == [state]
        assert report.conditions[-1].message == message
        assert bool(report.remedy) == ("none" in message)


def test_refusals_are_listed_newest_first_with_their_age() -> None:
    evidence = world()
    (refusal,) = evidence.refused
    older = replace(refusal, ref=refusal.ref._replace(name="older"))
    whole = replace(refusal, ref=refusal.ref._replace(name="whole"), field="", value="")
    ages = {refusal: Age(400.0), older: Age(300.0), whole: Age(200.0)}
    found = explain("", replace(evidence, refused=tuple(ages), ages=ages)).claims
    assert [(each.object, each.conditions[0].since) for each in found] == [
        ("Service shop/web2", 400.0),
        ("Service shop/older", 300.0),
        ("Service shop/whole", 200.0),
    ]
    assert found[2].conditions[0].message == refusal.detail


def test_a_line_of_a_frontend_is_about_what_it_names() -> None:
    text = (
        "frontend a\n    bind :80\n    acl h hdr(host) -i a.example.com\n    acl other hdr(host) -i aa.example.com\n"
        "    use_backend be-a.example.com if h\n    default_backend none\n"
    )
    lines = {at: asked(f"line {at}", templates={"1.conf": text}) for at in range(1, 7)}
    both = {"Service shop/web", "Service shop/web2"}
    found = {at: {each.object for each in line.claims} for at, line in lines.items()}
    assert found == {1: set(), 2: set(), 3: both, 4: set(), 5: {"Service shop/web"}, 6: set()}
    (origin,) = filter(None, [lines[2].line])
    assert (origin.section, origin.fragment, origin.template_lines) == ("frontend a", "1.conf", ((2, "bind :80"),))


def test_passwords_of_the_configuration_are_not_shown() -> None:
    secrecy.hide(["hunter2"])
    lines = "listen stats\n    stats auth admin:topsecret\n    http-request deny if { hdr(x) hunter2 }\n"
    for number in (2, 3):
        found = asked(f"line {number}", templates={"1.conf": lines})
        assert "topsecret" not in repr(found)
        assert "hunter2" not in repr(found)
        assert "[hidden]" in render(found)


def test_foreign_text_does_not_control_the_terminal() -> None:
    service = annotated(domain="\x1b[2Ja.example.com", proto="h\nttp")
    evidence = evidence_of(Snapshot(services={WEB: service}))
    for query in ("web", "", "\x1b[2J"):
        assert "\x1b" not in render(explain(query, evidence))


def test_unknown_names_get_suggestions() -> None:
    found = asked("a.exmaple.com")
    assert "a.example.com" in found.close
    assert "2 Service objects" in found.looked_in


@pytest.mark.parametrize(("query", "notes"), [("a.exmaple.com/cart", 1), ("shop/nothing", 0), ("a.exmaple.com", 0)])
def test_a_url_without_its_scheme_is_recognised(query: str, notes: int) -> None:
    found = asked(query)
    assert found.notes == (f"for a request write http://{query}",) * notes
    assert ("for a request write" in render(found)) == bool(notes)


@pytest.mark.parametrize("query", ["gone.example.com", "domain GONE.example.com", "a.example.com"])
def test_a_kept_host_begins_with_its_owner(query: str) -> None:
    kept = {Name("", name): Reservation(owned_by("demo"), 600.0) for name in ("gone.example.com", "a.example.com")}
    kept[Name("", "owned.example.com")] = Reservation(owned_by("demo"))
    evidence = world()
    evidence = replace(evidence, context=replace(evidence.context, register=NameRegister(reservations={SCOPE: kept})))
    found = explain(query, evidence)
    assert (found.found, len(found.notes)) == (True, 1)
    first, second = render(found).splitlines()[:2]
    assert first == query.lower().removeprefix("domain ")
    assert second.startswith("  note          namespace demo has this until")
    assert "until 1970-01-01T00:10:00Z" in second
    assert len(found.claims) == (2 if query == "a.example.com" else 0)
    assert not explain("owned.example.com", evidence).found


def test_an_owner_that_serves_nothing_comes_before_who_lost_it() -> None:
    web = annotated()
    web = msgspec.structs.replace(web, metadata=msgspec.structs.replace(web.metadata, creation_timestamp="2026"))
    services = {WEB: web, Key("shop", "a"): annotated("a")}
    evidence = evidence_of(Snapshot(services=services, endpointslices={WEB: slice_of()}), templates={})
    found = explain("a.example.com", evidence).claims
    assert [(each.object, each.conditions[-1].status) for each in found] == [
        ("Service shop/web", "False"),
        ("Service shop/a", "False"),
    ]


def test_a_port_of_a_listener_that_has_no_object_is_the_operators_own() -> None:
    found = asked("own", templates={"1.conf": "backend own\n    balance first\n"})
    assert (found.found, found.claims, found.servers) == (True, (), ())
    assert "the operator's own" in render(found)


OUTPUT = """\
note: no API server confirmed what is known of the cluster for 2 m: see pyconfd status
pyconfd is rejected, for 10 s: generation 7 keeps running
applying is paused, so nothing that came since is applied: pyconfd resume ends that
removals are held, for 10 m; everything else is applied
  protection: 3 of 4 would go
      -> pyconfd allow 3f9c
Service shop/web: annotations domain a.example.com and proto http (preset domains), for a.example.com
  Accepted      True
  ResolvedRefs  True
  Rendered      True
  Programmed    True    served by 1 server, all of them held by removal protection
  to do         look at the cluster; if the loss is meant, pyconfd allow 3f9c lets it through
  server        be-a.example.com/p:10.0.0.1:8080  10.0.0.1:8080  up for 4 m, held: not ready in the cluster any more\
  pod p  (line 2, 10-domains.tmpl rendered line 2)

Service shop/web2: annotations domain a.example.com and proto http (preset domains), for a.example.com
  Accepted      False   NameTaken, for 6 s: annotation domain a.example.com: Service shop/web has this name already\
 (the older object keeps it); remove the annotation from one of them
  ResolvedRefs  Unknown Blocked: Accepted is False
  Rendered      Unknown Blocked: Accepted is False
  Programmed    False   Blocked: Accepted is False
  to do         take another name, or ask the owner's namespace to give it up or to share it
"""


def test_the_output_of_the_command() -> None:
    instance = InstanceState(
        phase="rejected",
        generation=7,
        since=990.0,
        hold_id="3f9c",
        held_since=400.0,
        problems=("protection: 3 of 4 would go\n    -> pyconfd allow 3f9c",),
        paused=True,
        notes=("no API server confirmed what is known of the cluster for 2 m: see pyconfd status",),
    )
    (refusal,) = world().refused
    (line,) = world().configuration.at("10.0.0.1", 8080)
    now = ServerNow(line.backend, line.name, "10.0.0.1", 8080, 1, maint=False, drain=False, changed_s=240)
    found = asked(
        "a.example.com",
        instance=instance,
        ages={refusal: Age(994.0)},
        live={(line.backend, line.name): now},
        kept={("domains", "a.example.com"): frozenset({"10.0.0.1"})},
    )
    assert render(found) == OUTPUT


ROUTED = """
kind: IngressClass
metadata: {name: pyconfd, namespace: ""}
spec: {controller: pyconfd.io/ingress}
---
kind: Ingress
metadata: {name: refused}
spec:
  ingressClassName: pyconfd
  rules: [{host: refused.example.com, http: {paths: [{path: relative, pathType: Exact}]}}]
---
kind: Ingress
metadata: {name: misspelled}
spec:
  ingressClassName: pyconf
  rules: [{host: Misspelled.example.com}]
  tls: [{hosts: [shared.example.com]}]
---
kind: Ingress
metadata: {name: foreign}
spec: {ingressClassName: nginx, rules: [{host: foreign.example.com}]}
---
kind: IngressClass
metadata: {name: nginx, namespace: ""}
spec: {controller: k8s.io/ingress-nginx}
---
kind: Ingress
metadata: {name: without}
spec: {rules: [{host: without.example.com}]}
---
kind: Gateway
metadata: {name: other}
spec: {gatewayClassName: pyconfdd, listeners: [{name: http, port: 80, protocol: HTTP, hostname: gateway.example.com}]}
---
kind: HTTPRoute
metadata: {name: astray}
spec: {parentRefs: [{name: wep}], hostnames: [astray.example.com]}
---
kind: HTTPRoute
metadata: {name: elsewhere, namespace: blog}
spec: {parentRefs: [{name: web}], hostnames: [elsewhere.example.com]}
---
kind: HTTPRoute
metadata: {name: stranger}
spec: {parentRefs: [{name: other}], hostnames: [stranger.example.com]}
---
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  loadBalancerClass: pyconfd.io/lb
  ports: [{name: tcp, port: 5000}]
"""
"""Beside a Gateway shop/web at the first address of the pool."""


def routed() -> Evidence:
    presets = (PresetName.INGRESS, PresetName.GATEWAY, PresetName.LOADBALANCER)
    return evidence_of(gateway.snapshot(gateway.CLASS, GATEWAY, ROUTED), presets, OPTIONS, templates={})


@pytest.mark.parametrize(
    ("query", "objects", "remedy"),
    [
        ("service shop/web", ["Service shop/web"], "kubectl get endpointslices -n shop"),
        ("service/shop/web", ["Service shop/web"], "kubectl get endpointslices -n shop"),
        ("gateway shop/web", ["Gateway shop/web"], ""),
        ("shop/web", ["Gateway shop/web", "Service shop/web"], ""),
        ("192.0.2.1", ["Gateway shop/web"], ""),
        ("192.0.2.1:80", ["Gateway shop/web"], ""),
        ("192.0.2.2", ["Service shop/web"], ""),
        ("192.0.2.2:5000", ["Service shop/web"], ""),
        ("192.0.2.2:5001", [], ""),
        ("192.0.2.3", [], ""),
        ("refused.example.com", ["Ingress shop/refused"], "correct this field"),
        (
            "misspelled.example.com",
            ["Ingress shop/misspelled"],
            "there is no IngressClass pyconf: did you mean ingressClassName: pyconfd?",
        ),
        ("shared.example.com", ["Ingress shop/misspelled"], "did you mean"),
        ("foreign.example.com", ["Ingress shop/foreign"], "its IngressClass nginx is that of k8s.io/ingress-nginx"),
        ("without.example.com", ["Ingress shop/without"], "it has no ingressClassName: set ingressClassName: pyconfd"),
        ("gateway.example.com", ["Gateway shop/other"], "there is no GatewayClass pyconfdd: did you mean"),
        ("astray.example.com", ["HTTPRoute shop/astray"], "there is no Gateway shop/wep: did you mean shop/web?"),
        ("httproute astray", ["HTTPRoute shop/astray"], "there is no Gateway shop/wep: did you mean shop/web?"),
        ("elsewhere.example.com", ["HTTPRoute blog/elsewhere"], "there is no Gateway blog/web: did you mean shop/web?"),
        ("stranger.example.com", ["HTTPRoute shop/stranger"], "Gateway shop/other is not pyconfd's: there is no"),
        ("nobody.example.com", [], ""),
    ],
)
def test_who_asks_for_it_is_found_though_it_is_not_served(query: str, objects: list[str], remedy: str) -> None:
    found = explain(query, routed())
    assert sorted(each.object for each in found.claims) == objects
    assert found.found is bool(objects)
    assert not objects or remedy in found.claims[0].remedy


@pytest.mark.parametrize(("route", "objects", "reasons"), [
    ("", ["Service shop/noted"], ["NotClaimed", "IgnoredAnnotation"]),
    (("{kind: Ingress, metadata: {name: used}, spec: {ingressClassName: pyconfd, defaultBackend: "
     "{service: {name: noted, port: {number: 80}}}}}"), ["Ingress shop/used"], []),
])  # fmt: skip
def test_a_note_hides_neither_that_nothing_is_claimed_nor_who_uses_it(
    route: str, objects: list[str], reasons: list[str]
) -> None:
    noted = """
{kind: Service, metadata: {name: noted, annotations: {pyconfd.io/domian: a}}, spec: {ports: [{name: web, port: 80}]}}
---
kind: EndpointSlice
metadata: {name: noted-1, labels: {kubernetes.io/service-name: noted}}
ports: [{name: web, port: 8080}]
endpoints: [{addresses: [10.0.0.9], conditions: {ready: true}}]
---
{kind: IngressClass, metadata: {name: pyconfd, namespace: ""}, spec: {controller: pyconfd.io/ingress}}
"""
    evidence = evidence_of(gateway.snapshot(noted, route), (PresetName.DOMAINS, PresetName.INGRESS), templates={})
    for query in ("shop/noted", "service noted"):
        found = explain(query, evidence).claims
        assert [each.object for each in found] == objects
        said = [each.reason for each in found[0].conditions if each.reason in {"NotClaimed", "IgnoredAnnotation"}]
        assert sorted(said) == sorted(reasons)


def test_no_class_of_pyconfds_at_all() -> None:
    for query, wanted in (("ingress misspelled", "no IngressClass has"), ("gateway other", "no GatewayClass has")):
        evidence = routed()
        evidence = replace(evidence, snapshot=replace(evidence.snapshot, ingressclasses={}, gatewayclasses={}))
        assert explain(query, evidence).claims[0].remedy.startswith(wanted)


def with_ingress(**more: Any) -> Evidence:
    """Return the world with an Ingress of another class that has the name of a Service, and a refused Gateway."""
    made = world(**more)
    ingress, route = Ingress(ObjectMeta(name="web", namespace="shop")), HTTPRoute(ObjectMeta(name="r", namespace="a"))
    snapshot = replace(made.snapshot, ingresses={WEB: ingress}, httproutes={Key("a", "r"): route})
    gateway = Refusal(ObjectRef("Gateway", "shop", "gw"), "", "", RefusalReason.UNREADABLE, "no object")
    return replace(made, snapshot=snapshot, refused=(*made.refused, gateway))


@pytest.mark.parametrize(
    ("query", "objects", "reasons"),
    [
        ("web", ["Service shop/web"], {"Accepted"}),
        ("ingress web", ["Ingress shop/web"], {"NotClaimed"}),
        ("ingress/shop/web", ["Ingress shop/web"], {"NotClaimed"}),
        ("a/r", ["HTTPRoute a/r"], {"NotClaimed"}),
        ("httproute r", ["HTTPRoute a/r"], {"NotClaimed"}),
        ("gateway gw", ["Gateway shop/gw"], {"Unreadable"}),
        ("gw", ["Gateway shop/gw"], {"Unreadable"}),
        ("gateway web", [], set()),
    ],
)
def test_ingresses_gateways_and_routes_are_found(query: str, objects: list[str], reasons: set[str]) -> None:
    found = explain(query, with_ingress())
    assert [each.object.partition(" a.")[0] for each in found.claims] == objects
    assert {each.conditions[0].reason for each in found.claims} == reasons
