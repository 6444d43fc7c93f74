"""Local checks: whether a process lives, haproxy answers and listens, the carrier can be trusted, gateways answer."""

import errno
import math
import os
import select
import selectors
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from pyconfd.vip.frames import drain, open_host_traffic
from pyconfd.vip.netlink import DefaultRoute, default_route

STARTED_S = 0.05
"""How soon a process that was started again is found."""
REPLACED_S = 1.0
"""How soon a pid file that names another process is seen while the former one lives."""

_KEEP_BYTES = 4096
_AT_ONCE_S = 0.001
"""A wait for an answer that is shorter than two more wake-ups; haproxy needs about a tenth of it."""

FLAPS_WITHIN_S = 60.0
"""A carrier that was lost before within this time is trusted later."""
LONGEST_DISTRUST_S = 32.0
QUIET_S = 0.75
"""Gateways are probed more often than that."""

_ROOT = 0


class ProcessMonitor:
    """The process whose number is in the file ``path``: its pidfd becomes readable in the moment in which it dies.

    ``name`` is what the kernel calls it: the number in a stale pid file may be another process's by now.
    """

    def __init__(
        self, path: str, name: str, selector: selectors.BaseSelector, on_death: Callable[[], None] | None = None
    ) -> None:
        self._path, self._name, self._selector, self._on_death = Path(path), name, selector, on_death
        self._descriptor = -1
        self.pid = 0
        """0 for none."""
        self.died = False
        """Whether the process ended, even if its successor runs already; reset by the caller that acted on it."""
        self._due = 0.0
        self._ever = self._lacks_file = False

    @property
    def alive(self) -> bool:
        """Return whether it lives."""
        return self._descriptor >= 0

    @property
    def unknown(self) -> bool:
        """Return whether it may live: there is no pid file, and this process has never seen it."""
        return self._lacks_file and not self._ever

    def poll(self, now: float) -> None:
        """Read the pid file if it is due."""
        if now < self._due:
            return
        self._due = now + (REPLACED_S if self.alive else STARTED_S)
        try:
            pid = int(self._path.read_text(encoding="ascii").split()[0])
            if pid == self.pid and self.alive:
                return
            descriptor = os.pidfd_open(pid)
        except (OSError, ValueError, IndexError, OverflowError) as error:
            self._lacks_file = isinstance(error, FileNotFoundError)
            return
        self._lacks_file = False
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.name() == self._name and process.status() != psutil.STATUS_ZOMBIE:
                self._forget()
                self._descriptor, self.pid, self._ever = descriptor, pid, True
                self._selector.register(descriptor, selectors.EVENT_READ, self._ended)
                return
        os.close(descriptor)

    def _ended(self) -> None:
        self._forget()
        self._due, self.died = 0.0, True
        # A reload of haproxy without a master process leaves a pid file with the next one's number.
        self.poll(0.0)
        if self._on_death is not None:
            self._on_death()

    def _forget(self) -> None:
        if self.alive:
            self._selector.unregister(self._descriptor)
            os.close(self._descriptor)
            self._descriptor, self.pid = -1, 0

    def kill(self) -> None:
        """Kill this very process, whichever has its number by now."""
        if self.alive:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)


class HaproxyProbe:
    """Asks haproxy again and again, on its socket (a path) or as a client does (an address and a port).

    ``misses`` counts the answers that were missed in a row, ``rounds`` the questions. An answer counts if it begins
    with ``expected`` and comes within ``timeout_s``. A new process has missed ``unproven`` until it answers.
    """

    def __init__(
        self,
        where: str | tuple[str, int],
        question: bytes,
        expected: bytes,
        selector: selectors.BaseSelector,
        *,
        interval_s: float,
        timeout_s: float,
        unproven: int,
    ) -> None:
        self._where, self._question, self._expected = where, question, expected
        self._interval_s, self._timeout_s = interval_s, timeout_s
        self._selector, self._unproven = selector, unproven
        self.misses = 0
        self.rounds = 0
        self.answer = b""
        self.due = 0.0
        """When :meth:`step` is to be called next."""
        self._now = 0.0
        self._waiting = False
        self._socket: socket.socket | None = None
        self._registered = False

    def distrust(self) -> None:
        """Count haproxy as silent until it has answered: the process is new."""
        self.misses = max(self.misses, self._unproven)

    def step(self, now: float) -> None:
        """Ask, or count a miss, if it is due."""
        slept, self._now = now - self._now, now
        if now < self.due:
            return
        if self._waiting:
            if self._socket is not None and slept > self._timeout_s / 2:
                # This process did not run itself for so long: haproxy gets its time again.
                self.due = now + self._timeout_s
                return
            self._close()
            self.misses += 1
            self.rounds += 1
        self._ask()

    def _ask(self) -> None:
        self._waiting, self.due = True, self._now + self._timeout_s
        where = self._where
        family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        failed = self._socket.connect_ex(where)
        if failed == errno.EINPROGRESS:
            self._wait_for(selectors.EVENT_WRITE, self._on_connected)
        elif failed:
            self._give_up()
        else:
            self._send()

    def _on_connected(self) -> bool:
        misses = self.misses
        self._unregister()
        self._send()
        return self.misses != misses

    def _send(self) -> None:
        if self._socket is None:
            return
        try:
            self._socket.send(self._question)
        except OSError:
            self._give_up()
            return
        if select.select([self._socket], [], [], _AT_ONCE_S)[0]:
            self._on_answer()
        else:
            self._wait_for(selectors.EVENT_READ, self._on_answer)

    def _on_answer(self) -> bool:
        """Read the answer; return whether it changes anything: one more that came in time does not."""
        if self._socket is None:
            return False
        try:
            answer = self._socket.recv(_KEEP_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            answer = b""
        if not answer or not answer.startswith(self._expected):
            self._give_up()
            return True
        self._close()
        changes = self.misses > 0 or self.rounds == 0
        self.misses = 0
        self.rounds += 1
        self._waiting = False
        self.answer = answer
        self.due = self._now + self._interval_s
        return changes

    def _give_up(self) -> None:
        """Close; :meth:`step` counts the miss when it is due: for a client at the next question.

        On the socket not before the time is over, as for silence: an overloaded haproxy refuses connections, too.
        """
        self._close()
        if not isinstance(self._where, str):
            self.due = self._now + self._interval_s

    def _wait_for(self, event: int, then: Callable[[], bool]) -> None:
        if self._socket is not None:
            self._selector.register(self._socket, event, then)
            self._registered = True

    def _unregister(self) -> None:
        if self._socket is not None and self._registered:
            self._selector.unregister(self._socket)
        self._registered = False

    def _close(self) -> None:
        self._unregister()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def is_full(show_info: bytes) -> bool:
    """Return whether haproxy has as many connections as it may: then it accepts no further one, on any node."""
    most = _number(show_info, b"Maxconn: ")
    return most is not None and (_number(show_info, b"CurrConns: ") or 0) >= most


def _number(show_info: bytes, name: bytes) -> int | None:
    """Return the number at the line that begins with ``name``; without splitting, as it runs twenty times a second."""
    begin = 0 if show_info.startswith(name) else show_info.find(b"\n" + name) + 1
    if not show_info.startswith(name, begin):
        return None
    value = show_info[begin + len(name) :].partition(b"\n")[0]
    return int(value) if value.isdigit() else None


def users_of(pid: int) -> set[int]:
    """Return the users that a process and its children run as, and root, as whom haproxy usually opens its ports.

    Whose sockets they are cannot be seen: the kernel shows this process no descriptors of another user's.
    """
    pids = [pid]
    with suppress(OSError):
        pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split())
    found = {_ROOT}
    for one in pids:
        with suppress(psutil.Error):
            found |= set(psutil.Process(one).uids())
    return found


class CarrierDamping:
    """When a carrier that is back is trusted [pure]: after ``settle_s``, twice as long after each further loss."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._carrier = True
        self._losses: list[float] = []
        self._back = -math.inf

    def back_s(self, now: float) -> float:
        """Return how long the carrier has been back; infinite if it was never lost."""
        return now - self._back

    def trusts(self, carrier: bool, now: float) -> bool:
        """Observe the carrier; return whether it is trusted. ``now`` is monotonic, in seconds."""
        self._losses = [at for at in self._losses if now - at < FLAPS_WITHIN_S]
        if carrier != self._carrier:
            self._carrier = carrier
            if carrier:
                self._back = now
            else:
                self._losses.append(now)
        if not carrier or not self._losses:
            return carrier
        patience = min(LONGEST_DISTRUST_S, self._settle_s * 2.0 ** (len(self._losses) - 1))
        return now - self._back >= patience


class Uplink:
    """The gateways as they answer ARP and neighbour solicitations, and the default routes by them."""

    def __init__(self, gateways: Sequence[str], interface: str) -> None:
        self.gateways = tuple(gateways)
        self._interface = interface
        self._answered: dict[str, float] = {}
        self._since = math.inf
        self._routes: dict[int, DefaultRoute] = {}
        self._traffic: socket.socket | None = None
        self._heard = -math.inf
        self.lost: DefaultRoute | None = None
        self.unanswered = 0
        """How often the gateways were asked in a hurry since anything came in."""

    def start(self, now: float) -> None:
        """Begin to count: silence before now says nothing."""
        self._since = self._heard = now
        self.unanswered = 0

    def on_claim(self, address: str, now: float) -> None:
        """Record a claim of a gateway's address."""
        if address in self.gateways:
            self._answered[address] = now
            self.unanswered = 0

    def answered_since(self, at: float) -> bool:
        """Return whether a gateway has answered since ``at``."""
        return any(answered >= at for answered in self._answered.values())

    def listen(self, now: float) -> None:
        """Check for any traffic at once.

        Raises:
            OSError: the interface is gone.
        """
        if self._traffic is None:
            self._traffic = open_host_traffic(self._interface)
        if drain(self._traffic):
            self._heard, self.unanswered = now, 0

    def age_s(self, now: float) -> float:
        """Return how long no gateway has answered; 0 where none is configured."""
        if not self.gateways:
            return 0.0
        return now - max(self._since, *self._answered.values(), -math.inf)

    def heard_age_s(self, now: float) -> float:
        """Return how long nothing at all has come in for this host, as far as it was looked at."""
        return now - max(self._heard, self._since)

    @property
    def ways(self) -> tuple[str, ...]:
        """Return the gateways of the default routes that were seen."""
        return tuple(sorted(route.gateway for route in self._routes.values()))

    def poll(self, now: float) -> None:
        """Check for lost routes and, only while the gateways are silent, for any traffic.

        Raises:
            OSError: the kernel does not answer, or the interface is gone.
        """
        for family in {6 if ":" in address else 4 for address in self.gateways}:
            route = default_route(family)
            if route is not None and route.gateway in self.gateways:
                self._routes[family] = route
                if self.lost is not None and self.lost.family == family:
                    self.lost = None
            elif family in self._routes:
                self.lost = self._routes[family]
        if self.age_s(now) <= QUIET_S and not self.unanswered:
            if self._traffic is not None:
                self._traffic.close()
                self._traffic = None
            self._heard = now
            return
        if self._traffic is None:
            self._heard = now
        self.listen(now)
