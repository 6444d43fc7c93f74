"""Changes the running HAProxy: commands in one batch, every answer checked, the result read back.

Whatever is not as it should be raises :class:`NotConfirmed`; then a reload puts everything right.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.spares import LISTS, NO_SPARES, Spares, map_path, spares_of
from pyconfd.haproxy.runtime.batch import (
    batches,
    checks_of,
    is_same,
    is_there,
    leftovers,
    others,
    refused_servers,
    split_at_publication,
    unfulfilled,
)
from pyconfd.haproxy.runtime.servers_now import ServerNow, checks_now, servers_now, sessions_now, stat_questions
from pyconfd.haproxy.runtime.sockets import NoAnswer, ReplacedError, RuntimeSocket, Worker
from pyconfd.model.operations import (
    AddBackend,
    AddCertificate,
    AddServer,
    Command,
    EmptyBackend,
    FillSpare,
    LeadToSpare,
    RemoveBackend,
    RemoveServer,
    ReplaceMap,
    SocketLine,
    UpdateCertificate,
)

DELETED_AT_ONCE = 250
"""Servers that are deleted at one poll, each second: thousands that left must not keep the next change waiting."""

FORMER_ANSWERS_S = 1.0
"""How long after a reload the former worker may still accept connections: until it has handled its signal."""

_FORMER_POLL_S = 0.01

log = structlog.get_logger(__name__)


class NotConfirmed(Exception):  # noqa: N818 - it says what happened
    """A change was not confirmed: what runs is not known any more."""


class OtherWorker(NotConfirmed):
    """Another worker answers than the one that was meant: HAProxy was reloaded by another program."""


class PartlyRefused(NotConfirmed):
    """HAProxy rejected these servers and took everything else: what runs is known.

    ``refused`` has HAProxy's answer for each.
    """

    def __init__(self, refused: Mapping[AddServer, str]) -> None:
        self.refused = refused
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        super().__init__(f"haproxy answered {next(iter(refused.values()))}{more}")


@dataclass(frozen=True, slots=True)
class Leaving:
    """A server on its way out: what it was, and since when (seconds of the monotonic clock).

    ``words`` are None where they are not known, since a former pyconfd removed it.
    """

    backend: str
    server: str
    address: str
    words: tuple[str, ...] | None
    since: float

    @property
    def key(self) -> tuple[str, str]:
        """Backend and name."""
        return self.backend, self.server

    @property
    def command(self) -> RemoveServer:
        """What sends it away."""
        return RemoveServer(self.backend, self.server, self.address, self.words or ())


class Runtime:
    """One running HAProxy, as its runtime socket shows it.

    ``leaving`` are the servers that get nothing new and are deleted when their last session has gone: the process is
    the rendering and these. ``dynamic_backends``: new backends are added where this HAProxy can, in place of spares.
    """

    def __init__(
        self,
        *,
        progress: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
        timeout_s: float | None = None,
        pause: Callable[[float], None] = time.sleep,
        dynamic_backends: bool = False,
    ) -> None:
        self._dynamic_backends = dynamic_backends
        self._progress = progress
        self._pause = pause
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._socket: RuntimeSocket | None = None
        self._abilities = Abilities()
        self.pid = 0
        self.leaving: dict[tuple[str, str], Leaving] = {}
        self._leaving_backends: set[str] = set()
        self._spares = NO_SPARES

    def close(self) -> None:
        """Close the connection; everything goes on serving."""
        if self._socket is not None:
            self._socket.close()

    def forget(self) -> None:
        """Forget the former worker: the new one has what it loaded and nothing else."""
        self.close()
        self.pid = 0
        self._begin_with(NO_SPARES)

    def _begin_with(self, spares: Spares) -> None:
        self.leaving.clear()
        self._leaving_backends.clear()
        self._spares = spares

    def connect(self, paths: Iterable[str], worker_pid: int = 0) -> Abilities:
        """Find a socket among ``paths`` that may change the process, and ask what this HAProxy can do.

        ``worker_pid`` is the running worker, 0 if that is not known: another one may answer for a moment only.
        """
        why = "add `stats socket PATH mode 660 level admin` to the global section: then most changes need no reload"
        answered = False
        for path in paths:
            if self._socket is None or self._socket.path != path:
                self.close()
                self._socket = RuntimeSocket(path, timeout_s=self._timeout_s)
                self.pid = 0
            try:
                worker, (commands, level) = self._first_answers(self._socket, worker_pid)
            except NoAnswer as error:
                forbidden = f"{error}: let pyconfd's group use it (mode 660, group NAME)"
                why = forbidden if error.forbidden else str(error)
                continue
            answered = True
            if "admin" not in level:  # ``help`` lists what another level may not do either
                why = f"{path} is not `level admin`; with that, most changes need no reload"
                continue
            if "add server" not in commands:
                why = "HAProxy 2.6 and later can be changed while they run"
                continue
            if worker.stopping:
                self.close()
                why = f"{path}: a worker of haproxy answers that is about to end"
                continue
            takes_backends = self._dynamic_backends and "add backend" in commands
            if worker.pid != self.pid:
                self.pid = worker.pid
                self._begin_with(NO_SPARES)
                try:
                    self._spares = NO_SPARES if takes_backends else self._spares_of_worker()
                except (NoAnswer, NotConfirmed) as error:
                    self.close()
                    self.pid = 0
                    why = str(error)
                    continue
            self._abilities = Abilities(
                runtime=True,
                why="",
                # Cookies on added servers came together with the command `wait`, in 3.0.
                cookies="\n  wait " in commands,
                backends=takes_backends,
                answered=True,
            )
            return self.abilities
        self.close()
        self._socket = None
        self.pid = 0
        self._abilities = Abilities(why=why, answered=answered)
        return self.abilities

    def _spares_of_worker(self) -> Spares:
        """Ask for the spares, and which of them are in use: another pyconfd may have filled some."""
        lists = self._ask(LISTS)
        path = map_path(lists)
        return spares_of(path, lists[0], *self._ask([f"show map {path}", "show servers state"])) if path else NO_SPARES

    def _first_answers(self, to: RuntimeSocket, worker_pid: int) -> tuple[Worker, list[str]]:
        ends = self._monotonic() + FORMER_ANSWERS_S
        while True:
            worker, answers = to.ask(["help", "show cli level"])
            if worker_pid in {0, worker.pid} or self._monotonic() >= ends:
                return worker, answers
            to.close()
            self._pause(_FORMER_POLL_S)

    @property
    def abilities(self) -> Abilities:
        """What can be done now; nothing before :meth:`connect`."""
        return replace(self._abilities, spares=self._spares) if self._spares.map_path else self._abilities

    @property
    def spares(self) -> Spares:
        """The spares of this worker, and which backends they serve."""
        return self._spares

    def execute(self, commands: Sequence[Command]) -> None:
        """Carry out ``commands`` in order and see that they took effect.

        Raises:
            PartlyRefused: HAProxy did not take some of the servers.
            NotConfirmed: they did not, or that is not known; says which.
        """
        refused: dict[AddServer, str] = {}
        try:
            for batch in batches(commands):
                self._use_spares([command for command in batch if isinstance(command, FillSpare)])
                _judge_switches(batch, refused)
                refused |= self._execute(batch)
                self._progress()
        except NoAnswer as error:
            self.close()
            raise NotConfirmed(str(error)) from error
        if refused:
            raise PartlyRefused(refused)

    def _execute(self, commands: Sequence[Command]) -> dict[AddServer, str]:
        for command in commands:
            if isinstance(command, ReplaceMap):
                self._replace_map(command)
        if any(isinstance(command, UpdateCertificate | AddCertificate) for command in commands):
            self._end_transactions()
        made, after = split_at_publication(commands)
        sent = [(command, line) for command in made for line in self._lines(command)]
        sent += [(command, command.published()) for command in made if isinstance(command, AddBackend)]
        sent += [(command, line) for command in after for line in self._lines(command)]
        questions = checks_of(commands)
        answers = self._sent([line for _, line in sent], questions)
        refused = refused_servers(sent, answers)
        if refused:
            commands = others(commands, refused)
        kept = set(commands) if refused else None
        for (command, line), answer in zip(sent, answers, strict=False):
            if kept is None or command in kept:
                _judge(line, answer)
        answered = dict(zip(questions, answers[len(sent) :], strict=True))
        why = unfulfilled(commands, answered)
        if not why and (said := is_there(refused, answered)):
            why = f"haproxy answered {said}, and has that server"
        if why:
            raise NotConfirmed(why)
        self._note(commands)
        return refused

    def _carried_out(self, lines: Sequence[SocketLine]) -> None:
        """Send ``lines``, and see that each is answered as it should be."""
        for line, answer in zip(lines, self._sent(lines), strict=True):
            _judge(line, answer)

    def _sent(self, lines: Sequence[SocketLine], questions: Sequence[str] = ()) -> list[str]:
        """Send ``lines`` and ``questions``, and return the answers."""
        unsafe = next((line for line in lines if not line.safe), None)
        if unsafe is not None:
            raise NotConfirmed(f"{unsafe.shown[:300]!r} cannot be sent over the socket")
        return self._ask([*(line.text for line in lines), *questions])

    def _end_transactions(self) -> None:
        (answer,) = self._ask(["show ssl cert"])
        left = leftovers(answer)
        if left:
            log.warning("certificate_transactions.aborted", certificates=[line.shown.split()[-1] for line in left])
            self._carried_out(left)

    def _ask(self, lines: Sequence[str]) -> list[str]:
        if self._socket is None:
            raise NotConfirmed(self._abilities.why)
        if not self.pid:
            raise NotConfirmed("which worker of haproxy serves is not known any more")
        try:
            worker, answers = self._socket.ask([*map(self._spares.sent, lines)], pid=self.pid)
        except NoAnswer as error:
            if isinstance(error.__cause__, ReplacedError):
                raise OtherWorker(str(error)) from error
            raise
        if worker.stopping or worker.pid != self.pid:
            self.close()
            self.pid = 0
            raise OtherWorker("a former worker of haproxy answers: another program reloaded it")
        return [*map(self._spares.understood, lines, answers)]

    def _use_spares(self, commands: Sequence[FillSpare]) -> None:
        """Use these spares from now on; they are proven empty first: what is in one might get traffic of others."""
        answers = self._ask([f"show servers state {command.spare}" for command in commands]) if commands else []
        for command, answer in zip(commands, answers, strict=True):
            try:
                found = [server.name for server in servers_now(answer)]
            except ValueError as error:
                raise NotConfirmed(f"{command.spare}: {error}") from error
            if found:
                raise NotConfirmed(f"the spare backend {command.spare} is not empty: it has {', '.join(found[:3])}")
            self._spares = self._spares.using(command.backend, command.spare)
            # What drains in its former section is not found by its name any more, and goes with that.
            for key in [key for key in self.leaving if key[0] == command.backend]:
                del self.leaving[key]

    def _lines(self, command: Command) -> list[SocketLine]:
        if isinstance(command, AddServer) and (former := self.leaving.get((command.backend, command.server))):
            if former.address != command.address or former.words is None or not is_same(former.words, command):
                raise NotConfirmed(f"server {command.backend}/{command.server} is still there as what it was before")
            return command.revival()
        if isinstance(command, ReplaceMap):
            return []
        question = command.first_question()
        return command.socket_lines(self._ask([question])[0] if question else "")

    def _replace_map(self, command: ReplaceMap) -> None:
        (answer,) = self._ask([command.preparation().text])
        _judge(command.preparation(), answer)
        for line in command.filled(answer):
            self._carried_out([line])
            self._progress()

    def _note(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, RemoveServer):
                self.note_leaving(command)
            elif isinstance(command, RemoveBackend):
                if isinstance(command, EmptyBackend):
                    self._spares = self._spares.without(command.backend)
                else:
                    self._leaving_backends.add(command.backend)
                for server in command.servers:
                    self.note_leaving(server)
            elif isinstance(command, AddServer):
                self.leaving.pop((command.backend, command.server), None)

    def note_leaving(self, command: RemoveServer) -> None:
        """Record that a server drains: it is deleted when its last session has ended."""
        key = command.backend, command.server
        self.leaving[key] = Leaving(*key, command.address, command.words, self._monotonic())

    def servers(self, backends: Sequence[str] = ()) -> list[ServerNow]:
        """Return the servers of these backends, of all where none is named.

        Raises:
            NotConfirmed: the process cannot be asked.
        """
        answers = self._asked([f"show servers state {name}" for name in backends] or ["show servers state"])
        try:
            return [server for answer in answers for server in servers_now(answer)]
        except ValueError as error:
            self.close()
            raise NotConfirmed(str(error)) from error

    def server_states(self, backends: Sequence[str]) -> list[str | None]:
        """Return the answer to ``show servers state`` of each of these backends; None for one that is not there.

        Raises:
            NotConfirmed: the process cannot be asked.
        """
        answers = self._asked([f"show servers state {name}" for name in backends])
        found = [None if "Can't find backend" in answer else answer for answer in answers]
        for answer in found:
            if answer is not None and "# be_id " not in answer:
                raise NotConfirmed(answer.strip()[:200] or "an empty answer")
        return found

    def sessions(self, backends: Sequence[str]) -> dict[tuple[str, str], int]:
        """Return the sessions of each server of these backends.

        Raises:
            NotConfirmed: the process cannot be asked.
        """
        answers = self._asked(stat_questions(backends))
        return {key: count for answer in answers for key, count in sessions_now(answer)}

    def checks(self, backend: str) -> dict[tuple[str, str], str]:
        """Return what the last health check of each server of a backend said.

        Raises:
            NotConfirmed: the process cannot be asked.
        """
        (answer,) = self._asked(stat_questions([backend]))
        try:
            return dict(checks_now(answer))
        except ValueError as error:
            raise NotConfirmed(str(error)) from error

    def _asked(self, questions: Sequence[str]) -> list[str]:
        try:
            return self._ask(questions)
        except NoAnswer as error:
            self.close()
            raise NotConfirmed(str(error)) from error

    def reap(self, limit_s: float) -> None:
        """Delete the servers that have no session any more; end those sessions that are older than ``limit_s``.

        Nothing depends on it: what cannot be deleted now is tried again.
        """
        if not self.leaving and not self._leaving_backends:
            return
        try:
            for key in self._reaped(limit_s):
                self.leaving.pop(key, None)
            backends = sorted(self._leaving_backends - {backend for backend, _ in self.leaving})
            answers = self._ask([f"del backend {backend}" for backend in backends]) if backends else []
        except (NoAnswer, NotConfirmed, ValueError) as error:
            log.info("servers.delete_failed", problem=str(error), servers=len(self.leaving))
            self.close()
            return
        for backend, answer in zip(backends, answers, strict=True):
            if "deleted" in answer or "No such backend" in answer:
                self._leaving_backends.discard(backend)

    def _reaped(self, limit_s: float) -> list[tuple[str, str]]:
        now = self._monotonic()
        backends = list(dict.fromkeys(backend for backend, _ in self.leaving))
        answers = self._ask(stat_questions(backends))
        used = {key: count for answer in answers for key, count in sessions_now(answer)}
        gone = [key for key in self.leaving if key not in used]
        tried: dict[tuple[str, str], int] = {}
        lines: list[str] = []
        for key, server in self.leaving.items():
            count, name = used.get(key, 0), "/".join(key)
            if key not in used or (count and now - server.since < limit_s) or len(tried) >= DELETED_AT_ONCE:
                continue
            lines.append(f"set server {name} state maint")
            if count:
                # They end a moment later: such a server is deleted the next time.
                log.info("server.sessions_ended", server=name, sessions=count, limit_s=limit_s)
                lines.append(f"shutdown sessions server {name}")
            tried[key] = len(lines)
            lines.append(f"del server {name}")
        answers = self._ask(lines) if lines else []
        return [*gone, *(key for key, at in tried.items() if "Server deleted" in answers[at])]


def _judge_switches(commands: Iterable[Command], refused: Iterable[AddServer]) -> None:
    """See that no backend that serves is led to a spare without some of its servers."""
    lacking = {server.backend for server in refused}
    for command in commands:
        if isinstance(command, LeadToSpare) and command.changed and command.backend in lacking:
            raise NotConfirmed(f"{command.spare} lacks servers of {command.backend}, which goes on as it was")


def _judge(line: SocketLine, answer: str) -> None:
    if line.refused(answer):
        raise NotConfirmed(f"haproxy answered {line.shown!r} with {answer.strip()[:300]!r}")
