"""Keeps the names of this node in step: looks at it, believes what lasts, and lets the agent do what follows."""

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import structlog

from pyconfd.dns.activity import Facts, Rules, Standing, advance, both, reasons, waits_s
from pyconfd.dns.addresses import Addresses
from pyconfd.dns.agent import Agent, AgentRules, Want
from pyconfd.dns.asked import Asked, AskingRules, asked
from pyconfd.dns.memory import store_asked, store_standings, stored_asked, stored_standings, write, write_text
from pyconfd.dns.ownership import Marker, Mode
from pyconfd.dns.planning import InStep, Wish, drop
from pyconfd.dns.readers import Reader, nodes_that_accept
from pyconfd.dns.reporting import METRICS, REPORT, REPORT_EVERY_S, line, metrics, name_values
from pyconfd.dns.site import Kept, floating, is_withdrawn, site_of, wish_of
from pyconfd.dns.view import Node
from pyconfd.errors import TransientError, first_line
from pyconfd.settings import Settings

log = structlog.get_logger(__name__)

_CHANGING = frozenset({"may_join_at", "requests_total"})
"""What is told anew only with something else, or in its time."""


class Following:
    """One look and at most one visit to Route 53 at each turn."""

    def __init__(self, settings: Settings) -> None:
        dns = settings.dns
        self._settings = settings
        self._requests = 0
        self.site = site_of(settings, self._count)
        self.line = "starting"
        """What is told in one line."""
        self._rules = Rules(dns.rise, dns.fall, dns.hold_s, dns.joins_an_hour)
        self._asking = AskingRules(dns.annotation_suffixes, dns.annotation_names, dns.annotation_grace_s)
        self._asked = Asked(stored_asked(settings) if dns.annotation_suffixes else {}, {})
        self._kept = self.site.kept(self._asked.names)
        self._reader = Reader(settings)
        self._standings: dict[str, Standing] = stored_standings(settings)
        self._facts = Facts(haproxy_answers=False, applied=False)
        self._sources: dict[tuple[str, ...], _Source] = {}
        self._next_look = 0.0
        self._reported: tuple[float, dict[str, Any]] = (0.0, {})
        self._agent = Agent(
            self.site.provider,
            self.site.zone_id,
            node=self.site.node,
            rules=AgentRules(dns.interval_s, dns.nodes, dns.reap_after_s if dns.reaper else 0.0),
            answers=_asks(dns.reap_port),
            chance=random.SystemRandom().random,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def _count(self) -> None:
        self._requests += 1

    def turn(self, now: float) -> float:
        """Do what is due; give the seconds until the next turn."""
        look_s = self._settings.dns.look_s
        if now >= self._next_look or self._next_look > now + look_s:
            self._look(now)
            self._next_look = now + look_s
        withdrawn = is_withdrawn(self._settings)
        wants = {kept.spec: self._want(kept, now, withdrawn=withdrawn) for kept in self._kept}
        due = min(self._next_look, self._agent.turn(now, wants))
        self._let_go()
        self._report(now, withdrawn=withdrawn)
        return max(due - time.time(), 0.0)

    def _look(self, now: float) -> None:
        self._facts = self._reader.facts()
        former = dict(self._standings)
        for vip in {"", *(kept.own.vip for kept in self._kept)}:
            why = self._facts.away(vip) if vip else reasons(self._facts)
            known = former.get(vip, Standing())
            rules = self._rules.following if vip else self._rules
            self._standings[vip] = advance(known, good=not why, now=now, rules=rules)
            if known.active is not self._standings[vip].active:
                event = "node.joined" if self._standings[vip].active else "node.withdrew"
                floating = {"vip": vip} if vip else {}
                log.warning(event, node=self.site.node, reasons=list(why), **floating)
        if any(former.get(vip, Standing()).active is not each.active for vip, each in self._standings.items()):
            store_standings(self._settings, self._standings)
        if self._asking.suffixes:
            self._remember(asked(self._asked.names, self._reader.told(), self._asking, now=now))

    def _remember(self, found: Asked) -> None:
        """Take the names that the cluster asks for, and forget those of which nothing is left."""
        for name in sorted(found.refused.keys() - self._asked.refused.keys()):
            log.warning("name.refused", name=name, reason=found.refused[name])
        former, self._asked = self._asked.names, found
        if found.names == former:
            return
        for name, entry in found.names.items():
            if name not in former:
                log.info("name.taken", name=name)
            elif entry.gone and not former[name].gone:
                log.warning("name.dropped", name=name, reason="the annotation has it no more")
        store_asked(self._settings, found.names)
        self._kept = self.site.kept(found.names)

    def _let_go(self) -> None:
        """Forget names that nobody asks for once this node is out of them."""
        done = {
            kept.spec.name
            for kept in self._kept
            if kept.asked is not None
            and kept.asked.gone
            and (state := self._agent.names.get(kept.spec)) is not None
            and state.want.wish is Wish.WITHDRAW
            and state.read_at > kept.asked.missed_since
            and state.plan == InStep()
            and state.problem is None
            # Who wants nothing of a name that follows an address leaves it to the next holder: here there is none.
            and (kept.spec.mode is not Mode.VIP or drop(kept.spec, state.observed) == InStep())
        }
        if done:
            left = {name: entry for name, entry in self._asked.names.items() if name not in done}
            log.info("names.let_go", names=sorted(done))
            self._remember(Asked(left, self._asked.refused))

    def _want(self, kept: Kept, now: float, *, withdrawn: bool) -> Want:
        gone = kept.asked is not None and kept.asked.gone
        wish = wish_of(active=self._active(kept), withdrawn=withdrawn or gone)
        node = self._source(kept).node(now)
        # Who does not know its addresses can still take out what it has put in.
        return Want(wish if node or wish is Wish.WITHDRAW else None, node or Node(self.site.node))

    def _active(self, kept: Kept) -> bool | None:
        """Return whether this node is to be in the answer of a name: it serves, and holds the address that counts."""
        return both(*(self._standings.get(vip, Standing()).active for vip in {"", kept.own.vip}))

    def _source(self, kept: Kept) -> "_Source":
        own = kept.own
        key = (own.address_source.value, own.address, own.address6, own.interface, own.vip)
        if key not in self._sources:
            addresses = Addresses(own, self.site.node, floating=floating(self._settings))
            self._sources[key] = _Source(addresses, self._settings.dns.interval_s)
        return self._sources[key]

    def _report(self, now: float, *, withdrawn: bool) -> None:
        base = self._standings.get("", Standing())
        problems = [source.problem for source in self._sources.values() if source.problem]
        values = {
            "pid": os.getpid(),
            "node": self.site.node,
            "active": base.active,
            "withdrawn_by_command": withdrawn,
            "reasons": list(reasons(self._facts)),
            "may_join_at": now + waits_s(base, now, self._rules) if base.active is False else 0.0,
            "problem": "; ".join(problems),
            "names": [self._of_name(kept) for kept in self._kept],
            "refused": dict(self._asked.refused),
            "requests_total": self._requests,
        }
        lasting = {key: value for key, value in values.items() if key not in _CHANGING}
        if lasting != self._reported[1] or now - self._reported[0] >= REPORT_EVERY_S:
            self._reported = (now, lasting)
            document = {"at": now, **values}
            self.line = line(document)
            write(Path(self._settings.runtime_dir) / REPORT, document)
            # Whoever collects metrics is neither this user nor of its group.
            write_text(Path(self._settings.runtime_dir) / METRICS, metrics(document), 0o644)

    def _of_name(self, kept: Kept) -> dict[str, Any]:
        return {
            **name_values(self._agent.names[kept.spec]),
            "active": self._active(kept),
            "reasons": list(reasons(self._facts, kept.own.vip)),
            "asked_by_cluster": kept.asked is not None,
            "dropped": kept.asked is not None and kept.asked.gone,
        }


class _Source:
    """The addresses of this node from one source; what was known stays where it falls silent."""

    def __init__(self, addresses: Addresses, every_s: float) -> None:
        self._addresses = addresses
        self._every_s = every_s
        self._node: Node | None = None
        self._asked_at = 0.0
        self.problem = ""

    def node(self, now: float) -> Node | None:
        """Return the node, None while nothing is known."""
        if self._asked_at and 0.0 <= now - self._asked_at < (self._every_s if self._node else 1.0):
            return self._node
        self._asked_at = now
        try:
            self._node = self._addresses.read()
        except TransientError as error:
            problem = first_line(error.problems)
            if problem != self.problem:
                log.warning("address.unknown", problem=problem)
            self.problem = problem
        else:
            self.problem = ""
        return self._node


def _asks(port: int) -> Callable[[Sequence[Marker]], frozenset[str]]:
    return lambda markers: nodes_that_accept(markers, port)
