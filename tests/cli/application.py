"""A fake application that remembers what it was asked, and the call of the command line with it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from pyconfd.cli.application import Outside
from pyconfd.cli.main import cli
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.plan import Noop, Plan, ServerState
from pyconfd.model.rendering import FileKind, OutputFile, Piece
from pyconfd.settings import Resolved, Settings

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
class Watched:
    text: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class ServerRow:
    server: str
    state: str = "up"
    by_hand: str = ""
    leaving: str = ""
    address: str = "10.0.0.1:80"
    weight: int = 1
    sessions: int = 12


@dataclass
class FakeApp:
    """Remembers what it was asked; ``fails`` is raised by everything."""

    fails: BaseException | None = None
    plan_report: PlanReport = field(default_factory=PlanReport)
    status_report: StatusReport = StatusReport()
    changes: tuple[Watched, ...] = ()
    shipped: str = "/shipped"
    presets: tuple[str, ...] = ()
    rows: tuple[ServerRow, ...] = ()
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
        return CheckReport()

    def plan_once(self, settings: Settings, snapshot_files: tuple[str, ...]) -> PlanReport:
        self._asked("plan", settings, *snapshot_files)
        return self.plan_report

    def record(self, settings: Settings, path: str) -> str:
        self._asked("record", settings, path)
        return f"3 objects written to {path}"

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

    def pause(self, settings: Settings, *, for_s: float | None, reason: str) -> str:
        self._asked("pause", settings, for_s, reason)
        return "Nothing is applied."

    def resume(self, settings: Settings) -> str:
        self._asked("resume", settings)
        return "Changes are applied again."

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

    def fragments_dir(self) -> str:
        return self.shipped

    def fragments(self, presets: Sequence[str]) -> Mapping[str, Path]:
        self.presets = tuple(presets)
        root = Path(self.shipped)
        return {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}


def invoke(
    *arguments: str, app: FakeApp | None = None, files: Mapping[str, str] | None = None, **environ: str
) -> Result:
    fake = app or FakeApp()

    def read(path: str) -> str:
        if files and path in files:
            return files[path]
        raise FileNotFoundError(2, "No such file or directory", path)

    return CliRunner().invoke(cli, arguments, obj=Outside(lambda: fake, environ, read))
