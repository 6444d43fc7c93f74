"""Words that say what becomes of answers, by a real HAProxy."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.presets.policies.words import NOTHING_ASKED, asked_by
from tests.presets.policies.stage import WAYS, Answer, PolicyStage, policy_stage

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


@pytest.mark.parametrize(
    "text", ["", "text", "text/html\n server x", "text/html if", "*/*", " ".join(map("a/{}".format, range(33)))]
)
def test_hostile_types(text: str) -> None:
    asked, (fault,) = asked_by([("compression", text)])
    assert (asked, fault.name) == (NOTHING_ASKED, "compression")


def test_types_are_said_once() -> None:
    asked, faults = asked_by([("compression", "a/b, " * 40 + "c/d")])
    assert (asked.policy.compressed, faults) == ("a/b c/d", ())
