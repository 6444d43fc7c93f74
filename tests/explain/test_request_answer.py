"""What is said of one request: the object and the field of each step, and what the answer does not cover."""

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.explain.conditions import Evidence
from pyconfd.explain.request import ALWAYS_DELETED, DELETED, MOST_CHARACTERS, ClientRequest, request_of
from pyconfd.explain.request_answer import explain_request
from pyconfd.explain.routing import opened
from pyconfd.explain.text import render
from pyconfd.fragments import directory
from pyconfd.haproxy.runtime.servers_now import ServerNow
from pyconfd.model.context import AUTOMATIC_PRESETS, Refusal, RefusalReason
from pyconfd.model.explanation import Explanation, InstanceState, RequestAnswer, RequestStep
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.model.snapshot import HostFacts
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.presets.gateway.objects import CLASS, snapshot
from tests.presets.pods import certificate

OPTIONS = PresetOptions(
    addresses=AddressOptions(("192.0.2.21", "192.0.2.22"), ("192.0.2.10",)), tls=TlsOptions("/files/secrets", ("shop",))
)
HOST = HostFacts(frozenset({"192.0.2.10", "192.0.2.21", "192.0.2.22"}))
WEB = """
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}]}
---
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], targetRef: {kind: Pod, name: web-pod}}]
ports: [{name: http, port: 8080}]
"""
INGRESS = """
kind: IngressClass
metadata: {name: pyconfd}
spec: {controller: pyconfd.io/ingress}
---
kind: Ingress
metadata: {name: shop}
spec:
  ingressClassName: pyconfd
  rules:
  - host: shop.example.com
    http:
      paths:
      - {path: /cart, pathType: Prefix, backend: &web {service: {name: web, port: {number: 80}}}}
      - {path: /, pathType: Prefix, backend: *web}
      - {path: /help, pathType: Exact, backend: *web}
---
kind: Ingress
metadata: {name: younger, creationTimestamp: "2026-02-02T00:00:00Z"}
spec:
  ingressClassName: pyconfd
  rules:
  - host: shop.example.com
    http: {paths: [{path: /cart, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
"""
GATEWAY = """
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: pyconfd
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
kind: HTTPRoute
metadata: {name: api}
spec:
  parentRefs: [{name: web}]
  hostnames: [api.example.com]
  rules:
  - matches: [{path: {type: PathPrefix, value: /v2}, headers: [{name: X-Canary, value: token-of-canary}]}]
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier: {set: [{name: Authorization, value: Basic c2VjcmV0}]}
    - {type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}
    timeouts: {request: 5s}
    backendRefs: [{name: web, port: 80, weight: 3}, {name: gone, port: 80, weight: 1}]
  - matches: [{path: {type: PathPrefix, value: /v2}, method: POST}]
    filters: [{type: RequestRedirect, requestRedirect: {hostname: new.example.com, statusCode: 307}}]
  - backendRefs: [{name: web, port: 80}]
"""
BALANCED = """
kind: Service
metadata: {name: db}
spec:
  type: LoadBalancer
  loadBalancerClass: pyconfd.io/lb
  loadBalancerSourceRanges: [198.51.100.0/24]
  ports: [{name: pg, port: 5432}]
"""
BALANCED_SLICE = """
kind: EndpointSlice
metadata: {name: db-1, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}]
ports: [{name: pg, port: 5432}]
---
"""
DOMAIN = """
kind: Service
metadata: {name: own, annotations: {domain: own.example.com, proto: http}}
spec: {ports: [{name: http, port: 80}]}
---
kind: EndpointSlice
metadata: {name: own-1, labels: {kubernetes.io/service-name: own}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}]
ports: [{name: http, port: 8080}]
"""


def evidence(*texts: str, **more: Any) -> Evidence:
    found = snapshot(CLASS, WEB, *texts, host=HOST)
    context = registry.translate(found, AUTOMATIC_PRESETS, OPTIONS)
    variables = {"pool_networks": ["192.0.2.20/30"], "runtime_socket": "/run/h.sock"}
    renderer = Renderer(read_fragments(directory()), RenderOptions("/files", variables=variables))
    rendering = renderer.render(context, curdate="").rendering
    return Evidence(
        1.0,
        found,
        context,
        AUTOMATIC_PRESETS,
        OPTIONS,
        rendering,
        rendering,
        context.refused,
        variables=variables,
        **more,
    )


def asked(url: str, *headers: str, **more: str) -> ClientRequest:
    given = {name.replace("_", "-"): [value] for name, value in more.items()}
    return request_of({"url": [url], "header": headers, **given})


def explained(found: Evidence, url: str, *headers: str, **more: str) -> Explanation:
    return explain_request(asked(url, *headers, **more), found)


def answer(found: Evidence, url: str, *headers: str, **more: str) -> RequestAnswer:
    made = explained(found, url, *headers, **more).request
    assert made is not None
    return made


def steps(made: RequestAnswer, part: str) -> list[RequestStep]:
    return [each for each in made.steps if each.part == part]


def test_an_ingress_is_named_with_the_rules_that_lost() -> None:
    made = explained(evidence(INGRESS), "http://shop.example.com/cart?x=1")
    assert made.request is not None
    rules = {each.text.partition(":")[0]: each for each in steps(made.request, "rule")}
    assert {text: each.result for text, each in rules.items()} == {
        "shop.example.com/cart": "lost",
        "path /help": "lost",
        "path prefix /cart": "chosen",
        "path prefix /": "lost",
    }
    assert rules["path prefix /cart"].object == "Ingress shop/shop"
    assert rules["path prefix /cart"].field == "spec.rules.http.paths"
    assert rules["shop.example.com/cart"].object == "Ingress shop/younger"
    assert made.request.backends == (("ing_shop_web_80", 100.0),)
    assert [(each.address, each.pod) for each in made.servers] == [("10.0.0.1:8080", "web-pod")]
    assert {each.text.partition(" (")[0] for each in steps(made.request, "timeout")} >= {"timeout server 1m"}


@pytest.mark.parametrize(("url", "status"), [("http://nobody.example.com/", 404), ("http://shop.example.com/cart", 0)])
def test_a_host_that_nobody_has_gets_404(url: str, status: int) -> None:
    assert answer(evidence(INGRESS), url).status == status


def test_a_rule_of_a_route_is_named_with_its_conditions_and_effects() -> None:
    found = evidence(GATEWAY)
    made = answer(found, "http://api.example.com/v2/cart", "X-Canary: token-of-canary", method="GET")
    owner = "HTTPRoute shop/api rule 0"
    chosen = next(each for each in steps(made, "rule") if each.result == "chosen")
    assert (chosen.object, chosen.field) == (owner, "spec.rules[0]")
    assert [(each.text, each.object, each.field) for each in steps(made, "filter")] == [
        ("request header Authorization is set", owner, "spec.rules[0].filters"),
        ("the server gets the path /cart", owner, "spec.rules[0].filters"),
    ]
    assert any(each.text.startswith("1 of 4 get 500") for each in steps(made, "backend"))
    server = next(each for each in steps(made, "timeout") if each.text.startswith("timeout server"))
    assert (server.text.partition(" (")[0], server.field) == ("timeout server 5000ms", "spec.rules[0].timeouts")


def test_the_share_of_a_reference_without_endpoints_is_said() -> None:
    empty = WEB.partition("---")[0].replace("name: web", "name: empty")
    references = "backendRefs: [{name: web, port: 80, weight: 3}, {name: gone, port: 80, weight: 1}]"
    three = references.replace("]", ", {name: empty, port: 80, weight: 1}]")
    found = evidence(f"{empty}---{GATEWAY.replace(references, three)}")
    made = answer(found, "http://api.example.com/v2/cart", "X-Canary: token-of-canary", method="GET")
    assert any(each.text.startswith("25 % get 503") for each in steps(made, "backend"))
    assert dict(made.sometimes) == {500: 20.0, 503: 20.0}
    assert made.status == 0


def test_conditions_that_do_not_hold_are_named_without_their_values() -> None:
    found = evidence(GATEWAY)
    made = answer(found, "http://api.example.com/v2", "X-Canary: other", method="POST")
    assert (made.status, made.location) == (307, "http://new.example.com/v2")
    assert made.steps[-1].text == "307: a redirect to http://new.example.com/v2"
    assert (made.steps[-1].object, made.steps[-1].field) == ("HTTPRoute shop/api rule 1", "spec.rules[1].filters")
    assert "token-of-canary" not in str(made)
    made = answer(found, "http://api.example.com/v2", "X-Canary: other")
    assert made.backends == (("gw_http_shop_api_2", 100.0),)
    why = [each.text.rpartition(": ")[2] for each in steps(made, "rule") if each.result == "lost"]
    assert why[:2] == ["the method is GET", "header x-canary has another value"]
    assert "token-of-canary" not in str(made)


def test_several_listeners_that_know_the_host_are_listed() -> None:
    found = evidence(INGRESS, GATEWAY.replace("api.example.com", "shop.example.com"))
    url = "http://shop.example.com/"
    made = explained(found, url)
    assert made.candidates == (
        f"{url} --to 192.0.2.10  # frontend http-in",
        f"{url} --to 192.0.2.21  # Gateway shop/web",
    )
    assert not made.found
    assert answer(found, url, to="192.0.2.10").backends == (("ing_shop_web_80", 100.0),)
    assert answer(found, url, to="192.0.2.21").backends == (("gw_http_shop_api_2", 100.0),)


def test_the_listener_with_the_most_specific_host_is_preferred() -> None:
    found = evidence(INGRESS, GATEWAY.replace("api.example.com", '"*.example.com"'))
    url = "http://shop.example.com/"
    made = explained(found, url)
    assert made.request is not None
    assert made.request.backends == (("ing_shop_web_80", 100.0),)
    assert made.notes == (f"less specific, so not the first to ask for: {url} --to 192.0.2.21  # Gateway shop/web",)
    assert made.notes[0] in render(made)


def test_an_answer_of_a_gateway_names_its_addresses() -> None:
    found, url = evidence(GATEWAY), "http://api.example.com/"
    assert explained(found, url).notes == ("at 192.0.2.21 of Gateway shop/web only",)
    assert explained(found, url, to="192.0.2.21").notes == ()
    assert explained(evidence(INGRESS), "http://shop.example.com/").notes == ()


BAD_PATH = """
kind: IngressClass
metadata: {name: pyconfd}
spec: {controller: pyconfd.io/ingress}
---
kind: Ingress
metadata: {name: shop}
spec:
  ingressClassName: pyconfd
  rules:
  - host: shop.example.com
    http: {paths: [{path: cart, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
"""
NO_SECRET = INGRESS.replace("rules:", "tls: [{secretName: tls, hosts: [shop.example.com]}]\n  rules:", 1)
_LAST = "  - backendRefs: [{name: web, port: 80}]"


@pytest.mark.parametrize(
    ("text", "url", "cause", "reason"),
    [
        (DOMAIN.replace(", proto: http", ""), "http://own.example.com/", "Service shop/own", "Incomplete"),
        (
            INGRESS.replace("ClassName: pyconfd", "ClassName: pyconfdd"),
            "http://shop.example.com/",
            "Ingress shop/shop",
            "UnknownClass",
        ),
        (BAD_PATH, "http://shop.example.com/", "Ingress shop/shop", "InvalidValue"),
        (
            GATEWAY.replace("parentRefs: [{name: web}]", "parentRefs: [{name: gone}]"),
            "http://api.example.com/",
            "HTTPRoute shop/api",
            "NotClaimed",
        ),
        (
            GATEWAY.replace(_LAST, _LAST.replace("web", "none")),
            "http://api.example.com/",
            "HTTPRoute shop/api",
            "NoSuchService",
        ),
        (
            GATEWAY.replace(_LAST, _LAST.replace("web", "web, namespace: other")),
            "http://api.example.com/",
            "HTTPRoute shop/api",
            "Forbidden",
        ),
        (
            NO_SECRET.replace("name: shop}", "name: shop, namespace: other}"),
            "https://shop.example.com/",
            "Ingress other/shop",
            "NoCertificate",
        ),
    ],
)
def test_an_answer_of_haproxy_has_its_cause(text: str, url: str, cause: str, reason: str) -> None:
    made = explained(evidence(text), url)
    assert made.request is not None
    assert made.request.closed or made.request.status in {404, 500}
    first = made.claims[0]
    assert first.object == cause
    assert reason in {each.reason for each in first.conditions}
    assert first.remedy
    assert not made.close
    assert f"\n\n{cause}" in render(made)


@pytest.mark.parametrize(
    ("text", "words"),
    [(DOMAIN.replace(", proto: http", ""), "no object that is served here has this host"), ("", "no object has")],
)
def test_a_host_that_is_asked_for_is_not_nobodys(text: str, words: str) -> None:
    found = evidence(text) if text else evidence()
    assert words in answer(found, "http://own.example.com/", to="192.0.2.10").steps[-1].text


def test_a_host_at_another_address_is_named_with_it() -> None:
    made = explained(evidence(GATEWAY), "http://api.example.com/", to="192.0.2.10")
    assert made.notes == ("Gateway shop/web has this host, at 192.0.2.21 port 80",)
    made = explained(evidence(GATEWAY), "http://api.example.com:81/")
    assert made.notes == ("Gateway shop/web has this host, at 192.0.2.21 port 80",)


def test_objects_that_want_the_port_are_named() -> None:
    found = evidence(BALANCED, BALANCED.replace("name: db", "name: late"))
    taken = replace(found, refused=(refusal_of_port("5432"), refusal_of_port("80")))
    made = explained(taken, "tcp://192.0.2.22:5432")
    assert [each.object for each in made.claims] == ["Service shop/late", "Gateway shop/taken"]


def refusal_of_port(port: str) -> Refusal:
    ref = ObjectRef("Gateway", "shop", "taken", "")
    return Refusal(ref, "spec.listeners[http].port", port, RefusalReason.PORT_TAKEN, "another one has it")


def test_a_host_that_nobody_has_gets_hosts_like_it() -> None:
    made = explained(evidence(INGRESS), "http://shop.example.con/")
    assert made.close == ("shop.example.com",)
    assert "Did you mean shop.example.com?" in render(made)


def test_a_request_that_is_served_has_no_causes() -> None:
    made = explained(evidence(INGRESS), "http://shop.example.com/cart")
    assert (made.claims, made.close) == ((), ())
    redirected = explained(evidence(GATEWAY), "http://api.example.com/v2", method="POST")
    assert (redirected.claims, redirected.close) == ((), ())


def test_causes_are_bounded_and_counted() -> None:
    one = INGRESS.partition("---")[2].partition("---")[0].replace("ClassName: pyconfd", "ClassName: pyconfdd")
    some = [one.replace("name: shop}", f"name: shop-{number}}}") for number in range(12)]
    made = explained(evidence(INGRESS.partition("---")[0], *some), "http://shop.example.com/")
    assert len(made.claims) == 10
    assert made.notes == ("2 more objects of this host, backend or port are not served as they ask",)


def test_what_others_are_refused_comes_behind_the_rules_and_is_bounded() -> None:
    found = evidence(INGRESS, WEB)
    taken = RefusalReason.NAME_TAKEN
    refused = [
        Refusal(ObjectRef("Ingress", "evil", f"i{number}", ""), "", f"shop.example.com/{path}", taken, "shop's")
        for number, path in enumerate(["cart"] * 12 + ["cart/now"] + ["elsewhere"] * 50 + ["car"])
    ]
    made = answer(replace(found, refused=tuple(refused)), "http://shop.example.com/cart/now")
    rules = steps(made, "rule")
    of_evil = [each.object.startswith("Ingress evil/") for each in rules]
    assert [each.result for each in rules].index("chosen") < of_evil.index(True)
    lost = [each.object for each in rules if each.object.startswith("Ingress evil/")]
    assert lost == ["Ingress evil/i12", *(f"Ingress evil/i{number}" for number in (0, 1, 10, 11, 2, 3, 4, 5, 6))]
    assert rules[-1].text == "3 more objects or paths that fit are refused"


QUIET = "annotations: {pyconfd.io/access-log: 'off'"


@pytest.mark.parametrize(
    ("objects", "url", "left_out"),
    [
        (INGRESS.replace("{name: shop}", f"{{name: shop, {QUIET}}}}}"), "http://shop.example.com/help", True),
        (INGRESS, "http://shop.example.com/help", False),
        (GATEWAY.replace("{name: api}", f"{{name: api, {QUIET}}}}}"), "http://api.example.com/", True),
        (DOMAIN.replace("annotations: {", f"{QUIET}, "), "http://own.example.com/", True),
        (DOMAIN, "http://own.example.com/", False),
    ],
)
def test_what_is_left_out_of_the_log_is_said(objects: str, url: str, left_out: bool) -> None:
    made = answer(evidence(objects, WEB), url)
    assert [each.field for each in steps(made, "log")] == ["annotation pyconfd.io/access-log"] * left_out


def test_limits_are_said() -> None:
    name = "metadata: {name: shop}"
    limited = INGRESS.replace(name, 'metadata: {name: shop, annotations: {pyconfd.io/limit-rps: "5"}}', 1)
    assert limited != INGRESS
    (step,) = steps(answer(evidence(limited, WEB), "http://shop.example.com/cart"), "filter")
    assert step.text == "at most 5 requests a second for each client address, else 429"
    assert step.object.startswith("Ingress shop/shop, Service web")


def test_a_balanced_port_needs_the_address_of_the_client() -> None:
    found = evidence(BALANCED)
    url = "tcp://192.0.2.21:5432"
    assert answer(found, url, **{"from": "203.0.113.1"}).closed
    assert answer(found, url).uncovered
    made = answer(found, url, **{"from": "198.51.100.7"})
    assert (made.uncovered, made.backends) == ((), (("lb-shop:db:5432", 100.0),))


def test_what_it_does_not_cover_is_said() -> None:
    own = evidence(INGRESS, own_fragments=("02-http.tmpl",))
    assert answer(own, "http://shop.example.com/").uncovered == ("fragment 02-http.tmpl, which is not the shipped one",)
    stats = answer(evidence(INGRESS), "http://127.0.0.1:8404/")
    assert stats.uncovered
    assert (stats.backends, stats.status, stats.closed) == ((), 0, False)
    found = evidence(GATEWAY.replace("X-Canary", "X-Request-Id"))
    assert "x-request-id" in answer(found, "http://api.example.com/v2").uncovered[0]


def test_a_configuration_that_is_not_applied_is_said() -> None:
    found = evidence(INGRESS)
    made = explained(replace(found, running=evidence().running), "http://shop.example.com/")
    assert made.request is not None
    assert "not applied" in made.request.uncovered[0]
    assert (made.request.status, made.request.closed) == (0, False)
    assert made.request.backends == (("ing_shop_web_80", 100.0),)
    assert [each.address for each in made.servers] == ["10.0.0.1:8080"]
    assert not answer(found, "http://shop.example.com/").uncovered


@pytest.mark.parametrize("is_rendered", [True, False])
def test_while_applying_is_paused_it_is_about_both(is_rendered: bool) -> None:
    found = evidence(INGRESS)
    paused = replace(found, desired=None, running=found.running if is_rendered else evidence().running)
    made = explained(paused, "http://shop.example.com/")
    assert made.request is not None
    assert (made.request.status, made.request.closed) == (0, False)
    assert "not rendered" in made.request.uncovered[0]
    assert ["ing_shop_web_80" in each for each in made.request.uncovered[1:]] == ([] if is_rendered else [True])
    assert bool(made.servers) == is_rendered
    assert bool(steps(made.request, "answer")) == is_rendered


def test_a_first_configuration_that_is_not_applied_is_said() -> None:
    found = replace(evidence(INGRESS), running=None)
    assert "not applied" in answer(found, "http://shop.example.com/").uncovered[0]


def test_an_answer_that_haproxy_gives_needs_no_servers() -> None:
    paused = replace(evidence(GATEWAY), desired=None)
    running = paused.running
    assert running is not None
    without = re.sub(r"(?m)^backend gw_(?:.*\n)(?:[ \t#].*\n)*", "", running.text)
    found = replace(paused, running=Rendering((Piece("all", without),)))
    assert answer(found, "http://api.example.com/v2", method="POST").status == 307
    assert answer(found, "http://api.example.com/v2").backends == (("gw_http_shop_api_2", 100.0),)


def with_text(found: Evidence, edit: Callable[[str], str]) -> Evidence:
    assert found.desired is not None
    made = Rendering((Piece("all", edit(found.desired.text)),))
    return replace(found, desired=made, running=made)


def settings(made: RequestAnswer) -> set[str]:
    return {each.text for each in made.steps if each.part in {"backend", "timeout"} and each.text.endswith(")")}


def test_lines_need_no_indentation() -> None:
    found, url = evidence(INGRESS), "http://shop.example.com/"
    flat = with_text(found, lambda text: re.sub(r"(?m)^[ \t]+", "", text))
    assert settings(answer(flat, url)) == settings(answer(found, url))
    assert [each.address for each in explained(flat, url).servers] == ["10.0.0.1:8080"]
    indented = with_text(found, lambda text: re.sub(r"(?m)^(?=[a-z])", " ", text))
    assert settings(answer(indented, url)) == settings(answer(found, url))
    assert answer(indented, "http://shop.example.com:81/").closed


def test_settings_are_inherited_from_sections_above() -> None:
    url, last = "http://shop.example.com/", "\ndefaults late\n    timeout server 7s\n"
    found = with_text(evidence(INGRESS), lambda text: text.replace(" from http-service", "") + last)
    shown = [each for each in settings(answer(found, url)) if each.startswith("timeout server")]
    assert len(shown) == 1
    assert "7s" not in shown[0]

    def before(text: str) -> str:
        own = "defaults near\n    timeout server 8s\n    timeout server 9s\n\n"
        return text.replace("backend ing_shop_web_80", f"{own}backend ing_shop_web_80").replace(
            " from http-service", ""
        )

    near = with_text(evidence(INGRESS), before)
    assert "timeout server 9s (defaults near)" in settings(answer(near, url))
    assert "timeout connect" not in str(settings(answer(near, url)))


def test_defaults_sections_that_inherit_from_each_other_end() -> None:
    def circular(text: str) -> str:
        own = "defaults a from b\n    retries 1\n\ndefaults b from a\n    retry-on 503\n\n"
        text = text.replace("backend ing_shop_web_80 from http-service", "backend ing_shop_web_80 from b")
        return text.replace("backend ing_shop_web_80", f"{own}backend ing_shop_web_80", 1)

    shown = settings(answer(with_text(evidence(INGRESS), circular), "http://shop.example.com/"))
    assert {"retries 1 (defaults a)", "retry-on 503 (defaults b)"} <= shown


def test_connections_to_a_backend_without_servers_are_closed() -> None:
    """Its mode may be that of a defaults section."""
    no_server = with_text(evidence(BALANCED), lambda text: re.sub(r"(?m)^ +server .*\n", "", text))
    assert answer(no_server, "tcp://192.0.2.21:5432", **{"from": "198.51.100.7"}).closed
    inherited = with_text(
        no_server, lambda text: re.sub(r"(backend lb-.*)\n    mode tcp\n", r"defaults t\n mode tcp\n\1 from t\n", text)
    )
    assert answer(inherited, "tcp://192.0.2.21:5432", **{"from": "198.51.100.7"}).closed
    assert (
        answer(
            with_text(evidence(INGRESS), lambda text: re.sub(r"(?m)^ +server .*\n", "", text)),
            "http://shop.example.com/",
        ).status
        == 503
    )


THREE = "endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}, {addresses: [10.0.0.3]}]"


def with_states(found: Evidence, *states: str) -> Evidence:
    """Return evidence of an HAProxy that was asked: ``states`` are those of each backend's servers in their order."""
    assert found.desired is not None

    def live(backend: str) -> dict[str, ServerNow]:
        lines = [line for line in found.configuration.servers if line.backend == backend]
        return {
            line.name: ServerNow(
                backend,
                line.name,
                line.address,
                line.port,
                int(state != "weightless"),
                maint=state == "maint",
                drain=state == "drain",
                operating=0 if state == "down" else 2,
            )
            for line, state in zip(lines, states, strict=False)
            if state != "absent"
        }

    return replace(found, live=live, check=lambda backend, server: "L4CON Connection refused")


def of_three(text: str) -> Evidence:
    return evidence(re.sub(r"endpoints: \[.*\]", THREE, text))


@pytest.mark.parametrize(
    ("states", "status", "words"),
    [
        (("down", "down", "up"), 0, "that of one of these servers"),
        (("down", "drain", "up"), 0, "that of one of these servers"),
        (("", "", ""), 0, "that of one of these servers"),
        (("absent", "absent", "absent"), 0, "that of one of these servers"),
        (
            ("down", "down", "down"),
            503,
            "503: none of the 3 servers of be-shop-own is up (L4CON Connection refused)",
        ),
        (
            ("drain", "maint", "maint"),
            503,
            "503: all 3 servers were taken out by hand; pyconfd server ready be-shop-own/NAME",
        ),
        (
            ("down", "maint", "weightless"),
            503,
            (
                "503: none of the 3 servers of be-shop-own takes traffic: 1 down (L4CON Connection refused), "
                "1 taken out by hand, 1 draining; pyconfd server ready be-shop-own/NAME"
            ),
        ),
    ],
)
def test_states_of_servers_decide(states: tuple[str, ...], status: int, words: str) -> None:
    found = of_three(DOMAIN)
    shown = with_states(found, *states) if any(states) else found
    made = explained(shown, "http://own.example.com/")
    assert made.request is not None
    (name, _), by_hand = made.request.backends[0], next((each.name for each in made.servers if each.by_hand), "")
    assert made.request.status == status
    assert made.request.steps[-1].text == words.replace("be-shop-own", name).replace("NAME", by_hand)


def test_states_of_servers_of_another_configuration_decide_nothing() -> None:
    found = with_states(of_three(DOMAIN), "down", "down", "down")
    other = replace(found, running=evidence().running)
    assert answer(other, "http://own.example.com/").status == 0


def test_connections_to_servers_that_are_down_are_closed() -> None:
    found = with_states(evidence(BALANCED_SLICE + BALANCED), "down")
    made = answer(found, "tcp://192.0.2.21:5432", **{"from": "198.51.100.7"})
    assert made.closed
    assert made.steps[-1].text.startswith("the connection is closed: the only server of lb-shop:db:5432 is down")


@pytest.mark.parametrize("url", ["http://shop.example.com/cart", "http://nobody.example.com/", "http://a.example:81/"])
def test_an_haproxy_that_does_not_run_refuses_all(url: str) -> None:
    found = replace(evidence(INGRESS), instance=InstanceState(phase="down", generation=7))
    made = answer(found, url)
    assert (made.closed, made.status, made.sometimes) == (True, 0, ())
    assert [each.text for each in steps(made, "answer")] == [
        "the connection is refused: HAProxy does not run (see above)"
    ]


@pytest.mark.parametrize(
    ("key", "held"),
    [(("ingress", "ing_shop_web_80"), True), (("domains", "web"), False), (("domains", "ing_shop_web_80"), False)],
)
def test_servers_are_held_by_preset_and_key(key: tuple[str, str], held: bool) -> None:
    found = replace(evidence(INGRESS), kept={key: frozenset({"10.0.0.1"})})
    assert [each.held for each in explained(found, "http://shop.example.com/").servers] == [held]


@pytest.mark.parametrize(
    ("text", "url", "key"),
    [
        (DOMAIN, "http://own.example.com/", ("domains", "own.example.com")),
        (GATEWAY, "http://api.example.com/", ("gateway", "gw_http_shop_api_2")),
        (BALANCED_SLICE + BALANCED, "tcp://192.0.2.21:5432", ("loadbalancer", "shop:db:5432")),
    ],
)
def test_servers_are_held_for_each_preset(text: str, url: str, key: tuple[str, str]) -> None:
    found = replace(evidence(text), kept={key: frozenset({"10.0.0.1"})})
    assert [each.held for each in explained(found, url).servers] == [True]


def test_settings_of_several_backends_name_the_backend() -> None:
    own_filter = "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [x]}}]"
    route = GATEWAY.replace("{name: gone, port: 80, weight: 1}", f"{{name: web, port: 80, weight: 1, {own_filter}}}")
    found = evidence(route.replace("{request: 5s}", "{request: 5s}\n    retry: {attempts: 2}"))
    slow = with_text(
        found, lambda text: re.sub(r"(backend gw_http_shop_api_0\S*1\b.*\n)", r"\1    timeout queue 9s\n", text)
    )
    made = answer(slow, "http://api.example.com/v2", "X-Canary: token-of-canary")
    assert len(made.backends) == 2
    first, second = sorted(name for name, _ in made.backends)
    queue = {each.text for each in steps(made, "timeout") if "timeout queue" in each.text}
    assert queue == {
        f"{first}: timeout queue 30s (defaults base)",
        f"{second}: timeout queue 9s (backend {second})",
    }
    texts = [each.text for each in steps(made, "timeout")]
    assert texts.count("timeout connect 2s (defaults base)") == 1
    assert texts.count("all attempts together: 5000 ms, else 504") == 1


def test_a_proxy_in_front_may_send_several_values() -> None:
    """HAProxy compares each that is between commas: the host has a certificate, and TLS ended before."""
    key, chain = (base64.b64encode(each.encode()).decode() for each in certificate("shop.example.com"))
    secret = (
        f"kind: Secret\nmetadata: {{name: tls}}\ntype: kubernetes.io/tls\ndata: {{tls.key: {key}, tls.crt: {chain}}}"
    )
    found = replace(
        evidence(secret, INGRESS.replace("rules:", "tls: [{secretName: tls, hosts: [shop.example.com]}]\n  rules:", 1)),
        variables={"trusted_networks": ["198.51.100.0/24"]},
    )
    url, header = "http://shop.example.com/", "X-Forwarded-Proto: https, http"
    assert answer(found, url, header, **{"from": "203.0.113.1"}).status == 308
    assert answer(found, url, header, **{"from": "198.51.100.1"}).backends


def test_headers_that_clients_may_not_send_are_those_of_the_fragment() -> None:
    text = Path(directory(), "client.j2").read_text()
    deleted = re.findall(
        r"(?m)^    http-request del-header '(.*)' -m reg(.*)$", text.partition("macro client_certificate")[0]
    )
    assert deleted == [(f"^{DELETED.pattern}$", "{{ unless }}"), (f"^({ALWAYS_DELETED.pattern})$", "")]


def test_listeners_need_no_indentation() -> None:
    places, sections = opened(" frontend http-in\nbind *:80\n\tbind *:81\nbackend x\n  # bind *:82\n")
    assert [(each.section, each.listener.port) for each in places] == [("http-in", 80), ("http-in", 81)]
    assert sections == {"http-in"}


def test_the_text_shows_each_step_and_no_control_character() -> None:
    shown = render(explained(evidence(GATEWAY), "http://api.example.com/v2", "X-Canary: token-of-canary"))
    assert "GET http://api.example.com/v2\n" in shown
    assert "chosen: path prefix /v2, header x-canary  (HTTPRoute shop/api rule 0, spec.rules[0])" in shown
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert "c2VjcmV0" not in shown


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": ["shop.example.com"]}, "expected SCHEME"),
        ({"url": ["ftp://shop.example.com/"]}, "scheme ftp: expected one of"),
        ({"url": ["http://shop.example.com/a b"]}, "expected SCHEME"),
        ({"url": ["http://shop.example.com/\x1b"]}, "expected SCHEME"),
        ({"url": ["tcp://shop.example.com"]}, "a port"),
        ({"url": ["htp://shop.example.com/"]}, "scheme htp: expected one of http, https, tcp, tls, ws, wss"),
        ({"url": ["http://b\u00fccher.example.com/"]}, "a host of other letters as xn--"),
        ({"url": ["http://shop.example.com:99999/"]}, "port 99999: expected 1 to 65535"),
        ({"url": ["tcp://shop.example.com/"]}, "a port from 1 to 65535 is needed, since tcp has none of its own"),
        ({"url": ["http://shop.example.com/"], "header": ["no header"]}, "NAME: VALUE"),
        ({"url": ["http://shop.example.com/"], "header": ["a: b\nc"]}, "NAME: VALUE"),
        ({"url": ["http://shop.example.com/"], "from": ["client"]}, "IP address"),
        ({"url": ["http://shop.example.com/"], "method": ["GET /"]}, "method"),
        ({"url": ["http://shop.example.com/" + "a" * MOST_CHARACTERS]}, "longer than"),
        ({"url": ["http://shop.example.com/"], "header": ["a: b"] * 101}, "more than 100"),
    ],
)
def test_what_is_no_request_is_rejected(given: dict[str, list[str]], words: str) -> None:
    with pytest.raises(RejectedInput, match=words):
        request_of(given)


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("v=a+b;v=%62&V=c&w=d", [b"a b", b"b"]),
        ("v=&v", [b""]),
        ("v=a&v=%zz&v=b", [b"a"]),
        ("x?v=a%0A", [b"a\n"]),
    ],
)
def test_query_parameters_are_those_that_haproxy_compares(query: str, values: list[bytes]) -> None:
    """Each row was seen at HAProxy 2.6."""
    assert list(asked(f"http://shop.example.com/?{query}").parameters("v")) == values


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("Y.test..:80", "y.test"),
        ("y.test:", "y.test"),
        ("y.test:80x", "y.test"),
        ("a:80:90", "a:80"),
        ("[2001:DB8::1]:80", "[2001:db8::1]"),
        ("[::1]", "[::1]"),
        (":80", ""),
    ],
)
def test_hosts_are_those_that_haproxy_looks_up(header: str, name: str) -> None:
    """Each row was seen at HAProxy 2.6."""
    assert asked("http://shop.example.com/", f"Host: {header}").name == name


def test_a_request_goes_through_a_query_unchanged() -> None:
    made = asked(
        "https://user:password@Shop.example.com:8443/a?b=c&d#e", "X: y", "x: z", method="PUT", to="[2001:db8::1]"
    )
    assert request_of(parse_qs(made.encoded)) == made
    assert made.url == "https://shop.example.com:8443/a?b=c&d"
    assert "password" not in made.url
    assert made.headers == (("host", "shop.example.com:8443"), ("x", "y"), ("x", "z"))
