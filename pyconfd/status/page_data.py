"""What the page for people shows, as JSON: bounded, whatever the cluster has, and the same until something happens.

Times are seconds since the epoch, and no age is in it: a page that is open asks every two seconds, and gets 304 while
nothing happened. All strings may be of strangers; the page shows them as text.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from operator import sub
from typing import Any

import msgspec

from pyconfd.errors import TransientError
from pyconfd.model.changes import Change
from pyconfd.model.nodes import NodeState
from pyconfd.model.route_figures import Counts, RouteFigures
from pyconfd.model.status import Status
from pyconfd.model.traffic import RecentFigures, TrafficRates, TrafficSample, rates_of, rounded
from pyconfd.printable import clean
from pyconfd.status.changes import ChangeReader, words_of
from pyconfd.status.document import liveness
from pyconfd.status.headline import Grade, WrongNow, findings, headline_of
from pyconfd.status.redaction import public_value
from pyconfd.status.route_metrics import owner_of

OVERVIEW, ROUTE_LIST = "/page.json", "/routes.json"
FINDINGS_SHOWN = 50
CHANGES_SHOWN = 20
SAME_S = 1.0
"""For so long an overview is not made again: however many pages are open, it costs what it costs for two."""

COLUMNS = (
    "backend", "kind", "namespace", "name", "rule", "http", "down", "refused", "requests", "errors", "connections",
    "p50", "p99", "sessions",
)  # fmt: skip
"""Of each row of the list of routes. ``requests``, ``errors`` and ``connections`` are for a second."""


class RecentChanges:
    """The last changes that the daemon recorded in its runtime directory; also those before its last restart."""

    def __init__(self, runtime_dir: str) -> None:
        self._reader = ChangeReader(runtime_dir)
        self._last: deque[Change] = deque(maxlen=CHANGES_SHOWN)
        self._known = False

    def __call__(self) -> Sequence[Change]:
        """Return them, newest first; by one thread at a time."""
        try:
            self._last.extend(self._reader.newer() if self._known else self._reader.known())
            self._known = True
        except TransientError:  # `pyconfd watch` says why
            self._known = False
            self._last.clear()
        return tuple(reversed(self._last))

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


class PageData:
    """Its attributes are what it is made of; all are called by one thread at a time.

    ``floating`` returns the report of the floating addresses with ``is_old``, {} where none was left, None where this
    node has none.
    """

    def __init__(self) -> None:
        self.samples: Callable[[], Sequence[TrafficSample]] = tuple
        self.recent: Callable[[], RecentFigures] = lambda: RecentFigures(0.0, {})
        self.of_backend: Callable[[str], Sequence[tuple[float, TrafficRates]]] = lambda _: ()
        self.changes: Callable[[], Sequence[Change]] = tuple
        self.floating: Callable[[], Mapping[str, Any] | None] = lambda: None
        self._overview: tuple[float, bytes] = (-SAME_S, b"")
        self._routes = b""
        self._routes_of: tuple[object, object, object] = (None, None, None)

    def overview(self, status: Callable[[], Status]) -> bytes:
        """Return all but the list of routes."""
        now = time.monotonic()
        made_at, body = self._overview
        if now - made_at >= SAME_S:
            body = msgspec.json.encode(self._overview_of(status()))
            self._overview = now, body
        return body

    def _overview_of(self, status: Status) -> dict[str, Any]:
        floating = _floating(self.floating())
        ails = [*_wrong_with(floating)]
        first = headline_of(status, ails)
        found, total = findings(status, FINDINGS_SHOWN, ails)
        generation = status.generation
        document = {
            "headline": {"level": first.level.name.lower(), "sentence": first.sentence, "command": first.command},
            "phase": status.phase.value,
            "alive": liveness(status).good,
            "version": status.version,
            "pid": status.pid,
            "started_at": round(status.started_at),
            "hosts": status.hosts_total,
            "generation": None
            if generation is None
            else {"number": generation.number, "at": round(generation.applied_at), "verified": status.verified},
            "pending_since": round(status.pending_since),
            "former_workers": status.applying.former.count,
            "api_servers": [sum(each.healthy for each in status.source.api_servers), len(status.source.api_servers)],
            "floating": floating,
            "nodes": [_node(each, time.time()) for each in status.nodes] if len(status.nodes) > 1 else [],
            "traffic": _plots(self.samples()),
            "findings": [
                {
                    "level": each.level.name.lower(),
                    "about": each.about,
                    "text": each.text,
                    "command": each.command,
                    "remedy": each.remedy,
                }
                for each in found
            ],
            "findings_total": total,
            "changes": [
                {
                    "at": round(each.at, 3),
                    "action": each.action.value,
                    "text": words_of(each),
                    "took_s": round(each.duration_s, 6),
                }
                for each in self.changes()
            ],
        }
        public: dict[str, Any] = public_value(document)
        return public

    def routes(self, status: Status) -> bytes:
        """Return the list of routes: of the last reading, which is made twice a minute, so HAProxy is not asked."""
        recent = self.recent()
        of, refused, down = self._routes_of
        if recent is not of or status.refused != refused or status.live.down != down:
            self._routes_of = recent, status.refused, status.live.down
            self._routes = msgspec.json.encode(_routes(recent, status))
        return self._routes


def _floating(report: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if report is None:
        return None
    with suppress(KeyError, TypeError):  # the hook may be of another version
        return {
            "old_since": round(report["at"]) if report["is_old"] else 0,
            "routers": [*map(_router, report["routers"])],
        }
    return {"old_since": 0, "routers": []}


def _wrong_with(floating: Mapping[str, Any] | None) -> Iterator[WrongNow]:
    """Return what is wrong with the floating addresses, the worst first."""
    if floating is None:
        return
    if floating["old_since"] or not floating["routers"]:
        why = "the holder is not known: pyconfd-vip does not report"
        yield WrongNow(Grade.WARNING, "floating address", why, "systemctl status pyconfd-vip")
        return
    routers = floating["routers"]
    for router in sorted(routers, key=lambda each: bool(each["here"] or each["holder"])):
        of = clean(f"floating address {', '.join(map(str, router['addresses']))}")
        ails = clean(", ".join(str(each).replace("_", " ") for each in router["ails"]))
        if not router["here"] and not router["holder"]:
            why = f"nobody holds it{f'; this node may not: {ails}' if ails else ''}"
            yield WrongNow(Grade.BAD, of, why, "pyconfd vip status")
        elif ails:
            yield WrongNow(Grade.WARNING, of, ails, "pyconfd vip status")


def _router(router: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "addresses": router["addresses"],
        "here": router["holds"],
        "holder": router["holder"] or "",
        # The hook computes it from a clock that does not jump: it wavers by milliseconds.
        "since": round(router["role_since"], -1),
        "ails": [*router["faults"], *router["alarms"], *(["drained by order"] if router["drained"] else [])],
    }


def _node(node: NodeState, now: float) -> dict[str, Any]:
    summary = node.summary
    return {
        "name": node.name,
        "here": node.is_own,
        "level": summary.level,
        "sentence": summary.sentence,
        "version": summary.version,
        "holds": summary.holds,
        # It wavers by what a message takes.
        "heard_at": 0 if node.is_own else round(now - node.heard_s, -1),
        "silent": node.is_silent,
        "differences": list(node.differences),
    }


def _plots(samples: Sequence[TrafficSample]) -> dict[str, Any]:
    """Return the values of the plots by column: one less than there are samples."""
    columns: dict[str, list[float | None]] = {"at": [], "requests": [], "errors": [], "p50": [], "p99": []}
    for before, now in pairwise(samples):
        between_s = now.clock_s - before.clock_s
        counted = rates_of(_difference(now.requests, before.requests), _difference(now.steps, before.steps), between_s)
        for name, value in zip(columns, (round(now.at), *counted), strict=True):
            columns[name].append(value)
    # Whoever is asked twice in a thousand requests tells more by a count than by a rate.
    first, last = (samples[0], samples[-1]) if samples else (None, None)
    totals = _difference(last.requests, first.requests) if first and last else ()
    seconds = round(last.clock_s - first.clock_s) if first and last else 0
    return {**columns, "seconds": seconds, "requests_total": sum(totals), "errors_total": totals[-1] if totals else 0}


def _routes(recent: RecentFigures, status: Status) -> dict[str, Any]:
    refused = Counter((each.ref.kind, each.ref.namespace, each.ref.name) for each in status.refused)
    down = {each.backend for each in status.live.down}

    def row(backend: str, figures: RouteFigures) -> tuple[object, ...]:
        owner = owner_of(backend)
        requests, errors, p50, p99 = rates_of(figures.requests, figures.steps, recent.seconds)
        connections = rounded(figures.connections / recent.seconds) if recent.seconds else 0.0
        return (
            clean(backend), *owner, bool(figures.requests), backend in down, refused[owner[:3]], requests, errors,
            connections, p50, p99, figures.sessions,
        )  # fmt: skip

    rows = [row(*each) for each in recent.figures.items()]
    return {"seconds": round(recent.seconds), "columns": COLUMNS, "rows": rows}


def _difference(now: Counts, before: Counts) -> Counts:
    return tuple(map(sub, now, before))
