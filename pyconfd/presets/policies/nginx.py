"""What annotations of ingress-nginx mean, in the words of policies.

They are read so for Ingresses of the classes in ``ingress.nginx_classes``. What is not in the table here counts as for
any other Ingress (:mod:`pyconfd.presets.annotations`): what restricts closes, and anything else is named.

Source of names, values and defaults: ingress-nginx, docs/user-guide/nginx-configuration/annotations.md.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pyconfd.presets.policies.canary import is_ambiguous, is_meant_as_canary
from pyconfd.presets.policies.nginx_snippets import SNIPPET, words_of_snippet

PREFIX = "nginx.ingress.kubernetes.io/"
_OWN_CANARY = "pyconfd.io/canary"
_BURST_MULTIPLIER = 5
_SERVICE_URL = re.compile(
    r"http://([a-z0-9-]+(?:\.[a-z0-9-]+(?=\.svc|[:/$]))?)(?:\.svc(?:\.cluster\.local)?)?(:[0-9]+)?/?(?:\$request_uri)?",
    re.ASCII,
)
"""``http://NAME[.NAMESPACE[.svc[.cluster.local]]][:PORT]``, with the path of the request."""
_NO_LIMIT = frozenset({"0", ""})
_LIMIT_STATUS = ("limit-status", "503")
"""Source: ingress-nginx, configmap.md, limit-req-status-code and limit-conn-status-code."""

_Said = Mapping[str, str]
"""The annotations of ingress-nginx of an Ingress, without their prefix."""
_Meaning = Callable[[str, _Said], Iterator[tuple[str, str]]]


class NginxWords(NamedTuple):
    """What annotations of ingress-nginx say in words, and ``read``: the names of those that words were made of.

    ``names`` has the annotation of each word.
    """

    words: tuple[tuple[str, str], ...]
    read: frozenset[str]
    names: Mapping[str, str]


NOTHING_OF_NGINX = NginxWords((), frozenset(), MappingProxyType({}))


def read_nginx(annotations: Mapping[str, str] | None) -> NginxWords:
    """Return the words that annotations of ingress-nginx stand for."""
    said = {name.removeprefix(PREFIX): text for name, text in (annotations or {}).items() if name.startswith(PREFIX)}
    words: dict[str, str] = {}
    read = set()
    names: dict[str, str] = {}
    for name, text in said.items():
        if (meaning := MEANINGS.get(name)) is not None:
            found = dict(meaning(text, said))
            words |= found
            read.add(f"{PREFIX}{name}")
            names |= dict.fromkeys(found, f"{PREFIX}{name}")
    if (found_headers := words_of_snippet(said.get(SNIPPET, "{"))) is not None:
        read.add(f"{PREFIX}{SNIPPET}")
        for word, text in found_headers.items():
            words[word] = "\n".join(filter(None, (words.get(word), text)))
            names.setdefault(word, f"{PREFIX}{SNIPPET}")
    return NginxWords(tuple(words.items()), frozenset(read), names)


def is_canary(annotations: Mapping[str, str] | None) -> bool:
    """Return whether annotations of ingress-nginx make an Ingress a canary, whose others of these are ignored."""
    said = annotations or {}
    return _OWN_CANARY not in said and is_meant_as_canary(said.get(f"{PREFIX}canary"))


def _same(word: str) -> _Meaning:
    return lambda text, _: iter(((word, text),))


def _seconds(word: str) -> _Meaning:
    return lambda text, _: iter(((word, f"{text.strip()}s"),))


def _silence(_: str, said: _Said) -> Iterator[tuple[str, str]]:
    """Return one timeout for both ways: the longer one, as neither ends what the other would let go on."""
    texts = [said[name].strip() for name in ("proxy-read-timeout", "proxy-send-timeout") if name in said]
    numbers = [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 8]
    yield "server-timeout", f"{max(numbers)}s" if len(numbers) == len(texts) else f"{texts[0]}s"


def _limit(word: str) -> _Meaning:
    def meaning(text: str, said: _Said) -> Iterator[tuple[str, str]]:
        if text.strip() not in _NO_LIMIT:
            yield word, text
            yield from _burst(text, said)
            yield _LIMIT_STATUS

    return meaning


def _burst(_: str, said: _Said) -> Iterator[tuple[str, str]]:
    """Return how many requests are allowed at once beyond the limits: of two limits the smaller number."""
    times = said.get("limit-burst-multiplier", "").strip() or str(_BURST_MULTIPLIER)
    limits = [said[name].strip() for name in ("limit-rps", "limit-rpm") if said.get(name, "").strip() not in _NO_LIMIT]
    if limits and all(each.isascii() and each.isdigit() and len(each) < 10 for each in (*limits, times)):
        yield "limit-burst", str(min(map(int, limits)) * max(0, int(times) - 1))


def _connections(text: str, _: _Said) -> Iterator[tuple[str, str]]:
    if text.strip() not in _NO_LIMIT:
        yield "limit-connections", text
        yield _LIMIT_STATUS


def _redirect(kind: str, usual: str) -> _Meaning:
    def meaning(text: str, said: _Said) -> Iterator[tuple[str, str]]:
        # There, the URL is all of it; and it may end in the variable that the word keeps where it has no path.
        to, keeps = text.strip().removesuffix("$request_uri"), text.strip().endswith("$request_uri")
        yield "redirect", to if keeps or to.count("/") > 2 else f"{to}/"
        yield "redirect-code", said.get(f"{kind}-redirect-code", usual)

    return meaning


def _cors(text: str, said: _Said) -> Iterator[tuple[str, str]]:
    """Return the words with the defaults of ingress-nginx, which lets every origin in."""
    if text.strip().lower() != "true":
        return
    yield "cors-allow-origins", said.get("cors-allow-origin", "*")
    yield "cors-allow-methods", said.get("cors-allow-methods", "GET, PUT, POST, DELETE, PATCH, OPTIONS")
    yield (
        "cors-allow-headers",
        said.get(
            "cors-allow-headers",
            "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,"
            "Authorization",
        ),
    )
    if (exposed := said.get("cors-expose-headers")) is not None:
        yield "cors-expose-headers", exposed
    yield "cors-allow-credentials", said.get("cors-allow-credentials", "true")
    yield "cors-max-age", said.get("cors-max-age", "1728000")


def _affinity(text: str, said: _Said) -> Iterator[tuple[str, str]]:
    if text.strip() == "cookie":
        yield "session-cookie", said.get("session-cookie-name", "INGRESSCOOKIE")


def _basic_auth(_: str, said: _Said) -> Iterator[tuple[str, str]]:
    """Return the word; of digest, which HAProxy cannot verify, one that closes."""
    kind = said.get("auth-type", "basic").strip()
    yield "basic-auth-secret", said.get("auth-secret", "") if kind == "basic" else f"auth-type {kind}"


def _realm(text: str, said: _Said) -> Iterator[tuple[str, str]]:
    if text.strip() and "auth-secret" in said:
        yield "basic-auth-realm", text


def _of_cookie(word: str) -> _Meaning:
    """Return the meaning of an attribute of the cookie; its age comes before when it expires."""

    def meaning(text: str, said: _Said) -> Iterator[tuple[str, str]]:
        if said.get("affinity", "").strip() == "cookie":
            yield word, said.get(word, text)

    return meaning


def _verified(text: str, said: _Said) -> Iterator[tuple[str, str]]:
    """Return the CAs, which are in a Secret there: the word names what is in its place, or what is missing."""
    if text.strip().lower() == "on":
        yield "backend-ca", said.get("proxy-ssl-secret", "")
        yield from _server_name("", said)


def _server_name(_: str, said: _Said) -> Iterator[tuple[str, str]]:
    asks = any(said.get(each, "").strip().lower() == "on" for each in ("proxy-ssl-server-name", "proxy-ssl-verify"))
    if asks and (name := said.get("proxy-ssl-name")) is not None:
        yield "backend-server-name", name


def _client_certificates(text: str, said: _Said) -> Iterator[tuple[str, str]]:
    """Return the words; ``optional_no_ca``, which believes any certificate, is none of them, and so closes."""
    mode = said.get("auth-tls-verify-client", "on").strip()
    if mode != "off":
        yield "client-certificates", text
        yield "client-certificates-mode", "required" if mode == "on" else mode


def _mirror(text: str, _: _Said) -> Iterator[tuple[str, str]]:
    """Return the Service that a URL names; any other is no Service, as the word says then."""
    found = _SERVICE_URL.fullmatch(text.strip())
    yield "mirror", f"{found[1]}{found[2] or ''}" if found else text


def _canary_pattern(text: str, _: _Said) -> Iterator[tuple[str, str]]:
    """Return an expression for all of the value: there, it is looked for anywhere."""
    pattern = text.strip()
    start, end = ("" if pattern.startswith("^") else ".*"), ("" if pattern.endswith("$") else ".*")
    whole = f"{start}({pattern.removeprefix('^').removesuffix('$')}){end}"
    yield "canary-by-header-pattern", pattern if is_ambiguous(pattern) else whole


def _part_of(name: str, word: str) -> _Meaning:
    """Return the meaning of an annotation that is read with another one; alone it says nothing."""

    def meaning(_: str, said: _Said) -> Iterator[tuple[str, str]]:
        found = dict(MEANINGS[name](said[name], said)) if name in said else {}
        if word in found:
            yield word, found[word]

    return meaning


def _beside_auth(name: str) -> _Meaning:
    """Return the meaning of an annotation that says more of external authentication, and alone nothing."""
    return lambda text, said: iter(((name, text),) if "auth-url" in said else ())


_OF_AUTH = (
    "auth-method",
    "auth-response-headers",
    "auth-signin",
    "auth-signin-redirect-param",
    "auth-request-redirect",
)

MEANINGS: Mapping[str, _Meaning] = MappingProxyType(
    {
        "whitelist-source-range": _same("allow-networks"),
        "allowlist-source-range": _same("allow-networks"),
        "denylist-source-range": _same("deny-networks"),
        "auth-type": _basic_auth,
        "auth-secret": _basic_auth,
        "auth-secret-type": _basic_auth,
        "auth-realm": _realm,
        "auth-tls-secret": _client_certificates,
        "auth-tls-verify-client": _part_of("auth-tls-secret", "client-certificates-mode"),
        "proxy-body-size": _same("max-body-size"),
        "proxy-connect-timeout": _seconds("connect-timeout"),
        "proxy-read-timeout": _silence,
        "proxy-send-timeout": _silence,
        "limit-rps": _limit("limit-rps"),
        "limit-rpm": _limit("limit-rpm"),
        "limit-burst-multiplier": _burst,
        "limit-connections": _connections,
        "enable-cors": _cors,
        "cors-allow-origin": _part_of("enable-cors", "cors-allow-origins"),
        "cors-allow-methods": _part_of("enable-cors", "cors-allow-methods"),
        "cors-allow-headers": _part_of("enable-cors", "cors-allow-headers"),
        "cors-expose-headers": _part_of("enable-cors", "cors-expose-headers"),
        "cors-allow-credentials": _part_of("enable-cors", "cors-allow-credentials"),
        "cors-max-age": _part_of("enable-cors", "cors-max-age"),
        "affinity": _affinity,
        "session-cookie-name": _part_of("affinity", "session-cookie"),
        "session-cookie-path": _of_cookie("session-cookie-path"),
        "session-cookie-domain": _of_cookie("session-cookie-domain"),
        "session-cookie-max-age": _of_cookie("session-cookie-max-age"),
        "session-cookie-expires": _of_cookie("session-cookie-max-age"),
        "session-cookie-samesite": _of_cookie("session-cookie-samesite"),
        "session-cookie-secure": _of_cookie("session-cookie-secure"),
        "app-root": _same("app-root"),
        "permanent-redirect": _redirect("permanent", "301"),
        "permanent-redirect-code": _part_of("permanent-redirect", "redirect-code"),
        "temporal-redirect": _redirect("temporal", "302"),
        "temporal-redirect-code": _part_of("temporal-redirect", "redirect-code"),
        "upstream-vhost": _same("upstream-host"),
        "backend-protocol": _same("backend-protocol"),
        "proxy-ssl-verify": _verified,
        "proxy-ssl-name": _server_name,
        "proxy-ssl-server-name": _server_name,
        "auth-url": _same("auth-url"),
        **{name: _beside_auth(name) for name in _OF_AUTH},
        "server-alias": _same("server-alias"),
        "from-to-www-redirect": _same("from-to-www-redirect"),
        "mirror-target": _mirror,
        "canary": _same("canary"),
        "canary-weight": _same("canary-weight"),
        "canary-weight-total": _same("canary-weight-total"),
        "canary-by-header": _same("canary-by-header"),
        "canary-by-header-value": _same("canary-by-header-value"),
        "canary-by-header-pattern": _canary_pattern,
        "canary-by-cookie": _same("canary-by-cookie"),
    }
)
"""What each annotation says, given its text and all of them."""
