"""The difference between two texts of one section, as commands for the running process or as reasons against. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyconfd.haproxy.proxies import Inherited, Server, servers_of, takes_servers, why_not_addable
from pyconfd.haproxy.sections import Section
from pyconfd.model.plan import (
    AddBackend,
    AddServer,
    Command,
    ReloadReason,
    RemoveBackend,
    RemoveServer,
    ServerState,
    SetState,
    SetWeight,
)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the running HAProxy can do, found by asking it.

    ``runtime`` is False where it cannot be changed at all, with ``why``; it ``answered`` where that will stay so.
    ``cookies`` are those on added servers; ``refused`` are servers that it did not take.
    """

    runtime: bool = False
    why: str = "its runtime socket is not known"
    cookies: bool = False
    backends: bool = False
    refused: frozenset[AddServer] = frozenset()
    answered: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a part of a difference needs a reload, and what would avoid that ("" where nothing would)."""

    reason: ReloadReason
    detail: str
    advice: str = ""


@dataclass(slots=True)
class Difference:
    """What differs: the part that can go live, and the obstacles to the rest. Both empty: nothing but the text."""

    commands: list[Command] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def extend(self, other: "Difference") -> None:
        """Take on what another part found."""
        self.commands += other.commands
        self.obstacles += other.obstacles
        self.details += other.details


RENAMED_ADVICE = (
    "a server that carried traffic is never given another address: name servers with `| server_name`, or take them"
    " from `| servers`"
)


CONDITION_ADVICE = "let the template decide with `{% if %}` instead of `.if`"

ADDRESS_ADVICE = "servers with an IP address and a port, and without resolvers, are added while haproxy runs"

ROUTING_ADVICE = "route by a map (`map_file`) instead of a line for each name: its entries change without a reload"

_ROUTING = frozenset({"acl", "use_backend"})


def changed_section(old: Section, new: Section, base: Inherited, abilities: Abilities) -> Difference:
    """Compare two states of one section; ``base`` is what the running one inherits."""
    found = Difference()
    same_words = [line.words for line in old.lines] == [line.words for line in new.lines]
    if same_words and old.options == new.options:
        return found
    if new.keyword in {"global", "defaults"}:
        reason = ReloadReason.GLOBAL_CHANGED if new.keyword == "global" else ReloadReason.DEFAULTS_CHANGED
        found.obstacles.append(Obstacle(reason, f"{new.title} changed"))
        return found
    was, now = _parted(old), _parted(new)
    if was.binds != now.binds and (summary := summarised("bind", was.binds, now.binds)):
        found.obstacles.append(Obstacle(ReloadReason.BINDS_CHANGED, f"{new.title}: {summary}"))
    if was.others != now.others or old.options != new.options:
        found.obstacles.append(
            Obstacle(ReloadReason.SECTION_CHANGED, f"{new.title} changed", _routing_advice(old, new))
        )
    if was.servers != now.servers or _twice(servers_of(new, base)):
        summary = summarised("server", was.servers, now.servers)
        found.extend(_changed_servers(old, new, base, abilities, summary))
    elif not found.obstacles:
        found.extend(_changed_order(old, new, base))
    return found


def _changed_servers(old: Section, new: Section, base: Inherited, abilities: Abilities, summary: str) -> Difference:
    found = Difference(details=[f"{new.title}: {summary}"])
    before, after = servers_of(old, base), servers_of(new, base)
    was, now = {server.name: server for server in before}, {server.name: server for server in after}
    why = advice = ""
    if len(was) < len(before) or len(now) < len(after):
        why, advice = "two servers have one name", "give each server of a backend a name of its own"
    elif len(after) < sum(line.words[0] == "server" for line in new.lines):
        why = "a server line has no address"  # the check says which
    elif any(server.line.conditional for server in (*before, *after)):
        why, advice = "a server line stands between .if and .endif", CONDITION_ADVICE
    if why:
        return Difference(obstacles=[Obstacle(ReloadReason.SERVERS_CHANGED, f"{found.details[0]} ({why})", advice)])
    algorithm = takes_servers(old, base)
    for name, server in now.items():
        obstacle = (
            _changed_server(new.name, was[name], server, found.commands)
            if name in was
            else _added_server(new.name, server, algorithm, abilities, found.commands)
        )
        if obstacle is not None:
            detail = f"{found.details[0]} ({obstacle.detail})"
            found.obstacles.append(Obstacle(obstacle.reason, detail, obstacle.advice))
    found.commands += [_removal(new.name, server) for name, server in was.items() if name not in now]
    if not found.commands:
        found.details.clear()  # the obstacles say it
    return found


def _added_server(
    backend: str, server: Server, algorithm: str, abilities: Abilities, commands: list[Command]
) -> Obstacle | None:
    if algorithm:
        advice = "use roundrobin, leastconn or random, or add `hash-type consistent`"
        detail = f"balance {algorithm} takes no server while it runs"
        return Obstacle(ReloadReason.SERVERS_CHANGED, detail, advice)
    if why := why_not_addable(server, cookies=abilities.cookies):
        wants_cookie = "cookie" in server.effective and not abilities.cookies
        advice = "HAProxy 3.0 and later add servers with a cookie while they run" if wants_cookie else ADDRESS_ADVICE
        return Obstacle(ReloadReason.SERVERS_CHANGED, f"{server.name}: {why}", advice)
    command = AddServer(backend, server.name, server.address, server.effective)
    if command in abilities.refused:
        return Obstacle(ReloadReason.NOT_LIVE, f"{server.name}: haproxy did not take it on its socket")
    commands.append(command)
    return None


def _changed_server(backend: str, was: Server, now: Server, commands: list[Command]) -> Obstacle | None:
    """Append the commands for a server that has its name before and after, or say what stands against it."""
    if was.address != now.address:
        return Obstacle(ReloadReason.SERVER_RENAMED, f"{now.name} has another address", RENAMED_ADVICE)
    if _without_state(was.effective) != _without_state(now.effective):
        return Obstacle(ReloadReason.SERVERS_CHANGED, f"{now.name} has other keywords")
    before, after = AddServer(backend, was.name, "", was.effective), AddServer(backend, now.name, "", now.effective)
    if before.weight != after.weight:
        commands.append(SetWeight(backend, now.name, after.weight))
    if before.disabled != after.disabled:
        commands.append(SetState(backend, now.name, ServerState.MAINT if after.disabled else ServerState.READY))
    return None


def _without_state(words: Sequence[str]) -> list[str]:
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word == "weight":
            skip = True
        elif word not in {"disabled", "enabled"}:
            kept.append(word)
    return kept


def _changed_order(old: Section, new: Section, base: Inherited) -> Difference:
    """Judge another order of the same lines: of no meaning for servers that have ids of their own."""
    same_elsewhere = [line.words for line in old.lines if line.words[0] != "server"] == [
        line.words for line in new.lines if line.words[0] != "server"
    ]
    harmless = all("id" in server.words for server in servers_of(new, base)) and not any(
        line.words[0] == "default-server" for line in new.lines
    )
    if same_elsewhere and harmless:
        return Difference()
    return Difference(obstacles=[Obstacle(ReloadReason.SECTION_CHANGED, f"{new.title} changed")])


def added_section(section: Section, bases: Iterable[str], named: Inherited, abilities: Abilities) -> Difference:
    """Judge a new section; ``bases`` are the names of defaults sections that run, ``named`` is the one it is from."""
    reason = ReloadReason.SECTION_ADDED
    if section.keyword in {"global", "defaults"}:
        reason = ReloadReason.GLOBAL_CHANGED if section.keyword == "global" else ReloadReason.DEFAULTS_CHANGED
        return Difference(obstacles=[Obstacle(reason, f"{section.title} added")])
    why = _why_not_new(section, bases, named, abilities)
    if why is not None:
        return Difference(obstacles=[Obstacle(reason, f"{section.title} added", why)])
    mode = next((line.words[1] for line in section.lines if line.words[0] == "mode"), "")
    commands: list[Command] = [AddBackend(section.name, section.options[1], mode)]
    commands += [
        AddServer(section.name, server.name, server.address, server.effective) for server in servers_of(section, named)
    ]
    return Difference(commands, [], [f"{section.title} added"])


def _why_not_new(section: Section, bases: Iterable[str], named: Inherited, abilities: Abilities) -> str | None:
    """Return None where the section can be made live, else what would make that possible ("" where nothing would)."""
    if section.keyword != "backend":
        return ""
    if not abilities.backends:
        return "HAProxy 3.4 and later take new backends without a reload"
    if section.options[:1] != ("from",) or len(section.options) != 2 or section.options[1] not in set(bases):
        return "a backend that says `from NAME` of a defaults section goes live without a reload"
    extra = sorted({line.words[0] for line in section.lines} - {"server", "mode"})
    if extra or any(line.conditional for line in section.lines):
        return f"put {', '.join(extra) or 'what is conditional'} into the defaults section that it is from"
    servers = servers_of(section, named)
    if takes_servers(section, named) or any(why_not_addable(one, cookies=abilities.cookies) for one in servers):
        return "its servers cannot be added while haproxy runs"
    return None


def _removal(backend: str, server: Server) -> RemoveServer:
    return RemoveServer(backend, server.name, server.address, server.effective)


def removed_section(section: Section, base: Inherited, abilities: Abilities) -> Difference:
    """Judge a section that is gone."""
    advice = ""
    plain = {line.words[0] for line in section.lines} <= {"server", "mode"}
    if section.keyword == "backend" and section.options[:1] == ("from",) and plain:
        servers = tuple(_removal(section.name, server) for server in servers_of(section, base))
        if abilities.backends:
            return Difference([RemoveBackend(section.name, servers)], [], [f"{section.title} removed"])
        advice = "HAProxy 3.4 and later remove such a backend without a reload"
    reason = ReloadReason.SECTION_REMOVED
    if section.keyword in {"global", "defaults"}:
        reason = ReloadReason.GLOBAL_CHANGED if section.keyword == "global" else ReloadReason.DEFAULTS_CHANGED
    return Difference(obstacles=[Obstacle(reason, f"{section.title} removed", advice)])


def summarised(noun: str, old: dict[str, tuple[str, ...]], new: dict[str, tuple[str, ...]]) -> str:
    """Return ``2 servers added, 1 server removed``, or "" where nothing differs."""
    both = old.keys() & new.keys()
    counts = (
        ("added", len(new) - len(both)),
        ("removed", len(old) - len(both)),
        ("changed", len([name for name in both if old[name] != new[name]])),
    )
    return ", ".join(f"{count} {noun}{'s' if count > 1 else ''} {verb}" for verb, count in counts if count)


class _Parted(NamedTuple):
    """The words of a section's lines: of servers and binds by name, of all others in order."""

    servers: dict[str, tuple[str, ...]]
    binds: dict[str, tuple[str, ...]]
    others: list[tuple[str, ...]]


def _parted(section: Section) -> _Parted:
    parted = _Parted({}, {}, [])
    for line in section.lines:
        words = line.words
        if words[0] == "server":
            parted.servers[words[1] if len(words) > 1 else ""] = words
        elif words[0] == "bind":
            parted.binds[words[1] if len(words) > 1 else ""] = words
        else:
            parted.others.append(words)
    return parted


def _routing_advice(old: Section, new: Section) -> str:
    """Return what would avoid this change of other lines than servers and binds; "" where nothing would."""
    differing = set(_parted(old).others) ^ set(_parted(new).others)
    return ROUTING_ADVICE if differing and {words[0] for words in differing} <= _ROUTING else ""


def _twice(servers: Iterable[Server]) -> bool:
    names = [server.name for server in servers]
    return len(names) != len(set(names))


def spliced(old: Section, new: Section, old_text: str) -> str:
    """Return the text of ``old`` with the server lines of ``new`` in the place of its own."""
    lines, done = [], False
    own = {line.number for line in old.lines if line.words[0] == "server"}
    wanted = [line.raw for line in new.lines if line.words[0] == "server"]
    for number, raw in enumerate(old_text.split("\n"), start=1):
        if number in own:
            if not done:
                lines += wanted
                done = True
        else:
            lines.append(raw)
    if not done and wanted:
        lines[1:1] = wanted
    return "\n".join(lines)
