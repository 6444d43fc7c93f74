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
    SERVER_RENAMED = "server_renamed"
    SECTION_CHANGED = "section_changed"
    TEXT_CHANGED = "text_changed"
    MAPS_CHANGED = "maps_changed"
    CERTIFICATES_CHANGED = "certificates_changed"
    NOT_LIVE = "not_live"
    """The change could have gone live, but there is no runtime socket, or HAProxy answered otherwise than it should."""


class ServerState(StrEnum):
    """The administrative states of a server; the words of ``set server NAME state``."""

    READY = "ready"
    DRAIN = "drain"
    MAINT = "maint"


@dataclass(frozen=True, slots=True)
class AddBackend:
    """Add a backend that takes all but its servers from the defaults section ``defaults`` (HAProxy 3.4)."""

    backend: str
    defaults: str
    mode: str = ""


@dataclass(frozen=True, slots=True)
class AddServer:
    """Add a server with checks on.

    ``words`` are its effective keywords, those of ``default-server`` first.
    """

    backend: str
    server: str
    address: str
    words: tuple[str, ...] = ()

    @property
    def checked(self) -> bool:
        """Whether its health is to be checked: the last of ``check`` and ``no-check`` counts."""
        return _last_of(self.words, "check", "no-check") == "check"

    @property
    def agent_checked(self) -> bool:
        """Whether an agent is to be asked."""
        return _last_of(self.words, "agent-check", "no-agent-check") == "agent-check"

    @property
    def disabled(self) -> bool:
        """Whether it begins in maintenance."""
        return _last_of(self.words, "disabled", "enabled") == "disabled"

    @property
    def weight(self) -> int:
        """Its weight, 0 to 256; HAProxy's own default is 1."""
        found = 1
        for word, value in zip(self.words, self.words[1:], strict=False):
            if word == "weight" and value.isdigit():
                found = int(value)
        return found


@dataclass(frozen=True, slots=True)
class RemoveServer:
    """Send it nothing new; it is deleted when its last session has gone.

    ``address`` and ``words`` say what it was, in case it comes back before that.
    """

    backend: str
    server: str
    address: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveBackend:
    """Disable a backend; it is deleted once its servers have gone."""

    backend: str
    servers: tuple[RemoveServer, ...] = ()


@dataclass(frozen=True, slots=True)
class SetWeight:
    """Change a weight, 0 to 256; 0 keeps what is connected and brings nothing new."""

    backend: str
    server: str
    weight: int


@dataclass(frozen=True, slots=True)
class SetState:
    """Change the administrative state."""

    backend: str
    server: str
    state: ServerState


@dataclass(frozen=True, slots=True)
class AddMapEntries:
    """Add entries whose keys are new in the map at ``path``."""

    path: str
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ChangeMapEntries:
    """Change the values of keys of the map at ``path``."""

    path: str
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RemoveMapEntries:
    """Remove keys from the map at ``path``."""

    path: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplaceMap:
    """Replace the map at ``path``, in this order: prepared as a version and committed at once."""

    path: str
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class UpdateCertificate:
    """Replace the certificate and key that was loaded from ``path``."""

    path: str
    pem: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AddCertificate:
    """Load a certificate that no bind names yet."""

    path: str
    pem: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RemoveCertificate:
    """Remove a certificate that no bind names any more from memory."""

    path: str


@dataclass(frozen=True, slots=True)
class AddListLines:
    """Add lines to ``crt_list``, a list of certificates or a directory that a bind names.

    A line is the path of a loaded certificate, and the names that it answers for; none: those that it holds.
    """

    crt_list: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveListLines:
    """Remove lines from ``crt_list``, as they are there."""

    crt_list: str
    lines: tuple[str, ...]


Command = (
    AddBackend
    | RemoveBackend
    | AddServer
    | RemoveServer
    | SetWeight
    | SetState
    | AddMapEntries
    | ChangeMapEntries
    | RemoveMapEntries
    | ReplaceMap
    | UpdateCertificate
    | AddCertificate
    | RemoveCertificate
    | AddListLines
    | RemoveListLines
)
"""One change of the running process. Their order in a plan is the order in which they are safe."""


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


def _last_of(words: tuple[str, ...], *wanted: str) -> str:
    return next((word for word in reversed(words) if word in wanted), "")
