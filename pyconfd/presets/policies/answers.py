"""Words that say what becomes of answers: compression.

A tenant spends processor time of the load balancer, which all share: the operator may forbid the word in
``claims.rules``, or bound what HAProxy takes for it (``maxcompcpuusage``, ``maxcomprate``). Without the word nothing is
compressed: where an answer over TLS has a secret beside what the request says, its size tells of the secret (BREACH).
"""

import re

_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}", re.ASCII)
_MOST_TYPES = 32
_USUAL = (
    "text/html text/css text/plain text/xml text/javascript application/javascript application/json application/xml"
    " application/xhtml+xml application/rss+xml image/svg+xml"
)
"""Not ``text/event-stream``: its events are small, and to be there at once."""


def compressed_types(text: str) -> str:
    """Parse which answers are compressed, as types with blanks between them, "" for none; raise ValueError."""
    found = list(dict.fromkeys(text.lower().replace(",", " ").split()))
    if found in (["on"], ["off"]):
        return _USUAL if found == ["on"] else ""
    if not found or len(found) > _MOST_TYPES or not all(map(_TYPE.fullmatch, found)):
        raise ValueError(f"expected on, off, or at most {_MOST_TYPES} types of content, such as application/json")
    return " ".join(found)
