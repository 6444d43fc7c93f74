"""Copies of requests, made by the script in a real haproxy."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyconfd.presets.gateway.servers import Reference
from tests.fragments.shipped import HAPROXY
from tests.presets.gateway import stage
from tests.presets.gateway.stage import EchoServer, Routes, ask, gateway, parsed, pods, running
from tests.world.haproxy import free_port, wait_until

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")]


@contextmanager
def mirrored(folder: Path, web: EchoServer, mirrors: Sequence[Reference], **more: Any) -> Iterator[int]:
    filters = [
        {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": f"m{place}", "port": 80}, **more}}
        for place, _ in enumerate(mirrors)
    ]
    filters.append({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "X-A", "value": "b"}]}})
    rule = parsed({"backendRefs": [{"name": "web", "port": 80}], "filters": filters})
    port = free_port()
    route = Routes("gw_demo_web_80").add(rule, stage.reference(1, (web.endpoint,)), mirrors=mirrors)
    front, backends = gateway("gw_demo_web_80", [route], port=port)
    with running([front], backends, folder):
        yield port


def test_each_mirror_gets_a_copy_and_the_client_one_answer(tmp_path: Path) -> None:
    with pods("web", "one", "two") as (web, one, two):
        mirrors = [
            stage.reference(1, (one.endpoint,)),
            stage.reference(1, (two.endpoint,)),
            stage.reference(1, resolved=False),
        ]
        with mirrored(tmp_path, web, mirrors) as port:
            answer = ask(port, "/a?b=c", method="POST", body="text", headers={"X-Pyconfd-Mirror": "gateway-no-route"})
            assert (answer.echo["pod"], answer.echo["body"]) == ("web", "text")
            for mirror in (one, two):
                wait_until(lambda mirror=mirror: mirror.seen, "a copy")  # type: ignore[misc]
                assert mirror.seen == ["/a?b=c"]
                assert mirror.last["x-a"] == ["b"]
                assert mirror.last["host"] == ["shop.example.com"]
                assert "x-pyconfd-mirror" not in mirror.last


def test_a_share_of_requests_is_copied(tmp_path: Path) -> None:
    with pods("web", "one") as (web, one):
        with mirrored(tmp_path, web, [stage.reference(1, (one.endpoint,))], percent=20) as port:
            assert {ask(port, "/").status for _ in range(400)} == {200}
            ask(port, "/last")
            wait_until(lambda: len(one.seen) > 40, "copies")
        assert len(one.seen) < 130


def test_copies_go_on_after_many_were_lost(tmp_path: Path) -> None:
    with pods("web", "one") as (web, one), ExitStack() as stack:
        # The script has at most 256 copies under way: more than these are refused here.
        mirrors = [stage.reference(1), stage.reference(1, (one.endpoint,))]
        port = stack.enter_context(mirrored(tmp_path, web, mirrors))
        assert {ask(port, "/").status for _ in range(600)} == {200}
        ask(port, "/last")
        wait_until(lambda: "/last" in one.seen, "a copy")
