"""The difference between two states of a section, a map or a certificate: operations, or reasons for a reload. Pure."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from pyconfd.haproxy.config.index import Index, SectionKey
from pyconfd.haproxy.config.servers import (
    ConfiguredServer,
    Inherited,
    is_plain,
    servers_of,
    takes_servers,
    why_not_addable,
)
from pyconfd.haproxy.config.slices import ServerChanges
from pyconfd.haproxy.config.spares import NO_SPARES, Spares
from pyconfd.haproxy.config.text import Section
from pyconfd.model.operations import (
    AddBackend,
    AddCertificate,
    AddListLines,
    AddMapEntries,
    AddServer,
    ChangeMapEntries,
    Command,
    EmptyBackend,
    FillSpare,
    LeadToSpare,
    RemoveBackend,
    RemoveCertificate,
    RemoveListLines,
    RemoveMapEntries,
    ReplaceMap,
    SetState,
    SetWeight,
    ShrinkMap,
    UpdateCertificate,
)
from pyconfd.model.plan import ReloadReason
from pyconfd.model.rendering import FileKind, OutputFile


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the running HAProxy can do, found by asking it.

    ``runtime`` is False where it cannot be changed at all, with ``why``; it ``answered`` where that will stay so.
    ``cookies`` are those on added servers; ``refused`` are servers that it did not take. Where it takes no ``backends``
    ``spares`` serve new ones.
    """

    runtime: bool = False
    why: str = "its runtime socket is not known"
    cookies: bool = False
    backends: bool = False
    spares: Spares = NO_SPARES
    refused: frozenset[AddServer] = frozenset()
    answered: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class ReloadCause:
    """Why a part of a difference needs a reload, and what would avoid that ("" where nothing would)."""

    reason: ReloadReason
    detail: str
    advice: str = ""


@dataclass(slots=True)
class SectionChanges:
    """What differs: what a runtime update can do, and the causes of a reload for the rest; both empty: only the text.

    Of whole texts, ``live`` are the changes of servers that may go before a reload, or before the rest.
    """

    commands: list[Command] = field(default_factory=list)
    reload_causes: list[ReloadCause] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    live: dict[SectionKey, ServerChanges] = field(default_factory=dict)

    def extend(self, other: "SectionChanges") -> None:
        """Add what another part found."""
        self.commands += other.commands
        self.reload_causes += other.reload_causes
        self.details += other.details


RENAMED_ADVICE = (
    "a server that carried traffic is never given another address: name servers with `| server_name`, or take them"
    " from `| servers`"
)


CONDITION_ADVICE = "let the template decide with `{% if %}` instead of `.if`"

ADDRESS_ADVICE = "servers with an IP address and a port, and without resolvers, are added while haproxy runs"

ROUTING_ADVICE = "route by a map (`map_file`) instead of a line for each name: its entries change without a reload"

_ROUTING = frozenset({"acl", "use_backend"})

_OF_ALL = MappingProxyType({"global": ReloadReason.GLOBAL_CHANGED, "defaults": ReloadReason.DEFAULTS_CHANGED})
"""Sections that concern all others."""


def changed_section(old: Section, new: Section, base: Inherited, abilities: Abilities) -> SectionChanges:
    """Compare two states of one section; ``base`` is what the running one inherits."""
    found = SectionChanges()
    same_words = [line.words for line in old.lines] == [line.words for line in new.lines]
    if same_words and old.options == new.options:
        return found
    if new.keyword in _OF_ALL:
        return SectionChanges(reload_causes=[ReloadCause(_OF_ALL[new.keyword], f"{new.title} changed")])
    was, now = _split(old), _split(new)
    if was.binds != now.binds and (summary := summarised("bind", was.binds, now.binds)):
        found.reload_causes.append(ReloadCause(ReloadReason.BINDS_CHANGED, f"{new.title}: {summary}"))
    if was.others != now.others or old.options != new.options:
        found.reload_causes.append(
            ReloadCause(ReloadReason.SECTION_CHANGED, f"{new.title} changed", _routing_advice(old, new))
        )
    if was.servers != now.servers or _twice(servers_of(new, base)):
        summary = summarised("server", was.servers, now.servers)
        found.extend(_changed_servers(old, new, base, abilities, summary))
    elif not found.reload_causes:
        found.extend(_changed_order(old, new, base))
    return found


def _changed_servers(old: Section, new: Section, base: Inherited, abilities: Abilities, summary: str) -> SectionChanges:
    found = SectionChanges(details=[f"{new.title}: {summary}"])
    before, after = servers_of(old, base), servers_of(new, base)
    was, now = {server.name: server for server in before}, {server.name: server for server in after}
    why = advice = ""
    if len(was) < len(before) or len(now) < len(after):
        why, advice = "two servers have one name", "give each server of a backend a name of its own"
    elif len(after) < sum(line.words[0] == "server" for line in new.lines):
        why = "a server line has no address"  # the check says which
    elif any(server.conditional for server in (*before, *after)):
        why, advice = "a server line stands between .if and .endif", CONDITION_ADVICE
    if why:
        return SectionChanges(
            reload_causes=[ReloadCause(ReloadReason.SERVERS_CHANGED, f"{found.details[0]} ({why})", advice)]
        )
    algorithm = takes_servers(old, base)
    for name, server in now.items():
        cause = (
            _changed_server(was[name], server, found.commands)
            if name in was
            else _added_server(server, algorithm, abilities, found.commands)
        )
        if cause is not None:
            detail = f"{found.details[0]} ({cause.detail})"
            found.reload_causes.append(ReloadCause(cause.reason, detail, cause.advice))
    found.commands += [server.removal for name, server in was.items() if name not in now]
    if not found.commands:
        found.details.clear()  # the causes say it
    return found


def _added_server(
    server: ConfiguredServer, algorithm: str, abilities: Abilities, commands: list[Command]
) -> ReloadCause | None:
    if algorithm:
        advice = "use roundrobin, leastconn or random, or add `hash-type consistent`"
        detail = f"balance {algorithm} takes no server while it runs"
        return ReloadCause(ReloadReason.SERVERS_CHANGED, detail, advice)
    if why := why_not_addable(server, cookies=abilities.cookies):
        wants_cookie = "cookie" in server.effective and not abilities.cookies
        advice = "HAProxy 3.0 and later add servers with a cookie while they run" if wants_cookie else ADDRESS_ADVICE
        return ReloadCause(ReloadReason.SERVERS_CHANGED, f"{server.name}: {why}", advice)
    command = server.addition
    if command in abilities.refused:
        return ReloadCause(ReloadReason.NOT_LIVE, f"{server.name}: haproxy did not take it on its socket")
    commands.append(command)
    return None


def _changed_server(was: ConfiguredServer, now: ConfiguredServer, commands: list[Command]) -> ReloadCause | None:
    """Append the commands for a server that has its name before and after, or say what stands against it."""
    if was.address != now.address:
        return ReloadCause(ReloadReason.SERVER_RENAMED, f"{now.name} has another address", RENAMED_ADVICE)
    if _without_state(was.effective) != _without_state(now.effective):
        return ReloadCause(ReloadReason.SERVERS_CHANGED, f"{now.name} has other keywords")
    if was.addition.weight != now.addition.weight:
        commands.append(SetWeight(now.backend, now.name, now.addition.weight))
    if was.state is not now.state:
        commands.append(SetState(now.backend, now.name, now.state))
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


def _changed_order(old: Section, new: Section, base: Inherited) -> SectionChanges:
    """Judge another order of the same lines: of no meaning for servers that have ids of their own."""
    same_elsewhere = [line.words for line in old.lines if line.words[0] != "server"] == [
        line.words for line in new.lines if line.words[0] != "server"
    ]
    harmless = all("id" in server.words for server in servers_of(new, base)) and not any(
        line.words[0] == "default-server" for line in new.lines
    )
    if same_elsewhere and harmless:
        return SectionChanges()
    return SectionChanges(reload_causes=[ReloadCause(ReloadReason.SECTION_CHANGED, f"{new.title} changed")])


def added_section(
    section: Section,
    bases: Iterable[str],
    named: Inherited,
    abilities: Abilities,
    take_spare: Callable[[str], str] = lambda _defaults: "",
    *,
    changed: bool = False,
) -> SectionChanges:
    """Judge a new section; ``bases`` are the names of defaults sections that run, ``named`` is the one it is from.

    ``take_spare`` returns a free spare of a defaults section, "" where there is none. ``changed``: it takes the place
    of one with its name, which is no matter to a spare.
    """
    reason = _OF_ALL.get(section.keyword, ReloadReason.SECTION_ADDED)
    why = _why_not_new(section, bases, named, abilities)
    spare = ""
    if why is None and not abilities.backends:
        spare = take_spare(section.options[1])
        why = None if spare else _NO_SPARE_IS_FREE
    if why is not None:
        return SectionChanges(reload_causes=[ReloadCause(reason, f"{section.title} added", why)])
    servers = [server.addition for server in servers_of(section, named)]
    if spare:
        of = abilities.spares
        fill = FillSpare(section.name, section.options[1], spare, changed)
        lead = LeadToSpare(section.name, spare, of.map_path, section.name in of.serving, changed)
        return SectionChanges([fill, *servers, lead], [], [f"{section.title} {fill.counted}"])
    mode = next((line.words[1] for line in section.lines if line.words[0] == "mode"), "")
    return SectionChanges(
        [AddBackend(section.name, section.options[1], mode), *servers], [], [f"{section.title} added"]
    )


_NO_SPARE_IS_FREE = "all spare backends of its kind are in use until the next reload: raise `apply.spare_backends`"


def _why_not_new(section: Section, bases: Iterable[str], named: Inherited, abilities: Abilities) -> str | None:
    """Return None where the section can be made live, else what would make that possible ("" where nothing would)."""
    if section.keyword != "backend":
        return ""
    if not (abilities.backends or abilities.spares.map_path):
        return "spare backends, as in the shipped `10-spares.tmpl`, take a new one without a reload"
    if section.options[:1] != ("from",) or len(section.options) != 2 or section.options[1] not in set(bases):
        return "a backend that says `from NAME` of a defaults section goes live without a reload"
    extra = sorted({line.words[0] for line in section.lines} - {"server", "mode"})
    if extra or any(line.conditional for line in section.lines):
        return f"put {', '.join(extra) or 'what is conditional'} into the defaults section that it is from"
    servers = servers_of(section, named)
    if takes_servers(section, named) or any(why_not_addable(one, cookies=abilities.cookies) for one in servers):
        return "its servers cannot be added while haproxy runs"
    return None


def removed_section(section: Section, base: Inherited, abilities: Abilities) -> SectionChanges:
    """Judge a section that is gone."""
    advice = ""
    plain = {line.words[0] for line in section.lines} <= {"server", "mode"}
    if section.keyword == "backend" and section.options[:1] == ("from",) and plain:
        servers = tuple(server.removal for server in servers_of(section, base))
        kind = RemoveBackend if abilities.backends else EmptyBackend
        if abilities.backends or abilities.spares.map_path:
            return SectionChanges([kind(section.name, servers)], [], [f"{section.title} removed"])
        advice = "with spare backends, as in the shipped `10-spares.tmpl`, it goes without a reload"
    reason = _OF_ALL.get(section.keyword, ReloadReason.SECTION_REMOVED)
    return SectionChanges(reload_causes=[ReloadCause(reason, f"{section.title} removed", advice)])


def summarised(noun: str, old: dict[str, tuple[str, ...]], new: dict[str, tuple[str, ...]]) -> str:
    """Return ``2 servers added, 1 server removed``, or "" where nothing differs."""
    both = old.keys() & new.keys()
    counts = (
        ("added", len(new) - len(both)),
        ("removed", len(old) - len(both)),
        ("changed", len([name for name in both if old[name] != new[name]])),
    )
    return ", ".join(f"{count} {noun}{'s' if count > 1 else ''} {verb}" for verb, count in counts if count)


class _SplitSection(NamedTuple):
    """The words of a section's lines: of servers and binds by name, of all others in order."""

    servers: dict[str, tuple[str, ...]]
    binds: dict[str, tuple[str, ...]]
    others: list[tuple[str, ...]]


def _split(section: Section) -> _SplitSection:
    split = _SplitSection({}, {}, [])
    for line in section.lines:
        words = line.words
        if words[0] == "server":
            split.servers[words[1] if len(words) > 1 else ""] = words
        elif words[0] == "bind":
            split.binds[words[1] if len(words) > 1 else ""] = words
        else:
            split.others.append(words)
    return split


def _routing_advice(old: Section, new: Section) -> str:
    """Return what would avoid this change of other lines than servers and binds; "" where nothing would."""
    differing = set(_split(old).others) ^ set(_split(new).others)
    return ROUTING_ADVICE if differing and {words[0] for words in differing} <= _ROUTING else ""


def _twice(servers: Iterable[ConfiguredServer]) -> bool:
    names = [server.name for server in servers]
    return len(names) != len(set(names))


EXACT_CONVERTERS = frozenset(
    {"map", "map_str", "map_str_int", "map_str_ip", "map_str_str", "map_ip", "map_ip_int", "map_beg", "map_beg_str"}
)
"""Converters to which the order of the entries means nothing; ``map_beg`` takes the longest, from a tree.

Source: configuration manual, 7.3.1 ``map``; ``pat_match_beg`` in pattern.c of HAProxy.
"""

MAX_CERTIFICATE_BYTES = 15_000
"""Longest certificate for the socket: the whole command has to fit a buffer of 16 KiB (``tune.bufsize``)."""

MAX_ENTRY_BYTES = 4_000
"""Longest line of a map for the socket, far below that buffer."""

MAP_ADVICE = (
    "a map of plain keys and values, read by nothing but map converters (`map_str(PATH)`), changes without a reload"
)

_BLANKS = re.compile(r"[ \t]+")
_CERTIFICATE = re.compile(r"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

DEFAULT_ADVICE = (
    "a bind that names a certificate of yours before the directory (`crt FILE crt DIR/`), or says `strict-sni`, takes"
    " and gives away all of the directory without a reload"
)

Entries = tuple[tuple[str, str], ...]


def changed_files(old: tuple[OutputFile, ...], new: tuple[OutputFile, ...], index: Index) -> SectionChanges:
    """Compare the declared files; ``index`` is of the text that runs."""
    found = SectionChanges()
    if old is new:
        return found
    before, after = {file.path: file for file in old}, {file.path: file for file in new}
    lists = _Lists(before, after, index)
    maps: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        was, now = before.get(path), after.get(path)
        if was is now or was == now:
            continue
        verb = "added" if was is None else "removed" if now is None else "changed"
        is_map = (now or was or _NOTHING).kind is FileKind.MAP
        if is_map and path in lists.words:
            found.extend(_changed_list(was, now, index, f"list of certificates {path} {verb}"))
        elif is_map:
            maps.append(path)
        elif verb != "changed" and (another := _another_default(path, before, index)):
            found.reload_causes.append(another)
        else:
            found.extend(_changed_certificate(was, now, lists, f"certificate {path} {verb}"))
    found.extend(_changed_maps(maps, before, after, index))
    return found


def _changed_maps(
    paths: list[str], before: Mapping[str, OutputFile], after: Mapping[str, OutputFile], index: Index
) -> SectionChanges:
    """Compare maps: entries are removed in the reverse of the order in which they are added.

    Requests come between two maps, too: each is answered as before, until it is answered as from now on.
    """
    found = SectionChanges()
    for path in sorted(paths, key=lambda path: index.use_of_map(path).place) if len(paths) > 1 else paths:
        verb = "added" if path not in before else "removed" if path not in after else "changed"
        found.extend(_changed_map(before.get(path), after.get(path), index, f"map {path} {verb}"))
    removals = [each for each in reversed(found.commands) if isinstance(each, RemoveMapEntries | ShrinkMap)]
    kept = [each for each in found.commands if not isinstance(each, RemoveMapEntries | ShrinkMap)]
    found.commands = [*kept, *removals]
    return found


class _Lists:
    """What names certificates: the ``words`` of binds, and the lines of the lists that are declared."""

    def __init__(self, before: Mapping[str, OutputFile], after: Mapping[str, OutputFile], index: Index) -> None:
        self.words = index.certificate_words()
        self.index = index
        self._files = (before, after)

    @cached_property
    def listed(self) -> frozenset[str]:
        """The certificates that lines of lists name, before or after."""
        lists = (files[path] for files in self._files for path in self.words if path in files)
        return frozenset(
            line.split(" ", 1)[0] for file in lists if file.kind is FileKind.MAP for line in file.content.splitlines()
        )


def _changed_map(was: OutputFile | None, now: OutputFile | None, index: Index, detail: str) -> SectionChanges:
    path = (now or was or _NOTHING).path
    converters = index.use_of_map(path).converters
    advice = "" if was is None or now is None else MAP_ADVICE
    needs_reload = SectionChanges(reload_causes=[ReloadCause(ReloadReason.MAPS_CHANGED, detail, advice)])
    # A path that is not found may be read all the same, through a variable.
    if was is None or now is None or not converters or not all(name.startswith("map") for name in converters):
        return needs_reload
    if converters <= EXACT_CONVERTERS and (commands := _single(path, was.content, now.content)):
        return SectionChanges(commands, [], [detail])
    before, after = entries_of(was.content), entries_of(now.content)
    if before is None or after is None or not is_plain(path):
        return needs_reload
    if before == after:  # comments
        return SectionChanges(details=[detail])
    kept = {key for key, _ in after}
    gone = tuple(each for each in before if each[0] not in kept)
    if gone:
        # Requests are still led to what reads them, as the networks that a backend denies, until other maps changed.
        # Where the first match counts, what goes comes last.
        both, last = (*after, *gone), ShrinkMap(path, after, len(gone))
        first: list[Command] = [] if dict(both) == dict(before) else [ReplaceMap(path, both)]
        return SectionChanges([*first, last], [], [detail])
    return SectionChanges([ReplaceMap(path, after)], [], [detail])


_NOTHING = OutputFile(FileKind.MAP, "", "")


def entries_of(content: str) -> Entries | None:
    """Return keys and values in order; None where a line is no entry, or cannot be sent over the socket."""
    found = []
    for raw in content.split("\n"):
        line = raw.strip(" \t\r")
        if not line or raw.startswith("#"):  # behind a blank it is a key
            continue
        key, *rest = _BLANKS.split(line, 1)  # nothing else separates for HAProxy
        if not rest or _CONTROL.search(line) or len(line.encode("utf-8", "surrogatepass")) > MAX_ENTRY_BYTES:
            return None
        found.append((key, rest[0]))
    return tuple(found)


def differing_lines(old: str, new: str) -> tuple[str, str]:
    """Return the lines of both texts without those that they have in common at the beginning and at the end."""
    same = _common(old, new, min(len(old), len(new)))
    start = old.rfind("\n", 0, same) + 1
    shorter = min(len(old), len(new)) - start
    end = _common(old, new, shorter, from_end=True)
    if end:
        line_end = old.find("\n", len(old) - end)
        end = len(old) - line_end - 1 if line_end >= 0 else 0
    return old[start : len(old) - end], new[start : len(new) - end]


def _common(one: str, other: str, most: int, *, from_end: bool = False) -> int:
    """Return how many characters are the same, by halves: to compare long texts takes no time, characters do."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if from_end:
            same = one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]
        else:
            same = one[low:middle] == other[low:middle]
        low, high = (middle, high) if same else (low, middle - 1)
    return low


def _is_once(content: str, key: str) -> bool:
    return content.startswith(f"{key} ") + content.count(f"\n{key} ") <= 1


def _single(path: str, old: str, new: str) -> list[Command]:
    """Return single changes of a map; nothing where it has to be replaced as a whole, or where only comments differ."""
    before, after = map(entries_of, differing_lines(old, new))
    was, now = dict(before or ()), dict(after or ())
    if before is None or after is None or len(was) != len(before) or len(now) != len(after):
        return []
    added = tuple((key, value) for key, value in after if key not in was)
    changed = tuple((key, value) for key, value in after if key in was and was[key] != value)
    removed = tuple(key for key, _ in before if key not in now)
    if len(added) + len(changed) + len(removed) > max(8, new.count("\n") // 4):
        return []
    touched = (*dict((*added, *changed)), *removed)
    if not all(_is_once(text, key) for key in touched for text in (old, new)):
        return []
    words = (path, *removed, *(word for pair in (*added, *changed) for word in pair))
    # `get map` does not find networks of IPv6 again.
    if any(key.count(":") > 1 for key in touched) or not all(map(is_plain, words)):
        return []
    commands: list[Command] = []
    # Requests come between two entries: a path's may not find that of a shorter prefix, which leads elsewhere.
    if added:
        commands.append(AddMapEntries(path, tuple(sorted(added, key=_length_of_key, reverse=True))))
    if changed:
        commands.append(ChangeMapEntries(path, changed))
    if removed:
        commands.append(RemoveMapEntries(path, tuple(sorted(removed, key=len))))
    return commands


def _length_of_key(entry: tuple[str, str]) -> int:
    return len(entry[0])


def _another_default(path: str, before: Mapping[str, OutputFile], index: Index) -> ReloadCause | None:
    """Return why a reload is needed if a certificate that comes or goes is or would be the default of a bind.

    HAProxy does not release a default, and takes a new one only when it loads.
    """
    directory = str(PurePosixPath(path).parent)
    if directory not in {word.rstrip("/") for word in index.default_certificates()}:
        return None
    beside = [known for known in before if str(PurePosixPath(known).parent) == directory]
    if any(known.encode() < path.encode() for known in beside):
        return None
    noun = "removed, the default certificate" if path in before else "added, first in its directory: the new default"
    return ReloadCause(ReloadReason.CERTIFICATES_CHANGED, f"certificate {path} {noun}", DEFAULT_ADVICE)


_LIST_LINE = re.compile(r"(?P<path>[^\s#\[\]]+)(?: \[\])?(?P<names>(?: [A-Za-z0-9_.*-]+)*)")
"""A line that can change without a reload; HAProxy shows options in another order than they were given in."""

LIST_ADVICE = "a list whose lines are a path and names, in a bind with `strict-sni`, changes without a reload"


def _changed_list(was: OutputFile | None, now: OutputFile | None, index: Index, detail: str) -> SectionChanges:
    path = (now or was or _NOTHING).path
    needs_reload = SectionChanges(reload_causes=[ReloadCause(ReloadReason.CERTIFICATES_CHANGED, detail, LIST_ADVICE)])
    if was is None or now is None or index.use_of_map(path).converters != {""} or not is_plain(path):
        return needs_reload
    before, after = was.content.splitlines(), now.content.splitlines()
    # HAProxy does not release a bind's default certificate, and takes a new one only when it loads.
    if path in index.default_certificates() and before[:1] != after[:1]:
        return needs_reload
    there = set(before)
    wanted = set(after)
    added, removed = [line for line in after if line not in there], [line for line in before if line not in wanted]
    if len(there) < len(before) or not all(map(_LIST_LINE.fullmatch, (*added, *removed))):
        return needs_reload
    if any(len(line) > MAX_ENTRY_BYTES for line in added):
        return needs_reload
    commands: list[Command] = []
    if added:
        commands.append(AddListLines(path, tuple(added)))
    if removed:
        commands.append(RemoveListLines(path, tuple(removed)))
    return SectionChanges(commands, [], [detail])


def _changed_certificate(was: OutputFile | None, now: OutputFile | None, lists: _Lists, detail: str) -> SectionChanges:
    file = now or was or _NOTHING
    directory = str(PurePosixPath(file.path).parent)
    directories = [word for word in lists.words if word.rstrip("/") == directory]
    listed = file.path in lists.listed
    advice = f"a bind with `crt {directory}/` takes certificates without a reload"
    needs_reload = SectionChanges(reload_causes=[ReloadCause(ReloadReason.CERTIFICATES_CHANGED, detail, advice)])
    if not (directories or listed or file.path in lists.words):
        # Where it is named, it may be read by something else than a bind.
        return needs_reload if lists.index.names(directory) else SectionChanges(details=[detail])
    if now is not None and (not _fits(now.content) or not is_plain(file.path)):
        return needs_reload
    if was is not None and now is not None:
        return SectionChanges([UpdateCertificate(file.path, now.content)], [], [detail])
    if len(directories) > 1 or file.path in lists.words:
        return needs_reload
    if now is not None:
        added: list[Command] = [AddCertificate(file.path, now.content)]
        return SectionChanges([*added, *(AddListLines(directory, (file.path,)) for _ in directories)], [], [detail])
    removed: list[Command] = [RemoveListLines(directory, (file.path,)) for _ in directories]
    return SectionChanges([*removed, RemoveCertificate(file.path)], [], [detail])


def _fits(pem: str) -> bool:
    """Return whether a certificate can be sent: known, not too long, without the blank line that would end it early."""
    return (
        bool(pem)
        and len(pem.encode()) <= MAX_CERTIFICATE_BYTES
        and "\n\n" not in pem
        and "\r" not in pem
        and not _has_prompt(pem)
    )


def _has_prompt(pem: str) -> bool:
    """Return whether a name in a certificate looks like the end of an answer: HAProxy prints names as they are."""
    for body in _CERTIFICATE.findall(pem):
        try:
            if b"\n> " in base64.b64decode(body):
                return True
        except binascii.Error:  # for HAProxy to refuse
            continue
    return False
