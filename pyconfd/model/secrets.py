"""Which values are secret by what they are called. Pure."""

import re

_SECRET_NAME = re.compile(
    r"(?:^|[_-])(?:password|passwd|token|secret|authorization|private_key|api_key)$", re.IGNORECASE
)


def names_secret(name: str) -> bool:
    """Return whether what is called ``name`` is a secret: ``token`` is one, ``token_file`` is not."""
    return _SECRET_NAME.search(name) is not None
