"""explain and preflight: what they pass on, print and end with."""

import json

import pytest

from pyconfd.errors import Problem, TransientError
from pyconfd.model.preflight import Finding, Level
from tests.cli.application import Explained, FakeApp, invoke

OK = Finding.ok("haproxy", "/usr/sbin/haproxy", "version 2.6")
WARNING = Finding(Level.WARNING, "limits", "open files", "few", "raise LimitNOFILE")
FAILURE = Finding(Level.FAILURE, "permissions", "services", "may not watch", "add the verb watch")


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        (("web",), "web"),
        (("service", "shop/web"), "service shop/web"),
        (("line", "12"), "line 12"),
        (("--all-refused",), ""),
    ],
)
def test_the_words_of_a_question_are_passed_on(arguments: tuple[str, ...], query: str) -> None:
    app = FakeApp()
    result = invoke("explain", *arguments, app=app)
    assert (result.exit_code, result.stdout) == (0, app.explained.text)
    ((name, _, passed),) = app.calls
    assert (name, passed) == ("explain", (query,))


def test_a_question_is_a_name_or_everything_refused_and_not_both() -> None:
    for arguments in ((), ("web", "--all-refused"), (" ",)):
        app = FakeApp()
        assert invoke("explain", *arguments, app=app).exit_code == 64
        assert app.calls == []


def test_an_explanation_for_programs_and_one_that_was_not_found() -> None:
    app = FakeApp(explained=Explained("Nothing is called 'x'.\n", {"query": "x"}, found=False))
    result = invoke("explain", "x", "--json", app=app)
    assert (result.exit_code, json.loads(result.stdout)) == (1, {"query": "x"})
    assert invoke("explain", "x", app=app).exit_code == 1


def test_neither_a_daemon_nor_a_cluster() -> None:
    assert invoke("explain", "x", app=FakeApp(fails=TransientError(Problem("a", "no answer")))).exit_code == 75


@pytest.mark.parametrize(
    ("findings", "arguments", "code"),
    [
        ((OK,), (), 0),
        ((OK, WARNING), (), 0),
        ((OK, WARNING), ("--strict",), 1),
        ((OK, FAILURE), (), 1),
    ],
)
def test_the_exit_code_of_a_look(findings: tuple[Finding, ...], arguments: tuple[str, ...], code: int) -> None:
    app = FakeApp(findings=findings)
    assert invoke("preflight", *arguments, app=app).exit_code == code
    told = json.loads(invoke("preflight", "--json", *arguments, app=app).stdout)
    assert told["passed"] is (code == 0)
    assert [each["level"] for each in told["findings"]] == [each.level.value for each in findings]


def test_each_finding_is_a_line_with_what_to_do_below() -> None:
    result = invoke("preflight", app=FakeApp(findings=(OK, WARNING, FAILURE)))
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")][:3] == ["ok", "warning", "failure"]
    assert "-> raise LimitNOFILE" in result.stdout
    assert lines[-1] == "1 ok, 1 warning, 1 failure"


def test_what_is_new_is_passed_on_and_something_has_to_be_named() -> None:
    app = FakeApp(findings=(OK, WARNING))
    assert invoke("upgrade-check", "--new-haproxy", "/new/haproxy", app=app).exit_code == 0
    assert invoke("upgrade-check", "--new-pyconfd", "/new/pyconfd", "--strict", app=app).exit_code == 1
    assert [call[0] for call in app.calls] == ["upgrade_check", "upgrade_check"]
    assert invoke("upgrade-check", app=app).exit_code == 64
