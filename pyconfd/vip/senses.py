"""What the hook sees: processes, haproxy's answers, the interface, what passes it, and keepalived's fifo."""

import os
import selectors
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pyconfd.settings.vip import VipSettings, health_place
from pyconfd.vip.asking import Asking, Question, is_full
from pyconfd.vip.frames import Advert, Claim, hardware_text
from pyconfd.vip.listeners import Listener, Ownership, listeners
from pyconfd.vip.netlink import Link
from pyconfd.vip.policy import NodeFacts, Role, Shared
from pyconfd.vip.processes import ProcessWatch
from pyconfd.vip.topology import Topology
from pyconfd.vip.tracking import ROLES
from pyconfd.vip.uplink import Damping, Uplink
from pyconfd.vip.wire import Wire

PORTS_S = 0.5
FIFO_S = 1.0
HEALTH_S = 0.25
_DAEMON_SILENT_S = 180.0


class Audience(Protocol):
    """Who is told what was seen."""

    def passed(self, said: Advert | Claim, own: str, *, outgoing: bool) -> bool:
        """Take what passed the interface, and say whether it is worth a decision; ``own`` is its hardware address."""
        ...

    def role(self, name: str, role: Role) -> None:
        """Take what keepalived says of an instance."""
        ...

    def keepalived_died(self) -> None:
        """Take that keepalived's VRRP process is no more."""
        ...

    def trouble(self, fine: bool, what: str, error: str) -> None:
        """Take that something of the hook's own works, or does not."""
        ...


class Senses:
    """Everything that is looked at; :meth:`look` is called each turn, the rest by what ``selector`` finds ready.

    What is called so gives False where nothing has to be decided about it.
    """

    def __init__(
        self, vip: VipSettings, topology: Topology, daemon_status: str, selector: selectors.BaseSelector, to: Audience
    ) -> None:
        self._vip, self._topology, self._selector, self._to = vip, topology, selector, to
        self._daemon_status = Path(daemon_status)
        self.haproxy = ProcessWatch(vip.haproxy_pid_file, "haproxy", selector)
        self._haproxy_pid = 0
        ping = Question(vip.haproxy_socket, b"show info\n", b"", vip.ping_interval_s, vip.ping_timeout_s)
        self.ping = Asking(ping, selector, unproven=vip.ping_misses)
        self.health = _health(vip, selector)
        self.keepalived = ProcessWatch(vip.vrrp_pid_file, "keepalived", selector, to.keepalived_died)
        self.keepalived_parent = ProcessWatch(vip.keepalived_pid_file, "keepalived", selector)
        self.link = Link(topology.interface)
        self._link_descriptor = self.link.fileno()
        selector.register(self._link_descriptor, selectors.EVENT_READ, self._read_link)
        self.wire: Wire | None = None
        self._fifo = -1
        self._fifo_rest = b""
        self._ownership = Ownership()
        self.closed_ports: frozenset[str] = frozenset()
        self.foreign_ports: frozenset[str] = frozenset()
        self._damping = Damping(vip.carrier_settle_s)
        self.carrier_trusted = True
        self.uplink = Uplink(vip.gateways, topology.interface)
        self.uplink.start(time.monotonic())
        self.shared: frozenset[Shared] = frozenset()
        self._ports_due = self._fifo_due = 0.0

    @property
    def complete(self) -> bool:
        """Return whether enough was seen to decide: haproxy is dead, or has answered or missed a question."""
        return self.ping.rounds > 0 or not self.haproxy.alive

    @property
    def full(self) -> bool:
        """Return whether haproxy serves as many connections as it may."""
        return self.haproxy.alive and is_full(self.ping.answer)

    def facts(self, now: float, peers_seen: float) -> NodeFacts:
        """Return what is so for all routers; ``peers_seen`` is when one of the peers was."""
        return NodeFacts(
            haproxy_alive=self.haproxy.alive,
            haproxy_misses=self.ping.misses,
            haproxy_full=self.full,
            health_misses=self.health.misses if self.health else 0,
            closed_ports=self.closed_ports,
            foreign_ports=self.foreign_ports,
            carrier=self.link.state.carrier,
            carrier_trusted=self.carrier_trusted,
            carrier_s=self._damping.back_s(now),
            gateway_age_s=self.uplink.age_s(now),
            peers_age_s=now - peers_seen,
            heard_age_s=self.uplink.heard_age_s(now),
            route_lost=self.uplink.lost is not None and not self.uplink.lost.learned,
            keepalived_alive=self.keepalived.alive,
            shared=self.shared,
        )

    def look(self, now: float) -> None:
        """Look at what is due."""
        self._open_wire()
        if now >= self._fifo_due:
            self._fifo_due = now + FIFO_S
            self._open_fifo()
        if now >= self._ports_due:
            self._ports_due = now + PORTS_S
            self._look_at_daemon()
            self._look_at_ports()
            self._look_outside(now)
        self.carrier_trusted = self._damping.see(self.link.state.carrier, now)

    def ask(self, now: float) -> bool:
        """Look for the processes, and ask haproxy, where it is time to; give whether that answers as it should."""
        for process in (self.haproxy, self.keepalived, self.keepalived_parent):
            process.look(now)
        # Before the first answer, which would pass for one of a haproxy that is no more.
        if self.haproxy.pid != self._haproxy_pid:
            if self.haproxy.alive and self._haproxy_pid == 0 and self.ping.rounds:
                self.ping.distrust()
                if self.health:
                    self.health.distrust()
            self._haproxy_pid = self.haproxy.pid
        self.ping.step(now)
        if self.health:
            self.health.step(now)
        return self.ping.misses == 0 and (self.health is None or self.health.misses == 0)

    def _look_at_daemon(self) -> None:
        silent = False
        with suppress(OSError):
            silent = time.time() - self._daemon_status.stat().st_mtime > _DAEMON_SILENT_S
        lost = self.uplink.lost is not None and self.uplink.lost.learned
        found = {Shared.DAEMON_SILENT: silent, Shared.LEARNED_ROUTE_LOST: lost}
        self.shared = frozenset(cause for cause, is_so in found.items() if is_so)

    def _look_at_ports(self) -> None:
        if not self._vip.ports:
            return
        try:
            found = listeners()
        except OSError as error:  # not to be told is no reason to give the address away
            self._to.trouble(False, "listeners", str(error))
            return
        self._to.trouble(True, "listeners", "")
        ports = frozenset(self._vip.ports)
        self.closed_ports = frozenset(port for port in ports if int(port) not in found)
        foreign = (port for port in ports - self.closed_ports if not self._is_haproxys(found[int(port)]))
        self.foreign_ports = frozenset(foreign) if self.haproxy.alive else frozenset()

    def _is_haproxys(self, found: Sequence[Listener]) -> bool:
        return self._ownership.has(self.haproxy.pid, found)

    def _look_outside(self, now: float) -> None:
        """Look at what lies beyond the carrier, where the settings name it."""
        if not self.uplink.gateways:
            return
        try:
            self.uplink.follow_routes()
            self.uplink.listen(now)
        except OSError as error:
            self._to.trouble(False, "routes", str(error))
            return
        self._to.trouble(True, "routes", "")

    def _open_wire(self) -> None:
        index = self.link.state.index
        if self.wire is not None and self.wire.index != index:
            self._selector.unregister(self.wire)
            self.wire.close()
            self.wire = None
        if self.wire is None and index:
            try:
                self.wire = Wire(self._topology.interface, index)
            except PermissionError:
                raise
            except OSError as error:
                self._to.trouble(False, "interface", str(error))
                return
            self._to.trouble(True, "interface", "")
            self._selector.register(self.wire, selectors.EVENT_READ, self._read_wire)

    def _open_fifo(self) -> None:
        """Open keepalived's fifo; it may have been removed and made anew."""
        path = self._topology.fifo
        try:
            if not stat.S_ISFIFO(Path(path).stat().st_mode):
                Path(path).unlink()
        except FileNotFoundError:
            pass
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        if self._fifo >= 0:
            if os.path.samestat(os.fstat(self._fifo), Path(path).stat()):
                return
            self._selector.unregister(self._fifo)
            os.close(self._fifo)
        # For writing too, so that keepalived's going away is not the end of it.
        self._fifo = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._fifo, selectors.EVENT_READ, self._read_fifo)

    def _read_fifo(self) -> None:
        with suppress(BlockingIOError):
            lines = (self._fifo_rest + os.read(self._fifo, 65536)).split(b"\n")
            self._fifo_rest = lines.pop()
            for line in lines:
                words = line.decode("ascii", "replace").replace('"', "").split()
                if len(words) >= 3 and words[0] == "INSTANCE" and words[2] in ROLES:
                    self._to.role(words[1], ROLES[words[2]])

    def _read_link(self) -> None:
        if self.link.read():
            self._selector.unregister(self._link_descriptor)
            self._link_descriptor = self.link.fileno()
            self._selector.register(self._link_descriptor, selectors.EVENT_READ, self._read_link)
            self._to.trouble(False, "netlink", f"events were lost {self.link.resyncs} times; everything was read anew")
            self._to.trouble(True, "netlink", "")

    def _read_wire(self) -> bool:
        if self.wire is None:
            return False
        own, news = hardware_text(self.wire.hardware), False
        try:
            for said, outgoing in self.wire.read():
                if isinstance(said, Claim) and not outgoing:
                    self.uplink.answered(said.address, time.monotonic())
                news = self._to.passed(said, own, outgoing=outgoing) or news
        except OSError as error:
            self._to.trouble(False, "interface", str(error))
            self._selector.unregister(self.wire)
            self.wire.close()
            self.wire = None
            return True
        return news


def _health(vip: VipSettings, selector: selectors.BaseSelector) -> Asking | None:
    if not vip.health:
        return None
    address, port, path = health_place(vip.health)
    host = f"[{address}]" if ":" in address else address
    lines = (f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "User-Agent: pyconfd-vip", "Connection: close", "", "")
    text = "\r\n".join(lines).encode()
    question = Question((address, port), text, b"HTTP/", HEALTH_S, vip.health_timeout_s)
    return Asking(question, selector, unproven=vip.ping_misses)
