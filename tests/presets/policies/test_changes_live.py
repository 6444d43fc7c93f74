"""Words that change requests and answers, by a real HAProxy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.presets.policies.stage import HOST, WAYS, PolicyStage, policy_stage, refused_of

pytestmark = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        yield found


@ways
def test_headers(stage: PolicyStage, way: str) -> None:
    words = {
        "request-headers": "X-Set: 100% %[src]\nX-Word: if",
        "remove-request-headers": "X-Debug, X-Other",
        "response-headers": "X-Frame-Options: DENY\nX-Quoted: \"a\" \\ 'b' #c",
        "remove-response-headers": "Content-Type",
    }
    stage.serving(WAYS[way](words))
    answer = stage.request(way, headers={"X-Set": "mine", "X-Debug": "1", "X-Kept": "2"})
    asked = {name.lower(): value for name, value in answer.echo["headers"].items()}
    found = {name: _one(asked.get(name)) for name in ("x-set", "x-word", "x-debug", "x-kept")}
    assert found == {"x-set": "100% %[src]", "x-word": "if", "x-debug": None, "x-kept": "2"}
    assert answer.headers["x-frame-options"] == ["DENY"]
    assert answer.headers["x-quoted"] == ["\"a\" \\ 'b' #c"]
    assert "content-type" not in answer.headers


def _one(value: object) -> object:
    return value[0] if isinstance(value, list) else value


@ways
def test_host_and_path_of_the_pod(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"upstream-host": "inner.example", "rewrite-path": "/%41/b"}))
    echo = stage.request(way, "/x?q=1").echo
    assert echo["path"] == "/%41/b?q=1"
    assert {name.lower(): _one(value) for name, value in echo["headers"].items()}["host"] == "inner.example"


@ways
@pytest.mark.parametrize(
    ("to", "code", "expected"),
    [
        ("https://www.example.com/new", "permanent", (308, "https://www.example.com/new?q=1")),
        ("https://www.example.com", "301", (301, "https://www.example.com/x?q=1")),
        ("http://www.example.com:8080/", "temporary", (307, "http://www.example.com:8080/?q=1")),
        ("/new", "302", (302, f"http://{HOST}/new?q=1")),
    ],
)
def test_redirects(stage: PolicyStage, way: str, to: str, code: str, expected: tuple[int, str]) -> None:
    stage.serving(WAYS[way]({"redirect": to, "redirect-code": code}))
    answer = stage.request(way, "/x?q=1")
    assert (answer.status, *answer.headers["location"]) == expected


@ways
def test_app_root(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"app-root": "/app%20x"}))
    answer = stage.request(way)
    assert (answer.status, answer.headers["location"]) == (302, ["/app%20x"])
    assert stage.request(way, "/app").status == 200


@ways
def test_cors(stage: PolicyStage, way: str) -> None:
    words = {
        "cors-allow-origins": "https://app.example.com https://*.example.org",
        "cors-allow-methods": "GET, PUT",
        "cors-allow-headers": "X-A",
        "cors-expose-headers": "X-Total",
        "cors-allow-credentials": "true",
        "cors-max-age": "600",
    }
    stage.serving(WAYS[way](words))
    asked = {"Origin": "https://a.example.org", "Access-Control-Request-Method": "PUT"}
    before = stage.request(way, method="OPTIONS", headers=asked)
    found = {name: value for name, (value, *_) in before.headers.items() if name.startswith("access-control")}
    assert before.status == 204
    assert found == {
        "access-control-allow-origin": "https://a.example.org",
        "access-control-allow-credentials": "true",
        "access-control-allow-methods": "GET, PUT",
        "access-control-allow-headers": "X-A",
        "access-control-expose-headers": "X-Total",
        "access-control-max-age": "600",
    }
    other = stage.request(way, headers={"Origin": "https://example.net"})
    assert other.status == 200
    assert "access-control-allow-origin" not in other.headers


@ways
def test_what_removes_and_cannot_closes(stage: PolicyStage, way: str) -> None:
    context = stage.serving(WAYS[way]({"remove-request-headers": "Content-Length"}))
    assert stage.request(way).status == 403
    (refused,) = refused_of(context)
    assert "belongs to the connection" in refused.detail
