"""A small reader of haproxy.cfg and a router over it, written for the fuzzer alone.

It shares no code with pyconfd: a mistake in pyconfd's own splitter must not hide itself. It knows just the directives
that the shipped fragments use for routing; the fuzzer compares the others by their shape.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from ipaddress import ip_address, ip_network
from itertools import pairwise
from operator import eq, ge, gt, le, lt

from pyconfd.presets.routing.paths import routed_path

SECTIONS = frozenset(
    {
        "acme",
        "backend",
        "cache",
        "crt-store",
        "defaults",
        "fcgi-app",
        "frontend",
        "global",
        "http-errors",
        "listen",
        "log-forward",
        "log-profile",
        "mailers",
        "peers",
        "program",
        "resolvers",
        "ring",
        "traces",
        "userlist",
    }
)
_ANY = frozenset({"*", "0.0.0.0", "::", ""})


_PART = re.compile(
    r"""(?P<space>[ \t\r\v\f]+)|(?P<comment>\#.*)|'(?P<strong>[^']*)'?|"(?P<weak>(?:\\.|[^"\\])*)"?"""
    r"""|(?P<plain>(?:\\.|[^ \t\r\v\f\#'"\\])+|\\)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)


@lru_cache(maxsize=65_536)
def words_of(line: str) -> tuple[str, ...]:
    """Return the words of one line as HAProxy splits them (configuration manual, section 2.2)."""
    words: list[str] = []
    inside = False
    for part in _PART.finditer(line):
        if part["comment"] is not None:
            break
        if part["space"] is not None:
            inside = False
            continue
        text = part["strong"]
        if text is None:
            text = _ESCAPE.sub(_unescaped, part["plain"] if part["weak"] is None else part["weak"])
        if inside:
            words[-1] += text
        else:
            words.append(text)
        inside = True
    return tuple(words)


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) == 3:
        return chr(int(code[1:], 16))
    return {"n": "\n", "r": "\r", "t": "\t"}.get(code, code)


@dataclass(frozen=True, slots=True)
class Section:
    """One section: its header's words and the words of each line below it."""

    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    @property
    def name(self) -> str:
        """The section's name, "" for ``global``."""
        return self.header[1] if len(self.header) > 1 else ""


@dataclass(frozen=True, slots=True)
class Bind:
    """One address of a ``bind`` line; ``words`` are its options."""

    address: str
    port: int
    words: tuple[str, ...]

    def rank(self, address: str) -> int:
        """Return how specifically it accepts a connection to ``address``; 0 is not at all.

        An exact address comes before a wildcard of its family, and that before a wildcard of both.
        Source: compute_score() of Linux's inet_hashtables.c, which prefers sockets of the connection's own family.
        """
        own = self.address.strip("[]")
        if own not in _ANY:
            return 3 if own == address else 0
        if (":" in address) == (own == "::"):
            return 2
        return 1 if own == "::" and "v6only" not in self.words else 0


@dataclass(frozen=True)
class Config:
    """A parsed configuration with its map files and lists by path."""

    sections: tuple[Section, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def frontends(self) -> list[tuple[Section, tuple[Bind, ...]]]:
        """Each frontend with its binds."""
        of_kind = (section for section in self.sections if section.header[0] in {"frontend", "listen"})
        return [(section, tuple(_binds(section))) for section in of_kind]

    def backend(self, name: str) -> Section | None:
        """Return the backend of that name, with the lines of the section that it is from before its own."""
        return self._backends.get(name)

    @cached_property
    def _backends(self) -> dict[str, Section]:
        found: dict[str, Section] = {}
        defaults = {each.name: each for each in self.sections if each.header[0] == "defaults"}
        for each in self.sections:
            if each.header[0] == "backend":
                of = defaults[each.header[3]].lines if each.header[2:3] == ("from",) else ()
                found.setdefault(each.name, Section(each.header, (*of, *each.lines)))
        return found

    def entries(self, path: str) -> list[tuple[str, str]]:
        """Return keys and values of a map file in order."""
        return _entries(self.files.get(path, ""))


@lru_cache(maxsize=1024)
def _entries(text: str) -> list[tuple[str, str]]:
    found = []
    for line in text.split("\n"):
        key, _, value = line.strip().partition(" ")
        if key and not key.startswith("#"):
            found.append((key, value.strip()))
    return found


@lru_cache(maxsize=1024)
def _by_key(text: str) -> dict[str, str]:
    return dict(reversed(_entries(text)))


def parse(text: str, files: Mapping[str, str]) -> Config:
    """Parse a configuration. Lines end at a line feed and nowhere else."""
    sections: list[tuple[tuple[str, ...], list[tuple[str, ...]]]] = [(("",), [])]
    for line in text.split("\n"):
        words = words_of(line)
        if words and words[0] in SECTIONS:
            sections.append((words, []))
        elif words:
            sections[-1][1].append(words)
    return Config(tuple(Section(header, tuple(lines)) for header, lines in sections), files)


def _binds(section: Section) -> Iterator[Bind]:
    for line in section.lines:
        if line[0] == "bind":
            for each in line[1].split(","):
                address, _, port = each.rpartition(":")
                if port.isdigit():
                    yield Bind(address, int(port), line[2:])


def is_inner(section: Section) -> bool:
    """Return whether nobody but the script of external authentication connects to a frontend: over sockets of its own.

    No client and no server reaches it: it has no other bind, and :func:`tests.fuzz.edge.targets` wants no server there.
    """
    binds = [line for line in section.lines if line[0] == "bind"]
    return bool(binds) and all(
        line[1].startswith(("unix@", "abns@")) and ("name", "_auth") in pairwise(line) for line in binds
    )


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request: where it connects to, its Host header, and the path.

    ``sni`` is the server name of its TLS hello, None for that of the host. ``listener`` is the name of the bind that it
    came to, ``source`` the client's address. Names of ``headers`` are in lower case, as HAProxy has them.
    """

    address: str
    port: int
    host: str
    path: str = "/"
    sni: str | None = None
    listener: str = ""
    source: str = "198.51.100.1"
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The host without its port and final dot, in lower case."""
        return re.sub(r":\d+$", "", self.host).rstrip(".").lower()

    @property
    def hello(self) -> str:
        """The name in the hello."""
        return self.name if self.sni is None else self.sni


@dataclass(frozen=True, slots=True)
class Answer:
    """Who may answer a request: the addresses of the servers, and the certificates that may be presented."""

    servers: frozenset[str]
    certificates: frozenset[str]


def route(config: Config, request: Request) -> Answer:
    """Return who may answer ``request``; where several listeners are equally specific, all of them may.

    A server that is another listener of the same HAProxy is followed.
    """
    ranked = [
        (max((bind.rank(request.address) for bind in binds if bind.port == request.port), default=0), section, binds)
        for section, binds in config.frontends
    ]
    best = max((rank for rank, _, _ in ranked), default=0)
    servers: set[str] = set()
    certificates: set[str] = set()
    if best:
        for rank, section, binds in ranked:
            if rank == best:
                servers |= _servers(config, section, request, certificates)
                for bind in binds:
                    if bind.port == request.port and bind.rank(request.address) == best:
                        certificates |= set(_certificates(config, bind.words, request.hello))
    return Answer(frozenset(servers), frozenset(certificates))


def answering(config: Config, section: Section, request: Request) -> frozenset[str]:
    """Return the servers that may answer a request which has come to a frontend."""
    return frozenset(_servers(config, section, request, set()))


def _servers(config: Config, section: Section, request: Request, certificates: set[str]) -> set[str]:
    """Return the servers of the backend that a frontend chooses; add the certificates of listeners on the way."""
    samples = Samples(config, request)
    backend = config.backend(_chosen(section, samples))
    found: set[str] = set()
    for line in backend.lines if backend and _passes(backend, samples) else ():
        if line[0] != "server":
            continue
        behind = [(each, words) for each, words in _inner(config, line[2])]
        for each, words in behind:
            certificates |= set(_certificates(config, words, request.hello))
            name = dict(pairwise(words)).get("name", "")
            found |= _servers(config, each, replace(request, listener=name), certificates)
        if not behind:
            found.add(line[2])
    return found


def _inner(config: Config, address: str) -> Iterator[tuple[Section, tuple[str, ...]]]:
    if address.startswith(("unix@", "abns@")):
        for section, _ in config.frontends:
            yield from ((section, line[2:]) for line in section.lines if line[:2] == ("bind", address))


def _certificates(config: Config, options: tuple[str, ...], host: str) -> Iterator[str]:
    """Return the certificates for a name: those for just this name, else those for a wildcard, else the default."""
    exact: list[str] = []
    by_wildcard: list[str] = []
    default: list[str] = []
    for option, value in pairwise(options):
        if option == "crt":
            default.append(value)
        elif option == "crt-list":
            for line in config.files.get(value, "").split("\n"):
                path, *names = [w for w in line.split() if not w.startswith("[") and not w.endswith("]")] or [""]
                if path and (not names or host in names):
                    exact.append(path)
                elif path and f"*.{host.partition('.')[2]}" in names:
                    by_wildcard.append(path)
    yield from exact or by_wildcard or default


_ENDS_CONNECTION = re.compile(
    r"tcp-request (?:connection|content) (?:reject|accept)\b|http-request (?:deny|return|redirect|auth)\b"
)
_SET = re.compile(r"(?:http-request|tcp-request content) set-var(?:-fmt)?\((\S+?)\) (\S+)(.*)$", re.DOTALL)
_UNSET = re.compile(r"http-request unset-var\((\S+?)\)")


def shared_tls(config: Config) -> Section | None:
    """Return the frontend of the shared port with TLS: https-in, or https-terminate where no name is read before."""
    found = {section.name: section for section, _ in config.frontends}
    return found.get("https-in", found.get("https-terminate"))


def chosen(config: Config, section: Section, request: Request) -> str:
    """Return the name of the backend that a frontend chooses; "" for none."""
    return _chosen(section, Samples(config, request))


def _chosen(section: Section, samples: "Samples") -> str:
    if not _passes(section, samples):
        return ""
    for line in section.lines:
        if line[0] == "use_backend" and samples.holds(line[2:]):
            name: str | None = line[1]
            if variable := re.fullmatch(r"%\[(var\(\S+?\))\]", line[1]):
                name = samples.of(variable[1])
            if name:
                return name
    return next((line[1] for line in section.lines if line[0] == "default_backend"), "")


def _passes(section: Section, samples: "Samples") -> bool:
    """Apply the rules of a section; return whether none of them ends the request or its connection."""
    accepted = False
    for line in section.lines:
        rule = _rule(line)
        if rule is None or (accepted and line[0] == "tcp-request"):
            continue
        found, unset, condition = rule
        if not samples.holds(condition):
            continue
        if found:
            value = samples.text(found[2]) if "set-var-fmt" in found[0] else samples.of(found[2])
            if value is not None:
                samples.variables[found[1]] = value
        elif unset:
            samples.variables.pop(unset[1], None)
        elif line[2] == "accept":
            accepted = True
        else:
            return False
    return True


@lru_cache(maxsize=65_536)
def _rule(line: tuple[str, ...]) -> tuple[re.Match[str] | None, re.Match[str] | None, tuple[str, ...]] | None:
    """Return what a rule sets, what it unsets, and its condition; None for a line that is none of these."""
    text = " ".join(line)
    found, unset = _SET.match(text), _UNSET.match(text)
    if not (found or unset or _ENDS_CONNECTION.match(text)):
        return None
    at = next((index for index, word in enumerate(line) if word in {"if", "unless"}), len(line))
    return found, unset, line[at:]


_EDIT = re.compile(r"http-request (del|set|add)-header$")
_FORMAT = re.compile(r"%\[([^]]+)\]")


def passed_headers(config: Config, section: Section, request: Request) -> list[tuple[str, str]]:
    """Return the headers of a request as the rules of a frontend leave them."""
    samples = Samples(config, request)
    for line in section.lines:
        text = " ".join(line)
        at = next((index for index, word in enumerate(line) if word in {"if", "unless"}), len(line))
        edit, found = _EDIT.match(" ".join(line[:2])), _SET.match(text)
        if not (edit or found) or not samples.holds(line[at:]):
            continue
        if found:
            if (value := samples.of(found[2])) is not None:
                samples.variables[found[1]] = value
        elif edit:
            kind = "reg" if line[3:5] == ("-m", "reg") else "str"
            named = line[2] if kind == "reg" else line[2].lower()
            kept = [each for each in samples.request.headers if edit[1] == "add" or not _matches(kind, each[0], named)]
            if edit[1] != "del":
                kept.append((line[2].lower(), samples.text(line[3])))
            samples = replace(samples, request=replace(samples.request, headers=tuple(kept)))
    return list(samples.request.headers)


@dataclass(frozen=True, slots=True)
class Samples:
    """The values of samples for one request; None is one that is not found, or not known here."""

    config: Config
    request: Request
    variables: dict[str, str] = field(default_factory=dict)

    def of(self, expression: str) -> str | None:
        """Return the value of a fetch with its converters."""
        fetch, *converters = _parts(expression)
        value = self._fetched(*_call(fetch))
        if "regsub(" in expression:  # of paths only: test_paths_live.py holds this against a real HAProxy
            return None if value is None else routed_path(value) or value
        for each in converters:
            if value is None:
                return None
            value = self._converted(value, *_call(each))
        return value

    def text(self, format_: str) -> str:
        """Return what a format comes to, in which samples stand as ``%[...]``."""
        parts = _FORMAT.split(format_)  # the expressions are at odd places
        return "".join((self.of(part) or "") if place % 2 else part for place, part in enumerate(parts))

    def _fetched(self, name: str, argument: str) -> str | None:
        request = self.request
        if name == "var":
            return self.variables.get(argument)
        known = {
            "str": argument,
            "path": request.path,
            "dst": request.address,
            "src": request.source,
            "so_name": request.listener,
            "req.ssl_sni": request.hello,
            "ssl_fc_sni": request.hello,
            "req.ssl_hello_type": "1",
        }
        if name in {"hdr", "req.hdr"} and argument.lower() == "host":
            return request.host
        if name in {"hdr", "req.hdr"}:
            return dict(request.headers).get(argument.lower())
        return known.get(name)

    def _converted(self, value: str, name: str, argument: str) -> str | None:
        first, *others = argument.split(",")
        if name == "concat":
            variable, *end = others or ("",)
            return "".join((value, first, self.variables.get(variable, ""), *end))
        if name == "field":
            assert argument == "2,.,0"
            return value.partition(".")[2]
        if name == "strcmp":
            return "0" if value == self.variables.get(first) else "1"
        if name == "hex":  # of an address, which is all that it is used for
            return ip_address(value).packed.hex().upper()
        if name == "bytes":
            offset, *length = map(int, argument.split(","))
            return value[offset:][: length[0]] if length else value[offset:]
        if name == "length":
            return str(len(value.encode()))
        if name.startswith("map_"):
            return self._looked_up(value, name.removeprefix("map_"), first, others[0] if others else None)
        return {"lower": value.lower(), "host_only": re.sub(r":\d+$", "", value), "rtrim": value.rstrip(argument)}.get(
            name
        )

    def _looked_up(self, value: str, kind: str, path: str, default: str | None) -> str | None:
        entries = self.config.entries(path)
        if kind == "beg":  # from a tree: the longest, wherever it stands
            known = _by_key(self.config.files.get(path, ""))
            found = next((value[:length] for length in range(len(value), 0, -1) if value[:length] in known), None)
            return default if found is None else known[found]
        for key, result in entries:
            if _matches_map(kind, value, key):
                return result
        return default

    def holds(self, words: tuple[str, ...]) -> bool:
        """Evaluate ``if { SAMPLE FLAGS PATTERN... }``, with ``||`` between; whatever else stands there holds."""
        if not words:
            return True
        results = [True]
        at = 1
        while at < len(words):
            if words[at] in {"||", "or"}:
                results.append(True)
                at += 1
                continue
            negated = words[at] == "!" or words[at] == "!{"
            if words[at] == "!":
                at += 1
            if words[at] != "{" and not negated:  # the name of an acl
                at += 1
                continue
            end = next((index for index in range(at, len(words)) if words[index] == "}"), len(words))
            results[-1] = results[-1] and self._test(words[at + 1 : end]) != negated
            at = end + 1
        return any(results) if words[0] == "if" else not any(results)

    def _test(self, words: tuple[str, ...]) -> bool:
        sample, *rest = words or ("",)
        kind, fold = "str", False
        for each in ("end", "beg"):
            if _call(sample)[0].endswith(f"_{each}"):
                kind, sample = each, sample.replace(f"_{each}", "", 1)
        value = self.of(sample)
        while rest and rest[0].startswith("-"):
            flag = rest.pop(0)
            if flag == "--":
                break
            fold |= flag == "-i"
            if flag == "-m":
                kind = rest.pop(0)
        if kind == "found" or value is None:
            return value is not None
        if kind == "len":
            first, _, last = rest[0].partition(":")
            return int(first) <= len(value) <= int(last or first)
        if rest[0] in _COMPARED:
            return _COMPARED[rest[0]](int(value), int(rest[1]))
        return any(_matches(kind, *((value.lower(), each.lower()) if fold else (value, each))) for each in rest)


@lru_cache(maxsize=65_536)
def _parts(expression: str) -> list[str]:
    """Return the fetch and the converters of an expression."""
    return re.findall(r"[^,(]+(?:\([^)]*\))?", expression) or [""]


@lru_cache(maxsize=65_536)
def _call(text: str) -> tuple[str, str]:
    name, _, rest = text.partition("(")
    return name, rest.removesuffix(")")


_COMPARED: Mapping[str, Callable[[int, int], bool]] = {"eq": eq, "ge": ge, "gt": gt, "le": le, "lt": lt}


def _matches_map(kind: str, value: str, key: str) -> bool:
    if kind == "reg":
        return _matches(kind, value, key)
    if kind == "ip":
        return ip_address(value) in ip_network(key)
    return value.endswith(key) if kind == "end" else value == key


def _matches(kind: str, value: str, pattern: str) -> bool:
    if kind == "end":
        return value.endswith(pattern)
    if kind == "beg":
        return value.startswith(pattern)
    if kind == "sub":
        return pattern in value
    if kind != "reg":
        return value == pattern
    try:
        return re.search(pattern, value) is not None
    except re.error:  # of another dialect: assume the worst
        return True
