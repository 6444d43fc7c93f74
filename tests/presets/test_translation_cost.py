"""The short form of ``make bench ONLY=translation``: what a change costs does not follow from the cluster's size."""

from itertools import product

import pytest

from tests.bench import routing
from tests.bench.translation import Made, Translating, calls
from tests.world.resources import Obj

FEW, MANY = 25, 100
PASSED_OVER = 12
"""More calls than with a quarter of the routes: a place in a longer list is looked for in a few more steps."""


def calls_for(what: str, kind: str, routes: int, gateways: int = 0) -> int:
    made = Made(kind, routes, gateways)
    changes = {**made.changes, "wildcard": _wildcard}
    translating = Translating(made.presets, made.options)
    translating.follow(made.cluster.snapshot())
    for version in (1, 2):
        made.cluster.apply(changes[what](version))
        translating.follow(made.cluster.snapshot())
    made.cluster.apply(changes[what](3))
    snapshot = made.cluster.snapshot()
    with calls() as called:
        translating.follow(snapshot)
    return called.total()


def _wildcard(version: int) -> Obj:
    return routing.http_route(version, 0, f"*.w{version}.example.com")


@pytest.mark.parametrize(
    ("kind", "what"),
    [*product(("ingress", "gateway"), ("endpoint", "path", "host")), ("gateway", "wildcard")],
)
def test_a_change_costs_the_same_among_more_routes(kind: str, what: str) -> None:
    few, many = calls_for(what, kind, FEW), calls_for(what, kind, MANY)

    assert many <= few + PASSED_OVER


@pytest.mark.parametrize("what", ["endpoint", "path", "host"])
def test_a_change_costs_the_same_beside_more_gateways(what: str) -> None:
    few, many = calls_for(what, "gateway", FEW, gateways=2), calls_for(what, "gateway", FEW, gateways=8)

    assert many <= few + PASSED_OVER
