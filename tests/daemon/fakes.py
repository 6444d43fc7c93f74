"""Fakes of the loop's ports. The balancer's follows the contract in ``test_balancer_contract.py``."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import msgspec

from pyconfd import wiring
from pyconfd.admission.removal_protection import RemovalRules, SavedHold
from pyconfd.app.daemon import pinned_settings, pinning, rollout_port
from pyconfd.daemon.base_loop import Loop
from pyconfd.daemon.installed_certificates import InstalledCertificates
from pyconfd.daemon.loop import Daemon, LoopSettings
from pyconfd.daemon.name_register import NameRegisterFile, SharedNames
from pyconfd.daemon.ports import (
    NoChanges,
    NoObjectStatuses,
    NoRenderings,
    ObjectStatuses,
    Renderings,
    RolloutPort,
    World,
)
from pyconfd.daemon.protection import decoded, encoded, hold_file
from pyconfd.errors import ApplyError, Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.haproxy.config import diff
from pyconfd.haproxy.config.text import binds, digest_in, mark
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.observation import NotRunning, Observation, Running
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.balancing import TakesAll
from pyconfd.model.changes import Change
from pyconfd.model.context import Context, EndpointTotals, Refusal
from pyconfd.model.inputs import GenerationInputs
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Applied, Failed, Generation, Outcome, Rejected, Step, Stored, Unchanged
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.model.status import ApiServerState, HaproxyState, Paused, Phase, Sample, SourceHealth, Status
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.settings import ApplySettings, HistorySettings, Settings
from pyconfd.sources.fragments import read_fragments
from pyconfd.sources.host import ClusterSource
from pyconfd.system.state_file import StateFile
from tests.presets import objects

EPOCH = 1_700_000_000.0


class FakeClock:
    """``wall`` may be set to anything; the monotonic clock only goes on."""

    def __init__(self) -> None:
        self.wall = EPOCH
        self.elapsed = 5000.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.elapsed

    def date(self, now: float) -> str:
        return f"date {now:.3f}"

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.elapsed += seconds


@dataclass
class FakeSource:
    current: Snapshot | None = None
    unreadable: tuple[Refusal, ...] = ()
    relists: int = 0
    lists_stall: bool = False
    stopped: bool = False
    notify: Callable[[], None] = lambda: None
    bug: Exception | None = None
    servers: tuple[ApiServerState, ...] = ()
    problems: tuple[Problem, ...] = ()

    def start(self, notify: Callable[[], None]) -> None:
        self.notify = notify

    def show(self, snapshot: Snapshot | None) -> None:
        self.current = snapshot
        self.notify()

    def snapshot(self) -> Snapshot | None:
        if self.bug:
            raise self.bug
        return self.current

    def refusals(self) -> tuple[Refusal, ...]:
        return self.unreadable

    def health(self) -> SourceHealth:
        return SourceHealth(synced=self.current is not None, api_servers=self.servers, problems=self.problems)

    def relist(self) -> None:
        self.relists += 1

    def relisted(self) -> bool:
        return not self.lists_stall

    def stop(self) -> None:
        self.stopped = True


@dataclass
class FakeNotifier:
    said: list[str] = field(default_factory=list)
    fed: int = 0

    def ready(self, status: str = "") -> None:
        self.said.append(f"READY {status}")

    def status(self, text: str) -> None:
        self.said.append(text)

    def watchdog(self) -> None:
        self.fed += 1

    @property
    def readies(self) -> list[str]:
        return [line for line in self.said if line.startswith("READY")]


class FakeBalancer(TakesAll):
    """A HAProxy in memory. ``broken`` makes every attempt to serve fail; a text with ``blance`` is not accepted.

    ``disk`` outlives it, as the history and the installed file do.
    """

    def __init__(self, clock: FakeClock | None = None, disk: "FakeDisk | None" = None) -> None:
        self.clock = clock or FakeClock()
        self.disk = disk or FakeDisk()
        self.broken: ApplyError | RejectedInput | None = None
        self.tolerates = False
        self.verifies = True
        self.takes_s = 0.25
        self.taken: tuple[Listener, ...] = ()
        self.attempts: list[tuple[float, str]] = []
        self.checks = 0
        self.progress: Callable[[], None] = lambda: None
        self._last: Stored | None = None
        self.state = HaproxyState()

    def condition(self) -> HaproxyState:
        return self.state

    @property
    def file_behind(self) -> bool:
        return False

    def last_good(self) -> Stored | None:
        if self._last is None and self.disk.history:
            self._last = self.disk.history[-1]
        return self._last

    def report_progress(self, progress: Callable[[], None]) -> None:
        self.progress = progress

    def runs(self) -> bool:
        return self.disk.worker != 0

    def plan(self, rendering: Rendering) -> Plan:
        last = self.last_good()
        digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in self.disk.files.items()}
        running = Running(self.disk.loaded, self.disk.worker, master_pid=1) if self.disk.worker else NotRunning()
        return diff.plan(rendering, last.rendering if last else None, Observation(self.disk.conf, running, digests))

    def check(self, rendering: Rendering) -> None:
        self.checks += 1
        self._pass_time()
        if "blance" in rendering.text and not self.tolerates:
            problem = Problem("02-part.tmpl rendered line 2", "unknown keyword 'blance'", "write balance")
            raise RejectedInput(problem, step=Step.CHECK)

    def listener_conflicts(self, rendering: Rendering) -> Mapping[Listener, str]:
        bound = (listener for bind in binds(rendering.text) for listener in bind.listeners())
        return {each: f"nginx listens on {found}" for each in bound for found in self.taken if found.overlaps(each)}

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, totals: EndpointTotals, now: float) -> Applied:
        number = max((stored.generation.number for stored in self.disk.history), default=0) + 1
        reasons = tuple(reason.value for reason in plan.reasons)
        generation = Generation(number, rendering.digest, now, curdate, reasons, totals)
        self._transact(rendering)
        self._last = Stored(generation, rendering)
        self.disk.history.append(self._last)
        return Applied(generation, plan, verified=self.verifies)

    def restore_last_good(self, now: float) -> Outcome | None:
        last = self.last_good()
        if last is None:
            return None
        plan = self.plan(last.rendering)
        if isinstance(plan, Noop):
            return Unchanged(last.generation, plan.verified)
        try:
            self._transact(last.rendering)
        except RejectedInput as error:
            return Rejected(Step(error.step), error.problems)
        except ApplyError as error:
            return Failed(Step(error.step), error.problems, error.disruptive)
        return Applied(last.generation, plan, verified=True)

    def _transact(self, rendering: Rendering) -> None:
        self.check(rendering)
        self.attempts.append((self.clock.monotonic(), rendering.digest))
        if self.broken:
            raise self.broken
        wanted, files = mark(rendering.text, rendering.digest), {file.path: file.content for file in rendering.files}
        adopted = not self.disk.history and (self.disk.conf, self.disk.files) == (wanted, files)
        self.disk.conf, self.disk.files = wanted, files
        if not (adopted and self.disk.loaded == rendering.digest):
            self.disk.load()
        self._pass_time()

    def _pass_time(self) -> None:
        self.progress()
        self.clock.advance(self.takes_s / 2)


@dataclass
class FakeDisk:
    history: list[Stored] = field(default_factory=list)
    conf: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    worker: int = 100
    loaded: str | None = None

    def load(self) -> None:
        """Start, or load what is installed."""
        self.worker += 1
        self.loaded = digest_in(self.conf or "")


TEMPLATE = """frontend fe
    bind :8000
{% for domain, items in domains.items() %}
backend {{ domain }}
{% for ip in items.ips %}
    server s{{ loop.index }} {{ ip }}:80
{% endfor %}
{% endfor %}
"""
DATED = "# made {{ extra.curdate }}\n" + TEMPLATE

DEAD = ApplyError(Step.VERIFY, Problem("haproxy", "is not running, and did not appear", "start it"))
TAKEN = RejectedInput(Problem("a.conf", "port 80 is taken", "stop what listens there"), step=Step.BINDS)
FAILING = ApplyError(Step.RELOAD, Problem("haproxy.reload_cmd", "ended with 1", "run it by hand"))
DISRUPTIVE = ApplyError(Step.VERIFY, Problem("haproxy", "the new worker did not start", "see its log"), disruptive=True)
AWAY = TransientError(Problem("/etc/pyconfd", "the template directory does not exist", "create it"))


def cluster(*addresses: str, name: str = "shop", extra: str = "") -> Snapshot:
    """Return a cluster with one Service; ``extra`` adds an object that changes nothing in the configuration."""
    annotations = {"domain": f"{name}.example.com", "proto": "http"}
    service = objects.service(name, annotations)
    slice_ = objects.slice_(name, *(objects.endpoint(address) for address in addresses))
    more = [objects.node(extra, "192.0.2.1")] if extra else []
    return objects.snapshot(service, slice_, *more)


FIRST = ReloadReason.FIRST_CONFIGURATION


class RememberedHolds(StateFile[SavedHold]):
    """Outlives a Bed, as the state directory does; what goes in is what comes out of a file."""

    def __init__(self) -> None:
        super().__init__("", SavedHold)
        self.data = b"{}"

    def load(self) -> SavedHold | None:
        return msgspec.json.decode(self.data, type=SavedHold, dec_hook=decoded)

    def save(self, value: SavedHold) -> bool:
        self.data = msgspec.json.encode(value, enc_hook=encoded)
        return True


class ToldChanges(NoChanges):
    """What people were told."""

    def __init__(self) -> None:
        self.told: list[Change] = []

    def record(self, change: Change) -> None:
        self.told.append(change)


class OfferedStatuses(NoObjectStatuses):
    """What the writer of statuses was given."""

    def __init__(self) -> None:
        self.given: list[Context] = []

    def offer(self, context: Context) -> None:
        self.given.append(context)


class LoopBed:
    """A loop with fakes around it; the test moves the clock."""

    loop: Loop

    def __init__(self, disk: FakeDisk | None = None) -> None:
        self.clock = FakeClock()
        self.notifier = FakeNotifier()
        self.balancer = self.make_balancer(disk)
        self.allowed: set[str] = set()
        self.others: tuple[Problem, ...] = ()
        self.published: list[Status] = []

    def make_balancer(self, disk: FakeDisk | None) -> FakeBalancer:
        return FakeBalancer(self.clock, disk)

    @property
    def status(self) -> Status:
        return self.loop.status()

    def phase(self) -> Phase:
        return self.status.phase

    def problems(self) -> tuple[str, ...]:
        return self.status.problems

    def turn(self) -> None:
        self.loop.step(self.loop.mailbox.take(0.0))

    def run_for(self, seconds: float, *, turns: int | None = None) -> None:
        """Step the loop for so long; fails where that takes more than ``turns`` turns."""
        limit = turns if turns is not None else 20 + int(seconds * 8)
        end = self.clock.monotonic() + seconds
        for _ in range(limit):
            self.turn()
            left = end - self.clock.monotonic()
            wait_s = self.loop.wait_s()
            if wait_s >= left:
                self.clock.advance(max(left, 0.0))
                self.turn()
                return
            self.clock.advance(wait_s)
        raise AssertionError(f"the loop spins: {limit} turns did not fill {seconds} s")

    def settle(self) -> None:
        self.run_for(3.0)


class Bed(LoopBed):
    """A Daemon with a real renderer, presets, removal protection and diff inside it."""

    sample: Sample | None = None
    """What HAProxy counted."""
    reserve_s = 0.0
    """How long a name stays with the namespace of an owner that is gone."""
    shared_names: SharedNames | None = None
    """What all load balancers remember together."""
    state_dir = ""
    """Where names are remembered over restarts."""
    presets: tuple[str, ...] = ("domains",)
    renderings: Renderings = NoRenderings()

    def __init__(
        self,
        disk: FakeDisk | None = None,
        rules: RemovalRules | None = None,
        memory: StateFile[SavedHold] | None = None,
        /,
        **apply: float,
    ) -> None:
        super().__init__(disk)
        self.source = FakeSource()
        self.paused: Paused | None = None
        self.templates: dict[str, str] | PyconfdError = {"02-part.tmpl": TEMPLATE}
        self.changes = ToldChanges()
        self.compiled = 0
        self.memory = memory or RememberedHolds()
        self.marked: list[float] = []
        self.statuses = OfferedStatuses()
        world = World(
            source=self.source,
            balancer=self.balancer,
            notifier=self.notifier,
            clock=self.clock,
            read_fragments=self._read,
            make_renderer=self._compile,
            preset_options=lambda _: PresetOptions(cluster_templates=True),
            served_before=self._served_before,
            allowed_holds=lambda: frozenset(self.allowed),
            forget_holds=self.allowed.clear,
            publish=self.published.append,
            other_problems=lambda: self.others,
            paused=lambda _: self.paused,
            hold_file=self.memory,
            name_register=NameRegisterFile(self.state_dir, self.reserve_s, self.shared_names),
            renderings=self.renderings,
            changes=self.changes,
            object_statuses=self.statuses,
            rollout=RolloutPort(lambda: self.sample, lambda: self.marked.append(self.clock.elapsed)),
        )
        settings = replace(ApplySettings(), **apply)  # type: ignore[arg-type]
        history = HistorySettings()
        loop = LoopSettings(settings, self.presets, "0", 1, rules or RemovalRules(), history)
        self.loop = self.daemon = Daemon(world, loop)
        self.daemon.start()

    def _served_before(self, found: FragmentSet) -> bool:
        return GenerationInputs(found).digest in {stored.rendering.inputs for stored in self.balancer.disk.history}

    def _read(self) -> FragmentSet:
        if isinstance(self.templates, PyconfdError):
            raise self.templates
        return FragmentSet(tuple(Fragment(name, text) for name, text in sorted(self.templates.items())))

    def _compile(self, found: FragmentSet) -> Renderer:
        self.compiled += 1
        return Renderer(found, RenderOptions("/files", inputs=GenerationInputs(found).digest))

    @property
    def serves(self) -> str:
        """The text that the balancer loaded."""
        last = self.balancer.last_good()
        loaded = self.balancer.disk.loaded
        texts = {stored.rendering.digest: stored.rendering.text for stored in self.balancer.disk.history}
        assert last is None or self.balancer.disk.worker == 0 or loaded in texts or loaded is None
        return texts.get(loaded or "", "")


class SettingsBed(LoopBed):
    """The daemon of ``own`` with the real balancer, pins and state files; only source, notifier and clock are fakes."""

    def __init__(
        self,
        own: Settings,
        source: ClusterSource,
        clock: FakeClock,
        rules: RemovalRules | None = None,
        statuses: ObjectStatuses | None = None,
        names: SharedNames | None = None,
    ) -> None:
        settings = pinned_settings(own)
        self.clock, self.source, self.allowed = clock, source, set[str]()
        self.is_to_restart = False
        self.parts = ExitStack()
        self.real = Balancer(settings.haproxy, settings.apply, settings.state_dir, unit=UnitFacts())
        self.parts.callback(self.real.close)
        self.real.startup()
        chosen = pinning(own, settings, lambda: read_fragments(settings.templates.dir), self._begin_again)
        world = World(
            source=source,
            balancer=self.real,
            notifier=FakeNotifier(),
            clock=clock,
            read_fragments=chosen.read,
            make_renderer=lambda found: wiring.renderer(settings, found, inputs=chosen.keep(found)),
            preset_options=lambda renderer: wiring.preset_options(settings, renderer),
            allowed_holds=lambda: frozenset(self.allowed),
            forget_holds=self.allowed.clear,
            publish=lambda _: None,
            other_problems=chosen.problems,
            former_fragments=chosen.former,
            served_before=chosen.served,
            pinned=lambda serving, refused: chosen.status(serving, refused=refused),
            hold_file=hold_file(settings.state_dir),
            rollout=rollout_port(settings, self.real, self.parts),
            name_register=NameRegisterFile(settings.state_dir, settings.claims.reserve_s, names),
            certificates=InstalledCertificates(settings.state_dir),
            object_statuses=statuses or NoObjectStatuses(),
        )
        loop = LoopSettings(settings.apply, settings.presets.names, "0", 1, rules or RemovalRules(), settings.history)
        self.loop = self.daemon = Daemon(world, loop)
        self.daemon.start()

    def _begin_again(self) -> None:
        self.is_to_restart = True

    def end(self) -> None:
        """Release what a dead process had; nothing is written."""
        self.parts.close()


def serving(*addresses: str, **apply: float) -> Bed:
    bed = Bed(None, **apply)
    bed.source.show(cluster(*(addresses or ("192.0.2.10",))))
    bed.settle()
    assert bed.phase() is Phase.SERVING
    return bed


def lived_before() -> FakeDisk:
    """Return what a pyconfd that served once has left, HAProxy included."""
    return serving().balancer.disk
