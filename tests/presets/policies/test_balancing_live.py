"""Words that say which pod a request goes to, by a real HAProxy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.presets.policies.words import NOTHING_ASKED, asked_by
from tests.presets.gateway.stage import pods
from tests.presets.policies.stage import WAYS, PolicyStage, policy_stage

haproxy = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        yield found


def _second(port: int) -> str:
    return f"""
kind: EndpointSlice
metadata: {{name: app-b, labels: {{kubernetes.io/service-name: app}}}}
addressType: IPv4
endpoints: [{{addresses: [127.0.0.1]}}]
ports: [{{name: http, port: {port}}}]
"""


@haproxy
@ways
@pytest.mark.parametrize("by", ["header:X-User", "cookie:user"])
def test_equal_requests_go_to_one_pod(stage: PolicyStage, way: str, by: str) -> None:
    assert stage.pod is not None
    with pods("other") as (other,):
        stage.serving(WAYS[way]({"hash-by": by}), _second(other.port))
        for user in range(12):
            for _ in range(3):
                headers = {"X-User": f"u{user}"} if by.startswith("header") else {"Cookie": f"user=u{user}"}
                assert stage.request(way, f"/{user}", headers=headers).status == 200
        one, two = set(stage.pod.seen), set(other.seen)
    assert one
    assert two
    assert not one & two


@haproxy
@ways
def test_session_cookie(stage: PolicyStage, way: str) -> None:
    assert stage.pod is not None
    with pods("other") as (other,):
        stage.serving(WAYS[way]({"session-cookie": "KEEP"}), _second(other.port))
        for user in range(24):
            first = stage.request(way, f"/{user}")
            (given,) = first.headers["set-cookie"]
            kept, *attributes = given.split("; ")
            assert kept.startswith("KEEP=")
            assert attributes == ["Path=/", "HttpOnly", "SameSite=Lax"]
            for _ in range(3):
                assert "set-cookie" not in stage.request(way, f"/{user}", headers={"Cookie": kept}).headers
        one, two = set(stage.pod.seen), set(other.seen)
    assert one
    assert two
    assert not one & two


@haproxy
@ways
@pytest.mark.parametrize("by", ["source", "path", "uri"])
def test_other_hashes(stage: PolicyStage, way: str, by: str) -> None:
    stage.serving(WAYS[way]({"hash-by": by}))
    assert stage.request(way).status == 200


@haproxy
@ways
@pytest.mark.parametrize("balance", ["roundrobin", "leastconn", "random"])
def test_algorithms(stage: PolicyStage, way: str, balance: str) -> None:
    stage.serving(WAYS[way]({"balance": balance}))
    assert stage.request(way).status == 200


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("balance", "first"),
        ("balance", "random(9)"),
        ("hash-by", "header:"),
        ("hash-by", "cookie:a)b"),
        ("hash-by", ""),
        ("session-cookie", "a;b"),
    ],
)
def test_hostile_text(word: str, text: str) -> None:
    asked, (fault,) = asked_by([(word, text)])
    assert (asked, fault.name) == (NOTHING_ASKED, word)
