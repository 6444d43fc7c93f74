"""``pyconfd status``: what the daemon does, or what it left behind."""

import sys
import time

import msgspec

from pyconfd.cli.command import CommandContext, command, exit_of_report, json_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_text
from pyconfd.status import document
from pyconfd.status.document import read_report
from pyconfd.status.text import render_text
from pyconfd.vip.output import written_report
from pyconfd.vip.report import floating_lines


@command(
    examples={"pyconfd status": "", "watch pyconfd status": ""},
    exits={
        Exit.OK: "it serves, and all is fresh",
        Exit.FAILED: "it runs with a problem, or would not start again with the settings as they are",
        Exit.NOT_RUNNING: "no daemon answers",
    },
)
@json_option
def status(context: CommandContext, *, as_json: bool) -> int:
    """Show what the daemon does.

    What it applied and when, how old the cluster's data is, which API servers answer, what was refused, and who holds
    the floating addresses of `[vip]`. If no daemon answers it says so, and shows old values as old. Where the settings
    file cannot be used, the reason is printed and the daemon is looked for in the usual places.
    """
    settings, wrong = context.settings_or_defaults()
    report = read_report(settings)
    has_vip = bool(settings.vip.interface)
    vip = written_report(settings.vip) if has_vip else {}
    if as_json:
        values = msgspec.json.decode(document.encode(report.status)) if report.status else None
        shown = ("addresses", "holds", "role", "role_since", "holder", "faults", "alarms")
        floating = [{key: router[key] for key in shown} for router in vip.get("routers", ())]
        print_json({"alive": report.running, "status": values} | ({"floating": floating} if has_vip else {}))
    else:
        lines = tuple(floating_lines(vip, time.time())) if has_vip else ()
        print_text(render_text(report, colour=sys.stdout.isatty(), floating=lines), newline=False)
    return exit_of_report(report.exit_code, alive=report.running, wrong=wrong)
