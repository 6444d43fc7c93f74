"""Where ``pyconfd explain URL`` says that requests go, against where HAProxy leads them."""

import os
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from pyconfd.explain.request import ClientRequest
from pyconfd.explain.request_answer import explain_request
from pyconfd.model.explanation import RequestAnswer
from pyconfd.trying.own_haproxy import short_folder
from tests.explain.random_requests import SECRET, Served, cluster, request
from tests.explain.real import SERVED, Answered, NamedBackends
from tests.fuzz import haproxy_model
from tests.fuzz.clusters import SHARED_ADDRESS
from tests.fuzz.haproxy_model import route
from tests.world.haproxy import HaproxyProcess

CASES = int(os.environ.get("PYCONFD_TEST_REQUESTS", "300"))
SEED = int(os.environ.get("PYCONFD_TEST_SEED", "1"))
_OF_EACH_CLUSTER = 100
_CLUSTERS = 30


@pytest.fixture
def haproxy(tmp_path: Path) -> Iterator[NamedBackends]:
    with HaproxyProcess(tmp_path) as process:
        yield NamedBackends(short_folder("req-"), process)


def answer_of(asked: ClientRequest, served: Served) -> RequestAnswer:
    answer = explain_request(asked, served.evidence).request
    assert answer is not None
    return answer


def agrees(answer: RequestAnswer, got: Answered) -> bool:
    """Return whether a client got what was said."""
    if got.status in {status for status, _ in answer.sometimes} and not got.backend:
        return True
    if answer.closed or answer.status:
        return got == Answered(answer.status, "", answer.location)
    return got.status == SERVED and got.backend in {name for name, share in answer.backends if share}


def test_requests_to_shared_frontends_go_where_the_text_says() -> None:
    """By the model of HAProxy, which knows no conditions of Gateways: also where no HAProxy is installed."""
    served = 0
    for number in range(_CLUSTERS):
        made, rng = cluster(SEED, number, "/f"), Random(f"shared/{SEED}/{number}")
        for _ in range(_OF_EACH_CLUSTER // 10):
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
            ended = answer.closed or answer.status
            assert (set() if ended else {each.address for each in explained.servers}) == found.servers, asked
            served += bool(found.servers)
    assert served > _CLUSTERS


def test_no_answer_has_the_value_of_a_header() -> None:
    for number in range(_CLUSTERS):
        made, rng = cluster(SEED, number, "/f"), Random(f"secrets/{SEED}/{number}")
        for _ in range(_OF_EACH_CLUSTER // 10):
            assert SECRET not in str(explain_request(request(rng, made), made.evidence))


def _first(pem: str) -> str:
    end = "-----END CERTIFICATE-----"
    return pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index(end) + len(end)]


@pytest.mark.haproxy
@pytest.mark.timeout(3600)
def test_requests_go_where_it_says(haproxy: NamedBackends) -> None:
    differing, kinds = list[str](), Counter[str]()
    for number in range(-(-CASES // _OF_EACH_CLUSTER)):
        served = cluster(SEED, number, str(haproxy.folder))
        haproxy.serve(served.seen.rendering, served.seen.context)
        files = [each for each in served.seen.context.files if each.path.endswith(".pem")]
        certificates = {Path(each.path).name: ssl.PEM_cert_to_DER_cert(_first(each.content)) for each in files}
        rng = Random(f"asked/{SEED}/{number}")
        for _ in range(min(_OF_EACH_CLUSTER, CASES - number * _OF_EACH_CLUSTER)):
            asked = request(rng, served)
            answer, got = answer_of(asked, served), haproxy.ask(asked)
            kinds["closed" if answer.closed else str(answer.status or "served")] += 1
            kinds["of several backends"] += len(answer.backends) > 1
            kinds["not covered"] += bool(answer.uncovered)
            presented = [each.text.partition(" ")[0] for each in answer.steps if each.part == "certificate"]
            kinds["certificates"] += bool(presented and got.certificate)
            is_other = presented and got.certificate and got.certificate != certificates[presented[0]]
            # No header of these clusters has a value for which it matters that HAProxy sets it.
            has_end = answer.closed or answer.status or answer.backends or not answer.uncovered
            if is_other or (has_end and not agrees(answer, got)):
                steps = "\n    ".join(f"{each.part} {each.result} {each.text}" for each in answer.steps)
                differing.append(f"{served.name}: {dict(asked.asked)} {asked.headers}\n  got {got}\n    {steps}")
    print(f"{CASES:,} requests, {len(differing)} differ: {dict(kinds)}")
    assert not differing, "\n".join(differing[:5])
    # Without this it could pass since nothing is ever served.
    assert kinds["served"] > CASES / 10
    assert kinds["not covered"] < CASES / 10
