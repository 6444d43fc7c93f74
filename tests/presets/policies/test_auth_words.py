"""The words of external authentication, without HAProxy."""

import re
from pathlib import Path

import pytest

from pyconfd.fragments import directory
from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import plan
from pyconfd.haproxy.config.spares import Spares
from pyconfd.model.context import PresetName
from pyconfd.model.plan import Reload, RuntimeUpdate
from pyconfd.model.rendering import Rendering
from pyconfd.presets import registry
from pyconfd.presets.policies.auth_words import auth_url
from pyconfd.presets.policies.external_auth import AuthService
from pyconfd.presets.policies.words import asked_by
from pyconfd.presets.policy import ClaimOptions, PolicyBounds
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.presets.gateway.objects import snapshot
from tests.presets.policies.stage import INGRESS_CLASS, PolicyStage, of_ingress, service
from tests.world.haproxy import HaproxyProcess

URL = ("auth-url", "http://auth/")


def test_without_the_preset_that_reads_grants_the_preset_is_named() -> None:
    seen = snapshot(INGRESS_CLASS, service(80), of_ingress({"auth-url": "http://auth.other.svc/check"}))
    for presets, expected in (
        ((PresetName.INGRESS,), "add gateway to presets.use"),
        ((PresetName.INGRESS, PresetName.GATEWAY), "no ReferenceGrant of the namespace other"),
    ):
        refused = registry.translate(seen, presets, PresetOptions()).refused
        assert expected in " ".join(each.detail for each in refused)


@pytest.mark.parametrize(
    ("text", "service"),
    [
        ("http://auth", AuthService("shop", "shop", "auth", 80)),
        ("http://auth:4180/oauth2/auth?a=$host", AuthService("shop", "shop", "auth", 4180)),
        ("http://auth.shop/", AuthService("shop", "shop", "auth", 80)),
        ("http://auth.other.svc/", AuthService("shop", "other", "auth", 80)),
        ("http://auth.other.svc.cluster.local/", AuthService("shop", "other", "auth", 80)),
        ("http://auth.other/", None),
        ("https://auth.shop/", None),
        ("https://auth.example.com/oauth2/auth", None),
        ("https://$host/oauth2/auth", None),
    ],
)
def test_who_is_asked(text: str, service: AuthService | None) -> None:
    assert auth_url(text).service_of("shop") == service


@pytest.mark.parametrize(
    "text",
    [
        "",
        "auth",
        "//auth/",
        "ftp://auth/",
        "https://auth/",
        "https://auth.other.svc/",
        "http://10.0.0.1/",
        "http://[::1]/",
        "http://169.254.169.254/latest",
        "http://2130706433/",
        "http://*.example.com/",
        "http://user@auth/",
        "http://auth/#a",
        "http://auth:0/a b",
        "http://auth:70000/",
        "https://auth.example.com:8443/",
        "http://auth/\r\nHost: other",
        "http://$host.example.com/",
        "http://auth$request_uri",
        "http://auth/$remote_addr",
        "http://auth/${host}",
        "http://auth/$",
        "http://auth/" + "a" * 800,
        "http://auth/ü",
        'http://auth/"',
    ],
)
def test_what_cannot_be_asked_closes(text: str) -> None:
    asked, faults = asked_by((("auth-url", text),), "Ingress", "shop")
    assert not asked.policy.external
    assert [(each.name, each.restricts) for each in faults] == [("auth-url", True)]


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("auth-method", "DELETE"),
        ("auth-method", "GET x"),
        ("auth-timeout", "0s"),
        ("auth-timeout", "5001ms"),
        ("auth-request-headers", "Content-Length"),
        ("auth-request-headers", "a b:"),
        ("auth-response-headers", "Host"),
        ("auth-response-headers", "Transfer-Encoding"),
        ("auth-response-headers", ",".join(f"x{number}" for number in range(17))),
        ("auth-signin", "javascript:alert(1)"),
        ("auth-signin", "//other.example/"),
        ("auth-signin", "https://a.example/ b"),
        ("auth-signin", "https://a.example/$cookie_x"),
        ("auth-signin-redirect-param", "a&b"),
        ("auth-request-redirect", "a\tb"),
    ],
)
def test_what_more_is_said_wrongly(word: str, text: str) -> None:
    _, faults = asked_by((URL, (word, text)), "Ingress", "shop")
    assert [each.name for each in faults] == [word]
    _, faults = asked_by(((word, "GET"),), "Ingress", "shop")
    assert [each.name for each in faults] == [word]


def test_time_is_that_of_the_setting_where_no_word_says_less() -> None:
    claims = ClaimOptions(bounds=PolicyBounds(auth_timeout_ms=700))
    both = (URL, ("auth-timeout", "200ms"))
    assert [asked_by(each, "Ingress", "shop", claims)[0].policy.external.timeout_ms for each in ((URL,), both)] == [
        700,
        200,
    ]


def test_what_the_script_is_told() -> None:
    said = (URL, ("auth-signin", "/in?a"), ("auth-signin-redirect-param", "to"), ("auth-response-headers", "X-A, x-b"))
    asked, _ = asked_by(said, "Ingress", "shop")
    assert asked.policy.external.value.split(" ") == [
        "auth_shop_auth_80",
        "auth",
        "/",
        "GET",
        "5000",
        "*",
        "x-a,x-b",
        "/in?a&to=$scheme://$http_host$escaped_request_uri",
        "$request_uri",
    ]


def test_the_longest_value_fits_into_a_map() -> None:
    names = ",".join(f"x{'a' * 33}{number:02}" for number in range(16))
    said = {
        "auth-url": "http://" + "a" * 63 + "/" + "b" * 720,
        "auth-request-headers": names,
        "auth-response-headers": names,
        "auth-signin": "/" + "b" * 799,
        "auth-request-redirect": "c" * 300,
    }
    asked, faults = asked_by(said.items(), "Ingress", "n" * 63)
    assert not faults
    assert 3_000 < len(asked.policy.external.value) < 3_800


def rendered(stage: PolicyStage, *objects: str) -> Rendering:
    options = RenderOptions("/files", variables={"runtime_socket": "/run/s"}, spare_backends=20)
    return Renderer(read_fragments(directory()), options).render(stage.context(*objects), curdate="").rendering


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ({"auth-url": "http://auth/other?a=$host"}, RuntimeUpdate),
        ({"auth-url": "http://auth/", "auth-response-headers": "X-A", "auth-signin": "/in"}, RuntimeUpdate),
        ({"auth-url": "http://second/"}, RuntimeUpdate),
        ({"auth-url": "https://$host/"}, Reload),
    ],
)
def test_what_a_new_value_costs(tmp_path: Path, words: dict[str, str], kind: type) -> None:
    services = service(1, "auth"), service(2, "second")
    stage = PolicyStage(tmp_path, HaproxyProcess(tmp_path))
    before = rendered(stage, of_ingress({"auth-url": "http://auth/"}), *services)
    after = rendered(stage, of_ingress(words), *services)
    spares = frozenset(re.findall(r"^backend (spare-\S+)", before.text, re.MULTILINE))
    path = next(file.path for file in before.files if file.path.endswith("/spare-backends.map"))
    can = Abilities(runtime=True, spares=Spares(path, spares))
    assert isinstance(plan(after, before, None, abilities=can), kind)
