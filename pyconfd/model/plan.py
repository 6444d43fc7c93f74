"""What has to be done to make a rendering serve: data, it does nothing by itself."""

from dataclasses import dataclass, field
from enum import StrEnum

from pyconfd.model.operations import Command


class ReloadReason(StrEnum):
    """The closed set of reasons for a reload; a label of the metric ``pyconfd_reloads_total``."""

    FIRST_CONFIGURATION = "first_configuration"
    FILE_EDITED = "file_edited"
    PROCESS_BEHIND = "process_behind"
    GLOBAL_CHANGED = "global_changed"
    DEFAULTS_CHANGED = "defaults_changed"
    BINDS_CHANGED = "binds_changed"
    SECTION_ADDED = "section_added"
    SECTION_REMOVED = "section_removed"
    SERVERS_CHANGED = "servers_changed"
    SERVER_RENAMED = "server_renamed"
    SECTION_CHANGED = "section_changed"
    TEXT_CHANGED = "text_changed"
    MAPS_CHANGED = "maps_changed"
    CERTIFICATES_CHANGED = "certificates_changed"
    SPARES_IN_USE = "spares_in_use"
    """Spare backends serve new ones, or removed ones are still there: this reload puts them in order, at leisure."""
    NOT_LIVE = "not_live"
    """The change could have gone live, but there is no runtime socket, or HAProxy answered otherwise than it should."""


@dataclass(frozen=True, slots=True)
class Noop:
    """Disk, history and process already agree with the rendering.

    ``verified`` is False where no socket could be asked which text the worker runs.
    """

    verified: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class RuntimeUpdate:
    """Change the running process; the file follows. Without commands only the file has to change.

    ``moves`` are sentences about names that other objects have now; they are among the ``details`` as well.
    """

    commands: tuple[Command, ...]
    details: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reload:
    """Install the files and reload.

    ``reasons`` are sorted and never empty, ``details`` name what changed, ``advice`` says what in the templates or
    settings would avoid it. ``live`` is the part of the change that needs no reload and may go before it.
    """

    reasons: tuple[ReloadReason, ...]
    details: tuple[str, ...] = ()
    advice: tuple[str, ...] = field(default=(), compare=False)
    live: RuntimeUpdate | None = field(default=None, compare=False)


Plan = Noop | RuntimeUpdate | Reload
