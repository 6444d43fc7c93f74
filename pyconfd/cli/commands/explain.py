"""``pyconfd explain``: conditions of claims, or the way of a request; from the daemon, or computed without one."""

import sys

import click
import msgspec

from pyconfd.app.explaining import Query, ask_daemon, explain_without_daemon
from pyconfd.cli.command import CommandContext, command, json_option, snapshot_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_text
from pyconfd.errors import RejectedInput
from pyconfd.explain.request import is_url, request_of
from pyconfd.explain.text import render
from pyconfd.model.explanation import Explanation


@command(
    examples={
        "pyconfd explain shop.example.com": "a domain, also one that a wildcard covers",
        "pyconfd explain shop/web": "a Service",
        "pyconfd explain pod web-6d5f-x2k": "only a pod of this name",
        "pyconfd explain haproxy.cfg:123": "fragment, template line and object behind a line",
        "pyconfd explain https://shop.example.com/cart?x=1 -X POST -H 'X-Canary: always'": "where this request goes",
        "pyconfd explain http://shop.example.com/ --to 192.0.2.21": "the same at one of several addresses",
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
@click.option("-X", "--method", metavar="METHOD", help="Of a request: its method (GET).")
@click.option("-H", "--header", multiple=True, metavar="'NAME: VALUE'", help="Of a request: a header; may be repeated.")
@click.option("--from", "source", metavar="ADDRESS", help="Of a request: the client's address.")
@click.option("--to", "to", metavar="ADDRESS", help="Of a request: the address that the client connects to.")
@click.option("--tls-name", metavar="NAME", help="Of a request: the name in the TLS handshake (the host of the URL).")
@snapshot_option(
    "Do not ask the daemon: explain what `kubectl get ... -o yaml|json` or `pyconfd record` wrote; may be repeated."
)
@json_option
def explain(
    context: CommandContext,
    name: tuple[str, ...],
    snapshots: tuple[str, ...],
    header: tuple[str, ...],
    *,
    as_json: bool,
    all_refused: bool,
    method: str | None,
    source: str | None,
    to: str | None,
    tls_name: str | None,
) -> int:
    """Show whether a service is served, and why not.

    Its conditions (Accepted, ResolvedRefs, Rendered, Programmed), each with the reason where it is not true,
    since when, and what to do; and the servers that it is served by, with their state.

    NAME is a service (web, shop/web), a domain, a pod, an address, a backend, a server (BACKEND/SERVER) or a line
    (haproxy.cfg:123, line 123). A word before it (service, domain, pod, address, backend, server, or a kind such as
    httproute or routepolicy) takes only that.
    A URL is a request: which listener, certificate, rule, filters, backend, servers and timeouts it gets, which rules
    it did not get and why, and which field of which object says so. What the answer does not cover it says.
    The daemon is asked; where none answers, the cluster is read again.
    """
    words = " ".join(name).strip()
    query: Query = words
    if bool(words) == all_refused:
        raise click.UsageError("give either a NAME or --all-refused")
    options = {"method": method, "from": source, "to": to, "tls-name": tls_name}
    given = {"header": header, **{name: (value,) for name, value in options.items() if value}}
    if is_url(words):
        try:
            query = request_of({"url": (words,), **given})
        except RejectedInput as error:
            raise click.UsageError(str(error)) from error
    elif any(given.values()):
        raise click.UsageError("-X, -H, --from, --to and --tls-name are for a URL")
    settings = context.settings()
    found = None if snapshots else ask_daemon(settings, query)
    if not isinstance(found, Explanation):
        found = explain_without_daemon(settings, query, snapshots, found)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        print_text(render(found, colour=sys.stdout.isatty()), newline=False)
    return Exit.OK if found.found else Exit.FAILED
