"""Label and field selectors, as far as pyconfd and kubectl use them: ``key=value`` and ``key!=value``."""

import re
from collections.abc import Callable
from typing import Any

from tests.world.statuses import ApiError

Obj = dict[str, Any]
Match = Callable[[Obj], bool]
_TERM = re.compile(r"\s*(?P<key>[^\s!=]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s=()]*)\s*")


def _terms(text: str) -> list[tuple[str, bool, str]]:
    found = [(term, _TERM.fullmatch(term)) for term in text.split(",") if term.strip()]
    for term, match in found:
        if match is None:
            raise ApiError(400, f"unable to parse requirement: {term!r}")
    return [(match["key"], match["op"] != "!=", match["value"]) for _, match in found if match]


def _field(obj: Obj, path: str) -> str:
    node: Any = obj
    for step in path.split("."):
        node = node.get(step) if isinstance(node, dict) else None
    return "" if node is None else str(node).lower() if isinstance(node, bool) else str(node)


def parse(labels: str = "", fields: str = "") -> Match | None:
    """Return one predicate for both selectors; None where everything matches.

    Raises:
        ApiError: 400 for text that is no selector.
    """
    label_terms, field_terms = _terms(labels), _terms(fields)
    if not label_terms and not field_terms:
        return None

    def matches(obj: Obj) -> bool:
        have = obj["metadata"].get("labels") or {}
        return all((have.get(key) == value) is equal for key, equal, value in label_terms) and all(
            (_field(obj, path) == value) is equal for path, equal, value in field_terms
        )

    return matches
