"""Label and field selectors."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.world.statuses import ApiError

Obj = dict[str, Any]
Match = Callable[[Obj], bool]
_SET = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)\s*$")
_EQUALITY = re.compile(r"^\s*(?P<key>[^\s!=]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s=()]*)\s*$")
_EXISTS = re.compile(r"^\s*(?P<not>!?)\s*(?P<key>[^\s!=()]+)\s*$")
_FIELD_PATHS = {"type": ("type",), "reason": ("reason",)}


def _label_term(term: str) -> Callable[[Mapping[str, str]], bool]:
    if found := _SET.match(term):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALITY.match(term):
        key, value = found["key"], found["value"]
        if found["op"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(term):
        key, absent = found["key"], bool(found["not"])
        return lambda labels: (key in labels) is not absent
    raise ApiError(400, f"unable to parse requirement: {term!r}")


def _field_term(term: str) -> Match:
    found = _EQUALITY.match(term)
    if not found:
        raise ApiError(400, f"invalid field selector {term!r}")
    path = _FIELD_PATHS.get(found["key"], tuple(found["key"].split(".")))
    value, equal = found["value"], found["op"] != "!="

    def matches(obj: Obj) -> bool:
        node: Any = obj
        for step in path:
            node = node.get(step) if isinstance(node, dict) else None
        text = "" if node is None else str(node).lower() if isinstance(node, bool) else str(node)
        return (text == value) is equal

    return matches


def parse(labels: str = "", fields: str = "") -> Match | None:
    """One predicate for both selectors; None where everything matches.

    Raises:
        ApiError: 400 for text that is no selector.
    """
    label_terms = [_label_term(term) for term in re.split(r",(?![^(]*\))", labels) if term.strip()]
    field_terms = [_field_term(term) for term in fields.split(",") if term.strip()]
    if not label_terms and not field_terms:
        return None

    def matches(obj: Obj) -> bool:
        have = obj["metadata"].get("labels") or {}
        return all(term(have) for term in label_terms) and all(term(obj) for term in field_terms)

    return matches
