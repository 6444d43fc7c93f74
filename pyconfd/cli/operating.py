"""The commands by which an operator takes over: ``server``, ``pause``, ``resume``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pyconfd.cli.calling import outside, settings_of, settings_to_look_with
from pyconfd.cli.choices import as_json as _json
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_text
from pyconfd.cli.program import CONTEXT_SETTINGS, SettingsCommand, teach
from pyconfd.model.plan import ServerState
from pyconfd.settings.setting import NotAcceptedError, accept
from pyconfd.settings.values import Duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyconfd.cli.reports import ServerRow

_EXITS = {
    Exit.OK: "done",
    Exit.FAILED: "there is no such server, or more than one",
    Exit.TEMPORARY: "HAProxy may not be changed by this user, does not answer, or the state directory is not writable",
    Exit.USAGE: "the command line is wrong",
    Exit.CONFIGURATION: "settings are wrong; all problems are listed",
}
_COLUMNS = ("server", "address", "state", "weight", "sessions", "")


class _Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        try:
            seconds: float = accept(Duration, value)
        except NotAcceptedError as error:
            self.fail(str(error), param, ctx)
        return seconds


_for = click.option(
    "--for", "for_s", type=_Duration(), metavar="TIME", help="How long: 90s, 30m, 2h. [default: until it is ended]"
)


@click.group(
    context_settings=CONTEXT_SETTINGS,
    short_help="Drain servers, or put them into maintenance.",
    help=teach(
        "Show HAProxy's servers, and set their state by hand. It takes effect at once, with or without the daemon, and"
        " the daemon keeps it through updates and reloads until its time is over or `ready` ends it. A state or weight"
        " that is set directly on HAProxy's socket is kept in the same way."
        "\n\nNAME is BACKEND/SERVER, or the name or address of a server where only one has it.",
        examples={
            "pyconfd server list": "state, weight, sessions, and what was set by hand",
            "pyconfd server drain be_shop/web-1 --for 30m": "nothing new for half an hour",
            "pyconfd server maint 10.0.0.5 --all": "every server at this address",
            "pyconfd server ready be_shop/web-1": "as the cluster says again",
        },
        exits=_EXITS,
    ),
)
def server() -> None:
    """Show servers and set their state by hand."""


def _setter(state: ServerState, short: str, what: str) -> click.Command:
    @click.argument("name", metavar="NAME")
    @_for
    @click.option("--all", "several", is_flag=True, help="All servers that NAME stands for.")
    @click.pass_context
    def command(ctx: click.Context, /, name: str, for_s: float | None, *, several: bool, **_: object) -> int:
        said = outside(ctx).app().set_servers(settings_of(ctx), name, state, for_s=for_s, several=several)
        print_text(said)
        return Exit.OK

    make: Callable[..., click.Command] = server.command(
        state.value,
        cls=SettingsCommand,
        short_help=short,
        help=teach(
            f"{what}\n\nNAME is BACKEND/SERVER, or the name or address of a server where only one has it.",
            examples={
                f"pyconfd server {state.value} be_shop/web-1": "",
                f"pyconfd server {state.value} 10.0.0.5 --all": "",
            },
            exits=_EXITS,
        ),
    )
    return make(command)


_setter(
    ServerState.DRAIN,
    "Send it nothing new; what is connected stays.",
    "Send a server no new sessions; what is connected stays, also who is bound to it by a cookie.",
)
_setter(ServerState.MAINT, "Take it out of service.", "Put a server into maintenance: no traffic, no health checks.")
_setter(
    ServerState.READY,
    "End what was set by hand.",
    "End what was set by hand on a server, by command or on the socket: state and weight are as the cluster says.",
)


@server.command(
    "list",
    cls=SettingsCommand,
    short_help="Show the servers.",
    help=teach(
        "Show the servers that HAProxy has: state, weight, connections in use, what was set by hand with its age and"
        " end, and which are on their way out. WANTED is a backend, or a server as the other commands take it.",
        examples={
            "pyconfd server list": "all",
            "pyconfd server list be_shop": "one backend",
            "pyconfd server list --by-hand": "",
        },
        exits=_EXITS,
    ),
)
@click.argument("wanted", metavar="[WANTED]", default="")
@click.option("--by-hand", is_flag=True, help="Only those that were set by hand, or are on their way out.")
@_json
@click.pass_context
def list_servers(ctx: click.Context, /, wanted: str, *, as_json: bool, by_hand: bool, **_: object) -> int:
    """Print the servers."""
    rows = outside(ctx).app().servers(settings_of(ctx), wanted)
    rows = tuple(row for row in rows if row.by_hand or row.leaving or not by_hand)
    if as_json:
        print_json([row.values for row in rows])
    elif rows:
        print_text("\n".join(_table(rows)))
    else:
        print_text("No server was set by hand or is on its way out." if by_hand else "HAProxy has no server.")
    return Exit.OK


def _table(rows: tuple[ServerRow, ...]) -> list[str]:
    cells = [_COLUMNS] + [
        (
            row.server,
            row.address,
            row.state,
            str(row.weight),
            str(row.sessions),
            "; ".join(words for words in (row.by_hand, row.leaving) if words),
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return [click.style(lines[0], bold=True), *lines[1:]]


@click.command(
    cls=SettingsCommand,
    short_help="Freeze all applying.",
    help=teach(
        "Freeze all applying: HAProxy serves on as it is, whatever the cluster and the fragments say, until `pyconfd"
        " resume` or until the time is over. It outlives a restart of pyconfd.",
        examples={
            "pyconfd pause --for 1h --reason 'moving racks'": "ends by itself",
            "pyconfd pause": "until pyconfd resume",
        },
        exits={**_EXITS, Exit.FAILED: "it did not work"},
    ),
)
@_for
@click.option("--reason", metavar="TEXT", default="", help="Why, for those who look at `pyconfd status`.")
@click.pass_context
def pause(ctx: click.Context, /, for_s: float | None, reason: str, **_: object) -> int:
    """Freeze applying."""
    print_text(outside(ctx).app().pause(settings_of(ctx), for_s=for_s, reason=reason))
    return Exit.OK


@click.command(
    cls=SettingsCommand,
    short_help="End a pause.",
    help=teach(
        "End what `pyconfd pause` began: what has changed meanwhile is applied at once.",
        examples={"pyconfd resume": ""},
        exits={**_EXITS, Exit.FAILED: "it did not work"},
    ),
)
@click.pass_context
def resume(ctx: click.Context, /, **_: object) -> int:
    """Let changes through again."""
    print_text(outside(ctx).app().resume(settings_of(ctx)))
    return Exit.OK


@click.command(
    cls=SettingsCommand,
    short_help="Let pyconfd replace a configuration that it did not write.",
    help=teach(
        "Where HAProxy serves a configuration that pyconfd did not write, the first start of pyconfd changes nothing,"
        " and `pyconfd plan` and `pyconfd status` name the frontends, binds and backends that would disappear. This"
        " command says that pyconfd may go on.\n\n"
        "With --copy they stay: the former configuration becomes the fragment 00-adopted.conf, yours to edit.",
        examples={"pyconfd adopt --copy": "keep what is served", "pyconfd adopt": "let it go"},
        exits={**_EXITS, Exit.FAILED: "with the copy, HAProxy would not load the fragments; nothing was changed"},
    ),
)
@click.option("--copy", is_flag=True, help="Keep what is served: as the fragment 00-adopted.conf.")
@click.pass_context
def adopt(ctx: click.Context, /, *, copy: bool, **_: object) -> int:
    """Let pyconfd go on."""
    print_text(outside(ctx).app().adopt(settings_of(ctx), copy=copy))
    return Exit.OK


@click.command(
    cls=SettingsCommand,
    short_help="Have the daemon read its settings again.",
    help=teach(
        "Have the daemon read its settings again, and wait until it has: what `systemctl reload pyconfd` runs. Settings"
        " that it refuses are told, and it goes on with the former ones.",
        examples={"pyconfd reload": "", "systemctl reload pyconfd": "the same as a user who may not signal it"},
        exits={
            Exit.OK: "the settings are in force",
            Exit.FAILED: "no daemon runs",
            Exit.TEMPORARY: "it may not be told, or says nothing in time",
            Exit.USAGE: "the command line is wrong",
            Exit.CONFIGURATION: "the settings are refused; the former ones are still in force",
        },
    ),
)
@click.option(
    "--pid", type=click.IntRange(min=1), default=None, metavar="PID", help="The daemon. [default: it is asked]"
)
@click.pass_context
def reload(ctx: click.Context, /, pid: int | None, **_: object) -> int:
    """Reload the settings."""
    settings, _wrong = settings_to_look_with(ctx)
    print_text(outside(ctx).app().reload(settings, pid or 0))
    return Exit.OK


COMMANDS: tuple[click.Command, ...] = (server, pause, resume, adopt, reload)
