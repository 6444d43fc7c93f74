"""Keeps in force what operators set by hand, and puts right which servers there are and where.

Both act through :class:`~pyconfd.haproxy.runtime.Runtime`; what is decided is in :mod:`pyconfd.haproxy.overrides`.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from pyconfd.errors import TransientError
from pyconfd.haproxy.expected import ExpectedBackend, expected_backend, keys_of, keys_with_servers
from pyconfd.haproxy.index import Index, Key
from pyconfd.haproxy.override_store import OverrideStore, worker_of
from pyconfd.haproxy.overrides import (
    Ended,
    Judgement,
    Moment,
    Override,
    OverrideKey,
    brought_back,
    judge,
    judge_missing,
    kept,
)
from pyconfd.haproxy.readback import ServerNow, takes_traffic
from pyconfd.haproxy.runtime import NotLive, Runtime
from pyconfd.model.plan import Command, RemoveServer
from pyconfd.model.status import BackendDown, LeavingStatus, LiveStatus, OverrideStatus, Paused

log = structlog.get_logger(__name__)

ROUND_S = 60.0
"""How long looking at every backend may take."""
SLICE = 20
"""Backends that are looked at each time, where that is enough for :data:`ROUND_S`."""
MAX_SLICE = 1_000
"""What a look never exceeds, so that no update waits long for it."""


LEAVING_SHOWN = 1_000
DOWN_SHOWN = 1_000
"""Servers on their way out whose ages the status gives."""


class Overrides:
    """What operators set by hand, on disk and in the process; ``clock`` gives seconds since the epoch."""

    def __init__(self, state_dir: str, *, clock: Callable[[], float] = time.time) -> None:
        self._store = OverrideStore(state_dir)
        self._clock = clock
        self._known: dict[OverrideKey, Override] = {}
        self._failing = False

    @property
    def known(self) -> Mapping[OverrideKey, Override]:
        """All that are in force, or wait for their server or their end."""
        return self._known

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    def refresh(self) -> None:
        """Take over what a command wrote since the last time; costs one look at the file's time."""
        try:
            if self._store.changed():
                self._known = self._store.read()
        except TransientError as error:
            self._complain(error)

    def kept(self, commands: Sequence[Command]) -> tuple[Command, ...]:
        """Return ``commands`` of an update so that they leave in force what was set by hand; to be executed instead."""
        self.refresh()
        return kept(commands, self._known, self._clock())

    def bring_back(self, runtime: Runtime, connect: Callable[[], None], index: Callable[[], Index]) -> None:
        """Set by hand what was set by hand before: a new worker begins with what its text says."""
        self.refresh()
        if not self._known:
            return
        try:
            connect()
            if runtime.abilities.runtime:
                self.after_reload(runtime, index())
        except NotLive as error:
            log.warning("overrides.not_brought_back", problem=str(error))

    def after_reload(self, runtime: Runtime, index: Index) -> int:
        """Bring all overrides into force in a new worker, whose servers are those of ``index``; give their number.

        Raises:
            NotLive: it cannot be told whether they are.
        """
        self.refresh()
        at = Moment(self._clock(), worker_of(runtime.pid))
        found = Judgement()
        for name, overrides in _by_backend(self._known).items():
            for backend in _expected(index, keys_of(index, name), runtime):
                found.extend(brought_back(backend, overrides.values(), at))
        runtime.execute(found.commands)
        self.learn(found)
        if found.commands:
            log.info("overrides.brought_back", count=len(found.commands), worker=runtime.pid)
        return len(found.commands)

    def learn(self, found: Judgement) -> None:
        """Remember what was found; what a command wrote meanwhile is not touched."""
        if not (found.seen or found.ended or found.noted):
            return
        before = dict(self._known)
        try:
            with self._store.edited(wait_s=0.05) as stored:
                _apply(found, stored, before)
                self._known = dict(stored)
            self._failing = False
        except TransientError as error:
            _apply(found, self._known, before)
            self._complain(error)

    def _complain(self, error: TransientError) -> None:
        if not self._failing:
            log.warning("overrides.not_stored", error=str(error))
        self._failing = True


def _apply(found: Judgement, stored: dict[OverrideKey, Override], before: Mapping[OverrideKey, Override]) -> None:
    """Change ``stored``, save where it is not any more what was judged."""
    changes: list[tuple[OverrideKey, Override | None]] = [(one.override.key, None) for one in found.ended]
    changes += [(one.key, one) for one in (*found.noted, *found.seen)]
    for key in dict.fromkeys(key for key, _ in changes):
        if stored.get(key) != before.get(key):
            continue
        stored.pop(key, None)
        final = [override for other, override in changes if other == key][-1]
        if final is not None:
            stored[key] = final


@dataclass(frozen=True, slots=True)
class DriftReport:
    """What a look found and did.

    ``looked`` backends were asked for. ``repaired`` and ``beyond`` are sentences; what is ``beyond`` needs a reload,
    and stays in the reports until then. ``brought_back`` overrides are in force again, or over.
    """

    looked: int = 0
    repaired: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    seen: tuple[Override, ...] = ()
    ended: tuple[Ended, ...] = ()
    executed: int = 0


class Drift:
    """Looks at a slice of the backends each time, all of them within :data:`ROUND_S`."""

    def __init__(self, overrides: Overrides, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._overrides = overrides
        self._monotonic = monotonic
        self._last_at: float | None = None
        self._queue: deque[Key] = deque()
        self._again: set[str] = set()
        self._beyond: set[str] = set()
        self._down: dict[str, BackendDown] = {}
        self.repaired_total = 0

    @property
    def beyond(self) -> tuple[str, ...]:
        """Return what only a reload repairs, as far as it was looked at."""
        return tuple(sorted(self._beyond))

    @property
    def down(self) -> tuple[BackendDown, ...]:
        """Return the backends without a server that is up as far as they were looked at, the oldest first."""
        return tuple(sorted(self._down.values(), key=lambda one: (one.since, one.backend)))

    def look(self, runtime: Runtime, index: Index, *, repair: bool = True) -> DriftReport:
        """Hold a slice of the process against ``index``, which it must be level with, and repair what differs.

        ``runtime`` is connected. Without ``repair`` nothing is changed, neither in the process nor on disk.

        Raises:
            NotLive: the process cannot be asked, or a repair did not take effect: a reload puts it right.
        """
        if not runtime.abilities.runtime or not runtime.pid:
            return DriftReport()
        self._overrides.refresh()
        at = Moment(self._overrides.now(), worker_of(runtime.pid))
        keys = self._slice(index, at)
        backends = _expected(index, keys, runtime)
        there = runtime.servers_by_backend([backend.name for backend in backends])
        leaving = {
            key: RemoveServer(one.backend, one.server, one.address, one.words or ())
            for key, one in runtime.leaving.items()
        }
        self._note_down(index, there, at.now)
        known = _by_backend(self._overrides.known)
        found = Judgement()
        for backend in backends:
            if backend.name in there:
                found.extend(judge(backend, there[backend.name], known.get(backend.name, {}), leaving, at))
            else:
                found.beyond.append(f"backend {backend.name} is missing")
        for name, overrides in known.items():
            if next(keys_of(index, name), None) is None:
                found.extend(judge_missing(overrides.values(), (), at))
        if repair:
            runtime.execute(found.commands)
            self._overrides.learn(found)
            self._again = {one.backend for one in found.commands if isinstance(one, RemoveServer)}
            # And those that wait for a server of theirs to go, so that it can come back.
            self._again |= {one.name for one in backends for server in one.servers if (one.name, server) in leaving}
            self._tell(found, {backend.name for backend in backends})
        return DriftReport(
            len(backends),
            tuple(found.repairs) if repair else (),
            tuple(found.beyond) if repair else (*found.repairs, *found.beyond),
            tuple(found.seen),
            tuple(found.ended),
            len(found.commands) if repair else 0,
        )

    def _note_down(self, index: Index, there: Mapping[str, Sequence[ServerNow]], now: float) -> None:
        """Remember which backends have no server that is up; those that left the configuration are forgotten."""
        self._down = {name: one for name, one in self._down.items() if next(keys_of(index, name), None) is not None}
        for name, servers in there.items():
            if any(takes_traffic(server) for server in servers) or (not servers and _answers_itself(index, name)):
                self._down.pop(name, None)
            else:
                since = self._down[name].since if name in self._down else now
                self._down[name] = BackendDown(name, len(servers), since)

    def _slice(self, index: Index, at: Moment) -> list[Key]:
        """Return the next sections, and those that something is known to be due for."""
        now = self._monotonic()
        elapsed = 0.0 if self._last_at is None else now - self._last_at
        self._last_at = now
        everything = keys_with_servers(index)
        count = min(MAX_SLICE, max(SLICE, math.ceil(len(everything) * elapsed / ROUND_S)))
        if not self._queue:
            self._queue.extend(everything)
        taken = [self._queue.popleft() for _ in range(min(count, len(self._queue)))]
        due = {one.backend for one in self._overrides.known.values() if one.expired(at.now) or one.worker != at.worker}
        found = [key for key in taken if key in index.texts]
        found += [key for name in sorted(due | self._again) for key in keys_of(index, name)]
        return list(dict.fromkeys(found))

    def _tell(self, found: Judgement, looked: set[str]) -> None:
        """Log what happened; what cannot be repaired once, until it is gone."""
        self.repaired_total += len(found.repairs)
        for detail in found.repairs:
            log.warning("drift.repaired", detail=detail)
        for override in found.seen:
            log.info("override.seen", server=override.name, value=override.shown, source=override.source.value)
        for override, reason in found.ended:
            log.info("override.ended", server=override.name, value=override.shown, reason=reason.value)
        still = {detail for detail in self._beyond if _subject(detail) not in looked}
        for detail in found.beyond:
            if detail not in self._beyond:
                log.warning("drift.beyond_repair", detail=detail)
        self._beyond = still | set(found.beyond)


def live_status(
    overrides: Overrides, runtime: Runtime, *, monotonic: float, paused: Paused | None, drift: Drift | None = None
) -> LiveStatus:
    """Return what status and metrics show; ``monotonic`` is the clock that ``runtime`` counts by, now."""
    now = overrides.now()
    leaving = sorted(runtime.leaving.values(), key=lambda one: one.since)
    return LiveStatus(
        paused,
        tuple(
            OverrideStatus(one.name, one.shown, one.since, one.until, one.source.value, one.missing_since)
            for one in overrides.known.values()
        ),
        tuple(
            LeavingStatus(f"{one.backend}/{one.server}", now - (monotonic - one.since))
            for one in leaving[:LEAVING_SHOWN]
        ),
        len(leaving),
        drift.repaired_total if drift is not None else 0,
        drift.beyond if drift is not None else (),
        down=drift.down[:DOWN_SHOWN] if drift is not None else (),
        down_total=len(drift.down) if drift is not None else 0,
    )


_ANSWERS = frozenset({"return", "redirect", "deny", "reject", "tarpit", "use-service", "silent-drop"})
_WITHOUT_SERVERS = frozenset({"dispatch", "redirect", "server", "server-template", "stats", "use-fcgi-app"})


def _answers_itself(index: Index, name: str) -> bool:
    """Return whether a backend without servers is meant to be so: it answers, or gets them from elsewhere."""
    for key in keys_of(index, name):
        section = index.section(key)
        for words in (line.words for line in section.lines) if section is not None else ():
            if words[0] in _WITHOUT_SERVERS or _ANSWERS.intersection(words[1:2]):
                return True
            if words[0] == "option" and {"transparent", "http_proxy"}.intersection(words[1:2]):
                return True
    return False


def _expected(index: Index, keys: Iterable[Key], runtime: Runtime) -> list[ExpectedBackend]:
    cookies = runtime.abilities.cookies
    found = (expected_backend(index, key, cookies=cookies) for key in keys)
    return [backend for backend in found if backend is not None]


def _by_backend(known: Mapping[OverrideKey, Override]) -> dict[str, dict[OverrideKey, Override]]:
    found: dict[str, dict[OverrideKey, Override]] = {}
    for key, override in known.items():
        found.setdefault(key.backend, {})[key] = override
    return found


def _subject(detail: str) -> str:
    """Return the backend that a sentence of :class:`Judgement` is about."""
    first = detail.removeprefix("backend ").partition(" ")[0]
    return first.partition("/")[0]
