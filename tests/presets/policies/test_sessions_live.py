"""What keeps a client at its pod, by a real HAProxy."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyconfd.presets.policies import nginx
from pyconfd.presets.policies.words import NOTHING_ASKED, asked_by
from tests.presets.gateway.stage import pods
from tests.presets.policies.stage import HOST, WAYS, PolicyStage, of_ingress, of_route, policy_stage, service

haproxy = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        yield found


def of_session(persistence: dict[str, Any], kind: str = "HTTPRoute") -> str:
    """Return a route whose rule has ``sessionPersistence``."""
    document = yaml.safe_load(of_route({}))
    document["kind"] = kind
    rule = document["spec"]["rules"][0] | {"sessionPersistence": persistence}
    if kind == "GRPCRoute":
        del rule["matches"]
    document["spec"]["rules"] = [rule]
    return yaml.safe_dump(document)


def _cookie(stage: PolicyStage, way: str = "httproute", sent: str = "") -> list[str]:
    """Return the cookie that a client gets, with its attributes; nothing where it keeps what it sent."""
    answer = stage.request(way, headers={"Cookie": sent} if sent else {})
    assert answer.status == 200
    return next((each.split("; ") for each in answer.headers.get("set-cookie", ())), [])


@haproxy
@ways
@pytest.mark.parametrize(
    ("words", "attributes"),
    [
        ({}, ["Path=/", "HttpOnly", "SameSite=Lax"]),
        (
            {"path": "/app", "domain": "example.com", "max-age": "60", "samesite": "strict", "secure": "true"},
            ["Path=/app", "Domain=example.com", "Max-Age=60", "HttpOnly", "SameSite=Strict", "Secure"],
        ),
        ({"samesite": "None"}, ["Path=/", "HttpOnly", "SameSite=None", "Secure"]),
        ({"secure": "false"}, ["Path=/", "HttpOnly", "SameSite=Lax"]),
    ],
)
def test_attributes_of_the_cookie(stage: PolicyStage, way: str, words: dict[str, str], attributes: list[str]) -> None:
    said = {"session-cookie": "KEEP", **{f"session-cookie-{name}": text for name, text in words.items()}}
    stage.serving(WAYS[way](said))
    kept, *found = _cookie(stage, way)
    assert found == attributes
    assert not _cookie(stage, way, kept)


@haproxy
def test_ingress_nginx(stage: PolicyStage) -> None:
    stage.nginx_classes = ("nginx",)
    words = {"affinity": "cookie", "session-cookie-name": "KEEP", "session-cookie-expires": "60"}
    words |= {"session-cookie-path": "/", "session-cookie-samesite": "Lax"}
    assert not stage.serving(of_ingress(words, prefix=nginx.PREFIX, class_name="nginx")).refused
    assert _cookie(stage, "ingress")[1:] == ["Path=/", "Max-Age=60", "HttpOnly", "SameSite=Lax"]


@haproxy
@pytest.mark.parametrize(
    ("persistence", "name", "attributes"),
    [
        ({"cookie": {}}, "PYCONFD_SESSION", ["Path=/", "HttpOnly", "SameSite=Lax"]),
        ({"type": "Cookie", "cookie": {"name": "KEEP", "path": "/a"}}, "KEEP", ["Path=/a", "HttpOnly", "SameSite=Lax"]),
        (
            {"sessionName": "KEEP", "absoluteTimeout": "1h", "cookieConfig": {"lifetimeType": "Permanent"}},
            "KEEP",
            ["Path=/", "Max-Age=3600", "HttpOnly", "SameSite=Lax"],
        ),
    ],
)
def test_a_rule_keeps_sessions_by_a_cookie(
    stage: PolicyStage, persistence: dict[str, Any], name: str, attributes: list[str]
) -> None:
    with pods("other") as (other,):
        second = service(other.port).partition("---")[2].replace("app-a", "app-b")
        assert not stage.serving(of_session(persistence), second).refused
        for user in range(24):
            answer = stage.request("httproute", f"/{user}")
            kept, *found = answer.headers["set-cookie"][0].split("; ")
            assert (kept.partition("=")[0], found) == (name, attributes)
            for _ in range(3):
                assert "set-cookie" not in stage.request("httproute", f"/{user}", headers={"Cookie": kept}).headers
        assert stage.pod is not None
        one, two = set(stage.pod.seen), set(other.seen)
    assert (bool(one), bool(two), one & two) == (True, True, set())


@haproxy
def test_a_rule_keeps_sessions_by_a_header(stage: PolicyStage) -> None:
    stage.serving(of_session({"type": "Header", "header": {"name": "X-Session"}}))
    (given,) = stage.request("httproute").headers["x-session"]
    assert "x-session" not in stage.request("httproute", headers={"X-Session": given}).headers


@haproxy
def test_a_session_ends_after_its_absolute_time(stage: PolicyStage) -> None:
    stage.serving(of_session({"cookie": {"name": "KEEP"}, "absoluteTimeout": "5m"}))
    now = int(time.time())
    began, used, _ = _cookie(stage)[0].removeprefix("KEEP=").split(".")
    assert now <= int(began) == int(used)
    kept = {
        f"{now - 200}.{now - 200}.a": True,
        f"{now + 30}.{now + 30}.a": True,  # of a load balancer whose clock is ahead
        f"{now - 400}.{now}.a": False,
        f"{now + 3600}.{now}.a": False,
        "x.x.a": False,
        "a": False,
        "..": False,
    }
    found = {value: not _cookie(stage, sent=f"KEEP={value}") for value in kept}
    assert found == kept


@haproxy
def test_a_session_ends_when_it_was_idle(stage: PolicyStage) -> None:
    stage.serving(of_session({"sessionName": "KEEP", "idleTimeout": "5m", "absoluteTimeout": "1h"}))
    now = int(time.time())

    def answered(began: int, used: int) -> tuple[bool, bool]:
        """Return whether the session goes on, and whether it was used now."""
        found = _cookie(stage, sent=f"KEEP={began}.{used}.a")[0].removeprefix("KEEP=").split(".")
        return found[2] == "a" and int(found[0]) == began, int(found[1]) >= now

    assert answered(now - 2000, now - 200) == (True, True)
    assert answered(now - 2000, now - 400) == (False, True)
    assert answered(now - 4000, now - 200) == (False, True)


@haproxy
def test_a_new_time_changes_no_line(stage: PolicyStage) -> None:
    texts = {
        stage.rendered(of_session({"cookie": {"path": path}, "absoluteTimeout": time_}))[0].text
        for path, time_ in (("/", "1h"), ("/a", "2h"))
    }
    assert len(texts) == 1


@haproxy
@pytest.mark.parametrize(
    ("persistence", "field"),
    [
        ({"type": "Other"}, "type"),
        ({"type": "Header"}, "header.name"),
        ({"type": "Header", "header": {"name": "Connection"}}, "header.name"),
        ({"cookie": {"name": "a'b"}}, "cookie"),
        ({"cookie": {"path": "/; Domain=example.com"}}, "cookie.path"),
        ({"cookie": {"lifetimeType": "Permanent"}}, "absoluteTimeout"),
        ({"cookie": {"lifetimeType": "Long"}}, "cookie.lifetimeType"),
        ({"cookie": {}, "absoluteTimeout": "long"}, "absoluteTimeout"),
        ({"cookie": {}, "idleTimeout": "1"}, "idleTimeout"),
    ],
)
@pytest.mark.parametrize("kind", ["HTTPRoute", "GRPCRoute"])
def test_what_cannot_be_kept_by(stage: PolicyStage, persistence: dict[str, Any], field: str, kind: str) -> None:
    (refused,) = stage.context(of_session(persistence, kind)).refused
    assert refused.field == f"rules[0].sessionPersistence.{field}"


@haproxy
def test_the_rule_comes_before_words(stage: PolicyStage) -> None:
    document = of_session({"cookie": {"name": "RULE"}}).replace(
        "metadata:", "metadata:\n  annotations: {pyconfd.io/session-cookie: WORD}", 1
    )
    stage.serving(document.replace("  annotations: {}\n", ""))
    assert _cookie(stage)[0].startswith("RULE=")
    assert HOST


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ({"path": "a"}, "path"),
        ({"path": "/a; Domain=b"}, "path"),
        ({"domain": "*.example.com"}, "domain"),
        ({"domain": "192.0.2.1"}, "domain"),
        ({"max-age": "0"}, "max-age"),
        ({"max-age": "9" * 11}, "max-age"),
        ({"samesite": "Lax; Domain=b"}, "samesite"),
        ({"secure": "1"}, "secure"),
    ],
)
def test_hostile_text(words: dict[str, str], wrong: str) -> None:
    said = [("session-cookie", "KEEP"), *((f"session-cookie-{name}", text) for name, text in words.items())]
    asked, (fault,) = asked_by(said)
    assert (asked.policy.session.name, fault.name) == ("KEEP", f"session-cookie-{wrong}")


def test_attributes_need_a_cookie() -> None:
    asked, (fault,) = asked_by([("session-cookie-max-age", "60")])
    assert (asked, "session-cookie" in fault.why) == (NOTHING_ASKED, True)
