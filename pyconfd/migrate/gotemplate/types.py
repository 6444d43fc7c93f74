"""What is known of values before a template runs: so Jinja's own printing is used where it is the same as Go's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType


class Scalar(Enum):
    """Types without parts.

    ANY is not known. MIXED is one of several types that print differently, of which only a rendering knows the one.
    """

    STRING = auto()
    INT = auto()
    FLOAT = auto()
    BOOL = auto()
    NIL = auto()
    ANY = auto()
    MIXED = auto()


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of one type."""

    item: "Type"


@dataclass(frozen=True, slots=True)
class Struct:
    """A record: Go's field names to the attribute in Jinja and its type. ``str()`` of it is its Go ``String()``."""

    name: str
    fields: Mapping[str, "tuple[str, Type]"] = field(hash=False, compare=False)
    is_root: bool = field(default=False, compare=False)


Type = Scalar | ListOf | Struct


@dataclass(frozen=True, slots=True)
class Schema:
    """What a program hands to its templates.

    ``root`` is the type of ``$``; ``root_code`` how Jinja calls it as a whole. Its fields are plain names there where
    ``root`` is a Struct. ``functions`` are the program's own, by name, with the type of what they give.
    """

    root: Type
    root_code: str
    functions: Mapping[str, Type] = field(default_factory=lambda: MappingProxyType({}))


_IP = Struct("IP", MappingProxyType({}))
"""Go's ``net.IP``: it prints as its text, but is none for ``print``, which puts blanks between what is no text."""

SEVERAL = Struct("a value of several types", MappingProxyType({}))
"""One of several types that all print as texts, of which only a rendering knows the one."""

_ENDPOINT = Struct(
    "Endpoint",
    MappingProxyType(
        {
            "Name": ("name", Scalar.STRING),
            "IP": ("ip", _IP),
            "Port": ("port", Scalar.INT),
        }
    ),
)
_PORT = Struct(
    "Port",
    MappingProxyType(
        {
            "IP": ("ip", _IP),
            "Port": ("port", Scalar.INT),
            "Mode": ("mode", Scalar.STRING),
            "Protocol": ("protocol", Scalar.STRING),
        }
    ),
)
_SERVICE = Struct(
    "Service",
    MappingProxyType(
        {
            "Name": ("name", Scalar.STRING),
            "Namespace": ("namespace", Scalar.STRING),
            "Port": ("port", _PORT),
            "Endpoints": ("endpoints", ListOf(_ENDPOINT)),
            "NodePort": ("node_port", Scalar.INT),
            "External": ("external", ListOf(Scalar.STRING)),
            "Timeout": ("timeout", Scalar.INT),
        }
    ),
)
SERVER_NAME = Struct(
    "ServerName",
    MappingProxyType({"IsRegexp": ("is_regexp", Scalar.BOOL), "Regexp": ("regexp", Scalar.STRING)}),
)
_CLUSTER = Struct(
    "ClusterInformation",
    MappingProxyType(
        {
            "Services": ("services", ListOf(_SERVICE)),
            "Ports": ("ports", ListOf(_PORT)),
            "Nodes": ("nodes", ListOf(Scalar.STRING)),
            "Domain": ("domain", Scalar.STRING),
        }
    ),
    is_root=True,
)

KUBE2LB = Schema(
    _CLUSTER,
    "kube2lb",
    MappingProxyType(
        {
            "ServerNames": ListOf(SERVER_NAME),
            "EscapeNode": Scalar.STRING,
            "IntRange": ListOf(Scalar.INT),
            "Add": Scalar.INT,
            "ToLower": Scalar.STRING,
            "ToUpper": Scalar.STRING,
        }
    ),
)
"""What kube2lb hands to its templates, with the names that pyconfd's preset of that name gives."""

PLAIN = Schema(Scalar.ANY, "data")
"""Nothing is known: the data are lists, maps, texts and numbers below one name, ``data``."""


def is_unlike_text(kind: Type) -> bool:
    """Return whether values of a type print as texts here, and are none in Go, or not always."""
    return kind in (_IP, SEVERAL)


def prints_alike(kind: Type) -> bool:
    """Return whether Jinja prints every value of a type as Go does."""
    return kind in (Scalar.STRING, Scalar.INT) or (isinstance(kind, Struct) and not kind.is_root)


def has_no_text(kind: Type) -> bool:
    """Return whether a type is that of ``$``, whose fields stand alone in Jinja: nothing there prints all of it."""
    return isinstance(kind, Struct) and kind.is_root


def joined(first: Type, second: Type) -> Type:
    """Return the type of a value that has one of two types."""
    if first == second or has_no_text(first):
        return first
    if has_no_text(second):
        return second
    if Scalar.ANY in (first, second):
        return Scalar.ANY
    if isinstance(first, ListOf) and isinstance(second, ListOf):
        return ListOf(joined(first.item, second.item))
    are_texts = all(kind is Scalar.STRING or isinstance(kind, Struct) for kind in (first, second))
    return SEVERAL if are_texts else Scalar.MIXED
