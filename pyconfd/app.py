"""A placeholder for the composition root, with the calls that the command line needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from pyconfd.errors import ConfigurationError, Problem
from pyconfd.model.context import Refusal
from pyconfd.model.plan import Plan
from pyconfd.model.rendering import OutputFile, Piece
from pyconfd.settings import Resolved, Settings


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendering: the text, its pieces, and the files beside it."""

    text: str
    pieces: tuple[Piece, ...]
    files: tuple[OutputFile, ...] = ()
    refused: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A rendering that HAProxy accepts."""

    refused: tuple[Refusal, ...]
    notes: tuple[str, ...]
    haproxy_version: str


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What would be done; ``diff`` is unified, from what is applied to what would be."""

    plan: Plan
    diff: str
    refused: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What the daemon says, or what it left behind."""

    alive: bool
    status: Mapping[str, Any] | None
    text: str
    exit_code: int


def _missing() -> NoReturn:
    raise ConfigurationError(Problem("pyconfd.app", "is not there yet"))


def run(settings: Resolved) -> int:
    """Run the daemon."""
    del settings
    _missing()


def render_once(settings: Settings, snapshot_files: tuple[str, ...]) -> Rendered:
    """Render."""
    del settings, snapshot_files
    _missing()


def check_once(settings: Settings, snapshot_files: tuple[str, ...]) -> CheckReport:
    """Render and check."""
    del settings, snapshot_files
    _missing()


def plan_once(settings: Settings, snapshot_files: tuple[str, ...]) -> PlanReport:
    """Render, check and compare."""
    del settings, snapshot_files
    _missing()


def record(settings: Settings, path: str) -> str:
    """Write a Snapshot to a file."""
    del settings, path
    _missing()


def rbac(settings: Settings) -> str:
    """Give the RBAC manifest."""
    del settings
    _missing()


def status(settings: Settings) -> StatusReport:
    """Ask the daemon."""
    del settings
    _missing()


def allow(settings: Settings, hold_id: str) -> str:
    """Let a held change through."""
    del settings, hold_id
    _missing()


def fragments_dir() -> str:
    """Give the directory of the shipped fragments."""
    _missing()
