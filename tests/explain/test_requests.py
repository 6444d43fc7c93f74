"""What is said of one request: the object and the field of each step, and what the answer does not cover."""

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.explain.conditions import Evidence
from pyconfd.explain.request import MOST_CHARACTERS, Request, request_of
from pyconfd.explain.requests import explain_request
from pyconfd.explain.text import render
from pyconfd.fragments import directory
from pyconfd.model.context import AUTOMATIC_PRESETS
from pyconfd.model.explanation import Explanation, RequestAnswer, RequestStep
from pyconfd.model.snapshot import HostFacts
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.presets.gateway.objects import CLASS, snapshot

OPTIONS = PresetOptions(addresses=AddressOptions(("192.0.2.21", "192.0.2.22"), ("192.0.2.10",)))
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


def asked(url: str, *headers: str, **more: str) -> Request:
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
    assert made.candidates == (f"{url} --to 192.0.2.10", f"{url} --to 192.0.2.21")
    assert not made.found
    assert answer(found, url, to="192.0.2.10").backends == (("ing_shop_web_80", 100.0),)
    assert answer(found, url, to="192.0.2.21").backends == (("gw_http_shop_api_2", 100.0),)


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
    former = replace(found, running=evidence().running)
    assert "not applied yet" in answer(former, "http://shop.example.com/").uncovered[0]
    assert not answer(found, "http://shop.example.com/").uncovered


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
        ({"url": ["ftp://shop.example.com/"]}, "expected SCHEME"),
        ({"url": ["http://shop.example.com/a b"]}, "expected SCHEME"),
        ({"url": ["http://shop.example.com/\x1b"]}, "expected SCHEME"),
        ({"url": ["tcp://shop.example.com"]}, "a port"),
        ({"url": ["http://shop.example.com:99999/"]}, "a port"),
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
