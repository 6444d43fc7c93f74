"""What ``pyconfd plan --traffic`` prints, with which exit code, and what it makes of logs that are no logs."""

import gzip
import json
import lzma
from collections.abc import Callable
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pyconfd.cli import traffic
from pyconfd.cli.main import cli
from pyconfd.cli.traffic import MOST_LINE_BYTES, read_log
from pyconfd.explain import replay
from pyconfd.explain.replay import TrafficReplay
from pyconfd.fragments import of_presets
from tests.presets.ingress.objects import ingress, ingress_class, path, service

HOST = "shop.example.com"
HOSTILE = "\x1b]0;owned\x07\u202e\r\n"
Run = Callable[..., Result]


def line(**members: Any) -> str:
    found = {"listener": "http-in", "client": "192.0.2.7", "method": "GET", "host": HOST, "path": "/cart/1"}
    return json.dumps({**found, "backend": "", **members})


def _write(file: Path, *objects: dict[str, Any]) -> str:
    file.write_text(yaml.safe_dump_all(objects))
    return str(file)


def _objects(paths: dict[str, str]) -> list[dict[str, Any]]:
    services = [each for name in ("cart", "pay") for each in service(name, "10.0.0.1")]
    rules = {HOST: [path(text, f"{name}:80") for text, name in paths.items()]}
    return [*services, ingress_class(), ingress("shop", rules)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    templates = tmp_path / "templates"
    templates.mkdir()
    for name, shipped in of_presets(("domains", "ingress")).items():
        (templates / name).write_text(shipped.read_text())
    before = _write(tmp_path / "before.yaml", *_objects({"/cart": "cart", "/pay": "pay"}))
    after = _write(tmp_path / "after.yaml", *_objects({"/cart": "pay", "/pay": "pay"}))
    config = tmp_path / "pyconfd.toml"
    config.write_text(
        f'state_dir = "{tmp_path}/state"\nruntime_dir = "{tmp_path}/run"\n'
        f'[templates]\ndir = "{templates}"\n[haproxy]\nconf = "{tmp_path}/haproxy.cfg"\nbinary = "{tmp_path}/none"\n'
        '[presets]\nuse = ["domains", "ingress"]\n'
    )

    def called(log: str | bytes, *options: str, same: bool = False) -> Result:
        files = ("--before", before, "--snapshot", before if same else after)
        given = log.encode() if isinstance(log, str) else log
        arguments = ("plan", "--traffic", "-", *files, *options, "--config", str(config))
        return CliRunner(env={"PYCONFD_CONFIG": None}).invoke(cli, arguments, input=given)

    return called


def test_groups_of_requests_with_examples(run: Run) -> None:
    lines = [line(), line(path="/cart/2"), line(path="/cart/2"), line(path="/pay"), line(host="nobody.example.com")]
    done = run("\n".join(lines))
    assert done.exit_code == 2, done.output
    assert done.stdout.splitlines() == [
        "5 requests: 3 get another backend, status or rewrite",
        "",
        "3 requests (60 %): GET shop.example.com/cart/*",
        "  before: backend ing_demo_cart_80 (Service demo/cart, port 80, of Ingresses)",
        "  after:  backend ing_demo_pay_80 (Service demo/pay, port 80, of Ingresses)",
        "  line 1: GET shop.example.com/cart/1",
        "  line 2: GET shop.example.com/cart/2",
    ]
    same = run("\n".join(lines), same=True)
    assert same.exit_code == 0
    assert same.stdout == "5 requests: none gets another backend, status or rewrite\n"


def test_json_has_everything(run: Run) -> None:
    log = "\n".join([line(), "rubbish", "", line(path="/pay", backend="ing_demo_pay_80")])
    found = json.loads(run(log, "--json").stdout)
    assert [found[each] for each in ("lines", "requests", "same", "changed", "unreadable")] == [4, 2, 1, 1, 1]
    (group,) = found["groups"]
    assert (group["kind"], group["requests"], group["percent"]) == ("changed", 1, 50.0)
    assert group["targets"] == [{"target": "GET shop.example.com/cart/*", "requests": 1}]
    assert group["examples"] == [{"line": 1, "request": "GET shop.example.com/cart/1"}]
    assert [each["line"] for each in found["unreadable_examples"]] == [2]
    # The log names no backend for the first one: it was logged when the Ingress was not there.
    assert found["elsewhere"] == 1


@pytest.mark.parametrize(
    "log",
    [
        line(path=f"/cart/{HOSTILE}"),
        line(listener=HOSTILE),
        line(host=HOSTILE),
        line(method=HOSTILE, path="/cart/x"),
        line(method="", sni=HOSTILE, listener="https-in"),
        f"{line()}\n{HOSTILE}\n{{{HOSTILE}",
    ],
)
def test_what_a_stranger_wrote_is_text(run: Run, log: str) -> None:
    for options in ((), ("--json",)):
        done = run(log, *options)
        assert done.exit_code in {0, 2}, done.output
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(done.stdout + done.stderr)


@pytest.mark.parametrize("log", ["", "\n\n"])
def test_an_empty_log_is_no_reassurance(run: Run, log: str) -> None:
    done = run(log)
    assert (done.exit_code, done.stderr) == (0, "note: the log has no line, so nothing was compared\n")
    assert json.loads(run(log, "--json").stdout)["notes"] == ["the log has no line, so nothing was compared"]


@pytest.mark.parametrize(
    ("packed", "program"),
    [(gzip.compress(b"{}"), "zcat"), (lzma.compress(b"{}"), "xzcat"), (b"(\xb5/\xfd\n", "zstdcat")],
    ids=["gzip", "xz", "zstd"],
)
def test_a_compressed_log_is_to_be_unpacked(run: Run, packed: bytes, program: str) -> None:
    done = run(packed)
    assert done.exit_code == 1
    assert f"-: is compressed\n      -> put {program} before it" in done.stderr


def test_a_log_of_which_nothing_can_be_read(run: Run) -> None:
    done = run(b"\xff\x00\n\x1b[2J\n")
    assert done.exit_code == 1
    assert "none of 2 lines can be read (line 1: neither JSON" in done.stderr
    assert "\x1b[2J" not in done.stderr


@pytest.mark.parametrize(
    "options", [("--before", "-"), ("--before", "-", "--traffic", "-"), ("--snapshot", "-", "--traffic", "-")]
)
def test_options_that_exclude_each_other(options: tuple[str, ...]) -> None:
    assert CliRunner().invoke(cli, ("plan", *options)).exit_code == 64


def test_without_anything_applied_the_objects_before_have_to_be_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(line())
    settings = ("--state-dir", str(tmp_path / "state"), "--haproxy-conf", str(tmp_path / "haproxy.cfg"))
    done = CliRunner(env={"PYCONFD_CONFIG": None}).invoke(cli, ("plan", "--traffic", str(log), *settings))
    assert done.exit_code == 1
    assert "--before FILE" in done.stderr


class Counted:
    """Stands for what counts lines."""

    def __init__(self) -> None:
        self.found: list[bytes | None] = []

    def add(self, line: bytes) -> None:
        self.found.append(line)

    def add_blank(self) -> None:
        self.found.append(b"")

    def add_too_long(self, most: int) -> None:
        assert most == MOST_LINE_BYTES
        self.found.append(None)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_lines_are_whole_whatever_the_chunks_are(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(traffic, "_CHUNK", chunk)
    monkeypatch.setattr(traffic, "MOST_LINE_BYTES", 10)
    monkeypatch.setattr("tests.cli.test_plan_traffic.MOST_LINE_BYTES", 10)
    log = b"one\n" + b"x" * 10 + b"\n\n" + b"y" * 11 + b"\n" + b"z" * 500 + b"\ntwo\nlast"
    counted = Counted()
    read_log(BytesIO(log), counted)  # type: ignore[arg-type]
    assert counted.found == [b"one", b"x" * 10, b"", None, None, b"two", b"last"]
    counted = Counted()
    read_log(BytesIO(b"z" * 500), counted)  # type: ignore[arg-type]
    assert counted.found == [None]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_how_far_it_is_shows_at_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "_CHUNK", 10)
    monkeypatch.setattr(traffic, "_PROGRESS_S", 0.0)
    log = tmp_path / "log"
    log.write_bytes(b"four\n" * 10)
    for shown, end in ((Terminal(), "100%"), (StringIO(), "")):
        monkeypatch.setattr("sys.stderr", shown)
        with log.open("rb") as file:
            read_log(file, Counted())  # type: ignore[arg-type]
        assert shown.getvalue().rstrip("\n\x1b[?25h ").endswith(end)
    assert shown.getvalue() == ""
    piped = Terminal()
    monkeypatch.setattr("sys.stderr", piped)
    read_log(BytesIO(log.read_bytes()), Counted())  # type: ignore[arg-type]
    assert piped.getvalue().rstrip("\n\x1b[?25h ").endswith("  10")


def test_what_is_remembered_is_bounded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MOST_CLASSES", 50)
    monkeypatch.setattr(replay, "MOST_GROUPS", 20)
    made: list[TrafficReplay] = []
    original = TrafficReplay.__init__

    def kept(self: TrafficReplay, *arguments: Any) -> None:
        original(self, *arguments)
        made.append(self)

    monkeypatch.setattr(TrafficReplay, "__init__", kept)
    lines = [line(listener=f"f{number}", host=f"h{number}.org", sni=f"{number}.org", tls="x") for number in range(500)]
    done = run("\n".join(lines), "--json")
    (only,) = made
    assert len(only._classes) <= 50
    found = json.loads(done.stdout)
    assert (found["unknown"], done.exit_code) == (500, 2)
    assert len(found["groups"]) == 21
    assert sum(each["requests"] for each in found["groups"]) == 500
    assert found["groups"][0]["before"] == "others"
