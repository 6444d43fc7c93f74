"""What words ask for, as fragments write it into backends of rules."""

from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import NamedTuple

from pyconfd.model.snapshot import Key
from pyconfd.presets.policies.external_auth import NO_AUTH, ExternalAuth
from pyconfd.presets.policies.limits import NO_LIMITS, RequestLimits
from pyconfd.presets.policies.pages import ErrorPage
from pyconfd.presets.policies.pods import AS_THE_SERVICE, PodConnection
from pyconfd.presets.policies.sessions import NO_SESSION, Session
from pyconfd.presets.policy import Network


class BasicAuth(NamedTuple):
    """Requests need a user of a Secret. ``users`` is the list of HAProxy that has them, "" while there is none.

    In a second, ``failed`` logins with wrong passwords, and ``new`` ones at all, are verified for the namespace.
    """

    secret: Key
    users: str = ""
    failed: int = 1
    new: int = 1


class ClientCertificates(NamedTuple):
    """Clients show a certificate of the CAs in a ConfigMap; ``optional``: or none.

    ``ca_file`` has them for HAProxy, "" while there are none: it is the one of a host, or nobody is let in there.
    """

    ca: Key | None = None
    optional: bool = False
    ca_file: str = ""

    def __bool__(self) -> bool:
        """Return whether certificates are asked for: the mode alone says nothing."""
        return self.ca is not None


NO_CERTIFICATES = ClientCertificates()


class RoutePolicy(NamedTuple):
    """What is asked of the requests of a rule, beside filters and handling; a field for each word, or several.

    ``allow`` and ``deny`` are networks of clients: where there are some of the first, all others are refused.
    ``max_body`` is in bytes, None for any size. Requests of / are redirected to ``app_root``.
    ``balance`` is HAProxy's algorithm, with its arguments.
    ``session`` is what a client keeps its pod by. ``pods`` is how these are spoken with: words of servers.
    ``auth`` has the users that may ask, who are told ``realm``. ``clients`` are the certificates that they show.
    Answers of the types in ``compressed`` are. Errors have the ``pages`` of the ConfigMap ``error_pages``.
    ``external`` says who is asked whether a request may go on.
    ``closed``: what restricts it cannot be what it says, so that nobody is let in.
    """

    allow: tuple[Network, ...] = ()
    deny: tuple[Network, ...] = ()
    max_body: int | None = None
    app_root: str = ""
    balance: str = ""
    session: Session = NO_SESSION
    limits: RequestLimits = NO_LIMITS
    closed: bool = False
    auth: BasicAuth | None = None
    realm: str = ""
    pods: PodConnection = AS_THE_SERVICE
    compressed: str = ""
    error_pages: Key | None = None
    pages: tuple[ErrorPage, ...] = ()
    clients: ClientCertificates = NO_CERTIFICATES
    external: ExternalAuth = NO_AUTH

    @property
    def lines(self) -> "RoutePolicy":
        """Itself without its values: equal ones have the same lines."""
        return RoutePolicy(
            _ANY_NETWORK if self.allow else (),
            _ANY_NETWORK if self.deny else (),
            0 if self.max_body is not None else None,
            "/" if self.app_root else "",
            self.balance,
            self.session.lines,
            self.limits.lines,
            self.closed,
            self.auth,
            "=" if self.auth and self.realm else "",
            pods=self.pods.lines,
            compressed=self.compressed,
            pages=self.pages,
            clients=self.clients or NO_CERTIFICATES,
            external=self.external.lines,
        )

    @property
    def words(self) -> str:
        """The fields that ask for something, by their names."""
        usual = RoutePolicy._field_defaults
        return ", ".join(name.replace("_", " ") for name in self._fields if getattr(self, name) != usual[name])

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """The values that lines read from a map, each by its name there."""
        found = (
            ("body", str(self.max_body) if self.max_body is not None else ""),
            ("root", self.app_root),
            ("external", self.external.value),
        )
        realm = (("realm", self.realm),) if self.auth and self.realm else ()
        fixed = tuple((name, value) for name, value in found if value)
        return fixed + self.limits.values + self.session.values + realm

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks, as the beginnings of what a request is looked up by."""
        return tuple(
            f"{word}|{prefix}"
            for word, networks in (("allow", self.allow), ("deny", self.deny))
            for network in networks
            for prefix in _prefixes(network)
        )


def _prefixes(network: Network) -> Iterator[str]:
    """Return what the addresses of a network begin with: 4 or 6, and hexadecimal digits in capitals."""
    family, digits = ("4", 8) if isinstance(network, IPv4Network) else ("6", 32)
    whole, bits = divmod(network.prefixlen, 4)
    text = f"{int(network.network_address):0{digits}X}"
    if not bits:
        yield family + text[:whole]
        return
    first = int(text[whole], 16)
    for digit in range(first, first + (1 << (4 - bits))):
        yield f"{family}{text[:whole]}{digit:X}"


_ANY_NETWORK = (IPv4Network("0.0.0.0/0"),)
NO_POLICY = RoutePolicy()
