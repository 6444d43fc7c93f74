"""JSON merge patch (RFC 7386) and the part of strategic merge patch that kubectl sends."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec

_Value = TypeVar("_Value")
_DIRECTIVES = ("$setElementOrder/", "$retainKeys", "$patch", "$deleteFromPrimitiveList/")


def clone(value: _Value) -> _Value:
    """A deep copy of JSON values; through JSON, which is several times faster than ``copy.deepcopy``.

    Times, which YAML reads as such where they are not quoted, become text again.
    """
    return cast("_Value", msgspec.json.decode(msgspec.json.encode(value)))


def merge(target: Any, patch: Any) -> Any:
    """The target changed by a JSON merge patch; neither argument is changed."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def _merge_list(target: list[Any], patch: list[Any], key: str, merge_keys: Mapping[str, str]) -> list[Any]:
    result = [clone(item) for item in target]
    for item in patch:
        at = next((i for i, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(clone(item))
        else:
            result[at] = strategic(result[at], item, merge_keys)
    return result


def strategic(target: Any, patch: Any, merge_keys: Mapping[str, str]) -> Any:
    """As ``merge``, but the lists that ``merge_keys`` names are merged item by item."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = dict(target) if isinstance(target, dict) and patch.get("$patch") != "replace" else {}
    for key, value in patch.items():
        if key.startswith(_DIRECTIVES):
            continue
        if value is None:
            result.pop(key, None)
        elif isinstance(value, list) and key in merge_keys and isinstance(result.get(key), list):
            result[key] = _merge_list(result[key], value, merge_keys[key], merge_keys)
        else:
            result[key] = strategic(result.get(key), value, merge_keys)
    return result
