"""Which URL reaches which Service, and why others are not there: each name is asked for, on each port."""

import http.client
import re
import socket
import ssl
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pyconfd.haproxy.config.text import Section, parse
from pyconfd.model.context import Context, Refusal
from pyconfd.model.rendering import FileKind, Rendering
from pyconfd.trying.loopback import HOST, AddressOwner

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
    sections = tuple(_with_modes(parse(text)))
    backends = {section.name: mode for section, mode in sections if section.keyword in {"backend", "listen"}}
    for section, mode in sections:
        # HAProxy takes connections of mode tcp up to HTTP where they go to such a backend.
        default = _value(section, "default_backend")
        http = mode == "http" or (section.keyword == "frontend" and backends.get(default) == "http")
        sni = any("ssl_sni" in line.raw for line in section.lines)
        proxy = section.title.partition(" from ")[0]
        for line in section.lines:
            if line.words[0] == "bind":
                ports = re.findall(rf"{re.escape(HOST)}:(\d+)", line.words[1])
                found += [Front(proxy, int(port), http, "ssl" in line.words[2:], sni) for port in ports]
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
        # Not a page or a script, which are no tables.
        if file.kind is FileKind.MAP and file.path.endswith(".map"):
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


_TIMEOUT_S = 5.0
_AT_A_TIME = 16
NOBODY = "nobody.invalid"
"""A name that no configuration has. Source: RFC 2606."""


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """``stand_in`` is the name of the stand-in that answered, "" where none did; then ``code`` is HAProxy's own.

    ``code`` is 0 where nothing came back; ``location`` is where a redirect leads.
    """

    stand_in: str = ""
    code: int = 0
    location: str = ""


Question = tuple[Front, str]
"""A port, and the name that it is asked for; "" for a port that knows no names."""


def ask_all(questions: Iterable[Question]) -> dict[Question, ProbeAnswer]:
    """Ask, many at a time; return the answers by question."""
    listed = list(questions)
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="probe") as pool:
        return dict(zip(listed, pool.map(lambda each: ask(*each), listed), strict=True))


def ask(front: Front, name: str) -> ProbeAnswer:
    """Ask one port for a name; what fails is an answer too."""
    try:
        if front.http or (front.sni and name):
            return _ask_http(front, asked(name) or HOST, tls=front.tls or not front.http)
        return _ask_line(front)
    except (OSError, http.client.HTTPException, ValueError):
        return ProbeAnswer()


def _ask_http(front: Front, host: str, *, tls: bool) -> ProbeAnswer:
    plain = socket.create_connection((HOST, front.port), _TIMEOUT_S)
    connection = http.client.HTTPConnection(HOST, front.port, timeout=_TIMEOUT_S)
    connection.sock = _careless().wrap_socket(plain, server_hostname=host) if tls else plain
    try:
        connection.request("GET", "/", headers={"Host": host, "Connection": "close"})
        answer = connection.getresponse()
        location = answer.headers.get("Location", "") if 300 <= answer.status < 400 else ""
        return ProbeAnswer(answer.headers.get("X-Pod", ""), answer.status, location)
    finally:
        connection.close()
        plain.close()


def _careless() -> ssl.SSLContext:
    """Return a context that takes any certificate: they are stand-ins too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _ask_line(front: Front) -> ProbeAnswer:
    """Send a line that is neither HTTP nor redis: a stand-in answers with its name."""
    with socket.create_connection((HOST, front.port), _TIMEOUT_S) as plain:
        connection = _careless().wrap_socket(plain) if front.tls else plain
        connection.sendall(b"who\n")
        said = b""
        while not said.endswith(b"\n") and (part := connection.recv(1024)):
            said += part
        return ProbeAnswer(said.decode("utf-8", "replace").strip())


MOST_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Row:
    """``url`` reaches ``where``; ``command`` shows it."""

    url: str
    where: str
    command: str


@dataclass(frozen=True, slots=True)
class Table:
    """``rows`` is what answers, ``missing`` are sentences about what does not."""

    rows: tuple[Row, ...]
    missing: tuple[str, ...]


def questions(all_fronts: Sequence[Front], names: Sequence[str]) -> Iterator[Question]:
    """Return what to ask: each port for every name, and for one that nobody has."""
    for front in all_fronts:
        if front.http or front.sni:
            yield from ((front, name) for name in (NOBODY, *names))
        if not front.http:
            yield front, ""


def table(
    answers: Mapping[Question, ProbeAnswer],
    owners: Mapping[str, AddressOwner],
    refused: Sequence[Refusal],
) -> Table:
    """Join answers and refusals; names below a wildcard have a row where something else answers.

    ``owners`` are those of the stand-ins that the configuration names, by what these answer.
    """
    rows: list[Row] = []
    pods = Counter(service for owner in owners.values() for service in owner.services)
    counted = {service: f"{service}, {count} pod{'s' if count != 1 else ''}" for service, count in pods.items()}
    who = {
        name: " or ".join(counted[service] for service in owner.services) or owner.name
        for name, owner in owners.items()
    }
    for (front, name), answer in answers.items():
        default = answers.get((front, _wildcard(front, name, answers) or NOBODY), ProbeAnswer())
        row = _row(front, name, answer, default, who)
        if row is not None:
            rows.append(row)
    return Table(
        tuple(sorted(rows, key=lambda row: row.url)),
        (
            *(f"{each.ref} {each.field} {each.value}".rstrip() + f": {each.detail}" for each in refused),
            *_unavailable(answers),
        ),
    )


def _wildcard(front: Front, name: str, answers: Mapping[Question, ProbeAnswer]) -> str:
    """Return the nearest wildcard above a name that was asked for too, "" for none."""
    rest = name.removeprefix("*.")
    while "." in rest:
        rest = rest.partition(".")[2]
        if (front, f"*.{rest}") in answers:
            return f"*.{rest}"
    return ""


def _row(front: Front, name: str, answer: ProbeAnswer, default: ProbeAnswer, who: Mapping[str, str]) -> Row | None:
    where = who.get(answer.stand_in, answer.stand_in)
    same = where == who.get(default.stand_in, default.stand_in) and answer.location == default.location
    if name and name != NOBODY and same:
        return None
    if answer.location:
        where = f"a redirect to {answer.location}"
    elif not where and name in {"", NOBODY} and answer.code == 200:
        where = "a page of HAProxy itself"
    if not where:
        return None
    if not front.http and not name:
        return Row(f"tcp port {front.port} ({front.proxy})", where, f"nc 127.0.0.1 {front.port}   # type something")
    tls = front.tls or not front.http
    here = f"http{'s' if tls else ''}://127.0.0.1:{front.port}/"
    host = asked(name)
    if name == NOBODY:
        return Row(f"{here} (any other name)", where, f"curl{' -k' if tls else ''} {here}")
    if tls:
        # The Host header without a port, as clients of port 443 send it: rules may compare it as a whole.
        command = f"curl -k --connect-to {host}:443:127.0.0.1:{front.port} https://{host}/"
        return Row(f"https://{name}/", where, command)
    return Row(f"http://{name}/", where, f"curl -H 'Host: {host}' {here}")


def _unavailable(answers: Mapping[Question, ProbeAnswer]) -> Iterator[str]:
    """Yield a sentence for each name that HAProxy routes to a backend without a server that is up."""
    codes = [(name, answer.code) for (_front, name), answer in answers.items() if name not in {"", NOBODY}]
    for name in sorted({name for name, code in codes if code == HTTPStatus.SERVICE_UNAVAILABLE}):
        yield f"{name}: HAProxy answers 503; pyconfd explain {name} --snapshot FILE says why"


def lines(now: Table, former: Table | None) -> Iterator[str]:
    """Return the whole table, or what differs from the former one."""
    if former is None:
        yield from _rows(now.rows, "")
        if not now.rows:
            yield "  nothing answers"
        if now.missing:
            yield f"Not there ({len(now.missing)}):"
            yield from _limited([f"  {each}" for each in now.missing])
        return
    known, gone = set(former.rows), set(former.rows) - set(now.rows)
    new_urls = {row.url for row in now.rows}
    yield from _rows([row for row in now.rows if row not in known], "now ")
    yield from (f"  gone {row.url}" for row in former.rows if row in gone and row.url not in new_urls)
    before = set(former.missing)
    yield from (f"  not there {each}" for each in now.missing if each not in before)


def _rows(rows: Sequence[Row], mark: str) -> Iterator[str]:
    found: list[str] = []
    width = max((len(row.url) for row in rows), default=0)
    for row in rows:
        found += [f"  {mark}{row.url:<{width}}  ->  {row.where}", f"      {row.command}"]
    yield from _limited(found, 2 * MOST_SHOWN)


def _limited(found: Sequence[str], most: int = MOST_SHOWN) -> Iterator[str]:
    yield from found[:most]
    if len(found) > most:
        yield f"  and more: {len(found) - most} lines"
