"""Names that the cluster asks for: what is remembered of them, whatever becomes of cluster, daemon and this process.

A name comes with the first applied generation that has it. It goes only when the daemon said, all being well, for the
whole time of grace that it is asked for no more: what is not known, held or old takes nothing away.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pyconfd.dns.ownership import LABEL
from pyconfd.settings import dns_name


@dataclass(frozen=True, slots=True)
class Told:
    """What the daemon says: ``names`` is None where it does not know, ``sure`` False where it may know too little."""

    names: tuple[str, ...] | None = None
    sure: bool = False


@dataclass(frozen=True, slots=True)
class AskedName:
    """``missed_since`` is when it was first asked for no more, 0.0 while it is; ``gone``: this node withdraws."""

    name: str
    missed_since: float = 0.0
    gone: bool = False


@dataclass(frozen=True, slots=True)
class AskingRules:
    """What the settings allow: names at or below ``suffixes``, ``most`` at a time."""

    suffixes: tuple[str, ...]
    most: int
    grace_s: float


@dataclass(frozen=True, slots=True)
class Asked:
    """What is remembered, by name, and why other names are refused."""

    names: Mapping[str, AskedName]
    refused: Mapping[str, str]


def asked(former: Mapping[str, AskedName], told: Told, rules: AskingRules, *, now: float) -> Asked:
    """Return what is remembered after the daemon was listened to once more."""
    known = {name: entry for name, entry in former.items() if _allowed(name, rules)}
    refused: dict[str, str] = {}
    wanted = {}
    for text in told.names or ():
        name = _read(text)
        if not name:
            refused[text] = "is no name"
        elif not _allowed(name, rules):
            refused[text] = "is not below one of dns.annotation_suffixes"
        else:
            wanted[name] = AskedName(name)
    for name in sorted(wanted.keys() - known.keys()):
        if len(known) >= rules.most:
            refused[name] = f"there are {len(known)} names already, and dns.annotation_names is {rules.most}"
        else:
            known[name] = wanted[name]
    found = {name: wanted.get(name) or _missed(entry, told, rules, now) for name, entry in known.items()}
    return Asked(dict(sorted(found.items())), refused)


def _missed(entry: AskedName, told: Told, rules: AskingRules, now: float) -> AskedName:
    if entry.gone:
        return entry
    if told.names is None or not told.sure:
        return replace(entry, missed_since=0.0)
    # A clock that was set back begins the time of grace anew.
    since = entry.missed_since if 0.0 < entry.missed_since <= now else now
    return replace(entry, missed_since=since, gone=now - since >= rules.grace_s)


def _allowed(name: str, rules: AskingRules) -> bool:
    return any(name == each or name.endswith(f".{each}") for each in rules.suffixes)


def _read(text: str) -> str:
    try:
        name = dns_name(text)
    except ValueError:
        return ""
    return "" if name.startswith(f"{LABEL}.") else name


def from_document(document: object) -> dict[str, AskedName]:
    """Read what :func:`as_document` wrote; what is not as it should be is left out."""
    items = document if isinstance(document, list) else []
    found = {}
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("missed_since"), int | float) and item.get("name"):
            name = str(item["name"])
            found[name] = AskedName(name, float(item["missed_since"]), bool(item.get("gone")))
    return found


def as_document(names: Iterable[AskedName]) -> list[dict[str, object]]:
    """Return it ready for JSON."""
    return [{"name": each.name, "missed_since": each.missed_since, "gone": each.gone} for each in names]
