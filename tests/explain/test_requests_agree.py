"""Where ``pyconfd explain URL`` says that requests go, against where HAProxy leads them."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from pyconfd.explain.request_answer import explain_request
from pyconfd.trying.own_haproxy import short_folder
from tests.explain.agreement import compare
from tests.explain.random_requests import SECRET, cluster, request
from tests.explain.real import NamedBackends
from tests.fuzz import haproxy_model
from tests.fuzz.clusters import SHARED_ADDRESS
from tests.fuzz.haproxy_model import route
from tests.world.haproxy import HaproxyProcess

CASES = int(os.environ.get("PYCONFD_TEST_REQUESTS", "300"))
SEED = int(os.environ.get("PYCONFD_TEST_SEED", "1"))
_OF_EACH_CLUSTER = 10
_CLUSTERS = 30


@pytest.fixture
def haproxy(tmp_path: Path) -> Iterator[NamedBackends]:
    with HaproxyProcess(tmp_path) as process:
        yield NamedBackends(short_folder("req-"), process)


def test_requests_to_shared_frontends_go_where_the_text_says() -> None:
    """By the model of HAProxy, which knows no conditions of Gateways: also where no HAProxy is installed."""
    served = 0
    for number in range(_CLUSTERS):
        made, rng = cluster(SEED, number, "/f"), Random(f"shared/{SEED}/{number}")
        for _ in range(_OF_EACH_CLUSTER):
            asked = request(rng, made, SHARED_ADDRESS)
            if asked.is_tls != (asked.port == 443):
                continue  # the model takes each client for one that speaks TLS where it is expected
            explained = explain_request(asked, made.evidence)
            answer = explained.request
            assert answer is not None
            headers = tuple((name, value) for name, value in asked.headers if name == "x-forwarded-proto")
            found = route(
                made.seen.config,
                haproxy_model.Request(
                    asked.to,
                    asked.port,
                    asked.headers[0][1],
                    asked.path,
                    asked.tls_name,
                    source=asked.source or "198.51.100.250",
                    headers=headers,
                ),
            )
            if "handshake fails" in answer.steps[-1].text:
                assert not found.certificates, asked
                continue
            if any("the client's network" in each or "lets this client in" in each for each in answer.uncovered):
                continue
            ended = answer.closed or answer.status
            assert (set() if ended else {each.address for each in explained.servers}) == found.servers, asked
            served += bool(found.servers)
    assert served > _CLUSTERS


def test_no_answer_has_the_value_of_a_header() -> None:
    for number in range(_CLUSTERS):
        made, rng = cluster(SEED, number, "/f"), Random(f"secrets/{SEED}/{number}")
        for _ in range(_OF_EACH_CLUSTER):
            assert SECRET not in str(explain_request(request(rng, made), made.evidence))


@pytest.mark.haproxy
@pytest.mark.timeout(3600)
def test_requests_go_where_it_says(haproxy: NamedBackends) -> None:
    differing, kinds = compare(haproxy, CASES, SEED)
    print(f"{CASES:,} requests, {len(differing)} differ: {dict(kinds)}")
    assert not differing, "\n".join(differing[:5])
    # Without this it could pass since nothing is ever served.
    assert kinds["served"] > CASES / 10
    assert kinds["not covered"] < CASES / 10
