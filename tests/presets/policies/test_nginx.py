"""Ingresses that were written for ingress-nginx."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pyconfd.presets.policies import nginx
from pyconfd.presets.policies.nginx import read_nginx
from pyconfd.presets.policies.nginx_snippets import words_of_snippet
from pyconfd.presets.policies.words import WORDS
from pyconfd.presets.policy import ClaimOptions, PolicyBounds, Rule
from tests.presets.policies.stage import PolicyStage, of_ingress, policy_stage


def of_nginx(**words: str) -> str:
    named = {word.replace("_", "-"): text for word, text in words.items()}
    return of_ingress(named, prefix=nginx.PREFIX, class_name="nginx")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        found.nginx_classes = ("nginx",)
        yield found


def words(**annotations: str) -> dict[str, str]:
    found = read_nginx({f"{nginx.PREFIX}{name.replace('_', '-')}": text for name, text in annotations.items()})
    return dict(found.words)


_CORS = {
    "cors-allow-origins": "*",
    "cors-allow-methods": "GET, PUT, POST, DELETE, PATCH, OPTIONS",
    "cors-allow-headers": "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,"
    "Range,Authorization",
    "cors-allow-credentials": "true",
    "cors-max-age": "1728000",
}
_VERIFIED = {"backend-ca": "", "backend-server-name": "a"}
_BEYOND = {"limit-status": "503"}
EACH: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "whitelist-source-range": ({}, {"allow-networks": "7"}),
    "allowlist-source-range": ({}, {"allow-networks": "7"}),
    "denylist-source-range": ({}, {"deny-networks": "7"}),
    "auth-type": ({"auth-secret": "staff"}, {"basic-auth-secret": "auth-type 7"}),
    "auth-secret": ({"auth-type": "basic"}, {"basic-auth-secret": "7"}),
    "auth-secret-type": ({"auth-secret": "staff"}, {"basic-auth-secret": "staff"}),
    "auth-tls-secret": ({}, {"client-certificates": "7", "client-certificates-mode": "required"}),
    "auth-tls-verify-client": (
        {"auth-tls-secret": "shop/ca"},
        {"client-certificates": "shop/ca", "client-certificates-mode": "7"},
    ),
    "auth-realm": ({"auth-secret": "staff"}, {"basic-auth-secret": "staff", "basic-auth-realm": "7"}),
    "proxy-body-size": ({}, {"max-body-size": "7"}),
    "proxy-connect-timeout": ({}, {"connect-timeout": "7s"}),
    "proxy-read-timeout": ({}, {"server-timeout": "7s"}),
    "proxy-send-timeout": ({}, {"server-timeout": "7s"}),
    "limit-rps": ({}, {"limit-rps": "7", "limit-burst": "28", **_BEYOND}),
    "limit-rpm": ({}, {"limit-rpm": "7", "limit-burst": "28", **_BEYOND}),
    "limit-burst-multiplier": ({"limit-rpm": "3"}, {"limit-rpm": "3", "limit-burst": "18", **_BEYOND}),
    "limit-connections": ({}, {"limit-connections": "7", **_BEYOND}),
    "enable-cors": ({"enable-cors": "true"}, _CORS),
    "cors-allow-origin": ({"enable-cors": "true"}, {**_CORS, "cors-allow-origins": "7"}),
    "cors-allow-methods": ({"enable-cors": "true"}, {**_CORS, "cors-allow-methods": "7"}),
    "cors-allow-headers": ({"enable-cors": "true"}, {**_CORS, "cors-allow-headers": "7"}),
    "cors-expose-headers": ({"enable-cors": "true"}, {**_CORS, "cors-expose-headers": "7"}),
    "cors-allow-credentials": ({"enable-cors": "true"}, {**_CORS, "cors-allow-credentials": "7"}),
    "cors-max-age": ({"enable-cors": "true"}, {**_CORS, "cors-max-age": "7"}),
    "affinity": ({"affinity": "cookie"}, {"session-cookie": "INGRESSCOOKIE"}),
    "session-cookie-name": ({"affinity": "cookie"}, {"session-cookie": "7"}),
    **{
        f"session-cookie-{name}": (
            {"affinity": "cookie"},
            {"session-cookie": "INGRESSCOOKIE", f"session-cookie-{'max-age' if name == 'expires' else name}": "7"},
        )
        for name in ("path", "domain", "max-age", "expires", "samesite", "secure")
    },
    "app-root": ({}, {"app-root": "7"}),
    "permanent-redirect": ({"permanent-redirect": "http://a"}, {"redirect": "http://a/", "redirect-code": "301"}),
    "permanent-redirect-code": ({"permanent-redirect": "/a/b/c"}, {"redirect": "/a/b/c", "redirect-code": "7"}),
    "temporal-redirect": ({"temporal-redirect": "/a/b/c"}, {"redirect": "/a/b/c", "redirect-code": "302"}),
    "temporal-redirect-code": ({"temporal-redirect": "/a/b/c"}, {"redirect": "/a/b/c", "redirect-code": "7"}),
    "upstream-vhost": ({}, {"upstream-host": "7"}),
    "backend-protocol": ({}, {"backend-protocol": "7"}),
    "proxy-ssl-verify": ({"proxy-ssl-verify": "on", "proxy-ssl-name": "a"}, _VERIFIED),
    "proxy-ssl-name": ({"proxy-ssl-server-name": "on"}, {"backend-server-name": "7"}),
    "proxy-ssl-server-name": ({"proxy-ssl-server-name": "on", "proxy-ssl-name": "a"}, {"backend-server-name": "a"}),
    "auth-url": ({}, {"auth-url": "7"}),
    **{
        f"auth-{each}": ({"auth-url": "http://a"}, {"auth-url": "http://a", f"auth-{each}": "7"})
        for each in ("method", "request-redirect", "response-headers", "signin", "signin-redirect-param")
    },
    "server-alias": ({}, {"server-alias": "7"}),
    "from-to-www-redirect": ({}, {"from-to-www-redirect": "7"}),
    "mirror-target": ({}, {"mirror": "7"}),
    "canary": ({}, {"canary": "7"}),
    "canary-weight": ({}, {"canary-weight": "7"}),
    "canary-weight-total": ({}, {"canary-weight-total": "7"}),
    "canary-by-header": ({}, {"canary-by-header": "7"}),
    "canary-by-header-value": ({}, {"canary-by-header-value": "7"}),
    "canary-by-header-pattern": ({}, {"canary-by-header-pattern": ".*(7).*"}),
    "canary-by-cookie": ({}, {"canary-by-cookie": "7"}),
}
"""What each annotation says whose text is 7, beside others or with another text."""


@pytest.mark.parametrize("name", nginx.MEANINGS)
def test_each_annotation(name: str) -> None:
    beside, expected = EACH[name]
    annotations = {f"{nginx.PREFIX}{each}": text for each, text in {name: "7", **beside}.items()}
    found = read_nginx(annotations)
    assert (dict(found.words), found.read) == (expected, frozenset(annotations))
    assert expected.keys() <= WORDS.keys()


def test_of_two_limits_the_smaller_one_has_the_burst() -> None:
    for names in (("limit_rps", "limit_rpm"), ("limit_rpm", "limit_rps")):
        assert words(**{name: {"limit_rps": "5", "limit_rpm": "600"}[name] for name in names})["limit-burst"] == "20"


def test_a_wrong_value_names_the_annotation_that_was_written(stage: PolicyStage) -> None:
    (refused,) = stage.context(of_nginx(whitelist_source_range="nonsense")).refused
    assert refused.field == f"annotation {nginx.PREFIX}whitelist-source-range"


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"proxy_body_size": "8m"}, {"max-body-size": "8m"}),
        ({"proxy_read_timeout": "30", "proxy_send_timeout": "90"}, {"server-timeout": "90s"}),
        ({"proxy_read_timeout": "long"}, {"server-timeout": "longs"}),  # told by the word
        ({"limit_connections": "0"}, {}),
        ({"affinity": "balanced"}, {}),
        ({"enable_cors": "false", "cors_max_age": "5"}, {}),
        ({"mirror_target": "http://shadow$request_uri"}, {"mirror": "shadow"}),
        ({"mirror_target": "http://shadow.shop.svc.cluster.local:8080/$request_uri"}, {"mirror": "shadow.shop:8080"}),
        ({"mirror_target": "http://shadow.shop:8080"}, {"mirror": "shadow.shop:8080"}),
        # The word tells of these.
        ({"mirror_target": "https://shadow"}, {"mirror": "https://shadow"}),
        ({"mirror_target": "http://shadow.example.com"}, {"mirror": "http://shadow.example.com"}),
        ({"mirror_target": "http://shadow/other"}, {"mirror": "http://shadow/other"}),
        ({"canary_by_header_pattern": "^(a|b)$"}, {"canary-by-header-pattern": "((a|b))"}),
        ({"canary_by_header_pattern": "a|[|]b"}, {"canary-by-header-pattern": ".*(a|[|]b).*"}),
        ({"canary_by_header_pattern": "^a|b$"}, {"canary-by-header-pattern": "^a|b$"}),  # told by the word
    ],
)
def test_meanings(annotations: dict[str, str], expected: dict[str, str]) -> None:
    assert words(**annotations) == expected


@pytest.mark.haproxy
def test_it_is_served_as_it_was(stage: PolicyStage) -> None:
    context = stage.serving(of_nginx(whitelist_source_range="198.51.100.0/24", proxy_body_size="1k"))
    assert not context.refused
    assert (stage.request("ingress").status, stage.request("ingress", client="192.0.2.1").status) == (200, 403)
    assert stage.request("ingress", method="POST", body="x" * 1025).status == 413


@pytest.mark.haproxy
@pytest.mark.parametrize("text", ["deny all;", 'more_set_headers "X-A: b";\nallow 192.0.2.1;'])
def test_what_restricts_and_has_no_word_is_not_served(stage: PolicyStage, text: str) -> None:
    context = stage.serving(of_nginx(configuration_snippet=text))
    assert stage.request("ingress").status == 403
    assert "configuration-snippet" in next(iter(context.refused)).field


@pytest.mark.haproxy
def test_a_snippet_of_headers_only_is_read_as_words(stage: PolicyStage) -> None:
    text = 'more_set_headers "X-Frame-Options: DENY" "X-Format: %[src] if";\nproxy_set_header X-From ingress;'
    assert not stage.serving(of_nginx(configuration_snippet=text)).refused
    answer = stage.request("ingress")
    assert (answer.headers["x-frame-options"], answer.headers["x-format"]) == (["DENY"], ["%[src] if"])
    assert answer.echo["headers"]["x-from"] == ["ingress"]


@pytest.mark.haproxy
def test_a_body_has_the_usual_limit_of_ingress_nginx(stage: PolicyStage) -> None:
    def asked(**said: str) -> int:
        stage.serving(of_nginx(**said))
        large = {"Content-Length": str((1 << 20) + 1), "Expect": "100-continue"}
        return stage.request("ingress", method="POST", headers=large, body=None, raw="").status

    assert asked() == 413
    stage.claims = ClaimOptions((Rule(("*",), policies=()),), bounds=PolicyBounds(body=1024))
    assert asked() == 413  # no word of anybody
    stage.serving(of_nginx())
    assert stage.request("ingress", method="POST", body="x" * 2048).status == 200
    stage.claims = ClaimOptions(nginx_body=1024)
    stage.serving(of_nginx())
    assert stage.request("ingress", method="POST", body="x" * 2048).status == 413
    stage.serving(of_nginx(proxy_body_size="0"))
    assert stage.request("ingress", method="POST", body="x" * 2048).status == 200


@pytest.mark.haproxy
def test_requests_beyond_a_limit_get_503(stage: PolicyStage) -> None:
    stage.serving(of_nginx(limit_rpm="1", limit_burst_multiplier="1"))
    assert [stage.request("ingress").status for _ in range(2)] == [200, 503]


@pytest.mark.haproxy
def test_other_classes_are_read_as_before(stage: PolicyStage) -> None:
    text = of_ingress({"whitelist-source-range": "198.51.100.0/24"}, prefix=nginx.PREFIX)
    context = stage.serving(text)
    assert stage.request("ingress").status == 403
    assert [each.reason.value for each in context.refused] == ["unsupported_annotation"]


def test_without_the_setting_the_class_is_not_served(stage: PolicyStage) -> None:
    stage.nginx_classes = ()
    context = stage.context(of_nginx())
    assert not context.names["ingress"]["virtual_hosts"]


@pytest.mark.parametrize(
    ("own", "named"),
    [({}, f"{nginx.PREFIX}whitelist-source-range"), ({"pyconfd.io/allow-networks": "a"}, "pyconfd.io/allow-networks")],
)
def test_a_fault_names_the_annotation_that_says_it(stage: PolicyStage, own: dict[str, str], named: str) -> None:
    document = yaml.safe_load(of_nginx(whitelist_source_range="10.0.0.0/33"))
    document["metadata"]["annotations"] |= own
    (refused,) = stage.context(yaml.safe_dump(document)).refused
    assert refused.field == f"annotation {named}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('more_set_headers "A: b" "C: d"; # more\n', {"response-headers": "A: b\nC: d"}),
        ("more_set_input_headers 'From: ingress';", {"request-headers": "From: ingress"}),
        ("proxy_set_header X-A 'b c'; proxy_set_header X-B d;", {"request-headers": "X-A: b c\nX-B: d"}),
        ("more_clear_headers Server X-A;", {"remove-response-headers": "Server\nX-A"}),
        ("more_clear_input_headers X-A;", {"remove-request-headers": "X-A"}),
        ("# nothing", {}),
        ("", {}),
        ('more_set_headers "Request-Id: $req_id";', None),
        ('more_set_headers -s 404 "A: b";', None),
        ('more_set_headers "A: b"', None),
        ('more_set_headers "A: b\nC: d";', None),
        ('more_set_headers "A: b\\n";', None),
        ('more_set_headers "A:";', None),
        ('more_set_headers "A: b"x;', None),
        ("more_set_headers;", None),
        ("more_clear_headers X-*;", None),
        ('proxy_set_header X-A "";', None),
        ("proxy_set_header X-A b c;", None),
        ("add_header X-A b;", None),  # of some statuses only, and beside what the pod sets
        ("if ($a) { return 403; }", None),
        ('more_set_headers "A: b"; }', None),
        (";", None),
        ('more_set_headers "A: b";' * 500, None),
    ],
)
def test_snippets(text: str, expected: dict[str, str] | None) -> None:
    assert words_of_snippet(text) == expected


def test_headers_of_a_snippet_are_parsed_as_those_of_words(stage: PolicyStage) -> None:
    (refused,) = stage.context(of_nginx(configuration_snippet="proxy_set_header Transfer-Encoding chunked;")).refused
    assert refused.field == f"annotation {nginx.PREFIX}configuration-snippet"
    assert "nobody is let in" in refused.detail


_WITHOUT_MEANING = (
    "default-backend", "custom-http-errors", "service-upstream", "proxy-buffering", "proxy-buffer-size",
    "proxy-buffers-number", "proxy-request-buffering", "proxy-http-version", "mirror-request-body",
    "affinity-canary-behavior",
)  # fmt: skip


@pytest.mark.parametrize("name", [each for each in _WITHOUT_MEANING if each not in nginx.MEANINGS])
def test_what_has_no_meaning_is_named_and_closes_nothing(stage: PolicyStage, name: str) -> None:
    (noted,) = stage.context(of_nginx(**{name.replace("-", "_"): "on"})).refused
    assert noted.reason.is_note
    assert f"{nginx.PREFIX}{name}" in noted.detail
