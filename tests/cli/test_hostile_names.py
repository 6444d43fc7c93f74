"""Names from files and API servers on a terminal: no control character arrives there, and no endless line."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyconfd.errors import Problem
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.printable import clean
from tests.world.haproxy import BINARY

HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202e\x1b[8m\nnot a line\r"
LONG = HOSTILE + "x" * 17_000
MOST = 2_000
_OWN_STYLE = re.compile(r"\x1b\[(?:0|1|2|3[0-7])m")
SECTION = """defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
frontend f
    bind 127.0.0.1:18080
"""

pytestmark = pytest.mark.skipif(not Path(BINARY).exists(), reason="no haproxy binary")


def on_terminal(*arguments: str, folder: Path) -> str:
    """Run pyconfd on a terminal of its own; give what it would show."""
    master, slave = pty.openpty()
    argv = [sys.executable, "-m", "pyconfd", *arguments]
    environ = {"PATH": os.environ["PATH"], "TERM": "xterm"}
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, cwd=folder, env=environ):
        os.close(slave)
        seen = bytearray()
        while True:
            try:
                seen += os.read(master, 65536)
            except OSError:  # the other side has closed it
                break
    os.close(master)
    return seen.decode().replace("\r\n", "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    def service(name: str, domain: str, cluster_port: int = 80) -> dict[str, object]:
        metadata = {"name": name, "namespace": LONG, "annotations": {"domain": domain, "proto": "http"}}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{"port": cluster_port, "name": HOSTILE}]},
        }

    unreadable = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": LONG, "namespace": HOSTILE}, "spec": LONG}
    items = [service(LONG, LONG), service(HOSTILE, "shop.example.com"), service("b", "shop.example.com"), unreadable]
    whole = {"apiVersion": "v1", "kind": "List", "metadata": {"pyconfd.io/cluster": HOSTILE}, "items": [*items, *items]}
    (tmp_path / "dump.json").write_text(json.dumps(whole))
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "01-all.tmpl").write_text(
        SECTION + "{% for name in domains %}# {{ name }} {{ domains[name].service.namespace }}\n{% endfor %}"
    )
    return tmp_path


def settings(folder: Path) -> list[str]:
    given = {"template-dir": folder / "t", "haproxy-binary": BINARY, "haproxy-conf": folder / "haproxy.cfg"}
    given |= {"state-dir": folder / "state", "runtime-dir": folder / "run", "haproxy-unit": ""}
    return [f"--{name}={value}" for name, value in given.items()] + ["--snapshot", str(folder / "dump.json")]


@pytest.mark.parametrize(
    "command", [("render",), ("check",), ("plan",), ("plan", "--json"), ("explain", "--all-refused"), ("explain", "b")]
)
def test_no_name_controls_the_terminal(folder: Path, command: tuple[str, ...]) -> None:
    seen = on_terminal(*command, *settings(folder), folder=folder)
    assert "not a line" in seen
    plain = _OWN_STYLE.sub("", seen)
    assert {char for char in plain if char != "\n" and not char.isprintable()} == set()
    assert not re.search("^not a line", plain, re.MULTILINE)
    if "--json" not in command:
        assert max(map(len, plain.splitlines())) <= MOST


def test_a_file_gets_the_configuration_as_it_is(folder: Path) -> None:
    (folder / "t" / "02.conf").write_text("# \x1b[31m\x7f" + "y" * 5_000 + "\n")
    argv = [sys.executable, "-m", "pyconfd", "render", *settings(folder)]
    done = subprocess.run(argv, capture_output=True, check=True)
    assert b"# \x1b[31m\x7f" + b"y" * 5_000 + b"\n" in done.stdout
    assert "\\x1b[31m\\x7f" in on_terminal("render", *settings(folder), folder=folder)


@pytest.mark.parametrize("text", [HOSTILE, LONG, "\ud800", "é 日本 ok"])
def test_cleaned_text_is_printable_and_short(text: str) -> None:
    assert clean(text).isprintable()
    assert len(clean(text)) <= 1_100
    assert clean("é 日本 ok") == "é 日本 ok"


def test_an_object_and_a_problem_are_cleaned_where_they_become_text() -> None:
    ref = str(ObjectRef("Service", LONG, HOSTILE, HOSTILE))
    assert ref.isprintable()
    assert len(ref) < 1_000
    shown = str(Problem(HOSTILE.replace("\n", ""), "m\x1b[2J\n  second line", "r\x07"))
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.count("\n") == 2
