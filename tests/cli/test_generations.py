"""``history``, ``diff``, ``rollback``, ``unpin``, with a fake application."""

import json

import pytest

from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.haproxy.difference import Difference, ServiceChange
from pyconfd.model.basis import Edit
from tests.cli.application import DiffReport, FakeApp, HistoryRow, invoke


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("history",), ("history", (20,))),
        (("history", "--all"), ("history", (0,))),
        (("diff",), ("diff", (None, None))),
        (("diff", "3"), ("diff", (3, None))),
        (("diff", "3", "4"), ("diff", (3, 4))),
        (("rollback",), ("rollback", (None, ""))),
        (("rollback", "3", "--reason", "x"), ("rollback", (3, "x"))),
        (("unpin",), ("unpin", ())),
    ],
)
def test_what_is_asked_is_passed_on(arguments: tuple[str, ...], asked: tuple[str, tuple[object, ...]]) -> None:
    app = FakeApp()
    assert invoke(*arguments, app=app).exit_code == 0
    [(name, _, passed)] = app.calls
    assert (name, passed) == asked


def test_the_history_is_a_table_with_what_changed_in_words() -> None:
    rows = (
        HistoryRow(),
        HistoryRow(7, reasons=(), edits=(), difference=None, how="live", serving=False, pinned=True, since=0),
    )
    lines = invoke("history", app=FakeApp(generations=rows)).stdout.splitlines()
    assert lines[0].split() == ["number", "applied", "digest", "how", "what", "changed"]
    assert lines[1].startswith("*  42")
    assert "3f9c2b1a  reload (binds_changed)  fragment 02-http.tmpl edited (+1 -0 lines); backend be-shop" in lines[1]
    assert lines[1].endswith("and 1 more")
    assert lines[2].startswith("p  7")
    assert "live" in lines[2]
    assert lines[2].endswith("nothing before it is kept")
    assert "No generation" in invoke("history").stdout


def test_the_history_for_programs_has_all_of_it() -> None:
    (row,) = json.loads(invoke("history", "--json", app=FakeApp(generations=(HistoryRow(),))).stdout)
    assert (row["number"], row["how"], row["reasons"], row["serving"]) == (42, "reload", ["binds_changed"], True)
    assert row["edits"][0] == {
        "kind": "fragment",
        "name": "02-http.tmpl",
        "what": "edited",
        "lines_added": 1,
        "lines_removed": 0,
    }
    assert (row["difference"]["added"], row["difference"]["removed"]) == ({"backend be-shop": 1}, {"backend be-web": 2})


DIFFERS = DiffReport(
    edits=(Edit("fragment", "a", "edited", 1),),
    difference=Difference({"backend b": 2}, {}, (ServiceChange("backend c", ("s1",)),), (), ()),
    sentences=("fragment a edited (+1 -0 lines)", "backend b added, 2 servers"),
    text="--- generation 41\n+++ generation 42\n+backend b\n",
)


def test_a_diff_is_words_and_text() -> None:
    done = invoke("diff", app=FakeApp(diff_report=DIFFERS))
    assert done.exit_code == 2
    assert (
        "From generation 41 to 42:\n  fragment a edited (+1 -0 lines)\n  backend b added, 2 servers\n\n" in done.stdout
    )
    assert done.stdout.endswith("+backend b\n")
    assert invoke("diff").exit_code == 0
    hidden = invoke("diff", app=FakeApp(diff_report=DiffReport(notes=("only in what is hidden",))))
    assert (hidden.exit_code, "only in what is hidden" in hidden.stderr) == (2, True)


def test_a_diff_for_programs() -> None:
    found = json.loads(invoke("diff", "--json", app=FakeApp(diff_report=DIFFERS)).stdout)
    assert (found["from"], found["to"], found["added"]) == (41, 42, {"backend b": 2})
    assert found["changed"][0]["added"] == ["s1"]
    assert [edit["name"] for edit in found["edits"]] == ["a"]
    assert found["text"] == DIFFERS.text


def test_a_rollback_says_what_serves() -> None:
    assert invoke("rollback").stdout == "Pinned to generation 41.\n"
    found = json.loads(invoke("rollback", "--json").stdout)
    assert found == {"said": "Pinned to generation 41.", "pinned": 41, "serving": 43}
    assert json.loads(invoke("unpin", "--json").stdout)["pinned"] is None


@pytest.mark.parametrize(
    ("error", "code"), [(RejectedInput(Problem("x", "none")), 1), (TransientError(Problem("x", "not yet")), 75)]
)
@pytest.mark.parametrize("command", ["history", "diff", "rollback", "unpin"])
def test_failures_have_their_codes(command: str, error: Exception, code: int) -> None:
    assert invoke(command, app=FakeApp(fails=error)).exit_code == code


@pytest.mark.parametrize("arguments", [("diff", "x"), ("rollback", "x"), ("rollback", "1", "2"), ("history", "1")])
def test_a_wrong_command_line_changes_nothing(arguments: tuple[str, ...]) -> None:
    app = FakeApp()
    assert invoke(*arguments, app=app).exit_code == 64
    assert app.calls == []
