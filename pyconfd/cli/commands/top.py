"""``pyconfd top``: the first screen of the page in a terminal, of the same JSON."""

import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from pyconfd.cli.command import CommandContext, command
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text
from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.printable import clean, short_duration
from pyconfd.settings import Settings
from pyconfd.status.page_client import get
from pyconfd.status.page_data import OVERVIEW

EVERY_S = 1.0
PATIENCE_S = 5.0
WIDTH_IN_A_PIPE = 100
_STYLES = {"bad": "bold red", "warning": "bold yellow", "good": "bold green"}
_MARKS = {"bad": "\u2715", "warning": "!", "good": "\u2713"}
_ASCII_MARKS = {"bad": "x", "warning": "!", "good": "+"}
_BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
_ASCII_BARS = "_.-:=+*#"
_LEAST_OF_A_LIST = 2
"""Lines below the heading of a list, however small the window is."""


@command(
    examples={
        "pyconfd top": "until q or Ctrl-C",
        "pyconfd top | cat": "once",
        "ssh lb1 -t pyconfd top": "from elsewhere",
    },
    exits={Exit.OK: "it was ended, or all was printed", Exit.TEMPORARY: "no daemon answers"},
)
def top(context: CommandContext) -> int:
    """Show the first screen of the page in the terminal.

    Whether everybody is served and what to type, who holds the floating address, traffic of the last hour, what is
    wrong now, what changed last: as the page of `status.listen` shows it, read again each second. `q` or Ctrl-C ends
    it. In a pipe it is printed once.
    """
    settings = context.settings()
    found = _read(settings)
    console = Console(highlight=False)
    # A terminal that cannot move its cursor (TERM=dumb) would show nothing at all.
    if not (sys.stdout.isatty() and sys.stdin.isatty()) or console.is_dumb_terminal:
        width = console.width if sys.stdout.isatty() else WIDTH_IN_A_PIPE
        lines = lines_of(found, width, time.time(), is_ascii=_is_ascii(console))
        print_text("\n".join(line.plain.rstrip() for line in lines))
        return Exit.OK
    with suppress(KeyboardInterrupt):
        _follow(settings, found, console)
    return Exit.OK


def _read(settings: Settings) -> dict[str, Any]:
    """Return what the page is given, fit to be printed.

    Raises:
        TransientError: nobody answers.
        RejectedInput: it is of another version.
    """
    if not settings.status.listen:
        message = "the status page is switched off, so no daemon can be asked"
        raise TransientError(Problem("status.listen", message, "pyconfd status reads its file"))
    try:
        found: dict[str, Any] = msgspec.json.decode(get(settings.status, OVERVIEW, PATIENCE_S), type=dict[str, Any])
        lines_of(found, WIDTH_IN_A_PIPE, time.time())
    except TransientError as error:
        remedy = "pyconfd status says what is known"
        raise TransientError(
            *(Problem(each.place, each.message, each.remedy or remedy) for each in error.problems)
        ) from error
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise RejectedInput(Problem("top", "the daemon is of another version", "restart it")) from error
    return found


def _follow(settings: Settings, found: Mapping[str, Any], console: Console) -> None:
    read_at, trouble = time.time(), ""
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            height = console.height
            shown = lines_of(
                found, console.width, time.time(), height, trouble=trouble, is_ascii=_is_ascii(console), read_at=read_at
            )
            live.update(Text("\n").join(shown[:height]), refresh=True)
            if pressed(EVERY_S) in {"q", "Q", "\x03", "\x04"}:
                return
            try:
                found, read_at, trouble = _read(settings), time.time(), ""
            except (TransientError, RejectedInput) as error:
                trouble = f"{error.problems[0].place}: {error.problems[0].message}"


@contextmanager
def _keys() -> Iterator[Any]:
    """Read keys without Return: yield what waits for one; the terminal is as before afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(wait_s: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], wait_s)
        # The end of the input is as good as a key: a terminal that went away.
        return (sys.stdin.read(1) or "q") if ready else ""

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _is_ascii(console: Console) -> bool:
    return not console.encoding.lower().startswith("utf")


def lines_of(
    found: Mapping[str, Any],
    width: int,
    now: float,
    height: int = 0,
    *,
    trouble: str = "",
    is_ascii: bool = False,
    read_at: float = 0.0,
) -> list[Text]:
    """Return the lines of the screen, none wider than ``width``; all there is where ``height`` is 0.

    ``trouble`` says why nothing newer than of ``read_at`` is there, "" where there is.
    """
    above = [*_headline(found, width, now, trouble, is_ascii=is_ascii, read_at=read_at)]
    above += [_cut(line, width) for line in _facts(found, now)]
    above += [_cut(line, width) for line in _floating(found, now)]
    above += [_cut(line, width) for line in _traffic(found, width, is_ascii=is_ascii)]
    wrong, changes = [*_findings(found, width, is_ascii=is_ascii)], [*_changes(found, width, now)]
    total = found["findings_total"]
    left = height - len(above) - 2 if height else len(wrong) + len(changes)
    of_wrong = max(_LEAST_OF_A_LIST, min(len(wrong), left - min(len(changes), max(_LEAST_OF_A_LIST, left // 3))))
    of_changes = max(_LEAST_OF_A_LIST, left - min(of_wrong, len(wrong)))
    return [
        *above,
        Text(f"WHAT IS WRONG NOW ({total:,})", style="bold"),
        *(wrong[:of_wrong] or [Text("  nothing")]),
        Text("WHAT CHANGED LAST", style="bold"),
        *(changes[:of_changes] or [Text("  nothing yet")]),
    ]


def _headline(
    found: Mapping[str, Any], width: int, now: float, trouble: str, *, is_ascii: bool, read_at: float
) -> Iterator[Text]:
    headline = found["headline"]
    mark = (_ASCII_MARKS if is_ascii else _MARKS)[headline["level"]]
    if trouble:
        age = short_duration(now - read_at)
        yield from _wrapped(f"? Not known now: {clean(trouble)}. All below is {age} old.", width, "bold red")
        yield from _wrapped(f"Last: {clean(headline['sentence'])}.", width, "")
        yield _cut(Text("  $ systemctl status pyconfd"), width)
        return
    yield from _wrapped(f"{mark} {clean(headline['sentence'])}.", width, _STYLES[headline["level"]])
    if headline["command"]:
        yield _cut(Text(f"  $ {clean(headline['command'])}"), width)


def _facts(found: Mapping[str, Any], now: float) -> Iterator[Text]:
    generation = found["generation"]
    parts = []
    if generation:
        verified = "verified" if generation["verified"] else "not verified"
        parts.append(
            f"generation {generation['number']}, applied {short_duration(now - generation['at'])} ago, {verified}"
        )
    if found["hosts"] is not None:
        parts.append(f"{found['hosts']:,} names")
    healthy, servers = found["api_servers"]
    if servers:
        parts.append(f"API servers {healthy}/{servers}")
    if found["former_workers"]:
        parts.append(f"{found['former_workers']} former workers")
    if found["pending_since"]:
        parts.append(f"a change waits for {short_duration(now - found['pending_since'])}")
    yield Text("; ".join(parts), style="dim")


def _floating(found: Mapping[str, Any], now: float) -> Iterator[Text]:
    for router in (found["floating"] or {}).get("routers", ()):
        holder = f"the holder is {clean(router['holder'])}" if router["holder"] else "no holder is heard of"
        who = "held here" if router["here"] else holder
        ails = f"; {clean(', '.join(router['ails']))}" if router["ails"] else ""
        since = short_duration(now - router["since"])
        yield Text(f"floating address {clean(', '.join(router['addresses']))}: {who}, for {since}{ails}")


def _traffic(found: Mapping[str, Any], width: int, *, is_ascii: bool) -> Iterator[Text]:
    traffic = found["traffic"]
    if not traffic["at"]:
        yield Text("traffic: nothing was measured yet", style="dim")
        return
    rows = (
        ("requests/s", "requests", "", _rate),
        ("5xx/s", "errors", "red", _rate),
        ("p50", "p50", "", _latency),
        ("p99", "p99", "", _latency),
    )
    for label, key, style, words in rows:
        values: Sequence[float | None] = traffic[key]
        line = Text(f"{label:>10} {words(values[-1]):>8} ")
        yield line.append(sparkline(values, width - line.cell_len, is_ascii=is_ascii), style)


def sparkline(values: Sequence[float | None], width: int, *, is_ascii: bool = False) -> str:
    """Return the newest values as bars, highest one full; nothing where there is no value."""
    bars = _ASCII_BARS if is_ascii else _BARS
    newest = values[-max(width, 0) :] if width > 0 else ()
    most = max((each for each in newest if each), default=0.0)
    return "".join(
        " " if each is None else bars[min(len(bars) - 1, int(each / most * len(bars))) if most else 0]
        for each in newest
    )


def _rate(value: float | None) -> str:
    return f"{value or 0:,.0f}" if value is None or value >= 100 or not value else f"{value:.2g}"


def _latency(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f} s" if value >= 1 else f"{value * 1e3:.2g} ms" if value < 0.1 else f"{value * 1e3:.0f} ms"


def _findings(found: Mapping[str, Any], width: int, *, is_ascii: bool) -> Iterator[Text]:
    marks = _ASCII_MARKS if is_ascii else _MARKS
    for each in found["findings"]:
        about = f"{marks[each['level']]} {clean(each['about'])}"
        lines = _wrapped(f"{about}: {clean(each['text'])}", width, "")
        lines[0].stylize(_STYLES[each["level"]], 0, len(about))
        yield from lines
        if each["remedy"]:
            yield from _wrapped(f"  to do: {clean(each['remedy'])}", width, "")
        if each["command"]:
            yield _cut(Text(f"  $ {clean(each['command'])}"), width)
    if (more := found["findings_total"] - len(found["findings"])) > 0:
        yield Text(f"  ... and {more:,} more: pyconfd explain --all-refused")


def _changes(found: Mapping[str, Any], width: int, now: float) -> Iterator[Text]:
    for each in found["changes"]:
        yield _cut(Text(f"  {short_duration(now - each['at']):>5} ago  {clean(each['text'])}"), width)


def _wrapped(text: str, width: int, style: str) -> list[Text]:
    return [*Text(text, style=style).wrap(Console(width=width), width)]


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line
