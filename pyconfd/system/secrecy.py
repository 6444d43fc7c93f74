"""Secrets that this process knows, so that no message, log line or output holds one."""

import re
import threading
from collections.abc import Iterable

HIDDEN = "[hidden]"

SHORTEST = 4
"""In characters: what is shorter would take half of every sentence with it."""

_MOST = 256
"""Tokens are renewed again and again; the oldest are forgotten."""

_PATTERNS = (
    (re.compile(r"(?<=://)[^/\s@\"']+@"), f"{HIDDEN}@"),
    (re.compile(r"(?i)\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)?"), HIDDEN),
    (re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL), HIDDEN),
)

_SUSPECT = re.compile(r"://|eyJ|-----BEGIN|(?i:Bearer|Basic)")
"""One of these begins what the patterns find: most texts have none, and a status has tens of thousands of texts."""

_known: tuple[str, ...] = ()
"""The oldest first."""
_longest_first: tuple[str, ...] = ()
_lock = threading.Lock()


def hide(secrets: Iterable[str]) -> None:
    """Hide these from now on in all that goes through :func:`without_secrets`."""
    new = dict.fromkeys(secret for secret in secrets if len(secret) >= SHORTEST)
    with _lock:  # several threads read credentials, and none may undo what another one hides
        _know((*(secret for secret in _known if secret not in new), *new)[-_MOST:])


def _know(secrets: tuple[str, ...]) -> None:
    global _known, _longest_first
    _known, _longest_first = secrets, tuple(sorted(secrets, key=lambda secret: (-len(secret), secret)))


def known_secrets() -> tuple[str, ...]:
    """Return what is hidden, the longest first: equal as long as the same secrets are known."""
    return _longest_first


def without_secrets(text: str, more: Iterable[str] = ()) -> str:
    """Return ``text`` without the known secrets, and without ``more``."""
    for secret in sorted({*_longest_first, *more}, key=len, reverse=True) if more else _longest_first:
        if secret and secret in text:
            text = text.replace(secret, HIDDEN)
    return text


def redacted(text: str) -> str:
    """Return ``text`` without known secrets, URL passwords, bearer tokens, JSON web tokens and private keys."""
    text = without_secrets(text)
    if not _SUSPECT.search(text):
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
