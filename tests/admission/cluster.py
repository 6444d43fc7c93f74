"""A cluster of pods that come and go, and removal protection before a real preset."""

from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from pyconfd.admission.removal_protection import Moment, RemovalProtection, RemovalRules, SavedHold
from pyconfd.daemon.protection import decoded, encoded
from pyconfd.model.context import Context
from pyconfd.model.hold import HoldKind, HoldStep
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.decode import Deleted
from tests.presets import objects


@dataclass
class Pod:
    address: str
    ready: bool = True
    terminating: bool = False


@dataclass
class Shown:
    """What the API shows: the pods of each service; the objects of ``hidden`` ones are in no list."""

    services: dict[str, dict[str, Pod]] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    hidden_slices: set[str] = field(default_factory=set)
    deletions: int = 0
    """How many Services were deleted by name; one that is created again has another UID."""
    domains: dict[str, str] = field(default_factory=dict)
    """Of the services that do not ask for their own name."""
    of_services: Cache = field(default_factory=Cache)
    of_slices: Cache = field(default_factory=Cache)

    def add(self, service: str, pod: str, address: str) -> None:
        self.services.setdefault(service, {})[pod] = Pod(address)

    def fill(self, service: str, count: int) -> None:
        number = list(self.services).index(service) if service in self.services else len(self.services)
        for each in range(count):
            self.add(service, f"{service}-{each}", f"10.{number}.{each // 250}.{each % 250}")

    def snapshot(self) -> Snapshot:
        shown: list[objects.Named] = []
        for name, pods in self.services.items():
            if name not in self.hidden:
                domain = f"{self.domains.get(name, name)}.example.com"
                made = objects.service(name, {"domain": domain, "proto": "http"})
                uid = f"{name} {self.deletions}"
                known = self.of_services.view().get(Key("demo", name))
                if known is not None:
                    uid = known.metadata.uid
                shown.append(replace(made, metadata=replace(made.metadata, uid=uid)))
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

    def delete(self, service: str) -> None:
        """Delete a Service by name; its slices stay."""
        self.of_services.apply(Deleted(Key("demo", service), "9"))
        self.hidden.add(service)
        self.deletions += 1

    def listed(self, made: Snapshot) -> Snapshot:
        """Return what the caches make of it: what did not change is the same object."""
        self.of_services.replace(made.services.values(), ())
        self.of_slices.replace(made.endpointslices.values(), ())
        return Snapshot(
            services=self.of_services.view(),  # type: ignore[arg-type]
            endpointslices=self.of_slices.view(),  # type: ignore[arg-type]
            terminating=(self.of_slices.terminating, self.of_services.terminating),
        )


class Cluster:
    """Time passes only where a test says so. Services are called ``s0``, ``s1`` ... and have so many pods at first."""

    def __init__(
        self, *counts: int, rules: RemovalRules | None = None, presets: tuple[str, ...] = ("domains",)
    ) -> None:
        self.rules = rules or RemovalRules()
        self.protection = RemovalProtection(self.rules)
        self.presets = presets
        self.now = 1000.0
        self.pods = Shown()
        self.confirmed = False
        self.applies = True
        """Whether what is to be served comes to be applied."""
        self.allowed: set[str] = set()
        self.raw = self.served = Snapshot()
        self.steps: list[HoldStep] = []
        self._started = False
        self._memo = Memo()
        for number, count in enumerate(counts):
            self.pods.services[f"s{number}"] = {}
            self.pods.fill(f"s{number}", count)
        if counts:
            self.look()

    def translate(self, snapshot: Snapshot, memo: Memo | None = None) -> Context:
        return registry.translate(snapshot, self.presets, PresetOptions(), memo)

    def do(self, script: str) -> None:
        """Do one thing after the other, and look after each: see the words below."""
        for step in script.split("; "):
            subject, *words = step.split()
            if subject == "wait":
                self.now += float(words[0])
            elif subject == "list":
                self.confirmed = True
            elif subject == "allow":
                assert self.protection.hold is not None
                self.allowed = {self.protection.hold.hold_id}
            elif subject == "restart":
                self.restart()
                continue
            elif subject == "fail":
                self.applies = False
            else:
                for name in self.pods.services if subject == "all" else (subject,):
                    self._change(name, *words)
            self.look()

    def _change(self, name: str, action: str, number: str = "99") -> None:
        service = self.pods.services.setdefault(name, {})
        first = list(service)[: int(number)]
        for pod in first:
            if action == "gone":
                del service[pod]
            elif action in {"unready", "terminate"}:
                setattr(service[pod], "ready" if action == "unready" else "terminating", action == "terminate")
        if action == "back":
            self.pods.hidden, self.pods.hidden_slices = set(), set()
            self.pods.fill(name, int(number))
        elif action == "new":
            for each in range(int(number)):
                self.add(name, f"{name}-new-{each}", f"10.200.{name[1:]}.{each}")
        elif action == "delete":
            self.pods.delete(name)
        elif action in {"hide", "lose-slices"}:
            (self.pods.hidden if action == "hide" else self.pods.hidden_slices).add(name)

    def add(self, service: str, pod: str, address: str) -> None:
        self.pods.add(service, pod, address)

    def look(self, after_s: float = 0.1) -> None:
        """Move the time and show the pods as they are."""
        self.now += after_s
        self.show(self.pods.snapshot())

    def show(self, snapshot: Snapshot) -> None:
        self.raw = snapshot
        left = self.protection.without_deleted(snapshot)
        if self._started and left is not self.protection.snapshot:
            self.protection.rebase(left, self.translate(left, self._memo))
        context = self.translate(snapshot, self._memo)
        if self._started:
            admit, moment = self.protection.admit, Moment(self.now, 1e9 + self.now)
            self.served = admit(moment, snapshot, context, confirmed=self.confirmed, allowed=self.allowed)
        else:
            self.protection.start(snapshot, context)
            self.served, self._started = snapshot, True
        self._concluded()

    def restart(self) -> None:
        """Begin again with what the state directory has."""
        saved = msgspec.json.encode(self.protection.saved(), enc_hook=encoded)
        self.protection, self._memo = RemovalProtection(self.rules), Memo()
        self.pods.of_services, self.pods.of_slices = Cache(), Cache()
        self.raw = self.pods.snapshot()
        self.served = self.protection.restore(
            msgspec.json.decode(saved, type=SavedHold, dec_hook=decoded),
            Moment(self.now, 1e9 + self.now),
            self.raw,
            self.translate(self.raw, self._memo),
        )
        self._concluded()

    def _concluded(self) -> None:
        if self.applies:
            self.protection.applied()
        self.steps += [event.step for event in self.protection.events()]

    def addresses(self, snapshot: Snapshot | None = None) -> dict[str, set[str]]:
        """Return the ready addresses behind each domain, of what is served."""
        context = self.translate(self.served if snapshot is None else snapshot)
        return {
            name.removesuffix(".example.com"): set(of.addresses(value))
            for of in context.claimed
            for name, value in of.by_name.items()
        }

    @property
    def counts(self) -> str:
        """How many are served behind each service, in order of their names."""
        return " ".join(str(len(found)) for _, found in sorted(self.addresses().items()))

    @property
    def all_served(self) -> set[str]:
        return set().union(*self.addresses().values())

    @property
    def kind(self) -> HoldKind | None:
        return self.protection.hold.kind if self.protection.hold else None
