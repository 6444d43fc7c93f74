"""Canaries of Ingresses, by a real HAProxy with a pod behind each of two Services."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyconfd.explain.decision import RoutingDecisions
from pyconfd.explain.replay import EffectKind, TrafficReplay
from pyconfd.model.context import Context
from pyconfd.model.logged import asked_for
from pyconfd.model.object_status import ObjectKey
from pyconfd.model.snapshot import Key, Resource
from pyconfd.presets import registry
from pyconfd.presets.policies.nginx import PREFIX
from tests.presets.gateway.stage import EchoServer, pods
from tests.presets.policies.stage import HOST, PolicyStage, of_ingress, policy, policy_stage, refused_of, service

pytestmark = pytest.mark.haproxy
_NAMES = {"pyconfd": "pyconfd.io/", "nginx": PREFIX}
classes = pytest.mark.parametrize("class_name", _NAMES)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        found.nginx_classes = ("nginx",)
        yield found


@pytest.fixture
def canary_pod() -> Iterator[EchoServer]:
    with pods("canary") as (pod,):
        yield pod


class Canaries:
    """A main Ingress, and others that are canaries of it."""

    def __init__(self, stage: PolicyStage, pod: EchoServer, class_name: str = "pyconfd") -> None:
        self.stage, self._pod, self._class = stage, pod, class_name

    def main(self, path: str = "/", **words: str) -> str:
        return self._ingress("web", "app", words, path)

    def canary(self, path: str = "/", name: str = "web-canary", to: str = "canary", **words: str) -> str:
        return self._ingress(name, to, {"canary": "true", **words}, path)

    def _ingress(self, name: str, to: str, words: Mapping[str, str], path: str) -> str:
        named = {word.replace("_", "-"): text for word, text in words.items()}
        text = of_ingress(named, path=path, prefix=_NAMES[self._class], name=name, class_name=self._class)
        return text.replace("name: app", f"name: {to}")

    def serving(self, *objects: str) -> Context:
        return self.stage.serving(service(self._pod.port, "canary"), *objects)

    def pod_of(self, headers: Mapping[str, str] | None = None, path: str = "/") -> str:
        return str(self.stage.request("ingress", path, headers=headers or {}).echo["pod"])

    def shares(self, times: int = 100, headers: Mapping[str, str] | None = None) -> Counter[str]:
        return Counter(self.pod_of(headers) for _ in range(times))


@pytest.fixture
def canaries(stage: PolicyStage, canary_pod: EchoServer) -> Canaries:
    return Canaries(stage, canary_pod)


def of_class(canaries: Canaries, class_name: str) -> Canaries:
    return Canaries(canaries.stage, canaries._pod, class_name)


@classes
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, {"app": 100}),
        ({"canary_weight": "0"}, {"app": 100}),
        ({"canary_weight": "20"}, {"app": 80, "canary": 20}),
        ({"canary_weight": "100"}, {"canary": 100}),
        ({"canary_weight": "500", "canary_weight_total": "1000"}, {"app": 50, "canary": 50}),
    ],
)
def test_weights(canaries: Canaries, class_name: str, words: dict[str, str], expected: dict[str, int]) -> None:
    each = of_class(canaries, class_name)
    context = each.serving(each.main(), each.canary(**words))
    assert not context.refused
    found = each.shares()
    assert found.keys() == expected.keys()
    assert all(abs(found[name] - share) <= 4 for name, share in expected.items()), found


@classes
def test_a_header_then_a_cookie_then_the_weight(canaries: Canaries, class_name: str) -> None:
    each = of_class(canaries, class_name)
    words = {"canary_by_header": "X-Canary", "canary_by_cookie": "try"}
    for weight, others in (("0", "app"), ("100", "canary")):
        context = each.serving(each.main(), each.canary(canary_weight=weight, **words))
        assert not context.refused
        asked: dict[str, tuple[dict[str, str], str]] = {
            "header": ({"X-Canary": "always"}, "canary"),
            "not by header": ({"X-Canary": "never"}, "app"),
            "not by header with another cookie": ({"X-Canary": "never", "Cookie": "try=always"}, "app"),
            "cookie": ({"Cookie": "a=b; try=always"}, "canary"),
            "not by cookie": ({"Cookie": "try=never"}, "app"),
            "another value": ({"X-Canary": "Always", "Cookie": "try=yes"}, others),
            "cookie beside another value": ({"X-Canary": "1", "Cookie": "try=never"}, "app"),
            "nothing": ({}, others),
        }
        assert {name: each.pod_of(headers) for name, (headers, _) in asked.items()} == {
            name: pod for name, (_, pod) in asked.items()
        }
        said = each.stage.explained("ingress", "/", headers=[("X-Canary", "never"), ("Cookie", "try=always")])
        assert [name.split("_")[-2] for name, _ in said.backends] == ["main"]
        said = each.stage.explained("ingress", "/", headers=[("Cookie", "try=always")])
        assert [name.split("_")[-2] for name, _ in said.backends] == ["canary"]


@classes
def test_a_value_of_the_header(canaries: Canaries, class_name: str) -> None:
    each = of_class(canaries, class_name)
    words = {"canary_by_header": "X-Canary", "canary_by_header_value": 'new york\'s "if" {%[src]}'}
    assert not each.serving(each.main(), each.canary(**words, canary_by_header_pattern="other")).refused
    values = [words["canary_by_header_value"], "always", "never", "other", ""]
    assert [each.pod_of({"X-Canary": value}) for value in values] == ["canary", "app", "app", "app", "app"]


@pytest.mark.parametrize(
    ("class_name", "pattern", "expected"),
    [
        ("pyconfd", "beta-[0-9]+", {"beta-7": "canary", "a beta-7": "app", "beta-7b": "app"}),
        ("nginx", "beta-[0-9]", {"beta-7": "canary", "a beta-7": "canary", "beta-7b": "canary", "beta": "app"}),
        ("nginx", "^beta-[0-9]$", {"beta-7": "canary", "a beta-7": "app", "beta-77": "app"}),
        ("nginx", "one|two", {"a one": "canary", "two": "canary", "on": "app"}),
    ],
)
def test_a_pattern_of_the_header(canaries: Canaries, class_name: str, pattern: str, expected: dict[str, str]) -> None:
    each = of_class(canaries, class_name)
    context = each.serving(each.main(), each.canary(canary_by_header="X-User", canary_by_header_pattern=pattern))
    assert not context.refused
    assert {value: each.pod_of({"X-User": value}) for value in expected} == expected


@classes
def test_what_restricts_the_main_ingress_restricts_its_canary(canaries: Canaries, class_name: str) -> None:
    each = of_class(canaries, class_name)
    word = "allow_networks" if class_name == "pyconfd" else "whitelist_source_range"
    canary = each.canary(canary_weight="50", canary_by_header="X-Canary")
    assert not each.serving(each.main(**{word: "10.0.0.0/8"}), canary).refused
    for headers in ({}, {"X-Canary": "always"}, {"X-Canary": "never"}):
        found = [
            each.stage.request("ingress", headers=headers, client=client).status for client in ("10.1.1.1", "9.9.9.9")
        ]
        assert found == [200, 403]


def test_limits_count_requests_of_both(canaries: Canaries) -> None:
    words = {"limit_rpm": "4", "limit_by": "route"}
    canaries.serving(canaries.main(**words), canaries.canary(canary_weight="50", canary_by_header="X-Canary"))
    sent = [{}, {"X-Canary": "always"}, {"X-Canary": "never"}, {}, {"X-Canary": "always"}, {}]
    found = [canaries.stage.request("ingress", headers=headers).status for headers in sent]
    assert found == [200, 200, 200, 200, 429, 429]


@pytest.mark.parametrize(
    "words",
    [
        {"allow_networks": "10.0.0.0/8"},
        {"max_body_size": "1k"},
        {"allow_networks": "10.0.0.0/33"},
        {"allow_network": "10.0.0.0/8"},
        {"canary": "yes"},
        {"canary_weight": "101"},
        {"canary_weight": "-1"},
        {"canary_by_header": "if"},
        {"canary_by_header_value": "a"},
        {"canary_by_header": "A", "canary_by_header_pattern": "(a"},
    ],
)
def test_a_canary_that_cannot_be_what_it_says_takes_nothing(canaries: Canaries, words: dict[str, str]) -> None:
    context = canaries.serving(canaries.main(), canaries.canary(**{"canary_weight": "100", **words}))
    assert canaries.shares(4) == {"app": 4}
    (refused,) = context.refused
    assert refused.ref.name == "web-canary"
    assert "takes no requests" in refused.detail


@pytest.mark.parametrize(
    "target",
    [
        {"group": "", "kind": "Service", "name": "canary"},
        {"group": "networking.k8s.io", "kind": "Ingress", "name": "web-canary"},
    ],
)
def test_a_policy_that_restricts_the_canary_alone_stops_it(canaries: Canaries, target: dict[str, str]) -> None:
    said = policy({"allowNetworks": ["198.51.100.0/24"]}, target)
    context = canaries.serving(canaries.main(), canaries.canary(canary_weight="100"), said)
    assert canaries.shares(4) == {"app": 4}
    assert "it says allow-networks" in refused_of(context)[0].detail


def test_policies_for_the_main_service_hold_for_the_canary(canaries: Canaries) -> None:
    said = policy({"denyNetworks": ["198.51.100.0/24"]}, {"group": "", "kind": "Service", "name": "app"})
    canaries.serving(canaries.main(), canaries.canary(canary_weight="50", canary_by_header="X-Canary"), said)
    for headers in ({}, {"X-Canary": "always"}, {"X-Canary": "never"}):
        assert canaries.stage.request("ingress", headers=headers).status == 403


def test_a_policy_makes_an_ingress_a_canary(canaries: Canaries) -> None:
    plain = canaries.canary(canary_weight="0").replace("pyconfd.io/canary", "example.com/x")
    target = {"group": "networking.k8s.io", "kind": "Ingress", "name": "web-canary"}
    context = canaries.serving(canaries.main(), plain, policy({"canary": True, "canaryWeight": 100}, target))
    assert canaries.shares(4) == {"canary": 4}
    assert not refused_of(context)


def test_equal_words_of_both_are_no_fault(canaries: Canaries) -> None:
    words = {"allow_networks": "198.51.100.0/24", "server_timeout": "5s"}
    context = canaries.serving(canaries.main(**words), canaries.canary(canary_weight="100", **words))
    assert canaries.shares(4) == {"canary": 4}
    assert not context.refused


def test_other_words_of_a_canary_are_named(canaries: Canaries) -> None:
    context = canaries.serving(
        canaries.main(app_root="/a"), canaries.canary(canary_weight="100", balance="leastconn", app_root="/b")
    )
    assert canaries.stage.request("ingress").headers["location"] == ["/a"]
    (noted,) = context.refused
    assert noted.reason.is_note
    assert "app-root, balance" in noted.detail


_IGNORED = {
    "whitelist_source_range": "10.0.0.0/8",
    "denylist_source_range": "no network",
    "auth_tls_secret": "shop/none",
    "proxy_body_size": "8m",
    "affinity": "cookie",
    "configuration_snippet": "deny all;",
    "satisfy": "any",
}


def test_ingress_nginx_ignores_other_annotations_of_a_canary(canaries: Canaries) -> None:
    each = of_class(canaries, "nginx")
    canary = each.canary(canary_weight="100", **_IGNORED)
    context = each.serving(each.main(), canary)
    assert each.shares(4) == {"canary": 4}
    assert {noted.reason.is_note for noted in context.refused} == {True}
    said = " ".join(noted.detail for noted in context.refused)
    assert all(word in said for word in ("allow-networks", "deny-networks", "configuration-snippet", "session-cookie"))
    for word, text, status in (("whitelist_source_range", "192.0.2.0/24", 403), ("proxy_body_size", "1", 413)):
        each.serving(each.main(**{word: text}), canary)
        assert each.stage.request("ingress", body="12").status == status, word


@pytest.mark.parametrize("how", ["own word", "policy", "no canary", "wrong canary"])
def test_what_is_no_annotation_of_ingress_nginx_still_stops_a_canary(canaries: Canaries, how: str) -> None:
    each = of_class(canaries, "nginx")
    document = yaml.safe_load(each.canary(canary_weight="100", **_IGNORED))
    annotations, more = document["metadata"]["annotations"], []
    match how:
        case "own word":
            annotations["pyconfd.io/allow-networks"] = "10.0.0.0/8"
        case "policy":
            target = {"group": "networking.k8s.io", "kind": "Ingress", "name": "web-canary"}
            more = [policy({"allowNetworks": ["10.0.0.0/8"]}, target)]
        case "no canary":  # then its restrictions count
            annotations["pyconfd.io/canary"] = "false"
            document["spec"]["rules"][0]["http"]["paths"][0]["path"] = "/own"
        case "wrong canary":
            annotations[f"{PREFIX}canary"] = "yes"
    context = each.serving(each.main(), yaml.safe_dump(document), *more)
    assert each.shares(4) == {"app": 4}
    assert any(not refused.reason.is_note for refused in context.refused)
    if how == "no canary":
        assert each.stage.request("ingress", "/own").status == 403


def test_without_a_main_ingress_it_serves_nothing(canaries: Canaries) -> None:
    context = canaries.serving(canaries.canary(canary_weight="100"))
    assert canaries.stage.request("ingress").status == 404
    (refused,) = context.refused
    assert "no Ingress has this host and path" in refused.detail
    context = canaries.serving(canaries.main("/shop"), canaries.canary("/", canary_weight="100"))
    assert canaries.pod_of(path="/shop") == "app"
    assert [each.ref.name for each in context.refused] == ["web-canary"]


def _in_namespace(text: str, namespace: str) -> str:
    document: dict[str, Any] = yaml.safe_load(text)
    document["metadata"]["namespace"] = namespace
    return yaml.safe_dump(document)


def test_another_namespace_gets_no_share(canaries: Canaries) -> None:
    other = _in_namespace(canaries.canary(canary_weight="100", canary_by_header="X-Canary"), "other")
    served = "\n---\n".join(_in_namespace(each, "other") for each in service(1, "canary").split("---"))
    context = canaries.serving(canaries.main(), served, other)
    assert [canaries.pod_of(headers) for headers in ({}, {"X-Canary": "always"})] == ["app", "app"]
    (refused,) = context.refused
    assert (refused.ref.namespace, refused.reason) == ("other", "not_allowed")
    assert "its own namespace only" in refused.detail


def test_the_oldest_of_two_canaries_wins(canaries: Canaries) -> None:
    first, second = canaries.canary(canary_weight="50"), canaries.canary(name="zz", to="app", canary_weight="100")
    context = canaries.serving(canaries.main(), second, first)
    assert canaries.shares(10) == {"app": 5, "canary": 5}
    (refused,) = context.refused
    assert (refused.ref.name, refused.reason) == ("zz", "name_taken")
    assert "web-canary is the canary of this path already" in refused.detail


def test_a_canary_without_a_service_takes_nothing(canaries: Canaries) -> None:
    context = canaries.serving(canaries.main(), canaries.canary(to="none", canary_weight="100"))
    assert canaries.shares(4) == {"app": 4}
    assert {each.ref.name for each in context.refused} == {"web-canary"}


def test_a_canary_without_endpoints_leaves_its_share_but_all_of_it(canaries: Canaries) -> None:
    empty = service(1, "gone").partition("---")[0]
    for weight, expected in (("0", {200}), ("50", {200}), ("100", {503})):
        canaries.serving(empty, canaries.main(), canaries.canary(to="gone", canary_weight=weight))
        assert {canaries.stage.request("ingress").status for _ in range(20)} == expected


def test_paths_beside_it_stay(canaries: Canaries) -> None:
    main = yaml.safe_load(canaries.main("/shop"))
    paths = main["spec"]["rules"][0]["http"]["paths"]
    paths.append({**paths[0], "path": "/cart"})
    context = canaries.serving(yaml.safe_dump(main), canaries.canary("/shop", canary_weight="100"))
    assert [canaries.pod_of(path=path) for path in ("/shop/1", "/cart", "/cart/1")] == ["canary", "app", "app"]
    assert not context.refused


def test_expressions_and_rewrites_are_those_of_the_main_ingress(canaries: Canaries) -> None:
    each = of_class(canaries, "nginx")
    main = each.main("/api(/|$)(.*)", rewrite_target="/$2").replace(
        "pathType: Prefix", "pathType: ImplementationSpecific"
    )
    for words in ({}, {"rewrite_target": "/$2"}):
        canary = each.canary("/api(/|$)(.*)", canary_by_header="X-Canary", canary_weight="0", **words)
        context = each.serving(main, canary.replace("pathType: Prefix", "pathType: ImplementationSpecific"))
        assert not context.refused
        for headers, pod in (({}, "app"), ({"X-Canary": "always"}, "canary")):
            echo = each.stage.request("ingress", "/api/v1/x", headers=headers).echo
            assert (echo["pod"], echo["path"]) == (pod, "/v1/x")


def test_a_step_changes_weights_only(canaries: Canaries) -> None:
    def texts(**words: str) -> tuple[str, ...]:
        rendering, _ = canaries.stage.rendered(
            service(canaries._pod.port, "canary"), canaries.main(), canaries.canary(**words)
        )
        return tuple(line for line in rendering.text.split("\n") if not line.strip().startswith("server "))

    for beside in ({}, {"canary_by_header": "X-Canary"}):
        assert len({texts(canary_weight=str(weight), **beside) for weight in (0, 5, 50, 100)}) == 1


def test_more_conditions_than_a_namespace_may_have(canaries: Canaries) -> None:
    main = yaml.safe_load(canaries.main())
    (path,) = main["spec"]["rules"][0]["http"]["paths"]
    main["spec"]["rules"][0]["http"]["paths"] = [{**path, "path": f"/{number}"} for number in range(40)]
    canary = yaml.safe_load(canaries.canary(canary_by_header="X-Canary"))
    to = canary["spec"]["rules"][0]["http"]["paths"][0]["backend"]
    canary["spec"]["rules"][0]["http"]["paths"] = [
        {**path, "path": f"/{number}", "backend": to} for number in range(40)
    ]
    context = canaries.serving(yaml.safe_dump(main), yaml.safe_dump(canary))
    assert len(context.refused) == 24
    assert all("use weights" in each.detail for each in context.refused)
    assert [canaries.pod_of({"X-Canary": "always"}, f"/{number}") for number in (0, 15, 16)] == [
        "canary",
        "canary",
        "app",
    ]


def test_a_weight_of_an_ingress_that_is_no_canary(canaries: Canaries) -> None:
    context = canaries.serving(canaries.main(canary_weight="50"))
    assert canaries.pod_of() == "app"
    (noted,) = context.refused
    assert 'canary: "true"' in noted.detail


def test_it_is_told_which_backends_serve_whom(canaries: Canaries) -> None:
    context = canaries.serving(canaries.main(), canaries.canary(canary_weight="20", canary_by_cookie="try"))
    said = canaries.stage.explained("ingress", "/")
    assert any("shop/app 80, shop/canary 20" in step.text for step in said.steps)
    assert any("cookie try" in step.text and step.object.endswith("web-canary") for step in said.steps)
    parts = {
        claim.ref.name: {backend.section.split("_")[-2] for backend in claim.backends}
        for claim in registry.claims_of(context)
        if claim.ref.kind == "Ingress"
    }
    assert parts == {name: {"weighted", "canary", "main"} for name in ("web", "web-canary")}
    status = next(each for each in context.statuses if ObjectKey(Resource.INGRESSES, Key("shop", "web")) in each)
    bodies = [status[ObjectKey(Resource.INGRESSES, Key("shop", name))].body for name in ("web", "web-canary")]
    assert bodies[0] == bodies[1]
    assert bodies[0]["loadBalancer"]["ingress"]


def test_requests_of_a_log_depend_on_what_it_does_not_have(canaries: Canaries) -> None:
    found = []
    for words in ({}, {"canary_by_cookie": "try"}):
        canaries.serving(canaries.main(), *([canaries.canary(**words)] if words else []))
        assert canaries.stage.evidence is not None
        found.append(RoutingDecisions(canaries.stage.evidence))
    line = {"listener": "http-in", "method": "GET", "host": HOST, "path": "/"}
    effect = TrafficReplay(*found).effect_of(asked_for(json.dumps(line).encode())).effect
    assert set(effect.depends_on) <= {"cookie try"}
    assert "cookie try" in effect.depends_on or effect.kind is EffectKind.CHANGED


def test_a_policy_for_a_service_says_nothing_of_canaries(canaries: Canaries) -> None:
    said = policy({"canary": True, "serverAlias": ["a.example.org"]}, {"group": "", "kind": "Service", "name": "app"})
    context = canaries.serving(canaries.main(), said)
    assert canaries.pod_of() == "app"
    assert canaries.stage.request("ingress", host="a.example.org").status == 404
    assert {"an Ingress, and not" in each.detail for each in refused_of(context)} == {True}
