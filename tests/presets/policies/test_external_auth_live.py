"""External authentication, by a real HAProxy with a service that is asked."""

import os
import re
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import yaml

from pyconfd.presets.policy import ClaimOptions, PolicyBounds
from tests.presets.policies import auth_server as behaviours
from tests.presets.policies import stage as stage_of_policies
from tests.presets.policies.auth_server import AuthServer, answering, auth_server
from tests.presets.policies.stage import HOST, WAYS, PolicyStage, policy_stage, refused_of, said_in, service
from tests.world.haproxy import wait_until
from tests.world.pki import CertificateAuthority

pytestmark = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)
URL = {"auth-url": "http://auth/check"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        found.claims = ClaimOptions(bounds=PolicyBounds(auth_timeout_ms=30_000))
        yield found


@pytest.fixture
def auth() -> Iterator[AuthServer]:
    with auth_server() as found:
        yield found


@ways
def test_who_is_let_in(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    stage.serving(WAYS[way](URL | {"auth-response-headers": "X-User, X-Mail"}), service(auth.port, "auth"))
    forged = [("X-User", "mallory"), ("x_user", "mallory"), ("X-Mail", "mallory@example.com"), ("Cookie", "a=b")]
    answer = stage.request(way, "/a?b=c", headers=forged)
    headers = answer.echo["headers"]
    assert (answer.status, headers["x-user"], headers["cookie"]) == (200, ["alice"], ["a=b"])
    assert not {"x_user", "x-mail"} & headers.keys()
    (asked,) = auth.asked
    assert asked.line == "GET /check HTTP/1.1"
    expected = {
        "host": ["auth"],
        "cookie": ["a=b"],
        "x-original-url": [f"http://{HOST}/a?b=c"],
        "x-original-method": ["GET"],
        "x-auth-request-redirect": ["/a?b=c"],
        "x-forwarded-for": ["198.51.100.7"],
        "x-real-ip": ["198.51.100.7"],
        "x-forwarded-proto": ["http"],
        "x-forwarded-host": [HOST],
        "x-forwarded-uri": ["/a?b=c"],
    }
    assert {name: asked.headers.get(name) for name in expected} == expected
    assert not [name for name in asked.headers if name.startswith("x-pyconfd")]


@ways
def test_no_spelling_of_a_header_is_forged(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    auth.behave = answering(200, "x_user: alice", "x_user: bob")
    stage.serving(WAYS[way](URL | {"auth-response-headers": "X_User"}), service(auth.port, "auth"))
    headers = stage.request(way, headers=[("X-User", "mallory"), ("x_user", "mallory")]).echo["headers"]
    assert {name: found for name, found in headers.items() if "user" in name and name != "user-agent"} == {
        "x_user": ["alice", "bob"]
    }


@ways
def test_headers_that_have_no_room_let_nobody_in(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    auth.behave = answering(200, f"X-User: {'a' * 7_000}")
    stage.serving(WAYS[way](URL | {"auth-response-headers": "X-User"}), service(auth.port, "auth"))
    assert stage.request(way, headers={"X-Large": "b" * 1_000}).status == 200
    assert stage.request(way, headers={"X-Large": "b" * 10_000}, is_explained=False).status == 500
    auth.behave = answering(200, f"X-User: {'a' * 9_000}")
    assert stage.request(way, is_explained=False).status == 500


def test_sockets_without_files(tmp_path: Path, auth: AuthServer) -> None:
    # Where HAProxy has another root directory, its frontends have no files in common.
    with policy_stage(tmp_path, tls_socket=f"abns@pyconfd-test-{os.getpid()}") as stage:
        stage.serving(WAYS["ingress"](URL), service(auth.port, "auth"))
        assert stage.request("ingress").status == 200


@ways
def test_who_is_not_let_in(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    stage.serving(WAYS[way](URL), service(auth.port, "auth"))
    fields = ("WWW-Authenticate: Basic", "Set-Cookie: a=1", "Set-Cookie: b=2", "X-Secret: 1")
    for status, expected in ((401, 401), (403, 403), (302, 500), (404, 500), (500, 503), (503, 503)):
        auth.behave = answering(status, *fields)
        answer = stage.request(way, is_explained=False)
        assert answer.status == expected
        found = answer.headers.get("www-authenticate"), answer.headers.get("set-cookie"), "x-secret" in answer.headers
        assert found == ((["Basic"], ["a=1", "b=2"], False) if status in {401, 403} else (None, None, False))
    assert stage.pod is not None
    assert stage.pod.seen == []


@ways
@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        (behaviours.large_header, 503),
        (behaviours.garbage, 503),
        (behaviours.reset, 503),
        (behaviours.switching, 503),
        (behaviours.large_body, 200),
        (behaviours.interim, 200),
    ],
)
def test_answers_that_go_wrong(
    stage: PolicyStage, auth: AuthServer, way: str, behaviour: behaviours.Behaviour, expected: int
) -> None:
    stage.serving(WAYS[way](URL | {"auth-response-headers": "X-User"}), service(auth.port, "auth"))
    auth.behave = behaviour
    answer = stage.request(way, is_explained=False)
    assert answer.status == expected
    if expected == 200:
        assert answer.echo["headers"]["x-user"] == ["alice"]


@ways
@pytest.mark.parametrize("kind", ["silent", "dead", "without pods", "missing", "drop by drop"])
def test_who_does_not_answer_in_time(stage: PolicyStage, auth: AuthServer, way: str, kind: str) -> None:
    auth.behave = {
        "silent": lambda _, __: auth.is_over.wait(30),
        "drop by drop": auth.drop_by_drop,
    }.get(kind, auth.behave)
    dead = service(1, "auth") if kind == "dead" else service(auth.port, "auth")
    named = dead.replace("endpoints: [{addresses: [127.0.0.1]}]", "endpoints: []") if kind == "without pods" else dead
    other = WAYS[_of(way)]({}, path="/open", name="open")
    context = stage.serving(WAYS[way](URL | {"auth-timeout": "300ms"}), other, *([named] if kind != "missing" else []))
    began = time.monotonic()
    assert stage.request(way, is_explained=False).status == 503
    assert time.monotonic() - began < 20
    assert stage.request(way, "/open").status == 200
    assert [(each.detail, said_in(way, "auth-url") in each.field) for each in context.refused] == (
        [("there is no Service shop/auth; nobody is let in", True)] if kind == "missing" else []
    )


_GRANT = """
kind: ReferenceGrant
metadata: {name: asked, namespace: other}
spec:
  from: [{group: GROUP, kind: KIND, namespace: shop}]
  to: [{group: "", kind: Service, name: auth}]
"""


@ways
def test_a_service_of_another_namespace_needs_a_grant(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    group, kind = {
        "ingress": ("networking.k8s.io", "Ingress"),
        "httproute": ("gateway.networking.k8s.io", "HTTPRoute"),
    }[_of(way)]
    there = service(auth.port, "auth").replace("metadata: {", "metadata: {namespace: other, ")
    mine = WAYS[way]({"auth-url": "http://auth.other.svc/check"})
    grant = _GRANT.replace("GROUP", group).replace("KIND", kind)
    for others, granted, expected in (
        ("no ReferenceGrant", (), 503),
        ("no ReferenceGrant", (grant.replace("namespace: shop", "namespace: third"),), 503),
        ("", (grant,), 200),
    ):
        context = stage.serving(mine, there, *granted)
        assert stage.request(way, is_explained=False).status == expected
        assert [others in each.detail for each in refused_of(context)] == [True] * bool(others)


@ways
def test_sign_in(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    auth.behave = answering(401, "Set-Cookie: csrf=1")
    signs = {
        "https://$host/oauth2/start": f"https://{HOST}/oauth2/start?rd=http://{HOST}%2Fa%3Fb%3Dc%2520%26d",
        "/login?x=1": f"/login?x=1&rd=http://{HOST}%2Fa%3Fb%3Dc%2520%26d",
        "https://a.example/?rd=$escaped_request_uri": "https://a.example/?rd=%2Fa%3Fb%3Dc%2520%26d",
    }
    for url, expected in signs.items():
        stage.serving(WAYS[way](URL | {"auth-signin": url}), service(auth.port, "auth"))
        answer = stage.request(way, "/a?b=c%20&d", is_explained=False)
        assert (answer.status, answer.headers["location"]) == (302, [expected])
        assert answer.headers["set-cookie"] == ["csrf=1"]
    auth.behave = answering(403)
    assert stage.request(way, is_explained=False).status == 403


@ways
def test_what_is_asked(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    words = {
        "auth-url": "http://auth.shop.svc.cluster.local/check?for=$escaped_request_uri&at=$host",
        "auth-method": "POST",
        "auth-request-headers": "Cookie",
        "auth-request-redirect": "https://$http_host$request_uri",
    }
    stage.serving(WAYS[way](words), service(auth.port, "auth"))
    headers = {"Cookie": "a=b", "Authorization": "Bearer x", "TE": "trailers", "X-Original-URL": "http://a/"}
    answer = stage.request(way, "/a?b", method="PUT", body="body", headers=headers)
    assert (answer.status, answer.echo["body"]) == (200, "body")
    (asked,) = auth.asked
    assert asked.line == f"POST /check?for=%2Fa%3Fb&at={HOST} HTTP/1.1"
    assert asked.headers["content-length"] == ["0"]
    assert asked.headers["x-original-method"] == ["PUT"]
    assert asked.headers["x-original-url"] == [f"http://{HOST}/a?b"]
    assert asked.headers["x-auth-request-redirect"] == [f"https://{HOST}/a?b"]
    assert asked.headers["cookie"] == ["a=b"]
    assert not {"authorization", "te"} & asked.headers.keys()


@ways
def test_cookies_of_who_is_let_in(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    auth.behave = answering(202, *(f"Set-Cookie: c{number}={number}" for number in range(5)))
    stage.serving(WAYS[way](URL), service(auth.port, "auth"))
    answer = stage.request(way)
    assert (answer.status, answer.headers["set-cookie"]) == (200, ["c0=0", "c1=1", "c2=2", "c3=3"])


@ways
def test_a_large_body_arrives_whole(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    stage.serving(WAYS[way](URL), service(auth.port, "auth"))
    body = "0123456789abcdef" * (1 << 16)
    assert stage.request(way, method="POST", body=body).echo["body"] == body


@ways
def test_what_asks_to_switch_protocols(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    stage.serving(WAYS[way](URL), service(auth.port, "auth"))
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    answer = stage.request(way, headers=upgrade, is_explained=False)
    assert answer.echo["headers"]["upgrade"] == ["websocket"]
    (asked,) = auth.asked
    assert "upgrade" not in asked.headers
    auth.behave = answering(401)
    assert stage.request(way, headers=upgrade, is_explained=False).status == 401


@ways
def test_connections_to_who_is_asked_are_kept(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    stage.serving(WAYS[way](URL), service(auth.port, "auth"))
    assert [stage.request(way).status for _ in range(8)] == [200] * 8
    assert len(auth.asked) == 8
    assert auth.connections <= 4


@ways
def test_who_was_silent_is_asked_again(tmp_path: Path, auth: AuthServer, way: str) -> None:
    with policy_stage(tmp_path, auth_most=2) as stage:
        auth.behave = lambda _, __: auth.is_over.wait(60)
        stage.serving(WAYS[way](URL | {"auth-timeout": "300ms"}), service(auth.port, "auth"))
        assert [stage.request(way, is_explained=False).status for _ in range(2)] == [503, 503]
        auth.behave = answering(200)
        # Former questions have ended with the time of their clients, and not with that of HAProxy's servers: a minute.
        wait_until(lambda: stage.request(way, is_explained=False).status == 200, "it is asked again", limit_s=30)


@ways
def test_questions_of_one_object_are_bounded(tmp_path: Path, auth: AuthServer, way: str) -> None:
    with policy_stage(tmp_path, auth_most=2) as stage:
        auth.behave = lambda connection, question: auth.is_over.wait(30) and answering(200)(connection, question)
        stage.serving(WAYS[way](URL), WAYS[way](URL, path="/other", name="other"), service(auth.port, "auth"))
        with ExitStack() as kept:
            for number in (1, 2):
                kept.enter_context(closing(stage.begin(way, "Content-Length: 0", b"")))
                assert auth.waits_for(number)
            began = time.monotonic()
            assert stage.request(way, is_explained=False).status == 503
            assert time.monotonic() - began < 20
            # Another object has its own.
            kept.enter_context(closing(stage.begin(way, "Content-Length: 0", b"", path="/other")))
            assert auth.waits_for(3)


SIGN_ON = "auth.example.com"


def _of(way: str) -> str:
    """Return the way to say words of the same object by annotations."""
    return way.partition(" ")[0]


def _with_sign_on(way: str, words: dict[str, str]) -> tuple[str, ...]:
    """Return an object with words, and another one that has a host where clients sign in."""
    sign_on = WAYS[_of(way)]({}, name="sign-on").replace(HOST, SIGN_ON).replace("name: app", "name: auth")
    return WAYS[way](words), sign_on


@ways
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_host_is_asked(stage: PolicyStage, auth: AuthServer, way: str, scheme: str) -> None:
    words = {"auth-url": f"{scheme}://{SIGN_ON}/check?$request_uri", "auth-response-headers": "X-User"}
    assert not stage.serving(*_with_sign_on(way, words), service(auth.port, "auth")).refused
    answer = stage.request(way, "/a", headers={"X-User": "mallory"}, client="203.0.113.9")
    assert (answer.status, answer.echo["headers"]["x-user"]) == (200, ["alice"])
    (asked,) = auth.asked
    assert (asked.line, asked.headers["host"]) == ("GET /check?/a HTTP/1.1", [SIGN_ON])
    assert asked.headers["x-forwarded-for"] == ["203.0.113.9"]
    assert asked.headers["x-original-url"] == [f"http://{HOST}/a"]
    assert not [name for name in asked.headers if name.startswith("x-pyconfd")]
    auth.behave = answering(401)
    assert stage.request(way, is_explained=False).status == 401


@ways
def test_the_host_of_the_request_is_asked(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    # oauth2-proxy at a path of the host that it protects.
    own = WAYS[_of(way)]({}, path="/oauth2", name="sign-on").replace("name: app", "name: auth")
    stage.serving(WAYS[way]({"auth-url": "https://$host/oauth2/auth"}), own, service(auth.port, "auth"))
    assert stage.request(way, "/a").status == 200
    assert [each.line for each in auth.asked] == ["GET /oauth2/auth HTTP/1.1"]
    assert stage.request(way, "/oauth2/start", is_explained=False).body == "ok"


@ways
def test_who_asks_is_not_asked_for(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    stage.serving(WAYS[way]({"auth-url": "https://$host/check"}), service(auth.port, "auth"))
    assert stage.request(way, is_explained=False).status == 503
    assert stage.pod is not None
    assert stage.pod.seen == []


@ways
def test_a_host_that_nothing_serves_lets_nobody_in(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    context = stage.serving(WAYS[way]({"auth-url": "https://other.example.org/check"}), service(auth.port, "auth"))
    assert ["nothing serves this host" in each.detail for each in context.refused] == [True]
    assert stage.request(way, is_explained=False).status == 500


@ways
def test_words_of_the_host_that_is_asked_count_for_the_client(stage: PolicyStage, auth: AuthServer, way: str) -> None:
    words = {"auth-url": f"https://{SIGN_ON}/check"}
    limited = {"allow-networks": "198.51.100.0/24", "limit-rpm": "2"}
    mine, _ = _with_sign_on(way, words)
    sign_on = WAYS[way](limited, name="sign-on").replace(HOST, SIGN_ON).replace("name: app", "name: auth")
    stage.serving(mine, sign_on, service(auth.port, "auth"))
    assert stage.request(way, client="203.0.113.9", is_explained=False).status == 403
    assert [stage.request(way, is_explained=False).status for _ in range(3)] == [200, 200, 500]


def _with_tls(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the Gateway end TLS of two hosts, and return its Secret."""
    pair = CertificateAuthority(folder / "ca").server("web", ("*.example.com",))
    crt, key = (b64encode(path.read_bytes()).decode() for path in (pair.cert, pair.key))
    listener = "{{name: {}, port: 443, protocol: HTTPS, hostname: {}, tls: {{certificateRefs: [{{name: web}}]}}}}"
    listeners = ", ".join(listener.format(*each) for each in (("a", HOST), ("b", SIGN_ON)))
    gateway, _, _ = stage_of_policies.GATEWAY.partition("  listeners:")
    monkeypatch.setattr(stage_of_policies, "GATEWAY", f"{gateway}  listeners: [{listeners}]")
    return f"kind: Secret\nmetadata: {{name: web}}\ntype: kubernetes.io/tls\ndata: {{tls.crt: {crt}, tls.key: {key}}}"


def test_a_question_of_others_changes_no_frontend_of_a_gateway(
    stage: PolicyStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = _with_tls(tmp_path, monkeypatch)
    before, after = (
        stage.rendered(WAYS["httproute"]({}), WAYS["ingress"](words), secret)[0].text
        for words in ({}, {"auth-url": f"https://{SIGN_ON}/check"})
    )
    (frontend,) = re.findall(r"^frontend gw_\S+_443\.https\n(?:    .*\n)+", before, re.MULTILINE)
    assert "status 421" in frontend
    assert frontend in after
    assert "_443.auth\n" in after


@pytest.mark.parametrize("way", ["ingress", "httproute"])
def test_hosts_are_asked_over_tls_of_the_request(
    stage: PolicyStage, auth: AuthServer, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = _with_tls(tmp_path, monkeypatch)
    words = {"auth-url": f"https://{SIGN_ON}/check", "auth-signin": f"https://{SIGN_ON}/start"}
    objects = [yaml.safe_load(each) for each in _with_sign_on(way, words)]
    for each in objects if way == "ingress" else ():
        each["spec"]["tls"] = [{"hosts": [each["spec"]["rules"][0]["host"]], "secretName": "web"}]
    assert not stage.serving(*map(yaml.safe_dump, objects), secret, service(auth.port, "auth")).refused
    assert stage.request(way, is_tls=True).status == 200
    auth.behave = answering(401)
    answer = stage.request(way, is_tls=True)
    assert (answer.status, answer.headers["location"]) == (302, [f"https://{SIGN_ON}/start?rd=https://{HOST}%2F"])
    assert [each.headers["x-forwarded-proto"] for each in auth.asked] == [["https"], ["https"]]
