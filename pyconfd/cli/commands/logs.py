"""``pyconfd logs``: the last requests, and those that come, out of HAProxy's memory."""

from collections.abc import Callable, Iterable, Iterator

import click

from pyconfd.app.request_lines import decider_of, line_of
from pyconfd.cli.command import CommandContext, DurationParameter, command, json_option
from pyconfd.cli.commands.server import installed_text
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_notes, print_text
from pyconfd.errors import Problem, TransientError
from pyconfd.haproxy.config.text import stats_sockets
from pyconfd.haproxy.runtime.request_log import RING, NoRing, following, lines
from pyconfd.haproxy.runtime.sockets import NoAnswer
from pyconfd.model.logged import LoggedRequest, parse
from pyconfd.presets.routing.types import Decider
from pyconfd.printable import escaped_json
from pyconfd.settings import Settings
from pyconfd.status.document import read_report

_NOTHING = (
    'no request matches; what objects leave out is not here (pyconfd.io/access-log: "off", docs/logs.md),'
    " /metrics/routes counts it"
)
_Wanted = Callable[[LoggedRequest], bool]


class _StatusOrClass(click.ParamType[str]):
    """A status code, or a class of them: 404, 5xx."""

    name = "status"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the digits that it begins with."""
        digits = value.lower().removesuffix("xx")
        if not (digits.isdigit() and len(digits) in {1, 3} and digits[0] in "12345" and len(value) == 3):
            self.fail(f"{value!r} is no status: expected one like 404 or 5xx", param, ctx)
        return digits


class _Route(click.ParamType[tuple[str, ...]]):
    """An object: KIND/NAMESPACE/NAME."""

    name = "object"

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return kind, namespace and name."""
        if isinstance(value, tuple):
            return value
        parts = tuple(value.split("/"))
        if len(parts) != 3 or not all(parts):
            self.fail(f"{value!r} is no object: expected one like HTTPRoute/shop/cart", param, ctx)
        return parts


@command(
    examples={
        "pyconfd logs -f": "each request as it ends",
        "pyconfd logs --status 5xx": "what went wrong lately",
        "pyconfd logs -f --route HTTPRoute/shop/cart --slower-than 500ms": "",
        "pyconfd logs --host shop.example.com --json": "for programs: the lines as HAProxy wrote them",
    },
    exits={
        Exit.OK: "all was printed, or it was ended with Ctrl-C",
        Exit.TEMPORARY: "HAProxy cannot be asked, or has no ring for its log",
    },
)
@click.option("-f", "--follow", is_flag=True, help="Only those that come from now on, until Ctrl-C; over reloads too.")
@click.option("--host", metavar="HOST", help="Only those for this host, or this name in the hello of TLS.")
@click.option("--route", type=_Route(), metavar="KIND/NS/NAME", help="Only those that this object decided on.")
@click.option(
    "--status", type=_StatusOrClass(), metavar="CODE", help="Only answers with this code or class, like 404 or 5xx."
)
@click.option(
    "--slower-than", type=DurationParameter(), metavar="TIME", help="Only those that took longer, like 500ms or 2s."
)
@json_option
def logs(
    context: CommandContext,
    host: str | None,
    route: tuple[str, ...] | None,
    status: str | None,
    slower_than: float | None,
    *,
    follow: bool,
    as_json: bool,
) -> int:
    """Print requests as they end: who decided, which pod answered.

    Print the requests and connections that HAProxy's newest worker has in memory, some thousands, the oldest first:
    what was asked for, which object decided, which pod answered, how long it took and why it ended. It needs neither a
    log file nor the daemon. A reload begins with an empty memory; what is older is in the journal.
    """
    wanted = wanted_by(host=host, route=route, status=status, slower_than=slower_than)
    settings = context.settings()
    path = _socket(settings)
    try:
        found = False
        for line, request in _chosen(following(path, _note) if follow else lines(path), wanted):
            print_text(escaped_json(line.decode(errors="replace")) if as_json else line_of(request))
            found = True
        if not found:
            print_notes((_NOTHING, *(_why_left_out(settings, route) if route is not None else ())))
    except KeyboardInterrupt:
        return Exit.OK
    except NoAnswer as error:
        remedy = "run it as root or as a member of haproxy's group" if error.forbidden else "does haproxy run?"
        raise TransientError(Problem("haproxy", str(error), remedy)) from error
    except NoRing as error:
        remedy = f"have a ring {RING} and `log ring@{RING}` in the fragments, as the shipped 01-defaults.conf has"
        raise TransientError(Problem("haproxy", f"it keeps no log in memory: no ring {RING}", remedy)) from error
    return Exit.OK


def _why_left_out(settings: Settings, route: tuple[str, ...]) -> tuple[str, ...]:
    """Return why this object is not served, wholly or in part, as far as a running daemon says so."""
    report = read_report(settings)
    if report.status is None or not report.running:
        return ()
    kind, *of = route
    return tuple(
        f"{each.ref}: {each.detail}"
        for each in report.status.refused
        if [each.ref.namespace, each.ref.name] == of and each.ref.kind.casefold() == kind.casefold()
    )


def _note(text: str) -> None:
    print_notes((text,))


def wanted_by(
    *, host: str | None, route: tuple[str, ...] | None, status: str | None, slower_than: float | None
) -> _Wanted:
    """Return what says whether a request is one of those that the options ask for."""

    def is_wanted(request: LoggedRequest) -> bool:
        return (
            (host is None or host.casefold() in {request.host, request.sni})
            and (route is None or _is_meant(decider_of(request), route))
            and (status is None or str(request.status).startswith(status))
            and (slower_than is None or request.total_ms > slower_than * 1000)
        )

    return is_wanted


def _is_meant(decider: Decider | None, route: tuple[str, ...]) -> bool:
    if decider is None:
        return False
    kind, namespace, name = route
    is_named = namespace == decider.namespace and name in decider.name.split(",")
    return is_named and kind.casefold() == decider.kind.casefold()


def _chosen(found: Iterable[bytes], wanted: _Wanted) -> Iterator[tuple[bytes, LoggedRequest]]:
    for line in found:
        request = parse(line)
        if request is not None and wanted(request):
            yield line, request


def _socket(settings: Settings) -> str:
    """Return the path of the socket of the running HAProxy.

    Raises:
        TransientError: the configuration cannot be read, or has no socket.
    """
    paths = stats_sockets(installed_text(settings), settings.haproxy.runtime_socket)
    if not paths:
        raise TransientError(Problem("haproxy", "it has no `stats socket`", "have one, as 00-runtime.tmpl does"))
    return paths[0]
