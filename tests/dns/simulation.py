"""Nodes that come, go, flap, crash and are cut off, in a time of their own; every random choice from one seed."""

import heapq
import itertools
import random
from collections import deque
from dataclasses import dataclass, field, replace

from pyconfd.dns.activity import Activity, advance, both, for_holder
from pyconfd.dns.agent import Agent, Want
from pyconfd.dns.names import DnsNames, wish_of
from pyconfd.dns.planner import DnsNode, policy_of
from pyconfd.dns.records import ADDRESS_TYPES, Marker, Policy, RecordChange, RecordSet, ThrottledError, Zone
from pyconfd.dns.route53 import Route53
from pyconfd.errors import Problem, TransientError
from pyconfd.settings import DnsSettings, Mode, NameSettings, Settings
from tests.dns.stage import NAME, ZONE, beside, foreign, node
from tests.dns.strict import StrictRoute53

START = 1_800_000_000.0
LOOK_S = 2.0
A_SECOND = 5
REAP_AFTER_S = 240.0
STEP_S = 3600.0


@dataclass
class Machine:
    """One node: what befalls it, and the program that runs on it while it lives."""

    who: DnsNode
    agent: Agent
    alive: bool = True
    healthy: bool = True
    drained: bool = False
    reaches_aws: bool = True
    reaches_others: bool = True
    clock_s: float = 0.0
    serving: Activity = field(default_factory=Activity)
    holding: Activity = field(default_factory=Activity)
    requests: list[float] = field(default_factory=list)

    @property
    def serves(self) -> bool:
        return self.alive and self.healthy and not self.drained


@dataclass
class World:
    """``mode`` and the number of nodes are given; :meth:`run` lets things happen for a while and then settle."""

    seed: int
    count: int
    spec: NameSettings
    crashes: bool = False
    now: float = START
    answered: set[str] = field(default_factory=set)
    throttled: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.provider = StrictRoute53(ZONE)
        self.foreign = (*foreign(), *([beside()] if policy_of(self.spec) is Policy.MULTIVALUE else []))
        self.provider.put(ZONE.zone_id, *self.foreign)
        self.provider.after_change = self._check
        self.recent: deque[float] = deque()
        self.most_in_10_s = 0
        self.holder = 0
        self.machines = [self._machine(number) for number in range(self.count)]

    def _machine(self, number: int) -> Machine:
        # Some have no IPv6; the holder of an address always has: its name would go on saying what was there before.
        who = node(number, v6=number % 3 != 1 or self.spec.mode is Mode.VIP)
        dns = DnsSettings(nodes=self.count, reaper=self.crashes, reap_after_s=REAP_AFTER_S)
        agent = Agent(
            DnsNames(Settings(dns=dns), _Reached(self, number), who.name),
            answers=lambda markers: {marker.node for marker in markers if self._answers(number, marker)},
            chance=self.random,
        )
        return Machine(who, agent)

    def _answers(self, asker: int, marker: Marker) -> bool:
        other = next(item for item in self.machines if item.who.name == marker.node)
        me = self.machines[asker]
        return other.serves and (me is other or (me.reaches_others and other.reaches_others))

    def wanted(self, kind: str = "A") -> set[str]:
        if self.spec.mode is Mode.VIP:
            return {self.machines[self.holder].who.address(kind)}
        return {machine.who.address(kind) for machine in self.machines if machine.serves} - {""}

    def answer(self, kind: str = "A") -> set[str]:
        return set(self.provider.answer(NAME, kind)) - set(beside().values)

    def run(self, busy_s: float, settle_s: float) -> None:
        """Run with faults for ``busy_s``, then without any for ``settle_s``."""
        order = itertools.count()
        events = [(self.now + self.random.random() * 30, next(order), number) for number in range(self.count)]
        events.append((self.now + 20.0, next(order), -1))
        heapq.heapify(events)
        end_of_trouble, end = self.now + busy_s, self.now + busy_s + settle_s
        calm = False
        while events[0][0] < end:
            self.now, _, number = heapq.heappop(events)
            if not calm and self.now >= end_of_trouble:
                calm = True
                self._calm()
            if number < 0:
                if not calm:
                    self._befall()
                    heapq.heappush(events, (self.now + self.random.expovariate(1 / 8), next(order), -1))
                continue
            heapq.heappush(events, (self._step(self.machines[number], LOOK_S * (1 + 9 * calm)), next(order), number))

    def _step(self, machine: Machine, look_s: float) -> float:
        """One look of one node, and what is due; return when it looks again."""
        if not machine.alive:
            return self.now + look_s
        holds = self.spec.mode is not Mode.VIP or machine is self.machines[self.holder]
        machine.serving = advance(machine.serving, good=machine.healthy, now=self.now, rules=DnsSettings())
        machine.holding = advance(machine.holding, good=holds, now=self.now, rules=for_holder(DnsSettings()))
        active = both(machine.serving.active, machine.holding.active)
        want = Want(wish_of(active=active, withdrawn=machine.drained), machine.who)
        due = machine.agent.turn(self.now, self.now + machine.clock_s, {self.spec: want})
        return min(max(due, self.now + 0.01), self.now + look_s)

    def _befall(self) -> None:
        machine = self.random.choice(self.machines)
        kinds = ["health", "health", "drain", "aws", "network", "holder", "restart", "clock"]
        kinds += ["crash"] * (2 * self.crashes)
        match self.random.choice(kinds):
            case "health":
                machine.healthy = not machine.healthy
            case "drain":
                machine.drained = not machine.drained
            case "aws":
                machine.reaches_aws = not machine.reaches_aws
            case "network":
                machine.reaches_others = not machine.reaches_others
            case "holder":
                self.holder = self.random.randrange(self.count)
            case "clock":
                machine.clock_s -= STEP_S
            case "restart":
                machine.serving = replace(machine.serving, active=None, streak=0)
                machine.holding = replace(machine.holding, active=None, streak=0)
            case "crash":
                machine.alive = not machine.alive
                machine.serving = machine.holding = Activity()

    def _calm(self) -> None:
        """The end of all trouble: who is cut off is no longer; at least one node can serve."""
        for machine in self.machines:
            machine.reaches_aws = machine.reaches_others = True
            machine.alive = machine.alive or not self.crashes
            machine.clock_s = 0.0
        for machine in (self.machines[0], self.machines[self.holder]):
            machine.alive = machine.healthy = True
            machine.drained = False

    def before(self, machine: Machine) -> None:
        """Count a request; the account's limit is for all of them."""
        machine.requests.append(self.now)
        self.recent.append(self.now)
        while self.recent[0] <= self.now - 10:
            self.recent.popleft()
        self.most_in_10_s = max(self.most_in_10_s, len(self.recent))
        if sum(time > self.now - 1 for time in self.recent) > A_SECOND:
            self.throttled += 1
            raise ThrottledError(Problem("Route 53", "Throttling"))

    def _check(self) -> None:
        for kind in ADDRESS_TYPES:
            if self.answer(kind):
                self.answered.add(kind)
            assert self.answer(kind) or kind not in self.answered, f"no {kind} at {self.now - START:.1f}"
        assert set(self.foreign) <= self.provider.everything(), "a foreign record was touched"


class _Reached(Route53):
    """Route 53 as one node reaches it: at times not at all, and at times a reply is lost after the change was done."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number

    def zones(self) -> tuple[Zone, ...]:
        return self._world.provider.zones()

    def records(self, zone_id: str, name: str) -> tuple[RecordSet, ...]:
        self._reach()
        return self._world.provider.records(zone_id, name)

    def change(self, zone_id: str, changes: tuple[RecordChange, ...]) -> None:
        self._reach()
        self._world.provider.change(zone_id, changes)
        if self._world.random.random() < 0.1:
            raise TransientError(Problem("Route 53", "the reply was lost"))

    def _reach(self) -> None:
        machine = self._world.machines[self._number]
        if not machine.reaches_aws:
            raise TransientError(Problem("Route 53", "timed out"))
        self._world.before(machine)
