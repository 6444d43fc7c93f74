"""The short form of ``make bench ONLY=translation``: what a change costs does not follow from the cluster's size."""

from itertools import product

import pytest

from pyconfd.model.plan import RuntimeUpdate
from pyconfd.render.fragment import CompiledFragment
from tests.bench import routing
from tests.bench.proportion import Chain
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


@pytest.mark.parametrize("kind", ["ingress", "gateway"])
def test_an_endpoint_is_a_matter_of_its_backends(kind: str) -> None:
    """Nothing is made again of paths, and one fragment is rendered."""
    made = Made(kind, FEW)
    chain = Chain(made.presets, made.options)
    for version in (1, 2):
        chain.follow(made.cluster.snapshot())
        made.cluster.apply(made.changes["endpoint"](version))
    with calls() as called:
        assert isinstance(chain.follow(made.cluster.snapshot()), RuntimeUpdate)
    rendered = CompiledFragment._parts.__code__
    assert called[rendered.co_filename, rendered.co_firstlineno] == 1
    assert not [file for file, _ in called if file.endswith("/routing/table.py")]
