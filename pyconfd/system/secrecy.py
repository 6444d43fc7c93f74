"""Secrets that this process knows, so that no message, log line or output holds one."""

import re
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

_known: dict[str, None] = {}


def hide(secrets: Iterable[str]) -> None:
    """Hide these from now on in all that goes through :func:`without_secrets`."""
    for secret in secrets:
        if len(secret) >= SHORTEST:
            _known.pop(secret, None)
            _known[secret] = None
    while len(_known) > _MOST:
        del _known[next(iter(_known))]


def without_secrets(text: str, more: Iterable[str] = ()) -> str:
    """Return ``text`` without the known secrets, and without ``more``."""
    for secret in sorted({*tuple(_known), *more}, key=len, reverse=True):
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
