"""What ``plan`` prints."""

import json

import click
from click.testing import CliRunner, Result

from pyconfd.cli.commands.plan import Planned, print_plan
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.operations import AddServer, RemoveServer, UpdateCertificate
from pyconfd.model.plan import Noop, Reload, ReloadReason, RuntimeUpdate

REFUSED = (
    Refusal(
        ObjectRef("Service", "demo", "shop"), "annotation proto", "'smtp'", RefusalReason.INVALID_VALUE, "use http"
    ),
)


def printed(planned: Planned, *arguments: str, color: bool = False, **environ: str) -> Result:
    """Print a plan as the command does."""

    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def command(*, as_json: bool) -> None:
        raise SystemExit(print_plan(planned, as_json=as_json))

    return CliRunner(env=environ).invoke(command, arguments, color=color)


_RELOAD = Planned(
    Reload((ReloadReason.BINDS_CHANGED, ReloadReason.SERVERS_CHANGED), ("frontend a: bind :81 is new",)),
    "--- applied\n+++ rendered\n@@ -1 +1 @@\n-a\n+b\n c\n",
    REFUSED,
    ("the daemon would hold this change",),
)


def test_plan_without_changes() -> None:
    result = printed(Planned(Noop(), ""))
    assert result.exit_code == 0
    assert result.stdout.startswith("Nothing to do")


def test_plan_with_changes() -> None:
    result = printed(_RELOAD)
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
    report = Planned(RuntimeUpdate(_COMMANDS, ("backend be-shop: 1 server added",)), "--- a\n+++ b\n")
    result = printed(report)
    assert result.exit_code == 2
    assert result.stdout.splitlines() == [
        "A runtime update, no reload: be-shop +1 server, -1 server; shop.pem renewed",
        "  add server be-shop/s3 192.0.2.3:80 check",
        "  update certificate /c/shop.pem",
        "  remove server be-shop/s1 (192.0.2.1:80): drained, deleted when its last session has ended",
        "",
        "--- a",
        "+++ b",
    ]
    as_json = printed(report, "--json")
    assert as_json.exit_code == 2
    plan = json.loads(as_json.stdout)["plan"]
    assert (plan["kind"], plan["reasons"], plan["details"]) == ("live", [], ["backend be-shop: 1 server added"])
    assert plan["commands"][0] == "add server be-shop/s3 192.0.2.3:80 check"
    assert plan["commands"][-1] == "set server be-shop/s1 state drain"
    assert "secret" not in result.output + as_json.output


def test_plan_shows_many_commands_up_to_a_bound_and_all_as_json() -> None:
    commands = tuple(AddServer("b", f"s{number}", "192.0.2.3:80") for number in range(250))
    planned = Planned(RuntimeUpdate(commands), "")
    lines = printed(planned).stdout.splitlines()
    assert lines[-1] == "  and 150 more; --json has all"
    assert len(lines) == 102
    assert len(json.loads(printed(planned, "--json").stdout)["plan"]["commands"]) == 500


def test_plan_of_a_comment_changes_only_the_file() -> None:
    report = Planned(RuntimeUpdate((), ("comments, blanks or the order of sections",)), "+# a\n")
    result = printed(report)
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
    planned = Planned(reload, "")
    assert printed(planned).stdout.splitlines() == [
        "HAProxy would be reloaded: server renamed",
        "  backend a: 1 server changed",
        "What would avoid it:",
        "  name servers",
        "Without waiting for the reload: be-shop +1 server, -1 server; shop.pem renewed",
        "  add server be-shop/s3 192.0.2.3:80 check",
        "  update certificate /c/shop.pem",
        "  remove server be-shop/s1 (192.0.2.1:80): drained, deleted when its last session has ended",
    ]
    plan = json.loads(printed(planned, "--json").stdout)["plan"]
    assert plan["advice"] == ["name servers"]
    assert plan["commands"][0] == "add server be-shop/s3 192.0.2.3:80 check"


def test_plan_in_colour_where_it_can_be_seen() -> None:
    coloured = printed(_RELOAD, color=True).stdout
    assert "\033[32m+b\033[0m" in coloured
    assert "\033[31m-a\033[0m" in coloured
    assert "\033" not in printed(_RELOAD, color=True, NO_COLOR="1").stdout


def test_plan_as_json() -> None:
    result = printed(_RELOAD, "--json")
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
    nothing = printed(Planned(Noop(), ""), "--json")
    assert (nothing.exit_code, json.loads(nothing.stdout)["changes"]) == (0, False)
