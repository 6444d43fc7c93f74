r"""The server names of preset ``kube2lb``: external domains with regular expressions, name templates in Go's form.

``kube2lb/external-domains`` is a list separated by commas. An entry that begins with ``~`` is a regular expression, and
a comma inside its brackets, parentheses or braces belongs to it: ``~^a{1,2}\.example\.com$,b.example.com`` is two
entries. Spaces and line breaks around entries do not count.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyconfd.predecessors.kube2lb.templates import compile_template
from pyconfd.presets import values
from pyconfd.presets.policy import PortRanges

if TYPE_CHECKING:  # settings read this module, and start faster without what templates see
    from pyconfd.predecessors.kube2lb.claims import Kube2lbService

LONGEST_EXPRESSION = 253
"""As long as a host name can be."""

DEFAULT_SERVER_NAME = "{{ .Service.Name }}.{{ .Service.Namespace }}.svc.{{ .Domain }}"
"""kube2lb's own default; a template in Go's form."""


@dataclass(frozen=True, slots=True)
class Kube2lbOptions:
    """The settings of preset ``kube2lb``: what its predecessor's flags of these names said.

    ``server_name_templates`` are known to be readable (:func:`name_template`). ``listen_ports``: what Services may have
    bound.
    """

    domain: str = "local"
    default_lb_ip: str = "0.0.0.0"  # noqa: S104 - the predecessor's default
    default_port_mode: str = "http"
    server_name_templates: tuple[str, ...] = (DEFAULT_SERVER_NAME,)
    listen_ports: PortRanges = ((1, 21), (23, 32767))


_REMEMBERED = 32768
"""How many texts are read once for all: nearly all are the same at the next translation."""

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(
    r"\\[.dDwWsSb-]"
    r"|\{[0-9]{1,3}(?:,[0-9]{0,3})?\}"
    r"|\((?:\?:|(?!\?))"
    r"|\[\^?(?:\.|[A-Za-z0-9_-][A-Za-z0-9_.-]*)\]"
    r"|\$(?=$|[)|])"
    r"|[A-Za-z0-9_.:^)|*+?-]",
    re.ASCII,
)
_FIRST = re.compile(r"[A-Za-z0-9_.^(\[\\]", re.ASCII)
_CONDITION_WORDS = frozenset({"or", "if", "unless"})
_WIDEST_REPEAT = 255
_MOST_UNLIMITED = 3
"""How many ``*``, ``+`` and ``{n,}`` one expression may have: each multiplies the time by the length of the host."""


class ServerName(str):
    """A name by which clients ask for a service; with ``is_regexp`` it prints with its ``~``, ``regexp`` lacks that."""

    __slots__ = ()

    @property
    def is_regexp(self) -> bool:
        """Whether it is a regular expression."""
        return self.startswith("~")

    @property
    def regexp(self) -> str:
        """The expression without its ``~``; the name itself where it is none."""
        return self.removeprefix("~")


def split_domains(text: str) -> Iterator[str]:
    """Return the entries of an annotation, stripped; empty ones are left out."""
    entry, open_, escaped = "", [""], False
    for char in text:
        is_regexp = entry.lstrip().startswith("~")
        if char == "," and not (is_regexp and (open_[-1] or escaped)):
            if entry.strip():
                yield entry.strip()
            entry, open_, escaped = "", [""], False
            continue
        entry += char
        if is_regexp and not escaped:
            if char == open_[-1]:
                open_.pop()
            elif char in _CLOSING and open_[-1] != "]":
                open_.append(_CLOSING[char])
        escaped = char == "\\" and not escaped
    if entry.strip():
        yield entry.strip()


@lru_cache(maxsize=_REMEMBERED)
def external_domains(text: str) -> tuple[tuple[ServerName, ...], tuple[tuple[str, str], ...]]:
    """Return the names of an annotation without doubles, and each entry that is none with what is wrong with it."""
    names: dict[ServerName, None] = {}
    wrong = []
    for entry in split_domains(text):
        try:
            names[external_domain(entry)] = None
        except ValueError as error:
            wrong.append((entry, str(error)))
    return tuple(names), tuple(wrong)


def external_domain(entry: str) -> ServerName:
    """Return an entry as a server name.

    Raises:
        ValueError: It is neither a host name nor an expression that may stand in a configuration.
    """
    if not entry.startswith("~"):
        return ServerName(values.host_name(entry))
    expression = entry[1:]
    check_expression(expression)
    return ServerName(f"~{expression}")


def check_expression(expression: str) -> None:
    """Accept the regular expressions that mean the same in HAProxy, nginx and Caddy, quoted or not, and end in time.

    No spaces, quotes, comments, variables (``$x``, ``${x}``, ``{x}``) or escapes that a configuration would read for
    itself; a group that repeats holds no repetition, since that could keep the balancer busy for minutes.

    Raises:
        ValueError: It is another one; the message says why.
    """
    if not expression or len(expression) > LONGEST_EXPRESSION:
        raise ValueError(f"not a regular expression of 1 to {LONGEST_EXPRESSION} characters")
    if not _FIRST.match(expression) or expression in _CONDITION_WORDS:
        raise ValueError("a regular expression must begin with a letter, a digit, '^', '.', '(', '[' or '\\'")
    tokens = []
    position = 0
    while position < len(expression):
        found = _TOKEN.match(expression, position)
        if not found:
            part = values.shortened(expression[position : position + 8])
            raise ValueError(f"the regular expression has something that is not allowed at {part!r}")
        tokens.append(found[0])
        position = found.end()
    _check_repeats(tokens)
    try:
        re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {values.shortened(str(error))}") from None


def _check_repeats(tokens: list[str]) -> None:
    """Refuse what can take long: repeated groups that hold a repetition or alternatives, and many or wide repeats."""
    branching = [False]
    closed = False
    unlimited = 0
    former = ""
    for part in tokens:
        is_repeat = part in "*+?" or part.startswith("{")
        if is_repeat and former and part != "?":
            raise ValueError("a repetition of a repetition")
        if is_repeat and part != "?":
            unlimited += part in "*+" or part.endswith(",}")
            widest = max(map(int, re.findall("[0-9]+", part)), default=0)
            if closed or widest > _WIDEST_REPEAT or unlimited > _MOST_UNLIMITED:
                raise ValueError(
                    "the regular expression could take very long: a repeated group holds a repetition or alternatives,"
                    f" a repetition is wider than {_WIDEST_REPEAT}, or there are more than {_MOST_UNLIMITED} of * and +"
                )
            branching[-1] = True
        elif part == "|" and len(branching) > 1:
            branching[-1] = True
        if part.startswith("("):
            branching.append(False)
        closed = False
        if part == ")" and len(branching) > 1:
            closed = branching.pop()
            branching[-1] = branching[-1] or closed
        former = part if is_repeat else ""


@lru_cache(maxsize=_REMEMBERED)
def _server_name(text: str, *, is_expression: bool) -> ServerName:
    return external_domain(text) if is_expression else ServerName(values.host_name(text))


_Given = tuple["Kube2lbService", str]


def _of_service(read: Callable[["Kube2lbService"], object]) -> Callable[[Any], object]:
    return lambda given: read(given[0])


_FIELDS: Mapping[str, Callable[[Any], object]] = MappingProxyType(
    {
        ".Domain": lambda given: given[1],
        ".Service": _of_service(str),
        ".Service.String": _of_service(str),
        ".Service.Name": _of_service(lambda service: service.name),
        ".Service.Namespace": _of_service(lambda service: service.namespace),
        ".Service.NodePort": _of_service(lambda service: service.node_port),
        ".Service.Timeout": _of_service(lambda service: service.timeout),
        ".Service.Port": _of_service(lambda service: str(service.port)),
        ".Service.Port.String": _of_service(lambda service: str(service.port)),
        ".Service.Port.IP": _of_service(lambda service: service.port.ip),
        ".Service.Port.Port": _of_service(lambda service: service.port.port),
        ".Service.Port.Mode": _of_service(lambda service: service.port.mode),
        ".Service.Port.Protocol": _of_service(lambda service: service.port.protocol),
    }
)
_LITERAL = re.compile(r"[A-Za-z0-9_.*-]*", re.ASCII)
_EXPRESSION = re.compile(r"[!-z|}~]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class NameTemplate:
    """A server name with Go's actions in it, such as ``{{ .Service.Name }}.example.com``."""

    text: str
    _render: Callable[[_Given], str]

    def name(self, service: "Kube2lbService", domain: str) -> ServerName:
        """Return the name of ``service``; a regular expression where the template begins with ``~``.

        Raises:
            ValueError: What comes out is neither.
        """
        return _server_name(self._render((service, domain)), is_expression=self.text.startswith("~"))


@lru_cache(maxsize=256)
def name_template(text: str) -> NameTemplate:
    """Read a server-name template.

    Raises:
        ValueError: It has an action that is not understood, or other text than a host name's, or an expression's.
    """
    allowed = _EXPRESSION if text.startswith("~") else _LITERAL

    def check(literal: str) -> None:
        if not allowed.fullmatch(literal):
            raise ValueError(f"{literal!r} cannot be a part of a host name")

    if not text or text == "~":
        raise ValueError("the template is empty")
    return NameTemplate(text, compile_template(text, _FIELDS, check))
