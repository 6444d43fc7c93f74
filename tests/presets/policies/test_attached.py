"""RoutePolicies: what they are for, what counts of them, and what their statuses say."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.explain.queries import explain
from pyconfd.model.context import Context
from pyconfd.model.records import ObjectMeta
from pyconfd.model.route_policy import RoutePolicyObject
from pyconfd.model.snapshot import Resource
from pyconfd.presets.policies.attached import (
    LONGEST_TEXT,
    MOST_FIELDS,
    MOST_POLICIES,
    MOST_TARGETS,
    field_of,
    read_policy,
    text_of,
)
from pyconfd.presets.policies.said import asked_of
from pyconfd.presets.policies.words import WORDS, Form
from pyconfd.presets.policy import ClaimOptions, Rule, network
from tests.presets.policies.stage import GATEWAY, HOST, TARGETS, PolicyStage, of_ingress, of_route, policy, policy_stage

pytestmark = pytest.mark.haproxy
ROUTE, INGRESS, WEB, APP = (TARGETS[each] for each in ("httproute", "ingress", "gateway", "service"))
LISTENER, RULE = {**WEB, "sectionName": "http"}, {**ROUTE, "sectionName": "first"}
NEVER = {"allowNetworks": ["10.0.0.0/33"]}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        yield found


def named(name: str) -> dict[str, Any]:
    """Return the fields of a policy whose name is to be seen in answers."""
    return {"responseHeaders": [f"X-By: {name}"]}


def route(annotation: str = "", extension: str = "", **changes: Any) -> str:
    """Return an HTTPRoute whose rule has the name ``first``."""
    document = yaml.safe_load(of_route({"response-headers": f"X-By: {annotation}"} if annotation else {}))
    rule = document["spec"]["rules"][0]
    rule["name"] = "first"
    if extension:
        reference = {"group": "pyconfd.io", "kind": "RoutePolicy", "name": extension}
        rule["filters"] = [{"type": "ExtensionRef", "extensionRef": reference}]
    document["spec"] |= changes
    return yaml.safe_dump(document)


def told(context: Context) -> dict[str, list[tuple[str, str]]]:
    """Return the reason and message for each target in the status of each policy."""
    statuses = {of: status for each in context.statuses for of, status in each.items()}
    return {
        of.key.name: [
            (condition["reason"], condition["message"])
            for each in status.body["ancestors"]
            for condition in each["conditions"]
        ]
        for of, status in statuses.items()
        if of.resource is Resource.ROUTEPOLICIES
    }


def reasons(context: Context) -> dict[str, list[str]]:
    return {name: [reason for reason, _ in each] for name, each in told(context).items()}


@pytest.mark.parametrize("way", ["httproute", "ingress"])
def test_precedence(stage: PolicyStage, way: str) -> None:
    """What is more specific counts: each line of this table before all that are below it."""
    levels = {
        "annotation": None,
        "extension": (),
        "rule": (RULE,),
        "object": (ROUTE if way == "httproute" else INGRESS,),
        "service": (APP,),
        "listener": (LISTENER,),
        "gateway": (WEB,),
    }
    mine = list(levels) if way == "httproute" else ["annotation", "object", "service"]
    expected = [*mine, None]
    found: list[str | None] = []
    for number in range(len(mine) + 1):
        left = mine[number:]
        policies = [
            policy(named(each), *targets, name=each, day=len(left) - place)
            for place, each in enumerate(left)
            if (targets := levels[each]) is not None
        ]
        by_annotation = "annotation" if "annotation" in left else ""
        if way == "httproute":
            main = route(by_annotation, "extension" if "extension" in left else "")
        else:
            main = of_ingress({"response-headers": f"X-By: {by_annotation}"} if by_annotation else {})
        context = stage.serving(main, *policies)
        assert not context.refused
        found.append(next(iter(stage.request(way).headers.get("x-by", ())), None))
    assert found == expected


def test_an_explanation_names_the_policy(stage: PolicyStage) -> None:
    policies = (
        policy({"allowNetworks": ["198.51.100.0/24"], "limitRps": 1000}, WEB, name="edge"),
        policy({"serverTimeout": "5s"}, ROUTE, name="route"),
    )
    stage.serving(route(), *policies)
    found = {each.field: each.text for each in stage.explained("httproute", "/").steps}
    assert "RoutePolicy shop/edge spec.allowNetworks" in found
    assert "RoutePolicy shop/edge spec.limitRps" in found
    assert any("RoutePolicy shop/route spec.serverTimeout" in field for field in found)


def test_words_of_several_targets_are_joined(stage: PolicyStage) -> None:
    context = stage.serving(
        route(),
        policy({"maxBodySize": "4", "serverTimeout": "5s"}, WEB, name="web"),
        policy({"maxBodySize": "8", "denyNetworks": ["10.0.0.0/8"]}, ROUTE, name="route"),
    )
    assert stage.request("httproute", method="POST", body="12345").status == 200
    assert stage.request("httproute", method="POST", body="123456789").status == 413
    assert stage.request("httproute", client="10.1.1.1").status == 403
    by = "overridden for maxBodySize of HTTPRoute shop/web, since more specific: RoutePolicy shop/route"
    assert told(context) == {
        "route": [("Accepted", "")],
        "web": [("Accepted", f"{by} spec.maxBodySize")],
    }


def test_limits_of_rules_are_counted_apart(stage: PolicyStage) -> None:
    document = yaml.safe_load(route())
    second = {**document["spec"]["rules"][0], "name": "second", "matches": [{"path": {"value": "/second"}}]}
    document["spec"]["rules"].append(second)
    few, many = policy({"limitRpm": 2}, RULE), policy({"limitRpm": 9}, {**RULE, "sectionName": "second"}, name="q")
    stage.serving(yaml.safe_dump(document), few, many)
    found = [stage.request("httproute", path).status for path in ("/second",) * 5 + ("/",) * 3]
    assert found == [200] * 7 + [429]


def test_a_gateways_policy_is_for_routes_of_other_namespaces(stage: PolicyStage) -> None:
    other = yaml.safe_load(route())
    other["metadata"]["namespace"] = "team"
    other["spec"]["parentRefs"] = [{"name": "web", "namespace": "shop"}]
    other["spec"]["rules"][0]["backendRefs"] = []
    shared = GATEWAY.replace("protocol: HTTP}", "protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}")
    stage.serving(shared, yaml.safe_dump(other), policy({"denyNetworks": ["10.0.0.0/8"]}, WEB))
    found = [stage.request("httproute", client=each).status for each in ("10.1.1.1", "192.0.2.9")]
    assert found == [403, 500]
    # The policies of another namespace are for its own objects, whatever these are called.
    of_team = [policy({"denyNetworks": ["0.0.0.0/0"]}, each, namespace="team") for each in (WEB, APP, ROUTE, INGRESS)]
    context = stage.serving(shared, route(), of_team[0], of_ingress({}))
    assert [stage.request(way).status for way in ("httproute", "ingress")] == [200, 200]
    assert reasons(context) == {"p": ["TargetNotFound"]}
    for each in of_team[1:]:
        stage.serving(shared, route(), each, of_ingress({}))
        assert [stage.request(way).status for way in ("httproute", "ingress")] == [200, 200]


def test_a_route_at_several_listeners_has_the_words_of_each(stage: PolicyStage) -> None:
    two = GATEWAY.replace("listeners: [", "listeners: [{name: other, port: 80, protocol: HTTP, hostname: b.example}, ")
    both = route(hostnames=["shop.example.com", "b.example"])
    policies = policy({**named("listener")}, LISTENER), policy({**named("gateway")}, WEB, name="web")
    context = stage.serving(two, both, *policies)
    found = [stage.request("httproute", host=host).headers["x-by"] for host in ("shop.example.com", "b.example")]
    assert found == [["listener"], ["gateway"]]
    assert reasons(context) == {"p": ["Accepted"], "web": ["Accepted"]}
    # Another value is data, also where a route has several backends.
    before = stage.rendered(two, both, *policies)[0].text
    assert stage.rendered(two, both, policies[0].replace("X-By", "X-by"), policies[1])[0].text != before
    assert stage.rendered(two, both, policies[0].replace(": listener", ": other"), policies[1])[0].text == before


def test_words_of_a_service_are_for_what_goes_there(stage: PolicyStage) -> None:
    assert stage.pod is not None
    other = f"""
kind: Service
metadata: {{name: other}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
kind: EndpointSlice
metadata: {{name: other-a, labels: {{kubernetes.io/service-name: other}}}}
addressType: IPv4
endpoints: [{{addresses: [127.0.0.1]}}]
ports: [{{name: http, port: {stage.pod.port}}}]
"""
    document = yaml.safe_load(route())
    document["spec"]["rules"][0]["backendRefs"] = [{"name": each, "port": 80} for each in ("app", "other")]
    document["spec"]["rules"].append({**document["spec"]["rules"][0], "matches": [{"path": {"value": "/other"}}]})
    document["spec"]["rules"][1] |= {"name": "second", "backendRefs": [{"name": "other", "port": 80}]}
    stage.serving(yaml.safe_dump(document), other, policy(named("service"), APP))
    found = {tuple(stage.request("httproute").headers.get("x-by", ())) for _ in range(64)}
    assert found == {("service",), ()}
    assert "x-by" not in stage.request("httproute", "/other").headers


@pytest.mark.parametrize("target", [ROUTE, RULE, LISTENER, WEB, APP])
@pytest.mark.parametrize(
    "fields",
    [
        {"allowNetworks": {"a": 1}},
        {"allowNetworks": None},
        {"allowNetworks": "x" * (LONGEST_TEXT + 1)},
        NEVER,
        {"unknown": "x"},
        {"allowNetwork": "10.0.0.0/8"},
        {f"field{number}": 1 for number in range(MOST_FIELDS + 1)},
    ],
)
def test_a_policy_that_cannot_be_what_it_says_closes(
    stage: PolicyStage, target: Mapping[str, str], fields: Mapping[str, Any]
) -> None:
    context = stage.serving(route(), policy(fields, target))
    assert stage.request("httproute").status == 403
    assert reasons(context) == {"p": ["Invalid"]}
    by_kind = {each.ref.kind: each for each in context.refused}
    assert by_kind.keys() == {"HTTPRoute", "RoutePolicy"}
    assert by_kind["HTTPRoute"].field.startswith("RoutePolicy shop/p spec")
    assert "nobody is let in" in by_kind["HTTPRoute"].detail


def test_a_route_that_each_listener_closes_by_its_own_words_is_not_accepted(stage: PolicyStage) -> None:
    two = GATEWAY.replace("listeners: [", "listeners: [{name: other, port: 80, protocol: HTTP, hostname: b.example}, ")
    bad = policy({"allowNetworks": ["no"]}, {**WEB, "sectionName": "other"}, name="q")
    for policies, expected in (((bad, policy(NEVER, LISTENER)), "False"), ((bad,), "True")):
        context = stage.context(two, route(hostnames=[HOST, "b.example"]), *policies)
        statuses = (each for some in context.statuses for each in some.items())
        (status,) = (each for of, each in statuses if of.resource is Resource.HTTPROUTES)
        (parent,) = status.body["parents"]
        assert {each["type"]: each["status"] for each in parent["conditions"]}["Accepted"] == expected


def test_what_closes_a_service_of_an_ingress_closes_nothing_else(stage: PolicyStage) -> None:
    stage.serving(of_ingress({}), of_route({}), policy(NEVER, APP))
    assert [stage.request(way).status for way in ("ingress", "httproute")] == [403, 403]
    stage.serving(of_ingress({}), policy(NEVER, {**APP, "name": "other"}))
    assert stage.request("ingress").status == 200


def test_an_unknown_field_that_restricts_nothing_has_no_effect(stage: PolicyStage) -> None:
    context = stage.serving(of_ingress({}), policy({"serverTimeuot": "1s"}, INGRESS))
    assert stage.request("ingress").status == 200
    assert [reason for each in reasons(context).values() for reason in each] == ["Invalid"]
    assert all("did you mean serverTimeout?" in each.detail for each in context.refused)


def test_an_extension_that_is_missing_closes_its_rule(stage: PolicyStage) -> None:
    context = stage.serving(route(extension="gone"))
    assert stage.request("httproute").status == 403
    assert ["there is no such RoutePolicy" in each.detail for each in context.refused] == [True]
    stage.serving(route(extension="gone"), policy(named("p"), name="gone"))
    assert stage.request("httproute").headers["x-by"] == ["p"]


def test_another_extension_is_refused_as_before(stage: PolicyStage) -> None:
    context = stage.serving(route(extension="x").replace("pyconfd.io", "example.com"))
    assert stage.request("httproute").status == 404
    assert ["not supported" in each.detail for each in context.refused] == [True]


def test_a_sound_policy_is_explained(stage: PolicyStage) -> None:
    objects = route(), policy({"maxBodySize": "1k"}, ROUTE)
    found = explain("routepolicy shop/p", stage.evidence_of(*stage.rendered(*objects), *objects))
    assert [each.object for each in found.claims] == ["RoutePolicy shop/p"]
    assert [(each.status, each.reason) for each in found.claims[0].conditions] == [("True", "Accepted")]
    wrong = route(), policy({"maxBodySize": "x"}, ROUTE)
    found = explain("routepolicy shop/p", stage.evidence_of(*stage.rendered(*wrong), *wrong))
    assert "not a size" in found.claims[0].conditions[0].message


@pytest.mark.parametrize(
    ("fields", "targets", "reason", "message"),
    [
        (named("p"), [ROUTE], "Accepted", ""),
        (named("p"), [{**ROUTE, "name": "no"}], "TargetNotFound", "there is no HTTPRoute"),
        (named("p"), [{**RULE, "sectionName": "no"}], "TargetNotFound", "has no rule"),
        (named("p"), [{**LISTENER, "sectionName": "no"}], "TargetNotFound", "has no listener"),
        (named("p"), [{**WEB, "kind": "GatewayClass"}], "Invalid", "policies are for Ingress"),
        (named("p"), [{**APP, "sectionName": "http"}], "Invalid", "leave sectionName out"),
        (named("p"), [{**ROUTE, "group": "example.com"}], "Invalid", "the group of the kind HTTPRoute is gateway."),
        (named("p"), [{"kind": "Ingress", "name": "web"}], "Invalid", "is networking.k8s.io: write it beside"),
        (named("p"), [{"group": "x", "kind": "Service", "name": "web"}], "Invalid", 'the kind Service is "": write it'),
        (named("p"), [{"kind": "Deployment", "name": "web"}], "Invalid", "with its group"),
        ({"maxBodySize": "x"}, [ROUTE], "Invalid", "spec.maxBodySize x: not a size"),
        ({"unknown": 1}, [WEB], "Invalid", "no word of policies"),
        (named("p"), [ROUTE] * (MOST_TARGETS + 1), "Invalid", "more than 16 targets"),
    ],
)
def test_the_status(
    stage: PolicyStage, fields: Mapping[str, Any], targets: list[dict[str, str]], reason: str, message: str
) -> None:
    context = stage.context(route(), policy(fields, *targets))
    found = told(context)["p"]
    assert {each for each, _ in found} == {reason}
    assert len(found) == min(len(targets), MOST_TARGETS)
    assert message in found[0][1]
    assert [each.ref.kind for each in context.refused if each.ref.kind == "RoutePolicy"][:1] == (
        ["RoutePolicy"] if reason != "Accepted" else []
    )


def test_the_status_names_what_is_older_or_more_specific(stage: PolicyStage) -> None:
    policies = [
        policy({"maxBodySize": "4"}, ROUTE, name="old", day=1),
        policy({"maxBodySize": "99", "serverTimeout": "5s"}, ROUTE, name="new", day=2),
        policy({"maxBodySize": "8"}, RULE, name="rule", day=3),
        policy(named("x"), ROUTE, name="beside", day=3),
    ]
    context = stage.serving(route("annotation"), *policies)
    assert stage.request("httproute", method="POST", body="12345").status == 200
    more_specific = "HTTPRoute shop/web, since more specific:"
    older = "the older one, says maxBodySize for this target already"
    assert told(context) == {
        "old": [
            (
                "Overridden",
                f"overridden for maxBodySize of {more_specific} RoutePolicy shop/rule spec.maxBodySize",
            )
        ],
        "new": [
            (
                "Conflicted",
                f"spec.targetRefs[0] web: RoutePolicy old, {older}; its other words count",
            )
        ],
        "rule": [("Accepted", "")],
        "beside": [
            (
                "Overridden",
                f"overridden for responseHeaders of {more_specific} annotation pyconfd.io/response-headers",
            )
        ],
    }


def test_the_number_of_policies_of_a_target_is_bounded(stage: PolicyStage) -> None:
    policies = [policy({}, ROUTE, name=f"p{number:02}", day=1) for number in range(MOST_POLICIES)]
    context = stage.serving(route(), *policies)
    assert stage.request("httproute").status == 200
    context = stage.serving(route(), *policies, policy(NEVER, ROUTE, name="q", day=2))
    assert stage.request("httproute").status == 403
    assert any("more than 32 policies" in each.detail for each in context.refused)


def test_what_a_namespace_may_say_is_that_of_the_policy(stage: PolicyStage) -> None:
    stage.claims = ClaimOptions((Rule(("*",), policies=("response-*",), addresses=(network("0.0.0.0/0"),)),))
    context = stage.serving(route(), policy({**named("p"), "maxBodySize": "1k"}, WEB))
    assert stage.request("httproute").status == 403
    assert "claims.rules" in told(context)["p"][0][1]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_REFERENCES = st.lists(
    _JSON
    | st.fixed_dictionaries(
        {"group": st.sampled_from(["", "core", ROUTE["group"], INGRESS["group"]]) | _JSON},
        optional={"kind": st.sampled_from(["HTTPRoute", "Gateway"]) | _JSON, "name": _JSON, "sectionName": _JSON},
    ),
    max_size=MOST_TARGETS + 1,
)


@given(
    st.dictionaries(st.sampled_from(sorted(map(field_of, WORDS))) | st.text(max_size=12), _JSON, max_size=4),
    _REFERENCES | _JSON,
)
def test_anything_may_stand_in_a_policy(fields: dict[str, Any], references: Any) -> None:
    """An exception would leave the policy out, and so open what it was to close."""
    meta = ObjectMeta("p", "shop", uid="p")
    found = read_policy(RoutePolicyObject(meta, {**fields, "targetRefs": references}))
    assert {field_of(each.name) for each in found.words} >= fields.keys() & set(map(field_of, WORDS))
    assert all(each.object.key.namespace == "shop" for each in found.targets)
    asked_of(found.words, "HTTPRoute", ClaimOptions())


def test_a_word_that_takes_several_has_a_list() -> None:
    lists = {Form.LIST, Form.LINES}
    assert not [name for name, word in WORDS.items() if "," in word.example and word.form not in lists]
    assert not [name for name, word in WORDS.items() if word.example.isdigit() and word.form is not Form.NUMBER]
    assert not [name for name, word in WORDS.items() if (word.example in {"true", "false"}) != (word.form is Form.FLAG)]


def test_each_word_has_a_field_of_its_own() -> None:
    assert len({field_of(each) for each in WORDS}) == len(WORDS)
    assert field_of("max-body-size") == "maxBodySize"


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        ("a", Form.TEXT, "a"),
        (4, Form.NUMBER, "4"),
        (True, Form.FLAG, "true"),
        (["a", "b"], Form.LIST, "a, b"),
        (["a", "b"], Form.LINES, "a\nb"),
        (["a", "b"], Form.TEXT, '["a", "b"]'),
        ([1], Form.LIST, "[1]"),
        ([], Form.LIST, ""),
        (None, Form.LIST, "null"),
    ],
)
def test_a_value_is_the_text_of_its_word(value: object, form: Form, text: str) -> None:
    assert text_of(value, form) == text
