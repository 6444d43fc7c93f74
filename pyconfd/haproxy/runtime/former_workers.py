"""What the workers that reloads have replaced still serve, asked over the master socket."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pyconfd.haproxy.process.observation import OldWorker
from pyconfd.haproxy.runtime.servers_now import ALL_SESSIONS, servers_now, sessions_now
from pyconfd.haproxy.runtime.sockets import NoAnswer, ask, connections_of, processes

_LIMIT_S = 2.0
"""How long a former worker is waited for: one that hangs must not hold up what is known of the others."""


@dataclass(frozen=True, slots=True)
class FormerSessions:
    """The sessions of one former worker, by backend and server, with the addresses of these; none where it hangs."""

    worker: OldWorker
    sessions: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
    addresses: Mapping[tuple[str, str], str] = field(default_factory=lambda: MappingProxyType({}))
    answers: bool = True


def sessions_of_former(master_socket: str) -> tuple[FormerSessions, ...]:
    """Return the servers with sessions of each former worker, the oldest worker first.

    Raises:
        NoAnswer: the master cannot be asked.
    """
    return tuple(_sessions_of(master_socket, worker) for worker in processes(master_socket).old_workers)


def _sessions_of(master_socket: str, worker: OldWorker) -> FormerSessions:
    try:
        answers = [
            ask(master_socket, f"@!{worker.pid} {question}", timeout_s=_LIMIT_S)
            for question in (ALL_SESSIONS, "show servers state")
        ]
        sessions = {key: count for key, count in sessions_now(answers[0]) if count}
        servers = servers_now(answers[1], {name for _, name in sessions}) if sessions else ()
        addresses = {(one.backend, one.name): one.target for one in servers}
    except (NoAnswer, ValueError):
        return FormerSessions(worker, answers=False)  # it hangs, or has ended just now
    return FormerSessions(worker, sessions, addresses)


def connections_of_former(master_socket: str, workers: tuple[OldWorker, ...]) -> int:
    """Return how many connections these former workers have, as far as they answer."""
    total = 0
    for worker in workers:
        try:
            total += connections_of(master_socket, worker.pid, timeout_s=_LIMIT_S)
        except NoAnswer:
            continue
    return total
