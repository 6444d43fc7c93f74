"""The types of settings: Python types with their bounds, and texts that are an address, a name or a command."""

import re
import shlex
import signal
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_interface, ip_network
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from pyconfd.presets.policy import network
from pyconfd.presets.values import host_name, protocol
from pyconfd.settings.setting import FALSE_WORDS, TRUE_WORDS, YEAR_S, NotAcceptedError, TextForm, one_line

OBJECT_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"
NAMESPACE = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
ETCD_PORT = 2379
"""Source: etcd's manual, ``--listen-client-urls``."""


class BackendTarget(StrEnum):
    """Where traffic goes: straight to pods, or to a node port on each eligible node."""

    POD = "pod"
    NODE = "node"


def whole(pattern: str, expected: str) -> Meta:
    """Return the demand that the whole text matches a pattern; ``expected`` describes such a text."""
    return Meta(pattern=rf"^(?:{pattern})$", description=expected)


def words(*known: str, metavar: str = "", **further: str) -> TextForm:
    """Return the form of one of a few words, in any case; ``further`` are other spellings."""
    return TextForm(metavar or "|".join(known), words={word.lower(): word for word in known} | further)


Duration = Annotated[float, Meta(gt=0, le=YEAR_S)]
DurationOrZero = Annotated[float, Meta(ge=0, le=YEAR_S)]
FilePath = Annotated[str, TextForm("PATH", path="file"), Meta(description="a path")]
Directory = Annotated[str, TextForm("PATH", path="dir"), Meta(description="a path")]
NamespaceOrAll = Annotated[str, TextForm("NAME"), whole(rf"\*|{NAMESPACE}", "the name of a namespace, or * for all")]
ObjectName = Annotated[str, whole(OBJECT_NAME, "the name of an object")]
Interface = Annotated[str, TextForm("NAME"), whole(r"[^\s/:\"{}]{1,15}", "the name of a network interface, like eth0")]
ItemName = Annotated[str, whole(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", "a name of letters, digits, '.', '_' and '-'")]


def _command(value: object) -> tuple[str, ...]:
    parts = value
    if isinstance(value, str):
        try:
            parts = shlex.split(value)
        except ValueError as error:
            raise NotAcceptedError(f"a command with its quotes closed ({error})", value) from error
    if not isinstance(parts, list | tuple):
        raise NotAcceptedError("a command as one text, or an array of its arguments", value)
    expected = "a command whose arguments are texts on one line"
    if parts and not parts[0]:
        raise NotAcceptedError(expected, value)
    return tuple(one_line(part, expected) for part in parts)


Command = Annotated[tuple[str, ...], TextForm("COMMAND", read=_command, text=shlex.join)]
"""A command as its arguments: text is split as a shell would quote it, and no shell ever runs."""


def _ca_file(value: object) -> str | bool:
    expected = "the path of a file, or false for no verification"
    if value is False or (isinstance(value, str) and value.lower() in FALSE_WORDS):
        return False
    path = one_line(value, expected)
    if path.lower() in TRUE_WORDS:
        raise NotAcceptedError(expected, value)
    return path


CaFile = Annotated[str | bool, TextForm("PATH|false", read=_ca_file, path="file")]
"""A file of trusted authorities, or False for no verification at all."""


def _listen(text: str) -> None:
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+):([0-9]{1,5})", text)
    if not match or int(match[2]) > 65535:
        raise ValueError(text)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a host; a name other than localhost counts as outside."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


Listen = Annotated[
    str,
    TextForm("HOST:PORT", check=_listen),
    Meta(description='HOST:PORT, like 127.0.0.1:9101 or [::1]:9101 ("" for none)'),
]
"""Where to listen; IPv6 in brackets; port 0 takes any free one."""


_API_SERVER = "the URL of an API server, like https://10.31.12.49:6443"


def _api_server(text: str) -> str:
    if set(text) & set("@?#"):
        raise NotAcceptedError(f"{_API_SERVER}, without a user name, password, ? and #", words="one that has them")
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError(text)
    return text.rstrip("/")


ApiServer = Annotated[str, TextForm("URL", read=_api_server), Meta(description=_API_SERVER)]

_ETCD = "the address of an etcd, like https://192.0.2.1:2379"


def _etcd_endpoint(text: str) -> str:
    """Return ``SCHEME://HOST:PORT``; ``HOST:PORT`` is http, as etcdctl takes it."""
    if "@" in text:
        raise NotAcceptedError(f"{_ETCD}, without a user name or password", words="one that has them")
    parts = urlsplit(text if "://" in text else f"http://{text}")
    host, port = parts.hostname, parts.port or ETCD_PORT
    if parts.scheme not in {"http", "https"} or not host or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(text)
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


EtcdEndpoint = Annotated[str, TextForm("URL", read=_etcd_endpoint), Meta(description=_ETCD)]


def _frontend(text: str) -> None:
    parts = urlsplit(text)
    is_address = parts.scheme == "http" or (parts.scheme == "tcp" and parts.port is not None)
    if not is_address or not parts.hostname or "@" in text:
        raise ValueError(text)


Frontend = Annotated[
    str, TextForm("URL", check=_frontend), Meta(description="http://HOST:PORT/PATH or tcp://HOST:PORT")
]


def _port(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 65535:
        raise ValueError(text)
    return number


Port = Annotated[str, TextForm("PORT", read=_port), whole("[0-9]{1,5}", "a whole number from 1 to 65535")]


def _port_range(text: str) -> str:
    first, _, last = text.partition("-")
    last = last or first
    if not 1 <= int(first) <= int(last) <= 65535:
        raise NotAcceptedError("a range of ports from 1 to 65535, the smaller one first", text)
    return f"{int(first)}-{int(last)}"


PortRange = Annotated[
    str,
    TextForm("FIRST-LAST", read=_port_range),
    whole("[0-9]{1,9}(-[0-9]{1,9})?", "a range of ports, like 1024-32767"),
]
"""An inclusive range of ports; a single port is a range of itself."""


def port_ranges(listed: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Return ranges of ports as numbers, both ends included."""
    pairs = [text.partition("-") for text in listed]
    return tuple((int(first), int(last)) for first, _, last in pairs)


MOST_ADDRESSES = 1024
"""A range or a network of addresses holds so many at most."""


def addresses_of(text: str) -> tuple[str, ...]:
    """Return the addresses that ADDRESS, NETWORK or FIRST-LAST stands for, in order.

    A network of IPv4 is without its own address and its broadcast address, unless it has no others.

    Raises:
        ValueError: it is none of these, or has addresses that no machine has.
        NotAcceptedError: these are too many.
    """
    inner = 0
    if "-" in text:
        first, last = (ip_address(part.strip()) for part in text.split("-"))
    else:
        whole_network = ip_network(text)
        first, last = whole_network[0], whole_network[-1]
        inner = 1 if whole_network.version == 4 and whole_network.num_addresses > 2 else 0
    count = int(last) - int(first) + 1 - 2 * inner
    nowhere = any(each.is_multicast or each.is_unspecified for each in (first, last))
    if first.version != last.version or count < 1 or nowhere:
        raise ValueError(text)
    if count > MOST_ADDRESSES:
        raise NotAcceptedError(f"at most {MOST_ADDRESSES} addresses", words=f"{count:,}")
    return tuple(str(first + inner + number) for number in range(count))


Addresses = Annotated[
    str,
    TextForm("ADDRESSES", check=addresses_of),
    whole(
        r"[0-9A-Fa-f:./ -]+", "an address, a network or a range, like 192.0.2.7, 192.0.2.16/28 or 192.0.2.20-192.0.2.29"
    ),
]


def dns_name(text: str) -> str:
    """Return a name to publish, without a final dot.

    Raises:
        NotAcceptedError: it is none, or an address.
    """
    try:
        name = host_name(text)
    except ValueError:
        name = ""
    if "." not in name or name.replace(".", "").isdigit() or ":" in name:
        raise NotAcceptedError("a name like lb.example.com", text)
    return name


DnsName = Annotated[str, TextForm("NAME", read=dns_name)]
Domain = Annotated[str, TextForm("DOMAIN", read=host_name), Meta(description="a domain like cluster.local")]


def _host_pattern(text: str) -> str:
    return text if text == "*" else host_name(text)


HostPattern = Annotated[
    str,
    TextForm("HOST", read=_host_pattern),
    Meta(description="a host like app.example.com, *.example.com for all below it, or * for all"),
]


def _suffix(text: str) -> str:
    return host_name(text.removeprefix("*.").removeprefix("."))


Suffix = Annotated[
    str,
    TextForm("DOMAIN", read=_suffix),
    Meta(description="a domain like example.com, which allows what is below it too"),
]
Protocol = Annotated[
    str, TextForm("PROTOCOL", read=protocol), Meta(description="a protocol such as http, https or redis")
]

# Python takes any text for the zone of an IPv6 address, so "%" is excluded first.
_ADDRESS = r"[0-9A-Fa-f:.]+"
Address = Annotated[str, TextForm("ADDRESS", read=ip_address), whole(_ADDRESS, "an IP address, like 192.0.2.7")]
Address4 = Annotated[str, TextForm("ADDRESS", read=IPv4Address), whole(_ADDRESS, "an IPv4 address")]
Address6 = Annotated[str, TextForm("ADDRESS", read=IPv6Address), whole(_ADDRESS, "an IPv6 address")]
Network = Annotated[
    str, TextForm("NETWORK", read=network), Meta(description="a network or an address, like 127.0.0.0/8 or 192.0.2.7")
]


def _floating(text: str) -> IPv4Interface | IPv6Interface:
    """Return ADDRESS/PREFIX; without a prefix it is the address alone (/32 or /128)."""
    found = ip_interface(text)
    _node_address(str(found.ip))
    return found


def _node_address(text: str) -> IPv4Address | IPv6Address:
    found = ip_address(text)
    if found.is_loopback or found.is_multicast or found.is_unspecified:
        raise ValueError(text)
    return found


FloatingAddress = Annotated[
    str,
    TextForm("ADDRESS/PREFIX", read=_floating),
    whole(r"[0-9A-Fa-f:./]+", "an address with its prefix, like 192.0.2.10/24 or 2001:db8::10/64"),
]
NodeAddress = Annotated[
    str, TextForm("ADDRESS", read=_node_address), whole(_ADDRESS, "an address of the node, like 192.0.2.11")
]


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


Directive = Annotated[str, TextForm("NAME", read=_single_spaced)]
"""The words of a directive of haproxy.cfg, as a refusal names it."""

_NOTIFIER = "command:SHELL, pid:SIGNAL:PID, pidfile:SIGNAL:PATH or debug:"


@dataclass(frozen=True, slots=True)
class TargetNotifier:
    """How the balancer of a target learns of a change.

    "command" runs ``argument`` in a shell; "pid" sends ``signal`` to the process of this number, "pidfile" to that of
    the number in this file; "debug" is a line in the log.
    """

    how: Literal["command", "pid", "pidfile", "debug"]
    argument: str = ""
    signal: int = 0


def parse_notifier(text: str) -> TargetNotifier:
    """Parse a notifier as kube2lb writes it.

    Raises:
        ValueError: it is none.
    """
    how, _, rest = text.partition(":")
    name, _, whom = rest.partition(":")
    match how:
        case "command" if rest.strip():
            return TargetNotifier(how, rest)
        case "pid" if whom.isascii() and whom.isdigit() and int(whom[:9]) > 1:
            return TargetNotifier(how, whom, _signal(name))
        case "pidfile" if whom:
            return TargetNotifier(how, whom, _signal(name))
        case "debug" if not rest:
            return TargetNotifier(how)
    raise NotAcceptedError(_NOTIFIER, text)


def _signal(name: str) -> int:
    """Return the number of a signal by its name, with or without SIG, or by its number."""
    wanted = name.upper()
    for known in signal.Signals:
        if wanted in {known.name, known.name.removeprefix("SIG"), str(known.value)}:
            return int(known)
    raise NotAcceptedError("the name of a signal, like SIGHUP", name)


Notify = Annotated[str, TextForm("NOTIFIER", check=parse_notifier)]
