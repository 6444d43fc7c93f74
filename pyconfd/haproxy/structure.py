"""What a configuration is apart from its servers: binds, backends, rules. Pure."""

import re
from hashlib import sha256

_SERVER = re.compile(r"^[ \t]*server[ \t][^\n]*\n?", re.MULTILINE)
_IDLE = re.compile(r"^[ \t]*(?:#[^\n]*)?\n", re.MULTILINE)


def structure_of(text: str) -> str:
    """Return the SHA-256 of ``text`` without server lines, comments and blank lines; endpoints do not change it."""
    return sha256(_IDLE.sub("", _SERVER.sub("", text)).encode()).hexdigest()
