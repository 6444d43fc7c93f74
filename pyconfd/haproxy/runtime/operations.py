"""The operations of a plan: lines for the runtime socket and their answers, how the result is read back, words. Pure.

Never in words: the content of a certificate. Servers that HAProxy rejects are distinguished from other failures.

Source: HAProxy management manual, 9.3; the texts of the answers as 2.6, 3.0, 3.2 and 3.4 give them.
"""

import hashlib
import re
import ssl
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, assert_never

from pyconfd.haproxy.config.diff import PARTIAL
from pyconfd.haproxy.config.index import cut
from pyconfd.haproxy.config.servers import PLAIN_CHARACTERS
from pyconfd.haproxy.config.text import words
from pyconfd.haproxy.runtime.servers_now import ServerNow, servers_now, state_of, wrong_address
from pyconfd.model.plan import (
    AddBackend,
    AddCertificate,
    AddListLines,
    AddMapEntries,
    AddServer,
    ChangeMapEntries,
    Command,
    ReloadReason,
    RemoveBackend,
    RemoveCertificate,
    RemoveListLines,
    RemoveMapEntries,
    RemoveServer,
    ReplaceMap,
    ServerState,
    SetState,
    SetWeight,
    UpdateCertificate,
)
from pyconfd.model.rendering import Piece, Rendering

BATCH = 2_000
"""Commands sent before the progress is reported; HAProxy takes tens of thousands a second."""

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


def lines_of(command: Command) -> list[SocketLine]:  # noqa: C901, PLR0911, PLR0912 - one case for each command
    """Return the lines of one command, in order.

    A :class:`ReplaceMap` has others, see :func:`prepare_map`; so has a :class:`RemoveListLines`, where one certificate
    is in several lines of a list: see :func:`removed_lines`.
    """
    match command:
        case AddBackend():
            mode = f" mode {command.mode}" if command.mode else ""
            return [
                SocketLine(f"add backend {command.backend} from {command.defaults}{mode}", ("New backend registered",))
            ]
        case AddServer():
            return added(command)
        case RemoveServer():
            return [SocketLine(f"set server {command.backend}/{command.server} state drain")]
        case RemoveBackend():
            return [SocketLine(f"unpublish backend {command.backend}", ("Backend unpublished",))]
        case SetWeight():
            return [SocketLine(f"set server {command.backend}/{command.server} weight {command.weight}")]
        case SetState():
            return [SocketLine(f"set server {command.backend}/{command.server} state {command.state}")]
        case AddMapEntries():
            return [SocketLine(f"add map {command.path} {key} {value}") for key, value in command.entries]
        case ChangeMapEntries():
            return [SocketLine(f"set map {command.path} {key} {value}") for key, value in command.entries]
        case RemoveMapEntries():
            return [SocketLine(f"del map {command.path} {key}") for key in command.keys]
        case ReplaceMap():
            return [prepare_map(command)]
        case UpdateCertificate():
            return updated_certificate(command.path, command.pem)
        case AddCertificate():
            made = SocketLine(f"new ssl cert {command.path}", ("New empty certificate store",))
            return [made, *updated_certificate(command.path, command.pem)]
        case RemoveCertificate():
            return [SocketLine(f"del ssl cert {command.path}", ("deleted!",))]
        case AddListLines():
            return [_added_line(command.crt_list, line) for line in command.lines]
        case RemoveListLines():
            return removed_lines(command, "")
        case _:
            assert_never(command)


def added(command: AddServer) -> list[SocketLine]:
    """Return the lines that add a server and let it serve."""
    name = f"{command.backend}/{command.server}"
    words = " ".join((name, command.address, *command.words))
    lines = [SocketLine(f"add server {words}", ("New server registered",))]
    if not command.disabled:
        lines.append(SocketLine(f"set server {name} state ready"))
    if command.checked:
        lines.append(SocketLine(f"enable health {name}"))
    if command.agent_checked:
        lines.append(SocketLine(f"enable agent {name}"))
    return lines


def revived(command: AddServer) -> list[SocketLine]:
    """Return the lines that bring back a server which was on its way out."""
    name = f"{command.backend}/{command.server}"
    state = "maint" if command.disabled else "ready"
    return [SocketLine(f"set server {name} state {state}"), SocketLine(f"set server {name} weight {command.weight}")]


def parted(commands: Sequence[Command]) -> tuple[Sequence[Command], Sequence[Command]]:
    """Cut the commands behind the last that makes a new backend or a server: there new backends are published.

    What points to one comes after that.
    """
    if not any(isinstance(command, AddBackend) for command in commands):
        return commands, ()
    end = max(at for at, command in enumerate(commands, start=1) if isinstance(command, AddBackend | AddServer))
    return commands[:end], commands[end:]


def published(command: AddBackend) -> SocketLine:
    """Return the line that lets a new backend take traffic, once its servers are there."""
    return SocketLine(f"publish backend {command.backend}", ("Backend published",))


def updated_certificate(path: str, pem: str) -> list[SocketLine]:
    """Return the lines of one transaction."""
    content = "\n".join(line for line in pem.splitlines() if line.strip())
    return [
        SocketLine(f"set ssl cert {path} <<\n{content}\n", ("Transaction created", "Transaction updated")),
        SocketLine(f"commit ssl cert {path}", _DONE),
    ]


def _added_line(crt_list: str, line: str) -> SocketLine:
    path, _, names = line.partition(" ")
    if not names:
        return SocketLine(f"add ssl crt-list {crt_list} {path}", _DONE)
    return SocketLine(f"add ssl crt-list {crt_list} <<\n{line}\n", _DONE)


def list_question(crt_list: str) -> str:
    """Return the command whose answer :func:`removed_lines` takes."""
    return f"show ssl crt-list -n {crt_list}"


def removed_lines(command: RemoveListLines, answer: str) -> list[SocketLine]:
    """Return the commands that remove lines of a list; a line of several for one certificate goes by its number.

    ``answer`` is that to :func:`list_question`. A line that is not there is left to HAProxy to refuse.
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
    for line in command.lines:
        path = line.partition(" ")[0]
        number = f":{numbers.get(_plain_line(line), 0)}" if paths[path] > 1 else ""
        wanted.append(SocketLine(f"del ssl crt-list {command.crt_list} {path}{number}", ("deleted in crtlist",)))
    return wanted


def _plain_line(line: str) -> str:
    """Return a line of a list without its empty options."""
    return " ".join(word for word in line.split(" ") if word and word != "[]")


def leftovers(answer: str) -> list[SocketLine]:
    """Return the lines that end the transactions which ``show ssl cert`` names.

    ``set ssl cert`` of one certificate while a transaction on another one is open would change that other one.
    """
    return [SocketLine(f"abort ssl cert {row[1:]}", ("aborted",)) for row in answer.splitlines() if row.startswith("*")]


def prepare_map(command: ReplaceMap) -> SocketLine:
    """Return the line that begins a version of a map; the answer names its number."""
    return SocketLine(f"prepare map {command.path}", ("New version created: ",))


def filled_map(command: ReplaceMap, answer: str) -> list[SocketLine]:
    """Return the lines that fill the version that ``answer`` names, and commit it."""
    version = answer.rpartition(":")[2].strip()
    chunks: list[list[str]] = [[]]
    size = 0
    for key, value in command.entries:
        entry = f"{key} {value}"
        size += len(entry.encode()) + 1
        if size > MAX_PAYLOAD_BYTES and chunks[-1]:
            chunks.append([])
            size = len(entry.encode()) + 1
        chunks[-1].append(entry)
    filled = [
        SocketLine(f"add map @{version} {command.path} <<\n" + "\n".join(chunk) + "\n") for chunk in chunks if chunk
    ]
    return [*filled, SocketLine(f"commit map @{version} {command.path}")]


def batches(commands: Sequence[Command]) -> Iterator[Sequence[Command]]:
    """Split the commands; a map that is replaced is a batch of its own, in its place."""
    batch: list[Command] = []
    for command in commands:
        alone = isinstance(command, ReplaceMap)
        if batch and (alone or len(batch) >= BATCH):
            yield batch
            batch = []
        batch.append(command)
        if alone:
            yield batch
            batch = []
    if batch:
        yield batch


def is_same(words: tuple[str, ...], command: AddServer) -> bool:
    """Return whether a server that comes back is the one that left; the weight may differ."""
    former = replace(command, words=words)
    return _without_weight(former.words) == _without_weight(command.words)


def _without_weight(words: tuple[str, ...]) -> list[str]:
    places = {at + offset for at, word in enumerate(words) if word == "weight" for offset in (0, 1)}
    return [word for at, word in enumerate(words) if at not in places]


def fingerprint(pem: str) -> str:
    """Return the SHA-1 of the first certificate, as ``show ssl cert`` prints it; "" where there is none."""
    found = re.search(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.DOTALL)
    if found is None:
        return ""
    return hashlib.sha1(ssl.PEM_cert_to_DER_cert(found[0])).hexdigest().upper()  # noqa: S324 - what haproxy prints


def checks_of(commands: Sequence[Command]) -> list[str]:
    """Return the questions whose answers show whether ``commands`` took effect."""
    asked = [f"show servers state {backend}" for backend, _ in _by_server(commands)]
    for command in commands:
        if isinstance(command, AddMapEntries | ChangeMapEntries):
            asked += [f"get map {command.path} {key}" for key, _ in command.entries]
        elif isinstance(command, RemoveMapEntries):
            asked += [f"get map {command.path} {key}" for key in command.keys]
        elif isinstance(command, ReplaceMap):
            asked.append(f"show map {command.path}")
        elif isinstance(command, UpdateCertificate | AddCertificate | RemoveCertificate):
            asked.append(f"show ssl cert {command.path}")
        elif isinstance(command, AddListLines | RemoveListLines):
            asked.append(f"show ssl crt-list {command.crt_list}")
    return list(dict.fromkeys(asked))


def _by_server(commands: Sequence[Command]) -> dict[tuple[str, str], dict[type, Command]]:
    """Return the commands for each server, the last one of each kind."""
    found: dict[tuple[str, str], dict[type, Command]] = {}
    for command in commands:
        if isinstance(command, AddServer | RemoveServer | SetWeight | SetState):
            found.setdefault((command.backend, command.server), {})[type(command)] = command
        elif isinstance(command, RemoveBackend):
            for server in command.servers:
                found.setdefault((server.backend, server.server), {})[RemoveServer] = server
    return found


def unfulfilled(commands: Sequence[Command], answers: Mapping[str, str]) -> str:
    """Return what is not as the commands wanted it, by the answers to :func:`checks_of`; "" where all is."""
    final = _by_server(commands)
    names: dict[str, list[str]] = {}
    for backend, name in final:
        names.setdefault(backend, []).append(name)
    servers: dict[tuple[str, str], ServerNow] = {}
    try:
        for backend, wanted in names.items():
            found = servers_now(answers[f"show servers state {backend}"], wanted)
            servers |= {(one.backend, one.name): one for one in found}
    except ValueError as error:
        return f"its state cannot be read: {error}"
    for key, own in final.items():
        if why := _wrong_server(servers.get(key), own):
            return f"server {'/'.join(key)} {why}"
    return _wrong_file(commands, answers)


def _wrong_server(now: ServerNow | None, wanted: Mapping[type, Command]) -> str:
    if RemoveServer in wanted:
        return "" if now is None or now.drain or now.maint else "still takes traffic"
    if now is None:
        return "is not there"
    for command in wanted.values():
        why = ""
        if isinstance(command, SetState):
            why = _wrong_state(now, command.state)
        elif isinstance(command, SetWeight):
            why = _wrong_weight(now, command.weight)
        elif isinstance(command, AddServer):
            why = wrong_address(now, command.address)
            if not why and SetState not in wanted:
                why = _wrong_state(now, ServerState.MAINT if command.disabled else ServerState.READY)
            if not why and SetWeight not in wanted:
                why = _wrong_weight(now, command.weight)
        if why:
            return why
    return ""


def _wrong_state(now: ServerNow, wanted: ServerState) -> str:
    state = state_of(now)
    return "" if state is wanted else f"is in the state {state}"


def _wrong_weight(now: ServerNow, wanted: int) -> str:
    return "" if now.weight == wanted else f"has the weight {now.weight}"


def _wrong_file(commands: Sequence[Command], answers: Mapping[str, str]) -> str:
    for command in commands:
        why = ""
        if isinstance(command, AddMapEntries | ChangeMapEntries | RemoveMapEntries):
            why = _wrong_entries(command, answers)
        elif isinstance(command, ReplaceMap):
            why = _wrong_map(command, answers[f"show map {command.path}"])
        elif isinstance(command, UpdateCertificate | AddCertificate):
            why = _wrong_certificate(command, answers[f"show ssl cert {command.path}"])
        elif isinstance(command, RemoveCertificate) and "Status:" in answers[f"show ssl cert {command.path}"]:
            why = f"certificate {command.path} is still there"
        elif isinstance(command, AddListLines | RemoveListLines):
            why = _wrong_lines(command, answers[f"show ssl crt-list {command.crt_list}"])
        if why:
            return why
    return ""


def _wrong_certificate(command: UpdateCertificate | AddCertificate, answer: str) -> str:
    wanted = fingerprint(command.pem)
    shown = answer.replace(":", "").upper()
    return "" if wanted and wanted in shown else f"certificate {command.path} is another one"


def _wrong_lines(command: AddListLines | RemoveListLines, answer: str) -> str:
    shown = {_plain_line(row) for row in answer.splitlines()}
    for line in command.lines:
        if (_plain_line(line) in shown) is isinstance(command, RemoveListLines):
            verb = "still has" if isinstance(command, RemoveListLines) else "does not have"
            return f"list {command.crt_list} {verb} {line}"
    return ""


def _wrong_entries(command: AddMapEntries | ChangeMapEntries | RemoveMapEntries, answers: Mapping[str, str]) -> str:
    if isinstance(command, RemoveMapEntries):
        still = (key for key in command.keys if f'key="{key}"' in answers[f"get map {command.path} {key}"])
        return next((f"map {command.path} still has {key}" for key in still), "")
    for key, value in command.entries:
        if f'value="{value}"' not in answers[f"get map {command.path} {key}"]:
            return f"map {command.path} does not give {value} for {key}"
    return ""


def _wrong_map(command: ReplaceMap, answer: str) -> str:
    """Compare all entries: which of two comes first has a meaning for some converters."""
    shown = [row for row in _ENTRY.sub("", answer).split("\n") if row]
    if shown == [f"{key} {value}" for key, value in command.entries]:
        return ""
    return f"map {command.path} has {len(shown)} entries, or others than the {len(command.entries)} that it should have"


MOST_NAMED = 5
"""Entries of a map that are named in one line."""

_LATER = "deleted when its last session has ended"


def described(command: Command) -> str:  # noqa: C901, PLR0911, PLR0912 - one case for each command
    """Return one line that says what a command does, in HAProxy's words as far as it has any."""
    match command:
        case AddBackend():
            mode = f", mode {command.mode}" if command.mode else ""
            return f"add backend {command.backend} from {command.defaults}{mode}"
        case RemoveBackend():
            return f"remove backend {command.backend} with {_counted(len(command.servers), 'server')}: {_LATER}"
        case AddServer():
            return " ".join(("add server", f"{command.backend}/{command.server}", command.address, *command.words))
        case RemoveServer():
            at = f" ({command.address})" if command.address else ""
            return f"remove server {command.backend}/{command.server}{at}: drained, {_LATER}"
        case SetWeight():
            meaning = "" if command.weight else " (keeps its sessions, gets no new ones)"
            return f"set server {command.backend}/{command.server} weight {command.weight}{meaning}"
        case SetState():
            return f"set server {command.backend}/{command.server} state {command.state}"
        case AddMapEntries():
            return f"add to map {command.path}: {_named(' '.join(pair) for pair in command.entries)}"
        case ChangeMapEntries():
            return f"change in map {command.path}: {_named(' '.join(pair) for pair in command.entries)}"
        case RemoveMapEntries():
            return f"remove from map {command.path}: {_named(command.keys)}"
        case ReplaceMap():
            count = _counted(len(command.entries), "entry", "entries")
            return f"replace map {command.path}: {count}, all at once"
        case UpdateCertificate():
            return f"update certificate {command.path}"
        case AddCertificate():
            return f"add certificate {command.path}"
        case RemoveCertificate():
            return f"remove certificate {command.path}"
        case AddListLines():
            return f"add to list {command.crt_list}: {_named(command.lines)}"
        case RemoveListLines():
            return f"remove from list {command.crt_list}: {_named(command.lines)}"
        case _:
            assert_never(command)


def reason_text(reason: ReloadReason) -> str:
    """Return a reason in words."""
    return reason.value.replace("_", " ")


def transcript(commands: Sequence[Command]) -> Iterator[str]:
    """Return the lines as they go over the socket; ``VERSION`` is the number that HAProxy will give to a map."""
    made, others = parted(commands)
    for command in made:
        yield from _transcript(command)
    yield from (published(command).text for command in made if isinstance(command, AddBackend))
    for command in others:
        yield from _transcript(command)


def _transcript(command: Command) -> Iterator[str]:
    if isinstance(command, ReplaceMap):
        yield from _shown(prepare_map(command))
        for line in filled_map(command, ": VERSION"):
            yield from _shown(line)
        return
    parts: tuple[Command, ...] = (command, *command.servers) if isinstance(command, RemoveBackend) else (command,)
    for part in parts:
        yield from (text for line in lines_of(part) for text in _shown(line))


def _shown(line: SocketLine) -> Iterator[str]:
    head, separator, payload = line.text.partition("\n")
    yield head
    if not separator:
        return
    if "ssl cert" in head:
        yield f"({len(payload.encode())} bytes of certificate and key, not shown)"
    else:
        yield from payload.splitlines()
    yield ""


def _named(items: Iterable[str]) -> str:
    left = iter(items)
    named = list(islice(left, MOST_NAMED))
    more = sum(1 for _ in left)
    return ", ".join([*named, *([f"and {more} more"] if more else [])])


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def refused_servers(sent: Iterable[tuple[Command, SocketLine]], answers: Iterable[str]) -> dict[AddServer, str]:
    """Return the servers that were turned down, with what was said."""
    return {
        command: f"{line.shown!r} with {answer.strip()[:300]!r}"
        for (command, line), answer in zip(sent, answers, strict=False)
        if isinstance(command, AddServer) and line.text.startswith("add server ") and line.refused(answer)
    }


def is_there(refused: Mapping[AddServer, str], answers: Mapping[str, str]) -> str:
    """Return what was said of one that the process has all the same, "" for none; ``answers`` are to ``checks_of``."""
    for command, said in refused.items():
        question = f"show servers state {command.backend}"
        try:
            found = [one.name for one in servers_now(answers[question], [command.server])]
        except ValueError:
            found = [command.server]
        if command.server in found:
            return said
    return ""


def others(commands: Sequence[Command], refused: Collection[AddServer]) -> list[Command]:
    """Return the commands that are not about these servers."""
    names = {(command.backend, command.server) for command in refused}
    return [one for one in commands if (getattr(one, "backend", ""), getattr(one, "server", "")) not in names]


def without_servers(rendering: Rendering, refused: Collection[AddServer]) -> Rendering:
    """Return ``rendering`` without the lines of these servers."""
    names = {(command.backend, command.server) for command in refused}
    head, sections = cut(rendering.text)
    texts = [head]
    for section in sections:
        mine = {server for backend, server in names if backend == section.name}
        texts.append(_without(section.text, mine) if mine and section.keyword != "frontend" else section.text)
    return Rendering((Piece(PARTIAL, "".join(texts)),), rendering.files)


def _without(text: str, servers: Collection[str]) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not _is_one_of(words(line), servers))


def _is_one_of(found: tuple[str, ...], servers: Collection[str]) -> bool:
    return len(found) > 1 and found[0] == "server" and found[1] in servers
