"""The passwords that stand in a configuration, so that no message, difference or log repeats them. Pure."""

import re
from collections.abc import Iterable, Iterator

from pyconfd.haproxy.sections import words
from pyconfd.system.secrecy import redacted, without_secrets

_NAMES_A_SECRET = re.compile(
    r"(?i)(?:^|[-_./(])(?:password|passwd|passphrase|secret|token|api[-_]?key|authorization|auth[-_]?key)s?\)?$"
)
_AUTH = re.compile(r"(?i)\bAUTH[ \t]+([^\r\n]+)")
_SUSPECT = re.compile(r"(?i)passw|passphrase|secret|token|api.?key|auth")
_SCHEMES = frozenset({"basic", "bearer"})


def passwords_in(text: str) -> frozenset[str]:
    """Return what stands where a password does: of users, ``stats auth``, ``AUTH``, behind names such as ``token``."""
    lines = (line for line in text.split("\n") if _SUSPECT.search(line))
    return frozenset(secret for line in lines for secret in _of_line(words(line)) if len(secret) > 1)


def without_passwords(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a configuration, or a difference of two, without what it holds of passwords and without ``secrets``."""
    return redacted(without_secrets(text, passwords_in(text) | {*secrets}))


def _of_line(line: tuple[str, ...]) -> Iterator[str]:
    for position, word in enumerate(line):
        following = line[position + 1] if position + 1 < len(line) else ""
        if line[max(0, position - 1) : position + 1] == ("stats", "auth"):
            yield following
            yield following.partition(":")[2]
        elif _NAMES_A_SECRET.search(word):
            yield following
            scheme, _, rest = following.partition(" ")
            if scheme.lower() in _SCHEMES:
                yield rest or (line[position + 2] if position + 2 < len(line) else "")
    if line[:2] == ("tcp-check", "send"):
        for sent in _AUTH.findall(" ".join(line[2:])):
            yield from sent.split()
