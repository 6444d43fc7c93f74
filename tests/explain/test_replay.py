"""What ``pyconfd plan --traffic`` counts of a log, held against what ``pyconfd explain URL`` says of each request."""

import json
import os
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from pyconfd.explain.decision import RoutingDecisions
from pyconfd.explain.replay import EffectKind, TrafficReplay
from pyconfd.explain.request import ClientRequest
from pyconfd.explain.request_answer import explain_request
from pyconfd.explain.routing import ENDED_TLS, SHARED_TLS, opened, reached
from pyconfd.model.explanation import RequestAnswer
from pyconfd.model.listener import ANY
from pyconfd.model.logged import asked_for
from tests.explain.random_requests import Served, cluster, request
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
    rule = served.seen.context.names["gateway"]["backends"].get(name)
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
