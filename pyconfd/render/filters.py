"""What templates call: names, addresses, quoting, servers, lists; and what they may hold and print.

What filters give for the same input never changes between runs, and where two different inputs must stay different
(names of backends and servers), they do. None fails on None, none depends on the order of a hash.
"""

import hashlib
import re
import types
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from jinja2 import Environment, Undefined, pass_environment

from pyconfd.model.rendering import natural_order
from pyconfd.render.invalid import InvalidValueError, did_you_mean, shown

SERVER_NAME_LIMIT = 60
"""Longest server name; longer ones are cut and end in a hash. It keeps the log lines and ``show servers`` readable."""

_NOT_IN_NAMES = re.compile(rb"[^A-Za-z0-9.:-]")
_NOT_IN_POD = re.compile(rb"[^A-Za-z0-9.-]")
_NEEDS_ESCAPE = re.compile(r"[^A-Za-z0-9.:-]")
_HASH_DIGITS = 16
_MAX_SERVER_ID = 2**31 - 1
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.:/@+=,-]+")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ADDRESS = re.compile(r"[A-Za-z0-9_.:%-]+")
_PORT = re.compile(r"[0-9]{1,5}")
_CONDITION_WORDS = frozenset({"{", "}", "||", "or", "if", "unless", "!"})


def _escaped(value: object, kept: re.Pattern[bytes]) -> str:
    text = str(value)
    if not _NEEDS_ESCAPE.search(text) and (kept is _NOT_IN_NAMES or ":" not in text):
        return text

    def escape(found: re.Match[bytes]) -> bytes:
        return b"__" if found[0] == b"_" else b"_%02x" % found[0][0]

    return kept.sub(escape, text.encode("utf-8", "surrogatepass")).decode()


def identifier(value: object) -> str:
    """Return a name for a section, ACL or server that HAProxy accepts; different values give different names.

    Letters, digits and ``. : -`` stay; ``_`` becomes ``__``; any other byte of the UTF-8 text becomes ``_`` and two
    hexadecimal digits; nothing at all becomes ``_``. So ``shop.example.com`` stays as it is, ``*.example.com`` gives
    ``_2a.example.com``. Put a prefix before it: frontends and backends share one set of names since HAProxy 3.3.

    Source: HAProxy configuration manual, section 2 (names: upper and lower case letters, digits, ``- _ . :``).
    """
    return _escaped(value, _NOT_IN_NAMES) or "_"


def field_of(value: Any, name: str) -> Any:
    """Return the item or attribute ``name`` of a mapping or an object; never for a name that a template gave.

    Raises:
        InvalidValueError: it has none; the remedy names what it has.

    """
    # Asking for the abstract Mapping first would take a third of the time of a rendering.
    if not isinstance(value, dict):
        try:
            return getattr(value, name)
        except AttributeError:
            if not isinstance(value, Mapping):
                raise no_field(value, name) from None
    if name in value:
        return value[name]
    raise no_field(value, name)


def no_field(value: Any, name: str) -> InvalidValueError:
    """Return the error that says which fields ``value`` has instead of ``name``."""
    known = value if isinstance(value, Mapping) else [one for one in dir(value) if not one.startswith("_")]
    return InvalidValueError(f"{shown(value)} has no {name!r}", did_you_mean(name, known))


def server_name(endpoint: Any) -> str:
    """Return the name of the server line for an endpoint with ``pod``, ``address`` and ``port``.

    ``pod:address:port``, or ``address:port`` without a pod: a pod that moved is another server, so that a server
    that carried traffic is never given another address. Injective in the three; names over 60 characters are cut
    and end in ``_`` and 16 digits of their SHA-256.
    """
    address = _escaped(field_of(endpoint, "address"), _NOT_IN_NAMES)
    port = _escaped(field_of(endpoint, "port"), _NOT_IN_POD)
    if pod := field_of(endpoint, "pod") or "":
        full = f"{_escaped(pod, _NOT_IN_POD)}:{address}:{port}"
    else:
        # "_" alone is no escape, so no pod is called that; without it "fd00::1:80" could be a pod named fd00.
        full = f"_:{address}:{port}" if ":" in address else f"{address}:{port}"
    if len(full) <= SERVER_NAME_LIMIT:
        return full
    # No uncut name ends like this: after its last colon it has a port.
    digest = hashlib.sha256(full.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{full[: SERVER_NAME_LIMIT - _HASH_DIGITS - 1]}_{digest}"


def server_id(name: object) -> int:
    """Return the ``id`` of a server from its name alone, 1 to 2147483647.

    With ``hash-type consistent`` the id places the server on the ring; HAProxy's own ids come from the position, so
    that one more server moves nearly all keys. Ids must differ within one backend: two of 1,000 names share one in
    one of 4,300 backends, so use :func:`server_ids`, which resolves that.
    """
    digest = hashlib.sha256(str(name).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % _MAX_SERVER_ID + 1


def server_ids(names: Iterable[object]) -> dict[str, int]:
    """Return an ``id`` for every name of one backend, all different and independent of the order of ``names``.

    A name has its :func:`server_id`. Of several with the same one, the first in byte order keeps it, the others take
    the id of their name with ``#1``, ``#2``, ... after it: only in such a pair can one name change another one's id.
    """
    taken: set[int] = set()
    found: dict[str, int] = {}
    for name in sorted({str(one) for one in names}):
        candidate, attempt = server_id(name), 0
        while candidate in taken:
            attempt += 1
            candidate = server_id(f"{name}#{attempt}")
        taken.add(candidate)
        found[name] = candidate
    return found


def bracket(address: object) -> str:
    """Write square brackets around an IPv6 address; IPv4 addresses, names and ``*`` stay as they are.

    Raises:
        InvalidValueError: it has characters that no address and no host name has.

    """
    text = str(address)
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    if text != "*" and not _ADDRESS.fullmatch(text):
        raise InvalidValueError(f"{shown(address)} is no address", "give an IPv4 or IPv6 address or a host name")
    return f"[{text}]" if ":" in text else text


def hostport(address: object, port: object) -> str:
    """Return ``address:port`` with brackets around an IPv6 address.

    Raises:
        InvalidValueError: the address or the port is none.

    """
    text = str(port)
    if not _PORT.fullmatch(text) or not 0 < int(text) < 65536:
        raise InvalidValueError(f"{shown(port)} is no port for {shown(address)}", "give a number from 1 to 65535")
    return f"{bracket(address)}:{int(text)}"


def quote(value: object) -> str:
    """Write ``value`` so that HAProxy reads exactly one word, the value itself.

    Plain words stay as they are, others come in single quotes, or in double quotes with backslashes if the value
    has a single quote. Nothing in it is taken for a comment, an escape or ``${VARIABLE}``.

    Raises:
        InvalidValueError: it is empty (HAProxy takes an empty word for the end of the line), has control characters,
            or is one of ``{ } ! || or if unless``, which keep their meaning in conditions even in quotes.

    Source: HAProxy configuration manual, section 2.2.
    """
    text = str(value)
    if not text:
        raise InvalidValueError(
            "an empty value cannot be quoted: HAProxy takes it for the end of the line",
            "leave the directive out with {% if ... %}, or give a default",
        )
    if text in _CONDITION_WORDS:
        raise InvalidValueError(
            f"{shown(text)} keeps its meaning in a condition even in quotes", "give another value for it"
        )
    if found := _UNPRINTABLE.search(text):
        raise InvalidValueError(f"{shown(text)} has the control character {found[0]!r}", "remove it from the value")
    if _PLAIN_WORD.fullmatch(text):
        return text
    if "'" not in text:
        return f"'{text}'"
    escaped = re.sub(r'([\\"$])', r"\\\1", text)
    return f'"{escaped}"'


def format_quote(value: object) -> str:
    """Write ``value`` as :func:`quote` does for a place where HAProxy reads a format (``http-request set-header``).

    There ``%`` begins a variable or an expression; it is doubled, so that it stays a percent sign.

    Raises:
        InvalidValueError: as :func:`quote`.

    Source: HAProxy configuration manual, section 8.2.4 (8.2.6 since 3.0).
    """
    return quote(str(value).replace("%", "%%"))


READY = "ready"
DRAINING = "draining"
_LARGEST_WEIGHT = 256
"""Source: HAProxy configuration manual, 5.2 ``weight``."""


class Server(NamedTuple):
    """One server line: ``server NAME TARGET id ID``, with ``weight 0`` where ``draining``.

    ``weight`` is 0 for these, else that of the endpoint, which is 1 where it has none.
    """

    name: str
    target: str
    id: int
    draining: bool
    weight: int = 1


def servers(endpoints: Iterable[Any]) -> list[Server]:
    """Return the servers of one backend, sorted by name in byte order, without duplicates.

    Endpoints have ``pod``, ``address``, ``port`` and ``state`` ("ready" or "draining"), and may have ``weight`` (0 to
    256). A draining one keeps its connections and gets no new ones (``weight 0``) while another is ready and has a
    weight. If none is, all take traffic: a pod that is about to go still answers, and Kubernetes itself does the same
    (KEP-1669).

    Raises:
        InvalidValueError: an endpoint lacks one of these, or has an address, port or state that is none.

    """
    by_name = {server_name(endpoint): endpoint for endpoint in endpoints}
    states = {name: field_of(endpoint, "state") for name, endpoint in by_name.items()}
    for name, state in states.items():
        if state not in (READY, DRAINING):
            raise InvalidValueError(f"endpoint {name} has the state {shown(state)}", f"give {READY!r} or {DRAINING!r}")
    weights = {name: _weight(name, endpoint) for name, endpoint in by_name.items()}
    any_ready = any(state == READY and weights[name] for name, state in states.items())
    ids = server_ids(by_name)
    found = []
    for name in sorted(by_name):
        target = hostport(field_of(by_name[name], "address"), field_of(by_name[name], "port"))
        draining = any_ready and states[name] == DRAINING
        found.append(Server(name, target, ids[name], draining, 0 if draining else weights[name]))
    return found


def _weight(name: str, endpoint: Any) -> int:
    weight = endpoint.get("weight", 1) if isinstance(endpoint, Mapping) else getattr(endpoint, "weight", 1)
    if type(weight) is not int or not 0 <= weight <= _LARGEST_WEIGHT:
        raise InvalidValueError(f"endpoint {name} has the weight {shown(weight)}", "give a number from 0 to 256")
    return weight


# What templates may hold: data and methods of data, never a class, a function, a module or a frame. From any of these
# a template reaches the rest of the process: ``__subclasses__`` and ``__globals__`` are public there.

_CODE = (
    type,
    types.AsyncGeneratorType,
    types.ClassMethodDescriptorType,
    types.CodeType,
    types.CoroutineType,
    types.FrameType,
    types.FunctionType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.ModuleType,
    types.TracebackType,
    types.WrapperDescriptorType,
)


def is_code(value: Any) -> bool:
    """Return whether ``value`` belongs to the program and not to its data; a method of a value does not."""
    if isinstance(value, types.BuiltinFunctionType):
        return isinstance(value.__self__, types.ModuleType)
    return isinstance(value, _CODE)


def is_data_name(name: str) -> bool:
    """Return whether a template may name an attribute so; the others are private to Python."""
    return not name.startswith("_")


_MEMORY_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")


def printable(value: Any) -> Any:
    """Refuse what would print as an accident: a function, a generator, a set."""
    if type(value) is str or isinstance(value, Undefined):
        return value
    if isinstance(value, set | frozenset):
        raise InvalidValueError(f"{shown(value)} has no order", "write | sort | join(' ') after it")
    if callable(value) or is_code(value) or _MEMORY_ADDRESS.search(str(value)):
        raise InvalidValueError(
            f"this prints a {type(value).__name__}, not a text",
            "call it with (), or write | list or | join(' ') after it",
        )
    return value


# Lists of mappings or objects

_MISSING = object()


class Group(NamedTuple):
    """What :func:`group_by` gives; unpacks in ``{% for key, items in ... %}``, or use ``.grouper`` and ``.list``."""

    grouper: Any
    list: list[Any]


def _values(environment: Environment, items: list[Any], attribute: str | None) -> list[Any]:
    """Return what a dotted path names of each item, by the environment's own rules: a template gave the path."""
    values = items
    for name in attribute.split(".") if attribute else ():
        values = [_value(environment, item, name) for item in values]
    return values


def _value(environment: Environment, item: Any, name: str) -> Any:
    # Asking for the abstract Mapping first would cost as much as all the rest.
    if isinstance(item, dict):
        found = item.get(name, _MISSING)
    elif not is_data_name(name):
        raise InvalidValueError(f"{shown(name)} of {shown(item)} is no data", "name an attribute that holds a value")
    else:
        found = environment.getattr(item, name)
    if found is _MISSING or isinstance(found, Undefined):
        raise no_field(item, name)
    if is_code(found) or callable(found):
        raise InvalidValueError(f"{shown(name)} of {shown(item)} is no data", "name an attribute that holds a value")
    return found


def _by_rank(items: list[Any], keys: list[Any], *, reverse: bool = False) -> list[Any]:
    ranks = _ranks(keys)
    order = sorted(range(len(items)), key=lambda index: _rank(keys[index], ranks), reverse=reverse)
    return [items[index] for index in order]


def _ranks(values: Iterable[Any]) -> dict[str, int]:
    texts = {str(value) for value in values if _kind(value) == 2}
    return {text: rank for rank, text in enumerate(natural_order(texts))}


def _kind(value: Any) -> int:
    """None first, then numbers, then text."""
    if value is None:
        return 0
    return 1 if isinstance(value, int | float) else 2


def _rank(value: Any, ranks: dict[str, int]) -> tuple[int, float]:
    kind = _kind(value)
    return kind, (0, value, ranks.get(str(value), 0))[kind]


@pass_environment
def natsort(
    environment: Environment, values: Iterable[Any], attribute: str | None = None, *, reverse: bool = False
) -> list[Any]:
    """Sort naturally (``pod-9`` before ``pod-10``) by the values or by ``attribute`` (may be dotted).

    None comes first, then numbers, then texts; equal ones keep their order.

    Raises:
        InvalidValueError: an item has no such attribute.

    """
    items = list(values)
    return _by_rank(items, _values(environment, items, attribute), reverse=reverse)


@pass_environment
def unique_by(environment: Environment, values: Iterable[Any], attribute: str | None = None) -> list[Any]:
    """Return the first item of each value (or of each value of ``attribute``), in the order given.

    Raises:
        InvalidValueError: an item has no such attribute.

    """
    seen: set[tuple[int, str]] = set()
    kept = []
    items = list(values)
    for item, value in zip(items, _values(environment, items, attribute), strict=True):
        key = (_kind(value), str(value))
        if key not in seen:
            seen.add(key)
            kept.append(item)
    return kept


@pass_environment
def group_by(environment: Environment, values: Iterable[Any], attribute: str) -> list[Group]:
    """Group items by ``attribute``: groups sorted as by :func:`natsort`, items in the order given.

    Raises:
        InvalidValueError: an item has no such attribute.

    """
    groups: dict[tuple[int, str], Group] = {}
    items = list(values)
    for item, value in zip(items, _values(environment, items, attribute), strict=True):
        groups.setdefault((_kind(value), str(value)), Group(value, [])).list.append(item)
    found = list(groups.values())
    return _by_rank(found, [group.grouper for group in found])


def port_named(ports: Iterable[Any], name: object) -> int:
    """Return the number of the port that is called ``name``, or has that number, in a list with ``name`` and ``port``.

    Raises:
        InvalidValueError: there is none, or several; the remedy lists the ports.

    """
    listed = list(ports)
    wanted = str(name)
    found = {
        int(field_of(port, "port"))
        for port in listed
        if wanted in (str(field_of(port, "name") or ""), str(field_of(port, "port")))
    }
    if len(found) == 1:
        return found.pop()
    known = [f"{field_of(port, 'name') or '(unnamed)'}={field_of(port, 'port')}" for port in listed]
    if found:
        raise InvalidValueError(f"several ports are called {shown(name)}", f"there is: {', '.join(known)}")
    names = [str(field_of(port, "name") or field_of(port, "port")) for port in listed]
    remedy = f"there is: {', '.join(known)}" if known else "there is no port at all"
    if (hint := did_you_mean(wanted, names)).startswith("did"):
        remedy = f"{hint} {remedy}"
    raise InvalidValueError(f"no port is called {shown(name)}", remedy)


FILTERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "identifier": identifier,
        "server_name": server_name,
        "server_id": server_id,
        "server_ids": server_ids,
        "servers": servers,
        "bracket": bracket,
        "hostport": hostport,
        "quote": quote,
        "format_quote": format_quote,
        "natsort": natsort,
        "unique_by": unique_by,
        "group_by": group_by,
        "port_named": port_named,
    }
)
"""Beside Jinja's own filters; ``random`` is missing, because the same Snapshot gives the same bytes."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"server_ids": server_ids, "hostport": hostport, "port_named": port_named}
)
