"""A cluster of pods that come and go, and the guard before a real preset."""

from dataclasses import dataclass, field

import msgspec

from pyconfd.admission.removal_protection import Moment, RemovalProtection, RemovalRules, SavedHold
from pyconfd.daemon.protection import decoded, encoded
from pyconfd.model.context import Context
from pyconfd.model.hold import HoldKind, HoldStep
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import registry
from pyconfd.presets.memo import Memo
from pyconfd.presets.reading import PresetOptions
from pyconfd.sources.kubernetes.cache import Cache
from tests.presets import objects

OPTIONS = PresetOptions()


@dataclass
class Pod:
    address: str
    ready: bool = True
    terminating: bool = False


@dataclass
class Pods:
    """What the API shows: the pods of each service; the objects of ``hidden`` ones are in no list."""

    services: dict[str, dict[str, Pod]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    hidden_slices: set[str] = field(default_factory=set)
    of_services: Cache = field(default_factory=Cache)
    of_slices: Cache = field(default_factory=Cache)
    domains: dict[str, str] = field(default_factory=dict)
    """Of the services that do not ask for their own name."""

    def add(self, service: str, pod: str, address: str) -> None:
        self.services.setdefault(service, {})[pod] = Pod(address)

    def fill(self, service: str, count: int) -> None:
        number = list(self.services).index(service) if service in self.services else len(self.services)
        for each in range(count):
            self.add(service, f"{service}-{each}", f"10.{number}.0.{each}")

    def snapshot(self) -> Snapshot:
        shown: list[objects.Named] = []
        for name, pods in self.services.items():
            if name not in self.hidden:
                domain = f"{self.domains.get(name, name)}.example.com"
                shown.append(objects.service(name, {"domain": domain, "proto": "http"}))
            if name in self.hidden_slices:
                continue
            members = (
                objects.endpoint(
                    pod.address,
                    pod=called,
                    ready=pod.ready and not pod.terminating,
                    serving=pod.ready,
                    terminating=pod.terminating,
                )
                for called, pod in pods.items()
            )
            shown.append(objects.slice_(name, *members))
        return self.listed(objects.snapshot(*shown))

    def listed(self, made: Snapshot) -> Snapshot:
        """Give what the caches make of it: what did not change is the same object."""
        self.of_services.replace(made.services.values(), ())
        self.of_slices.replace(made.endpointslices.values(), ())
        return Snapshot(
            services=self.of_services.view(),  # type: ignore[arg-type]
            endpointslices=self.of_slices.view(),  # type: ignore[arg-type]
            departures=(self.of_slices.departures,),
        )


class Stage:
    """Time passes only where a test says so."""

    def __init__(self, rules: RemovalRules | None = None, *, presets: tuple[str, ...] = ("domains",)) -> None:
        self.rules = rules or RemovalRules()
        self.protection = RemovalProtection(self.rules)
        self.presets = presets
        self.now = 1000.0
        self.pods = Pods()
        self.confirmed = False
        self.applies = True
        """Whether what is to be served comes to be applied."""
        self.allowed: set[str] = set()
        self.served = Snapshot()
        self.raw = Snapshot()
        self.steps: list[HoldStep] = []
        self.started = False
        self._memo = Memo()

    def translate(self, snapshot: Snapshot, memo: Memo | None = None) -> Context:
        return registry.translate(snapshot, self.presets, OPTIONS, memo)

    def look(self, after_s: float = 0.1) -> None:
        """Let time pass and show the pods as they are."""
        self.now += after_s
        self.show(self.pods.snapshot())

    def show(self, snapshot: Snapshot) -> None:
        self.raw = snapshot
        context = self.translate(snapshot, self._memo)
        moment = Moment(self.now, 1e9 + self.now)
        if self.started:
            look = self.protection.look
            self.served = look(moment, snapshot, context, confirmed=self.confirmed, allowed=self.allowed)
        else:
            self.protection.start(snapshot, context)
            self.served, self.started = snapshot, True
        if self.applies:
            self.protection.applied()
        self.steps += [event.step for event in self.protection.events()]

    def again(self, after_s: float = 0.1) -> None:
        """Let time pass and show the same again."""
        self.now += after_s
        self.show(self.raw)

    def restart(self) -> None:
        """Begin anew with what the state directory has."""
        saved = msgspec.json.encode(self.protection.saved(), enc_hook=encoded)
        self.protection = RemovalProtection(self.rules)
        self._memo = Memo()
        self.pods.of_services, self.pods.of_slices = Cache(), Cache()
        self.raw = self.pods.snapshot()
        self.served = self.protection.restore(
            msgspec.json.decode(saved, type=SavedHold, dec_hook=decoded),
            Moment(self.now, 1e9 + self.now),
            self.raw,
            self.translate(self.raw, self._memo),
        )
        if self.applies:
            self.protection.applied()
        self.steps += [event.step for event in self.protection.events()]

    def addresses(self, snapshot: Snapshot | None = None) -> dict[str, set[str]]:
        """Give the ready addresses behind each domain, of what is served."""
        context = self.translate(self.served if snapshot is None else snapshot)
        return {
            name.removesuffix(".example.com"): set(of.addresses(value))
            for of in context.claimed
            for name, value in of.by_name.items()
        }

    @property
    def all_served(self) -> set[str]:
        return set().union(*self.addresses().values())

    @property
    def kind(self) -> HoldKind | None:
        return self.protection.hold.kind if self.protection.hold else None


def staged(*counts: int, rules: RemovalRules | None = None) -> Stage:
    """Give a stage with services ``s0``, ``s1`` ... of so many pods, seen once."""
    stage = Stage(rules)
    for number, count in enumerate(counts):
        stage.pods.services[f"s{number}"] = {}
        stage.pods.fill(f"s{number}", count)
    stage.look()
    assert stage.kind is None
    return stage
