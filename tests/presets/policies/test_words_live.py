"""Each word of policies in each of its ways, by a real HAProxy."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from pyconfd.presets.policies.words import WORDS
from pyconfd.presets.policy import ClaimOptions, Rule, network
from tests.presets.policies.logins import hashed, secret
from tests.presets.policies.stage import (
    KIND_OF_WAY,
    WAYS,
    PolicyStage,
    config_map,
    of_ingress,
    of_route,
    policy_stage,
    refused_of,
    said_in,
)
from tests.world.pki import CertificateAuthority

pytestmark = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        yield found


@ways
def test_networks(stage: PolicyStage, way: str) -> None:
    words = {"allow-networks": "198.51.100.0/25, 10.0.0.0/9, 2001:db8::/33", "deny-networks": "198.51.100.9"}
    stage.serving(WAYS[way](words))
    expected = {
        "198.51.100.7": 200,
        "198.51.100.9": 403,
        "198.51.100.128": 403,
        "10.127.255.255": 200,
        "10.128.0.0": 403,
    }
    assert {client: stage.request(way, client=client).status for client in expected} == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"deny-networks": "::/0"}, {"2001:db8::1": 403, "2002:c000:201::1": 403, "::10.1.1.1": 403, "10.1.1.1": 200}),
        ({"deny-networks": "10.0.0.0/8"}, {"10.1.1.1": 403, "::ffff:10.1.1.1": 403, "::10.1.1.1": 200}),
        # 32.2 is 2002 in digits.
        ({"allow-networks": "10.0.0.0/8, 32.2.0.0/16"}, {"::ffff:10.1.1.1": 200, "2002:c000:201::1": 403}),
    ],
)
def test_networks_of_addresses_of_ipv6_that_stand_for_ipv4(
    stage: PolicyStage, words: dict[str, str], expected: dict[str, int]
) -> None:
    stage.serving(WAYS["ingress"](words))
    assert {client: stage.request("ingress", client=client).status for client in expected} == expected


@ways
def test_a_network_that_is_none_closes_what_it_was_to_protect(stage: PolicyStage, way: str) -> None:
    context = stage.serving(WAYS[way]({"allow-networks": "10.0.0.0/33"}))
    assert stage.request(way).status == 403
    (refused,) = refused_of(context)
    assert said_in(way, "allow-networks") in refused.field
    assert "no network" in refused.detail


@ways
def test_a_forbidden_word_that_restricts_closes(stage: PolicyStage, way: str) -> None:
    stage.claims = ClaimOptions((Rule(("*",), addresses=(network("0.0.0.0/0"),), policies=("max-*",)),))
    stage.serving(WAYS[way]({"max-body-size": "1k"}))
    assert stage.request(way).status == 200
    context = stage.serving(WAYS[way]({"allow-networks": "0.0.0.0/0"}))
    assert stage.request(way).status == 403
    assert ["claims.rules" in each.detail for each in refused_of(context)] == [True]


@ways
def test_max_body_size(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"max-body-size": "1k"}))
    assert stage.request(way, method="POST", body="x" * 1024).echo["body"] == "x" * 1024
    assert stage.request(way, method="POST", body="x" * 1025).status == 413


@ways
def test_numbers_beside_texts(stage: PolicyStage, way: str) -> None:
    # HAProxy loads no map for numbers in which another value is a text.
    stage.serving(WAYS[way]({"max-body-size": "1k", "server-timeout": "5s", "request-headers": "X-A: b"}))
    assert stage.request(way, method="POST", body="x" * 1025).status == 413


@ways
def test_max_body_size_of_a_body_in_chunks(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"max-body-size": "1k"}))
    chunked = {"Transfer-Encoding": "chunked"}
    chunk = f"200\r\n{'x' * 512}\r\n"
    found = {
        512 * count: stage.request(way, method="POST", headers=chunked, raw=chunk * count).status
        for count in (2, 3, 128)
    }
    assert found == {1024: 200, 1536: 413, 65536: 413}


@ways
def test_a_stream_of_grpc_is_not_waited_for(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"max-body-size": "1k"}))
    stream = "Transfer-Encoding: chunked\r\nContent-Type: application/grpc"
    with closing(stage.begin(way, stream, b"1\r\nx\r\n")) as connection:
        assert connection.recv(12) == b"HTTP/1.1 200"


@ways
def test_numbers_are_read_beside_other_texts(stage: PolicyStage, way: str) -> None:
    edit = "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Text, value: abc}]}}"
    other = of_route({}, path="/other", name="other").replace("backendRefs:", f"filters: [{edit}]\n    backendRefs:")
    stage.serving(WAYS[way]({"max-body-size": "1k"}), other)
    assert stage.request(way, method="POST", body="x" * 1025).status == 413
    assert stage.request("httproute", "/other").echo["headers"]["x-text"] == ["abc"]


@ways
def test_a_new_value_changes_no_line(stage: PolicyStage, way: str, tmp_path: Path) -> None:
    pem = CertificateAuthority(tmp_path / "named").cert.read_text()
    named = [config_map(name, {"ca.crt": pem, f"50{place}": name}) for place, name in enumerate(("one", "two"))]
    said = [each for each in _VALUES if KIND_OF_WAY[way] in each[0].kinds]
    texts = [
        stage.rendered(
            WAYS[way](_BESIDE.get(word.name, {}) | {word.name: text}),
            *_NAMED,
            *named,
            *_OTHERS.get(word.name.partition("-")[0], ()),
        )[0].text
        for word, text in said
    ]
    for (word, _), one, two in zip(said[::2], texts[::2], texts[1::2], strict=True):
        assert (_without_weights(one) == _without_weights(two)) is word.live, word.name


def _without_weights(text: str) -> str:
    """Return a configuration without what a runtime update changes too."""
    return re.sub(r"(?m)^( +server .*?)(?: weight [0-9]+)?$", r"\1", text)


_ORIGINS = {"cors-allow-origins": "*"}
_BESIDE = {
    "limit-by": {"limit-rps": "1"},
    "basic-auth-realm": {"basic-auth-secret": "one"},
    "client-certificates-mode": {"client-certificates": "one"},
    "limit-burst": {"limit-rps": "1"},
    "limit-status": {"limit-rps": "1"},
    "redirect-code": {"redirect": "/a"},
    "mirror-percent": {"mirror": "app"},
    **{
        f"session-cookie-{each}": {"session-cookie": "A"}
        for each in ("path", "domain", "max-age", "samesite", "secure")
    },
    "backend-server-name": {"backend-protocol": "https"},
    **{
        f"auth-{each}": {"auth-url": "http://auth/"}
        for each in (
            "method",
            "timeout",
            "request-headers",
            "response-headers",
            "signin",
            "signin-redirect-param",
            "request-redirect",
        )
    },
    **{
        f"cors-{each}": _ORIGINS
        for each in ("allow-methods", "allow-headers", "expose-headers", "allow-credentials", "max-age")
    },
    **{
        f"canary-{each}": {"canary": "true", "canary-by-header": "A"}
        for each in ("weight", "weight-total", "by-header", "by-header-value", "by-header-pattern", "by-cookie")
    },
}
"""What words go with that say nothing alone."""
_NAMED = [secret({"ada": hashed("one")}, name) for name in ("one", "two")]
"""Objects that words name."""
_OTHERS = {"canary": (of_ingress({}, name="main"),)}
"""Objects beside the one that says a word, by its beginning."""
_VALUES = [
    (WORDS[name], text)
    for name, both in {
        "allow-networks": ("192.0.2.0/24", "192.0.2.0/25, 2001:db8::/32"),
        "deny-networks": ("192.0.2.0/24", "192.0.2.0/25"),
        "basic-auth-secret": ("one", "two"),
        "client-certificates": ("one", "two"),
        "client-certificates-mode": ("required", "optional"),
        "basic-auth-realm": ("One", "Two"),
        "auth-url": ("http://auth/a", "http://auth.shop.svc/b?c=$host"),
        "auth-method": ("GET", "HEAD"),
        "auth-timeout": ("1s", "2s"),
        "auth-request-headers": ("Cookie", "Cookie, X-A"),
        "auth-response-headers": ("X-A", "X-B"),
        "auth-signin": ("/a", "https://$host/b"),
        "auth-signin-redirect-param": ("rd", "next"),
        "auth-request-redirect": ("$request_uri", "https://$host/"),
        "max-body-size": ("1k", "2m"),
        "limit-rps": ("1", "2"),
        "limit-rpm": ("1", "2"),
        "limit-burst": ("1", "2"),
        "limit-connections": ("1", "2"),
        "limit-by": ("route", "header:X-Api-Key"),
        "limit-status": ("429", "503"),
        "server-timeout": ("1s", "2s"),
        "session-cookie": ("A", "B"),
        "session-cookie-path": ("/", "/a"),
        "session-cookie-domain": ("a.example", "example"),
        "session-cookie-max-age": ("1", "2"),
        "session-cookie-samesite": ("Strict", "None"),
        "session-cookie-secure": ("true", "false"),
        "balance": ("leastconn", "random"),
        "hash-by": ("source", "cookie:a"),
        "request-timeout": ("1s", "2s"),
        "tunnel-timeout": ("1s", "2s"),
        "connect-timeout": ("1s", "2s"),
        "queue-timeout": ("1s", "2s"),
        "retries": ("1", "2"),
        "retry-on": ("503", "conn-failure 504"),
        "request-headers": ("X-A: b", "X-A: if"),
        "remove-request-headers": ("X-A", "X-B"),
        "response-headers": ("X-A: b", "X-A: 100% %[src]"),
        "remove-response-headers": ("X-A", "X-B"),
        "redirect": ("https://a.example/b", "http://a.example"),
        "redirect-code": ("permanent", "301"),
        "app-root": ("/a", "/b"),
        "upstream-host": ("a.example", "b.example"),
        "rewrite-path": ("/a", "/b"),
        "cors-allow-origins": ("*", "https://a.example"),
        "cors-allow-methods": ("GET", "PUT"),
        "cors-allow-headers": ("X-A", "X-B"),
        "cors-expose-headers": ("X-A", "X-B"),
        "cors-allow-credentials": ("true", "false"),
        "cors-max-age": ("1", "2"),
        "compression": ("on", "text/html"),
        "error-pages": ("one", "two"),
        "max-connections-per-pod": ("1", "2"),
        "slow-start": ("10s", "20s"),
        "health-check": ("http:/a", "off"),
        "backend-protocol": ("grpc", "https"),
        "backend-ca": ("one", "two"),
        "backend-server-name": ("a.example", "b.example"),
        "server-alias": ("a.example.com", "b.example.com, c.example.com"),
        "from-to-www-redirect": ("true", "True "),
        "mirror": ("app", "app:81"),
        "mirror-percent": ("1", "100"),
        "canary": ("true", "True "),
        "canary-weight": ("1", "100"),
        "canary-weight-total": ("100", "1000"),
        "canary-by-header": ("A", "B"),
        "canary-by-header-value": ("a", "b"),
        "canary-by-header-pattern": ("a", "[0-9]+"),
        "canary-by-cookie": ("a", "b"),
    }.items()
    for text in both
]
"""Two texts for each word."""


def test_each_word_has_two_values_here() -> None:
    assert {word.name for word, _ in _VALUES} == set(WORDS)


@ways
@pytest.mark.parametrize(
    "words",
    [{"allow-networks": "10.0.0.0/33"}, {"limit-rps": "many"}, {"allow-network": "10.0.0.0/8"}, {"Limit_RPS": "1"}],
)
def test_what_is_closed_does_not_get_to_a_shorter_path_of_another(
    stage: PolicyStage, way: str, words: dict[str, str]
) -> None:
    context = stage.serving(WAYS[way]({}, name="open"), WAYS[way](words, path="/admin", name="admin"))
    assert [stage.request(way, path).status for path in ("/", "/admin", "/admin/users")] == [200, 403, 403]
    (refused,) = refused_of(context)
    assert said_in(way, next(iter(words))) in refused.field
    assert "nobody is let in" in refused.detail


@ways
def test_a_misspelled_word_that_restricts_nothing_has_no_effect(stage: PolicyStage, way: str) -> None:
    by_annotation = not way.endswith("policy")
    context = stage.serving(WAYS[way]({"server-timeouts": "1s", **({"owner": "team"} if by_annotation else {})}))
    assert stage.request(way).status == 200
    (noted,) = refused_of(context)
    assert f"did you mean {'pyconfd.io/server-timeout' if by_annotation else 'serverTimeout'}?" in noted.detail


def test_values_of_many_backends_are_not_all_kept(stage: PolicyStage) -> None:
    networks = ", ".join(f"10.{number}.0.128/25" for number in range(256))
    rules = [{"path": f"/{number}", "service": f"app-{number}"} for number in range(200)]
    document = yaml.safe_load(WAYS["ingress"]({"allow-networks": networks}))
    document["spec"]["rules"][0]["http"]["paths"] = [
        {
            "path": each["path"],
            "pathType": "Prefix",
            "backend": {"service": {"name": each["service"], "port": {"number": 80}}},
        }
        for each in rules
    ]
    context = stage.serving(yaml.safe_dump(document))
    assert stage.request("ingress", "/7").status == 403
    assert any("for its 200 backends" in each.detail for each in context.refused)
