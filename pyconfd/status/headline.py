"""Whether everybody is served, in one sentence, and what is wrong now, the worst first."""

import re
from collections.abc import Iterable, Iterator, Sequence
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
_COMMAND = re.compile(r"(pyconfd|systemctl)( [\w./=-]+){1,2}")
_MOST_ABOUT = 60
"""Characters of the place that a problem begins with."""
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
    """One thing that is wrong: ``about`` names it, ``text`` says what.

    ``command`` is what to type, and ``remedy`` what to do in words; each may be "".
    """

    level: Grade
    about: str
    text: str
    command: str = ""
    remedy: str = ""


def headline_of(status: Status, floating: Sequence[WrongNow] = ()) -> Headline:
    """Return whether everybody is served; it holds no ages, so that it is the same until something happens.

    ``floating`` is what is wrong with the floating addresses of this node.
    """
    first = next(_headlines(status))
    bad = next((each for each in floating if each.level is Grade.BAD), None)
    if bad is not None and first.level is not Grade.BAD:
        return Headline(Grade.BAD, f"Clients may reach nobody: {bad.about}: {bad.text}", bad.command)
    worst = next(iter(floating), None)
    if worst is not None and first.level is Grade.GOOD:
        return Headline(worst.level, f"Everybody is served; {worst.about}: {worst.text}", worst.command)
    return first


def _headlines(status: Status) -> Iterator[Headline]:  # noqa: C901, PLR0912 - the worst first
    problem, remedy = _first_problem(status)
    if status.phase is Phase.DOWN:
        cause = _line(redacted(status.haproxy.cause))
        because = "" if cause.startswith("does not run") else f" ({cause})"
        command = _command(_line(status.haproxy.remedy)) or _STATUS
        yield Headline(Grade.BAD, f"Nobody is served: HAProxy does not run{because}", command)
    if status.generation is None:
        because = f": {problem}" if problem else ""
        yield Headline(Grade.BAD, f"Nothing is served yet{because}", _command(remedy) or "pyconfd preflight")
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
        yield Headline(Grade.WARNING, f"{served}, but the newest change {what}: {problem}", _command(remedy) or _STATUS)
    if status.hold_id:
        yield Headline(
            Grade.WARNING,
            f"{served}; a change is held back until it is confirmed; only if it is meant",
            command_of(status.hold_id),
        )
    if status.live.paused is not None:
        yield Headline(Grade.WARNING, f"{served}; applying is paused", "pyconfd resume")
    if status.pin is not None:
        yield Headline(Grade.WARNING, f"{served}; fragments and settings are pinned", "pyconfd unpin")
    if sync_age_s(status, status.now) >= STALE_AFTER_S:
        yield Headline(Grade.WARNING, f"{served}, from old data: no API server confirms it", _STATUS)
    if _none_answers(status):
        yield Headline(Grade.WARNING, f"{served}, but no API server answers: changes do not arrive", _STATUS)
    if left_out := len({each.ref for each in status.refused}):
        yield Headline(
            Grade.WARNING, f"{served}; {_number(left_out, 'object')} left out, wholly or in part", ALL_REFUSED
        )
    if problem:
        yield Headline(Grade.WARNING, f"{served}, with a problem: {problem}", _command(remedy) or _STATUS)
    if urgent := sum(note.reason in _URGENT for note in status.notes):
        yield Headline(Grade.WARNING, f"{served}; {_number(urgent, 'certificate')} expired, or nearly so", ALL_REFUSED)
    if status.phase is not Phase.SERVING:
        yield Headline(Grade.WARNING, f"{served} by the last good configuration", _STATUS)
    yield Headline(Grade.GOOD, "Everybody is served, and nothing is left out")


def _none_answers(status: Status) -> bool:
    servers = status.source.api_servers
    return any(each.last_error for each in servers) and not any(each.healthy for each in servers)


def findings(status: Status, most: int, floating: Sequence[WrongNow] = ()) -> tuple[tuple[WrongNow, ...], int]:
    """Return the worst that is wrong now, beginning with ``floating``, and how much that is in all."""
    notes = sorted((each for each in status.notes if each.reason in CERTIFICATE_NOTES), key=_urgency)
    # What is in quarantine is listed with since when that is so.
    refused = [each for each in status.refused if each.reason is not RefusalReason.QUARANTINED]
    source = [*_of_source(status)]
    away = [each for each in source if each.level is Grade.BAD]
    parts: list[Iterable[WrongNow]] = [
        floating,
        away,
        (_of_problem(each) for each in status.problems),
        (
            WrongNow(
                Grade.BAD,
                clean(each.backend),
                _line(redacted(each.words)),
                _explain("", each.backend),
                "does the application listen where its Service sends traffic? the command names its pods and servers",
            )
            for each in status.live.down
        ),
        (_of_object(each) for each in notes if each.reason in _URGENT),
        (each for each in source if each.level is not Grade.BAD),
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
    total = sum(map(len, (floating, source, status.problems, status.quarantine.now, refused, notes)))
    total += status.live.down_total
    return tuple(found), total


def _of_source(status: Status) -> Iterator[WrongNow]:
    """Return the API servers that fail, and what cannot be read of those that answer, as far as no problem says it."""
    level = Grade.BAD if _none_answers(status) else Grade.WARNING
    for what, servers in (("API server", status.source.api_servers), ("etcd", status.source.etcd)):
        for server in servers:
            if server.last_error and not server.healthy:
                yield _of_text(level, f"{what} {clean(server.url)}", server.last_error, _STATUS)
    known = "\n".join(status.problems)
    for resource in () if _none_answers(status) else status.source.resources:
        if resource.problem and resource.served and resource.problem not in known:
            yield _of_text(Grade.WARNING, resource.resource.value, resource.problem, _STATUS)
    for credential in status.source.credentials:
        if credential.problem and credential.problem not in known:
            yield _of_text(Grade.WARNING, clean(credential.name), credential.problem, _STATUS)


def _of_text(level: Grade, about: str, problem: str, command: str) -> WrongNow:
    text, _, remedy = redacted(problem).partition("->")
    remedy = _line(remedy)
    return WrongNow(level, about, _line(text), _command(remedy) or command, "" if _command(remedy) else remedy)


def _of_problem(problem: str) -> WrongNow:
    text, _, remedy = redacted(problem).partition("->")
    about, colon, rest = text.partition(": ")
    about, text = (about, rest) if colon and len(about) <= _MOST_ABOUT else ("pyconfd", text)
    remedy = _line(remedy)
    command = _command(remedy)
    return WrongNow(Grade.BAD, clean(about), _line(text), command, "" if command else remedy)


def _command(remedy: str) -> str:
    """Return a remedy that is nothing but a command to type; "" where it is a sentence."""
    return remedy if _COMMAND.fullmatch(remedy) else ""


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
