"""The vocabulary of policies: each word once, with what it takes, what it means and whether it restricts.

A word is said by an annotation ``pyconfd.io/WORD`` of an object. What it asks for becomes a filter or a timeout, as the
Gateway API has them (:mod:`pyconfd.presets.routing.rules`), or a field of :class:`RoutePolicy`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from pyconfd.model.snapshot import Key
from pyconfd.presets import values
from pyconfd.presets.policies import (
    access,
    answers,
    auth_words,
    balancing,
    canary,
    changes,
    handling,
    hosts,
    limits,
    mirroring,
    pages,
    pods,
    sessions,
)
from pyconfd.presets.policies.canary import NO_CANARY, Canary
from pyconfd.presets.policies.hosts import NO_HOSTS, AskedHosts
from pyconfd.presets.policies.types import NO_POLICY, BasicAuth, RoutePolicy
from pyconfd.presets.policy import ANYTHING, ClaimOptions, Network, PolicyBounds, network
from pyconfd.presets.routing.rules import AS_USUAL, NO_FILTERS, Filters, Handling

_MOST_NETWORKS = 256
_MOST_BODY = 2**40
_UNIT_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DURATION = re.compile(r"([0-9]{1,7})(ms|s|m|h)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_LONGEST_MS = 24 * 3_600_000
_SIZE = re.compile(r"([0-9]{1,12})([kmg]?)", re.ASCII | re.IGNORECASE)


KINDS = ("Ingress", "HTTPRoute", "GRPCRoute")
_OF_BROWSERS = ("Ingress", "HTTPRoute")
"""Kinds whose words may be for what clients of gRPC do not do: they follow no redirect, and ask for their path."""
_OF_INGRESSES = ("Ingress",)
"""Kinds whose words say what rules of routes have fields for."""


class AskedByWords(NamedTuple):
    """What the words of an object ask for together."""

    policy: RoutePolicy = NO_POLICY
    filters: Filters = NO_FILTERS
    handling: Handling = AS_USUAL
    canary: Canary = NO_CANARY
    hosts: AskedHosts = NO_HOSTS


NOTHING_ASKED = AskedByWords()
CLOSED = AskedByWords(RoutePolicy(closed=True))
"""What is asked for where a word that restricts cannot be what it says: without its paths, requests would get to those
of others, which may lead to the same pods."""


class Form(StrEnum):
    """What the field of a word in a RoutePolicy holds: a text, or what makes one."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    LIST = "list"
    """Texts, between which a comma stands."""
    LINES = "lines"
    """Texts, each on a line."""


class PolicyWord(NamedTuple):
    """One word. ``parse`` makes a value of its text, or raises ValueError; ``apply`` adds the value to what is asked.

    ``restricts``: it lets somebody or something out, so that nothing is served where it cannot be what it says.
    ``live``: a new value is a runtime update, and no reload. ``kinds`` are those of objects that may say it. ``beyond``
    returns why a value is more than the operator's settings allow, or "". ``names_object``: the value is the name of an
    object in the namespace of who says the word, and is applied as its key. ``instead``: what other kinds have for it.
    ``form`` is that of its field. ``reloads``: a new value is a reload.
    """

    name: str
    parse: Callable[[str], Any]
    apply: Callable[[AskedByWords, Any], AskedByWords]
    example: str
    meaning: str
    restricts: bool = False
    live: bool = True
    kinds: tuple[str, ...] = KINDS
    beyond: Callable[[Any, PolicyBounds], str] = lambda _, __: ""
    names_object: bool = False
    instead: str = ""
    form: Form = Form.TEXT
    reloads: bool = False


class WordFault(NamedTuple):
    """A word whose text cannot be what it says; ``restricts`` as the word."""

    name: str
    text: str
    why: str
    restricts: bool


def _networks(text: str) -> tuple[Network, ...]:
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(network(each))
        except ValueError:
            raise ValueError(f"{values.shortened(each)} is no network, such as 192.0.2.0/24 or 2001:db8::/32") from None
    if not found:
        raise ValueError("expected networks, such as 192.0.2.0/24, separated by commas")
    if len(found) > _MOST_NETWORKS:
        raise ValueError(f"more than {_MOST_NETWORKS} networks: use larger ones")
    return tuple(dict.fromkeys(found))


def size_of(text: str) -> int:
    """Return the bytes of a size such as 10m; raise ValueError."""
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) * _UNIT_BYTES[found[2].lower()] if found else _MOST_BODY + 1
    if size > _MOST_BODY:
        raise ValueError("not a size: expected a number of bytes, or one with k, m or g, such as 10m")
    return size


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text.strip())
    ms = int(found[1]) * _UNIT_MS[found[2]] if found else 0
    if not 0 < ms <= _LONGEST_MS:
        raise ValueError("not a time: expected a number with its unit, such as 500ms, 30s or 5m, at most 24h")
    return ms


def _beyond_body(size: int, bounds: PolicyBounds) -> str:
    """0 is any size."""
    if not bounds.body or 0 < size <= bounds.body:
        return ""
    return f"more than the {bounds.body} bytes of the setting policies.max_body_size"


def _beyond_timeout(ms: int, bounds: PolicyBounds) -> str:
    if not bounds.timeout_ms or ms <= bounds.timeout_ms:
        return ""
    return f"more than the {bounds.timeout_ms / 1000:g}s of the setting policies.max_timeout_s"


def _beyond_auth_timeout(ms: int, bounds: PolicyBounds) -> str:
    if ms <= bounds.auth_timeout_ms:
        return ""
    return f"more than the {bounds.auth_timeout_ms / 1000:g}s of the setting policies.auth_timeout_s"


def _policy(field: str) -> Callable[[AskedByWords, Any], AskedByWords]:
    return lambda asked, value: asked._replace(policy=asked.policy._replace(**{field: value}))


def _part(name: str, field: str) -> Callable[[AskedByWords, Any], AskedByWords]:
    """Return what sets a field of one of the parts of a policy."""

    def apply(asked: AskedByWords, value: Any) -> AskedByWords:
        return _policy(name)(asked, getattr(asked.policy, name)._replace(**{field: value}))

    return apply


_limit, _pods = partial(_part, "limits"), partial(_part, "pods")


def _users_of(asked: AskedByWords, secret: Key) -> AskedByWords:
    return _policy("auth")(asked, BasicAuth(access.in_own_namespace(secret)))


def _clients(field: str) -> Callable[[AskedByWords, Any], AskedByWords]:
    def apply(asked: AskedByWords, value: Any) -> AskedByWords:
        own: Any = access.in_own_namespace(value) if isinstance(value, Key) else value
        return _policy("clients")(asked, asked.policy.clients._replace(**{field: own}))

    return apply


def _session(field: str) -> Callable[[AskedByWords, Any], AskedByWords]:
    def apply(asked: AskedByWords, value: Any) -> AskedByWords:
        return _policy("session")(asked, sessions.with_field(asked.policy.session, field, value))

    return apply


def _ask_external(asked: AskedByWords, at: Key) -> AskedByWords:
    """Return what is asked with a URL of external authentication, ``at`` a namespace."""
    url: Any = at.name
    return _policy("external")(asked, asked.policy.external._replace(url=url, service=url.service_of(at.namespace)))


def _external(field: str) -> Callable[[AskedByWords, Any], AskedByWords]:
    def apply(asked: AskedByWords, value: Any) -> AskedByWords:
        if not asked.policy.external:
            raise ValueError("nobody is asked: it goes with the word auth-url")
        return _policy("external")(asked, asked.policy.external._replace(**{field: value}))

    return apply


def _handling(field: str) -> Callable[[AskedByWords, Any], AskedByWords]:
    return lambda asked, value: asked._replace(handling=asked.handling._replace(**{field: value}))


def _handled(change: Callable[[Handling, Any], Handling]) -> Callable[[AskedByWords, Any], AskedByWords]:
    return lambda asked, value: asked._replace(handling=change(asked.handling, value))


def _canary(field: str) -> Callable[[AskedByWords, Any], AskedByWords]:
    return lambda asked, value: asked._replace(canary=asked.canary._replace(**{field: value}))


def _hosts(field: str) -> Callable[[AskedByWords, Any], AskedByWords]:
    return lambda asked, value: asked._replace(hosts=asked.hosts._replace(**{field: value}))


def _filters(change: changes.Change) -> Callable[[AskedByWords, Any], AskedByWords]:
    return lambda asked, value: asked._replace(filters=change(asked.filters, value))


_ACCESS = (
    PolicyWord(
        "allow-networks", _networks, _policy("allow"), "192.0.2.0/24, 2001:db8::/32",
        "clients of other networks get 403", restricts=True, form=Form.LIST,
    ),
    PolicyWord(
        "deny-networks", _networks, _policy("deny"), "198.51.100.0/24",
        "clients of these networks get 403, also where `allow-networks` has them", restricts=True, form=Form.LIST,
    ),
    PolicyWord(
        "basic-auth-secret", access.object_name, _users_of, "staff",
        "only users of this Secret of the namespace may ask, by HTTP basic authentication; others get 401",
        restricts=True, live=False, names_object=True,
    ),
    PolicyWord(
        "basic-auth-realm", access.realm, _policy("realm"), "Staff only",
        "what clients show when they ask for a password",
    ),
    PolicyWord(
        "client-certificates", access.object_name, _clients("ca"), "staff-ca",
        "clients show a certificate of these authorities: a ConfigMap of the namespace, with them in `ca.crt`;"
        " without one requests get 400, over plain HTTP 403", restricts=True, live=False, kinds=_OF_INGRESSES,
        names_object=True, instead="write tls.frontend into the Gateway",
    ),
    PolicyWord(
        "client-certificates-mode", access.is_optional, _clients("optional"), "optional",
        "`required`, or `optional`: who shows none is let in, too", restricts=True, live=False, kinds=_OF_INGRESSES,
        instead="write tls.frontend into the Gateway",
    ),
    PolicyWord(
        "auth-url", auth_words.auth_url, _ask_external, "http://oauth2-proxy/oauth2/auth",
        "who is asked whether a request may go on: a Service, or a host that this load balancer serves"
        " ([external authentication](#external-authentication))", restricts=True, names_object=True,
    ),
    PolicyWord(
        "auth-method", auth_words.method, _external("method"), "HEAD", "the method of that question; `GET` without it",
        restricts=True,
    ),
    PolicyWord(
        "auth-timeout", _duration_ms, _external("timeout_ms"), "500ms",
        "how long the answer may take, else 503; at most, and without it, the setting `policies.auth_timeout_s`",
        beyond=_beyond_auth_timeout,
    ),
    PolicyWord(
        "auth-request-headers", auth_words.names, _external("sent"), "Cookie, Authorization",
        "headers of clients that the question has; all of them without it", restricts=True, form=Form.LIST,
    ),
    PolicyWord(
        "auth-response-headers", auth_words.names, _external("returned"), "X-Auth-Request-User",
        "headers of the answer that pods get, instead of the client's own", restricts=True, form=Form.LIST,
    ),
    PolicyWord(
        "auth-signin", auth_words.sign_in, _external("sign_in"), "https://$host/oauth2/start",
        "where clients are sent (302) instead of 401, with the URL that they asked for as `rd`", kinds=_OF_BROWSERS,
    ),
    PolicyWord(
        "auth-signin-redirect-param", auth_words.parameter, _external("sign_in_parameter"), "next",
        "another name for `rd`", kinds=_OF_BROWSERS,
    ),
    PolicyWord(
        "auth-request-redirect", auth_words.redirect, _external("redirect"), "$request_uri",
        "the header `X-Auth-Request-Redirect` of the question", kinds=_OF_BROWSERS,
    ),
)  # fmt: skip

_AMOUNT = (
    PolicyWord(
        "max-body-size", size_of, _policy("max_body"), "10m",
        "a larger body gets 413: bytes, or with k, m or g for powers of 1,024; 0 for no limit", restricts=True,
        beyond=_beyond_body,
    ),
    PolicyWord(
        "limit-rps", limits.most, _limit("second"), "100",
        "the most requests of a client in a second; others get 429 with `Retry-After`", restricts=True,
        form=Form.NUMBER,
    ),
    PolicyWord(
        "limit-rpm", limits.most, _limit("minute"), "600", "the same in a minute", restricts=True, form=Form.NUMBER,
    ),
    PolicyWord(
        "limit-burst", limits.burst, _limit("burst"), "200",
        "how many requests are allowed beyond `limit-rps` within a minute, and beyond `limit-rpm` within an hour",
        restricts=True, form=Form.NUMBER,
    ),
    PolicyWord(
        "limit-connections", limits.most, _limit("connections"), "20",
        "the most requests of a client at the same time, of each load balancer; others get 429", restricts=True,
        form=Form.NUMBER,
    ),
    PolicyWord(
        "limit-by", limits.counted_by, _limit("by"), "header:X-Api-Key",
        "who is counted: `client` (an IPv4 address, or a /64 of IPv6), `route` (all together), or `header:NAME`: each "
        "value of a header, and clients by address where they send none", restricts=True, live=False,
    ),
    PolicyWord(
        "limit-status", limits.status, _limit("status"), "503",
        "the status of requests beyond a limit: 429 or 503; 429 without it", live=False, form=Form.NUMBER,
    ),
)  # fmt: skip

_TIME = (
    PolicyWord(
        "server-timeout", _duration_ms, _handling("timeout_ms"), "30s", "how long a pod may be silent, else 504",
        beyond=_beyond_timeout,
    ),
    PolicyWord(
        "request-timeout", _duration_ms, _handled(handling.with_deadline), "10s",
        "how long an answer may take with all attempts, else 504; it begins with the request's head, and ends with the"
        " answer's", beyond=_beyond_timeout,
    ),
    PolicyWord(
        "tunnel-timeout", _duration_ms, _handling("tunnel_ms"), "4h", "how long a WebSocket may be silent",
        kinds=_OF_BROWSERS, beyond=_beyond_timeout,
    ),
    PolicyWord(
        "connect-timeout", _duration_ms, _handling("connect_ms"), "2s",
        "how long a connection to a pod may take before the next pod is tried", live=False, beyond=_beyond_timeout,
    ),
    PolicyWord(
        "queue-timeout", _duration_ms, _handling("queue_ms"), "5s",
        "how long a request waits for a pod that has room, else 503", live=False, beyond=_beyond_timeout,
    ),
    PolicyWord(
        "retries", handling.attempts, _handled(handling.with_attempts), "2", "how often a request is tried again",
        live=False, form=Form.NUMBER,
    ),
    PolicyWord(
        "retry-on", handling.events, _handled(handling.with_events), "conn-failure, 503",
        "on what, in HAProxy's words or statuses; only refused connections without it, since else a request may be done"
        " twice", live=False, form=Form.LIST,
    ),
)  # fmt: skip

_BALANCING = (
    PolicyWord(
        "balance", balancing.algorithm, _policy("balance"), "leastconn",
        "`roundrobin`, `leastconn` (the pod with the fewest connections) or `random`", live=False,
    ),
    PolicyWord(
        "hash-by", balancing.hashed, _policy("balance"), "header:X-User",
        "requests that are equal in this go to one pod, instead of `balance`: `source`, `path`, `uri`, `header:NAME` or"
        " `cookie:NAME`", live=False,
    ),
    PolicyWord(
        "session-cookie", balancing.cookie, _part("session", "name"), "SESSION",
        "a client keeps its pod by a cookie of this name, until that pod goes, or one comes that takes it over; before"
        " `balance` and `hash-by`; its value is random", live=False, kinds=_OF_BROWSERS,
    ),
    PolicyWord(
        "session-cookie-path", sessions.path, _session("path"), "/app", "the path of this cookie, instead of `/`",
        kinds=_OF_BROWSERS,
    ),
    PolicyWord(
        "session-cookie-domain", sessions.domain, _session("domain"), "example.com",
        "the domain of this cookie: browsers send it to all hosts below; without it to its host alone",
        kinds=_OF_BROWSERS,
    ),
    PolicyWord(
        "session-cookie-max-age", sessions.max_age, _session("max_age"), "86400",
        "for how many seconds browsers keep this cookie; without it until they are closed", kinds=_OF_BROWSERS,
        form=Form.NUMBER,
    ),
    PolicyWord(
        "session-cookie-samesite", sessions.same_site, _session("same_site"), "Strict",
        "`Strict`, `Lax` (as without it) or `None`, which makes it `Secure` too", kinds=_OF_BROWSERS,
    ),
    PolicyWord(
        "session-cookie-secure", values.flag, _session("secure"), "true",
        "whether this cookie is sent over TLS only; without it where the client came by TLS", kinds=_OF_BROWSERS,
        form=Form.FLAG,
    ),
)  # fmt: skip

_PODS = (
    PolicyWord(
        "max-connections-per-pod", pods.connections, _pods("most"), "100",
        "the most connections of a pod, of each load balancer; others wait, at most `queue-timeout`, else 503",
        live=False, form=Form.NUMBER,
    ),
    PolicyWord(
        "slow-start", _duration_ms, _pods("slow_start_ms"), "30s",
        "how long the share of a pod grows that is new, or is up again", live=False, beyond=_beyond_timeout,
    ),
    PolicyWord(
        "health-check", pods.health, _pods("health"), "http:/healthz",
        "how pods are looked after: `tcp` (as without it), `http:PATH`, which has to answer with 200 to 399, or `off`",
        live=False,
    ),
    PolicyWord(
        "backend-protocol", pods.protocol, _pods("protocol"), "grpc",
        "how pods are spoken with, whatever the Service says: `http`, `https`, `grpc` (or `h2c`: HTTP/2 without"
        " TLS) or `grpcs` (HTTP/2 with TLS); certificates are verified with `backend-ca` only", restricts=True,
        live=False, kinds=_OF_INGRESSES, instead="write appProtocol into the Service, or a BackendTLSPolicy for TLS",
    ),
    PolicyWord(
        "backend-ca", pods.config_map, _pods("ca"), "internal-ca",
        "pods have TLS, and a certificate of these authorities: a ConfigMap of the namespace, with them in `ca.crt`;"
        " without it requests get 403, and with a pod of another certificate 503", restricts=True, live=False,
        kinds=_OF_INGRESSES, names_object=True, instead="write a BackendTLSPolicy for the Service",
    ),
    PolicyWord(
        "backend-server-name", pods.server_name, _pods("server_name"), "app.internal.example",
        "the name that pods with TLS are asked for (SNI), and that their certificate has with `backend-ca`; without it"
        " `SERVICE.NAMESPACE.svc`", restricts=True, live=False, kinds=_OF_INGRESSES,
        instead="write a BackendTLSPolicy for the Service",
    ),
)  # fmt: skip

_CHANGES = (
    PolicyWord(
        "request-headers", changes.set_headers, _filters(changes.add_request), "X-Name: value",
        "headers that requests get, or get instead of their own: lines `Name: value`", restricts=True, form=Form.LINES,
    ),
    PolicyWord(
        "remove-request-headers", changes.removed_headers, _filters(changes.add_request), "X-Debug, X-Internal",
        "headers that requests lose", restricts=True, live=False, form=Form.LIST,
    ),
    PolicyWord(
        "response-headers", changes.set_headers, _filters(changes.add_response), "X-Frame-Options: DENY",
        "the same as `request-headers`, of answers", restricts=True, form=Form.LINES,
    ),
    PolicyWord(
        "remove-response-headers", changes.removed_headers, _filters(changes.add_response), "Server",
        "headers that answers lose", restricts=True, live=False, form=Form.LIST,
    ),
    PolicyWord(
        "compression", answers.compressed_types, _policy("compressed"), "application/json, text/html",
        "answers of these types are compressed (gzip) for clients that take it: `on` for the usual texts, `off`, or"
        " types", live=False, form=Form.LIST,
    ),
    PolicyWord(
        "error-pages", pages.config_map, _policy("error_pages"), "our-errors",
        "errors of pods and of HAProxy have a page of this ConfigMap of the namespace: its keys are statuses such as"
        " `404.html`, `503.json` or `500.txt`", live=False, kinds=_OF_BROWSERS, names_object=True,
    ),
)  # fmt: skip

_PATHS = (
    PolicyWord(
        "redirect", changes.redirect, _filters(changes.with_redirect), "https://www.example.com/new",
        "all requests are redirected there, with their query: a URL, or a path; without a path, with their own",
        live=False, kinds=_OF_BROWSERS,
    ),
    PolicyWord(
        "redirect-code", changes.redirect_code, _filters(changes.with_code), "permanent",
        "`permanent` (308), `temporary` (307), or one of 301, 302, 303, 307, 308; 302 without it", live=False,
        kinds=_OF_BROWSERS,
    ),
    PolicyWord(
        "app-root", changes.location, _policy("app_root"), "/app",
        "requests of the path `/` are redirected (302) to this one", kinds=_OF_BROWSERS,
    ),
    PolicyWord(
        "upstream-host", changes.upstream_host, _filters(changes.with_host), "app.internal.example",
        "the host that pods are asked for, instead of the client's",
    ),
    PolicyWord(
        "rewrite-path", changes.whole_path, _filters(changes.with_path), "/index.html",
        "the path that pods are asked for, instead of any other; the query stays", kinds=_OF_BROWSERS,
    ),
)  # fmt: skip

_ORIGINS = (
    PolicyWord(
        "cors-allow-origins", changes.origins, _filters(changes.with_cors),
        "https://app.example.com, https://*.example.org",
        "origins whose pages may read answers, `*` for all; `OPTIONS` of browsers are answered for the pod", live=False,
        kinds=_OF_BROWSERS, form=Form.LIST,
    ),
    PolicyWord(
        "cors-allow-methods", changes.methods, _filters(changes.of_cors("methods")), "GET, PUT",
        "methods that these may use, `*` for all", live=False, kinds=_OF_BROWSERS, form=Form.LIST,
    ),
    PolicyWord(
        "cors-allow-headers", changes.headers, _filters(changes.of_cors("headers")), "Authorization",
        "headers that these may send, `*` for all", live=False, kinds=_OF_BROWSERS, form=Form.LIST,
    ),
    PolicyWord(
        "cors-expose-headers", changes.headers, _filters(changes.of_cors("exposed")), "X-Total",
        "headers of answers that these may read", live=False, kinds=_OF_BROWSERS, form=Form.LIST,
    ),
    PolicyWord(
        "cors-allow-credentials", values.flag, _filters(changes.of_cors("credentials")), "true",
        "whether cookies and the like may be sent along", live=False, kinds=_OF_BROWSERS, form=Form.FLAG,
    ),
    PolicyWord(
        "cors-max-age", changes.max_age, _filters(changes.of_cors("max_age")), "600",
        "for how many seconds browsers remember what they may do; 5 without it", live=False, kinds=_OF_BROWSERS,
        form=Form.NUMBER,
    ),
)  # fmt: skip

_HOSTS = (
    PolicyWord(
        "server-alias", hosts.aliases, _hosts("aliases"), "shop.example.org, *.shop.example.org",
        "more hosts that all rules of the Ingress are for: see [more hosts](#more-hosts)", kinds=_OF_INGRESSES,
        form=Form.LIST,
    ),
    PolicyWord(
        "from-to-www-redirect", values.flag, _hosts("www"), "true",
        "requests for `www.X` are redirected (308) to the host `X` of a rule, or those for `X` to `www.X`",
        kinds=_OF_INGRESSES, form=Form.FLAG,
    ),
    PolicyWord(
        "mirror", mirroring.target, _filters(mirroring.with_target), "shadow:8080",
        "requests are copied to this Service of the same namespace, whose answers count for nothing: `NAME` or "
        "`NAME:PORT`, without it port 80", live=False, kinds=_OF_BROWSERS, names_object=True, reloads=True,
    ),
    PolicyWord(
        "mirror-percent", mirroring.percent, _filters(mirroring.with_percent), "10", "how many of 100 are copied",
        live=False, kinds=_OF_BROWSERS, reloads=True, form=Form.NUMBER,
    ),
)  # fmt: skip

_CANARY = (
    PolicyWord(
        "canary", values.flag, _canary("wanted"), "true",
        "the Ingress takes a part of the requests for the same host and path of another one: see [canaries](#canaries)",
        kinds=_OF_INGRESSES, form=Form.FLAG,
    ),
    PolicyWord(
        "canary-weight", canary.weight, _canary("weight"), "5",
        "how many of 100 requests that no header or cookie decides", kinds=_OF_INGRESSES, form=Form.NUMBER,
    ),
    PolicyWord(
        "canary-weight-total", canary.total, _canary("total"), "1000", "of how many instead of 100",
        kinds=_OF_INGRESSES, form=Form.NUMBER,
    ),
    PolicyWord(
        "canary-by-header", canary.header, _canary("header"), "X-Canary",
        "requests whose header of this name is `always`, and none where it is `never`", live=False, kinds=_OF_INGRESSES,
        reloads=True,
    ),
    PolicyWord(
        "canary-by-header-value", canary.value, _canary("value"), "beta",
        "requests whose header has this value, instead of `always` and `never`", live=False, kinds=_OF_INGRESSES,
        reloads=True,
    ),
    PolicyWord(
        "canary-by-header-pattern", canary.pattern, _canary("pattern"), "beta-[0-9]+",
        "the same with a regular expression for all of the value; not beside `canary-by-header-value`", live=False,
        kinds=_OF_INGRESSES, reloads=True,
    ),
    PolicyWord(
        "canary-by-cookie", canary.cookie, _canary("cookie"), "canary",
        "the same as `canary-by-header` for a cookie; the header decides before it", live=False, kinds=_OF_INGRESSES,
        reloads=True,
    ),
)  # fmt: skip

GROUPS: Mapping[str, tuple[PolicyWord, ...]] = MappingProxyType(
    {
        "Who may ask": _ACCESS,
        "How much": _AMOUNT,
        "How long, and how often": _TIME,
        "Which pod": _BALANCING,
        "How pods are spoken with": _PODS,
        "What is changed": _CHANGES,
        "Redirects and rewrites": _PATHS,
        "Pages of other origins (CORS)": _ORIGINS,
        "More hosts, and copies": _HOSTS,
        "Canary": _CANARY,
    }
)
"""The words by what they are about, in the order of the documentation, in which they are applied."""
_WORDS = tuple(word for words in GROUPS.values() for word in words)
WORDS: Mapping[str, PolicyWord] = MappingProxyType({word.name: word for word in _WORDS})
"""All words by name."""


_MOST_BYTES = 32_000_000
"""Of the entries of maps that words of one object may take, each of its backends having its own."""
_ENTRY_BYTES = 350
"""What an entry takes of HAProxy's memory beside its text: measured with 460,800 entries of HAProxy 2.6."""


def _bytes_of(asked: AskedByWords) -> int:
    """Return about how many bytes of HAProxy's memory the values take in one backend."""
    texts = [*asked.policy.networks, *(text for _, text in (*asked.policy.values, *asked.filters.values))]
    return sum(map(len, texts)) + _ENTRY_BYTES * len(texts)


def asked_by(
    said: Iterable[tuple[str, str]],
    kind: str = "Ingress",
    namespace: str = "",
    claims: ClaimOptions = ANYTHING,
    *,
    backends: int = 1,
    namespaces: Mapping[str, str] = MappingProxyType({}),
) -> tuple[AskedByWords, tuple[WordFault, ...]]:
    """Return what words of an object, each with its text, ask for together, and which cannot be what they say.

    ``backends`` is for how many backends of the object they are. ``namespaces`` has that of words which another one
    says than ``namespace``.
    """
    asked, faults = NOTHING_ASKED, []
    texts = dict(said)
    for word in _WORDS:
        if (text := texts.get(word.name)) is None:
            continue
        if kind not in word.kinds:
            why = f"it is a word of {' and '.join(word.kinds)}, and not of {kind}{word.instead and f': {word.instead}'}"
            faults.append(WordFault(word.name, text, why, word.restricts))
            continue
        by = namespaces.get(word.name, namespace)
        try:
            value = Key(by, word.parse(text)) if word.names_object else word.parse(text)
            wrong = claims.word(by, word.name) or word.beyond(value, claims.bounds)
            asked = asked if wrong else word.apply(asked, value)
        except ValueError as error:
            wrong = str(error)
        if wrong:
            faults.append(WordFault(word.name, text, wrong, word.restricts))
    if asked.policy.external:
        asked = _policy("external")(asked, asked.policy.external.within(claims.bounds.auth_timeout_ms))
    if backends > 1 and (size := _bytes_of(asked) * backends) > _MOST_BYTES:
        name = max((name for name in texts if name in WORDS), key=lambda name: len(texts[name]))
        why = (
            f"the words of this object take {size // 1_000_000} MB for its {backends} backends, more than"
            f" {_MOST_BYTES // 1_000_000}: say less, or make several objects of it"
        )
        faults.append(WordFault(name, texts[name], why, restricts=True))
    return asked, tuple(faults)
