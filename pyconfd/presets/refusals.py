"""What is refused of objects, joined from the collections that refuse it."""

from itertools import chain
from typing import Any

from pyconfd.derived import Collection, Published, SameParts
from pyconfd.model.context import Refusal


class JoinedRefusals:
    """What is refused in collections, as one tuple. An item is a refusal, or several, or has them as ``refused``."""

    def __init__(self, *collections: Collection[Any, Any]) -> None:
        self._published = [Published[Any, tuple[Refusal, ...]](each, rank=None, value=_of_item) for each in collections]
        self._joined = SameParts[tuple[Refusal, ...]]()

    def all(self) -> tuple[Refusal, ...]:
        """Return them as of the last round, in no order; the same object where nothing changed."""
        parts = tuple(each.mapping() for each in self._published)
        return self._joined.made(parts, lambda: tuple(chain.from_iterable(chain(*(each.values() for each in parts)))))


def _of_item(item: Any) -> tuple[Refusal, ...] | None:
    if isinstance(item, Refusal):
        return (item,)
    refused: tuple[Refusal, ...] = item if type(item) is tuple else item.refused
    return refused or None
