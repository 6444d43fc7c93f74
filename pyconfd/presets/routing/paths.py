"""The path of a request as routes are found by it, so that all spellings of one path get to the same route.

HAProxy does the same in ``find_path`` of http-routing.j2; pods get the path as the client wrote it.
"""

import re

_UNRESERVED = re.compile("%(2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])", re.IGNORECASE)
"""Source: RFC 3986, 2.3."""
_SLASHES = re.compile("/{2,}")
_ONE_DOT = re.compile(r"(?:/\.)+(?:/|$)")
_TWO_DOTS = re.compile(r"/\.\.(?:/|$)")
_OTHER_SPELLING = re.compile(r"%|//|/\.|\\")
_LONGEST_SPELLED = 4096
"""Of a path with an escape, ``//`` or ``/.``: each escape that stays one has 3 bytes on its way in HAProxy's buffer."""
_LONGEST_WITH_DOTS = 512
"""Where ``..`` are resolved: HAProxy does it by an expression, whose time grows with the square, and whose stack ends
at some 500 elements (HAProxy 2.6, PCRE2 10.42)."""


def decoded(path: str) -> str:
    """Return a path without escapes of letters, digits, ``-``, ``.``, ``_`` and ``~``, which say the same."""
    return _UNRESERVED.sub(lambda found: chr(int(found[1], 16)), path)


def routed_path(path: str) -> str | None:
    """Return the path that routes are compared with, None for a request that gets 400.

    Escapes that mean nothing are decoded, slashes beside each other are one, and ``.`` and ``..`` are resolved. What is
    above the root gets 400, as what is too long for that, and a backslash, which some pods take for a slash.
    """
    if not _OTHER_SPELLING.search(path):
        return path
    if "\\" in path or len(path) > _LONGEST_SPELLED:
        return None
    path = _ONE_DOT.sub("/", _SLASHES.sub("/", decoded(path)))
    if not _TWO_DOTS.search(path):
        return path
    kept: list[str] = []
    for element in path.split("/")[1:]:
        if element != "..":
            kept.append(element)
        elif kept and len(path) <= _LONGEST_WITH_DOTS:
            kept.pop()
        else:
            return None
    return f"/{'/'.join(kept)}{'/' if kept and path.endswith('/..') else ''}"
