"""The addresses of etcd, as its own tools take them."""

from urllib.parse import urlsplit

from pyconfd.settings.kinds import NotAcceptedError

DEFAULT_PORT = 2379
"""Source: etcd's manual, ``--listen-client-urls``."""


def etcd_endpoint(text: str) -> str:
    """Return ``SCHEME://HOST:PORT``; ``HOST:PORT`` is http, as etcdctl takes it.

    Raises:
        NotAcceptedError: it is no such address, or it carries a password (which is not repeated).
    """
    expected = "the address of an etcd, like https://192.0.2.1:2379"
    if "@" in text:
        raise NotAcceptedError(f"{expected}, without a user name or password", words="one that has them")
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise NotAcceptedError(expected, text) from error
    host = parts.hostname or ""
    if parts.scheme not in {"http", "https"} or not host or parts.path.strip("/") or parts.query or parts.fragment:
        raise NotAcceptedError(expected, text)
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
