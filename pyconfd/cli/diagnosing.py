"""The commands that say what is the matter: ``explain`` with what runs, ``preflight`` before anything does."""

from collections.abc import Iterable

import click

from pyconfd.cli.calling import outside, settings_of
from pyconfd.cli.choices import as_json as _json
from pyconfd.cli.choices import snapshot
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_text
from pyconfd.cli.program import SettingsCommand, teach
from pyconfd.cli.reports import Finding


@click.command(
    cls=SettingsCommand,
    short_help="Say what became of a service, and why.",
    help=teach(
        "Say in plain words what became of something: where it comes from, by which servers it is served and how these"
        " are, or why it is not (refused, held, lost its name, not ready), since when, and what to do."
        "\n\nNAME is a service (web, shop/web), a domain, a pod, an address, a backend, a server (BACKEND/SERVER) or a"
        " line (haproxy.cfg:123, line 123). A word before it (service, domain, pod, address, backend, server) takes"
        " only that kind. The daemon is asked; where none answers, the cluster is read anew.",
        examples={
            "pyconfd explain shop.example.com": "a domain, also one that a wildcard covers",
            "pyconfd explain shop/web": "a Service",
            "pyconfd explain pod web-6d5f-x2k": "only a pod of this name",
            "pyconfd explain haproxy.cfg:123": "fragment, template line and object behind a line",
            "pyconfd explain --all-refused": "everything that is refused, and since when",
        },
        exits={
            Exit.OK: "it was explained",
            Exit.FAILED: "nothing has this name, or several things have it (they are listed)",
            Exit.TEMPORARY: "neither a daemon nor the cluster answers",
            Exit.USAGE: "the command line is wrong",
            Exit.CONFIGURATION: "settings are wrong; all problems are listed",
        },
    ),
)
@click.argument("name", nargs=-1, metavar="NAME")
@click.option("--all-refused", is_flag=True, help="Everything that is refused, the newest first.")
@snapshot("Ask nobody: explain what `kubectl get ... -o yaml|json` or `pyconfd record` wrote; may be repeated.")
@_json
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    name: tuple[str, ...],
    snapshots: tuple[str, ...],
    *,
    as_json: bool,
    all_refused: bool,
    **_: object,
) -> int:
    """Explain something."""
    query = " ".join(name).strip()
    if bool(query) == all_refused:
        raise click.UsageError("give either a NAME or --all-refused", ctx)
    explained = outside(ctx).app().explain(settings_of(ctx), query, snapshots)
    if as_json:
        print_json(explained.values)
    else:
        print_text(explained.text, newline=False)
    return Exit.OK if explained.found else Exit.FAILED


_COLOURS = {"ok": "green", "warning": "yellow", "failure": "red"}


@click.command(
    cls=SettingsCommand,
    short_help="Look at everything that the daemon needs.",
    help=teach(
        "Look at everything that the daemon needs, before it is started or beside it; nothing is changed. HAProxy, its"
        " sockets and the way to reload it, directories, fragments (rendered for an empty cluster and for the real one,"
        " and checked by HAProxy), each API server and each permission there, certificates, limits, the clock. Each"
        " line is ok, a warning or a failure, with what to do. Run it as the user that pyconfd runs as.",
        examples={
            "sudo -u pyconfd -- pyconfd preflight": "as the service",
            "pyconfd preflight --strict": "warnings count as failures",
            "pyconfd preflight --json": "for programs",
        },
        exits={
            Exit.OK: "nothing is in the way; there may be warnings",
            Exit.FAILED: "there are failures, or with --strict warnings",
            Exit.USAGE: "the command line is wrong",
            Exit.CONFIGURATION: "settings are wrong; all problems are listed",
        },
    ),
)
@click.option("--strict", is_flag=True, help="End as with failures where there are warnings.")
@_json
@click.pass_context
def preflight(ctx: click.Context, /, *, as_json: bool, strict: bool, **_: object) -> int:
    """Look at everything."""
    return report(outside(ctx).app().preflight(settings_of(ctx)), as_json=as_json, strict=strict)


def report(findings: Iterable[Finding], *, as_json: bool, strict: bool) -> int:
    """Print findings as they come; give the exit code, with ``strict`` that of failures for warnings too."""
    counts = dict.fromkeys(_COLOURS, 0)
    found = []
    for finding in findings:
        counts[finding.level] += 1
        if as_json:
            found.append({name: str(getattr(finding, name)) for name in _FIELDS})
            continue
        label = click.style(f"{finding.level:<7}", fg=_COLOURS[finding.level])
        print_text(f"{label}  {finding.topic:<12} {finding.what}: {finding.message}")
        if finding.remedy:
            print_text(f"{'':<9}{'':<13}-> {finding.remedy}")
    bad = counts["failure"] > 0 or (strict and counts["warning"] > 0)
    if as_json:
        print_json({"passed": not bad, **counts, "findings": found})
    else:
        print_text(
            ", ".join([f"{counts['ok']} ok", *(_counted(counts[level], level) for level in ("warning", "failure"))])
        )
    return Exit.FAILED if bad else Exit.OK


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


_FIELDS = ("level", "topic", "what", "message", "remedy")

COMMANDS: tuple[click.Command, ...] = (explain, preflight)
