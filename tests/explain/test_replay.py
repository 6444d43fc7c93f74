"""What ``pyconfd plan --traffic`` counts of a log, held against what ``pyconfd explain URL`` says of each request."""

import json
import os
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from pyconfd.explain.decision import RoutingDecisions
from pyconfd.explain.replay import EffectKind, TrafficEffect, TrafficReplay
from pyconfd.explain.request import ClientRequest
from pyconfd.explain.request_answer import explain_request
from pyconfd.explain.routing import ENDED_TLS, SHARED_TLS, opened, reached
from pyconfd.model.explanation import RequestAnswer
from pyconfd.model.listener import ANY
from pyconfd.model.logged import asked_for
from tests.explain.random_requests import Served, cluster, request
from tests.explain.test_request_answer import BALANCED, BALANCED_SLICE, GATEWAY, evidence
from tests.fuzz.clusters import SHARED_ADDRESS

SEED = int(os.environ.get("PYCONFD_TEST_SEED", "1"))
_CLUSTERS = int(os.environ.get("PYCONFD_TEST_CLUSTERS", "25"))
_OF_EACH_CLUSTER = 100


def answer_of(asked: ClientRequest, served: Served) -> RequestAnswer:
    answer = explain_request(asked, served.evidence).request
    assert answer is not None
    return answer


def services_of(name: str, served: Served) -> tuple[str, ...]:
    """Return what a rule of the Gateway API leads to, with the share of each; else the name of the backend."""
    rule = served.seen.context.names["rules"]["backends"].get(name)
    if rule is None or not rule.ports:
        return (name,)
    total = sum(weight for weight, _ in rule.ports) or 1
    return tuple(sorted(f"{port} {round(weight / total, 4)}" for weight, port in rule.ports))


def effect_of(answer: RequestAnswer, served: Served) -> tuple[Any, ...]:
    """Return what is compared: a rule with another number that leads to the same Services is no change."""
    if answer.status or answer.closed:
        return answer.status, answer.location, answer.closed
    backends = sorted((services_of(name, served), share) for name, share in answer.backends if share)
    edits = ("request header", "response header", "the server gets")
    filters = sorted(each.text for each in answer.steps if each.part == "filter" and each.text.startswith(edits))
    return backends, filters, answer.sometimes


def _is_by_network(answer: RequestAnswer) -> bool:
    return answer.status == 403 and any("-networks" in each.text for each in answer.steps)


def line_of(asked: ClientRequest, section: str) -> bytes:
    is_ended = asked.is_tls and asked.is_http
    listener = ENDED_TLS if section == SHARED_TLS else f"{section.removesuffix('.https')}.https"
    found = {
        "listener": listener if is_ended else section,
        "client": asked.source,
        "method": asked.method,
        "host": asked.name,
        "path": asked.pathq,
        "tls": "TLSv1.3" if asked.is_tls else "",
        "sni": asked.tls_name if asked.is_tls else "",
    }
    return json.dumps(found).encode()


def test_each_request_is_compared_as_it_is_explained() -> None:
    kinds, differing = Counter[EffectKind](), list[str]()
    for number in range(_CLUSTERS):
        before, rng = cluster(SEED, number, "/f"), Random(f"replay/{SEED}/{number}")
        after = cluster(SEED, number, "/f", later=True)
        replay = TrafficReplay(RoutingDecisions(before.evidence), RoutingDecisions(after.evidence))
        places, _ = opened(before.seen.rendering.text)
        for _ in range(_OF_EACH_CLUSTER):
            asked = request(rng, before)
            found = reached(places, asked)
            if not found:
                continue
            listener = found[0].listener
            asked = replace(asked, to=SHARED_ADDRESS if listener.address in {*ANY, ""} else listener.address)
            was = answer_of(asked, before)
            if was.closed:
                continue  # nothing is logged of it
            line = line_of(asked, found[0].section)
            effect = replay.effect_of(asked_for(line)).effect
            kinds[effect.kind] += 1
            then = answer_of(asked, after)
            if any(_is_by_network(each) for each in (was, then)):
                continue  # of networks it compares the words, and not what each client gets
            is_same = effect_of(was, before) == effect_of(then, after)
            if effect.kind is (EffectKind.CHANGED if is_same else EffectKind.SAME):
                both = f"{effect_of(was, before)}\n  {effect_of(then, after)}"
                differing.append(f"{before.name} {dict(asked.asked)}\n  {line!r}\n  {effect}\n  {both}")
    print(f"{kinds.total():,} requests, {len(differing)} differ: {dict(kinds)}")
    assert not differing, "\n".join(differing[:4])
    # Without this it could pass since nothing is ever decided.
    total = kinds.total()
    assert kinds[EffectKind.SAME] > total / 10
    assert kinds[EffectKind.CHANGED] > total / 20
    assert kinds[EffectKind.DEPENDS]
    assert kinds[EffectKind.UNKNOWN] < total / 10


def replay_of(before: str, after: str) -> TrafficReplay:
    return TrafficReplay(RoutingDecisions(evidence(before)), RoutingDecisions(evidence(after)))


def effects(replay: TrafficReplay, *asked: dict[str, str]) -> list[TrafficEffect]:
    common = {"listener": "gw_shop_web_80", "method": "GET", "host": "api.example.com", "path": "/v2/x"}
    return [replay.effect_of(asked_for(json.dumps({**common, **each}).encode())).effect for each in asked]


def test_what_a_header_decides_is_a_group_of_its_own() -> None:
    after = GATEWAY.replace("replacePrefixMatch: /}", "replacePrefixMatch: /new}")
    on_v2, elsewhere = effects(replay_of(GATEWAY, after), {}, {"path": "/v1"})
    assert elsewhere.kind is EffectKind.SAME
    assert (on_v2.kind, on_v2.depends_on) == (EffectKind.DEPENDS, ("header x-canary",))
    assert (on_v2.before.count("rewrites path"), "/new" in on_v2.before, "/new" in on_v2.after) == (1, False, True)
    assert "c2VjcmV0" not in on_v2.before + on_v2.after
    assert "token-of-canary" not in str(on_v2)


def test_a_rule_with_another_number_that_leads_to_the_same_is_no_change() -> None:
    more = "  - matches: [{path: {type: PathPrefix, value: /other}}]\n    backendRefs: [{name: web, port: 80}]\n"
    after = GATEWAY.replace("  rules:\n", f"  rules:\n{more}")
    assert after != GATEWAY
    found = effects(replay_of(GATEWAY, after), {"path": "/v1"}, {}, {"method": "POST"}, {"path": "/other"})
    assert [each.kind for each in found] == [EffectKind.SAME] * 4


def test_a_redirect_or_a_method_that_changes() -> None:
    moved = effects(replay_of(GATEWAY, GATEWAY.replace("statusCode: 307", "statusCode: 308")), {"method": "POST"}, {})
    assert [each.kind for each in moved] == [EffectKind.CHANGED, EffectKind.SAME]
    assert moved[0].after == "status 308 to http://new.example.com/..."
    gone = effects(replay_of(GATEWAY, GATEWAY.replace("method: POST", "method: PUT")), {"method": "PUT"}, {})
    assert [each.kind for each in gone] == [EffectKind.CHANGED, EffectKind.SAME]
    # It was one of two backends, and is neither of them.
    assert (gone[0].depends_on, gone[0].before.count("backend ")) == (("header x-canary",), 2)


def test_each_path_is_decided_where_an_expression_reads_it() -> None:
    of_numbers = GATEWAY.replace(
        "type: PathPrefix, value: /v2}, method: POST", 'type: RegularExpression, value: "/v2/[0-9]+"}'
    )
    assert of_numbers != GATEWAY
    before = of_numbers.replace("statusCode: 307", "statusCode: 308")
    paths = [{"path": f"/v2/{text}"} for text in ("a", "1", "b", "2", "a")]
    found = effects(replay_of(before, of_numbers), *paths)
    same, changed = EffectKind.SAME, EffectKind.CHANGED
    assert [each.kind for each in found] == [same, changed, same, changed, same]


def test_a_query_is_read_where_the_log_has_it() -> None:
    by_query = GATEWAY.replace("method: POST", "queryParams: [{name: beta, value: '1'}]")
    assert by_query != GATEWAY
    after = by_query.replace("statusCode: 307", "statusCode: 308")
    without_header = ("headers: [{name: X-Canary, value: token-of-canary}]", "method: DELETE")
    replay = replay_of(by_query.replace(*without_header), after.replace(*without_header))
    unknown, no, yes = effects(replay, {}, {"path": "/v2/x?beta=2"}, {"path": "/v2/x?a=1&beta=1"})
    assert (unknown.kind, unknown.depends_on) == (EffectKind.DEPENDS, ("query parameter beta",))
    assert [no.kind, yes.kind] == [EffectKind.SAME, EffectKind.CHANGED]


def test_a_port_that_only_some_clients_may_connect_to() -> None:
    services = BALANCED + "---" + BALANCED_SLICE
    narrower = services.replace("198.51.100.0/24", "198.51.100.0/25")
    replay = replay_of(services, narrower)
    (section,) = (each.section for each in opened(evidence(services).desired.text)[0] if "lb" in each.section)  # type: ignore[union-attr]
    lines = [{"listener": section, "method": "", "client": f"198.51.100.{each}"} for each in (1, 200)]
    inside, outside = effects(replay, *lines)
    assert (inside.kind, outside.kind, outside.after) == (EffectKind.SAME, EffectKind.CHANGED, "connection closed")


def test_a_frontend_that_is_not_there_is_not_answered() -> None:
    (found,) = effects(replay_of(GATEWAY, GATEWAY), {"listener": "old"})
    assert (found.kind, found.before) == (EffectKind.UNKNOWN, "frontend old is not in the configuration before")
    # The shared frontend listens on all addresses.
    gone = effects(replay_of(GATEWAY, ""), {})
    assert [(each.kind, each.after) for each in gone] == [(EffectKind.CHANGED, "status 404")]
