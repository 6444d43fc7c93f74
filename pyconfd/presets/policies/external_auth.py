"""External authentication: what is asked before a request goes on, as fragments and the script are told it.

A script of HAProxy (:mod:`pyconfd.presets.policies.external_auth_script`) asks. Two kinds of services can be asked, and
nothing else: a Service of the cluster, whose pods are a backend (:mod:`pyconfd.presets.auth_services`), and a host that
this load balancer serves, by its own frontends.

What a tenant can do to others with it: he has requests without a body sent to a host of another namespace from the
addresses of his clients, as a page of his could, and gets the status of the answer and the headers that he names.
"""

from typing import NamedTuple
from urllib.parse import parse_qsl

from pyconfd.presets import values
from pyconfd.presets.routing.types import section_name

_ORIGINAL = "$scheme://$http_host$escaped_request_uri"


class AuthService(NamedTuple):
    """A port of a Service, and the namespace of who wants it asked."""

    asking: str
    namespace: str
    name: str
    port: int

    @property
    def section(self) -> str:
        """The name of its backend."""
        foreign = () if self.asking == self.namespace else (self.asking,)
        return section_name("auth", self.namespace, self.name, str(self.port), *foreign)


class AuthUrl(NamedTuple):
    """What is asked: ``host`` and ``path`` may have variables.

    ``service`` is NAME or NAME.NAMESPACE, "" for a host that this load balancer serves. ``is_plain``: without TLS.
    """

    host: str
    path: str
    service: str = ""
    port: int = 80
    is_plain: bool = True

    def service_of(self, asking: str) -> AuthService | None:
        """Return the Service that a namespace means; NAME.NAMESPACE is one where it is the same namespace."""
        if self.service:
            name, _, namespace = self.service.partition(".")
            return AuthService(asking, namespace or asking, name, self.port)
        name, _, namespace = self.host.partition(".")
        is_own = self.is_plain and namespace == asking and values.is_object_name(name)
        return AuthService(asking, asking, name, self.port) if is_own else None


class ExternalAuth(NamedTuple):
    """Who is asked whether a request may go on, and what for; nobody where ``url`` is None.

    ``sent`` are the headers of clients that the service gets, None for all; ``returned`` those of its answer that pods
    get. ``sign_in`` is where clients are sent instead of 401, ``redirect`` the header X-Auth-Request-Redirect.
    """

    url: AuthUrl | None = None
    service: AuthService | None = None
    method: str = "GET"
    timeout_ms: int = 0
    sent: tuple[str, ...] | None = None
    returned: tuple[str, ...] = ()
    sign_in: str = ""
    sign_in_parameter: str = "rd"
    redirect: str = "$request_uri"

    def __bool__(self) -> bool:
        """Return whether somebody is asked: the others only say more of it."""
        return self.url is not None

    @property
    def lines(self) -> "ExternalAuth":
        """Itself without its values: all have the same lines."""
        return _ASKING if self else NO_AUTH

    @property
    def value(self) -> str:
        """All that the script is told, as words in its order; "" where nobody is asked."""
        if self.url is None:
            return ""
        return " ".join(
            (
                self.service.section if self.service is not None else "@",
                self.url.host,
                self.url.path,
                self.method,
                str(self.timeout_ms),
                "*" if self.sent is None else ",".join(self.sent) or "-",
                ",".join(self.returned) or "-",
                _with_original(self.sign_in, self.sign_in_parameter) or "-",
                self.redirect,
            )
        )

    @property
    def text(self) -> str:
        """Whom it asks, in words for people."""
        if self.url is None:
            return "nobody"
        if self.service is not None:
            return f"Service {self.service.namespace}/{self.service.name}, port {self.service.port}"
        return f"host {self.url.host}"

    def within(self, most_ms: int) -> "ExternalAuth":
        """Return this with a time that is at most so long, also where it asks for none."""
        return self._replace(timeout_ms=min(self.timeout_ms or most_ms, most_ms)) if self else self


NO_AUTH = ExternalAuth()
_ASKING = ExternalAuth(AuthUrl("", ""))


def _with_original(url: str, name: str) -> str:
    """Return where to sign in, with the URL that was asked for as a parameter."""
    _, mark, query = url.partition("?")
    if not url or name in dict(parse_qsl(query, keep_blank_values=True)):
        return url
    separator = "&" if query else "" if mark else "?"
    return f"{url}{separator}{name}={_ORIGINAL}"
