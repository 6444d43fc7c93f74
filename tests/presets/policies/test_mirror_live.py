"""Copies of requests, by a real HAProxy and the pods of two Services."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.presets.policies.nginx import PREFIX
from tests.presets.gateway.stage import EchoServer, pods
from tests.presets.policies.stage import (
    TARGETS,
    WAYS,
    PolicyStage,
    of_ingress,
    policy,
    policy_stage,
    refused_of,
    said_in,
    service,
)

pytestmark = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    folder = tmp_path / "sockets"
    folder.mkdir()
    with policy_stage(tmp_path) as found:
        found.variables = {"tls_socket": f"unix@{found.folder}/inner"}
        found.nginx_classes = ("nginx",)
        yield found


@pytest.fixture
def shadow() -> Iterator[EchoServer]:
    with pods("shadow") as (pod,):
        yield pod


def copied(shadow: EchoServer, path: str) -> bool:
    """Wait for a copy."""
    end = time.monotonic() + 20
    while path not in shadow.seen and time.monotonic() < end:
        time.sleep(0.02)
    return path in shadow.seen


@ways
def test_requests_are_copied(stage: PolicyStage, shadow: EchoServer, way: str) -> None:
    context = stage.serving(
        service(shadow.port, "shadow"), WAYS[way]({"mirror": "shadow", "request-headers": "X-A: b"})
    )
    assert not context.refused
    assert stage.request(way, "/one").echo["pod"] == "app"
    assert copied(shadow, "/one")
    assert shadow.last["x-a"] == ["b"]
    assert "x-pyconfd-mirror" not in shadow.last
    assert stage.request(way, "/two", method="POST", body="text").echo["body"] == "text"
    assert copied(shadow, "/two")


@pytest.mark.parametrize("way", ["ingress", "httproute"])
def test_what_a_policy_of_the_service_copies(stage: PolicyStage, shadow: EchoServer, way: str) -> None:
    context = stage.serving(
        service(shadow.port, "shadow"), WAYS[way]({}), policy({"mirror": "shadow"}, TARGETS["service"])
    )
    assert not context.refused
    assert stage.request(way, "/one").echo["pod"] == "app"
    assert copied(shadow, "/one")


@ways
def test_a_share_is_copied(stage: PolicyStage, shadow: EchoServer, way: str) -> None:
    words = {"mirror": "shadow", "mirror-percent": "30"}
    stage.serving(service(shadow.port, "shadow"), WAYS[way](words))
    for number in range(200):
        assert stage.request(way, f"/{number}").status == 200
    stage.serving(service(shadow.port, "shadow"), WAYS[way]({"mirror": "shadow"}))
    stage.request(way, "/last")
    assert copied(shadow, "/last")
    assert 20 < len(shadow.seen) < 110
    stage.serving(service(shadow.port, "shadow"), WAYS[way]({**words, "mirror-percent": "0"}))
    seen = len(shadow.seen)
    assert stage.request(way, "/none").status == 200
    assert len(shadow.seen) == seen


@ways
@pytest.mark.parametrize("words", [{"mirror": "none"}, {"mirror": "shadow:81"}, {"mirror": "shadow.other"}])
def test_without_its_service_requests_are_served(
    stage: PolicyStage, shadow: EchoServer, way: str, words: dict[str, str]
) -> None:
    context = stage.serving(service(shadow.port, "shadow"), WAYS[way](words))
    assert stage.request(way).echo["pod"] == "app"
    assert not shadow.seen
    (refused,) = refused_of(context)
    field = refused.field.removeprefix("RoutePolicy shop/of-web ").removesuffix(" at rules[0]")
    assert field == said_in(way, "mirror")


@pytest.mark.parametrize("words", [{"mirror": "a b"}, {"mirror": "shadow:99999"}, {"mirror-percent": "5"}])
def test_what_it_cannot_say_has_no_effect(stage: PolicyStage, words: dict[str, str]) -> None:
    context = stage.context(of_ingress(words))
    (refused,) = context.refused
    assert "it has no effect" in refused.detail


def test_a_target_of_ingress_nginx(stage: PolicyStage, shadow: EchoServer) -> None:
    for url in ("http://shadow$request_uri", "http://shadow.shop.svc.cluster.local/$request_uri"):
        main = of_ingress({"mirror-target": url}, prefix=PREFIX, class_name="nginx")
        assert not stage.serving(service(shadow.port, "shadow"), main).refused
        assert stage.request("ingress", f"/{len(url)}").status == 200
        assert copied(shadow, f"/{len(url)}")
    main = of_ingress({"mirror-target": "https://test.example.com$request_uri"}, prefix=PREFIX, class_name="nginx")
    (refused,) = stage.serving(service(shadow.port, "shadow"), main).refused
    assert refused.field == f"annotation {PREFIX}mirror-target"
    assert stage.request("ingress").status == 200


def test_requests_of_a_canary_are_copied_too(stage: PolicyStage, shadow: EchoServer) -> None:
    canary = of_ingress({"canary": "true", "canary-weight": "100"}, name="web-canary")
    assert not stage.serving(service(shadow.port, "shadow"), of_ingress({"mirror": "shadow"}), canary).refused
    assert stage.request("ingress", "/one").status == 200
    assert copied(shadow, "/one")
