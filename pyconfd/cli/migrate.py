"""The command ``pyconfd migrate``."""

import click

from pyconfd.cli.exits import Exit
from pyconfd.cli.program import CONTEXT_SETTINGS, teach

SYSTEMS = ("python-confd", "kube2lb", "haproxy-kubefigurator", "kubernetes-haproxy", "ads-infra-haproxy")
"""What ``migrate`` knows; :class:`pyconfd.migrate.report.System` has the same."""


@click.command(
    context_settings=CONTEXT_SETTINGS,
    short_help="Turn a predecessor's files into pyconfd's.",
    help=teach(
        "Turn the files of a predecessor into pyconfd's: Go templates into Jinja that renders the same, directives that"
        " HAProxy removed into their successors, environment files, units, command lines and manifests into"
        " pyconfd.toml, keepalived.conf into a proposal for [vip]."
        "\n\nWhat became of each line goes to standard error. What could not be translated is named there by its line,"
        " and left marked in the output."
        f"\n\nSYSTEM is one of {', '.join(SYSTEMS)}.",
        examples={
            "pyconfd migrate kube2lb haproxy.tpl run.sh": "print what they become",
            "pyconfd migrate kube2lb haproxy.tpl --output-dir new": "write it to a directory",
            "pyconfd migrate python-confd pyconfd.env 02-http.tmpl": "variables become pyconfd.toml",
            "pyconfd migrate python-confd keepalived.conf": "a commented-out [vip]",
        },
        exits={
            Exit.OK: "everything was translated",
            Exit.FAILED: "something could not be translated; it is named",
            Exit.USAGE: "the command line is wrong",
            Exit.CONFIGURATION: "a file cannot be read or written, or is there already",
        },
    ),
)
@click.argument("system", type=click.Choice([*SYSTEMS]), metavar="SYSTEM")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False))
@click.option("--output-dir", metavar="DIR", type=click.Path(file_okay=False), help="Write the files there.")
@click.option("--force", is_flag=True, help="Overwrite files that are there already.")
def migrate(system: str, files: tuple[str, ...], output_dir: str | None, *, force: bool) -> int:
    """Migrate a predecessor's files."""
    from pyconfd.cli.migrating import migrate_files  # noqa: PLC0415 - Jinja and YAML, which no other command needs

    return migrate_files(system, files, output_dir, force=force)
