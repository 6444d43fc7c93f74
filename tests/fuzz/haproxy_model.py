"""A small reader of haproxy.cfg and a router over it, written for the fuzzer alone.

It shares no code with pyconfd: a mistake in pyconfd's own splitter must not hide itself. It knows just the directives
that the shipped fragments use for routing; the fuzzer compares the others by their shape.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

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


def words_of(line: str) -> list[str]:
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
    return words


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


@dataclass(frozen=True, slots=True)
class Config:
    """A parsed configuration with its map files and lists by path."""

    sections: tuple[Section, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    def frontends(self) -> Iterator[tuple[Section, tuple[Bind, ...]]]:
        """Return each frontend with its binds."""
        for section in self.sections:
            if section.header[0] in {"frontend", "listen"}:
                yield section, tuple(_binds(section))

    def backend(self, name: str) -> Section | None:
        """Return the backend of that name."""
        return next((each for each in self.sections if each.header[:2] == ("backend", name)), None)

    def entries(self, path: str) -> list[tuple[str, str]]:
        """Return keys and values of a map file in order."""
        found = []
        for line in self.files.get(path, "").split("\n"):
            key, _, value = line.strip().partition(" ")
            if key and not key.startswith("#"):
                found.append((key, value.strip()))
        return found


def parse(text: str, files: Mapping[str, str]) -> Config:
    """Parse a configuration. Lines end at a line feed and nowhere else."""
    sections: list[tuple[tuple[str, ...], list[tuple[str, ...]]]] = [(("",), [])]
    for line in text.split("\n"):
        words = tuple(words_of(line))
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


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request: where it connects to, the server name of its TLS hello or its Host header."""

    address: str
    port: int
    host: str
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Who may answer a request: the addresses of the servers, and the certificates that may be presented."""

    servers: frozenset[str]
    certificates: frozenset[str]


def route(config: Config, request: Request) -> Answer:
    """Return who may answer ``request``; where several listeners are equally specific, all of them may."""
    ranked = [
        (max((bind.rank(request.address) for bind in binds if bind.port == request.port), default=0), section, binds)
        for section, binds in config.frontends()
    ]
    best = max((rank for rank, _, _ in ranked), default=0)
    servers: set[str] = set()
    certificates: set[str] = set()
    if best:
        for rank, section, binds in ranked:
            if rank == best:
                backend = config.backend(_chosen(config, section, request))
                servers |= {line[2] for line in (backend.lines if backend else ()) if line[0] == "server"}
                for bind in binds:
                    if bind.port == request.port and bind.rank(request.address) == best:
                        certificates |= set(_certificates(config, bind, request.host))
    return Answer(frozenset(servers), frozenset(certificates))


def _certificates(config: Config, bind: Bind, host: str) -> Iterator[str]:
    for option, value in zip(bind.words, bind.words[1:], strict=False):
        if option == "crt":
            yield value
        elif option == "crt-list":
            for line in config.files.get(value, "").split("\n"):
                words = [word for word in line.split() if not word.startswith("[") and not word.endswith("]")]
                names = words[1:]
                if words and (not names or any(_matches_sni(name, host) for name in names)):
                    yield words[0]


def _matches_sni(pattern: str, host: str) -> bool:
    host = host.partition(":")[0].lower()
    return pattern == host or (pattern.startswith("*.") and host.partition(".")[2] == pattern[2:])


def _chosen(config: Config, section: Section, request: Request) -> str:
    """Return the name of the backend that a frontend chooses; "" for none."""
    bare = re.sub(r":\d+$", "", request.host).rstrip(".").lower()
    values = {"hdr(host)": request.host, "var(txn.host)": bare, "var(txn.name)": bare, "var(sess.sni)": bare}
    values |= {"var(txn.path)": "/", "str(*)": "*"}
    for line in section.lines:
        text = " ".join(line)
        if re.match(r"http-request set-var\(txn\.host\) req\.hdr\(host\),lower$", text):
            values["var(txn.host)"] = request.host.lower()
        found = _LOOKUP.match(text)
        if found and values.get(f"var({found[1]})", "") == "" and (value := values.get(found[2], "")):
            values[f"var({found[1]})"] = _looked_up(config, found[5], _converted(value, found[3], values), found[4])
    default = ""
    for line in section.lines:
        if line[0] == "use_backend" and _holds(line[2:], values):
            name = line[1]
            if variable := re.fullmatch(r"%\[(var\(\S+?\))\]", name):
                name = values.get(variable[1], "")
            if name:
                return name
        elif line[0] == "default_backend":
            default = line[1]
    return default


_LOOKUP = re.compile(
    r"(?:http-request|tcp-request content) set-var\((\w+\.(?:backend|site|route))\) (\w+\(\S+?\))"
    r"(,(?:field|concat)\(\S*?\))?,map_(str|end|beg)\((\S+?)\)"
)
"""A map that is looked up with a value, which a converter may have changed."""


def _converted(value: str, converter: str | None, values: Mapping[str, str]) -> str:
    name, _, arguments = (converter or "").strip(",)").partition("(")
    if name == "field":
        assert arguments == "2,.,0"
        return value.partition(".")[2]
    if name == "concat":
        start, variable, *end = arguments.split(",")
        return "".join((value, start, values[f"var({variable})"], *end))
    return value


def _looked_up(config: Config, path: str, value: str, kind: str) -> str:
    found = ""
    for key, result in config.entries(path):
        if value == key if kind == "str" else value.endswith(key) if kind == "end" else value.startswith(key):
            if kind != "beg":
                return result
            found = max(found, key, key=len)  # from a tree: the longest, wherever it stands
    return dict(config.entries(path)).get(found, "")


def _holds(words: tuple[str, ...], values: Mapping[str, str]) -> bool:
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
        end = next((index for index in range(at, len(words)) if words[index] == "}"), len(words))
        results[-1] = results[-1] and _test(words[at + 1 : end], values) != negated
        at = end + 1
    return any(results) if words[0] == "if" else not any(results)


def _test(words: tuple[str, ...], values: Mapping[str, str]) -> bool:
    sample, *rest = words or ("",)
    value = values.get(sample.replace("hdr_end(", "hdr("), "")
    kind, fold = "end" if sample.startswith("hdr_end(") else "str", False
    while rest and rest[0].startswith("-"):
        flag = rest.pop(0)
        fold |= flag == "-i"
        if flag == "-m":
            kind = rest.pop(0)
    if kind == "found":
        return bool(value)
    return any(_matches(kind, *((value.lower(), each.lower()) if fold else (value, each))) for each in rest)


def _matches(kind: str, value: str, pattern: str) -> bool:
    if kind == "end":
        return value.endswith(pattern)
    if kind != "reg":
        return value == pattern
    try:
        return re.search(pattern, value) is not None
    except re.error:  # of another dialect: assume the worst
        return True
