"""The command for the day before an upgrade: ``upgrade-check``."""

import click

from pyconfd.cli.calling import outside, resolved
from pyconfd.cli.choices import as_json as _json
from pyconfd.cli.choices import snapshot
from pyconfd.cli.diagnosing import report
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_notes
from pyconfd.cli.program import SettingsCommand, teach


@click.command(
    "upgrade-check",
    cls=SettingsCommand,
    short_help="Try a new haproxy or pyconfd before installing it.",
    help=teach(
        "Say what a new haproxy or a new pyconfd would make of what is there, before it is installed; nothing is"
        " changed. The new haproxy judges the installed configuration, the one that a boot without API servers would"
        " serve, and the one that the cluster gives now, and what it warns of for the first time is told. The new"
        " pyconfd loads the settings and the kept generations, and plans its first configuration. Run it as the user"
        " that pyconfd runs as.",
        examples={
            "pyconfd upgrade-check --new-haproxy /tmp/haproxy-3.2/usr/sbin/haproxy": "unpacked with dpkg-deb -x",
            "pyconfd upgrade-check --new-pyconfd /tmp/new/bin/pyconfd": "in a virtual environment of its own",
            "pyconfd upgrade-check --new-haproxy PATH --strict": "warnings count as failures",
        },
        exits={
            Exit.OK: "nothing is in the way; there may be warnings",
            Exit.FAILED: "there are failures, or with --strict warnings: do not move",
            Exit.USAGE: "the command line is wrong",
            Exit.CONFIGURATION: "settings are wrong; all problems are listed",
        },
    ),
)
@click.option("--new-haproxy", metavar="PATH", default="", help="The new haproxy's program.")
@click.option("--new-pyconfd", metavar="PATH", default="", help="The new pyconfd's program.")
@snapshot("Render what `pyconfd record` or kubectl wrote, in place of the cluster; may be repeated.")
@click.option("--strict", is_flag=True, help="End as with failures where there are warnings.")
@_json
@click.pass_context
def upgrade_check(
    ctx: click.Context,
    /,
    new_haproxy: str,
    new_pyconfd: str,
    snapshots: tuple[str, ...],
    *,
    as_json: bool,
    strict: bool,
    **_: object,
) -> int:
    """Try what is new."""
    if not new_haproxy and not new_pyconfd:
        raise click.UsageError("give --new-haproxy PATH, --new-pyconfd PATH, or both", ctx)
    found = resolved(ctx)
    print_notes(found.notes)
    findings = outside(ctx).app().upgrade_check(found, new_haproxy, new_pyconfd, snapshots)
    return report(findings, as_json=as_json, strict=strict)


COMMANDS: tuple[click.Command, ...] = (upgrade_check,)
