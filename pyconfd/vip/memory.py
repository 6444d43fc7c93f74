"""What the hook knows beyond a restart: what was ordered, and which transitions there were, with their causes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyconfd.vip.files import read_document

KEPT_TRANSITIONS = 200


@dataclass(slots=True)
class Memory:
    """``drained`` maps the numbers of routers to who ordered it when and why."""

    path: str
    drained: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    transitions: list[Mapping[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: str) -> "Memory":
        """Return what was written down; what cannot be read is forgotten."""
        found = read_document(path)
        drained, transitions = found.get("drained"), found.get("transitions")
        memory = cls(path)
        if isinstance(drained, dict):
            memory.drained = {
                int(key): value for key, value in drained.items() if key.isdigit() and isinstance(value, dict)
            }
        if isinstance(transitions, list):
            memory.transitions += [item for item in transitions if isinstance(item, dict)][-KEPT_TRANSITIONS:]
        return memory

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"drained": {str(key): dict(value) for key, value in self.drained.items()}} | {
            "transitions": list(self.transitions)
        }

    def add(self, transition: Mapping[str, Any]) -> None:
        """Remember a transition, and forget the oldest."""
        self.transitions.append(transition)
        del self.transitions[:-KEPT_TRANSITIONS]
