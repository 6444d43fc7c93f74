"""Whether everybody is served, in one sentence, and what is wrong now, the worst first."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from pyconfd.model.condition import condition_of_refusal
from pyconfd.model.context import CERTIFICATE_NOTES, Refusal, RefusalReason
from pyconfd.model.hold import command_of
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.status import Phase, Status
from pyconfd.printable import clean
from pyconfd.status.document import STALE_AFTER_S, liveness, sync_age_s
from pyconfd.status.redaction import public_refusal, redacted

ALL_REFUSED = "pyconfd explain --all-refused"
_STATUS = "pyconfd status"
# Others choose these names: what does not fit is never a part of a command that somebody pastes into a shell.
_TO_TYPE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?")
_URGENT = frozenset({RefusalReason.CERTIFICATE_EXPIRED, RefusalReason.CERTIFICATE_EXPIRES_NOW})


class Grade(IntEnum):
    """How bad it is: nothing to do, something to look at, somebody is not served."""

    GOOD = 0
    WARNING = 1
    BAD = 2


@dataclass(frozen=True, slots=True)
class Headline:
    """One sentence, and the ``command`` to type; "" where there is nothing to do."""

    level: Grade
    sentence: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class WrongNow:
    """One thing that is wrong: ``about`` names it, ``text`` says what, ``command`` is what to type."""

    level: Grade
    about: str
    text: str
    command: str = ""


def headline_of(status: Status) -> Headline:
    """Return whether everybody is served; it holds no ages, so that it is the same until something happens."""
    return next(_headlines(status))


def _headlines(status: Status) -> Iterator[Headline]:  # noqa: C901, PLR0912 - the worst first
    problem, remedy = _first_problem(status)
    if status.phase is Phase.DOWN:
        cause = clean(redacted(status.haproxy.cause))
        yield Headline(Grade.BAD, f"Nobody is served: HAProxy does not run ({cause})", clean(status.haproxy.remedy))
    if status.generation is None:
        because = f": {problem}" if problem else ""
        yield Headline(Grade.BAD, f"Nothing is served yet{because}", remedy or "pyconfd preflight")
    hosts = status.hosts_total
    served = "Clients are served" if hosts is None else f"{_number(hosts, 'name')} served"
    if not liveness(status).good:
        yield Headline(Grade.BAD, f"{served}, but pyconfd hangs: no change arrives", "systemctl restart pyconfd")
    if down := status.live.down_total:
        first = status.live.down[0].backend if status.live.down else ""
        without = f"{_number(down, 'backend')} without a server that is up: clients get errors"
        yield Headline(Grade.BAD, without, _explain("", first) or _STATUS)
    if status.phase in {Phase.REJECTED, Phase.FAILED}:
        what = "was rejected" if status.phase is Phase.REJECTED else "failed"
        yield Headline(Grade.WARNING, f"{served}, but the newest change {what}: {problem}", remedy or _STATUS)
    if status.hold_id:
        yield Headline(Grade.WARNING, f"{served}; a change is held back", command_of(status.hold_id))
    if status.live.paused is not None:
        yield Headline(Grade.WARNING, f"{served}; applying is paused", "pyconfd resume")
    if status.pin is not None:
        yield Headline(Grade.WARNING, f"{served}; fragments and settings are pinned", "pyconfd unpin")
    if sync_age_s(status, status.now) >= STALE_AFTER_S:
        yield Headline(Grade.WARNING, f"{served}, from old data: no API server confirms it", _STATUS)
    if left_out := len({each.ref for each in status.refused}):
        yield Headline(
            Grade.WARNING, f"{served}; {_number(left_out, 'object')} left out, wholly or in part", ALL_REFUSED
        )
    if problem:
        yield Headline(Grade.WARNING, f"{served}, with a problem: {problem}", remedy or _STATUS)
    if urgent := sum(note.reason in _URGENT for note in status.notes):
        yield Headline(Grade.WARNING, f"{served}; {_number(urgent, 'certificate')} expired, or nearly so", ALL_REFUSED)
    if status.phase is not Phase.SERVING:
        yield Headline(Grade.WARNING, f"{served} by the last good configuration", _STATUS)
    yield Headline(Grade.GOOD, "Everybody is served, and nothing is left out")


def findings(status: Status, most: int) -> tuple[tuple[WrongNow, ...], int]:
    """Return the worst that is wrong now, and how much that is in all."""
    notes = sorted((each for each in status.notes if each.reason in CERTIFICATE_NOTES), key=_urgency)
    # What is in quarantine is listed with since when that is so.
    refused = [each for each in status.refused if each.reason is not RefusalReason.QUARANTINED]
    parts: list[Iterable[WrongNow]] = [
        (_of_problem(each) for each in status.problems),
        (
            WrongNow(Grade.BAD, clean(each.backend), "no server of this backend is up", _explain("", each.backend))
            for each in status.live.down
        ),
        (_of_object(each) for each in notes if each.reason in _URGENT),
        (
            WrongNow(
                Grade.WARNING, _named(each.ref), f"in quarantine: {clean(redacted(each.detail))}", _about(each.ref)
            )
            for each in status.quarantine.now
        ),
        (_of_object(each) for each in refused),
        (_of_object(each) for each in notes if each.reason not in _URGENT),
    ]
    found: list[WrongNow] = []
    for part in parts:
        for each in part:
            if len(found) == most:
                break
            found.append(each)
    total = sum(map(len, (status.problems, status.quarantine.now, refused, notes))) + status.live.down_total
    return tuple(found), total


def _of_problem(problem: str) -> WrongNow:
    text, _, remedy = redacted(problem).partition("->")
    about, colon, rest = text.partition(": ")
    about, text = (about, rest) if colon and " " not in about else ("pyconfd", text)
    return WrongNow(Grade.BAD, clean(about), _line(text), _line(remedy))


def _of_object(refusal: Refusal) -> WrongNow:
    message = condition_of_refusal(public_refusal(refusal)).message
    level = Grade.BAD if refusal.reason in _URGENT else Grade.WARNING
    return WrongNow(level, _named(refusal.ref), clean(message), _about(refusal.ref))


def _urgency(note: Refusal) -> tuple[int, Refusal]:
    return CERTIFICATE_NOTES.index(note.reason), note


def _first_problem(status: Status) -> tuple[str, str]:
    """Return the first problem on one line, and its remedy."""
    text, _, remedy = redacted(status.problems[0] if status.problems else "").partition("->")
    return _line(text), _line(remedy)


def _number(count: int, noun: str) -> str:
    """Return ``1 name is``, ``2 names are``."""
    return f"{count:,} {noun} is" if count == 1 else f"{count:,} {noun}s are"


def _line(text: str) -> str:
    return clean(" ".join(text.split()))


def _named(ref: ObjectRef) -> str:
    return clean(str(ref))


def _about(ref: ObjectRef) -> str:
    return _explain(ref.kind.lower(), f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name) or ALL_REFUSED


def _explain(kind: str, name: str) -> str:
    words = [kind, name] if kind else [name]
    return f"pyconfd explain {' '.join(words)}" if all(map(_TO_TYPE.fullmatch, words)) else ""
