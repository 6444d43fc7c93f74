"""Words that say how long requests may take and how often they are tried, by a real HAProxy."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.presets.policies.words import NOTHING_ASKED, asked_by
from tests.presets.policies.stage import WAYS, PolicyStage, policy_stage

haproxy = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        yield found


@haproxy
@ways
@pytest.mark.parametrize("word", ["server-timeout", "request-timeout"])
def test_a_silent_pod_is_given_up(stage: PolicyStage, way: str, word: str) -> None:
    # Without the word it is given up after a minute, when the client has gone.
    assert stage.pod is not None
    is_over = threading.Event()
    stage.pod.script = lambda path: 200 if path == "/" or is_over.wait(60) else 500
    stage.serving(WAYS[way]({word: "300ms"}))
    try:
        assert stage.request(way).status == 200
        assert stage.request(way, "/silent").status == 504
    finally:
        is_over.set()


@haproxy
@ways
@pytest.mark.parametrize(("retries", "expected"), [("2", (200, 3)), ("1", (503, 2))])
def test_retries(stage: PolicyStage, way: str, retries: str, expected: tuple[int, int]) -> None:
    assert stage.pod is not None
    answers = iter([503, 503, 200])
    stage.pod.script = lambda _: next(answers)
    stage.serving(WAYS[way]({"retries": retries, "retry-on": "503"}))
    assert (stage.request(way).status, len(stage.pod.seen)) == expected


@haproxy
@ways
def test_lines_of_other_times(stage: PolicyStage, way: str) -> None:
    rendering, _ = stage.rendered(WAYS[way]({"connect-timeout": "1s", "queue-timeout": "2s", "tunnel-timeout": "4h"}))
    assert "\n    timeout connect 1000ms\n    timeout queue 2000ms\n" in rendering.text
    (values,) = [file.content for file in rendering.files if file.path.endswith("backend-values.map")]
    assert "|tunnel 14400000\n" in values


@pytest.mark.parametrize(
    ("word", "text"),
    [("retries", "-1"), ("retries", "101"), ("retries", "²"), ("retry-on", "503 if"), ("retry-on", "")]
    + [(f"{each}-timeout", text) for each in ("connect", "queue", "tunnel", "request") for text in ("0s", "25h", "1")],
)
def test_hostile_text(word: str, text: str) -> None:
    asked, (fault,) = asked_by([(word, text)])
    assert (asked, fault.name) == (NOTHING_ASKED, word)
