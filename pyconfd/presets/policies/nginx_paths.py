"""The paths of an Ingress as ingress-nginx takes them: regular expressions, and rewrites by what these captured.

``use-regex``, or ``rewrite-target`` with another path than that of the rule, makes all paths of the Ingress's hosts
regular expressions: in any case, of the beginning of the path, the longest expression first.

Source: ingress-nginx, docs/user-guide/ingress-path-matching.md and nginx-configuration/annotations.md.
"""

import re
from collections.abc import Mapping

from pyconfd.presets.gateway.patterns import ANY_CASE, LONGEST_VALUE, fault_of
from pyconfd.presets.policies.nginx import PREFIX
from pyconfd.presets.routing.rules import PathEdit, as_format

USE_REGEX, REWRITE = f"{PREFIX}use-regex", f"{PREFIX}rewrite-target"
_TARGET = re.compile(r"/(?:[A-Za-z0-9._~!&'()*+,;=:@%/-]|\$[0-9])*", re.ASCII)
LOOKS_LIKE_EXPRESSION = re.compile(r"[()*$]")
"""What regular expressions have, and paths hardly ever."""
_CAPTURED = re.compile(r"\$([0-9])")
_BRACKETS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|([()|])")


def fault_of_path(path: str) -> str:
    """Return why a path cannot be a regular expression of the beginning of paths, "" where it can."""
    if not path.startswith("/") or len(path) > LONGEST_VALUE:
        return f"expected a regular expression that begins with /, of at most {LONGEST_VALUE} characters"
    depth = 0
    for found in _BRACKETS.finditer(path):
        depth += {"(": 1, ")": -1}.get(found[1] or "", 0)
        if found[1] == "|" and not depth:
            # NGINX ties the first alternative to the beginning, and finds others anywhere.
            return "alternatives without brackets are not taken: write /(a|b), or several paths"
    return fault_of(ANY_CASE + path)


class NginxPaths:
    """What the annotations of one Ingress say of its paths; None are those of another class.

    ``read`` are the annotations that are taken, ``target`` is the path that they ask for. Paths of a ``canary`` are
    what those of its main Ingress are, whose annotations hold for them.
    """

    def __init__(self, annotations: Mapping[str, str] | None, *, canary: bool = False) -> None:
        said = annotations or {}
        self._canary = canary
        self.target = said.get(REWRITE, "").strip() if not canary else ""
        self._use_regex = said.get(USE_REGEX, "").strip().lower() in {"true", "1", "t"} and not canary
        self.read = frozenset({USE_REGEX, REWRITE} & said.keys())

    def is_expression(self, path: str) -> bool:
        """Return whether a path of the Ingress is a regular expression; then all of its hosts are."""
        if self._canary:
            return LOOKS_LIKE_EXPRESSION.search(path) is not None
        return self._use_regex or self.target not in {"", path}

    def edit(self, path: str) -> PathEdit | None:
        """Return what becomes of the path of requests for a path of the Ingress, None for nothing.

        Raises:
            ValueError: the path that is asked for is none.
        """
        if self.target in {"", path}:
            return None
        if not _TARGET.fullmatch(self.target) or len(self.target) > LONGEST_VALUE:
            raise ValueError("expected a path that begins with /, with $1 to $9 for what brackets of the path matched")
        if not _CAPTURED.search(self.target):
            return PathEdit("", as_format(self.target))
        return PathEdit(f"{ANY_CASE}^{path}", _CAPTURED.sub(r"\\\1", as_format(self.target)))
