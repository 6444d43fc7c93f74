"""Words of a canary: an Ingress that takes a share of the requests of another one of its namespace.

``always`` and ``never`` in the header, then in the cookie, decide; the weight decides for all other requests.
"""

import re
from typing import NamedTuple

from pyconfd.presets import values
from pyconfd.presets.gateway import conditions
from pyconfd.presets.routing.types import ValueCondition

_MOST_WEIGHT = 1_000_000
_LONGEST_VALUE = 256
_BRACKETS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|([()|])", re.DOTALL)
ALWAYS, NEVER = "always", "never"


class Canary(NamedTuple):
    """Which requests a canary takes: ``weight`` of ``total`` of those that neither header nor cookie decides.

    With ``value`` or ``pattern`` the header decides for requests that have it, and for no others.
    """

    wanted: bool = False
    weight: int = 0
    total: int = 100
    header: str = ""
    value: str = ""
    pattern: str = ""
    cookie: str = ""

    @property
    def fault(self) -> str:
        """Why the words cannot be meant together, "" where they can."""
        if self.weight > self.total:
            return f"canary-weight {self.weight} is more than canary-weight-total {self.total}"
        if (self.value or self.pattern) and not self.header:
            return "canary-by-header-value and canary-by-header-pattern need canary-by-header"
        return ""

    @property
    def header_condition(self) -> ValueCondition | None:
        """What the header has to be for the canary, None without one."""
        if not self.header:
            return None
        is_pattern = bool(self.pattern and not self.value)
        return ValueCondition(self.header, self.value or self.pattern or ALWAYS, is_pattern)

    @property
    def is_conditional(self) -> bool:
        """Whether the request decides, and not the weight alone."""
        return bool(self.header or self.cookie)


NO_CANARY = Canary()


def is_meant_as_canary(text: str | None) -> bool:
    """Return whether an Ingress is to be one: any text but a clear no, so that a misspelled one gets no path."""
    return text is not None and text.strip().lower() != "false"


def weight(text: str) -> int:
    """Parse a weight; raise ValueError."""
    return values.number(text, 0, _MOST_WEIGHT)


def total(text: str) -> int:
    """Parse what weights are of; raise ValueError."""
    return values.number(text, 1, _MOST_WEIGHT)


def header(text: str) -> str:
    """Parse the name of a header; raise ValueError."""
    return cookie(text).lower()


def cookie(text: str) -> str:
    """Parse the name of a cookie; raise ValueError."""
    return conditions.header_name(text.strip(), "")


def value(text: str) -> str:
    """Parse the value of a header; raise ValueError."""
    if not text.strip() or not text.isprintable() or len(text) > _LONGEST_VALUE:
        raise ValueError(f"expected a value of at most {_LONGEST_VALUE} printable characters")
    return text.strip()


def pattern(text: str) -> str:
    """Parse a regular expression for all of the header's value; raise ValueError."""
    if is_ambiguous(text.strip()):
        raise ValueError("^ and $ belong to one alternative here: write brackets, such as ^(a|b)$")
    return conditions.pattern(text.strip(), "")


def is_ambiguous(expression: str) -> bool:
    """Return whether an expression has alternatives outside brackets, and an anchor, which belongs to one of these."""
    depth = 0
    for found in _BRACKETS.finditer(expression):
        depth += {"(": 1, ")": -1}.get(found[1] or "", 0)
        if found[1] == "|" and not depth:
            return expression.startswith("^") or expression.endswith("$")
    return False
