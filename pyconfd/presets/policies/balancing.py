"""Words that say which pod a request goes to."""

from pyconfd.presets.gateway import conditions

_ALGORITHMS = frozenset({"roundrobin", "leastconn", "random"})
_HASHED = {"source": "source", "path": "hash path", "uri": "uri"}
_HASHED_BY_NAME = {"header": "hdr({})", "cookie": "hash req.cook({})"}


def algorithm(text: str) -> str:
    """Parse an algorithm; raise ValueError."""
    if text.strip() not in _ALGORITHMS:
        raise ValueError(f"expected one of {', '.join(sorted(_ALGORITHMS))}")
    return text.strip()


def cookie(text: str) -> str:
    """Parse the name of a cookie; raise ValueError."""
    return conditions.header_name(text.strip(), "")


def hashed(text: str) -> str:
    """Parse what requests that go to one pod have in common, as an algorithm of HAProxy.

    Raises:
        ValueError: it is nothing known.
    """
    kind, colon, name = text.strip().partition(":")
    if not colon and kind in _HASHED:
        return _HASHED[kind]
    if kind in _HASHED_BY_NAME and name:
        return _HASHED_BY_NAME[kind].format(conditions.header_name(name, ""))
    raise ValueError("expected source, path, uri, header:NAME or cookie:NAME")
