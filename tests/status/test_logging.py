import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from pyconfd.status.logging import configure
from tests.world.log import logging_restored


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    with logging_restored():
        yield


def text_of(level: str = "INFO", format: str = "text") -> io.StringIO:  # noqa: A002 - as in configure
    stream = io.StringIO()
    configure(level, format, stream=stream, environ={})
    return stream


def fail(why: str) -> None:
    hidden = "local" + "value"
    raise ValueError(why + hidden[:0])


def log() -> Any:
    return structlog.get_logger("pyconfd.some.module")


def test_text_is_one_line_with_its_fields() -> None:
    stream = text_of()
    log().info("generation.applied", generation=12, why="servers changed", path="/etc/x", reasons=("a_b", "c"))
    line = stream.getvalue()
    assert line.endswith(' INFO    generation.applied generation=12 why="servers changed" path=/etc/x reasons=a_b,c\n')
    assert line[:4].isdigit()


def test_json_is_one_object_a_line() -> None:
    stream = text_of(format="json")
    log().warning("api_server.went_down", server="https://10.0.0.1", after_s=2.5)
    found = json.loads(stream.getvalue())
    assert found.pop("timestamp").endswith("Z")
    assert found == {
        "level": "warning",
        "event": "api_server.went_down",
        "logger": "pyconfd.some.module",
        "server": "https://10.0.0.1",
        "after_s": 2.5,
    }


def test_below_the_level_is_silence_in_any_case_of_letters() -> None:
    stream = text_of("warning")
    log().info("not.seen")
    assert stream.getvalue() == ""


def test_others_are_heard_from_warning_up_even_at_debug() -> None:
    stream = text_of("DEBUG")
    logging.getLogger("urllib3.connectionpool").info("starting new connection")
    logging.getLogger("kubernetes.client.rest").warning("retrying %s", "https://me:hunter2@10.0.0.1")
    log().debug("seen")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "retrying https://[hidden]@10.0.0.1" in lines[0]
    assert "logger=kubernetes" not in lines[0]


@pytest.mark.parametrize("format", ["text", "json"])
def test_secrets_never_arrive(format: str) -> None:  # noqa: A002 - as in configure
    stream = text_of(format=format)
    log().info(
        "request.sent",
        token="s3cr3t",
        headers={"Authorization": "s3cr3t"},
        note="Bearer s3cr3t-s3cr3t",
        key="-----BEGIN PRIVATE KEY-----\ns3cr3t\n",
    )
    try:
        fail("https://u:s3cr3t@host")
    except ValueError:
        log().exception("request.failed")
    assert "request.failed" in stream.getvalue()
    assert "s3cr3t" not in stream.getvalue()


@pytest.mark.parametrize("format", ["text", "json"])
def test_tracebacks_are_rendered_without_local_values(format: str) -> None:  # noqa: A002 - as in configure
    stream = text_of(format=format)
    try:
        fail("broken")
    except ValueError:
        log().exception("loop.crashed")
    assert "ValueError: broken" in stream.getvalue()
    assert "test_logging.py" in stream.getvalue()
    assert "localvalue" not in stream.getvalue()
    if format == "json":
        assert len(stream.getvalue().splitlines()) == 1


def test_a_value_cannot_forge_a_line() -> None:
    stream = text_of()
    log().info("object.refused", value='x\n<0>ERROR faked "y"', other="\033[2J")
    assert len(stream.getvalue().splitlines()) == 1
    assert "\033" not in stream.getvalue()


def test_under_the_journal_each_line_has_its_priority_and_no_time(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with path.open("w") as stream:
        found = os.fstat(stream.fileno())
        configure("INFO", "text", stream=stream, environ={"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
        log().info("daemon.started")
        try:
            fail("broken")
        except ValueError:
            log().exception("loop.crashed")
        log().warning("api_server.went_down")
    lines = path.read_text().splitlines()
    assert lines[0] == "<6>INFO    daemon.started"
    assert lines[-1] == "<4>WARNING api_server.went_down"
    assert len(lines) > 3
    assert all(line.startswith("<3>") for line in lines[1:-1])


def test_an_inherited_journal_variable_is_not_believed(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as stream:
        configure("INFO", "text", stream=stream, environ={"JOURNAL_STREAM": "1:2"})
        log().info("daemon.started")
    assert not (tmp_path / "file").read_text().startswith("<")


def test_configuring_twice_logs_once() -> None:
    text_of()
    stream = text_of()
    log().info("daemon.started")
    assert stream.getvalue().count("daemon.started") == 1
