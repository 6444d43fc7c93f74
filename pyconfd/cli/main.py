"""The commands: each turns its arguments into one call of the application and prints what comes back."""

import difflib
import io
import sys
from typing import NoReturn

import click

from pyconfd import __version__
from pyconfd.cli import (
    diagnosing,
    floating,
    generations,
    naming,
    operating,
    sharing,
    testing,
    trying,
    upgrading,
    watching,
)
from pyconfd.cli.calling import exit_of_look, settings_for_permissions, settings_to_look_with
from pyconfd.cli.calling import outside as _outside
from pyconfd.cli.calling import resolved as _resolved
from pyconfd.cli.calling import settings_of as _settings
from pyconfd.cli.choices import as_json as _json
from pyconfd.cli.choices import snapshot
from pyconfd.cli.completing import completion
from pyconfd.cli.exits import Exit
from pyconfd.cli.fragments import copy_fragments
from pyconfd.cli.migrate import migrate
from pyconfd.cli.output import (
    print_configuration,
    print_files,
    print_json,
    print_notes,
    print_plan,
    print_refused,
    print_text,
    refused_as_json,
)
from pyconfd.cli.program import CONTEXT_SETTINGS, Program, teach
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.model.preset import PresetName
from pyconfd.settings import show

_USAGE = {Exit.USAGE: "the command line is wrong", Exit.CONFIGURATION: "settings are wrong; all problems are listed"}
_TEMPORARY = "something is away: an API server, a directory, a program; try again when it is back"
_CLUSTER = {Exit.TEMPORARY: _TEMPORARY, **_USAGE}

_snapshot = snapshot(
    "Read objects from what `kubectl get ... -o yaml|json` or `pyconfd record` wrote, and not from the cluster; - is"
    " the standard input; may be repeated."
)


def _run(ctx: click.Context) -> int:
    resolved = _resolved(ctx)
    return _outside(ctx).app().run(resolved)


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings=CONTEXT_SETTINGS,
    help=teach(
        "Keep HAProxy in step with a Kubernetes cluster: watch services, render your fragments into haproxy.cfg,"
        " check it, apply it without losing a connection.\n\nWithout a command pyconfd runs as the daemon.",
        examples={
            "pyconfd --api-servers https://10.31.12.49:6443": "run, as python-confd was called",
            "pyconfd plan --config /etc/pyconfd/pyconfd.toml": "what would change, and how",
            "pyconfd status": "what the daemon does",
            "pyconfd settings": "every setting and where it comes from",
        },
        exits={
            Exit.OK: "done",
            Exit.FAILED: "it did not work; what served still serves",
            Exit.USAGE: "the command line is wrong",
            Exit.BUG: "a bug in pyconfd",
            Exit.TEMPORARY: _TEMPORARY,
            Exit.CONFIGURATION: "settings are wrong; all problems are listed",
        },
    ),
)
@click.version_option(__version__, prog_name="pyconfd")
@click.pass_context
def cli(ctx: click.Context, /, **_: object) -> int:
    """Run without a command's name."""
    return _run(ctx) if ctx.invoked_subcommand is None else Exit.OK


@cli.command(
    shows_settings=True,
    short_help="Run the daemon.",
    help=teach(
        "Run the daemon: watch the cluster and keep HAProxy in step until it is asked to stop."
        "\n\nSIGTERM ends it (HAProxy goes on serving); SIGHUP reads the settings and the fragments again.",
        examples={
            "pyconfd run": "with the file and the environment",
            "pyconfd run --kubeconfig /etc/pyconfd/kubeconfig": "",
            "pyconfd run --api-servers https://a:6443,https://b:6443 --ssl-ca ca.pem --token-file token": "",
        },
        exits={Exit.OK: "it was asked to stop", **_USAGE, Exit.BUG: "a bug; systemd starts it again"},
    ),
)
@click.pass_context
def run(ctx: click.Context, /, **_: object) -> int:
    """Run the daemon."""
    return _run(ctx)


@cli.command(
    short_help="Print what would be written; change nothing.",
    help=teach(
        "Render the fragments and print the configuration; nothing is written and HAProxy is not asked.",
        examples={
            "pyconfd render --api-servers https://10.31.12.49:6443": "from the cluster",
            "kubectl get svc,endpointslices,endpoints -A -o yaml > dump": "",
            "pyconfd render --snapshot dump --template-dir .": "offline",
            "pyconfd render --fragment 02-http.tmpl": "one fragment's text",
        },
        exits={Exit.OK: "rendered", Exit.FAILED: "a fragment has an error", **_CLUSTER},
    ),
)
@_snapshot
@click.option("--fragment", metavar="NAME", help="Print only the text that this fragment gives.")
@click.option("--files", is_flag=True, help="Print the maps too; of certificates only their names.")
@click.pass_context
def render(ctx: click.Context, /, snapshots: tuple[str, ...], fragment: str | None, *, files: bool, **_: object) -> int:
    """Print the rendering."""
    settings = _settings(ctx)
    rendered = _outside(ctx).app().render_once(settings, snapshots)
    print_notes(rendered.notes)
    print_refused(rendered.refused)
    text = rendered.text
    if fragment is not None:
        pieces = {piece.fragment: piece.text for piece in rendered.pieces}
        if fragment not in pieces:
            close = difflib.get_close_matches(fragment, pieces, n=1)
            remedy = f"did you mean {close[0]}?" if close else f"there are: {', '.join(pieces) or 'none'}"
            raise ConfigurationError(Problem("--fragment", f"there is no fragment {fragment!r}", remedy))
        text = pieces[fragment]
    print_configuration(text)
    if files:
        print_files(rendered.files)
    return Exit.OK


@cli.command(
    short_help="Render and let HAProxy check.",
    help=teach(
        "Render the fragments and let HAProxy check the result, as its unit would run it; nothing is changed. An object"
        " for which everything would be refused is left out and named, as `pyconfd run` does it.",
        examples={
            "pyconfd check": "from the cluster",
            "pyconfd check --snapshot dump.yaml --template-dir .": "offline, for continuous integration",
            "pyconfd check --json": "for programs",
        },
        exits={
            Exit.OK: "HAProxy accepts it",
            Exit.FAILED: "a fragment or HAProxy refuses it: nothing of it would be served",
            Exit.QUARANTINED: "HAProxy accepts it without the objects that are named: these would go into quarantine",
            **_CLUSTER,
        },
    ),
)
@_snapshot
@_json
@click.pass_context
def check(ctx: click.Context, /, snapshots: tuple[str, ...], *, as_json: bool, **_: object) -> int:
    """Check the rendering."""
    settings = _settings(ctx)
    report = _outside(ctx).app().check_once(settings, snapshots)
    spoilt = sorted({str(each.ref) for each in report.refused if each.reason.spoils})
    if as_json:
        refused, version = refused_as_json(report.refused), report.haproxy_version or None
        print_json({"haproxy": version, "quarantined": spoilt, "notes": list(report.notes), "refused": refused})
        return Exit.QUARANTINED if spoilt else Exit.OK
    print_notes(report.notes)
    print_refused(report.refused)
    who = f"HAProxy {report.haproxy_version} accepts" if report.haproxy_version else "the targets' checks accept"
    if spoilt:
        print_text(f"The configuration is good only without {', '.join(spoilt)}: {who} the rest.")
        return Exit.QUARANTINED
    print_text(f"The configuration is good: {who} it.")
    return Exit.OK


@cli.command(
    short_help="Show what would change, and how.",
    help=teach(
        "Compare what the cluster and the fragments ask for with what is applied; nothing is changed. What would"
        " go into quarantine is named, and the plan is for the rest.",
        examples={
            "pyconfd plan": "read it before you touch a fragment",
            "pyconfd plan --json": "for programs",
            "pyconfd plan | cat": "without colours",
        },
        exits={
            Exit.OK: "nothing would change",
            Exit.CHANGES: "something would change",
            Exit.FAILED: "it cannot be rendered, or HAProxy refuses it",
            **_CLUSTER,
        },
    ),
)
@_snapshot
@_json
@click.pass_context
def plan(ctx: click.Context, /, snapshots: tuple[str, ...], *, as_json: bool, **_: object) -> int:
    """Print the plan."""
    settings = _settings(ctx)
    report = _outside(ctx).app().plan_once(settings, snapshots)
    return print_plan(report, as_json=as_json)


@cli.command(
    short_help="Show what the daemon does.",
    help=teach(
        "Show what the daemon does: what serves since when, how old the cluster's data is, which API servers answer,"
        " what was refused. If no daemon answers it says so, and shows old values as old. A file that cannot be used"
        " by now is told, and the daemon is looked for in the usual places.",
        examples={"pyconfd status": "", "pyconfd status --json": "for programs", "watch pyconfd status": ""},
        exits={
            Exit.OK: "it serves, and all is fresh",
            Exit.FAILED: "it runs with a problem, or would not start again with the settings as they are",
            Exit.NOT_RUNNING: "no daemon answers",
            **_USAGE,
        },
    ),
)
@_json
@click.pass_context
def status(ctx: click.Context, /, *, as_json: bool, **_: object) -> int:
    """Print the status."""
    settings, wrong = settings_to_look_with(ctx)
    report = _outside(ctx).app().status(settings)
    if as_json:
        print_json({"alive": report.alive, "status": report.status})
    else:
        print_text(report.text.rstrip("\n"))
    return exit_of_look(report, wrong=wrong)


@cli.command(
    short_help="Let a held change through once.",
    help=teach(
        "Let a change through that was held back because it would take every endpoint, or suddenly too many, away.\n\n"
        "`pyconfd status` shows the ID of what is held.",
        examples={"pyconfd allow 3f9c2b1a": "this change, and no later one"},
        exits={Exit.OK: "it will be applied", Exit.FAILED: "nothing is held under this ID", **_USAGE},
    ),
)
@click.argument("hold_id", metavar="ID")
@click.pass_context
def allow(ctx: click.Context, /, hold_id: str, **_: object) -> int:
    """Let a held change through."""
    print_text(_outside(ctx).app().allow(_settings(ctx), hold_id))
    return Exit.OK


@cli.command(
    short_help="Show every setting, its value and where it is from.",
    help=teach(
        "Show every setting, its value and where it comes from. A flag wins over the environment, that over the file.",
        examples={
            "pyconfd settings": "what would be used now",
            "pyconfd settings --toml > pyconfd.toml": "the same as a commented file",
            "pyconfd settings --defaults --toml": "a file to begin with",
        },
        exits={Exit.OK: "the settings are good", **_USAGE},
    ),
)
@_json
@click.option("--defaults", is_flag=True, help="Look at no source; show the defaults.")
@click.option("--toml", is_flag=True, help="Print a commented TOML file.")
@click.option("--markdown", is_flag=True, help="Print the reference of all settings (docs/settings.md).")
@click.pass_context
def settings(ctx: click.Context, /, *, as_json: bool, defaults: bool, toml: bool, markdown: bool, **_: object) -> int:
    """Print the settings."""
    if sum((as_json, toml, markdown)) > 1:
        raise click.UsageError("--json, --toml and --markdown exclude each other", ctx)
    resolved = show.defaults() if defaults or markdown else _resolved(ctx)
    if markdown:
        print_text("\n".join(show.as_markdown()))
    elif toml:
        print_text("\n".join(show.as_toml(resolved)))
    elif as_json:
        print_text(show.as_json(resolved))
    else:
        lines = show.as_text(
            resolved,
            title=lambda text: click.style(text, bold=True),
            changed=lambda text: click.style(text, fg="cyan"),
        )
        print_text("\n".join(lines))
        print_notes(resolved.notes)
    return Exit.OK


@cli.command(
    short_help="Write what the cluster holds to a file.",
    help=teach(
        "Write the objects that pyconfd reads to a file for --snapshot; the content of Secrets is left out.",
        examples={
            "pyconfd record cluster.yaml": "for a bug report, or a test",
            "pyconfd render --snapshot cluster.yaml": "offline from then on",
        },
        exits={Exit.OK: "written", Exit.FAILED: "it could not be written", **_CLUSTER},
    ),
)
@click.argument("file", type=click.Path(dir_okay=False))
@click.pass_context
def record(ctx: click.Context, /, file: str, **_: object) -> int:
    """Record a Snapshot."""
    print_text(_outside(ctx).app().record(_settings(ctx), file))
    return Exit.OK


@cli.command(
    short_help="Print the permissions that pyconfd needs.",
    help=teach(
        "Print a manifest with the ServiceAccount and the least permissions that these settings need.",
        examples={
            "pyconfd rbac | kubectl apply -f -": "",
            "pyconfd rbac --preset kubefigurator": "what this preset reads",
            "pyconfd rbac --kubernetes-secret-namespaces web": "with TLS Secrets of one namespace",
        },
        exits={Exit.OK: "printed", **_USAGE},
    ),
)
@click.pass_context
def rbac(ctx: click.Context, /, **_: object) -> int:
    """Print the RBAC manifest."""
    print_text(_outside(ctx).app().rbac(settings_for_permissions(ctx)), newline=False)
    return Exit.OK


_SINGLE = (watching.watch, testing.run_tests, trying.try_snapshot, floating.vip)
_GROUPS = (*diagnosing.COMMANDS, *upgrading.COMMANDS, *generations.COMMANDS, *operating.COMMANDS, *sharing.COMMANDS)
for _command in (*_SINGLE, *_GROUPS):
    cli.add_command(_command)


@cli.command(
    cls=click.Command,
    context_settings=CONTEXT_SETTINGS,
    short_help="Show or copy the shipped fragments.",
    help=teach(
        "Print where the fragments that come with pyconfd are, or copy them with their tests; no file is overwritten.",
        examples={
            "pyconfd fragments": "the directory of the usual ones",
            "pyconfd fragments --copy-to /etc/pyconfd": "to edit them there",
            "pyconfd fragments --preset kubefigurator --copy-to /etc/pyconfd": "those of another preset",
        },
        exits={Exit.OK: "done", Exit.USAGE: "the command line is wrong", Exit.CONFIGURATION: "not writable"},
    ),
)
@click.option(
    "--preset",
    "presets",
    multiple=True,
    type=click.Choice([name.value for name in PresetName]),
    help="The fragments of this preset; may be repeated. [default: domains]",
)
@click.option("--copy-to", metavar="DIR", type=click.Path(file_okay=False), help="Copy what is not there yet.")
@click.pass_context
def fragments(ctx: click.Context, /, presets: tuple[str, ...], copy_to: str | None) -> int:
    """Show or copy the shipped fragments."""
    app = _outside(ctx).app()
    if copy_to is None:
        print_text("\n".join(str(path) for path in app.fragments(presets).values()) if presets else app.fragments_dir())
        return Exit.OK
    chosen = presets or (PresetName.DOMAINS,)
    copied, kept = copy_fragments({**app.fragments(chosen), **app.fragment_tests(chosen)}, copy_to)
    for name in copied:
        print_text(f"copied  {name}")
    for name in kept:
        print_text(f"kept    {name} (it is there already)")
    return Exit.OK


cli.add_command(migrate)
cli.add_command(naming.dns)
cli.add_command(completion)


def main() -> NoReturn:
    """Run the command line of this process; output is UTF-8 whatever the locale says, as HAProxy's files are."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    cli.main(prog_name="pyconfd")


if __name__ == "__main__":
    main()
