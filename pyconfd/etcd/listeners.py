"""Listeners of preset ``kubefigurator`` as this machine can serve them: without the certificates that it lacks. Pure.

Strangers ask for these listeners by annotation, so a certificate that one of them lacks costs only what asked for it,
as where that preset renders for its own machine. What the operator's own fragments name is left as it is.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyconfd.model.rendering import Piece

_LISTENER = re.compile(
    r"^frontend k8s-service_\S+_listen\n(?:[ \t].*\n|\n)*?(?P<bind>[ \t]+bind \S+ ssl (?P<what>crt(?:-list)?) .*\n)",
    re.MULTILINE,
)
"""As the shipped fragment ``10-kubefigurator.tmpl`` writes it."""
_CERTIFICATE = re.compile(r""" crt (?:"(?P<quoted>[^"\\]+)"|(?P<plain>[^\s"'\\]+))""")
_LIST = re.compile(r""" crt-list (?:"(?P<quoted>[^"\\]+)"|(?P<plain>[^\s"'\\]+))""")


@dataclass(frozen=True, slots=True)
class Served:
    """Pieces and contents of maps without what cannot be served; ``lacking`` says which files, and why."""

    pieces: tuple[Piece, ...]
    maps: Mapping[str, str]
    lacking: Mapping[str, str]


def names_certificates(pieces: Sequence[Piece]) -> bool:
    """Return whether any listener depends on files of this machine."""
    return any(_LISTENER.search(piece.text) for piece in pieces)


def servable(pieces: Sequence[Piece], maps: Mapping[str, str], fault: Callable[[str], str]) -> Served:
    """Leave out each certificate that has a ``fault`` ("" for none), and each bind that is left with none."""
    contents = dict(maps)
    lacking: dict[str, str] = {}

    def usable(path: str) -> bool:
        wrong = fault(path)
        if wrong:
            lacking[path] = wrong
        return not wrong

    def listed(bind: str) -> bool:
        found = _LIST.search(bind)
        path = _path(found) if found else ""
        if path not in contents:
            return True
        lines = contents[path].splitlines(keepends=True)
        kept = [line for line in lines if not line.strip() or usable(line.split()[0])]
        if kept:
            contents[path] = "".join(kept)
        return bool(kept)

    def rewritten(found: re.Match[str]) -> str:
        bind = found["bind"]
        if found["what"] == "crt-list":
            served = bind if listed(bind) else ""
        else:
            certificates = list(_CERTIFICATE.finditer(bind))
            bad = [each for each in certificates if not usable(_path(each))]
            served = "" if len(bad) == len(certificates) else bind
            for each in bad:
                served = served.replace(each[0], "", 1)
        left_out = "" if served else f"    # not bound here: {bind.split()[1]}, it has no certificate\n"
        return f"{found[0][: -len(bind)]}{served or left_out}"

    changed = tuple(Piece(piece.fragment, _LISTENER.sub(rewritten, piece.text)) for piece in pieces)
    return Served(changed, contents, lacking)


def _path(found: re.Match[str]) -> str:
    return found["quoted"] or found["plain"]
