"""The annotations of haproxy-kubefigurator, read into claims; each value is what it must be, or the port is refused."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import NamedTuple, TypeVar

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef, Service, ServicePort
from pyconfd.model.listener import Listener
from pyconfd.model.reservation import NEVER, Name, Owner
from pyconfd.model.snapshot import HostFacts
from pyconfd.presets import values
from pyconfd.presets.cluster import ReadService
from pyconfd.presets.policy import ClaimOptions, PortRanges, in_ranges
from pyconfd.presets.views import PortView

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class KubefiguratorOptions:
    """What the preset ``kubefigurator`` obeys.

    ``cluster`` replaces CLUSTER in host names. ``ssl_dir`` holds the certificates. ``ca_file`` is what backends are
    verified with. ``node_ports``: send traffic to node ports instead of pods. ``listen_ports``: what an annotation
    may ask to be bound.
    """

    cluster: str = ""
    ssl_dir: str = "/etc/haproxy/ssl"
    ca_file: str = "@system-ca"
    node_ports: bool = True
    listen_ports: PortRanges = ((80, 80), (443, 443), (1024, 32767))


LABEL = "haproxy-kubefigurator.enabled"
PREFIX = "haproxy-kubefigurator."
OPTIONS = (
    "hostname",
    "listen-ip",
    "listen-port",
    "haproxy-mode",
    "use-ssl",
    "ssl-certificate",
    "backends-use-ssl",
    "backends-verify-ssl",
    "backends-balance-method",
)
"""Source: haproxy-kubefigurator's readme, and its source for ``ssl-certificate``."""

_HOST = ".hostname"
ANY = "*"
_HTTPS_PORT = 443
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_CERTIFICATE = re.compile(r"(?:[A-Za-z0-9_*][A-Za-z0-9._*@+=-]{0,127}/){0,4}[A-Za-z0-9_*][A-Za-z0-9._*@+=-]{0,254}")
_PARAMETER = r"\([A-Za-z0-9_-]{1,64}\)"
_BALANCE = re.compile(
    rf"roundrobin|static-rr|leastconn|first|source|random(?:\([1-9][0-9]?\))?|rdp-cookie(?:{_PARAMETER})?"
)
_BALANCE_HTTP = re.compile(
    r"uri(?: (?:whole|path-only|len [1-9][0-9]{0,3}|depth [1-9][0-9]{0,2}))*"
    rf"|url_param [A-Za-z0-9_-]{{1,64}}(?: check_post)?|hdr{_PARAMETER}(?: use_domain_only)?"
)
"""Source: HAProxy configuration manual, ``balance``; those that HAProxy ignores in mode tcp."""


class Slot(NamedTuple):
    """Where a listener listens; ``address`` is ``*`` or an IP address."""

    address: str
    port: int

    @property
    def listener(self) -> Listener:
        """What it asks of the host."""
        return Listener.at(self.address, self.port)

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class KubefiguratorClaim:
    """What one port of one Service asks for; ``certificate`` is the path of a file, "" for no TLS."""

    ref: ObjectRef
    created: str
    port_name: str
    position: int
    node_port: int
    slot: Slot
    mode: str
    hostname: str
    certificate: str
    tls: bool
    verify: bool
    balance: str

    @property
    def rank(self) -> tuple[str, str, str, str, int, int]:
        """The older Service wins; the names decide between twins."""
        return self.created, self.ref.namespace, self.ref.name, self.port_name, self.node_port, self.position

    @property
    def names(self) -> tuple[Name, Name]:
        """All of the listener, and its host name there."""
        place = str(self.slot)
        return Name(place, ""), Name(place, self.hostname)

    @property
    def owner(self) -> Owner:
        """The owner that later claims are told of."""
        return Owner(self.ref.kind, self.ref.namespace, self.ref.name, self.created)

    @property
    def who(self) -> str:
        """The claimant in a message."""
        return f"{self.ref} port {self.port_name or '(unnamed)'}"

    def refusal(self, option: str, value: str, reason: RefusalReason, detail: str) -> Refusal:
        """Turn this claim away."""
        return Refusal(self.ref, field_of(self.port_name, option), values.shortened(value), reason, detail)


class _RefusedListener(Exception):  # noqa: N818 - it carries a Refusal out of a parser
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.detail)


def field_of(port_name: str, option: str) -> str:
    """Name an annotation as a person would look for it; an unnamed port gives two dots."""
    return f"annotation {PREFIX}{port_name}.{option}"


class ParsedService(NamedTuple):
    """What the node ports of a Service ask for, and what cannot be read; ``hostnames`` are all that are written."""

    hostnames: tuple[str, ...]
    claims: tuple[KubefiguratorClaim, ...]
    refused: tuple[Refusal, ...]


def parse(
    seen: ReadService, cluster: str, options: KubefiguratorOptions, rules: ClaimOptions, host: HostFacts
) -> ParsedService | None:
    """Return the claims of an enabled Service's node ports, and what cannot be read; None for nothing."""
    view, service = seen.view, seen.object
    if view is None or service is None or (service.metadata.labels or {}).get(LABEL) != "yes":
        return None
    refused: list[Refusal] = []
    ref = ObjectRef("Service", view.namespace, view.name, cluster)
    annotations = service.metadata.annotations or {}
    names = {port.name or "" for port in service.spec.ports or () if port.node_port}
    refused.extend(_strays(ref, annotations, names))
    if not names:
        detail = "no port of this service has a node port: give it the type NodePort or LoadBalancer"
        refused.append(Refusal(ref, "spec.ports", "", RefusalReason.NO_NODE_PORT, detail))
    claims = []
    for position, (port, port_view) in enumerate(zip(service.spec.ports or (), view.ports, strict=True)):
        if not port.node_port:
            continue
        try:
            claims.append(_AnnotationReader(ref, service, position, port, port_view, host, options, rules).claim())
        except _RefusedListener as error:
            refused.append(error.refusal)
    written = (text for name, text in sorted(annotations.items()) if name.startswith(PREFIX) and name.endswith(_HOST))
    hostnames = tuple(filter(None, (_spelled(text, options) for text in written)))
    return ParsedService(hostnames, tuple(claims), tuple(refused))


def _spelled(hostname: str, options: KubefiguratorOptions) -> str:
    return hostname.strip().replace("CLUSTER", options.cluster, 1)


def _strays(ref: ObjectRef, annotations: Mapping[str, str], ports: set[str]) -> Iterator[Refusal]:
    """Explain annotations that have no effect: a port or an option of that name does not exist."""
    known = {f"{PREFIX}{port}.{option}" for port in ports for option in OPTIONS}
    for key in sorted(annotations):
        if key.startswith(PREFIX) and key not in known:
            names = ", ".join(sorted(port or "(unnamed)" for port in ports if not port or _LABEL.fullmatch(port)))
            detail = (
                f"has no effect: it must be {PREFIX}PORT.OPTION with the name of a port that has a node port"
                f" ({names or 'none here'}) and one of the options {', '.join(OPTIONS)}"
            )
            yield Refusal(
                ref,
                f"annotation {values.shortened(key)}",
                values.shortened(annotations[key]),
                RefusalReason.INVALID_VALUE,
                detail,
            )


@dataclass(frozen=True, slots=True)
class _AnnotationReader:
    """Reads the options of one port."""

    ref: ObjectRef
    service: Service
    position: int
    raw: ServicePort
    port: PortView
    host: HostFacts
    options: KubefiguratorOptions
    rules: ClaimOptions

    def claim(self) -> KubefiguratorClaim:
        name = self.raw.name or ""
        for what, text in (("metadata.namespace", self.ref.namespace), ("metadata.name", self.ref.name)):
            if not _LABEL.fullmatch(text) or text in values.CONDITION_WORDS:
                raise self._refused(what, text, "not a name that Kubernetes would give")
        if name and (not _LABEL.fullmatch(name) or name in values.CONDITION_WORDS):
            raise self._refused("spec.ports", name, "not a name that Kubernetes would give to a port")
        if self.port.protocol != "TCP":
            protocol = self.raw.protocol or ""
            raise self._refused("spec.ports", f"{name} {protocol}", "only TCP can be balanced by HAProxy")
        if not 0 < self.raw.node_port < 65536:
            raise self._refused("spec.ports", str(self.raw.node_port), "not a node port")
        mode = self._parsed("haproxy-mode", _mode, "http")
        if wrong := self.rules.protocol(self.ref.namespace, mode):
            raise self._refused(field_of(name, "haproxy-mode"), mode, wrong, RefusalReason.NOT_ALLOWED)
        frontend_tls = self._parsed("use-ssl", _tls_wanted, mode == "http")
        hostname, spelled = self._hostname(mode)
        if hostname and (wrong := self.rules.domain(self.ref.namespace, hostname)):
            raise self._refused(field_of(name, "hostname"), hostname, wrong, RefusalReason.NOT_ALLOWED)
        certificate = self._certificate(spelled) if frontend_tls else ""
        return KubefiguratorClaim(
            ref=self.ref,
            created=self.service.metadata.creation_timestamp or NEVER,
            port_name=name,
            position=self.position,
            node_port=self.port.node_port,
            slot=self._slot(),
            mode=mode,
            hostname=hostname,
            certificate=certificate,
            tls=self._parsed("backends-use-ssl", _flag, bool(certificate)),
            verify=self._parsed("backends-verify-ssl", _flag, default=False),
            balance=self._parsed("backends-balance-method", lambda text: _balance(text, mode), "roundrobin"),
        )

    def _text(self, option: str) -> str:
        key = f"{PREFIX}{self.raw.name or ''}.{option}"
        return (self.service.metadata.annotations or {}).get(key, "").strip()

    def _parsed(self, option: str, parse: Callable[[str], _T], default: _T) -> _T:
        """Return an option's value; an empty one is the default, as it was for most of them."""
        text = self._text(option)
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise self._refused(field_of(self.raw.name or "", option), text, str(error)) from None

    def _refused(
        self, field: str, value: str, detail: str, reason: RefusalReason = RefusalReason.INVALID_VALUE
    ) -> _RefusedListener:
        return _RefusedListener(Refusal(self.ref, field, values.shortened(value), reason, detail))

    def _hostname(self, mode: str) -> tuple[str, str]:
        """Return the host name as routes compare it, and as it is spelled: certificates are called by that."""
        own = self.options.cluster
        given = self._text("hostname")
        spelled = _spelled(given, self.options)
        if not spelled:
            if mode == "http":
                detail = "is missing: a port in mode http is reached by its host name (or set haproxy-mode to tcp)"
                field = field_of(self.raw.name or "", "hostname")
                raise self._refused(field, given, detail, RefusalReason.INCOMPLETE)
            return "", ""
        try:
            return values.host_name(spelled), spelled
        except ValueError as error:
            hint = "; CLUSTER stands for the setting kubefigurator.cluster, which is empty" if not own else ""
            detail = f"{error}{hint if 'CLUSTER' in given else ''}"
            raise self._refused(field_of(self.raw.name or "", "hostname"), given, detail) from None

    def _certificate(self, spelled: str) -> str:
        folder = self.options.ssl_dir.rstrip("/")
        named = self._parsed("ssl-certificate", _certificate_name, "")
        if named:
            # A file is called after the name that it is good for: it is claimed as that name is.
            if wrong := self.rules.domain(self.ref.namespace, certified_name(named)):
                field = field_of(self.raw.name or "", "ssl-certificate")
                raise self._refused(field, named, wrong, RefusalReason.NOT_ALLOWED)
            return f"{folder}/{named}"
        if not spelled:
            detail = "TLS is asked for (use-ssl) and neither hostname nor ssl-certificate says which certificate"
            field = field_of(self.raw.name or "", "ssl-certificate")
            raise self._refused(field, "", detail, RefusalReason.INCOMPLETE)
        return f"{folder}/{spelled}.pem"

    def _address(self, text: str) -> str:
        if text == ANY:
            return ANY
        parsed = values.address(text.removeprefix("[").removesuffix("]"))
        if parsed is None:
            raise ValueError("not an IP address: expected one of this machine's, or * for all")
        # "::ffff:192.0.2.7" is bound as 192.0.2.7, and must not count as another address.
        parsed = (parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None) or parsed
        if parsed.version == 4 and parsed.is_unspecified:
            return ANY
        if wrong := self.rules.address(self.ref.namespace, parsed):
            field = field_of(self.raw.name or "", "listen-ip")
            raise self._refused(field, text, wrong, RefusalReason.NOT_ALLOWED)
        free = self.host.nonlocal_bind_v4 if parsed.version == 4 else self.host.nonlocal_bind_v6
        anywhere = parsed.is_unspecified or (parsed.version == 4 and parsed.is_loopback)
        # Without facts about the host nothing is judged by them.
        if self.host.known and not (anywhere or free or str(parsed) in self.host.addresses):
            family = "ipv4" if parsed.version == 4 else "ipv6"
            detail = f"this machine has no such address; if it moves between machines set net.{family}.ip_nonlocal_bind"
            field = field_of(self.raw.name or "", "listen-ip")
            raise self._refused(field, text, detail, RefusalReason.NO_SUCH_ADDRESS)
        return str(parsed)

    def _slot(self) -> Slot:
        address = self._parsed("listen-ip", self._address, ANY)
        port = self._parsed("listen-port", values.port_number, _HTTPS_PORT)
        field = field_of(self.raw.name or "", "listen-port")
        wrong = self.rules.port(self.ref.namespace, port)
        if not in_ranges(port, self.options.listen_ports):
            wrong = "this port is not in the setting kubefigurator.listen_ports"
        if wrong:
            raise self._refused(field, str(port), wrong, RefusalReason.NOT_ALLOWED)
        return Slot(address, port)


def _mode(text: str) -> str:
    mode = text.lower()
    if mode not in {"http", "tcp"}:
        raise ValueError("expected http or tcp")
    return mode


def _tls_wanted(text: str) -> bool:
    """Read ``use-ssl``: everything but "true" switched TLS off; a word that says yes is asked again instead."""
    if text in {"false", "no", "off", "0", "False", "FALSE"}:
        return False
    return _flag(text)


def _flag(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError('expected "true" or "false"')
    return text == "true"


def certified_name(path: str) -> str:
    """Return the host name that a certificate file is called after: ``NAME.pem`` in any directory."""
    return path.rpartition("/")[2].removesuffix(".pem").lower()


def _certificate_name(text: str) -> str:
    if not _CERTIFICATE.fullmatch(text):
        raise ValueError("not the name of a file below kubefigurator.ssl_dir")
    return text


def _balance(text: str, mode: str) -> str:
    method = " ".join(text.split())
    if mode == "http" and _BALANCE_HTTP.fullmatch(method):
        return method
    if _BALANCE.fullmatch(method):
        return method
    expected = "roundrobin, leastconn, static-rr, first, source, random"
    if _BALANCE_HTTP.fullmatch(method):
        raise ValueError(f"needs haproxy-mode http; in mode tcp use one of {expected}")
    raise ValueError(f"not a balance method of HAProxy: expected one of {expected}, uri, url_param NAME, hdr(NAME)")
