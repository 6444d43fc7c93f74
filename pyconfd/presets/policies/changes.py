"""Words that change requests and answers: each makes the filters that a rule of the Gateway API would have.

A tenant changes what goes to and from his own pods only, and everything here is validated where a route's filters are.
"""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from pyconfd.model.gateway_api import (
    CorsFilter,
    HeaderModifier,
    HttpHeader,
    PathModifier,
    RequestRedirect,
    RouteFilter,
    UrlRewrite,
)
from pyconfd.presets import values
from pyconfd.presets.gateway import conditions, filters
from pyconfd.presets.gateway.filters import DEFAULT_PORTS
from pyconfd.presets.routing.rules import Cors, Filters, HeaderEdit, PathEdit, Redirect

_MOST_NAMES = 64
_MOST_AGE = 2**31 - 1
_SEPARATORS = re.compile(r"[\s,]+")
_CODES = {"permanent": 308, "temporary": 307, "301": 301, "302": 302, "303": 303, "307": 307, "308": 308}

Change = Callable[[Filters, Any], Filters]


def set_headers(text: str) -> tuple[HeaderEdit, ...]:
    """Parse lines ``Name: value``.

    Raises:
        ValueError: one of them is none, or changes a header of the connection.
    """
    headers = []
    for line in filter(None, map(str.strip, text.split("\n"))):
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError("expected lines such as X-Name: value")
        headers.append(HttpHeader(name=name.strip(), value=value.strip()))
    _check_number(headers)
    return _edits(HeaderModifier(set=tuple(headers)))


def removed_headers(text: str) -> tuple[HeaderEdit, ...]:
    """Parse names of headers.

    Raises:
        ValueError: one of them is none, or belongs to the connection.
    """
    return _edits(HeaderModifier(remove=_names(text)))


def upstream_host(text: str) -> str:
    """Parse the host that a pod is asked for.

    Raises:
        ValueError: it is no host name.
    """
    return _filter(RouteFilter(type="URLRewrite", url_rewrite=UrlRewrite(hostname=text.strip()))).host


def whole_path(text: str) -> PathEdit | None:
    """Parse the path that a pod is asked for, instead of any other.

    Raises:
        ValueError: it is no path.
    """
    return _filter(RouteFilter(type="URLRewrite", url_rewrite=UrlRewrite(path=_replaced(text.strip())))).path


def location(text: str) -> str:
    """Parse a path of the same host.

    Raises:
        ValueError: it is no path.
    """
    found = conditions.path(text.strip(), "")
    if found == "/" or found.startswith("//"):
        raise ValueError("expected another path than /, which begins with one slash")
    return found


def redirect(text: str) -> Filters:
    """Parse a URL, or a path of the same host; without a path, that of the request stays.

    Raises:
        ValueError: it is none, or has a query, a fragment or a user.
    """
    wanted = text.strip()
    parts = urlsplit(wanted)
    is_path = wanted.startswith("/") and not wanted.startswith("//")
    if parts.query or parts.fragment or "@" in parts.netloc or not (is_path or (parts.scheme and parts.netloc)):
        raise ValueError("expected a URL such as https://www.example.com/path, or a path; the query of a request stays")
    to = RequestRedirect(
        scheme=parts.scheme or None,
        hostname=parts.hostname,
        # What the Gateway API leaves out is the port of the listener where no scheme is given.
        port=parts.port or (DEFAULT_PORTS.get(parts.scheme) if parts.netloc else None),
        path=_replaced(parts.path) if parts.path else None,
    )
    return _filter(RouteFilter(type="RequestRedirect", request_redirect=to))


def redirect_code(text: str) -> int:
    """Parse the status of a redirect.

    Raises:
        ValueError: it is none.
    """
    code = _CODES.get(text.strip())
    if code is None:
        raise ValueError(f"expected one of {', '.join(_CODES)}")
    return code


def origins(text: str) -> Cors:
    """Parse origins that may read answers.

    Raises:
        ValueError: one of them is none.
    """
    return _cors(CorsFilter(allow_origins=_names(text)))


def methods(text: str) -> str:
    """Parse methods, or ``*``; raise ValueError."""
    return _cors(CorsFilter(allow_methods=_names(text))).methods


def headers(text: str) -> str:
    """Parse names of headers, or ``*``; raise ValueError."""
    return _cors(CorsFilter(allow_headers=_names(text))).headers


def max_age(text: str) -> int:
    """Parse seconds; raise ValueError."""
    return values.number(text, 0, _MOST_AGE, " of seconds")


def add_request(found: Filters, edits: tuple[HeaderEdit, ...]) -> Filters:
    """Return the filters with more edits of requests."""
    return found._replace(request=found.request + edits)


def add_response(found: Filters, edits: tuple[HeaderEdit, ...]) -> Filters:
    """Return the filters with more edits of answers."""
    return found._replace(response=found.response + edits)


def with_host(found: Filters, host: str) -> Filters:
    """Return the filters with the host that a pod is asked for."""
    return _forwarding(found)._replace(host=host)


def with_path(found: Filters, path: PathEdit) -> Filters:
    """Return the filters with the path that a pod is asked for."""
    return _forwarding(found)._replace(path=path)


def with_redirect(found: Filters, to: Filters) -> Filters:
    """Return the filters with a redirect, and its path."""
    return found._replace(redirect=to.redirect, path=to.path)


def with_code(found: Filters, code: int) -> Filters:
    """Return the filters with another status of their redirect.

    Raises:
        ValueError: they have none.
    """
    if found.redirect is None:
        raise ValueError("there is no redirect: it goes with the word redirect")
    return found._replace(redirect=Redirect(code, *found.redirect[1:]))


def with_cors(found: Filters, cors: Cors) -> Filters:
    """Return the filters with rules for other origins."""
    return found._replace(cors=cors)


def of_cors(field: str) -> Change:
    """Return what puts a value into the rules for other origins, and raises ValueError where there are none."""

    def change(found: Filters, value: Any) -> Filters:
        if found.cors is None:
            raise ValueError("no origin may read answers: it goes with the word cors-allow-origins")
        return found._replace(cors=found.cors._replace(**{field: value}))

    return change


def _forwarding(found: Filters) -> Filters:
    if found.redirect is not None:
        raise ValueError("a request is redirected or forwarded: leave out this word, or redirect")
    return found


def _filter(wanted: RouteFilter) -> Filters:
    return filters.parse((wanted,), (), "")


def _edits(modifier: HeaderModifier) -> tuple[HeaderEdit, ...]:
    return _filter(RouteFilter(type="RequestHeaderModifier", request_header_modifier=modifier)).request


def _replaced(path: str) -> PathModifier:
    return PathModifier(type="ReplaceFullPath", replace_full_path=path)


def _cors(cors: CorsFilter) -> Cors:
    found = _filter(RouteFilter(type="CORS", cors=cors)).cors
    if found is None:  # pragma: no cover - the filter was given
        raise ValueError("no rules for other origins")
    return found


def _names(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(filter(None, _SEPARATORS.split(text))))
    _check_number(found)
    return found


def _check_number(found: "list[HttpHeader] | tuple[str, ...]") -> None:
    if not found:
        raise ValueError("expected at least one")
    if len(found) > _MOST_NAMES:
        raise ValueError(f"more than {_MOST_NAMES}")
