"""Rules of routes: what is refused of them, where, and what conditions come of the others."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import plan
from pyconfd.model.plan import RuntimeUpdate
from pyconfd.model.reservation import Owner
from pyconfd.presets.gateway.conditions import PATH_TOO_LONG, choices_of, conditions_of
from pyconfd.presets.gateway.faults import INCOMPATIBLE, UNSUPPORTED, RuleFault
from pyconfd.presets.gateway.frontends import Choice
from pyconfd.presets.gateway.http_rules import ParsedRule, sections_of
from pyconfd.presets.routing.rules import Handling, Retry
from pyconfd.presets.routing.table import Place
from pyconfd.presets.routing.types import PathEntry, PathKind, RouteGroup, RouteMatch, RouteRule, ValueCondition
from pyconfd.render.filters import quote
from tests.presets.gateway import stage
from tests.presets.gateway.stage import Routes, endpoint, gateway, grpc_rule, http_rule, parsed, render
from tests.presets.routing.requests import Table


def path(value: str, kind: str = "PathPrefix") -> dict[str, Any]:
    return {"matches": [{"path": {"type": kind, "value": value}}]}


def header(name: str, value: str, kind: str = "Exact") -> dict[str, Any]:
    return {"matches": [{"headers": [{"name": name, "value": value, "type": kind}]}]}


def edit(action: str, name: str, value: str = "x", kind: str = "requestHeaderModifier") -> dict[str, Any]:
    edits = [name] if action == "remove" else [{"name": name, "value": value}]
    return {"filters": [{"type": kind[0].upper() + kind[1:], kind: {action: edits}}]}


def redirected(**more: Any) -> dict[str, Any]:
    return {"filters": [{"type": "RequestRedirect", "requestRedirect": more}]}


def rewritten(**more: Any) -> dict[str, Any]:
    return {"filters": [{"type": "URLRewrite", "urlRewrite": more}]}


LONGEST_MS = 24 * 24 * 3_600_000
ON_FAILURE = "conn-failure empty-response response-timeout"
PREFIX = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}
CORS = {"type": "CORS", "cors": {"allowOrigins": ["*"]}}


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (path("no-slash"), "matches[0].path.value"),
        (path("/a b"), "matches[0].path.value"),
        (path("/a\nbind *:1"), "matches[0].path.value"),
        (path("/100%"), "matches[0].path.value"),
        (path("/a", "Suffix"), "matches[0].path.type"),
        (path("/(a", "RegularExpression"), "matches[0].path.value"),
        (path("/(a+)+", "RegularExpression"), "matches[0].path.value"),
        (path("/(a|a)*", "RegularExpression"), "matches[0].path.value"),
        (path("/(a?){2,}", "RegularExpression"), "matches[0].path.value"),
        (path("/.*.*x", "RegularExpression"), "matches[0].path.value"),
        (path("/.*/[a-z]+/x", "RegularExpression"), "matches[0].path.value"),
        (path("/[a-z]*a[a-z]*[0-9]", "RegularExpression"), "matches[0].path.value"),
        (path("/" + "a?" * 20, "RegularExpression"), "matches[0].path.value"),
        (path("/[[a]b]", "RegularExpression"), "matches[0].path.value"),
        (path("/a{129}", "RegularExpression"), "matches[0].path.value"),
        (path("/a{1,129}", "RegularExpression"), "matches[0].path.value"),
        (path("/a{,2}", "RegularExpression"), "matches[0].path.value"),
        (path("/a(?i)b", "RegularExpression"), "matches[0].path.value"),
        (path("(?s)/a", "RegularExpression"), "matches[0].path.value"),
        (path("(?i)", "RegularExpression"), "matches[0].path.value"),
        (path("(?i)/[a-z]*A[a-z]*B[a-z]*x", "RegularExpression"), "matches[0].path.value"),
        (path("/a b", "RegularExpression"), "matches[0].path.value"),
        (header("X Y", "a"), "matches[0].headers[0].name"),
        (header("a)", "a"), "matches[0].headers[0].name"),
        (header("if", "a"), "matches[0].headers[0].name"),
        (header("x", "a\r\nb"), "matches[0].headers[0].value"),
        (header("x", "a", "Prefix"), "matches[0].headers[0].type"),
        ({"matches": [{"method": "FETCH"}]}, "matches[0].method"),
        (edit("set", "X-A", "a\nb"), "filters[0].requestHeaderModifier.set[0].value"),
        (edit("add", "X-A", "a  b"), "filters[0].requestHeaderModifier.add[0].value"),
        (edit("set", "X-A", ""), "filters[0].requestHeaderModifier.set[0].value"),
        (edit("set", "X A"), "filters[0].requestHeaderModifier.set[0].name"),
        (edit("remove", "Host"), "filters[0].requestHeaderModifier.remove[0]"),
        (edit("set", "Content-Length"), "filters[0].requestHeaderModifier.set[0].name"),
        (edit("add", "TE", kind="responseHeaderModifier"), "filters[0].responseHeaderModifier.add[0].name"),
        (redirected(scheme="ftp"), "filters[0].requestRedirect.scheme"),
        (redirected(statusCode=304), "filters[0].requestRedirect.statusCode"),
        (redirected(port=0), "filters[0].requestRedirect.port"),
        (redirected(hostname="a b"), "filters[0].requestRedirect.hostname"),
        (redirected(hostname="*.example.com"), "filters[0].requestRedirect.hostname"),
        (rewritten(path={**PREFIX, "replacePrefixMatch": "a"}), "filters[0].urlRewrite.path.replacePrefixMatch"),
        ({**path("/a", "Exact"), **rewritten(path=PREFIX)}, "filters[0].urlRewrite.path.type"),
        ({"filters": [{"type": "ExtensionRef", "extensionRef": {"kind": "Other"}}]}, "filters[0].type"),
        ({"filters": [{"type": "CORS", "cors": {"allowOrigins": ["https://a b"]}}]}, "filters[0].cors.allowOrigins[0]"),
        ({"filters": [{"type": "CORS", "cors": {"allowMethods": ["A B"]}}]}, "filters[0].cors.allowMethods[0]"),
        ({"timeouts": {"request": "1.5s"}}, "timeouts.request"),
        ({"retry": {"codes": [418]}}, "retry.codes"),
        ({"retry": {"backoff": "1s"}}, "retry.backoff"),
        ({"retry": {"attempts": 101}}, "retry.attempts"),
        ({"retry": {"attempts": -1}}, "retry.attempts"),
        ({"timeouts": {"backendRequest": "1.5s"}}, "timeouts.backendRequest"),
        ({"sessionPersistence": {"type": "Header"}}, "sessionPersistence.header.name"),
        ({"backendRefs": [{"name": "a", "filters": [CORS]}]}, "backendRefs[0].filters"),
    ],
)  # fmt: skip
def test_a_rule_with_a_value_that_is_not_taken_is_refused(rule: dict[str, Any], field: str) -> None:
    found = http_rule(rule)
    assert isinstance(found, RuleFault)
    assert (found.reason, found.field) == (UNSUPPORTED, field)


@pytest.mark.parametrize(
    "rule",
    [
        {"filters": [*redirected(port=80)["filters"], *rewritten(hostname="a.b")["filters"]]},
        {"filters": [CORS, CORS]},
    ],
)
def test_filters_that_exclude_each_other_are_refused(rule: dict[str, Any]) -> None:
    found = http_rule(rule)
    assert isinstance(found, RuleFault)
    assert found.reason == INCOMPATIBLE


@pytest.mark.parametrize(
    "value",
    [
        "/[^/]+/.*",
        "/api/v[0-9]+/(users|groups)",
        "/a?b?c?",
        "/[ab]{3}/[a-z]{2,4}",
        "/x\\.y",
        "/(v1|v2)/.*",
        ".*\\.(png|jpe?g)",
        "/(en|de)/[^/]+/[0-9]+/x",
        "/.*/end",
        "/([a-z]+)/x",
        "/(ab){2}",
        "^/anchored/[0-9]+$",
        "/dollar\\$",
        "/.*/foo/.*",
        "/v[0-9]+(/.*)?",
        "(?i)/something(/|$)(.*)",
        "(?i)/API/v[0-9]+/.*",
    ],
)
def test_usual_patterns_are_taken(value: str) -> None:
    found = http_rule(path(value, "RegularExpression"))
    assert isinstance(found, ParsedRule), found


@pytest.mark.parametrize(
    ("method", "kind", "text"),
    [
        ({"service": "a.B", "method": "C"}, PathKind.EXACT, "/a.B/C"),
        ({"service": "a.B"}, PathKind.PREFIX, "/a.B"),
        ({"method": "C"}, PathKind.REGEX, "/[^/]+/C"),
        ({"service": "a[.]B+", "type": "RegularExpression"}, PathKind.REGEX, "/(a[.]B+)/([^/]+)"),
        (None, PathKind.PREFIX, "/"),
    ],
)
def test_a_method_of_grpc_is_a_path(method: dict[str, Any] | None, kind: PathKind, text: str) -> None:
    found = grpc_rule({"matches": [{"method": method}]} if method else {})
    assert isinstance(found, ParsedRule)
    assert [(match.kind, match.path) for match in found.matches] == [(kind, text)]


@pytest.mark.parametrize(
    ("rule", "handling"),
    [
        ({}, Handling()),
        ({"timeouts": {"request": "10s"}}, Handling(10_000)),
        ({"timeouts": {"request": "10s", "backendRequest": "1m30s"}}, Handling(10_000)),
        ({"timeouts": {"request": "1h", "backendRequest": "500ms"}}, Handling(500)),
        ({"timeouts": {"backendRequest": "0s"}}, Handling(LONGEST_MS)),
        ({"timeouts": {"backendRequest": "9999h"}}, Handling(LONGEST_MS)),
        ({"retry": {}}, Handling(retry=Retry(3, ON_FAILURE))),
        ({"retry": {"attempts": 0}}, Handling(retry=Retry(0, ON_FAILURE))),
        ({"retry": {"attempts": 100, "codes": [503, 404, 503]}}, Handling(retry=Retry(100, f"{ON_FAILURE} 404 503"))),
        # Only with attempts there is more than one of them to be limited together.
        (
            {"timeouts": {"request": "2s", "backendRequest": "1s"}, "retry": {"attempts": 1}},
            Handling(1_000, Retry(1, ON_FAILURE), 2_000),
        ),
        ({"timeouts": {"backendRequest": "1s"}, "retry": {}}, Handling(1_000, Retry(3, ON_FAILURE))),
    ],
)
def test_how_requests_of_a_rule_are_handled(rule: dict[str, Any], handling: Handling) -> None:
    found = parsed({**rule, "backendRefs": [{"name": "a", "port": 80}]})
    assert found.handling == handling
    [backend] = sections_of(found, (stage.reference(1, (endpoint(1),)),), "a", "HTTPRoute a/b").backends
    assert backend.handling == handling


@pytest.mark.parametrize(
    ("rule", "lines"),
    [
        ({}, []),
        ({"timeouts": {"request": "10s"}}, []),
        ({"retry": {"attempts": 2}}, ["retries 2", "option redispatch 1", f"retry-on {ON_FAILURE}"]),
        ({"retry": {"attempts": 0}}, ["retries 0", "option redispatch 1", "retry-on none"]),
    ],
)
def test_how_requests_are_handled_as_text(rule: dict[str, Any], lines: list[str]) -> None:
    made = parsed({**rule, "backendRefs": [{"name": "a", "port": 80}]})
    routes = Routes("gw_a_b_80").add(made, stage.reference(1, (endpoint(1),)))
    text = render(*_listed(gateway("gw_a_b_80", [routes])), "/tmp/x").text
    # Those of the backend: the defaults come before.
    backend = text.partition("\nbackend gw_a_b_80")[2]
    known = re.findall(r"^ +((?:retr|timeout server|option redispatch).*)$", backend, re.MULTILINE)
    assert known == lines


def test_the_conditions_of_a_match() -> None:
    headers = [
        {"name": "X-Canary", "value": "yes"},
        {"name": "x-canary", "value": "of two for one name the first counts"},
        {"name": "x-version", "value": "v[0-9]+", "type": "RegularExpression"},
    ]
    query = [{"name": "Case", "value": "a.b", "type": "RegularExpression"}, {"name": "q", "value": "a b"}]
    match = {"method": "POST", "headers": headers, "queryParams": query, "path": {"type": "Exact", "value": "/a"}}
    assert parsed({"matches": [match]}).matches == (
        RouteMatch(
            PathKind.EXACT,
            "/a",
            "POST",
            (ValueCondition("x-canary", "yes"), ValueCondition("x-version", "v[0-9]+", regex=True)),
            (ValueCondition("Case", "a.b", regex=True), ValueCondition("q", "a b")),
        ),
    )


def test_more_conditions_than_the_api_has_are_refused() -> None:
    names = [{"name": f"h{number}", "value": "a"} for number in range(33)]
    found = http_rule({"matches": [{"headers": names[:17], "queryParams": names[17:]}]})
    assert isinstance(found, RuleFault)
    assert (found.field, found.value) == ("matches[0]", "33")
    assert isinstance(http_rule({"matches": [{"headers": names[:16], "queryParams": names[17:]}]}), ParsedRule)


@pytest.mark.parametrize("kind", ["Exact", "RegularExpression"])
@pytest.mark.parametrize("number", [*range(12), 32])
def test_no_line_has_more_words_than_haproxy_reads(kind: str, number: int) -> None:
    headers = tuple(ValueCondition(f"h{place}", "(?i)a b", kind != "Exact") for place in range(number))
    match = RouteMatch(PathKind.REGEX, "(?i)/a", "GET", headers)
    group = RouteGroup("group:a", PathEntry("", ""), (RouteRule("gw|*", match, "b", Owner("", "", "", ""), 0),))
    choices = choices_of([group])
    lines = [
        f"http-request set-var(txn.route) str(b) if {{ var(txn.route) -m str a }} {each}"
        for each in conditions_of(match)
    ]
    assert max(map(_words, lines)) <= 64
    assert " ".join(conditions_of(match)).count("-i -m reg") == 1 + number * (kind != "Exact")
    assert choices[0] == Choice("group:a", "{ var(txn.routed_path),length gt 1024 }", PATH_TOO_LONG)
    assert [each.condition for each in choices[1:] if each.condition] == list(conditions_of(match))
    assert [each.to for each in choices if each.to == "b"] == ["b"]


def test_a_method_of_grpc_with_other_characters_is_refused() -> None:
    for value in ("a/b", "a b", "%"):
        assert isinstance(grpc_rule({"matches": [{"method": {"service": value}}]}), RuleFault)


VALUES = st.text(min_size=1, max_size=30)


@given(VALUES, VALUES, VALUES)
def test_no_value_adds_a_word_or_a_line(one: str, two: str, three: str) -> None:
    rules = [
        header("x", one),
        {"matches": [{"queryParams": [{"name": "q", "value": two}]}]},
        edit("set", "X", three),
        redirected(path={"type": "ReplaceFullPath", "replaceFullPath": f"/{one}"}),
        {**path(f"/{two}"), **rewritten(path={"type": "ReplacePrefixMatch", "replacePrefixMatch": f"/{three}"})},
    ]
    for rule in rules:
        found = http_rule(rule)
        if isinstance(found, RuleFault):
            continue
        for match in found.matches:
            (condition,) = conditions_of(match)
            assert "\n" not in condition
            assert _words(condition) in (0, 7)
        edits = [*(each.format for each in found.filters.request)]
        if found.filters.path:
            edits += [found.filters.path.format, found.filters.path.pattern]
        for text in filter(None, edits):
            assert _words(quote(text)) == 1


def _words(text: str) -> int:
    """Count the words that HAProxy reads."""
    return len(re.findall(r"(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s'\"\\])+", text))


def test_a_canary_step_changes_weights_only() -> None:
    rule = parsed({"backendRefs": [{"name": "old", "port": 80}, {"name": "new", "port": 80}]})
    texts = []
    for weights in ((100, 0), (80, 20), (0, 100)):
        references = [stage.reference(weights[0], (endpoint(1),)), stage.reference(weights[1], (endpoint(2),))]
        routes = Routes("gw_a_b_80").add(rule, *references)
        texts.append(re.sub(r" weight \d+", "", render(*_listed(gateway("gw_a_b_80", [routes])), "/tmp/x").text))
    assert len(set(texts)) == 1


def _listed(found: tuple[Any, Any]) -> tuple[Any, Any]:
    return [found[0]], found[1]


def test_no_references_are_500_and_no_endpoints_are_not() -> None:
    empty = sections_of(parsed({}), (), "a", "HTTPRoute a/b")
    silent = sections_of(parsed({"backendRefs": [{"name": "a"}]}), (stage.reference(1),), "a", "HTTPRoute a/b")
    assert [(each.backends[0].failing, each.backends[0].of) for each in (empty, silent)] == [(1, 1), (0, 1)]


MIRROR = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "m", "port": 80}}}


@pytest.mark.parametrize("filters", [[], [MIRROR], [CORS], rewritten(hostname="a.b")["filters"]])
def test_an_endpoint_is_a_runtime_update_whatever_the_filters(filters: list[dict[str, Any]]) -> None:
    rule = parsed({"backendRefs": [{"name": "a", "port": 80}], "filters": filters})
    renderings = []
    for ports in ((1,), (1, 2)):
        reference = stage.reference(1, tuple(map(endpoint, ports)))
        mirrors = [reference] * len(rule.filters.mirrors)
        made = _listed(gateway("gw_a_b_80", [Routes("gw_a_b_80").add(rule, reference, mirrors=mirrors)]))
        renderings.append(render(*made, "/tmp/x", runtime_socket="/run/s"))
    before, after = renderings
    assert isinstance(plan(after, before, None, abilities=Abilities(runtime=True)), RuntimeUpdate)


def test_conditions_of_paths_below_one_another_stand_in_the_configuration_once() -> None:
    owner = Owner("HTTPRoute", "shop", "a", "")
    paths = ["/" + "/".join("a" * (number + 1)) for number in range(50)]
    rules = tuple(
        RouteRule("gw|*", RouteMatch(path=path, method="GET"), f"b{number}", owner, number)
        for number, path in enumerate(paths)
    )
    groups = Table(*rules).groups["gw|*"]
    choices = choices_of(groups.values())
    assert len(choices) == 2 * len(paths) - 1
    assert _reached(choices, groups) == {
        place.path: [rule.backend for rule in group.rules] for place, group in groups.items()
    }


def _reached(choices: Sequence[Choice], groups: Mapping[Place, RouteGroup]) -> dict[str, list[str]]:
    """Return the backends that HAProxy tries for each group, in their order: a choice leads to later ones only."""
    found = {}
    for place, group in groups.items():
        at, tried = group.id, []
        for choice in choices:
            if choice.route == at:
                if choice.condition:
                    tried.append(choice.to)
                else:
                    at = choice.to
        found[place.path] = tried
    return found


def test_what_is_no_duration_is_shown() -> None:
    found = http_rule({"timeouts": {"request": "1.5s"}})
    assert isinstance(found, RuleFault)
    assert found.value == "1.5s"
