"""Which values are secret by what they are called. Pure."""

import re

_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:password|passwd|passphrase|pwd|token|secret|authorization|(?:private|secret|access|api)[_-]?key)$",
    re.IGNORECASE,
)


def names_secret(name: str) -> bool:
    """Return whether what is called ``name`` is a secret: ``token`` is one, ``token_file`` is not."""
    return _SECRET_NAME.search(name) is not None
