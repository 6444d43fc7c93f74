"""Settings that are several tables of the same shape: ``[[name]]`` in TOML, a JSON array of objects in text."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pyconfd.settings.kinds import Kind, NotAcceptedError, Text, shown

ITEM_NAME = Text(what="a name of letters, digits, '.', '_' and '-'", pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Tables(Kind):
    """``make`` gives one item of the parsed values; ``unique`` names keys whose values two items must not share."""

    name: str
    item: str
    keys: Mapping[str, Kind] = field(default_factory=lambda: MappingProxyType({}))
    required: tuple[str, ...] = ()
    make: Callable[..., Any] = dict
    unique: tuple[str, ...] = ()
    title: Callable[[Any], str] = str
    metavar: str = "JSON"

    def parse(self, value: object) -> tuple[Any, ...]:
        """Return the items in order."""
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                raise NotAcceptedError(f"a JSON array of {self.item}s", value) from None
        if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
            raise NotAcceptedError(f"tables, each beginning with [[{self.name}]]", value)
        found = tuple(self._item(item, number) for number, item in enumerate(value, 1))
        for key in self.unique:
            texts = [getattr(item, key) for item in found]
            if double := next((text for text in texts if texts.count(text) > 1), None):
                raise NotAcceptedError(f"each {self.item} with {key} of its own", double)
        return found

    def _item(self, item: Mapping[Any, Any], number: int) -> Any:
        place = f"{self.item} {number}"
        unknown = sorted(str(key) for key in item.keys() - self.keys.keys())
        if unknown:
            raise NotAcceptedError(f"the keys {', '.join(self.keys)} in {place}", unknown[0])
        missing = [key for key in self.required if not item.get(key)]
        if missing:
            raise NotAcceptedError(f"{missing[0]} in {place}", words="none")
        parsed = {}
        for key, value in item.items():
            try:
                parsed[key] = self.keys[key].parse(value)
            except NotAcceptedError as error:
                raise NotAcceptedError(f"a good {key} in {place} ({error})", words=shown(value)) from None
        return self.make(**parsed)

    def text(self, value: Any) -> str:
        """Return their titles parted by commas."""
        return ", ".join(self.title(item) for item in value)
