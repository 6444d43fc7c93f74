"""A fake application that remembers what it was asked, and the call of the command line with it."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from click.testing import Result as Ended

from pyconfd.app.testing import TrialRound
from pyconfd.cli.application import Outside
from pyconfd.cli.main import cli
from pyconfd.haproxy.difference import Difference
from pyconfd.model.basis import Edit
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.plan import Noop, Plan, ServerState
from pyconfd.model.preflight import Finding
from pyconfd.model.rendering import FileKind, OutputFile, Piece
from pyconfd.settings import Resolved, Settings
from pyconfd.testing.report import Result

REFUSED = (
    Refusal(
        ObjectRef("Service", "demo", "shop"), "annotation proto", "'smtp'", RefusalReason.INVALID_VALUE, "use http"
    ),
)


@dataclass(frozen=True)
class Rendered:
    text: str = "global\nfrontend a\n"
    pieces: tuple[Piece, ...] = (Piece("01-defaults.conf", "global\n"), Piece("02-http.tmpl", "frontend a\n"))
    files: tuple[OutputFile, ...] = (
        OutputFile(FileKind.CERTIFICATE, "/f/certs/a.pem", "SECRET"),
        OutputFile(FileKind.MAP, "/f/maps/hosts.map", "a be_a\n"),
    )
    refused: tuple[Refusal, ...] = REFUSED
    notes: tuple[str, ...] = ("order differs",)


@dataclass(frozen=True)
class CheckReport:
    refused: tuple[Refusal, ...] = REFUSED
    notes: tuple[str, ...] = ()
    haproxy_version: str = "2.6.12"


@dataclass(frozen=True)
class PlanReport:
    plan: Plan = field(default_factory=Noop)
    diff: str = ""
    refused: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class StatusReport:
    alive: bool = True
    status: Mapping[str, Any] | None = None
    text: str = "\033[32mserving\033[0m\n"
    exit_code: int = 0


@dataclass(frozen=True)
class VipReport:
    alive: bool = True
    document: Mapping[str, Any] = field(default_factory=lambda: {"node": "lb1"})
    text: str = "lb1 on eth0\n"
    exit_code: int = 0


@dataclass(frozen=True)
class Watched:
    text: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Explained:
    text: str = "Service shop/web: served by 2 servers\n"
    values: Mapping[str, Any] = field(default_factory=lambda: {"query": "web"})
    found: bool = True


@dataclass(frozen=True)
class ServerRow:
    server: str
    state: str = "up"
    by_hand: str = ""
    leaving: str = ""
    address: str = "10.0.0.1:80"
    weight: int = 1
    sessions: int = 12

    @property
    def values(self) -> Mapping[str, Any]:
        return {"server": self.server, "state": self.state}


@dataclass(frozen=True)
class HistoryRow:
    number: int = 42
    applied_at: float = 1_700_000_000.0
    digest: str = "3f9c2b1a" * 8
    reasons: tuple[str, ...] = ("binds_changed",)
    since: int = 41
    edits: tuple[Edit, ...] = (Edit("fragment", "02-http.tmpl", "edited", 1),)
    difference: Difference | None = field(
        default_factory=lambda: Difference({"backend be-shop": 1}, {"backend be-web": 2}, (), (), ())
    )
    basis: str = "d" * 64
    ran_well: bool = False
    serving: bool = True
    pinned: bool = False
    how: str = "reload"


@dataclass(frozen=True)
class DiffReport:
    before: int = 41
    after: int = 42
    edits: tuple[Edit, ...] = ()
    difference: Difference = field(default_factory=lambda: Difference({}, {}, (), (), ()))
    sentences: tuple[str, ...] = ()
    text: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PinReport:
    said: str
    pinned: int = 0
    serving: int = 0


@dataclass
class FakeApp:
    """Remembers what it was asked; ``fails`` is raised by everything."""

    fails: BaseException | None = None
    plan_report: PlanReport = field(default_factory=PlanReport)
    check_report: CheckReport = field(default_factory=CheckReport)
    status_report: StatusReport = StatusReport()
    changes: tuple[Watched, ...] = ()
    shipped: str = "/shipped"
    presets: tuple[str, ...] = ()
    rows: tuple[ServerRow, ...] = ()
    generations: tuple[HistoryRow, ...] = ()
    diff_report: DiffReport = field(default_factory=DiffReport)
    explained: Explained = field(default_factory=Explained)
    findings: tuple[Finding, ...] = ()
    results: tuple[Result, ...] = ()
    rounds: tuple[TrialRound, ...] = ()
    calls: list[tuple[str, Settings, tuple[object, ...]]] = field(default_factory=list)
    resolved: Resolved | None = None

    def _asked(self, name: str, settings: Settings, *arguments: object) -> None:
        self.calls.append((name, settings, arguments))
        if self.fails:
            raise self.fails

    def run(self, settings: Resolved) -> int:
        self.resolved = settings
        self._asked("run", settings.settings)
        return 0

    def render_once(self, settings: Settings, snapshot_files: tuple[str, ...]) -> Rendered:
        self._asked("render", settings, *snapshot_files)
        return Rendered()

    def check_once(self, settings: Settings, snapshot_files: tuple[str, ...]) -> CheckReport:
        self._asked("check", settings, *snapshot_files)
        return self.check_report

    def plan_once(self, settings: Settings, snapshot_files: tuple[str, ...]) -> PlanReport:
        self._asked("plan", settings, *snapshot_files)
        return self.plan_report

    def record(self, settings: Settings, path: str) -> str:
        self._asked("record", settings, path)
        return f"3 objects written to {path}"

    def explain(self, settings: Settings, query: str, snapshot_files: tuple[str, ...]) -> Explained:
        self._asked("explain", settings, query, *snapshot_files)
        return self.explained

    def preflight(self, settings: Settings) -> Iterator[Finding]:
        self._asked("preflight", settings)
        yield from self.findings

    def upgrade_check(
        self, resolved: Resolved, haproxy: str, pyconfd: str, snapshot_files: tuple[str, ...]
    ) -> Iterator[Finding]:
        self._asked("upgrade_check", resolved.settings, haproxy, pyconfd, *snapshot_files)
        yield from self.findings

    def rbac(self, settings: Settings) -> str:
        self._asked("rbac", settings)
        return "kind: ClusterRole\n"

    def status(self, settings: Settings) -> StatusReport:
        self._asked("status", settings)
        return self.status_report

    def watch(self, settings: Settings, since: int | None) -> Iterator[Watched]:
        self._asked("watch", settings, since)
        yield from self.changes
        raise KeyboardInterrupt

    def allow(self, settings: Settings, hold_id: str) -> str:
        self._asked("allow", settings, hold_id)
        return f"{hold_id} will be applied"

    def set_servers(
        self, settings: Settings, name: str, state: ServerState, *, for_s: float | None, several: bool
    ) -> str:
        self._asked("set_servers", settings, name, state, for_s, several)
        return f"{name} is {state}"

    def servers(self, settings: Settings, wanted: str) -> tuple[ServerRow, ...]:
        self._asked("servers", settings, wanted)
        return self.rows

    def adopt(self, settings: Settings, *, copy: bool) -> str:
        self._asked("adopt", settings, copy)
        return "pyconfd goes on."

    def pause(self, settings: Settings, *, for_s: float | None, reason: str) -> str:
        self._asked("pause", settings, for_s, reason)
        return "Nothing is applied."

    def reload(self, settings: Settings, pid: int) -> str:
        self._asked("reload", settings, pid)
        return "The settings are in force."

    def resume(self, settings: Settings) -> str:
        self._asked("resume", settings)
        return "Changes are applied again."

    def history(self, settings: Settings, limit: int) -> tuple[HistoryRow, ...]:
        self._asked("history", settings, limit)
        return self.generations

    def diff(self, settings: Settings, before: int | None, after: int | None) -> DiffReport:
        self._asked("diff", settings, before, after)
        return self.diff_report

    def rollback(self, settings: Settings, number: int | None, *, reason: str) -> PinReport:
        self._asked("rollback", settings, number, reason)
        return PinReport("Pinned to generation 41.", 41, 43)

    def unpin(self, settings: Settings) -> PinReport:
        self._asked("unpin", settings)
        return PinReport("Nothing was pinned.")

    def publish(self, settings: Resolved) -> int:
        self.resolved = settings
        self._asked("publish", settings.settings)
        return 0

    def publish_once(self, settings: Settings) -> str:
        self._asked("publish_once", settings)
        return "Published as generation 7."

    def consume(self, settings: Resolved) -> int:
        self.resolved = settings
        self._asked("consume", settings.settings)
        return 0

    def vip_config(self, settings: Settings, *, nftables: bool) -> str:
        self._asked("vip_config", settings, nftables)
        return "global_defs {}\n"

    def vip_status(self, settings: Settings) -> VipReport:
        self._asked("vip_status", settings)
        return VipReport()

    def vip_order(self, settings: Settings, order: str, *, router: int | None, reason: str) -> str:
        self._asked("vip_order", settings, order, router, reason)
        return f"{order} done"

    def run_tests(self, settings: Resolved, paths: tuple[str, ...], *, only: str, update: bool) -> Iterator[Result]:
        self._asked("run_tests", settings.settings, *paths, only, update)
        yield from self.results

    def watch_tests(self, settings: Resolved, paths: tuple[str, ...], *, only: str) -> Iterator[TrialRound]:
        self._asked("watch_tests", settings.settings, *paths, only)
        yield from self.rounds
        raise KeyboardInterrupt

    def try_snapshot(self, settings: Resolved, snapshot_files: tuple[str, ...]) -> Generator[str, None, None]:
        self._asked("try", settings.settings, *snapshot_files)
        yield "It serves."

    def fragments_dir(self) -> str:
        return self.shipped

    def fragments(self, presets: Sequence[str]) -> Mapping[str, Path]:
        self.presets = tuple(presets)
        root = Path(self.shipped)
        return {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}

    def fragment_tests(self, presets: Sequence[str]) -> Mapping[str, Path]:
        return {}


def invoke(
    *arguments: str, app: FakeApp | None = None, files: Mapping[str, str] | None = None, **environ: str
) -> Ended:
    fake = app or FakeApp()

    def read(path: str) -> str:
        if files and path in files:
            return files[path]
        raise FileNotFoundError(2, "No such file or directory", path)

    return CliRunner().invoke(cli, arguments, obj=Outside(lambda: fake, environ, read))
