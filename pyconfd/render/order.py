"""The order in which fragments are joined."""

import re
from collections.abc import Iterable, Sequence

_RUN = re.compile(rb"[0-9]+|[^0-9]", re.DOTALL)
_DIGIT = 0x30
"""Where a number stands among the other characters: at the digits, as in ASCII."""


def _rank(name: str) -> tuple[tuple[tuple[int, int], ...], bytes]:
    raw = name.encode("utf-8", "surrogateescape")
    runs = tuple((_DIGIT, int(run)) if run.isdigit() else (run[0], 0) for run in _RUN.findall(raw))
    return runs, raw


def natural_order(names: Iterable[str]) -> list[str]:
    """Return ``names`` in the order in which their fragments are joined: ``9-tcp`` before ``10-stats``.

    Names are compared from left to right as UTF-8 bytes, upper case before lower case, except that a run of the
    digits 0 to 9 counts as one number, of any length; a number stands where its digits stand in ASCII. Names that
    are then still equal (``1-a`` and ``01-a``) are compared by their bytes. The order is total and does not depend
    on the locale, the file system or the order of ``names``.
    """
    return sorted(names, key=_rank)


def order_differs(names: Sequence[str]) -> bool:
    """Return whether python-confd, which compared bytes only, joined these fragments in another order."""
    return natural_order(names) != sorted(names, key=lambda name: name.encode("utf-8", "surrogateescape"))
