"""What a generation is made of beside the cluster: the fragments, and the settings that decide what they render to."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pyconfd.model.rendering import Fragment, FragmentSet

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Edit:
    """One fragment or setting that differs.

    ``kind`` is ``fragment`` or ``setting``, "" where only ``what`` is known: added, removed, edited, set, no longer set
    or changed. Of an edited fragment ``lines_added`` and ``lines_removed`` are counted whatever their order.
    """

    kind: str
    name: str
    what: str
    lines_added: int = 0
    lines_removed: int = 0

    def __str__(self) -> str:
        text = f"{self.kind} {self.name} {self.what}".strip()
        if self.what != "edited":
            return text
        counted = f"+{self.lines_added} -{self.lines_removed} lines" if self.lines_added or self.lines_removed else ""
        return f"{text} ({counted or 'order of lines, or blanks at its end'})"


@dataclass(frozen=True)
class GenerationInputs:
    """``settings`` are plain data by section and name, without secrets. Fragments may hold passwords."""

    fragments: FragmentSet = field(repr=False)
    settings: Mapping[str, Any] = field(default_factory=lambda: _NONE, repr=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (64 hexadecimal digits): two with the same one are the same."""
        return hashlib.sha256(self.encoded()).hexdigest()

    def encoded(self) -> bytes:
        """Return it as JSON, always the same bytes for equal ones."""
        found = {
            "fragments": [[each.name, each.text] for each in self.fragments.fragments],
            "includable": [[each.name, each.text] for each in self.fragments.includable],
            "settings": self.settings,
        }
        return json.dumps(found, sort_keys=True, separators=(",", ":"), default=dict).encode()

    @classmethod
    def decoded(cls, data: bytes) -> "GenerationInputs":
        """Return what :meth:`encoded` gave; raises ValueError, KeyError or TypeError for anything else."""
        found = json.loads(data)
        sets = [
            tuple(Fragment(str(name), str(text)) for name, text in found[key]) for key in ("fragments", "includable")
        ]
        return cls(FragmentSet(*sets), dict(found["settings"]))

    def changes_to(self, after: "GenerationInputs") -> tuple[Edit, ...]:
        """Return what differs in ``after``: fragments with the lines that came and went, and settings by name.

        No value and no line is repeated: they may be secret.
        """
        return (*_fragment_changes(self.fragments, after.fragments), *_setting_changes(self.settings, after.settings))


def _fragment_changes(before: FragmentSet, after: FragmentSet) -> Iterator[Edit]:
    old = {each.name: each.text for each in (*before.includable, *before.fragments)}
    new = {each.name: each.text for each in (*after.includable, *after.fragments)}
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            yield Edit("fragment", name, "removed")
        elif name not in old:
            yield Edit("fragment", name, "added")
        elif old[name] != new[name]:
            gone, came = _counts(old[name].splitlines(), new[name].splitlines())
            yield Edit("fragment", name, "edited", came, gone)


def _counts(old: list[str], new: list[str]) -> tuple[int, int]:
    """Return how many lines went and came, whatever their order."""
    left: dict[str, int] = {}
    for line in old:
        left[line] = left.get(line, 0) + 1
    came = 0
    for line in new:
        if left.get(line, 0):
            left[line] -= 1
        else:
            came += 1
    return sum(left.values()), came


def _setting_changes(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> Iterator[Edit]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        here = f"{path}.{name}" if path else name
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _setting_changes(old, new, here)
        else:
            what = "set" if name not in before else "no longer set" if name not in after else "changed"
            yield Edit("setting", here, what)


def merged_documents(one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return two documents of settings as one, table by table; ``other`` wins."""
    both = dict(one)
    for key, value in other.items():
        tables = isinstance(one.get(key), Mapping) and isinstance(value, Mapping)
        both[key] = merged_documents(one[key], value) if tables else value
    return both
