"""What the commands call: the composition root as they see it, loaded only when a command needs it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pyconfd.settings.sources import ReadText, read_text

if TYPE_CHECKING:  # these take a third of the time that --version needs
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyconfd.model.context import Refusal
    from pyconfd.model.plan import Plan, ServerState
    from pyconfd.model.rendering import OutputFile, Piece
    from pyconfd.settings import Resolved, Settings


class Rendered(Protocol):
    """A rendering: the text, the pieces that it is made of, the files beside it."""

    @property
    def text(self) -> str:
        """The whole configuration."""
        ...

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What each fragment gave, in order."""
        ...

    @property
    def files(self) -> tuple[OutputFile, ...]:
        """Maps and certificates."""
        ...

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What was left out."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the person who reads the rendering."""
        ...


class CheckReport(Protocol):
    """A rendering that HAProxy accepts."""

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What was left out."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the person who checks."""
        ...

    @property
    def haproxy_version(self) -> str:
        """The version that judged."""
        ...


class PlanReport(Protocol):
    """What would be done to make the rendering serve."""

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        ...

    @property
    def diff(self) -> str:
        """A unified diff from what is applied to what would be; "" for none."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the person who reads the plan."""
        ...

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What was left out."""
        ...


class StatusReport(Protocol):
    """What the daemon says of itself, or what a dead one left behind."""

    @property
    def alive(self) -> bool:
        """Whether a daemon answers for these values now."""
        ...

    @property
    def status(self) -> Mapping[str, Any] | None:
        """The values, ready for JSON."""
        ...

    @property
    def text(self) -> str:
        """The same for a person; may be coloured, colours are taken out where they cannot be seen."""
        ...

    @property
    def exit_code(self) -> int:
        """0 serving and fresh, 1 a problem, 3 no daemon."""
        ...


class Watched(Protocol):
    """One change as it went live, or why it did not."""

    @property
    def text(self) -> str:
        """One line for a person."""
        ...

    @property
    def values(self) -> Mapping[str, Any]:
        """The same, ready for JSON."""
        ...


class ServerRow(Protocol):
    """One server as HAProxy shows it; ``by_hand`` and ``leaving`` are words, "" for none."""

    @property
    def server(self) -> str:
        """``backend/name``."""
        ...

    @property
    def address(self) -> str:
        """Address and port."""
        ...

    @property
    def state(self) -> str:
        """``up``, ``down``, ``drain``, ``maint``."""
        ...

    @property
    def weight(self) -> int:
        """0 to 256."""
        ...

    @property
    def sessions(self) -> int:
        """Connections in use."""
        ...

    @property
    def by_hand(self) -> str:
        """What was set by hand, since when and for how long."""
        ...

    @property
    def leaving(self) -> str:
        """That it is on its way out, and for how long."""
        ...


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
        """Give the manifest of the permissions that these settings need."""
        ...

    def status(self, settings: Settings) -> StatusReport:
        """Ask the daemon, or read what it left."""
        ...

    def watch(self, settings: Settings, since: int | None) -> Iterator[Watched]:
        """Give the last changes, or those after the generation ``since``, and each that comes."""
        ...

    def allow(self, settings: Settings, hold_id: str) -> str:
        """Let a held change through once; give a sentence about it."""
        ...

    def set_servers(
        self, settings: Settings, name: str, state: ServerState, *, for_s: float | None, several: bool
    ) -> str:
        """Set the state of a server by hand; give a sentence about it."""
        ...

    def servers(self, settings: Settings, wanted: str) -> tuple[ServerRow, ...]:
        """Give the servers of HAProxy."""
        ...

    def pause(self, settings: Settings, *, for_s: float | None, reason: str) -> str:
        """Freeze all applying; give a sentence about it."""
        ...

    def resume(self, settings: Settings) -> str:
        """Let changes through again; give a sentence about it."""
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

    def fragments_dir(self) -> str:
        """Give the directory of the shipped fragments."""
        ...

    def fragments(self, presets: Sequence[str]) -> Mapping[str, Path]:
        """Give the shipped fragments of these presets by name."""
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
