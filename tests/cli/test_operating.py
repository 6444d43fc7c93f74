"""``server``, ``pause``, ``resume``, with a fake application."""

import json

import pytest

from pyconfd.model.plan import ServerState
from tests.cli.application import FakeApp, ServerRow, invoke


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("server", "drain", "b/a"), ("b/a", ServerState.DRAIN, None, False)),
        (("server", "drain", "b/a", "--for", "30m"), ("b/a", ServerState.DRAIN, 1800.0, False)),
        (("server", "maint", "--for", "2h", "10.0.0.1", "--all"), ("10.0.0.1", ServerState.MAINT, 7200.0, True)),
        (("server", "ready", "b/a", "--for", "90s"), ("b/a", ServerState.READY, 90.0, False)),
    ],
)
def test_the_state_of_a_server_is_passed_on(arguments: tuple[str, ...], asked: tuple[object, ...]) -> None:
    app = FakeApp()
    result = invoke(*arguments, app=app)
    assert (result.exit_code, result.stdout) == (0, f"{asked[0]} is {asked[1]}\n")
    [(name, _, passed)] = app.calls
    assert (name, passed) == ("set_servers", asked)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("server", "drain"), "Missing argument 'NAME'"),
        (("server", "drain", "b/a", "--for", "soon"), "seconds above 0"),
        (("server", "drain", "b/a", "--for", "0"), "seconds above 0"),
        (("server", "drain", "b/a", "--for", "-5m"), "seconds above 0"),
        (("server", "drian", "b/a"), "drain"),
        (("pause", "--for", "inf"), "seconds above 0"),
    ],
)
def test_a_wrong_command_line_changes_nothing(arguments: tuple[str, ...], said: str) -> None:
    app = FakeApp()
    result = invoke(*arguments, app=app)
    assert result.exit_code == 64
    assert said in result.stderr
    assert app.calls == []


def test_the_settings_are_options_of_these_commands_too() -> None:
    app = FakeApp()
    assert invoke("server", "drain", "b/a", "--state-dir", "/s", app=app).exit_code == 0
    assert invoke("pause", "--state-dir", "/s", app=app).exit_code == 0
    assert [settings.state_dir for _, settings, _ in app.calls] == ["/s", "/s"]


ROWS = (
    ServerRow("shop/a"),
    ServerRow("shop/longer", "drain", "drain for 5 m (by command)"),
    ServerRow("x/y", leaving="leaving"),
)


def test_servers_are_listed_under_each_other() -> None:
    app = FakeApp(rows=ROWS)
    assert invoke("server", "list", "shop", app=app).stdout.splitlines() == [
        "server       address      state  weight  sessions",
        "shop/a       10.0.0.1:80  up     1       12",
        "shop/longer  10.0.0.1:80  drain  1       12        drain for 5 m (by command)",
        "x/y          10.0.0.1:80  up     1       12        leaving",
    ]
    assert app.calls[0][2] == ("shop",)


def test_only_what_was_set_by_hand_or_leaves() -> None:
    lines = invoke("server", "list", "--by-hand", app=FakeApp(rows=ROWS)).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["shop/longer", "x/y"]
    assert "No server was set by hand" in invoke("server", "list", "--by-hand", app=FakeApp(rows=ROWS[:1])).stdout
    assert invoke("server", "list", app=FakeApp()).stdout == "HAProxy has no server.\n"


def test_servers_for_programs() -> None:
    listed = json.loads(invoke("server", "list", "--json", app=FakeApp(rows=ROWS)).stdout)
    assert listed == [dict(row.values) for row in ROWS]


def test_pause_and_resume_pass_their_arguments_on() -> None:
    app = FakeApp()
    assert invoke("pause", "--for", "1h", "--reason", "moving racks", app=app).stdout == "Nothing is applied.\n"
    assert invoke("pause", app=app).exit_code == 0
    assert invoke("resume", app=app).stdout == "Changes are applied again.\n"
    assert [(name, arguments) for name, _, arguments in app.calls] == [
        ("pause", (3600.0, "moving racks")),
        ("pause", (None, "")),
        ("resume", ()),
    ]


def test_adopt_passes_its_option_on() -> None:
    app = FakeApp()
    assert invoke("adopt", "--copy", app=app).stdout == "pyconfd goes on.\n"
    assert invoke("adopt", app=app).exit_code == 0
    assert [(name, arguments) for name, _, arguments in app.calls] == [("adopt", (True,)), ("adopt", (False,))]


def test_reload_passes_the_process_on() -> None:
    app = FakeApp()
    assert invoke("reload", app=app).exit_code == 0
    assert invoke("reload", "--pid", "42", app=app).exit_code == 0
    assert [(name, arguments) for name, _, arguments in app.calls] == [("reload", (0,)), ("reload", (42,))]


@pytest.mark.parametrize("name", ["drain", "maint", "ready", "list"])
def test_each_subcommand_teaches(name: str) -> None:
    text = invoke("server", name, "--help").stdout
    assert "Examples:" in text
    assert "Exit codes:" in text
    assert f"pyconfd server {name}" in text
