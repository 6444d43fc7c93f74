"""What has to be done to make a rendering serve: data, it does nothing by itself."""

from dataclasses import dataclass, field
from enum import StrEnum


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
    SECTION_CHANGED = "section_changed"
    TEXT_CHANGED = "text_changed"
    MAPS_CHANGED = "maps_changed"
    CERTIFICATES_CHANGED = "certificates_changed"


@dataclass(frozen=True, slots=True)
class Noop:
    """Disk, history and process already agree with the rendering.

    ``verified`` is False where no socket could be asked which text the worker runs.
    """

    verified: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Reload:
    """Install the files and reload; ``reasons`` are sorted and never empty, ``details`` name what changed."""

    reasons: tuple[ReloadReason, ...]
    details: tuple[str, ...] = ()


Plan = Noop | Reload
