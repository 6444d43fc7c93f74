"""The request of ``pyconfd explain URL``: parsed, bounded, and as HAProxy reads it. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from urllib.parse import urlencode

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.listener import canonical, parsed
from pyconfd.presets.routing.paths import routed_path
from pyconfd.presets.values import address

MOST_CHARACTERS = 8_000
"""Of a whole request, headers included: HAProxy itself takes no more than 16 KB of one."""
_MOST_HEADERS = 100
_TLS = {"https": True, "wss": True, "tls": True, "http": False, "ws": False, "tcp": False}
_PORTS = {"https": 443, "wss": 443, "http": 80, "ws": 80}
_URL = re.compile(
    r"([a-z]+)://(?:[^/?#@]*@)?(\[[0-9a-f:.]+\]|[^/?#\[\]:]+)(?::([0-9]{1,5}))?([/?#].*)?", re.IGNORECASE | re.ASCII
)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
DELETED = re.compile(
    r"((x[-_](forwarded|ssl)|ssl[-_]client|client[-_]cert)([-_].*)?|forwarded"
    r"|(x[-_]real|x[-_]client|x[-_]cluster[-_]client|true[-_]client)[-_]ip|x[-_]request[-_]id)"
)
ALWAYS_DELETED = re.compile(r"x[-_]forwarded[-_]for|x[-_]real[-_]ip|proxy")
"""Headers that no client may send. Source: pyconfd/fragments/client.j2."""
UNKNOWN = "\0"
"""Stands for the value of a header that HAProxy makes, or of which it is not known; no request has it."""


def is_url(text: str) -> bool:
    """Return whether a query is a URL and no name."""
    return "://" in text


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """One request, or connection where ``is_http`` is False. ``host`` is as it stands in the URL, without a port.

    ``to`` is the address that the client connects to, "" for that of any listener that knows the host. ``source`` is
    the client's address, "" where it does not matter. ``tls_name`` is the name in the ClientHello, "" for none.
    Names of ``headers`` are in lower case, and Host is the first of them.
    """

    scheme: str
    host: str
    port: int
    path: str
    query: str
    method: str
    headers: tuple[tuple[str, str], ...]
    source: str
    tls_name: str
    to: str
    asked: tuple[tuple[str, str], ...]
    """As it was asked for: names and values of the query of the status page."""

    @property
    def is_tls(self) -> bool:
        """Whether the client speaks TLS."""
        return _TLS[self.scheme]

    @property
    def is_http(self) -> bool:
        """Whether there is a request at all."""
        return self.scheme not in {"tcp", "tls"}

    @property
    def url(self) -> str:
        """The URL, without a user or a password."""
        query = f"?{self.query}" if self.query else ""
        port = f":{self.port}" if self.port != _PORTS.get(self.scheme) else ""
        return f"{self.scheme}://{self.host}{port}{self.path}{query}"

    @property
    def routed_path(self) -> str:
        """The path that routes are compared with, "" where the request gets 400 for it."""
        return routed_path(self.path) or ""

    @property
    def pathq(self) -> str:
        """Path and query."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def name(self) -> str:
        """What ``req.hdr(host),host_only,rtrim(.),lower`` gives."""
        host = self.headers[0][1]
        # Whatever is behind the last colon is taken for a port.
        end = host.rfind(":", host.rfind("]") + 1)
        return host[: end if end >= 0 else None].rstrip(".").lower()

    @property
    def encoded(self) -> str:
        """The query of the status page. A daemon that knows no requests takes ``q`` for a name."""
        return urlencode([("q", self.url), *self.asked])

    def values_of(self, header: str) -> list[str]:
        """Return the values of a header of the client."""
        return [value for name, value in self.headers if name == header]

    def listed_values_of(self, header: str) -> list[str]:
        """Return what ``req.hdr`` gives: the values of a header of the client, each cut at its commas."""
        return [each.strip() for value in self.values_of(header) for each in value.split(",")]

    def is_from(self, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
        """Return whether its source is in one of the networks."""
        return bool(self.source) and any(parsed(self.source) in each for each in networks)

    def seen_headers(self, *, trusted: bool) -> list[tuple[str, str]]:
        """Return the headers as the rules of a route see them: what only proxies say was replaced.

        ``trusted``: the client is a proxy in front.
        """
        kept = [
            (name, value)
            for name, value in self.headers
            if not ALWAYS_DELETED.fullmatch(name) and (trusted or not DELETED.fullmatch(name))
        ]
        upgrades = any(each.lower() == "upgrade" for each in self.listed_values_of("connection"))
        made = {
            "x-request-id": UNKNOWN,
            "x-real-ip": self.source
            if self.source and not (trusted and self.values_of("x-forwarded-for"))
            else UNKNOWN,
            **({"connection": "upgrade"} if upgrades else {}),
        }
        own = {
            "x-forwarded-host": self.headers[0][1],
            "x-forwarded-proto": "https" if self.is_tls else "http",
            "x-forwarded-port": str(self.port),
        }
        sent = {name for name, _ in kept}
        made |= {name: value for name, value in own.items() if not (trusted and name in sent)}
        return [each for each in kept if each[0] not in {*made, "connection"}] + list(made.items())

    def parameters(self, name: str) -> Iterator[bytes]:
        """Return what ``url_param(NAME),url_dec(1)`` gives: each value up to the first that cannot be decoded."""
        for each in re.split("[&;?]", self.query):
            found, equals, value = each.partition("=")
            if found == name and equals:
                text = _decoded(value)
                if text is None:
                    return
                yield text


def _decoded(value: str) -> bytes | None:
    if re.search(r"%(?![0-9A-Fa-f]{2})", value):
        return None
    text = value.replace("+", " ").encode()
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes((int(found[1], 16),)), text)


def request_of(asked: Mapping[str, Sequence[str]]) -> ClientRequest:
    """Parse a request: ``url``, ``method``, ``header`` (several), ``from``, ``to`` and ``tls-name``.

    Raises:
        RejectedInput: it is none, or too long.
    """
    given = tuple((name, text) for name in _NAMES for text in asked.get(name, ()) if text)
    if sum(len(text) for _, text in given) > MOST_CHARACTERS:
        raise _wrong("URL", f"longer than {MOST_CHARACTERS:,} characters with its headers")
    one = dict(given)
    url = one.get("url", "")
    found = _URL.fullmatch(url)
    if found is None or not all(map(_is_written, url)):
        advice = "; a host of other letters as xn--..., other characters as %XX" if found else ""
        raise _wrong("URL", f"expected SCHEME://HOST[:PORT][/PATH][?QUERY]{advice}")
    scheme = found[1].lower()
    if scheme not in _TLS:
        raise _wrong("URL", f"scheme {scheme}: expected one of {', '.join(sorted(_TLS))}")
    host, port = found[2].lower(), int(found[3] or _PORTS.get(scheme, 0))
    if not 0 < port < 65536:
        given_port = f"port {found[3]}: expected 1 to 65535" if found[3] else ""
        raise _wrong("URL", given_port or f"a port from 1 to 65535 is needed, since {scheme} has none of its own")
    path, _, query = (found[4] or "").partition("#")[0].partition("?")
    literal = address(host.strip("[]"))
    return ClientRequest(
        scheme=scheme,
        host=host,
        port=port,
        path=path or "/",
        query=query,
        method=_method(one.get("method", "GET")),
        headers=tuple(_headers([text for name, text in given if name == "header"], host, port, scheme)),
        source=_address(one.get("from", ""), "--from"),
        # Clients send no address as the name.
        tls_name=one.get("tls-name", "" if literal else host).rstrip(".").lower(),
        to=_address(one.get("to", "") or (str(literal) if literal else ""), "--to"),
        asked=given,
    )


_NAMES = ("url", "method", "header", "from", "to", "tls-name")


def _is_written(character: str) -> bool:
    return "!" <= character <= "~"


def _wrong(place: str, message: str) -> RejectedInput:
    return RejectedInput(Problem(place, message, "pyconfd explain --help has examples"))


def _method(text: str) -> str:
    if not _TOKEN.fullmatch(text):
        raise _wrong("--method", "not a method such as GET")
    return text


def _address(text: str, option: str) -> str:
    if not text:
        return ""
    if address(text.strip("[]")) is None:
        raise _wrong(option, "not an IP address")
    return canonical(text.strip("[]"))


def _headers(given: Sequence[str], host: str, port: int, scheme: str) -> Iterator[tuple[str, str]]:
    found = []
    for each in given:
        name, colon, value = each.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or not value.isprintable():
            raise _wrong("--header", "expected NAME: VALUE")
        found.append((name.lower(), value.strip()))
    if len(found) > _MOST_HEADERS:
        raise _wrong("--header", f"more than {_MOST_HEADERS}")
    named = next((value for name, value in found if name == "host"), None)
    yield "host", named if named is not None else host if port == _PORTS.get(scheme) else f"{host}:{port}"
    yield from (each for each in found if each[0] != "host")
