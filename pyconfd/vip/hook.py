"""The program ``pyconfd-vip``: observe, decide, act; every event that has come is read before anything is decided."""

import gc
import json
import math
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from pyconfd.errors import ConfigurationError, Problem, first_line
from pyconfd.settings import Resolved, Settings, resolve, resolve_again
from pyconfd.status.logging import configure
from pyconfd.system.notify import SystemdNotifier
from pyconfd.vip.checks import QUIET_S
from pyconfd.vip.control import ControlSocket
from pyconfd.vip.frames import AddressClaim, Advert, announcements, probe, say_farewell
from pyconfd.vip.monitor import NodeMonitor, Timer
from pyconfd.vip.netlink import reset_connections
from pyconfd.vip.output import (
    REPORT_FILE,
    Background,
    Drain,
    HookMemory,
    InPlaceFile,
    LogStream,
    boot_seconds,
    memory_file,
    replace_file,
)
from pyconfd.vip.policy import Decision, HoldState, NodeFacts, Role, decide
from pyconfd.vip.report import line, metrics, report
from pyconfd.vip.topology import Topology, topology
from pyconfd.vip.vrrp import VirtualRouter

log = structlog.get_logger(__name__)

HEARTBEAT_S = 0.5
REPORT_S = 5.0
LEARN_S = 0.5
ANNOUNCE_AGAIN_S = 0.2
STALL_S = 0.05
_LONGEST_SLEEP_S = 0.05

_USAGE, _CONFIGURATION, _TEMPORARY = 64, 78, 75
_HELP = """\
Usage: pyconfd-vip [--config FILE]

Watch haproxy, keepalived and the network for the floating address that [vip] describes, and tell keepalived whether
this node may hold it. It runs until SIGTERM, or until SIGHUP finds other settings; the address stays where it is then.
`pyconfd vip status` asks it.

Exit codes: 0 asked to stop, 64 the command line is wrong, 75 not permitted here, 78 settings are wrong
"""


def main() -> int:
    """Run the hook; return the exit code."""
    arguments = sys.argv[1:]
    if arguments in (["-h"], ["--help"]):
        sys.stdout.write(_HELP)
        return 0
    if arguments and (len(arguments) != 2 or arguments[0] != "--config"):
        sys.stderr.write(_HELP)
        return _USAGE
    try:
        resolved = resolve(dict(zip(["config"], arguments[1:], strict=False)), os.environ)
        found = _topology(resolved)
    except ConfigurationError as error:
        sys.stderr.write("pyconfd-vip cannot use its settings:\n")
        sys.stderr.writelines(f"  {problem}\n" for problem in error.problems)
        return _CONFIGURATION
    stream = LogStream()
    configure(resolved.settings.log.level, resolved.settings.log.format, stream=stream)
    try:
        hook = Hook(resolved, found)
    except PermissionError as error:
        remedy = "it needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_KILL, and its directories; see pyconfd-vip.service"
        sys.stderr.write(f"pyconfd-vip: {Problem(error.filename or '', error.strerror or str(error), remedy)}\n")
        return _TEMPORARY
    gc.freeze()  # a full collection would walk all that was imported, for milliseconds in which nothing is seen
    hook.run()
    stream.close()
    return 0


def _topology(resolved: Resolved) -> Topology:
    return topology(resolved.settings.vip, socket.gethostname())


def _used(settings: Settings) -> tuple[object, ...]:
    """Return what the hook reads of the settings."""
    return settings.vip, settings.runtime_dir, settings.log


class Hook:
    """The hook of one node.

    Raises:
        OSError: it may not open the sockets that it needs.
    """

    def __init__(self, resolved: Resolved, topology: Topology) -> None:
        settings = resolved.settings
        self._resolved, self.vip, self.topology = resolved, settings.vip, topology
        vip = self.vip
        probe_s = max(0.2, min(0.5, vip.advert_s))
        for folder in (vip.runtime_dir, vip.state_dir):
            Path(folder).mkdir(parents=True, exist_ok=True, mode=0o755)
        self._memory_file = memory_file(vip.state_dir)
        self.memory = self._memory_file.load() or HookMemory()
        self.started = self.now = time.monotonic()
        self.routers = [VirtualRouter(router, vip, 2.5 * probe_s, self.now) for router in topology.routers]
        self._track_files = {router.id: InPlaceFile(router.track_file) for router in topology.routers}
        self._announcing = {number: Timer(ANNOUNCE_AGAIN_S) for number in self._track_files}
        self._probing = {number: Timer(probe_s) for number in self._track_files}
        self._selector = selectors.DefaultSelector()
        self.monitor = NodeMonitor(vip, f"{settings.runtime_dir}/status.json", self._selector, self)
        self._heartbeat = InPlaceFile(vip.heartbeat)
        self._beating, self._reporting, self._learning = Timer(HEARTBEAT_S), Timer(REPORT_S), Timer(LEARN_S)
        self._hurrying, self._hurries = Timer(vip.hurry_s), False
        self._systemd = SystemdNotifier()
        self._decide_at = -math.inf
        self._stopping = self._ready = self._reload_asked = False
        self._changed = True
        self._status_line = ""
        # Disks may hang, and a reset of many connections takes its time: neither keeps the loop.
        self._files, self._resets = Background("files"), Background("sessions")
        self.troubles: dict[str, str] = {}
        """What of the hook's own does not work now, and why."""
        self._control = ControlSocket(f"{vip.runtime_dir}/control.sock", self._selector, self._answer)

    def run(self) -> None:
        """Run until a signal asks to stop, or the settings have changed."""
        signal.signal(signal.SIGHUP, self._on_sighup)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        # A handler alone does not end select(), which Python starts again (PEP 475): the byte in this socket does.
        waking, woken = socket.socketpair()
        woken.setblocking(False)
        signal.set_wakeup_fd(woken.fileno())
        self._selector.register(waking, selectors.EVENT_READ, lambda: waking.recv(64))
        log.info("hook.started", node=self.topology.node, interface=self.vip.interface)
        while not self._stopping:
            longest_s = min(_LONGEST_SLEEP_S, self.vip.hurry_s / 2) if self._hurries else _LONGEST_SLEEP_S
            wait_s = min(longest_s, max(0.0, self.monitor.ping.due - time.monotonic()))
            self.turn(self._selector.select(wait_s))
            if self._reload_asked:
                self._reload_asked = False
                self._compare_settings()
        self._systemd.stopping()
        self._report()
        self._files.close()
        log.info("hook.stopped")

    def _on_stop(self, _signal: int, _frame: object) -> None:
        self._stopping = True

    def _on_sighup(self, _signal: int, _frame: object) -> None:
        self._reload_asked = True

    def _compare_settings(self) -> None:
        """Leave the loop if the settings are others now: systemd starts the hook again. Wrong ones are reported."""
        try:
            fresh = resolve_again(self._resolved)
            _topology(fresh)
        except ConfigurationError as error:
            self.trouble("settings", f"{first_line(error.problems)}; the former ones are still in force")
            return
        self.trouble("settings", "")
        if _used(fresh.settings) != _used(self._resolved.settings):
            log.info("settings.changed")
            self._stopping = True

    def turn(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        """Read what has come; decide and act if that may change anything, or it is time to."""
        slept, self.now = time.monotonic() - self.now, time.monotonic()
        if slept > _LONGEST_SLEEP_S + STALL_S:
            # The machine stood still, or had no processor to spare; keepalived may not have run either.
            for router in self.routers:
                router.watching_since = self.now
            self.monitor.uplink.start(self.now)
        # Most wake-ups are an answer of haproxy in time or an advert of this node: they need no decision.
        decides = False
        for key, _ in ready:
            # One of them may have closed another one's descriptor.
            if self._selector.get_map().get(key.fd) is key:
                decides = key.data() is not False or decides
        answers = self.monitor.probe(self.now)
        if decides or not answers or self.now >= self._decide_at:
            died, complete = self.monitor.keepalived.died, self.monitor.complete
            self._decide_all()
            self.monitor.keepalived.died = died and not complete
            at = (router.decide_at(self.now) for router in self.routers)
            # After a death once more at once: another keepalived may run already.
            self._decide_at = min(at) if complete and not died else self.now

    def _decide_all(self) -> None:
        self.monitor.poll(self.now)
        self._poll_addresses()
        self._learn()
        if self.monitor.complete:
            node = self.monitor.facts(self.now, max(router.peer_seen for router in self.routers))
            for router in self.routers:
                self._decide(node, router)
            self._beat()
        self.trouble("files", self._files.error(self.now))
        self.trouble("sessions", self._resets.error(self.now))
        if self._reporting.due(self.now) or self._changed:
            self._report()

    def _beat(self) -> None:
        """Show keepalived's backstop and systemd that this process lives, and has decided."""
        if not self._beating.due(self.now):
            return
        # After the decisions, not at a pace of its own: a hook that hangs in them must not look alive.
        self._heartbeat.write(boot_seconds())
        self.trouble("heartbeat", self._heartbeat.error)
        if self._ready:
            self._systemd.watchdog()
        else:
            self._systemd.ready()
        self._ready = True

    def _learn(self) -> None:
        """Ask for the own addresses of peers and gateways: which are there, and at which hardware address."""
        uplink = self.monitor.uplink
        missed = [router.heard_at for router in self.routers if router.misses_holder(self.now)]
        # A gateway that was silent already, while the holder was heard, says nothing by its silence.
        self._hurries = any(uplink.answered_since(at - QUIET_S) for at in missed)
        if self._hurries:
            self._listen()
        if self.monitor.packets is None or not (self._hurrying if self._hurries else self._learning).due(self.now):
            return
        uplink.unanswered += self._hurries
        own = self.monitor.packets.hardware
        routers = [router.router for router in self.routers]
        # Never in the name of an address that is not here: it may be another machine's by now.
        sources = {router.family: router.source for router in routers if router.source in self.monitor.link.addresses}
        peers = {(peer.address, sources.get(router.family, "")) for router in routers for peer in router.peers}
        gateways = {(address, sources.get(6 if ":" in address else 4, "")) for address in self.vip.gateways}
        self.monitor.packets.send([probe(own, address, source) for address, source in sorted(peers | gateways)])

    def _listen(self) -> None:
        """Check for any packet that comes in: without one, the silence of the holder says nothing about the holder."""
        try:
            self.monitor.uplink.listen(self.now)
        except OSError as error:
            self.trouble("uplink", str(error))
        else:
            self.trouble("uplink", "")

    def _poll_addresses(self) -> None:
        link = self.monitor.link
        for router in self.routers:
            if not link.carrier:
                router.forget_peers(self.now)
            came, went = router.set_addresses(link.addresses, self.now)
            if came:
                self._announcing[router.router.id].reset()
            for event, addresses in (("address.added", came), ("address.removed", went)):
                for address in sorted(addresses):
                    self._transition(router.router.name, event, address=address)

    def on_packet(self, packet: Advert | AddressClaim, own: str, *, outgoing: bool) -> bool:
        """Pass a packet to all routers; return whether it needs a decision before the next one is due."""
        news = False
        for router in self.routers:
            if isinstance(packet, Advert):
                before = router.role
                router.on_advert(packet, self.now, outgoing=outgoing)
                if router.role is not before:
                    self._transition(router.router.name, "role.seen", after=router.role.value)
                news = news or router.role is not before or not (outgoing or router.stands_by)
            else:
                router.on_claim(packet, own, self.now, outgoing=outgoing)
                news = news or packet.address in router.router.bare
        return news

    def on_role(self, name: str, role: Role) -> None:
        """Store the role that keepalived reports for a virtual router."""
        for router in self.routers:
            before = router.role
            if router.router.name == name and router.set_role(role, self.now):
                self._transition(name, "role.changed", before=before.value, after=role.value)

    def on_keepalived_died(self) -> None:
        """Forget all roles: keepalived's VRRP process has ended."""
        for router in self.routers:
            self.on_role(router.router.name, Role.UNKNOWN)
        log.error("keepalived.died")

    def _decide(self, node: NodeFacts, router: VirtualRouter) -> None:
        """Decide for one virtual router, and act."""
        self._poll_peers(router)
        number, name = router.router.id, router.router.name
        facts = router.facts(
            self.now,
            drained=self.memory.drain_of(number) is not None,
            own_address=router.router.source in self.monitor.link.addresses,
        )
        if router.handing_over is not None:
            waited = self.now - router.handing_over
            taken = not router.holds and facts.peer_advert_age_s < waited
            if taken or waited >= self.vip.retake_s:
                router.handing_over = None
                facts = replace(facts, handing_over=False)
        before = router.decision
        decision = router.decision = decide(node, facts, before, self.now, self.vip)
        # First the track file: keepalived gives the address up, and sends its last advert, while the rest is done.
        track = self._track_files[number]
        track.write(b"1\n" if decision.hold is HoldState.FAULT else b"0\n")
        self.trouble(f"track_file_{number}", track.error)
        if decision.fence is not None:
            self._fence(router, decision)
        if decision.announce:
            self._announce(router)
        if router.left and facts.peer_advert_age_s < self.now - router.left_at and self._resets.idle:
            # Once a peer has the address; before, it may come back, and the connections with it.
            left, router.left = router.left, frozenset()
            if self.vip.reset_sessions:
                self._resets.start(partial(reset_connections, left), self.now)
        self._probe(router)
        if (before.hold, before.faults) != (decision.hold, decision.faults) or not router.decided:
            router.decided = True
            cause = ",".join(sorted(decision.faults)) or "healthy"
            self._transition(name, "hold.changed", before=before.hold.value, after=decision.hold.value, cause=cause)
        for alarm in sorted(decision.alarms - before.alarms):
            self._transition(name, "alarm.raised", cause=alarm.value)
        for alarm in sorted(before.alarms - decision.alarms):
            self._transition(name, "alarm.cleared", cause=alarm.value)

    def _poll_peers(self, router: VirtualRouter) -> None:
        """Ask the kernel whether an own advert that is missing could have left."""
        reachable = False
        if router.is_late(self.now):
            try:
                reachable = any(self.monitor.link.reaches(peer.address) for peer in router.router.peers)
            except OSError as error:
                self.trouble("neighbours", str(error))
            else:
                self.trouble("neighbours", "")
        router.set_reachable(reachable, self.now)

    def _fence(self, router: VirtualRouter, decision: Decision) -> None:
        """Remove the addresses, and only then send the advert by which a peer takes over: never two holders."""
        if decision.kill:
            self.monitor.keepalived.kill()
            self.monitor.keepalived_parent.kill()
        failed, vrrp = "", router.router
        for address in router.held:
            try:
                self.monitor.link.remove(address)
            except OSError as error:
                failed = str(error)
        if decision.farewell and not failed:
            peers = [peer.address for peer in vrrp.peers]
            with suppress(OSError):
                say_farewell(vrrp.source, peers, vrrp.id, self.vip.advert_s, vrrp.advertised)
        router.set_addresses(self.monitor.link.addresses, self.now)
        self.trouble(f"fencing_{vrrp.name}", failed)
        self._transition(vrrp.name, "address.fenced", cause=decision.fence.value if decision.fence else "")

    def _announce(self, router: VirtualRouter) -> None:
        packets = self.monitor.packets
        if packets is None or not self._announcing[router.router.id].due(self.now):
            return
        for address in sorted(router.held):
            packets.send(announcements(packets.hardware, address))

    def _probe(self, router: VirtualRouter) -> None:
        """Ask who has the addresses while this node does, or must not; an able backup hears the adverts."""
        packets = self.monitor.packets
        asks = router.decision.hold is not HoldState.ABLE or router.holds
        if packets is not None and asks and self._probing[router.router.id].due(self.now):
            packets.send([probe(packets.hardware, address) for address in router.router.bare])

    def trouble(self, what: str, error: str) -> None:
        """Report once that something of the hook's own does not work, and once that it does again ("")."""
        if error and self.troubles.get(what) != error:
            self.troubles[what] = error
            log.error("hook.troubled", what=what, error=error)
            self._changed = True
        elif not error and self.troubles.pop(what, None) is not None:
            log.info("hook.recovered", what=what)
            self._changed = True

    def _transition(self, who: str, what: str, **values: str) -> None:
        (log.info if values.get("cause", "healthy") == "healthy" else log.warning)(what, who=who, **values)
        self.memory.add({"at": time.time(), "who": who, "what": what, **values})
        self._changed = True

    def _report(self) -> None:
        """Write the report for other programs and, after a change, the memory for the next start."""
        document = report(self)
        if (status := line(document)) != self._status_line:
            self._status_line = status
            self._systemd.status(status)
        if self._files.idle or self._stopping:  # else again at the next turn
            memory = HookMemory(list(self.memory.drained), list(self.memory.transitions)) if self._changed else None
            self._files.start(partial(self._write, document, memory), self.now)
            self._changed = False

    def _write(self, document: Mapping[str, Any], memory: HookMemory | None) -> None:
        """Write the files of the report, in a thread of its own."""
        folder = self.vip.runtime_dir
        with ExitStack() as all_of_them:  # one that fails keeps none of the others from being written
            all_of_them.callback(replace_file, f"{folder}/metrics.prom", metrics(document))
            all_of_them.callback(replace_file, f"{folder}/{REPORT_FILE}", json.dumps(document))
            if memory is not None:
                all_of_them.callback(self._memory_file.write, memory)

    def _answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a request of the command line."""
        number = request.get("router")
        chosen = [router for router in self.routers if number in {None, router.router.id}]
        if not chosen:
            return {"error": f"there is no virtual router {number}"}
        numbers, drained = {router.router.id for router in chosen}, self.memory.drained
        match str(request.get("do")):
            case "status":
                return report(self) | {"transitions": self.memory.transitions}
            case "drain":
                reason, already = str(request.get("reason", "")), {drain.router for drain in drained}
                self.memory.drained = [*drained, *(Drain(each, time.time(), reason) for each in numbers - already)]
            case "undrain":
                self.memory.drained = [drain for drain in drained if drain.router not in numbers]
            case "failover":
                chosen = [router for router in chosen if router.holds]
                for router in chosen:
                    router.handing_over = self.now
            case "announce":
                chosen = [router for router in chosen if router.holds]
                for router in chosen:
                    router.announced.clear()
            case _:
                return {"error": "that is no order"}
        self._changed = True
        if not chosen:
            return {"error": "this node does not hold the address"}
        return {"routers": [router.router.id for router in chosen]}


if __name__ == "__main__":
    sys.exit(main())
