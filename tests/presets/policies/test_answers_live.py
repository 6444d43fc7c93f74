"""Words that say what becomes of answers, by a real HAProxy."""

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import plan
from pyconfd.model.plan import Noop, Reload
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.policies.words import NOTHING_ASKED, asked_by
from pyconfd.presets.rule_backends import MOST_PROFILES
from tests.presets.policies.stage import (
    WAYS,
    Answer,
    PolicyStage,
    config_map,
    policy_stage,
    refused_of,
    said_in,
)

haproxy = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        yield found


def _asked(stage: PolicyStage, way: str, content_type: str, encodings: str = "gzip") -> Answer:
    headers = {"Accept-Encoding": encodings, "X-Answer": f"Content-Type={content_type}", "X-Long": "a" * 4000}
    return stage.request(way, headers=headers)


@haproxy
@ways
@pytest.mark.parametrize(
    ("text", "content_type", "encodings", "is_compressed"),
    [
        ("on", "application/json", "gzip", True),
        ("on", "application/json; charset=utf-8", "gzip, br", True),
        ("on", "application/json", "br", False),
        ("on", "image/png", "gzip", False),
        ("on", "text/event-stream", "gzip", False),
        ("image/png, text/css", "image/png", "gzip", True),
        ("image/png, text/css", "application/json", "gzip", False),
        ("off", "application/json", "gzip", False),
    ],
)
def test_answers_are_compressed(
    stage: PolicyStage, way: str, text: str, content_type: str, encodings: str, is_compressed: bool
) -> None:
    assert not stage.serving(WAYS[way]({"compression": text})).refused
    answer = _asked(stage, way, content_type, encodings)
    assert answer.headers.get("content-encoding") == (["gzip"] if is_compressed else None)
    if is_compressed:
        (vary,) = answer.headers["vary"]
        assert vary.lower() == "accept-encoding"


@haproxy
@ways
def test_what_is_compressed_is_the_answer(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"compression": "on"}))
    body = _asked(stage, way, "application/json").body.encode("latin-1")
    chunks = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        chunks, body = chunks + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    assert b'"x-long": ["aaaa' in gzip.decompress(chunks)
    assert len(chunks) < 1000


@haproxy
@ways
def test_nothing_is_compressed_without_the_word(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"server-timeout": "9s"}))
    assert "content-encoding" not in _asked(stage, way, "text/html").headers


_HOSTILE = "<p>\n%[src] ${HOME} \"quoted' # \\n\n\nbackend x\n  server y 192.0.2.1:80\n"


@haproxy
@ways
def test_errors_have_pages(stage: PolicyStage, way: str) -> None:
    assert stage.pod is not None
    stage.pod.script = lambda path: int(path[1:4])
    pages = config_map("ours", {"404.json": '{"error": 1}', "403": "closed", "503.html": _HOSTILE, "other": "x"})
    words = {"error-pages": "ours", "deny-networks": "192.0.2.0/24"}
    assert not stage.serving(WAYS[way](words), pages).refused

    def got(path: str, client: str = "198.51.100.7") -> tuple[int, list[str], str]:
        answer = stage.request(way, path, method="POST", client=client)
        return answer.status, list(answer.headers.get("content-type", ())), answer.body

    assert got("/404") == (404, ["application/json"], '{"error": 1}')
    assert got("/503") == (503, ["text/html"], _HOSTILE)
    assert got("/200", "192.0.2.1") == (403, ["text/html"], "closed")
    assert '"path": "/500"' in got("/500")[2]
    assert '"path": "/200"' in got("/200")[2]


@haproxy
@ways
def test_haproxys_own_errors_have_pages(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({"error-pages": "ours"}), config_map("ours", {"503.txt": "soon"}), "".join(_no_pods()))
    answer = stage.request(way, "/")
    assert (answer.status, answer.headers["content-type"], answer.body) == (503, ["text/plain"], "soon")


def _no_pods() -> Iterator[str]:
    """Return the EndpointSlice of the stage without endpoints."""
    yield "kind: EndpointSlice\nmetadata: {name: app-a, labels: {kubernetes.io/service-name: app}}\n"
    yield "addressType: IPv4\nendpoints: []\nports: [{name: http, port: 1}]\n"


@haproxy
@ways
@pytest.mark.parametrize(
    ("data", "namespaces", "why"),
    [
        (None, ("*",), "there is no ConfigMap shop/ours"),
        ({"418": "x"}, ("*",), "has no page"),
        ({"503": "x" * 8193}, ("*",), "at most 8 KiB"),
        ({"503": "\N{SNOWMAN}" * 2731}, ("*",), "at most 8 KiB"),
        ({"503": "x"}, ("other",), "kubernetes.secret_namespaces"),
    ],
)
def test_what_is_no_page_is_told(
    stage: PolicyStage, way: str, data: dict[str, str] | None, namespaces: tuple[str, ...], why: str
) -> None:
    stage.tls = TlsOptions(namespaces=namespaces)
    assert stage.pod is not None
    stage.pod.script = lambda _: 503
    context = stage.serving(WAYS[way]({"error-pages": "ours"}), config_map("ours", data) if data else "")
    assert '"pod": "app"' in stage.request(way).body
    (refused,) = refused_of(context)
    assert refused.field.endswith(said_in(way, "error-pages"))
    assert why in refused.detail


@haproxy
@ways
def test_the_largest_page_of_each_status(stage: PolicyStage, way: str) -> None:
    assert stage.pod is not None
    stage.pod.script = lambda path: int(path[1:4])
    statuses = (400, 403, 404, 405, 408, 410, 503, 504)
    stage.serving(WAYS[way]({"error-pages": "ours"}), config_map("ours", {f"{each}": "x" * 8192 for each in statuses}))
    found = {each: len(stage.request(way, f"/{each}", method="POST").body) for each in statuses}
    assert found == dict.fromkeys(statuses, 8192)


def test_pages_are_64_kib_together(stage: PolicyStage) -> None:
    pages = config_map("ours", {f"{each}": "x" * 8192 for each in (400, 403, 404, 405, 408, 410, 500, 501, 503)})
    (refused,) = stage.context(WAYS["ingress"]({"error-pages": "ours"}), pages).refused
    assert refused.detail.startswith("503 is no page of at most 8 KiB, and 64 KiB with all others")


@ways
def test_backends_beyond_the_profiles_have_no_pages(stage: PolicyStage, way: str) -> None:
    objects = [
        WAYS[way]({"error-pages": "ours", "connect-timeout": f"{number + 1}s"}, path=f"/{number}", name=f"n{number}")
        for number in range(MOST_PROFILES + 1)
    ]
    text = stage.rendered(*objects, config_map("ours", {"503": "x"}))[0].text
    assert text.count("http-error status 503") == MOST_PROFILES


@ways
def test_another_text_of_a_page_is_a_reload(stage: PolicyStage, way: str) -> None:
    one, two = (
        stage.rendered(WAYS[way]({"error-pages": "ours"}), config_map("ours", {"503": text})) for text in ("one", "two")
    )
    assert one[0].text == two[0].text
    applied, desired = (
        replace(rendering, files=(*rendering.files, *context.files)) for rendering, context in (one, two)
    )
    assert isinstance(plan(applied, applied, None), Noop)
    assert isinstance(plan(desired, applied, None, abilities=Abilities(runtime=True)), Reload)


@pytest.mark.parametrize("text", ["", "a/b", "../a", "a b", "if"])
def test_hostile_names_of_pages(text: str) -> None:
    asked, (fault,) = asked_by([("error-pages", text)], "Ingress", "shop")
    assert (asked, fault.name) == (NOTHING_ASKED, "error-pages")


@pytest.mark.parametrize(
    "text", ["", "text", "text/html\n server x", "text/html if", "*/*", " ".join(map("a/{}".format, range(33)))]
)
def test_hostile_types(text: str) -> None:
    asked, (fault,) = asked_by([("compression", text)])
    assert (asked, fault.name) == (NOTHING_ASKED, "compression")


def test_types_are_said_once() -> None:
    asked, faults = asked_by([("compression", "a/b, " * 40 + "c/d")])
    assert (asked.policy.compressed, faults) == ("a/b c/d", ())
