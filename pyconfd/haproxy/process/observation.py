"""What is installed and what runs, as values; :mod:`pyconfd.haproxy.config.diff` judges by them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from pyconfd.model.rendering import Rendering


@dataclass(frozen=True, slots=True)
class NotRunning:
    """No HAProxy that loads the configuration was found."""


@dataclass(frozen=True, slots=True)
class UnknownProcess:
    """HAProxy runs, or seems to, but no socket shows which text; ``why`` says what to open for pyconfd.

    ``pids`` are its processes as far as they can be seen; ``may_ask`` is False where a socket is forbidden.
    """

    why: str = ""
    pids: frozenset[int] = field(default=frozenset(), compare=False)
    may_ask: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class OldWorker:
    """A worker that a reload has replaced: it ends its sessions.

    ``age_s`` is since it was started, ``replaced_s`` since it was replaced; HAProxy counts whole seconds.
    """

    pid: int
    age_s: float = field(default=0.0, compare=False)
    replaced_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Running:
    """The newest worker answered. ``digest`` is None where its text carries no marker of pyconfd.

    ``reloads`` and ``failed_reloads`` are counted by the master since its start (failures since the last success);
    both are 0 where only a worker could be asked, and ``old_workers``, the oldest first, are not known then.
    """

    digest: str | None
    worker_pid: int
    version: str = ""
    master_pid: int = 0
    old_workers: tuple[OldWorker, ...] = ()
    reloads: int = 0
    failed_reloads: int = 0

    @property
    def pids(self) -> frozenset[int]:
        """The master and all workers, as far as they are known."""
        return frozenset((self.master_pid, self.worker_pid, *(each.pid for each in self.old_workers))) - {0}


RunningState = NotRunning | UnknownProcess | Running


class ChangedWorker(NamedTuple):
    """A worker that was changed while it runs; ``digest`` is that of the text it began with, which it still shows."""

    pid: int
    digest: str


@dataclass(frozen=True, slots=True)
class Observation:
    """``installed_text`` is the whole installed configuration, marker included; None where there is none.

    ``file_digests`` gives the SHA-256 of each declared file by its path; a missing file is left out. ``written`` is the
    rendering that was installed last, where a write is pending. ``changed`` is the worker that
    was changed since it loaded its text, and runs what is applied: any other one does not. ``untouched`` is the
    rendering whose configuration and files were not written since pyconfd did, None where that is not known.
    """

    installed_text: str | None = None
    running: RunningState = UnknownProcess()
    file_digests: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    written: Rendering | None = None
    changed: ChangedWorker | None = None
    untouched: Rendering | None = None
