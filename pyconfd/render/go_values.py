"""What Go's text/template does with values: printing, lengths, indexes, loops. ``go`` in templates.

``pyconfd migrate`` writes ``go.text(x)`` and its like where Jinja's own way would print or compare differently.
Source: documentation of Go's packages ``text/template`` and ``fmt``.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NoReturn
from urllib.parse import quote_plus

from pyconfd.render.go_formats import Shape, pieces_of, prints_as_go, shape_of
from pyconfd.render.invalid import InvalidValueError, shown
from pyconfd.render.plain import is_code, is_data_name

_HTML = {'"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;", "\0": "\ufffd"}
_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_EXPONENT = 6
"""From this power of ten on, ``%v`` and ``%g`` print an exponent."""

_MISSING = object()


def _float(value: float, verb: str = "g", precision: int = -1, *, plus: bool = False) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("-Inf" if value < 0 else "+Inf")
    if verb in "fF":
        text = f"{value:.{6 if precision < 0 else precision}f}"
    elif verb in "eE":
        text = f"{value:.{6 if precision < 0 else precision}{verb}}"
    elif precision >= 0:
        text = f"{value:.{precision or 1}{verb}}"
    else:
        text = _shortest(value, verb)
    return f"+{text}" if plus and not text.startswith("-") else text


def _shortest(value: float, verb: str) -> str:
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    if not isinstance(exponent, int):
        return repr(value)
    power = exponent + len(digits) - 1 if any(digits) else 0
    minus = "-" if sign else ""
    if -4 <= power < _EXPONENT:
        return minus + format(abs(Decimal(repr(value))).normalize(), "f")
    mantissa = "".join(map(str, digits))
    point = f"{mantissa[0]}.{mantissa[1:]}" if len(mantissa) > 1 else mantissa
    return f"{minus}{point}{'e' if verb == 'g' else 'E'}{'-' if power < 0 else '+'}{abs(power):02d}"


def _value(value: Any, *, nil: str = "<nil>") -> str:
    """Return what ``%v`` prints."""
    match value:
        case None:
            return nil
        case bool():
            return str(value).lower()
        case float():
            return _float(value)
        case Mapping():
            return f"map[{' '.join(f'{_value(key)}:{_value(value[key])}' for key in _sorted_keys(value))}]"
        case list() | tuple():
            return f"[{' '.join(map(_value, value))}]"
        case _:
            return str(value)


def _sorted_keys(value: Mapping[Any, Any]) -> list[Any]:
    try:
        return sorted(value)
    except TypeError:
        return sorted(value, key=str)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _go_quoted(text: str) -> str:
    def escape(char: str) -> str:
        if char in _QUOTED:
            return _QUOTED[char]
        if char in '"\\':
            return f"\\{char}"
        if char.isprintable():
            return char
        code = ord(char)
        return f"\\x{code:02x}" if code < 0x80 else (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")

    return f'"{"".join(map(escape, text))}"'


def _refuse(message: str, remedy: str = "") -> NoReturn:
    raise InvalidValueError(message, remedy)


class GoFunctions:
    """``go`` in templates: each function prints and counts as Go does, and raises InvalidValueError where Go fails."""

    __slots__ = ()

    def text(self, value: Any) -> str:
        """Return what ``{{ value }}`` prints in Go: ``true``, ``[a b]``, ``map[a:1]``, ``<no value>``."""
        return _value(value, nil="<no value>")

    def print(self, *values: Any) -> str:
        """Join as ``print`` does: a blank between two values when neither is a text."""
        parts: list[str] = []
        for index, value in enumerate(values):
            if index and not _is_text(value) and not _is_text(values[index - 1]):
                parts.append(" ")
            parts.append(_value(value))
        return "".join(parts)

    def println(self, *values: Any) -> str:
        """Join as ``println`` does: blanks between all values, a newline after the last."""
        return " ".join(map(_value, values)) + "\n"

    def printf(self, layout: str, *values: Any) -> str:
        """Format as ``printf`` does: %v %s %d %q %x %X %o %b %c %U %t %e %f %g with flags, width and precision."""
        try:
            pieces = list(pieces_of(layout))
        except ValueError as error:
            _refuse(f"printf {shown(layout)}: {error}")
        if len(values) != sum(not isinstance(piece, str) for piece in pieces):
            _refuse(f"printf {shown(layout)} has not as many verbs as values")
        rest = iter(values)
        return "".join(piece if isinstance(piece, str) else _formatted(piece, next(rest)) for piece in pieces)

    def len(self, value: Any) -> int:
        """Return the length of a list or map, of a text in bytes."""
        if isinstance(value, str):
            return len(value.encode())
        if isinstance(value, Sequence | Mapping):
            return len(value)
        _refuse(f"len of {shown(value)}, which has no length")

    def index(self, value: Any, *keys: Any) -> Any:
        """Look up ``keys`` one after the other; a missing key of a map gives nothing, one of a list is an error."""
        for key in keys:
            if isinstance(value, Mapping):
                value = value.get(key)
                continue
            items = value.encode() if isinstance(value, str) else value
            if not isinstance(items, Sequence) or not isinstance(key, int):
                _refuse(f"index of {shown(value)} by {shown(key)}")
            if not 0 <= key < len(items):
                _refuse(f"index out of range: {key} of {len(items)}")
            value = items[key]
        return value

    def slice(self, value: Any, *bounds: int) -> Any:
        """Return ``value[i:j]``; of a text, in bytes."""
        items = value.encode() if isinstance(value, str) else value
        low, high = (*bounds, *(0, len(items))[len(bounds) :])[:2]
        if not isinstance(items, Sequence) or not 0 <= low <= high <= len(items):
            _refuse(f"slice {low}:{high} of {shown(value)} is out of range")
        return items[low:high].decode(errors="replace") if isinstance(items, bytes) else items[low:high]

    def values(self, value: Any) -> list[Any]:
        """Return what ``range`` visits: a list's items, a map's values by sorted key, 0 to n-1 of a number."""
        return [item for _key, item in self.pairs(value)] if not isinstance(value, int) else list(range(value))

    def pairs(self, value: Any) -> list[tuple[Any, Any]]:
        """Return what ``range $key, $value`` visits."""
        if value is None:
            return []
        if isinstance(value, Mapping):
            return [(key, value[key]) for key in _sorted_keys(value)]
        if isinstance(value, str) or not isinstance(value, Iterable):
            _refuse(f"range can't iterate over {shown(value)}")
        return list(enumerate(value))

    def field(self, value: Any, name: str) -> Any:
        """Return ``value.name``: nothing if a map lacks it or ``value`` is nothing, an error of anything else."""
        if isinstance(value, Mapping):
            return value.get(name)
        if value is None:
            return None
        found = getattr(value, name, _MISSING) if is_data_name(name) else _MISSING
        if found is _MISSING or is_code(found):
            _refuse(f"{shown(value)} has no {name!r}")
        return found

    def html(self, *values: Any) -> str:
        """Escape for HTML."""
        text = values[0] if len(values) == 1 and _is_text(values[0]) else self.print(*values)
        return "".join(_HTML.get(char, char) for char in text)

    def urlquery(self, *values: Any) -> str:
        """Escape for the query of a URL."""
        return quote_plus(self.print(*values), safe="-_.~")

    def untranslated(self, what: str) -> NoReturn:
        """Fail: ``pyconfd migrate`` could not translate what stood here.

        Raises:
            InvalidValueError: always.

        """
        _refuse(f"not translated by pyconfd migrate: {what}", "write by hand what shall stand here")


GO = GoFunctions()


def _formatted(found: re.Match[str], value: Any) -> str:
    verb, flags, shape = found["verb"], found["flags"], shape_of(value)
    width = int(found["width"] or 0)
    precision = -1 if found["precision"] is None else int(found["precision"] or 0)
    if not prints_as_go(found, shape):
        _refuse(f"printf {found[0]!r} cannot print {shown(value)} as Go does")
    if shape is Shape.FLOAT:
        text = _float(value, "g" if verb == "v" else verb, precision, plus=flags == "+" and verb != "v")
    elif shape is Shape.INT:
        text = _integer(verb, "" if verb == "v" else flags, value)
    elif verb in "vt":
        text = _value(value)
    elif shape is Shape.TEXTS:
        text = f"[{' '.join(_formatted_text(verb, precision, item) for item in value)}]"
    else:
        text = _formatted_text(verb, precision, value)
    if flags == "-":
        return text.ljust(width)
    return text.zfill(width) if flags == "0" else text.rjust(width)


def _formatted_text(verb: str, precision: int, value: Any) -> str:
    text = str(value)
    text = text if precision < 0 else text[:precision]
    if verb == "q":
        return _go_quoted(text)
    if verb in "xX":
        digits = text.encode().hex()
        return digits.upper() if verb == "X" else digits
    return text


def _integer(verb: str, flags: str, value: int) -> str:
    if verb in "cqU":
        if not 0 <= value <= 0x10FFFF:
            _refuse(f"printf %{verb}: {value} is no character")
        if verb == "U":
            return f"U+{value:04X}"
        if verb == "c":
            return chr(value)
        quoted = _go_quoted(chr(value))[1:-1].replace('\\"', '"').replace("'", "\\'")
        return f"'{quoted}'"
    prefix = {"x": "0x", "X": "0X", "o": "0", "b": "0b"}.get(verb, "") if flags == "#" else ""
    digits = prefix + format(abs(value), {"v": "d"}.get(verb, verb))
    if value < 0:
        return f"-{digits}"
    return f"{flags}{digits}" if flags in ("+", " ") else digits
