"""Everything that the hook observes on this node: processes, haproxy's answers, the interface, keepalived's fifo."""

from __future__ import annotations

import math
import os
import selectors
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyconfd.settings.vip import health_place
from pyconfd.vip.checks import CarrierDamping, HaproxyProbe, ProcessMonitor, Uplink, is_full, users_of
from pyconfd.vip.frames import AddressClaim, PacketSocket
from pyconfd.vip.netlink import Link, listeners
from pyconfd.vip.policy import Alarm, NodeFacts
from pyconfd.vip.vrrp import ROLES

if TYPE_CHECKING:
    from pyconfd.settings.vip import VipSettings
    from pyconfd.vip.hook import Hook

SLOW_S = 0.5
"""Between two polls of what takes longer: ports, routes, the daemon's status file."""
FIFO_S = 1.0
HEALTH_S = 0.25
_DAEMON_SILENT_S = 180.0


class Timer:
    """When something that is done each ``interval_s`` is due; at first at once."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._next = -math.inf

    def due(self, now: float) -> bool:
        """Return whether it is due, which then begins the next interval."""
        if now < self._next:
            return False
        self._next = now + self._interval_s
        return True

    def reset(self) -> None:
        """Make it due at once."""
        self._next = -math.inf


class NodeMonitor:
    """The observers of one node. :meth:`poll` and :meth:`probe` are called by the loop, the rest by ``selector``.

    What the selector calls returns False if nothing has to be decided about it. The hook hears of packets, roles, the
    death of keepalived, and of troubles.
    """

    def __init__(self, vip: VipSettings, daemon_status: str, selector: selectors.BaseSelector, hook: Hook) -> None:
        self._vip, self._selector, self._hook = vip, selector, hook
        self._daemon_status = Path(daemon_status)
        self.haproxy = ProcessMonitor(vip.haproxy_pid_file, "haproxy", selector)
        self._haproxy_pid = 0
        self.ping = HaproxyProbe(
            vip.haproxy_socket, b"show info\n", b"", selector,
            interval_s=vip.ping_interval_s, timeout_s=vip.ping_timeout_s, unproven=vip.ping_misses,
        )  # fmt: skip
        self.health = _health_probe(vip, selector)
        self.keepalived = ProcessMonitor(vip.vrrp_pid_file, "keepalived", selector, hook.on_keepalived_died)
        self.keepalived_parent = ProcessMonitor(vip.keepalived_pid_file, "keepalived", selector)
        self.link = Link(vip.interface)
        self._link_descriptor = self.link.fileno()
        selector.register(self._link_descriptor, selectors.EVENT_READ, self._read_link)
        self.packets: PacketSocket | None = None
        self._fifo = -1
        self._fifo_rest = b""
        self.closed_ports: frozenset[str] = frozenset()
        self.foreign_ports: frozenset[str] = frozenset()
        self._damping = CarrierDamping(vip.carrier_settle_s)
        self.carrier_trusted = True
        self.uplink = Uplink(vip.gateways, vip.interface)
        self.uplink.start(time.monotonic())
        self._shared: frozenset[Alarm] = frozenset()
        self._slow, self._fifo_check = Timer(SLOW_S), Timer(FIFO_S)

    @property
    def complete(self) -> bool:
        """Return whether enough was observed to decide: haproxy is dead, or has answered or missed a question."""
        return self.ping.rounds > 0 or not self.haproxy.alive

    @property
    def full(self) -> bool:
        """Return whether haproxy has as many connections as it may."""
        return self.haproxy.alive and is_full(self.ping.answer)

    def facts(self, now: float, peers_seen: float) -> NodeFacts:
        """Return what is true for all routers; ``peers_seen`` is when one of the peers was seen."""
        return NodeFacts(
            haproxy_alive=self.haproxy.alive,
            haproxy_misses=self.ping.misses,
            haproxy_full=self.full,
            health_misses=self.health.misses if self.health else 0,
            closed_ports=self.closed_ports,
            foreign_ports=self.foreign_ports,
            carrier=self.link.carrier,
            carrier_trusted=self.carrier_trusted,
            carrier_s=self._damping.back_s(now),
            gateway_age_s=self.uplink.age_s(now),
            peers_age_s=now - peers_seen,
            heard_age_s=self.uplink.heard_age_s(now),
            unanswered=self.uplink.unanswered,
            route_lost=self.uplink.lost is not None and not self.uplink.lost.learned,
            # Its parent may have started another one already, which does not know of the addresses that are left.
            keepalived_alive=self.keepalived.alive and not self.keepalived.died,
            keepalived_unknown=self.keepalived.unknown,
            shared=self._shared,
        )

    def probe(self, now: float) -> bool:
        """Check the processes and ask haproxy, where it is due; return whether it answers as it should."""
        for process in (self.haproxy, self.keepalived, self.keepalived_parent):
            process.poll(now)
        # Before the next answer is read: one of the former process would pass for one of the new.
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

    def poll(self, now: float) -> None:
        """Run the checks that are due."""
        self._open_packets()
        if self._fifo_check.due(now):
            self._open_fifo()
        if self._slow.due(now):
            self._poll_ports()
            self._poll_uplink(now)
            self._poll_daemon()
        self.carrier_trusted = self._damping.trusts(self.link.carrier, now)

    def _poll_ports(self) -> None:
        if not self._vip.ports:
            return
        try:
            found = listeners()
        except OSError as error:  # no reason to give the address away
            self._hook.trouble("listeners", str(error))
            return
        self._hook.trouble("listeners", "")
        ports = frozenset(self._vip.ports)
        self.closed_ports = frozenset(port for port in ports if int(port) not in found)
        foreign: frozenset[str] = frozenset()
        if self.haproxy.alive:
            own = users_of(self.haproxy.pid)
            foreign = frozenset(port for port in ports - self.closed_ports if own.isdisjoint(found[int(port)]))
        self.foreign_ports = foreign

    def _poll_uplink(self, now: float) -> None:
        if not self.uplink.gateways:
            return
        try:
            self.uplink.poll(now)
        except OSError as error:
            self._hook.trouble("routes", str(error))
        else:
            self._hook.trouble("routes", "")

    def _poll_daemon(self) -> None:
        silent = False
        with suppress(OSError):
            silent = time.time() - self._daemon_status.stat().st_mtime > _DAEMON_SILENT_S
        lost = self.uplink.lost is not None and self.uplink.lost.learned
        found = {Alarm.DAEMON_SILENT: silent, Alarm.LEARNED_ROUTE_LOST: lost}
        self._shared = frozenset(cause for cause, is_so in found.items() if is_so)

    def _open_packets(self) -> None:
        """Follow the interface: one that was removed and created again has another index."""
        index = self.link.index
        if self.packets is not None and self.packets.index != index:
            self._close_packets()
        if self.packets is None and index:
            try:
                self.packets = PacketSocket(self._vip.interface, index)
            except PermissionError:
                raise
            except OSError as error:
                self._hook.trouble("interface", str(error))
                return
            self._hook.trouble("interface", "")
            self._selector.register(self.packets, selectors.EVENT_READ, self._read_packets)

    def _close_packets(self) -> None:
        if self.packets is not None:
            self._selector.unregister(self.packets)
            self.packets.close()
            self.packets = None

    def _read_packets(self) -> bool:
        if self.packets is None:
            return False
        own, news = self.packets.hardware.hex(":"), False
        try:
            for packet, outgoing in self.packets.read():
                if isinstance(packet, AddressClaim) and not outgoing:
                    self.uplink.on_claim(packet.address, time.monotonic())
                news = self._hook.on_packet(packet, own, outgoing=outgoing) or news
        except OSError as error:
            self._hook.trouble("interface", str(error))
            self._close_packets()
            return True
        return news

    def _read_link(self) -> None:
        if self.link.read():
            self._selector.unregister(self._link_descriptor)
            self._link_descriptor = self.link.fileno()
            self._selector.register(self._link_descriptor, selectors.EVENT_READ, self._read_link)
            self._hook.trouble("netlink", f"events were lost {self.link.resyncs} times; everything was read again")
            self._hook.trouble("netlink", "")

    def _open_fifo(self) -> None:
        """Open keepalived's fifo, again if it was removed and created by another program."""
        path = self._vip.fifo
        with suppress(FileNotFoundError):
            if not stat.S_ISFIFO(Path(path).stat().st_mode):
                Path(path).unlink()
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        if self._fifo >= 0:
            if os.path.samestat(os.fstat(self._fifo), Path(path).stat()):
                return
            self._selector.unregister(self._fifo)
            os.close(self._fifo)
        # Open for writing too: else the fifo is at its end, and always readable, while keepalived is down.
        self._fifo = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._fifo, selectors.EVENT_READ, self._read_fifo)

    def _read_fifo(self) -> None:
        with suppress(BlockingIOError):
            lines = (self._fifo_rest + os.read(self._fifo, 65536)).split(b"\n")
            self._fifo_rest = lines.pop()
            for line in lines:
                words = line.decode("ascii", "replace").replace('"', "").split()
                if len(words) >= 3 and words[0] == "INSTANCE" and words[2] in ROLES:
                    self._hook.on_role(words[1], ROLES[words[2]])


def _health_probe(vip: VipSettings, selector: selectors.BaseSelector) -> HaproxyProbe | None:
    if not vip.health:
        return None
    address, port, path = health_place(vip.health)
    host = f"[{address}]" if ":" in address else address
    lines = (f"GET {path} HTTP/1.1", f"Host: {host}:{port}", "User-Agent: pyconfd-vip", "Connection: close", "", "")
    return HaproxyProbe(
        (address, port), "\r\n".join(lines).encode(), b"HTTP/", selector,
        interval_s=HEALTH_S, timeout_s=vip.health_timeout_s, unproven=vip.ping_misses,
    )  # fmt: skip
