"""``pyconfd plan --traffic``: read an access log of any size, and print what a change does to its requests."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec

from pyconfd.app.traffic import prepare_replay
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_lines, print_notes, print_text
from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.explain.replay import EffectKind, TrafficGroup, TrafficReplay, TrafficReport
from pyconfd.settings import Settings

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

MOST_LINE_BYTES = 64 * 1024
"""Of one line; those of the shipped fragments have less than 10 KiB."""
_CHUNK = 1 << 20
_MOST_SHOWN = 20
"""Groups shown to a person; JSON has all."""
_TARGETS_SHOWN = 3
_PROGRESS_S = 0.5
_COMPRESSED = MappingProxyType({b"\x1f\x8b": "zcat", b"\x28\xb5\x2f\xfd": "zstdcat", b"\xfd7zXZ": "xzcat"})
"""How files of gzip, zstd and xz begin, as logrotate leaves them, and what prints them."""


def plan_traffic(
    settings: Settings, log: str, snapshots: tuple[str, ...], before: tuple[str, ...], *, as_json: bool
) -> Exit:
    """Compare, print, and return the exit code that says whether a request would get something else."""
    prepared = prepare_replay(settings, snapshots, before)
    print_notes(prepared.notes)
    replay, notes = prepared.replay, list(prepared.notes)
    try:
        with nullcontext(sys.stdin.buffer) if log == "-" else open(log, "rb") as stream:  # noqa: PTH123 - or a stream
            if program := _unpacked_by(stream):
                remedy = f"{program} {log} | pyconfd plan --traffic -" if log != "-" else f"put {program} before it"
                raise RejectedInput(Problem(log, "is compressed", remedy))
            read_log(stream, replay)
    except OSError as error:
        raise TransientError(Problem(log, f"cannot be read: {error.strerror}", "name a file with a log")) from error
    report = replay.report()
    if report.unreadable and not report.requests:
        why = "; ".join(f"line {each.line}: {each.why}" for each in report.unreadable_examples[:1])
        remedy = "give it lines as HAProxy writes them: pyconfd logs --json, or journalctl -u haproxy -o cat"
        raise RejectedInput(Problem(log, f"none of {report.lines:,} lines can be read ({why})", remedy))
    if not report.requests:
        nothing = "the log has no line, so nothing was compared"
        print_notes([nothing])
        notes.append(nothing)
    if as_json:
        print_json({**msgspec.to_builtins(report), "notes": notes})
    else:
        _print_report(report)
    return Exit.CHANGES if replay.changes else Exit.OK


def _unpacked_by(stream: BinaryIO) -> str:
    """Return the program that prints a compressed file, "" for a text; of a pipe nothing is read ahead."""
    if not stream.seekable():
        return ""
    begin = stream.tell()
    head = stream.read(max(map(len, _COMPRESSED)))
    stream.seek(begin)
    return next((program for magic, program in _COMPRESSED.items() if head.startswith(magic)), "")


def read_log(stream: BinaryIO, replay: TrafficReplay) -> None:
    """Read to the end; how far it is, is shown at a terminal: in bytes, or in lines where the size is not known."""
    size = _size_of(stream)
    is_terminal = sys.stderr.isatty()
    # A bar without a length takes something to iterate over.
    bar: ProgressBar[int] = click.progressbar(
        None if size else count(), size or None, "reading the log", show_pos=not size, file=sys.stderr
    )
    news, shown_at = 0, time.monotonic()
    with bar if is_terminal else nullcontext():
        for read_bytes, lines in _lines(stream):
            for line in lines:
                if line is None:
                    replay.add_too_long(MOST_LINE_BYTES)
                elif line:
                    replay.add(line)
                else:
                    replay.add_blank()
            news += read_bytes if size else len(lines)
            if is_terminal and time.monotonic() - shown_at >= _PROGRESS_S:
                bar.update(news)
                news, shown_at = 0, time.monotonic()
        if is_terminal:
            bar.update(news)


def _size_of(stream: BinaryIO) -> int:
    """Return how many bytes there are to read, 0 where that is not known."""
    try:
        return os.fstat(stream.fileno()).st_size if stream.seekable() else 0
    except OSError:
        return 0


def _lines(stream: BinaryIO) -> Iterator[tuple[int, list[bytes | None]]]:
    """Return how many bytes were read and the lines that they complete; None for each that is too long to be one."""
    rest, is_skipped = b"", False
    read = getattr(stream, "read1", stream.read)
    while chunk := read(_CHUNK):
        first, *others = chunk.split(b"\n")
        rest = b"" if is_skipped else rest + first
        found: list[bytes | None] = []
        if len(rest) > MOST_LINE_BYTES:
            rest, is_skipped = b"", True
        if others:
            found.append(None if is_skipped else rest)
            *whole, rest = others
            found += [None if len(each) > MOST_LINE_BYTES else each for each in whole]
            is_skipped = False
            if len(rest) > MOST_LINE_BYTES:
                rest, is_skipped = b"", True
        yield len(chunk), found
    if rest or is_skipped:
        yield 0, [None if is_skipped else rest]


def _print_report(report: TrafficReport) -> None:
    counts = {
        "get another backend, status or rewrite": report.changed,
        "may get another one, which the log does not say": report.depends,
        "cannot be answered": report.unknown,
    }
    parts = [f"{count:,} {what}" for what, count in counts.items() if count]
    heading = f"{report.requests:,} requests: {'; '.join(parts) or 'none gets another backend, status or rewrite'}"
    print_text(click.style(heading, bold=True))
    for group in report.groups[:_MOST_SHOWN]:
        _print_group(group)
    if len(report.groups) > _MOST_SHOWN:
        print_text(f"and {len(report.groups) - _MOST_SHOWN:,} more groups; --json has all")
    notes = []
    if report.elsewhere:
        notes.append(
            f"{report.elsewhere:,} requests were logged with another backend than they have before this change: "
            "the log is older than that, or headers decided"
        )
    if report.unreadable:
        notes.append(f"{report.unreadable:,} of {report.lines:,} lines cannot be read, the first ones:")
        notes += [f"line {each.line:,}: {each.why}" for each in report.unreadable_examples]
    print_notes(notes)


def _print_group(group: TrafficGroup) -> None:
    shown = [each.target for each in group.targets[:_TARGETS_SHOWN]]
    more = len(group.targets) - len(shown)
    where = ", ".join(shown) + (f" and {more:,} more" if more or group.other_targets else "")
    requests = "request" if group.requests == 1 else "requests"
    print_text(f"\n{click.style(f'{group.requests:,} {requests} ({group.percent:g} %)', bold=True)}: {where}")
    if group.kind is EffectKind.UNKNOWN:
        lines = [group.before]
    else:
        lines = [f"before: {group.before}", f"after:  {group.after}"]
    if group.depends_on:
        maybe = "it depends on" if group.kind is EffectKind.DEPENDS else "which one depends on"
        lines.append(f"{maybe} {', '.join(group.depends_on)}, which the log does not have")
    lines += [f"line {each.line:,}: {each.request}" for each in group.examples]
    print_lines(lines)
