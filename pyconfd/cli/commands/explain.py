"""``pyconfd explain``: conditions of claims, from the daemon, or computed again where none answers."""

import sys

import click
import msgspec

from pyconfd.app.explaining import ask_daemon, explain_without_daemon
from pyconfd.cli.command import CommandContext, command, json_option, snapshot_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_text
from pyconfd.explain.text import render
from pyconfd.model.explanation import Explanation


@command(
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
    },
)
@click.argument("name", nargs=-1, metavar="NAME")
@click.option("--all-refused", is_flag=True, help="Everything that is refused, the newest first.")
@snapshot_option(
    "Do not ask the daemon: explain what `kubectl get ... -o yaml|json` or `pyconfd record` wrote; may be repeated."
)
@json_option
def explain(
    context: CommandContext, name: tuple[str, ...], snapshots: tuple[str, ...], *, as_json: bool, all_refused: bool
) -> int:
    """Show whether a service is served, and why not.

    Its conditions (Accepted, ResolvedRefs, Rendered, Programmed), each with the reason where it is not true,
    since when, and what to do; and the servers that it is served by, with their state.

    NAME is a service (web, shop/web), a domain, a pod, an address, a backend, a server (BACKEND/SERVER) or a line
    (haproxy.cfg:123, line 123). A word before it (service, domain, pod, address, backend, server) takes only that kind.
    The daemon is asked; where none answers, the cluster is read again.
    """
    query = " ".join(name).strip()
    if bool(query) == all_refused:
        raise click.UsageError("give either a NAME or --all-refused")
    settings = context.settings()
    found = None if snapshots else ask_daemon(settings, query)
    if not isinstance(found, Explanation):
        found = explain_without_daemon(settings, query, snapshots, found)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        print_text(render(found, colour=sys.stdout.isatty()), newline=False)
    return Exit.OK if found.found else Exit.FAILED
