"""The loop of ``pyconfd-vip``: look, decide, act; everything that has happened is read before anything is decided."""

import json
import math
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyconfd.errors import ConfigurationError, first_line
from pyconfd.settings import Settings
from pyconfd.vip.background import Background
from pyconfd.vip.control import ControlSocket
from pyconfd.vip.files import Log, SmallFile, boot_seconds, replace, tell_systemd
from pyconfd.vip.frames import Advert, Claim, announcements, probe
from pyconfd.vip.memory import Memory
from pyconfd.vip.policy import (
    Decision,
    Deed,
    Hold,
    InstanceFacts,
    Limits,
    NodeFacts,
    Role,
    RouterFacts,
    decide,
)
from pyconfd.vip.report import metrics, report
from pyconfd.vip.routers import RouterState
from pyconfd.vip.senses import Senses
from pyconfd.vip.sessions import reset_sessions
from pyconfd.vip.topology import Topology
from pyconfd.vip.tracking import Sight
from pyconfd.vip.wire import say_farewell
from pyconfd.vip.words import line

HEARTBEAT_S = 0.5
JOBS_S = 0.5
REPORT_S = 5.0
LEARN_S = 0.5
ANNOUNCE_AGAIN_S = 0.2
STALL_S = 0.05
_LONGEST_SLEEP_S = 0.05


class Hook:
    """The hook of one node.

    ``again`` gives the settings as they are now, or raises ConfigurationError; it is asked at SIGHUP.

    Raises:
        OSError: it may not open the sockets that it needs.
    """

    def __init__(self, settings: Settings, topology: Topology, log: Log, again: Callable[[], Settings]) -> None:
        self.vip, self.topology, self._log = settings.vip, topology, log
        self._used, self._again = _used(settings), again
        vip = self.vip
        self.limits = Limits(
            topology.advert_s, vip.ping_misses, vip.offer_s, vip.gateway_s, fencing=vip.fencing, farewell=vip.farewell
        )
        self._probe_s = max(0.2, min(0.5, topology.advert_s))
        for folder in (vip.runtime_dir, vip.state_dir):
            Path(folder).mkdir(parents=True, exist_ok=True, mode=0o755)
        self.memory = Memory.read(f"{vip.state_dir}/memory.json")
        self.started = self.now = time.monotonic()
        self.routers = [RouterState(router, self.now, self._probe_s, self.limits) for router in topology.routers]
        self._sights = {state.sight.instance.name: state.sight for state in self.routers}
        self._selector = selectors.DefaultSelector()
        self.senses = Senses(self.vip, topology, f"{settings.runtime_dir}/status.json", self._selector, self)
        self._heartbeat = SmallFile(topology.heartbeat)
        self._heartbeat_due = self._report_due = self._learn_due = self._jobs_due = 0.0
        self._decide_at = -math.inf
        self._stopping = self._ready = self._reads_again = False
        self._changed = True
        self._told = ""
        self._files, self._sessions = Background("files"), Background("sessions")
        self.troubles: dict[str, str] = {}
        """What of the hook's own does not work now."""
        self._control = ControlSocket(f"{vip.runtime_dir}/control.sock", self._selector, self._answer)

    def stop(self, _signal: int, _frame: object) -> None:
        """Leave the loop; nothing changes for the address."""
        self._stopping = True

    def read_again(self, _signal: int, _frame: object) -> None:
        """Look at the settings in the next turn."""
        self._reads_again = True

    def _look_at_settings(self) -> None:
        """Leave the loop where they are others, to be started anew with them; wrong ones are told, and not taken."""
        self._reads_again = False
        try:
            fresh = self._again()
        except ConfigurationError as error:
            self.trouble(False, "settings", f"{first_line(error.problems)}; the former ones are still in force")
            return
        self.trouble(True, "settings", "")
        if _used(fresh) != self._used:
            self._log("info", "settings.changed")
            self._stopping = True

    def run(self) -> None:
        """Run until a signal asks to stop, or the settings have changed."""
        signal.signal(signal.SIGHUP, self.read_again)
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        waking, woken = socket.socketpair()
        woken.setblocking(False)
        signal.set_wakeup_fd(woken.fileno())
        self._selector.register(waking, selectors.EVENT_READ, lambda: waking.recv(64))
        self._log("info", "hook.started", node=self.topology.node, interface=self.topology.interface)
        while not self._stopping:
            self.turn(self._selector.select(self._sleep_s()))
            if self._reads_again:
                self._look_at_settings()
        tell_systemd("STOPPING=1")
        self._report()
        self._files.close()
        self._log("info", "hook.stopped")
        self._log.close()

    def _sleep_s(self) -> float:
        return min(_LONGEST_SLEEP_S, max(0.0, self.senses.ping.due - time.monotonic()))

    def turn(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        """Read what has come; where that may change anything, or it is time, look at what is due, decide and act."""
        slept, self.now = time.monotonic() - self.now, time.monotonic()
        if slept > _LONGEST_SLEEP_S + STALL_S:
            # The machine stood still, or had no processor to spare; keepalived may not have run either.
            for sight in self._sights.values():
                sight.watching_since = self.now
            self.senses.uplink.start(self.now)
        # Most of what wakes this process is an answer in time or an advert of its own.
        decides = False
        for key, _ in ready:
            # One of them may have closed another one's descriptor.
            if self._selector.get_map().get(key.fd) is key:
                decides = key.data() is not False or decides
        answers = self.senses.ask(self.now)
        if decides or not answers or self.now >= self._decide_at:
            self._decide_all()
            at = (state.decide_at(self.now) for state in self.routers)
            self._decide_at = min(at) if self.senses.complete else self.now

    def _decide_all(self) -> None:
        self.senses.look(self.now)
        self._look_at_addresses()
        self._learn()
        if self.senses.complete:
            seen = max(sight.peer_seen for sight in self._sights.values())
            node = self.senses.facts(self.now, seen)
            for state in self.routers:
                self._judge(node, state)
            self._beat()
        if self.now >= self._jobs_due:
            self._jobs_due = self.now + JOBS_S
            self._look_at_jobs()
        if self._changed or self.now >= self._report_due:
            self._report()

    def _look_at_jobs(self) -> None:
        """See what came of what others do beside this loop."""
        files = [(name, self._files) for name in ("memory", "metrics", "status")]
        for name, doing in (*files, ("sessions", self._sessions)):
            error = doing.error(name, self.now)
            self.trouble(not error, name, error)

    def _beat(self) -> None:
        """Show that this process lives, and that it has judged."""
        if self.now < self._heartbeat_due:
            return
        self._heartbeat_due = self.now + HEARTBEAT_S
        self.trouble(self._heartbeat.write(boot_seconds()), "heartbeat", self._heartbeat.error)
        tell_systemd("WATCHDOG=1" if self._ready else "READY=1")
        self._ready = True

    def _learn(self) -> None:
        """Ask for the peers' own addresses: who is there, and at which hardware address."""
        if self.now < self._learn_due or self.senses.wire is None:
            return
        self._learn_due = self.now + LEARN_S
        own = self.senses.wire.hardware
        peers = {(peer.address, one.instance.source) for one in self._sights.values() for peer in one.instance.peers}
        sources = {one.instance.family: one.instance.source for one in self._sights.values()}
        gateways = {(address, sources.get(6 if ":" in address else 4, "")) for address in self.vip.gateways}
        self.senses.wire.send([probe(own, address, source) for address, source in sorted(peers | gateways)])

    def _look_at_addresses(self) -> None:
        present = self.senses.link.state.addresses
        for state in self.routers:
            sight = state.sight
            if not self.senses.link.state.carrier:
                sight.carrier_lost()
            came, went = sight.addresses_are(present, self.now)
            if came:
                state.announce_at = 0.0
            for what, moved in (("address.added", came), ("address.removed", went)):
                for address in sorted(moved):
                    self._transition(sight.instance.name, what, address=address)
            state.moved(came, went, self.now)

    def passed(self, said: Advert | Claim, own: str, *, outgoing: bool) -> bool:
        """Take what passed the interface; say whether it is worth a decision before the next one is due."""
        news = False
        for state in self.routers:
            sight = state.sight
            if isinstance(said, Advert):
                before = sight.role
                sight.advert_seen(said, self.now, outgoing=outgoing)
                if sight.role is not before:
                    self._transition(sight.instance.name, "role.seen", after=sight.role.value)
                news = news or sight.role is not before or not (outgoing or state.stands_by)
            else:
                sight.claim_seen(said, own, self.now, outgoing=outgoing)
                news = news or said.address in sight.instance.bare
        return news

    def role(self, name: str, role: Role) -> None:
        """Take what keepalived says of an instance."""
        if name in self._sights:
            self._role(self._sights[name], role)

    def _role(self, sight: Sight, role: Role) -> None:
        before = sight.role
        if sight.role_is(role, self.now):
            self._transition(sight.instance.name, "role.changed", before=before.value, after=role.value)

    def keepalived_died(self) -> None:
        """Take that keepalived's VRRP process is no more."""
        for sight in self._sights.values():
            self._role(sight, Role.UNKNOWN)
        self._log("error", "keepalived.died")

    def _judge(self, node: NodeFacts, state: RouterState) -> None:
        self._look_at_peers(state.sight)
        instance = state.sight.facts(self.now)
        if state.handing_over is not None:
            waited = self.now - state.handing_over
            taken = not state.holds and instance.peer_advert_age_s < waited
            if taken or waited >= self.limits.retake_s:
                state.handing_over = None
        facts = RouterFacts(instance, state.router.id in self.memory.drained, state.handing_over is not None)
        decision = decide(node, facts, state.stance, self.now, self.limits)
        before, state.stance = state.stance, decision.stance
        track = b"1\n" if decision.stance.hold is Hold.FAULT else b"0\n"
        self.trouble(state.track.write(track), f"track_file_{state.router.id}", state.track.error)
        if decision.deed.fence is not None:
            self._fence(state.sight, decision.deed)
        self._announce(state, decision)
        self._reset_sessions(state, instance)
        self._probe(state)
        if (before.hold, before.faults) != (decision.stance.hold, decision.stance.faults) or not state.decided:
            state.decided = True
            faults = sorted(fault.value for fault in decision.stance.faults)
            self._transition(
                f"vip-{state.router.id}", "hold.changed",
                before=before.hold.value, after=decision.stance.hold.value, cause=",".join(faults) or "healthy",
            )  # fmt: skip
        self._tell_alarms(state, decision)

    def _look_at_peers(self, sight: Sight) -> None:
        """Ask the kernel whether an own advert that is missing could have left."""
        reachable = False
        if sight.is_late(self.now):
            try:
                reachable = any(self.senses.link.reaches(peer.address) for peer in sight.instance.peers)
            except OSError as error:
                self.trouble(False, "neighbours", str(error))
            else:
                self.trouble(True, "neighbours", "")
        sight.peers_reachable(reachable, self.now)

    def _tell_alarms(self, state: RouterState, decision: Decision) -> None:
        for alarm in sorted(decision.alarms - state.alarms):
            self._transition(f"vip-{state.router.id}", "alarm.raised", cause=alarm.value)
        for alarm in sorted(state.alarms - decision.alarms):
            self._transition(f"vip-{state.router.id}", "alarm.cleared", cause=alarm.value)
        state.alarms = decision.alarms

    def _fence(self, sight: Sight, deed: Deed) -> None:
        """Take the addresses off first, then say farewell: never two holders."""
        instance = sight.instance
        if deed.kill:
            self.senses.keepalived.kill()
            self.senses.keepalived_parent.kill()
        failed = ""
        for address in sight.held:
            try:
                self.senses.link.remove(address)
            except OSError as error:
                failed = str(error)
        if deed.farewell and not failed:
            peers = [peer.address for peer in instance.peers]
            with suppress(OSError):
                say_farewell(instance.source, peers, instance.router, self.topology.advert_s, instance.advertised)
        sight.addresses_are(self.senses.link.state.addresses, self.now)
        self.trouble(not failed, f"fencing_{instance.name}", failed)
        self._transition(instance.name, "address.fenced", cause=deed.fence.value if deed.fence else "")

    def _reset_sessions(self, state: RouterState, instance: InstanceFacts) -> None:
        """Reset what connections are left once a peer has the address: before, it may come back to them."""
        if not state.left or instance.peer_advert_age_s >= self.now - state.left_at:
            return
        left, state.left = state.left, frozenset()
        if self.vip.reset_sessions:
            self._sessions.put("sessions", partial(reset_sessions, left), self.now)

    def _announce(self, state: RouterState, decision: Decision) -> None:
        if not decision.deed.announce or self.now < state.announce_at or self.senses.wire is None:
            return
        state.announce_at = self.now + ANNOUNCE_AGAIN_S
        for address in sorted(state.sight.held):
            self.senses.wire.send(announcements(self.senses.wire.hardware, address))

    def _probe(self, state: RouterState) -> None:
        """Ask who has the addresses while this node does, or may not: a backup that is able hears the adverts."""
        if (
            self.now < state.probe_at
            or self.senses.wire is None
            or (state.stance.hold is Hold.ABLE and not state.holds)
        ):
            return
        state.probe_at = self.now + self._probe_s
        own = self.senses.wire.hardware
        self.senses.wire.send([probe(own, address) for address in state.sight.instance.bare])

    def trouble(self, fine: bool, what: str, error: str) -> None:
        """Say once that something of the hook's own does not work, and once that it does again."""
        if not fine and self.troubles.get(what) != error:
            self.troubles[what] = error
            self._log("error", "hook.troubled", what=what, error=error)
            self._changed = True
        elif fine and self.troubles.pop(what, None) is not None:
            self._log("info", "hook.recovered", what=what)
            self._changed = True

    def _transition(self, who: str, what: str, **values: str) -> None:
        level = "info" if values.get("cause", "healthy") == "healthy" else "warning"
        self._log(level, what, who=who, **values)
        self.memory.add({"at": time.time(), "who": who, "what": what, **values})
        self._changed = True

    def _report(self) -> None:
        """Leave what is known for others, and for the next start."""
        self._report_due = self.now + REPORT_S
        document = report(self)
        if (told := line(document)) != self._told:
            self._told = told
            tell_systemd(f"STATUS={told}")
        if self._changed:
            self._changed = False
            kept = json.dumps(self.memory.document() | {"status": document}).encode()
            self._files.put("memory", partial(replace, self.memory.path, kept, durable=True), self.now)
        texts = {
            "metrics": ("metrics.prom", metrics(document).encode()),
            "status": ("status.json", json.dumps(document).encode()),
        }
        for name, (file, text) in texts.items():
            self._files.put(name, partial(replace, f"{self.vip.runtime_dir}/{file}", text), self.now)

    def _answer(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer the command line."""
        router = question.get("router")
        chosen = [state for state in self.routers if router in {None, state.router.id}]
        if not chosen:
            return {"error": f"there is no virtual router {router}"}
        return self._obey(str(question.get("do")), chosen, str(question.get("reason", "")))

    def _obey(self, order: str, chosen: list[RouterState], reason: str) -> Mapping[str, Any]:
        match order:
            case "status":
                return report(self) | {"transitions": self.memory.transitions}
            case "drain":
                ordered = {"at": time.time(), "reason": reason}
                self.memory.drained = {state.router.id: ordered for state in chosen} | self.memory.drained
            case "undrain":
                gone = {state.router.id for state in chosen}
                self.memory.drained = {key: why for key, why in self.memory.drained.items() if key not in gone}
            case "failover":
                chosen = [state for state in chosen if state.holds]
                for state in chosen:
                    state.handing_over = self.now
            case "announce":
                chosen = [state for state in chosen if state.holds]
                for state in chosen:
                    state.sight.announced.clear()
            case _:
                return {"error": "that is no order"}
        self._changed = True
        if not chosen:
            return {"error": "this node does not hold the address"}
        return {"routers": [state.router.id for state in chosen]}


def _used(settings: Settings) -> tuple[object, ...]:
    """Return what the hook reads of the settings."""
    return settings.vip, settings.runtime_dir, settings.log.format
