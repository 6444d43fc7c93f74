"""``pyconfd dns run``: keeps the names of this node in step, in a process of its own.

Each turn looks at this node, decides from several looks whether it is active, and does at most one visit to Route 53.
"""

import math
import os
import signal
from functools import partial
from random import SystemRandom
from typing import Any, Self

import structlog

from pyconfd.dns.activity import Activity, ServingFacts, advance, both, for_holder, reasons, waits_s
from pyconfd.dns.agent import Agent, Want
from pyconfd.dns.names import (
    AnnotatedName,
    KeptName,
    annotated,
    dns_names,
    floating,
    is_withdrawn,
    store_activities,
    store_annotated,
    stored_activities,
    stored_annotated,
    wish_of,
)
from pyconfd.dns.node import NodeAddresses, NodeReader, nodes_that_accept
from pyconfd.dns.planner import DnsNode, NamePlan, Wish, drop
from pyconfd.dns.report import REPORT_EVERY_S, line, name_values, write_report
from pyconfd.errors import PyconfdError, first_line
from pyconfd.settings import Mode, Resolved, Settings, names_of, resolve_again
from pyconfd.status.logging import configure
from pyconfd.system.clock import SystemClock
from pyconfd.system.notify import SystemdNotifier
from pyconfd.system.state_file import StateLock

log = structlog.get_logger(__name__)

_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_CHANGING = frozenset({"may_join_at", "requests_total"})
"""What alone makes no new report before its time."""


def run(resolved: Resolved, *, child_of: int = 0) -> int:
    """Maintain the names until asked to stop; SIGHUP starts again with fresh settings. Return the exit code.

    To stop changes nothing: ``pyconfd dns withdraw`` takes a node out. With ``child_of`` it also ends when that process
    is no longer its parent.

    Raises:
        ConfigurationError: the settings cannot be used.
        TransientError: another process keeps the names of this node.
    """
    notifier = SystemdNotifier()
    refused = ""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        while _run_until_signal(resolved.settings, notifier, child_of, refused) == signal.SIGHUP:
            notifier.reloading("reading the settings again")
            try:
                fresh = resolve_again(resolved)
                dns_names(fresh.settings)
            except PyconfdError as error:
                refused = f"{first_line(error.problems)}; the former settings are still in force"
                log.error("settings.refused", problem=first_line(error.problems))  # noqa: TRY400 - not a bug
            else:
                resolved, refused = fresh, ""
        notifier.stopping()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    return 0


def _run_until_signal(settings: Settings, notifier: SystemdNotifier, child_of: int, refused: str) -> int:
    """Run turns until a signal comes, which is only looked for between two of them; return its number."""
    configure(settings.log.level, settings.log.format)
    lock = StateLock(settings.state_dir, "dns.lock", "keeps the names in Route 53", "pyconfd-dns")
    with DnsService(settings) as service:
        lock.acquire()
        try:
            log.info("dns.started", names=[each.name for each in names_of(settings.dns)], node=service.names.node)
            number = _take_turns(service, notifier, child_of, refused)
        finally:
            lock.release()
    log.info("dns.stopped", signal=number)
    return number


def _take_turns(service: "DnsService", notifier: SystemdNotifier, child_of: int, refused: str) -> int:
    former = ""
    while True:
        wait_s = service.turn()
        status = "; ".join(filter(None, (service.line, refused)))
        if not former:
            notifier.ready(status)
        elif status != former:
            notifier.status(status)
        former = status
        notifier.watchdog()
        came = signal.sigtimedwait(_SIGNALS, wait_s)
        if came is not None:
            return came.si_signo
        if child_of and os.getppid() != child_of:
            log.warning("parent.gone", pid=child_of)
            return signal.SIGTERM


class DnsService:
    """One look and at most one visit to Route 53 at each turn; all waits are by the monotonic clock."""

    def __init__(self, settings: Settings, clock: SystemClock | None = None) -> None:
        self._settings, self._clock = settings, clock or SystemClock()
        self._requests = 0
        self.names = dns_names(settings, self._count)
        self.line = "starting"
        """The state in one line."""
        self._annotated = stored_annotated(settings, self._clock)
        self._refused: dict[str, str] = {}
        self._kept = self.names.kept(self._annotated)
        self._reader = NodeReader(settings)
        # What a former process saw is no proof that the node serves now; that it was withdrawn, and when, still counts.
        self._activities = {
            vip: Activity(False if each.active is False else None, 0, each.withdrawn_at, each.joins)
            for vip, each in stored_activities(settings, self._clock).items()
        }
        self._facts = ServingFacts(haproxy_answers=False, applied=False)
        self._addresses: dict[tuple[str, ...], NodeAddresses] = {}
        self._next_look = -math.inf
        self._reported: tuple[float, dict[str, Any]] = (-math.inf, {})
        self._agent = Agent(
            self.names, answers=partial(nodes_that_accept, port=settings.dns.reap_port), chance=SystemRandom()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def _count(self) -> None:
        self._requests += 1

    def turn(self) -> float:
        """Do what is due; return the seconds until the next turn."""
        now, wall = self._clock.monotonic(), self._clock.now()
        if now >= self._next_look:
            self._poll(now)
            self._next_look = now + self._settings.dns.look_s
        withdrawn = is_withdrawn(self._settings)
        wants = {kept.spec: self._want(kept, now, withdrawn=withdrawn) for kept in self._kept}
        due = min(self._next_look, self._agent.turn(now, wall, wants))
        self._drop_finished()
        self._report(now, wall, withdrawn=withdrawn)
        return max(due - self._clock.monotonic(), 0.0)

    def _poll(self, now: float) -> None:
        self._facts = self._reader.facts()
        changed = False
        for vip in {"", *(kept.spec.vip for kept in self._kept)}:
            why = self._facts.away(vip) if vip else reasons(self._facts)
            former = self._activity(vip)
            rules = for_holder(self._settings.dns) if vip else self._settings.dns
            activity = self._activities[vip] = advance(former, good=not why, now=now, rules=rules)
            if activity.active is not former.active:
                changed = True
                address = {"vip": vip} if vip else {}
                event = "node.joined" if activity.active else "node.withdrew"
                log.warning(event, node=self.names.node, reasons=list(why), **address)
        if changed:
            store_activities(self._settings, self._activities, self._clock)
        if self._settings.dns.annotation_suffixes:
            names, sure = self._reader.annotated()
            found, refused = annotated(self._annotated, names, self._settings.dns, sure=sure, now=now)
            self._set_annotated(found)
            for name in sorted(refused.keys() - self._refused.keys()):
                log.warning("name.refused", name=name, reason=refused[name])
            self._refused = refused

    def _activity(self, vip: str) -> Activity:
        return self._activities.get(vip, Activity())

    def _set_annotated(self, found: dict[str, AnnotatedName]) -> None:
        former, self._annotated = self._annotated, found
        if found == former:
            return
        for name, entry in found.items():
            if name not in former:
                log.info("name.added", name=name)
            elif entry.gone and not former[name].gone:
                log.warning("name.dropped", name=name, reason="the annotation has it no more")
        store_annotated(self._settings, found.values(), self._clock)
        self._kept = self.names.kept(found)

    def _drop_finished(self) -> None:
        """Drop annotated names that are gone once this node is out of them."""
        done = {kept.spec.name for kept in self._kept if kept.gone and self._is_out(kept)}
        if done:
            log.info("names.removed", names=sorted(done))
            self._set_annotated({name: entry for name, entry in self._annotated.items() if name not in done})

    def _is_out(self, kept: KeptName) -> bool:
        state = self._agent.names.get(kept.spec)
        if state is None or kept.annotated is None or state.want.wish is not Wish.WITHDRAW or state.problem:
            return False
        if state.planned != state.want or state.plan != NamePlan():
            return False
        # In mode vip a node that withdraws leaves its record to the next holder; a name that is gone has none.
        return kept.spec.mode is not Mode.VIP or drop(kept.spec, state.observed) == NamePlan()

    def _want(self, kept: KeptName, now: float, *, withdrawn: bool) -> Want:
        wish = wish_of(active=self._active(kept), withdrawn=withdrawn or kept.gone)
        node = self._addresses_of(kept).known(now, self._settings.dns.interval_s)
        # A node that does not know its addresses can still take out what it has put in.
        return Want(wish if node or wish is Wish.WITHDRAW else None, node or DnsNode(self.names.node))

    def _active(self, kept: KeptName) -> bool | None:
        """Return whether this node is to be in the answer of a name: it serves, and holds the address that counts."""
        return both(*(self._activity(vip).active for vip in {"", kept.spec.vip}))

    def _addresses_of(self, kept: KeptName) -> NodeAddresses:
        own = kept.spec
        key = (own.address_source.value, own.address, own.address6, own.interface, own.vip)
        if key not in self._addresses:
            self._addresses[key] = NodeAddresses(own, self.names.node, floating=floating(self._settings))
        return self._addresses[key]

    def _report(self, now: float, wall: float, *, withdrawn: bool) -> None:
        base = self._activity("")
        values = {
            "pid": os.getpid(),
            "node": self.names.node,
            "active": base.active,
            "withdrawn_by_command": withdrawn,
            "reasons": list(reasons(self._facts)),
            "may_join_at": wall + waits_s(base, now, self._settings.dns) if base.active is False else 0.0,
            "problem": "; ".join(source.problem for source in self._addresses.values() if source.problem),
            "names": [
                {
                    **name_values(self._agent.names[kept.spec]),
                    "active": self._active(kept),
                    "reasons": list(reasons(self._facts, kept.spec.vip)),
                    "asked_by_cluster": kept.annotated is not None,
                    "dropped": kept.gone,
                }
                for kept in self._kept
            ],
            "refused": dict(self._refused),
            "requests_total": self._requests,
        }
        lasting = {key: value for key, value in values.items() if key not in _CHANGING}
        if lasting != self._reported[1] or now - self._reported[0] >= REPORT_EVERY_S:
            self._reported = (now, lasting)
            document = {"at": wall, **values}
            self.line = line(document)
            write_report(self._settings.runtime_dir, document)
