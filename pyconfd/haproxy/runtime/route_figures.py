"""The figures of each backend, added up over the workers of HAProxy: a reload or a restart takes nothing away.

A connection to each worker is kept open: one that was replaced goes on counting what its clients still ask, and HAProxy
ends it only after its last connection. So it is asked once more when only this one is left. Old workers that no
connection was made to, as before a restart of pyconfd, are asked over the master socket until they end.

How long answers took is in a stick table of each frontend (``count_latency`` in client.j2). Up to HAProxy 3.0 a worker
empties its tables when it is replaced, so they are read just before a reload.

Source: HAProxy management manual, 9.1 (CSV format), 9.3 (``show stat``, ``show table``, ``show info``).
"""

import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import add, le, sub
from typing import Protocol

import msgspec

from pyconfd.haproxy.config.spares import NO_SPARES, Spares
from pyconfd.haproxy.runtime.sockets import NoAnswer, RuntimeSocket, ask, processes
from pyconfd.haproxy.runtime.statistics import number, rows_of
from pyconfd.haproxy.runtime.traffic_history import Reading, TrafficHistory
from pyconfd.model.route_figures import BOUNDS_S, CLASSES, Counts, RouteFigures
from pyconfd.model.spares import spare_kind
from pyconfd.system.state_file import StateFile

EVERY_S = 30.0
"""How often all is read, and saved: what a worker that is killed has counted since then is lost."""
LOOK_S = 1.0
"""How often it is looked whether a worker was replaced, or ends."""
LIMIT_S = 1.0
"""How long a reload waits for what is being read."""
ANSWER_S = 3.0
"""How long an answer of a worker is waited for."""
MOST = 100_000
"""Of as many backends figures are kept, those that were counted last."""
_REMEMBERED = 16
"""Workers that have gone."""
FILE_NAME = "route-figures.json"

_TABLE = re.compile(r"^# table: (\S+), type: string, size:\d+, used:[1-9]\d*$", re.MULTILINE)
_ENTRY = re.compile(r"^0x\w+: key=(\S+) .*? (gpc0=.*)$", re.MULTILINE)
_STEPS = len(BOUNDS_S) + 1
_WRAP = 1 << 32
"""Counters of a table begin again at 0 then: with 30,000 requests a second after 40 hours."""
_STATISTICS = "show stat -1 2 -1"
"""Backends (2) only."""
_SUMS = (*(f"hrsp_{each}" for each in CLASSES), "stot", "bin", "bout", "wretr", "econ", "eresp")
_NUMBERS = re.compile(r"^(Pid|Start_time_sec|Stopping|CurrConns): (\d+)$", re.MULTILINE)


SavedCounts = list[tuple[str, Counts]]


class SavedWorker(msgspec.Struct, frozen=True):
    """What was read of a worker last: by backend, steps by ``FRONTEND BACKEND``. The same one if it began then."""

    pid: int
    began: int
    sums: SavedCounts
    steps: SavedCounts

    @property
    def identity(self) -> tuple[int, int]:
        """What no other worker has."""
        return self.pid, self.began


class SavedFigures(msgspec.Struct, frozen=True):
    """The sums, and what they have of workers that may still be there."""

    sums: SavedCounts
    steps: SavedCounts
    workers: list[SavedWorker]


def figures_file(state_dir: str) -> StateFile[SavedFigures]:
    """Return the file that has them."""
    return StateFile(f"{state_dir}/{FILE_NAME}", SavedFigures, effect="figures of routes begin at 0")


class FiguresWatch:
    """Read the figures of all workers in a thread.

    ``paths`` returns the sockets to ask, ``master`` that of the master process, ``spares`` the spares of a worker by
    its process; the thread calls them. Between :meth:`start` and :meth:`stop`; :meth:`newest` and :meth:`read` may be
    called from any thread.
    """

    def __init__(
        self,
        paths: Callable[[], Sequence[str]],
        master: Callable[[], str],
        file: StateFile[SavedFigures],
        spares: Callable[[int], Spares] = lambda _pid: NO_SPARES,
        *,
        every_s: float = EVERY_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._paths, self._master, self._file, self._spares = paths, master, file, spares
        self._every_s, self._look_s = every_s, look_s
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        saved = file.load() or SavedFigures([], [], [])
        self._sums, self._steps = _Sums(saved.sums, len(_SUMS)), _Sums(saved.steps, _STEPS)
        self._known = {each.identity: each for each in saved.workers}
        self._workers: list[WorkerFigures] = []
        self._read_at = -math.inf
        self.history = TrafficHistory()
        """May be read from any thread."""

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="route-figures", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Read all once more, save it and stop the thread."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()

    def newest(self) -> Mapping[str, RouteFigures]:
        """Return the figures of now by backend."""
        with self._lock:
            self._look()
            if time.monotonic() - self._read_at >= self._look_s:
                self._read()
            return self._reading().figures()

    def read(self) -> None:
        """Read all now, since a reload comes; not where a worker hangs, which a reload may be for."""
        if self._lock.acquire(timeout=LIMIT_S):
            try:
                self._look()
                self._read()
            finally:
                self._lock.release()

    def _run(self) -> None:
        while True:
            is_last = self._ends.wait(self._look_s)
            with self._lock:
                self._look()
                if is_last or time.monotonic() - self._read_at >= self._every_s:
                    self._read()
                    self._save()
                    self._note()
                if is_last:
                    break
        for worker in self._workers:
            worker.ask.close()

    def _look(self) -> None:
        """Find the worker that came, and read those that end for the last time."""
        for worker in list(self._workers):
            try:
                worker.look()
                if worker.is_alone:
                    self._add(worker)
            except NoAnswer:
                worker.is_alone = True
            if worker.is_alone:
                worker.ask.close()
                self._workers.remove(worker)
                # The master may name it for a moment still.
                self._known = {each.identity: each for each in [*self._known.values(), worker.saved()][-_REMEMBERED:]}
        if all(worker.is_stopping for worker in self._workers):
            self._find()

    def _find(self) -> None:
        for path in self._paths():
            with suppress(NoAnswer):
                self._follow(WorkerFigures(_Kept(path)))
                break
        with suppress(NoAnswer):
            for old in processes(self._master(), timeout_s=ANSWER_S).old_workers:
                self._follow(WorkerFigures(_OverMaster(self._master(), old.pid)))

    def _follow(self, worker: "WorkerFigures") -> None:
        if any(each.pid == worker.pid for each in self._workers):
            worker.ask.close()
            return
        if saved := self._known.get((worker.pid, worker.began)):
            worker.sums, worker.steps = dict(saved.sums), dict(saved.steps)
        self._workers.append(worker)
        self._read_at = -math.inf

    def _read(self) -> None:
        for worker in self._workers:
            with suppress(NoAnswer):
                self._add(worker)
        self._read_at = time.monotonic()

    def _reading(self) -> Reading:
        """Return what was read last; its mappings are those that the next reading changes."""
        sessions = Counter[str]()
        of_http = set[str]()
        for worker in self._workers:
            sessions.update(worker.sessions)
            of_http |= worker.of_http
        # What no worker has any more was removed; that is not known before the newest one has answered.
        is_known = any(worker.sessions and not worker.is_stopping for worker in self._workers)
        shown = {backend: sessions[backend] for backend in self._sums.values if backend in sessions or not is_known}
        return Reading(self._read_at, self._sums.values, self._steps.values, shown, frozenset(of_http))

    def _note(self) -> None:
        if self._workers:  # what a worker counted before it was found is of no time that is known
            now = self._reading()
            self.history.note(time.time(), now._replace(sums=dict(now.sums), steps=dict(now.steps)))

    def _add(self, worker: "WorkerFigures") -> None:
        sums, steps = worker.counted(self._spares(worker.pid))
        self.history.count(sums, steps)
        self._sums.add(sums)
        self._steps.add(steps)

    def _save(self) -> None:
        # One that was given up may only have been slow.
        workers = [*({**self._known, **{(each.pid, each.began): each.saved() for each in self._workers}}).values()]
        self._file.save(SavedFigures([*self._sums.values.items()], [*self._steps.values.items()], workers))


class _Sums:
    """Counts by backend, those that grew last at the end; what another version counted otherwise is left out."""

    def __init__(self, values: SavedCounts, length: int) -> None:
        self.values = {backend: counts for backend, counts in values if len(counts) == length}

    def add(self, more: Mapping[str, Counts]) -> None:
        for backend, counts in more.items():
            before = self.values.pop(backend, None) or (0,) * len(counts)
            self.values[backend] = tuple(map(add, before, counts))
        for backend in list(self.values)[: max(0, len(self.values) - MOST)]:
            del self.values[backend]


class WorkerFigures:
    """One worker, asked by ``ask``, and what was read of it last, by its names. Raises: NoAnswer, as all methods do."""

    def __init__(self, ask: "_Ask") -> None:
        self.ask = ask
        self.sums: dict[str, Counts] = {}
        self.steps: dict[str, Counts] = {}
        self.sessions: dict[str, int] = {}
        """Those of now, of each backend that it has."""
        self.of_http: set[str] = set()
        self._served: dict[str, str] = {}
        self.pid = self.began = 0
        self.is_stopping = False
        self.is_alone = False
        """It was replaced, and has no connection but ours."""
        self.look()

    def saved(self) -> SavedWorker:
        """Return what was read of it last."""
        return SavedWorker(self.pid, self.began, [*self.sums.items()], [*self.steps.items()])

    def look(self) -> None:
        """Find out whether it ends."""
        (info,) = self.ask(["show info"])
        numbers = {name: int(number) for name, number in _NUMBERS.findall(info)}
        if numbers.get("Pid") != (self.pid or numbers.get("Pid", 0)):
            raise NoAnswer("show info", OSError("the worker has ended"))  # as the master says
        self.pid, self.began = numbers["Pid"], numbers.get("Start_time_sec", 0)
        self.is_stopping = bool(numbers.get("Stopping"))
        self.is_alone = self.is_stopping and not numbers.get("CurrConns")

    def counted(self, spares: Spares) -> tuple[dict[str, Counts], dict[str, Counts]]:
        """Return how much more it has counted than it had when it was read last, by backends' own names."""
        statistics, listed = self.ask([_STATISTICS, "show table"])
        names = _TABLE.findall(listed)
        tables = self.ask([f"show table {name}" for name in names]) if names else []
        if spares.serving:  # of a worker that was replaced it is not known any more
            self._served = {spare: backend for backend, spare in spares.serving.items()}
        sums: dict[str, Counts] = {}
        steps: dict[str, Counts] = {}
        self.sessions, self.of_http = {}, set()
        for backend, mode, sessions, counts in statistics_of(statistics):
            own = self._served.get(backend, backend)
            _note(self.sums, backend, counts, sums, own)
            if spare_kind(own):
                sums.pop(own, None)  # it serves nothing
                continue
            self.sessions[own] = sessions
            if mode == "http":
                self.of_http.add(own)
        for frontend, table in zip(names, tables, strict=True):
            for backend, counts in entries_of(table):
                name = f"{frontend} {backend}"
                _note(self.steps, name, _unwrapped(self.steps.get(name), counts), steps, backend)
        return sums, steps


def _note(known: dict[str, Counts], name: str, now: Counts, more: dict[str, Counts], own: str) -> None:
    """Put what ``now`` has more than is ``known`` under ``own`` into ``more``; what became less began again at 0."""
    before = known.get(name)
    if now != before:
        is_later = before is not None and len(before) == len(now) and all(map(le, before, now))
        grown = tuple(map(sub, now, before)) if before is not None and is_later else now
        more[own] = tuple(map(add, more[own], grown)) if own in more else grown
        known[name] = now


def _unwrapped(before: Counts | None, now: Counts) -> Counts:
    """Return the counters of a table, which have 32 bits, as those nearest to what they were ``before``."""
    if before is None:
        return now
    return tuple(each + (former - each + _WRAP // 2) // _WRAP * _WRAP for former, each in zip(before, now, strict=True))


class _Ask(Protocol):
    """Sends commands to one worker; returns an answer for each. Raises: NoAnswer."""

    def __call__(self, commands: Sequence[str]) -> list[str]: ...

    def close(self) -> None: ...


class _Kept:
    """Over a connection to the worker that answers at first, which is kept."""

    def __init__(self, path: str) -> None:
        self._socket = RuntimeSocket(path, timeout_s=ANSWER_S)
        self._pid = 0

    def __call__(self, commands: Sequence[str]) -> list[str]:
        worker, answers = self._socket.ask(commands, pid=self._pid)
        self._pid = worker.pid
        return answers

    def close(self) -> None:
        self._socket.close()


class _OverMaster:
    """Over the master socket, with a connection for each command."""

    def __init__(self, path: str, pid: int) -> None:
        self._path, self._pid = path, pid

    def __call__(self, commands: Sequence[str]) -> list[str]:
        sent = (f"@!{self._pid} {command}" for command in commands)
        return [ask(self._path, command, timeout_s=ANSWER_S).strip("\n") for command in sent]

    def close(self) -> None:
        pass


def statistics_of(answer: str) -> Iterator[tuple[str, str, int, Counts]]:
    """Return the name, mode, sessions of now and sums of each backend; nothing of an answer of another form."""
    with suppress(ValueError):
        for name, mode, sessions, *sums in rows_of(answer, "pxname", "mode", "scur", *_SUMS):
            yield name, mode, number(sessions), tuple(map(number, sums))


def entries_of(answer: str) -> Iterator[tuple[str, Counts]]:
    """Return the backend and counters of each entry of a table; entries of another form are left out."""
    for backend, counters in _ENTRY.findall(answer):
        counts = tuple(int(each.partition("=")[2]) for each in counters.split())
        if len(counts) == _STEPS:
            yield backend, counts
