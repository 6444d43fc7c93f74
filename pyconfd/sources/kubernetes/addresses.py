"""The addresses of API servers as people write them."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from pyconfd.errors import ConfigurationError, Problem
from pyconfd.sources.kubernetes.failures import shown

_REMEDY = "write it like https://10.0.0.1:6443; several are separated by commas"


def api_server_urls(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the URLs without blanks around them, trailing slashes and repetitions, in their order.

    Raises:
        ConfigurationError: with every address that is none.
    """
    urls: dict[str, None] = {}
    problems: list[Problem] = []
    for text in texts:
        url = text.strip().rstrip("/")
        if why := _fault_of(url):
            problems.append(Problem("kubernetes.api_servers", f"{shown(text)!r}: {why}", _REMEDY))
        else:
            urls[url] = None
    if problems:
        raise ConfigurationError(*problems)
    return tuple(urls)


def _fault_of(url: str) -> str:  # noqa: PLR0911 - one line for each fault
    if not url:
        return "an address is empty"
    if not url.isprintable() or " " in url:
        return "an address holds no blanks and no control characters"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in {"http", "https"}:
        return "it begins neither with https:// nor with http://"
    if not parts.hostname or port == 0:
        return "the host name or the port is missing"
    if parts.username is not None or parts.password is not None:
        return "a name and a password do not belong in the address (a kubeconfig holds them)"
    if parts.query or parts.fragment:
        return "it has a query or a fragment"
    return ""
