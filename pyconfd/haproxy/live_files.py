"""The difference between declared maps and certificates, as commands for the running process. Pure."""

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from pyconfd.haproxy.index import Index
from pyconfd.haproxy.live import Abilities, Difference, Obstacle
from pyconfd.haproxy.proxies import is_plain
from pyconfd.model.plan import (
    AddCertificate,
    AddMapEntries,
    ChangeMapEntries,
    Command,
    ReloadReason,
    RemoveCertificate,
    RemoveMapEntries,
    ReplaceMap,
    UpdateCertificate,
)
from pyconfd.model.rendering import FileKind, OutputFile

EXACT_CONVERTERS = frozenset({"map", "map_str", "map_str_int", "map_str_ip", "map_str_str", "map_ip", "map_ip_int"})
"""Converters to which the order of the entries means nothing. Source: configuration manual, 7.3.1 ``map``."""

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


def changed_files(
    old: tuple[OutputFile, ...], new: tuple[OutputFile, ...], index: Index, abilities: Abilities
) -> Difference:
    """Compare the declared files; ``index`` is of the text that runs."""
    found = Difference()
    if old is new:
        return found
    before, after = {file.path: file for file in old}, {file.path: file for file in new}
    for path in sorted(before.keys() | after.keys()):
        was, now = before.get(path), after.get(path)
        if was is now or was == now:
            continue
        kind = (now or was or new[0]).kind
        noun = "map" if kind is FileKind.MAP else "certificate"
        verb = "added" if was is None else "removed" if now is None else "changed"
        judge = _changed_map if kind is FileKind.MAP else _changed_certificate
        detail = f"{noun} {path} {verb}"
        another = _another_default(path, before, index) if kind is FileKind.CERTIFICATE and verb != "changed" else None
        found.extend(Difference(obstacles=[another]) if another else judge(was, now, index, abilities, detail))
    return found


def _changed_map(
    was: OutputFile | None, now: OutputFile | None, index: Index, _abilities: Abilities, detail: str
) -> Difference:
    path = (now or was or _NOTHING).path
    converters = index.map_converters(path)
    advice = "" if was is None or now is None else MAP_ADVICE
    obstacle = Difference(obstacles=[Obstacle(ReloadReason.MAPS_CHANGED, detail, advice)])
    # A path that is not found may be read all the same, through a variable.
    if was is None or now is None or not converters or not all(name.startswith("map") for name in converters):
        return obstacle
    before, after = entries_of(was.content), entries_of(now.content)
    if before is None or after is None or not is_plain(path):
        return obstacle
    if before == after:  # comments
        return Difference(details=[detail])
    if converters <= EXACT_CONVERTERS and (commands := _single(path, before, after)) is not None:
        return Difference(commands, [], [detail])
    return Difference([ReplaceMap(path, after)], [], [detail])


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


def _single(path: str, before: Entries, after: Entries) -> list[Command] | None:
    """Return single changes; None where the map has to be loaded anew."""
    was, now = dict(before), dict(after)
    if len(was) != len(before) or len(now) != len(after):
        return None
    added = tuple((key, value) for key, value in after if key not in was)
    changed = tuple((key, value) for key, value in after if key in was and was[key] != value)
    removed = tuple(key for key, _ in before if key not in now)
    if len(added) + len(changed) + len(removed) > max(8, len(now) // 4):
        return None
    if any(key.count(":") > 1 for key in (*dict((*added, *changed)), *removed)):
        return None  # `get map` does not find networks of IPv6 again
    if not all(is_plain(word) for pair in (*added, *changed) for word in pair) or not all(map(is_plain, removed)):
        return None
    commands: list[Command] = []
    if added:
        commands.append(AddMapEntries(path, added))
    if changed:
        commands.append(ChangeMapEntries(path, changed))
    if removed:
        commands.append(RemoveMapEntries(path, removed))
    return commands


def _another_default(path: str, before: Mapping[str, OutputFile], index: Index) -> Obstacle | None:
    """Say that a certificate which comes or goes is, or would be, the default of a bind: the first of its directory.

    HAProxy does not let go of a default, and takes a new one only when it loads.
    """
    directory = str(PurePosixPath(path).parent)
    if directory not in {word.rstrip("/") for word in index.default_certificates()}:
        return None
    beside = [known for known in before if str(PurePosixPath(known).parent) == directory]
    if any(known.encode() < path.encode() for known in beside):
        return None
    noun = "removed, the default certificate" if path in before else "added, first in its directory: the new default"
    return Obstacle(ReloadReason.CERTIFICATES_CHANGED, f"certificate {path} {noun}", DEFAULT_ADVICE)


def _changed_certificate(
    was: OutputFile | None, now: OutputFile | None, index: Index, _abilities: Abilities, detail: str
) -> Difference:
    file = now or was or _NOTHING
    directory = str(PurePosixPath(file.path).parent)
    words = index.certificate_words()
    lists = [word for word in words if word.rstrip("/") == directory]
    obstacle = Difference(
        obstacles=[
            Obstacle(
                ReloadReason.CERTIFICATES_CHANGED,
                detail,
                f"a bind with `crt {directory}/` takes certificates without a reload",
            )
        ]
    )
    if not lists and file.path not in words and was is not None and now is not None:
        return obstacle  # it may be read by something else than a bind
    if now is not None and (not _fits(now.content) or not is_plain(file.path)):
        return obstacle
    if was is not None and now is not None:
        return Difference([UpdateCertificate(file.path, now.content)], [], [detail])
    if len(lists) != 1 or file.path in words:
        return obstacle
    if now is not None:
        return Difference([AddCertificate(directory, file.path, now.content)], [], [detail])
    return Difference([RemoveCertificate(directory, file.path)], [], [detail])


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
