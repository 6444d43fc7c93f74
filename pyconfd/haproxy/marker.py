"""The marker by which a running worker tells which text it loaded. Pure.

HAProxy reads a directive of a ``global`` section again wherever it stands, so a trailing section with a
``description`` changes nothing but the field ``description`` of ``show info``. It lives in the text itself: unlike a
variable of the environment, it cannot survive a reload that did not happen.
"""

import re

from pyconfd.haproxy.sections import Line, parse

_MARKER = re.compile(r'(?:^|["\s])pyconfd:([0-9a-f]{64})"?$')
"""``show info`` puts a value with a quote in it between quotes."""
_DESCRIPTION = re.compile(r"^[ \t]*[\"'\\]*description\b", re.MULTILINE)
_TAIL = re.compile(r"\nglobal\n    description [^\n]*pyconfd:([0-9a-f]{64})\"?\n\Z")
_HEAD = "\n# Added by pyconfd: `show info` of a worker that runs this text names it.\nglobal\n    description "


def mark(text: str, digest: str) -> str:
    """Return ``text`` with the marker of ``digest`` (64 hexadecimal digits) behind it; a description in it is kept."""
    end = "" if text.endswith("\n") or not text else "\n"
    words = [_quoted(word) for word in _description(text)]
    return f"{text}{end}{_HEAD}{' '.join([*words, f'pyconfd:{digest}'])}\n"


def digest_of(description: str) -> str | None:
    """Return the digest in the ``description`` that a worker shows, or None where pyconfd's marker is not in it."""
    found = _MARKER.search(description.strip())
    return found[1] if found else None


def _description(text: str) -> tuple[str, ...]:
    last: Line | None = None
    # Most texts have no such word, and a plain search is hundreds of times faster than the expression.
    if "description" not in text or _DESCRIPTION.search(text) is None:
        return ()
    for section in parse(text):
        if section.keyword == "global":
            for line in section.lines:
                if line.words[0] == "description" and not line.conditional:
                    last = line
    return last.words[1:] if last else ()


def _quoted(word: str) -> str:
    """Quote for HAProxy; a ``$`` stays open to variables, as it was in the operator's own line."""
    if word and not re.search(r"[\s\\\"'#]", word):
        return word
    return '"' + re.sub(r"([\\\"])", r"\\\1", word).replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t") + '"'


def digest_in(text: str) -> str | None:
    """Return the digest of the marker in an installed ``text``, or None where it has none."""
    if found := _TAIL.search(text, max(0, len(text) - 1000)):  # as pyconfd writes it
        return found[1]
    return digest_of(" ".join(_description(text)))
