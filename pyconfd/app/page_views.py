"""What the page for people asks for on request only: more of the status, two generations, one route."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec

from pyconfd.app.generation_history import GenerationHistory, causes_between
from pyconfd.app.request_lines import line_of
from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.haproxy.config.text import stats_sockets
from pyconfd.haproxy.runtime.request_log import NoRing, lines
from pyconfd.haproxy.runtime.sockets import NoAnswer
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.logged import LoggedRequest, parse
from pyconfd.model.status import Status
from pyconfd.model.traffic import TrafficRates
from pyconfd.settings import Settings
from pyconfd.status.changes import ChangeReader, named, words_of
from pyconfd.status.page_more import more_of
from pyconfd.status.redaction import public_value

GENERATIONS_SHOWN = 50
SENTENCES_SHOWN = 100
LINES_COMPARED = 20_000
"""A longer text is not compared line by line: it would keep the daemon's other threads waiting."""
LINES_SHOWN = 400
CHANGES_SHOWN = 10
ERRORS_SHOWN = 20
NAMES_HEEDED = 50
_SERVER_ERROR = 500

RatesOfBackend = Sequence[tuple[float, TrafficRates]]
"""Each with its time in seconds since the epoch, oldest first."""


def page_views(
    settings: Settings, status: Callable[[], Status], traffic: Callable[[str], RatesOfBackend] = lambda _: ()
) -> Mapping[str, Callable[[str], bytes]]:
    """Return what answers each path of the page, by the query; raises RejectedInput, TransientError.

    ``traffic`` returns the rates of a backend in the last hour.
    """

    def more(_: str) -> bytes:
        now = status()
        return _encoded(more_of(now) | {"generations": [*_generations(settings, now)]})

    def diff(query: str) -> bytes:
        return _encoded(_difference(settings, parse_qs(query)))

    def route(query: str) -> bytes:
        given = parse_qs(query)
        backend = given.get("backend", [""])[0]
        objects, hosts = given.get("object", [])[:NAMES_HEEDED], given.get("host", [])[:NAMES_HEEDED]
        errors, note = _errors(settings, backend)
        by_host = {each.host: each for each in reversed(status().certificates)} if hosts else {}
        found = {
            "traffic": _columns(traffic(backend)),
            "changes": [*_changes(settings, backend, frozenset(objects))],
            "errors": errors,
            "errors_note": note,
            "certificates": [
                {"host": host, "of": f"{each.namespace}/{each.secret}", "not_after": each.not_after}
                for host in hosts
                if (each := _certificate(by_host, host)) is not None
            ],
        }
        return _encoded(found)

    return {"/more.json": more, "/diff.json": diff, "/route.json": route}


def _columns(rates: RatesOfBackend) -> dict[str, list[float | None]]:
    """Return the values of the plots by column."""
    return {
        "at": [round(at) for at, _ in rates],
        **{name: [getattr(each, name) for _, each in rates] for name in TrafficRates._fields},
    }


def _encoded(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode(public_value(document))


def _generations(settings: Settings, status: Status) -> Iterator[dict[str, Any]]:
    past = GenerationHistory(settings)
    entries, recorded = past.store.entries()[: GENERATIONS_SHOWN + 1], past.recorded()
    running = status.generation.number if status.generation else 0
    pinned = status.pin.pin.generation if status.pin else 0
    for entry, former in zip(entries[:GENERATIONS_SHOWN], (*(each.number for each in entries[1:]), 0), strict=False):
        yield {
            "number": entry.number,
            "at": round(entry.applied_at),
            "how": f"reload ({', '.join(entry.reasons)})" if entry.reasons else "runtime update",
            "by": named(causes_between(recorded, former, entry.number)),
            "running": entry.number == running,
            "pinned": entry.number == pinned,
        }


def _difference(settings: Settings, given: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    try:
        before, after = (int(given[name][0]) for name in ("from", "to"))
    except (KeyError, ValueError) as error:
        raise RejectedInput(Problem("diff", "two numbers of generations are needed, from and to")) from error
    past = GenerationHistory(settings)
    entries = past.store.entries()
    found = past.difference(past.stored(before, entries), past.stored(after, entries))
    is_short = max(len(found.old), len(found.new)) <= LINES_COMPARED
    text = found.text().splitlines() if is_short else []
    return {
        "sentences": list(found.sentences[:SENTENCES_SHOWN]),
        "sentences_total": len(found.sentences),
        "text": text[:LINES_SHOWN],
        "text_total": len(text),
        "is_whole": is_short and len(text) <= LINES_SHOWN,
        "only_hidden": found.only_hidden,
        "command": f"pyconfd diff {before} {after}",
    }


def _changes(settings: Settings, backend: str, objects: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Return the last changes that objects caused, or that name the backend, newest first."""
    is_named = re.compile(rf"(?<![\w.-]){re.escape(backend)}(?![\w.-])").search
    found = []
    with suppress(TransientError), closing(ChangeReader(settings.runtime_dir)) as reader:  # `pyconfd watch` says why
        found = [
            each
            for each in reader.known()
            if objects.intersection(each.causes) or any(map(is_named, (each.summary, *each.details)))
        ]
    return ({"at": each.at, "text": words_of(each)} for each in reversed(found[-CHANGES_SHOWN:]))


def _errors(settings: Settings, backend: str) -> tuple[list[str], str]:
    """Return the last failures of a backend in HAProxy's memory, newest first, and why there are none."""
    try:
        text = Path(settings.haproxy.conf).read_text(encoding="utf-8", errors="replace")
        sockets = stats_sockets(text, settings.haproxy.runtime_socket)
        found = [*_failed(lines(sockets[0]), backend)] if sockets else []
    except OSError as error:
        return [], f"the configuration cannot be read: {error.strerror}"
    except NoRing:
        return [], "HAProxy keeps no log in memory: the fragments have no ring for it"
    except NoAnswer as error:
        return [], f"HAProxy cannot be asked: {error}"
    return [line_of(each) for each in reversed(found[-ERRORS_SHOWN:])], ""


def _failed(found: Iterator[bytes], backend: str) -> Iterator[LoggedRequest]:
    for line in found:
        request = parse(line) if backend.encode() in line else None
        if request is None or request.backend != backend:
            continue
        if request.status >= _SERVER_ERROR or (not request.method and request.why):
            # Queries may hold what is secret, and fragments may have them logged.
            yield msgspec.structs.replace(request, path=request.path.partition("?")[0])


def _certificate(by_host: Mapping[str, PresentedCertificate], host: str) -> PresentedCertificate | None:
    """Return the certificate for a host: its own, that of the wildcard above it, else the default one."""
    wanted = (host, f"*.{host.partition('.')[2]}", "*", "")
    return next((by_host[each] for each in wanted if each in by_host), None)
