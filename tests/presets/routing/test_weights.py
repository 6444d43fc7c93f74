"""Servers of several references: each reference gets its share, whatever the number of its endpoints."""

from collections.abc import Sequence

import pytest

from pyconfd.presets.routing.types import RouteServer, section_name
from pyconfd.presets.routing.weights import empty_share, weighted_servers
from pyconfd.presets.views import EndpointView


def endpoints(name: str, number: int, state: str = "ready") -> tuple[EndpointView, ...]:
    return tuple(
        EndpointView(f"10.{sum(map(ord, name)) % 250}.0.{each}", 80, state, "ipv4", f"{name}-{each}")
        for each in range(1, number + 1)
    )


def weights(servers: Sequence[RouteServer], name: str) -> list[int]:
    return [server.weight for server in servers if server.pod.startswith(f"{name}-")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([(1, 3)], [[1, 1, 1]]),
        ([(7, 2), (7, 2)], [[1, 1], [1, 1]]),
        ([(9, 1), (1, 1)], [[256], [28]]),
        ([(80, 2), (20, 2)], [[256, 256], [64, 64]]),
        ([(1, 1), (1, 4)], [[256], [64, 64, 64, 64]]),
        ([(100, 1), (0, 2)], [[1], [0, 0]]),
        ([(0, 1), (0, 1)], [[0], [0]]),
        ([(99, 1), (1, 100)], [[256], [1, 1, 1, *[0] * 97]]),
        ([(1_000_000, 1), (1, 1)], [[256], [1]]),
        ([(50, 0), (50, 2)], [[], [1, 1]]),
    ],
)
def test_each_reference_gets_its_share(given: Sequence[tuple[int, int]], expected: Sequence[list[int]]) -> None:
    made = weighted_servers([(weight, endpoints(f"r{place}", n)) for place, (weight, n) in enumerate(given)])
    assert [weights(made, f"r{place}") for place in range(len(given))] == expected


def test_a_draining_endpoint_takes_nothing_of_its_reference() -> None:
    made = weighted_servers([(3, (*endpoints("a", 1), *endpoints("old", 1, "draining"))), (1, endpoints("b", 1))])
    assert (weights(made, "a"), weights(made, "b")) == ([256], [85])


def test_a_server_is_its_endpoint_with_a_weight() -> None:
    endpoint = EndpointView("10.0.0.1", 80, "ready", "ipv4", "pod", "node", "zone")
    assert weighted_servers([(1, (endpoint,))]) == (
        RouteServer("10.0.0.1", 80, "ready", "ipv4", "pod", "node", "zone", 1),
    )


def test_an_endpoint_behind_two_references_has_the_weight_of_both() -> None:
    made = weighted_servers([(3, endpoints("a", 1)), (1, endpoints("a", 2))])
    assert weights(made, "a") == [256, 42]


@pytest.mark.parametrize(
    ("references", "share"),
    [
        ([], 0),
        ([(1, 1)], 0),
        ([(1, 0)], 0),
        ([(1, 0), (2, 0)], 0),
        ([(1, 0), (0, 3)], 0),
        ([(0, 0), (1, 3)], 0),
        ([(20, 0), (80, 1)], 20),
        ([(1, 0), (1, 0), (2, 5)], 50),
        ([(1, 0), (999_999, 1)], 1),  # of so few requests no share is lost
    ],
)
def test_the_share_of_references_without_endpoints(references: list[tuple[int, int]], share: int) -> None:
    assert empty_share([(weight, endpoints("a", number)) for weight, number in references], 100) == share


def test_an_endpoint_that_is_not_ready_is_none() -> None:
    references = [(1, endpoints("old", 2, "draining")), (1, endpoints("new", 1))]
    assert empty_share(references, 100) == 50


@pytest.mark.parametrize(("canary", "pods"), [(0, (3, 1)), (20, (3, 2)), (40, (5, 7)), (100, (2, 2)), (1, (10, 10))])
def test_a_step_of_a_canary_is_within_a_percent(canary: int, pods: tuple[int, int]) -> None:
    made = weighted_servers([(100 - canary, endpoints("stable", pods[0])), (canary, endpoints("canary", pods[1]))])
    share = sum(weights(made, "canary")) / sum(server.weight for server in made)
    assert share * 100 == pytest.approx(canary, abs=1)


@pytest.mark.parametrize(
    "parts", [("a-b", "c", "80"), ("a", "b-c", "80"), ("a_b", "c", "80"), ("a", "b_c", "80"), ("a", "b" * 200, "80")]
)
def test_names_of_sections_are_short_words_and_differ(parts: tuple[str, ...]) -> None:
    others = [("a", "b_c_80"), ("a", "b" * 200, "81"), ("a", "b", "c-80"), ("a-b-c", "80"), ("a_b_c", "80")]
    name = section_name("ing", *parts)
    assert len(name) <= 120
    assert name.startswith("ing_a")
    assert name not in {section_name("ing", *each) for each in others}
