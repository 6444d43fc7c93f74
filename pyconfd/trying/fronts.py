"""What a configuration on loopback can be asked, and for which names. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyconfd.haproxy.sections import Section, binds, parse
from pyconfd.model.context import Context
from pyconfd.model.rendering import FileKind, Rendering

MOST_NAMES = 2000
"""So many names are asked for at most."""

_ROUTING = frozenset({"acl", "http-request", "tcp-request", "use_backend"})
_NAME = re.compile(
    r"(?<![\w./@%:$-])(?P<any>\*\.|\.)?(?P<name>(?:[A-Za-z0-9_](?:[\w-]*[A-Za-z0-9])?\.)+[A-Za-z][A-Za-z0-9-]*)(?![\w/(.])"
)
_NO_NAMES = frozenset({"req", "res", "txn", "sess", "proc", "var", "src", "dst"})
"""First parts of samples and scopes of variables, not of host names."""


@dataclass(frozen=True, slots=True)
class Front:
    """One port on 127.0.0.1: ``proxy`` is its section, ``http`` its mode, ``tls`` where HAProxy ends TLS itself.

    ``sni`` where the name in the TLS hello decides.
    """

    proxy: str
    port: int
    http: bool
    tls: bool
    sni: bool


def fronts(text: str) -> tuple[Front, ...]:
    """Return the ports of a configuration, one for each bind of a TCP port."""
    found: list[Front] = []
    by_title = {bind.number: bind for bind in binds(text)}
    sections = tuple(_with_modes(parse(text)))
    backends = {section.name: mode for section, mode in sections if section.keyword in {"backend", "listen"}}
    for section, mode in sections:
        # HAProxy takes connections of mode tcp up to HTTP where they go to such a backend.
        default = _value(section, "default_backend")
        http = mode == "http" or (section.keyword == "frontend" and backends.get(default) == "http")
        for line in section.lines:
            bind = by_title.get(line.number)
            if bind is None or not bind.judged:
                continue
            ports = [each.rpartition(":")[2] for each in line.words[1].split(",")]
            found += [
                Front(
                    section.title.partition(" from ")[0],
                    int(port),
                    http,
                    "ssl" in line.words[2:],
                    any("ssl_sni" in other.raw for other in section.lines),
                )
                for port in ports
                if port.isdigit()
            ]
    return tuple(found)


def _with_modes(sections: Iterable[Section]) -> Iterator[tuple[Section, str]]:
    modes: dict[str, str] = {}
    latest = "tcp"
    for section in sections:
        inherits = section.options[:1] == ("from",)
        base = modes.get(section.options[1], latest) if inherits else latest
        said = _value(section, "mode")
        if section.keyword == "defaults":
            latest = modes[section.name] = said or (base if inherits else "tcp")
        yield section, said or base


def _value(section: Section, keyword: str) -> str:
    """Return the first word behind a keyword, "" without that."""
    return next((line.words[1] for line in section.lines if line.words[0] == keyword and len(line.words) > 1), "")


def names(context: Context, rendering: Rendering) -> tuple[str, ...]:
    """Return the host names that may lead somewhere, sorted: those that presets give, and those that stand in the text.

    A wildcard begins with ``*.``.
    """
    found = {*(context.dns_names or ()), *_domains(context)}
    for section in parse(rendering.text):
        if section.keyword in {"frontend", "listen"}:
            found.update(name for line in section.lines if line.words[0] in _ROUTING for name in _names_in(line.raw))
    for file in rendering.files:
        if file.kind is FileKind.MAP:
            keys = (line.split(maxsplit=1)[0] for line in file.content.splitlines() if line.strip())
            found.update(name for key in keys for name in _names_in(key))
    return tuple(sorted(found))


def _domains(context: Context) -> Mapping[str, Any]:
    given = context.names.get("domains", {})
    return given if isinstance(given, Mapping) else {}


def _names_in(text: str) -> Iterator[str]:
    for found in _NAME.finditer(text):
        if found["name"].partition(".")[0] not in _NO_NAMES:
            yield f"*.{found['name']}" if found["any"] else found["name"]


def asked(name: str) -> str:
    """Return a host name to ask for: one below a wildcard, or the name itself."""
    return f"any{name[1:]}" if name.startswith("*.") else name
