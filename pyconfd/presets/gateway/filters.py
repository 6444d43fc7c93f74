"""Filters of rules and of their references, as the fragment writes them into a backend.

Texts that HAProxy reads as a format come escaped (``%`` is doubled); the fragment quotes them.
"""

import re
from collections.abc import Iterable, Sequence

from pyconfd.model.gateway_api import (
    CorsFilter,
    HeaderModifier,
    HttpHeader,
    PathModifier,
    RequestMirror,
    RequestRedirect,
    RouteFilter,
    UrlRewrite,
)
from pyconfd.model.route_policy import POLICY_GROUP, POLICY_KIND
from pyconfd.presets import values
from pyconfd.presets.gateway import conditions
from pyconfd.presets.gateway.faults import INCOMPATIBLE, refuse
from pyconfd.presets.routing.rules import NO_FILTERS, Cors, Filters, HeaderEdit, Mirror, PathEdit, Redirect, as_format
from pyconfd.presets.routing.types import PathKind, RouteMatch

DEFAULT_PORTS = {"http": 80, "https": 443}

_FRAMING = frozenset(
    ["connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"]
)
"""Headers that say where a message ends and what a connection is used for: HAProxy's own."""
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(\*|(?:\*\.)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:[0-9]{1,5})?", re.ASCII)
_NULL_ORIGIN = "null"
_REPEATED_BLANK = re.compile(r"^\s|\s\s|\s$|\t")
_MOST_ORIGINS = 64
MAX_VALUE_BYTES = 2_000
"""Of a header. HAProxy 2.6 reads 16,383 bytes of a map's line, and takes the rest for another entry, of any rule; of
more than 4,000 no entry of the map could change without a reload."""


def names_policy(filter_: RouteFilter) -> bool:
    """Return whether a filter is a RoutePolicy."""
    reference = filter_.extension_ref if filter_.type == "ExtensionRef" else None
    return reference is not None and (reference.group, reference.kind) == (POLICY_GROUP, POLICY_KIND)


def parse(
    filters: Iterable[RouteFilter] | None,
    matches: Sequence[RouteMatch],
    field: str,
    *,
    is_of_reference: bool = False,
) -> Filters:
    """Parse the filters of a rule or of one of its references; ``matches`` are those of the rule.

    Raises:
        InvalidRule: one of them is invalid or not supported, or two exclude each other.
    """
    found = NO_FILTERS
    seen: set[str] = set()
    for place, each in enumerate(filters or ()):
        where = f"{field}[{place}]"
        if names_policy(each) and not is_of_reference:
            continue  # its words are those of the rule
        if each.type in seen and each.type != "RequestMirror":
            refuse(f"{where}.type", each.type, "this filter is there already: put both into one", INCOMPATIBLE)
        seen.add(each.type)
        found = _with(found, each, matches, where)
    if {"RequestRedirect", "URLRewrite"} <= seen:
        detail = "a request is redirected or forwarded: use RequestRedirect or URLRewrite"
        refuse(field, "RequestRedirect, URLRewrite", detail, INCOMPATIBLE)
    return found


def _with(  # noqa: PLR0911 - one for each kind of filter
    found: Filters, each: RouteFilter, matches: Sequence[RouteMatch], field: str
) -> Filters:
    if each.type == "RequestHeaderModifier" and (modifier := each.request_header_modifier):
        return found._replace(request=_edits(modifier, f"{field}.requestHeaderModifier"))
    if each.type == "ResponseHeaderModifier" and (modifier := each.response_header_modifier):
        return found._replace(response=_edits(modifier, f"{field}.responseHeaderModifier"))
    if each.type == "URLRewrite" and each.url_rewrite:
        return _rewritten(found, each.url_rewrite, matches, f"{field}.urlRewrite")
    if each.type == "RequestRedirect" and each.request_redirect:
        return _redirected(found, each.request_redirect, matches, f"{field}.requestRedirect")
    if each.type == "CORS" and each.cors:
        return found._replace(cors=_cors(each.cors, f"{field}.cors"))
    if each.type == "RequestMirror" and each.request_mirror:
        return found._replace(mirrors=(*found.mirrors, _mirror(each.request_mirror, f"{field}.requestMirror")))
    known = (
        "RequestHeaderModifier, ResponseHeaderModifier, RequestMirror, RequestRedirect, URLRewrite, CORS, and of a rule"
        f" ExtensionRef with a {POLICY_KIND} of {POLICY_GROUP}"
    )
    return refuse(f"{field}.type", each.type, f"this filter is not supported, or without its part; known: {known}")


def _edits(modifier: HeaderModifier, field: str) -> tuple[HeaderEdit, ...]:
    found = []
    for action, headers in (("set", modifier.set), ("add", modifier.add)):
        for place, header in enumerate(headers or ()):
            where = f"{field}.{action}[{place}]"
            name = edited_name(header.name, f"{where}.name", host=action == "set")
            found.append(HeaderEdit(action, name, _header_format(header, f"{where}.value")))
    for place, name in enumerate(modifier.remove or ()):
        found.append(HeaderEdit("del", edited_name(name, f"{field}.remove[{place}]", host=False)))
    return tuple(found)


def edited_name(name: str, field: str, *, host: bool) -> str:
    """Return the name of a header that a rule may change.

    Raises:
        InvalidRule: it is none, or belongs to the connection.
    """
    conditions.header_name(name, field)
    if name.lower() in _FRAMING or (name.lower() == "host" and not host):
        refuse(field, name, "this header belongs to the connection and cannot be changed")
    return name


def _header_format(header: HttpHeader, field: str) -> str:
    value = header.value
    if not value or not value.isprintable() or _REPEATED_BLANK.search(value):
        refuse(field, value, "expected printable characters without line breaks and without several blanks in a row")
    if len(value.encode()) > MAX_VALUE_BYTES:
        refuse(field, value, f"longer than {MAX_VALUE_BYTES:,} bytes")
    return as_format(value)


def _rewritten(found: Filters, rewrite: UrlRewrite, matches: Sequence[RouteMatch], field: str) -> Filters:
    host = _host(rewrite.hostname, f"{field}.hostname") if rewrite.hostname is not None else ""
    path = _path_edit(rewrite.path, matches, f"{field}.path") if rewrite.path is not None else None
    return found._replace(host=host, path=path)


def _redirected(found: Filters, redirect: RequestRedirect, matches: Sequence[RouteMatch], field: str) -> Filters:
    scheme, port = redirect.scheme or "", redirect.port
    if scheme not in {"", "http", "https"}:
        refuse(f"{field}.scheme", scheme, "expected http or https")
    if redirect.status_code not in {301, 302, 303, 307, 308}:
        refuse(f"{field}.statusCode", redirect.status_code, "expected 301, 302, 303, 307 or 308")
    if port is not None and not 1 <= port <= 65535:
        refuse(f"{field}.port", port, "not a port: expected a number from 1 to 65535")
    known = bool(scheme) if port is None else DEFAULT_PORTS.get(scheme) == port
    shown = "" if known else None if port is None else str(port)
    host = _host(redirect.hostname, f"{field}.hostname") if redirect.hostname is not None else ""
    path = _path_edit(redirect.path, matches, f"{field}.path") if redirect.path is not None else None
    return found._replace(redirect=Redirect(redirect.status_code, scheme, host, shown), path=path)


def _host(name: str, field: str) -> str:
    try:
        found = values.host_name(name)
    except ValueError as error:
        refuse(field, name, str(error))
    if found.startswith("*") or ":" in found:
        refuse(field, name, "expected one host name")
    return found


def _path_edit(modifier: PathModifier, matches: Sequence[RouteMatch], field: str) -> PathEdit:
    if modifier.type == "ReplaceFullPath" and modifier.replace_full_path is not None:
        path = conditions.path(modifier.replace_full_path or "/", f"{field}.replaceFullPath")
        return PathEdit("", as_format(path))
    if modifier.type == "ReplacePrefixMatch" and modifier.replace_prefix_match is not None:
        if len(matches) != 1 or matches[0].kind is not PathKind.PREFIX:
            detail = "ReplacePrefixMatch needs a rule with one match, of the type PathPrefix"
            refuse(f"{field}.type", modifier.type, detail)
        by = conditions.path(modifier.replace_prefix_match or "/", f"{field}.replacePrefixMatch").removesuffix("/")
        prefix = re.sub(r"([^A-Za-z0-9/_-])", r"\\\1", matches[0].path.removesuffix("/"))
        if by:
            return PathEdit(f"^{prefix}(/.*)?$", f"{as_format(by)}\\1")
        return PathEdit(f"^{prefix}/?(.*)$", "/\\1")
    return refuse(f"{field}.type", modifier.type, "expected ReplaceFullPath or ReplacePrefixMatch, with its value")


def _mirror(mirror: RequestMirror, field: str) -> Mirror:
    share, of = (mirror.fraction.numerator, mirror.fraction.denominator) if mirror.fraction else (100, 100)
    if mirror.percent is not None:
        share = mirror.percent
    if not 0 <= share <= of or not 1 <= of < 2**31:
        refuse(field, f"{share}/{of}", "not a share of requests: expected at most all of them")
    return Mirror(f"{field}.backendRef", mirror.backend_ref, share, of)


def _cors(cors: CorsFilter, field: str) -> Cors:
    origins = cors.allow_origins or ()
    if len(origins) > _MOST_ORIGINS:
        refuse(f"{field}.allowOrigins", len(origins), f"expected at most {_MOST_ORIGINS} origins")
    if not 0 <= cors.max_age < 2**31:
        refuse(f"{field}.maxAge", cors.max_age, "expected a number of seconds")
    return Cors(
        tuple(_origin(origin, f"{field}.allowOrigins[{place}]") for place, origin in enumerate(origins)),
        bool(cors.allow_credentials),
        _listed(cors.allow_methods, f"{field}.allowMethods"),
        _listed(cors.allow_headers, f"{field}.allowHeaders"),
        _listed(cors.expose_headers, f"{field}.exposeHeaders"),
        cors.max_age,
    )


def _origin(origin: str, field: str) -> str:
    if origin == "*":
        return "{ req.hdr(origin) -m found }"
    if origin == _NULL_ORIGIN:
        return "{ req.hdr(origin) -m str null }"
    found = _ORIGIN.fullmatch(origin.lower())
    if not found:
        refuse(field, origin, "not an origin: expected SCHEME://HOST or SCHEME://HOST:PORT, or *")
    scheme, host, port = found[1], found[2], found[4] or ""
    if not host.startswith("*"):
        return f"{{ req.hdr(origin) -m str -i -- {scheme}://{host}{port} }}"
    ending = host.removeprefix("*").replace(".", "\\.")
    scheme = re.sub(r"([.+])", r"\\\1", scheme)
    return f"{{ req.hdr(origin) -m reg -i -- '^{scheme}://[^/]+{ending}{port}$' }}"


def _listed(names: Sequence[str] | None, field: str) -> str:
    if names and "*" in names:
        return "*"
    return ", ".join(conditions.header_name(name, f"{field}[{place}]") for place, name in enumerate(names or ()))
