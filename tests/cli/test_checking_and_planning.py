"""What ``check`` and ``plan`` print."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyconfd.cli.application import Outside
from pyconfd.cli.main import cli
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.plan import AddServer, Reload, ReloadReason, RemoveServer, RuntimeUpdate, UpdateCertificate
from tests.cli.application import REFUSED, CheckReport, FakeApp, PlanReport, invoke


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    (tmp_path / "s.yaml").write_text("kind: List\n")
    return str(tmp_path / "s.yaml")


def test_check_says_who_judged_and_what_was_left_out(snapshot: str) -> None:
    app = FakeApp()
    result = invoke("check", "--snapshot", snapshot, app=app)
    assert (result.exit_code, result.stdout) == (0, "The configuration is good: HAProxy 2.6.12 accepts it.\n")
    assert app.calls[0][2] == (snapshot,)
    assert "demo/shop" in result.stderr


@pytest.mark.parametrize("reason", [RefusalReason.QUARANTINED, RefusalReason.BAD_TEMPLATE])
def test_check_ends_with_4_where_something_would_go_into_quarantine(reason: RefusalReason) -> None:
    spoilt = Refusal(ObjectRef("Service", "demo", "bad"), "", "", reason, "balance only supports ...")
    result = invoke("check", app=FakeApp(check_report=CheckReport(refused=(*REFUSED, spoilt))))
    assert (result.exit_code, result.stdout) == (
        4,
        "The configuration is good only without Service demo/bad: HAProxy 2.6.12 accepts the rest.\n",
    )
    assert "balance only supports" in result.stderr


_RELOAD = PlanReport(
    Reload((ReloadReason.BINDS_CHANGED, ReloadReason.SERVERS_CHANGED), ("frontend a: bind :81 is new",)),
    "--- applied\n+++ rendered\n@@ -1 +1 @@\n-a\n+b\n c\n",
    REFUSED,
    ("the daemon would hold this change",),
)


def test_plan_without_changes() -> None:
    result = invoke("plan")
    assert result.exit_code == 0
    assert result.stdout.startswith("Nothing to do")


def test_plan_with_changes() -> None:
    result = invoke("plan", app=FakeApp(plan_report=_RELOAD))
    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        "HAProxy would be reloaded: binds changed, servers changed",
        "  frontend a: bind :81 is new",
        "",
        *_RELOAD.diff.splitlines(),
    ]
    assert "demo/shop" in result.stderr
    assert "note: the daemon would hold this change" in result.stderr


_COMMANDS = (
    AddServer("be-shop", "s3", "192.0.2.3:80", ("check",)),
    UpdateCertificate("/c/shop.pem", "-----BEGIN PRIVATE KEY-----\nsecret\n"),
    RemoveServer("be-shop", "s1", "192.0.2.1:80"),
)


def test_plan_shows_what_goes_live() -> None:
    report = PlanReport(RuntimeUpdate(_COMMANDS, ("backend be-shop: 1 server added",)), "--- a\n+++ b\n")
    result = invoke("plan", app=FakeApp(plan_report=report))
    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        "HAProxy would be changed while it runs, no reload: 1 server added, 1 certificate updated, 1 server removed",
        "  add server be-shop/s3 192.0.2.3:80 check",
        "  update certificate /c/shop.pem",
        "  remove server be-shop/s1 (192.0.2.1:80): drained, deleted when its last session has ended",
        "",
        "--- a",
        "+++ b",
    ]
    as_json = invoke("plan", "--json", app=FakeApp(plan_report=report))
    assert as_json.exit_code == 2
    plan = json.loads(as_json.stdout)["plan"]
    assert (plan["kind"], plan["reasons"], plan["details"]) == ("live", [], ["backend be-shop: 1 server added"])
    assert plan["commands"][0] == "add server be-shop/s3 192.0.2.3:80 check"
    assert plan["commands"][-1] == "set server be-shop/s1 state drain"
    assert "secret" not in result.output + as_json.output


def test_plan_shows_many_commands_up_to_a_bound_and_all_as_json() -> None:
    commands = tuple(AddServer("b", f"s{number}", "192.0.2.3:80") for number in range(250))
    app = FakeApp(plan_report=PlanReport(RuntimeUpdate(commands)))
    lines = invoke("plan", app=app).stdout.splitlines()
    assert lines[-1] == "  and 150 more; --json has all"
    assert len(lines) == 102
    assert len(json.loads(invoke("plan", "--json", app=app).stdout)["plan"]["commands"]) == 500


def test_plan_of_a_comment_changes_only_the_file() -> None:
    report = PlanReport(RuntimeUpdate((), ("comments, blanks or the order of sections",)), "+# a\n")
    result = invoke("plan", app=FakeApp(plan_report=report))
    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        "Only the file would change, HAProxy would stay as it is:",
        "  comments, blanks or the order of sections",
        "",
        "+# a",
    ]


def test_plan_says_what_would_avoid_a_reload_and_what_does_not_wait_for_it() -> None:
    reload = Reload(
        (ReloadReason.SERVER_RENAMED,), ("backend a: 1 server changed",), ("name servers",), RuntimeUpdate(_COMMANDS)
    )
    app = FakeApp(plan_report=PlanReport(reload))
    assert invoke("plan", app=app).stdout.splitlines() == [
        "HAProxy would be reloaded: server renamed",
        "  backend a: 1 server changed",
        "What would avoid it:",
        "  name servers",
        "Without waiting for the reload: 1 server added, 1 certificate updated, 1 server removed",
        "  add server be-shop/s3 192.0.2.3:80 check",
        "  update certificate /c/shop.pem",
        "  remove server be-shop/s1 (192.0.2.1:80): drained, deleted when its last session has ended",
    ]
    plan = json.loads(invoke("plan", "--json", app=app).stdout)["plan"]
    assert plan["advice"] == ["name servers"]
    assert plan["commands"][0] == "add server be-shop/s3 192.0.2.3:80 check"


def test_plan_in_colour_where_it_can_be_seen() -> None:
    app = FakeApp(plan_report=_RELOAD)
    result = CliRunner().invoke(cli, ["plan"], obj=Outside(lambda: app, {}, lambda _: ""), color=True)
    assert "\033[32m+b\033[0m" in result.stdout
    assert "\033[31m-a\033[0m" in result.stdout
    plain = CliRunner(env={"NO_COLOR": "1"}).invoke(
        cli, ["plan"], obj=Outside(lambda: app, {}, lambda _: ""), color=True
    )
    assert "\033" not in plain.stdout


def test_plan_as_json() -> None:
    result = invoke("plan", "--json", app=FakeApp(plan_report=_RELOAD))
    assert result.exit_code == 2
    document = json.loads(result.stdout)
    assert document["changes"] is True
    assert document["plan"] == {
        "kind": "reload",
        "reasons": ["binds_changed", "servers_changed"],
        "details": ["frontend a: bind :81 is new"],
        "advice": [],
        "commands": [],
    }
    assert document["diff"] == _RELOAD.diff
    assert document["notes"] == ["the daemon would hold this change"]
    assert document["refused"][0]["object"] == "Service demo/shop"
    nothing = invoke("plan", "--json")
    assert (nothing.exit_code, json.loads(nothing.stdout)["changes"]) == (0, False)
