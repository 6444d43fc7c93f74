"""What the commands call: the composition root as they see it, loaded only when a command needs it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pyconfd.settings.resolve import read_text

if TYPE_CHECKING:  # these take a third of the time that --version needs
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyconfd.cli.reports import (
        CheckReport,
        DiffReport,
        Explained,
        Finding,
        HistoryRow,
        PinReport,
        PlanReport,
        Rendered,
        ServerRow,
        StatusReport,
        TrialRound,
        VipReport,
        Watched,
    )
    from pyconfd.model.plan import ServerState
    from pyconfd.settings import Resolved, Settings
    from pyconfd.settings.checks import ReadText
    from pyconfd.testing.report import Result


class Application(Protocol):
    """The calls of :mod:`pyconfd.app`. All raise the classes of :mod:`pyconfd.errors`."""

    def run(self, settings: Resolved) -> int:
        """Run the daemon until it is asked to stop; give the exit code."""
        ...

    def render_once(self, settings: Settings, snapshot_files: tuple[str, ...]) -> Rendered:
        """Render; from the cluster where no file is named."""
        ...

    def check_once(self, settings: Settings, snapshot_files: tuple[str, ...]) -> CheckReport:
        """Render and let HAProxy check."""
        ...

    def plan_once(self, settings: Settings, snapshot_files: tuple[str, ...]) -> PlanReport:
        """Render, check and compare with what is applied."""
        ...

    def record(self, settings: Settings, path: str) -> str:
        """Write what the cluster holds to a file; give a sentence about it."""
        ...

    def rbac(self, settings: Settings) -> str:
        """Return the manifest of the permissions that these settings need."""
        ...

    def status(self, settings: Settings) -> StatusReport:
        """Ask the daemon, or read what it left."""
        ...

    def watch(self, settings: Settings, since: int | None) -> Iterator[Watched]:
        """Return the last changes, or those after the generation ``since``, and each that comes."""
        ...

    def explain(self, settings: Settings, query: str, snapshot_files: tuple[str, ...]) -> Explained:
        """Return what became of something, and why; "" is everything that is refused."""
        ...

    def preflight(self, settings: Settings) -> Iterator[Finding]:
        """Look at everything that the daemon will need; give what is found, as it is looked at."""
        ...

    def upgrade_check(
        self, resolved: Resolved, haproxy: str, pyconfd: str, snapshot_files: tuple[str, ...]
    ) -> Iterator[Finding]:
        """Try a new haproxy and a new pyconfd, each by its path or ""; give what is found, as it is looked at."""
        ...

    def allow(self, settings: Settings, hold_id: str) -> str:
        """Let a held change through once; give a sentence about it."""
        ...

    def adopt(self, settings: Settings, *, copy: bool) -> str:
        """Let pyconfd replace a configuration that it did not write; give a sentence about it."""
        ...

    def set_servers(
        self, settings: Settings, name: str, state: ServerState, *, for_s: float | None, several: bool
    ) -> str:
        """Set the state of a server by hand; give a sentence about it."""
        ...

    def servers(self, settings: Settings, wanted: str) -> tuple[ServerRow, ...]:
        """Return the servers of HAProxy."""
        ...

    def pause(self, settings: Settings, *, for_s: float | None, reason: str) -> str:
        """Freeze all applying; give a sentence about it."""
        ...

    def resume(self, settings: Settings) -> str:
        """Let changes through again; give a sentence about it."""
        ...

    def reload(self, settings: Settings, pid: int) -> str:
        """Have the daemon read its settings again; give a sentence once they are in force."""
        ...

    def history(self, settings: Settings, limit: int) -> tuple[HistoryRow, ...]:
        """Return the generations that are kept, newest first; 0 for all."""
        ...

    def diff(self, settings: Settings, before: int | None, after: int | None) -> DiffReport:
        """Compare two generations."""
        ...

    def rollback(self, settings: Settings, number: int | None, *, reason: str) -> PinReport:
        """Pin the fragments and settings of a generation; say what became of it."""
        ...

    def unpin(self, settings: Settings) -> PinReport:
        """End that; say what became of it."""
        ...

    def publish(self, settings: Resolved) -> int:
        """Publish to etcd until it is asked to stop; give the exit code."""
        ...

    def publish_once(self, settings: Settings) -> str:
        """Publish to etcd once; give a sentence about it."""
        ...

    def consume(self, settings: Resolved) -> int:
        """Apply what is published in etcd until it is asked to stop; give the exit code."""
        ...

    def vip_config(self, settings: Settings, *, nftables: bool) -> str:
        """Return keepalived's configuration for this node, or the rules of nftables."""
        ...

    def vip_status(self, settings: Settings) -> VipReport:
        """Ask the hook how it is."""
        ...

    def vip_order(self, settings: Settings, order: str, *, router: int | None, reason: str) -> str:
        """Return the hook an order; give a sentence about what came of it."""
        ...

    def run_tests(self, settings: Resolved, paths: tuple[str, ...], *, only: str, update: bool) -> Iterator[Result]:
        """Run tests of fragments, one by one."""
        ...

    def watch_tests(self, settings: Resolved, paths: tuple[str, ...], *, only: str) -> Iterator[TrialRound]:
        """Run tests of fragments now and after each edit, for ever."""
        ...

    def try_snapshot(self, settings: Resolved, snapshot_files: tuple[str, ...]) -> Generator[str, None, None]:
        """Serve files on loopback until a signal comes; give lines about it."""
        ...

    def fragments_dir(self) -> str:
        """Return the directory of the shipped fragments."""
        ...

    def fragments(self, presets: Sequence[str]) -> Mapping[str, Path]:
        """Return the shipped fragments of these presets by name."""
        ...

    def fragment_tests(self, presets: Sequence[str]) -> Mapping[str, Path]:
        """Return the tests of the shipped fragments of these presets by name."""
        ...


def _composition_root() -> Application:
    from pyconfd import app  # noqa: PLC0415 - --help, --version and completion must not wait for it

    return app


@dataclass(frozen=True)
class Outside:
    """Everything that the commands reach beyond their arguments."""

    app: Callable[[], Application] = _composition_root
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    read: ReadText = read_text
