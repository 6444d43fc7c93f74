"""Words and expressions in `plan --traffic`; `explain URL` is asked for each request of the stage."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.explain.decision import RoutingDecisions
from pyconfd.explain.replay import EffectKind, TrafficReplay
from pyconfd.model.logged import asked_for
from pyconfd.presets.routing.rules import Handling
from tests.presets.policies.stage import HOST, TARGETS, PolicyStage, of_ingress, policy, policy_stage
from tests.presets.policies.test_nginx_paths import ingress


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        found.nginx_classes = ("nginx",)
        yield found


def replay(stage: PolicyStage, before: str, after: str) -> TrafficReplay:
    both = [stage.evidence_of(*stage.rendered(each), each) for each in (before, after)]
    return TrafficReplay(*map(RoutingDecisions, both))


def kinds(found: TrafficReplay, *paths: str) -> list[EffectKind]:
    common = {"listener": "http-in", "method": "GET", "host": HOST, "client": "198.51.100.7"}
    return [found.effect_of(asked_for(json.dumps({**common, "path": path}).encode())).effect.kind for path in paths]


SAME, CHANGED = EffectKind.SAME, EffectKind.CHANGED


@pytest.mark.parametrize("order", [1, -1])
def test_each_path_is_decided_where_an_expression_may_match(stage: PolicyStage, order: int) -> None:
    before, after = (
        ingress("web", {f"/api/(v1|{each})": "ImplementationSpecific"}, use_regex="true") for each in ("v2", "v9")
    )
    expected = {"/api/v1": SAME, "/api/v2": CHANGED, "/api/v9": CHANGED, "/api/v3": SAME}
    paths = list(expected)[::order]
    assert dict(zip(paths, kinds(replay(stage, before, after), *paths), strict=True)) == expected


def test_the_beginning_of_an_element_may_decide(stage: PolicyStage) -> None:
    before, after = (ingress("web", {path: "ImplementationSpecific"}) for path in ("/foo", "/foob"))
    assert kinds(replay(stage, before, after), "/foobar", "/foo", "/other") == [SAME, CHANGED, SAME]


def test_other_words_are_a_change(stage: PolicyStage) -> None:
    before, after = of_ingress({"max-body-size": "1k"}), of_ingress({"allow-networks": "10.0.0.0/8"})
    found = replay(stage, before, after)
    effect = found.effect_of(
        asked_for(json.dumps({"listener": "http-in", "method": "GET", "host": HOST, "path": "/"}).encode())
    ).effect
    assert (effect.kind, "with max body" in effect.before, "with allow" in effect.after) == (CHANGED, True, True)


def test_a_closed_rule_leads_to_what_says_the_wrong_word(stage: PolicyStage) -> None:
    wrong = of_ingress({"allow-networks": "x", "max-body-size": "1k"})
    stage.evidence = stage.evidence_of(*stage.rendered(wrong), wrong)
    answer = stage.explained("ingress", "/")
    assert (answer.status, answer.steps[-1].field) == (403, "")
    assert "pyconfd explain ingress shop/web says which" in answer.steps[-1].text


def test_who_is_asked_is_told(stage: PolicyStage) -> None:
    before, after = of_ingress({}), of_ingress({"auth-url": "http://auth.shop.svc:4180/check"})
    stage.evidence = stage.evidence_of(*stage.rendered(after), after)
    answer = stage.explained("ingress", "/")
    assert "whether Service shop/auth, port 4180 lets this client in" in answer.uncovered
    assert kinds(replay(stage, before, after), "/") == [CHANGED]


def test_a_root_is_a_path_of_its_own(stage: PolicyStage) -> None:
    before, after = of_ingress({"app-root": "/a"}), of_ingress({"app-root": "/b"})
    assert kinds(replay(stage, before, after), "/") == [CHANGED]


def test_no_silence_is_longer_than_the_deadline() -> None:
    own, usual = Handling(timeout_ms=60_000), Handling(timeout_ms=10_000, deadline_ms=10_000)
    assert own.beside(usual)[:3] == (10_000, None, 10_000)
    assert Handling(deadline_ms=5_000).beside(Handling(timeout_ms=9_000)).timeout_ms == 5_000
    assert Handling().beside(Handling()) == Handling()


def test_the_policy_that_has_somebody_asked_is_named(stage: PolicyStage) -> None:
    text = of_ingress({}) + "---\n" + policy({"authUrl": "http://auth.shop.svc:4180/check"}, TARGETS["ingress"])
    stage.evidence = stage.evidence_of(*stage.rendered(text), text)
    (asked,) = (each for each in stage.explained("ingress", "/").steps if "is asked" in each.text)
    assert asked.field == "RoutePolicy shop/p spec.authUrl"


def test_nobody_is_asked_for_what_browsers_ask_before_a_request(stage: PolicyStage) -> None:
    text = of_ingress({"auth-url": "http://auth.shop.svc:4180/check", "cors-allow-origins": "https://a.example"})
    stage.evidence = stage.evidence_of(*stage.rendered(text), text)
    headers = [("Origin", "https://a.example"), ("Access-Control-Request-Method", "PUT")]
    for method, is_asked in (("OPTIONS", False), ("GET", True)):
        steps = stage.explained("ingress", "/", headers=headers, method=method).steps
        assert any("is asked" in each.text for each in steps) == is_asked
