"""The operations that change a running HAProxy: each knows its lines on the socket, how the result is read back, words.

Pure. Never in words: the content of a certificate.

Source: HAProxy management manual, 9.3; the texts of the answers as 2.6, 3.0, 3.2 and 3.4 give them.
"""

import hashlib
import re
import ssl
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import ClassVar, NamedTuple

PLAIN_CHARACTERS = r"A-Za-z0-9_.:/@,=+%*()|~\[\]-"
"""What words of a command on the socket may hold: it means the same there as in the file, without any escape."""

MAX_PAYLOAD_BYTES = 8_000
"""A whole command has to fit a buffer of 16 KiB (``tune.bufsize``)."""

_ENTRY = re.compile(r"^0x[0-9a-f]+ ", re.MULTILINE)
SILENCE = ("",)
_DONE = ("Success!",)
_SAFE = re.compile(rf"[ {PLAIN_CHARACTERS}]+(?: <<\n(?:[^\n\r\0]+\n)+)?")
"""One command of words that need no escape, and perhaps a payload: a blank line would end that, or one with nothing but
a carriage return, and what follows would be commands."""


class SocketLine(NamedTuple):
    """One command; its answer has to hold one of ``expected``, where "" means an empty one."""

    text: str
    expected: tuple[str, ...] = SILENCE

    def refused(self, answer: str) -> bool:
        """Return whether the answer is not what it should be."""
        return not any((one in answer) if one else not answer.strip() for one in self.expected)

    @property
    def safe(self) -> bool:
        """Whether HAProxy reads it as one command and nothing else."""
        return _SAFE.fullmatch(self.text) is not None

    @property
    def shown(self) -> str:
        """The command without its payload."""
        return self.text.partition(" <<\n")[0]


class ServerState(StrEnum):
    """The administrative states of a server; the words of ``set server NAME state``."""

    READY = "ready"
    DRAIN = "drain"
    MAINT = "maint"


class WantedServer(NamedTuple):
    """What a server shall be afterwards; what is left out may be anything."""

    address: str | None = None
    state: ServerState | None = None
    weight: int | None = None
    gone: bool | None = None


class Command(ABC):
    """One change of the running process. To add one is to write one class here; its tests ask for a row of it."""

    __slots__ = ()
    rank: ClassVar[int] = 2
    """The order in which they are safe: additions before what points to them, removals after."""
    counted: ClassVar[str]
    """What a summary counts, with its sign before the noun; as it is where :meth:`number` is 0."""

    @abstractmethod
    def group(self) -> str:
        """Return the backend, map or certificate that a summary names."""

    @abstractmethod
    def number(self) -> int:
        """Return how many it changes of what a summary counts."""

    @abstractmethod
    def description(self) -> str:
        """Return one line that says what it does, in HAProxy's words as far as it has any."""

    @abstractmethod
    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        """Return the lines for the socket, in order; ``answer`` is that to :meth:`first_question`."""

    def first_question(self) -> str:
        """Return the command that has to be asked for :meth:`socket_lines`, "" for none."""
        return ""

    def wanted_servers(self) -> Mapping[tuple[str, str], WantedServer]:
        """Return what servers shall be afterwards, by backend and name."""
        return {}

    def questions(self) -> list[str]:
        """Return the commands whose answers show whether it took effect, besides those for servers."""
        return []

    def unfulfilled(self, answers: Mapping[str, str]) -> str:
        """Return what is not as it should be, by the answers to :meth:`questions`; "" where all is."""
        return ""


@dataclass(frozen=True, slots=True)
class BackendCommand(Command):
    """A change of a backend, or of something in it."""

    backend: str

    def group(self) -> str:
        return self.backend

    def number(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class ServerCommand(BackendCommand):
    """A change of one server."""

    server: str

    @property
    def name(self) -> str:
        """Backend and server as the socket has them."""
        return f"{self.backend}/{self.server}"

    def number(self) -> int:
        return 1

    @abstractmethod
    def wanted(self) -> WantedServer:
        """Return what it shall be afterwards."""

    def wanted_servers(self) -> Mapping[tuple[str, str], WantedServer]:
        return {(self.backend, self.server): self.wanted()}


@dataclass(frozen=True, slots=True)
class AddBackend(BackendCommand):
    """Add a backend that takes all but its servers from the defaults section ``defaults`` (HAProxy 3.4)."""

    defaults: str
    mode: str = ""
    rank: ClassVar[int] = 0
    counted: ClassVar[str] = "added"

    def description(self) -> str:
        return f"add backend {self.backend} from {self.defaults}{f', mode {self.mode}' if self.mode else ''}"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        mode = f" mode {self.mode}" if self.mode else ""
        return [SocketLine(f"add backend {self.backend} from {self.defaults}{mode}", ("New backend registered",))]

    def published(self) -> SocketLine:
        """Return the line that lets it take traffic, once its servers are there."""
        return SocketLine(f"publish backend {self.backend}", ("Backend published",))


@dataclass(frozen=True, slots=True)
class FillSpare(BackendCommand):
    """Use ``spare``, an empty backend of the process, for the servers of ``backend`` from now on.

    ``changed``: the process has a section of that name, with other lines, whose sessions go on there.
    """

    defaults: str
    spare: str
    changed: bool = False
    rank: ClassVar[int] = 0

    @property
    def counted(self) -> str:  # type: ignore[override]
        """What became of the backend."""
        return "changed" if self.changed else "added"

    def description(self) -> str:
        verb = "change" if self.changed else "add"
        return f"{verb} backend {self.backend} from {self.defaults}: served by {self.spare} until the next reload"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        return []


@dataclass(frozen=True, slots=True)
class LeadToSpare(BackendCommand):
    """Lead requests for ``backend`` to ``spare`` by the map at ``map_path``, which has the name where ``is_set``.

    Where the backend ``changed`` requests were led to its former lines until now: these need their entries of maps.
    """

    spare: str
    map_path: str
    is_set: bool = False
    changed: bool = False
    counted: ClassVar[str] = ""

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Before what points to a new backend, and after what a changed one reads."""
        return 3 if self.changed else 2

    def description(self) -> str:
        return f"lead from {self.backend} to {self.spare} in map {self.map_path}"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        return [SocketLine(f"{'set' if self.is_set else 'add'} map {self.map_path} {self.backend} {self.spare}")]

    def questions(self) -> list[str]:
        return [f"get map {self.map_path} {self.backend}"]

    def unfulfilled(self, answers: Mapping[str, str]) -> str:
        led = f'value="{self.spare}"' in answers[f"get map {self.map_path} {self.backend}"]
        return "" if led else f"map {self.map_path} does not lead from {self.backend} to {self.spare}"


@dataclass(frozen=True, slots=True)
class AddServer(ServerCommand):
    """Add a server with checks on.

    ``words`` are its effective keywords, those of ``default-server`` first.
    """

    address: str
    words: tuple[str, ...] = ()
    rank: ClassVar[int] = 1
    counted: ClassVar[str] = "+ server"

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

    def description(self) -> str:
        return " ".join(("add server", self.name, self.address, *self.words))

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        words = " ".join((self.name, self.address, *self.words))
        lines = [SocketLine(f"add server {words}", ("New server registered",))]
        if not self.disabled:
            lines.append(SocketLine(f"set server {self.name} state ready"))
        if self.checked:
            lines.append(SocketLine(f"enable health {self.name}"))
        if self.agent_checked:
            lines.append(SocketLine(f"enable agent {self.name}"))
        return lines

    def revival(self) -> list[SocketLine]:
        """Return the lines that bring back a server which was on its way out."""
        wanted = self.wanted()
        texts = (f"set server {self.name} state {wanted.state}", f"set server {self.name} weight {wanted.weight}")
        return [SocketLine(text) for text in texts]

    def wanted(self) -> WantedServer:
        return WantedServer(self.address, ServerState.MAINT if self.disabled else ServerState.READY, self.weight)


@dataclass(frozen=True, slots=True)
class RemoveServer(ServerCommand):
    """Send it nothing new; it is deleted when its last session has gone.

    ``address`` and ``words`` say what it was, in case it comes back before that.
    """

    address: str = ""
    words: tuple[str, ...] = ()
    rank: ClassVar[int] = 3
    counted: ClassVar[str] = "- server"

    def description(self) -> str:
        return f"remove server {self.name}{f' ({self.address})' if self.address else ''}: drained, {_LATER}"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        return [SocketLine(f"set server {self.name} state drain")]

    def wanted(self) -> WantedServer:
        return WantedServer(gone=True)


@dataclass(frozen=True, slots=True)
class RemoveBackend(BackendCommand):
    """Disable a backend; it is deleted once its servers have gone."""

    servers: tuple[RemoveServer, ...] = ()
    rank: ClassVar[int] = 4
    counted: ClassVar[str] = "removed"

    def description(self) -> str:
        return f"remove backend {self.backend} with {_counted(len(self.servers), 'server')}: {_LATER}"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        unpublished = SocketLine(f"unpublish backend {self.backend}", ("Backend unpublished",))
        return [unpublished, *(line for server in self.servers for line in server.socket_lines())]

    def wanted_servers(self) -> Mapping[tuple[str, str], WantedServer]:
        return {key: wanted for server in self.servers for key, wanted in server.wanted_servers().items()}


class EmptyBackend(RemoveBackend):
    """Send nothing new to the servers of a backend that nothing leads to any more; the next reload removes it."""

    __slots__ = ()
    counted = "removed"

    def description(self) -> str:
        servers = _counted(len(self.servers), "server")
        return f"remove backend {self.backend} with {servers}: drained, it goes with the next reload"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        return [line for server in self.servers for line in server.socket_lines()]


@dataclass(frozen=True, slots=True)
class SetWeight(ServerCommand):
    """Change a weight, 0 to 256; 0 keeps what is connected and brings nothing new."""

    weight: int
    counted: ClassVar[str] = " weight"

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Like a removal where it brings nothing new."""
        return 2 if self.weight else 3

    def description(self) -> str:
        meaning = "" if self.weight else " (keeps its sessions, gets no new ones)"
        return f"set server {self.name} weight {self.weight}{meaning}"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        return [SocketLine(f"set server {self.name} weight {self.weight}")]

    def wanted(self) -> WantedServer:
        return WantedServer(weight=self.weight)


@dataclass(frozen=True, slots=True)
class SetState(ServerCommand):
    """Change the administrative state."""

    state: ServerState

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Like an addition or a removal, as the state is."""
        return 1 if self.state is ServerState.READY else 3

    @property
    def counted(self) -> str:  # type: ignore[override]
        """Which state a server got."""
        return f" server {self.state.value}"

    def description(self) -> str:
        return f"set server {self.name} state {self.state}"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        return [SocketLine(self.description())]

    def wanted(self) -> WantedServer:
        return WantedServer(state=self.state)


@dataclass(frozen=True, slots=True)
class FileCommand(Command):
    """A change of a map or certificate that was loaded from ``path``."""

    path: str

    def group(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class MapEntries(FileCommand):
    """``entries`` of the map at ``path``."""

    entries: tuple[tuple[str, str], ...]
    verb: ClassVar[str]
    words: ClassVar[str]

    def number(self) -> int:
        return len(self.entries)

    def description(self) -> str:
        return f"{self.words} map {self.path}: {_named(' '.join(pair) for pair in self.entries)}"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        return [SocketLine(f"{self.verb} map {self.path} {key} {value}") for key, value in self.entries]

    def questions(self) -> list[str]:
        return [f"get map {self.path} {key}" for key, _ in self.entries]

    def unfulfilled(self, answers: Mapping[str, str]) -> str:
        for key, value in self.entries:
            if f'value="{value}"' not in answers[f"get map {self.path} {key}"]:
                return f"map {self.path} does not give {value} for {key}"
        return ""


class AddMapEntries(MapEntries):
    """Add entries whose keys are new in the map at ``path``."""

    __slots__ = ()
    verb, words, counted = "add", "add to", "+ entry"


class ChangeMapEntries(MapEntries):
    """Change the values of keys of the map at ``path``."""

    __slots__ = ()
    verb, words, counted = "set", "change in", " changed entry"


@dataclass(frozen=True, slots=True)
class RemoveMapEntries(FileCommand):
    """Remove keys from the map at ``path``."""

    keys: tuple[str, ...]
    rank: ClassVar[int] = 3
    counted: ClassVar[str] = "- entry"

    def number(self) -> int:
        return len(self.keys)

    def description(self) -> str:
        return f"remove from map {self.path}: {_named(self.keys)}"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        return [SocketLine(f"del map {self.path} {key}") for key in self.keys]

    def questions(self) -> list[str]:
        return [f"get map {self.path} {key}" for key in self.keys]

    def unfulfilled(self, answers: Mapping[str, str]) -> str:
        still = (key for key in self.keys if f'key="{key}"' in answers[f"get map {self.path} {key}"])
        return next((f"map {self.path} still has {key}" for key in still), "")


@dataclass(frozen=True, slots=True)
class ReplaceMap(FileCommand):
    """Replace the map at ``path``, in this order: prepared as a version and committed at once."""

    entries: tuple[tuple[str, str], ...]
    counted: ClassVar[str] = " reloaded entry"

    def number(self) -> int:
        return len(self.entries)

    def description(self) -> str:
        return f"replace map {self.path}: {_counted(len(self.entries), 'entry', 'entries')}, all at once"

    def preparation(self) -> SocketLine:
        """Return the line that begins a version of the map; the answer names its number."""
        return SocketLine(f"prepare map {self.path}", ("New version created: ",))

    def filled(self, answer: str) -> list[SocketLine]:
        """Return the lines that fill the version that ``answer`` names, and commit it."""
        version = answer.rpartition(":")[2].strip()
        chunks: list[list[str]] = [[]]
        size = 0
        for key, value in self.entries:
            entry = f"{key} {value}"
            size += len(entry.encode()) + 1
            if size > MAX_PAYLOAD_BYTES and chunks[-1]:
                chunks.append([])
                size = len(entry.encode()) + 1
            chunks[-1].append(entry)
        texts = (f"add map @{version} {self.path} <<\n" + "\n".join(chunk) + "\n" for chunk in chunks if chunk)
        return [*map(SocketLine, texts), SocketLine(f"commit map @{version} {self.path}")]

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        """Return all lines for people; ``VERSION`` is the number that HAProxy will give."""
        return [self.preparation(), *self.filled(answer or ": VERSION")]

    def questions(self) -> list[str]:
        return [f"show map {self.path}"]

    def unfulfilled(self, answers: Mapping[str, str]) -> str:
        """Compare all entries: which of two comes first has a meaning for some converters."""
        shown = [row for row in _ENTRY.sub("", answers[f"show map {self.path}"]).split("\n") if row]
        if shown == [f"{key} {value}" for key, value in self.entries]:
            return ""
        return f"map {self.path} has {len(shown)} entries, or others than the {len(self.entries)} that it should have"


@dataclass(frozen=True, slots=True)
class ShrinkMap(ReplaceMap):
    """Replace the map at ``path`` by one without ``removed`` of its entries: once nothing leads to what reads them."""

    removed: int
    rank: ClassVar[int] = 3
    counted: ClassVar[str] = "- entry"

    def number(self) -> int:
        return self.removed

    def description(self) -> str:
        return f"remove {_counted(self.removed, 'entry', 'entries')} from map {self.path}, all at once"


@dataclass(frozen=True, slots=True)
class CertificateContent(FileCommand):
    """The certificate and key ``pem`` in the place of ``path``."""

    pem: str = field(repr=False)

    def number(self) -> int:
        return 0

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        """Return the lines of one transaction."""
        content = "\n".join(line for line in self.pem.splitlines() if line.strip())
        begun = SocketLine(f"set ssl cert {self.path} <<\n{content}\n", ("Transaction created", "Transaction updated"))
        return [begun, SocketLine(f"commit ssl cert {self.path}", _DONE)]

    def questions(self) -> list[str]:
        return [f"show ssl cert {self.path}"]

    def unfulfilled(self, answers: Mapping[str, str]) -> str:
        wanted, shown = fingerprint(self.pem), answers[f"show ssl cert {self.path}"].replace(":", "").upper()
        return "" if wanted and wanted in shown else f"certificate {self.path} is another one"


class UpdateCertificate(CertificateContent):
    """Replace the certificate and key that was loaded from ``path``."""

    __slots__ = ()
    counted = "renewed"

    def description(self) -> str:
        return f"update certificate {self.path}"


class AddCertificate(CertificateContent):
    """Load a certificate that no bind names yet."""

    __slots__ = ()
    rank, counted = 1, "added"

    def description(self) -> str:
        return f"add certificate {self.path}"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        made = SocketLine(f"new ssl cert {self.path}", ("New empty certificate store",))
        return [made, *CertificateContent.socket_lines(self)]


@dataclass(frozen=True, slots=True)
class RemoveCertificate(FileCommand):
    """Remove a certificate that no bind names any more from memory."""

    rank: ClassVar[int] = 4
    counted: ClassVar[str] = "removed"

    def number(self) -> int:
        return 0

    def description(self) -> str:
        return f"remove certificate {self.path}"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        return [SocketLine(f"del ssl cert {self.path}", ("deleted!",))]

    def questions(self) -> list[str]:
        return [f"show ssl cert {self.path}"]

    def unfulfilled(self, answers: Mapping[str, str]) -> str:
        there = "Status:" in answers[f"show ssl cert {self.path}"]
        return f"certificate {self.path} is still there" if there else ""


@dataclass(frozen=True, slots=True)
class ListLines(Command):
    """``lines`` of ``crt_list``, a list of certificates or a directory that a bind names.

    A line is the path of a loaded certificate, and the names that it answers for; none: those that it holds.
    """

    crt_list: str
    lines: tuple[str, ...]
    words: ClassVar[str]
    removes: ClassVar[bool] = False

    def group(self) -> str:
        return self.crt_list.rpartition("/")[2]

    def number(self) -> int:
        return len(self.lines)

    def description(self) -> str:
        return f"{self.words} list {self.crt_list}: {_named(self.lines)}"

    def questions(self) -> list[str]:
        return [f"show ssl crt-list {self.crt_list}"]

    def unfulfilled(self, answers: Mapping[str, str]) -> str:
        shown = {_plain_line(row) for row in answers[f"show ssl crt-list {self.crt_list}"].splitlines()}
        wrong = (line for line in self.lines if (_plain_line(line) in shown) is self.removes)
        verb = "still has" if self.removes else "does not have"
        return next((f"list {self.crt_list} {verb} {line}" for line in wrong), "")


class AddListLines(ListLines):
    """Add lines to ``crt_list``."""

    __slots__ = ()
    words, counted = "add to", "+ line"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        head = f"add ssl crt-list {self.crt_list}"
        return [SocketLine(f"{head} <<\n{each}\n" if " " in each else f"{head} {each}", _DONE) for each in self.lines]


class RemoveListLines(ListLines):
    """Remove lines from ``crt_list``, as they are there."""

    __slots__ = ()
    rank, words, counted, removes = 3, "remove from", "- line", True

    def first_question(self) -> str:
        return f"show ssl crt-list -n {self.crt_list}"

    def socket_lines(self, answer: str = "") -> list[SocketLine]:
        """Return the lines; of several for one certificate each goes by its number.

        A line that is not there is left to HAProxy to refuse.
        """
        numbers: dict[str, str] = {}
        paths: Counter[str] = Counter()
        for row in answer.splitlines():
            place, _, names = row.partition(" ")
            path, _, number = place.rpartition(":")
            if path and number.isdecimal():
                numbers[_plain_line(f"{path} {names}")] = number
                paths[path] += 1
        wanted = []
        for line in self.lines:
            path = line.partition(" ")[0]
            number = f":{numbers.get(_plain_line(line), 0)}" if paths[path] > 1 else ""
            wanted.append(SocketLine(f"del ssl crt-list {self.crt_list} {path}{number}", ("deleted in crtlist",)))
        return wanted


MOST_NAMED = 5
"""Entries of a map that are named in one line."""

_LATER = "deleted when its last session has ended"


def _plain_line(line: str) -> str:
    """Return a line of a list without its empty options."""
    return " ".join(word for word in line.split(" ") if word and word != "[]")


def fingerprint(pem: str) -> str:
    """Return the SHA-1 of the first certificate, as ``show ssl cert`` prints it; "" where there is none."""
    found = re.search(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.DOTALL)
    if found is None:
        return ""
    return hashlib.sha1(ssl.PEM_cert_to_DER_cert(found[0])).hexdigest().upper()  # noqa: S324 - what haproxy prints


def _named(items: Iterable[str]) -> str:
    left = iter(items)
    named = list(islice(left, MOST_NAMED))
    more = sum(1 for _ in left)
    return ", ".join([*named, *([f"and {more} more"] if more else [])])


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _last_of(words: tuple[str, ...], *wanted: str) -> str:
    return next((word for word in reversed(words) if word in wanted), "")
