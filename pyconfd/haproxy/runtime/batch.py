"""Several operations at once: their order on the socket, the questions after them, and what the answers show. Pure.

Servers that HAProxy rejects are distinguished from other failures.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyconfd.haproxy.config.diff import PARTIAL
from pyconfd.haproxy.config.index import cut
from pyconfd.haproxy.config.text import words
from pyconfd.haproxy.runtime.servers_now import ServerNow, servers_now, state_of, wrong_address
from pyconfd.model.operations import AddBackend, AddServer, Command, LeadToSpare, ReplaceMap, SocketLine, WantedServer
from pyconfd.model.plan import ReloadReason
from pyconfd.model.rendering import Piece, Rendering

BATCH = 2_000
"""Commands sent before the progress is reported; HAProxy takes tens of thousands a second."""


def split_at_publication(commands: Sequence[Command]) -> tuple[Sequence[Command], Sequence[Command]]:
    """Cut the commands behind the last that makes a new backend or a server: there new backends are published.

    What points to one comes after that.
    """
    if not any(isinstance(command, AddBackend) for command in commands):
        return commands, ()
    end = max(at for at, command in enumerate(commands, start=1) if isinstance(command, AddBackend | AddServer))
    return commands[:end], commands[end:]


def leftovers(answer: str) -> list[SocketLine]:
    """Return the lines that end the transactions which ``show ssl cert`` names.

    ``set ssl cert`` of one certificate while a transaction on another one is open would change that other one.
    """
    return [SocketLine(f"abort ssl cert {row[1:]}", ("aborted",)) for row in answer.splitlines() if row.startswith("*")]


def batches(commands: Sequence[Command]) -> Iterator[Sequence[Command]]:
    """Split the commands; a map that is replaced is a batch of its own, in its place.

    Requests are led from a backend that serves to a spare when that was seen to have the servers.
    """
    batch: list[Command] = []
    for command in commands:
        alone = isinstance(command, ReplaceMap)
        if batch and (alone or _is_first_switch(command, batch[-1]) or len(batch) >= BATCH):
            yield batch
            batch = []
        batch.append(command)
        if alone:
            yield batch
            batch = []
    if batch:
        yield batch


def _is_first_switch(command: Command, before: Command) -> bool:
    return isinstance(command, LeadToSpare) and command.changed and not isinstance(before, LeadToSpare)


def is_same(words: tuple[str, ...], command: AddServer) -> bool:
    """Return whether a server that comes back is the one that left; the weight may differ."""
    former = replace(command, words=words)
    return _without_weight(former.words) == _without_weight(command.words)


def _without_weight(words: tuple[str, ...]) -> list[str]:
    places = {at + offset for at, word in enumerate(words) if word == "weight" for offset in (0, 1)}
    return [word for at, word in enumerate(words) if at not in places]


def checks_of(commands: Sequence[Command]) -> list[str]:
    """Return the questions whose answers show whether ``commands`` took effect."""
    asked = [f"show servers state {backend}" for backend, _ in _by_server(commands)]
    return list(dict.fromkeys([*asked, *(question for command in commands for question in command.questions())]))


def _by_server(commands: Sequence[Command]) -> dict[tuple[str, str], WantedServer]:
    """Return what each server shall be afterwards: what the later of two commands leaves out stays wanted."""
    found: dict[tuple[str, str], WantedServer] = {}
    for key, wanted in (each for command in commands for each in command.wanted_servers().items()):
        before = found.get(key, WantedServer())
        later = {name: value for name, value in wanted._asdict().items() if value is not None}
        found[key] = before._replace(**later)
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
    return next((why for command in commands if (why := command.unfulfilled(answers))), "")


def _wrong_server(now: ServerNow | None, wanted: WantedServer) -> str:
    if wanted.gone:
        return "" if now is None or now.drain or now.maint else "still takes traffic"
    if now is None:
        return "is not there"
    if wanted.address and (why := wrong_address(now, wanted.address)):
        return why
    if wanted.state is not None and (state := state_of(now)) is not wanted.state:
        return f"is in the state {state}"
    return f"has the weight {now.weight}" if wanted.weight not in {None, now.weight} else ""


def reason_text(reason: ReloadReason) -> str:
    """Return a reason in words."""
    return reason.value.replace("_", " ")


def transcript(commands: Sequence[Command]) -> Iterator[str]:
    """Return the lines as they go over the socket; ``VERSION`` is the number that HAProxy will give to a map."""
    made, others = split_at_publication(commands)
    lines = [line for command in made for line in command.socket_lines()]
    lines += [command.published() for command in made if isinstance(command, AddBackend)]
    lines += [line for command in others for line in command.socket_lines()]
    yield from (text for line in lines for text in _shown(line))


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
