"""Servers that HAProxy did not take on its socket, and the text that the process is level with then. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from pyconfd.haproxy.compare import PARTIAL
from pyconfd.haproxy.index import cut
from pyconfd.haproxy.readback import servers_now
from pyconfd.haproxy.runtime_text import Line
from pyconfd.haproxy.sections import words
from pyconfd.model.plan import AddServer, Command
from pyconfd.model.rendering import Piece, Rendering


def refused_servers(sent: Iterable[tuple[Command, Line]], answers: Iterable[str]) -> dict[AddServer, str]:
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
