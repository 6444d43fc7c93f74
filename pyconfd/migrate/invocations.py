"""Command lines, environment files, units, Dockerfiles and manifests to the options that stand in them."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import dropwhile

from pyconfd.migrate.options import COMMANDS, PROGRAMS, Form, option_for_flag, option_for_variable
from pyconfd.migrate.report import System

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_UNIT_LINES = ("ExecStart", "ExecStartPre", "ExecReload", "ExecStartPost")
_UNIT = re.compile(r"^\[Service\]\s*$", re.MULTILINE)
_ENDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "done", "2>&1", "<"})
_CONTAINERS = frozenset({"docker", "podman"})
_RUNS = frozenset({"run", "create", "exec"})
"""The commands of docker behind which a program's words stand."""

_SWITCHES = frozenset(
    {"--detach", "--init", "--interactive", "--no-healthcheck", "--oom-kill-disable", "--privileged", "--publish-all"}
    | {"--quiet", "--read-only", "--rm", "--sig-proxy", "--tty"}
)
"""Options of ``docker run`` without a value; any other takes the next word."""

_LETTERS = frozenset("-dqitP")
"""The same, of one letter."""

_MENTIONS = frozenset(
    {"ADD", "COPY", "chmod", "chown", "cp", "docker-compose", "echo", "flake8", "install", "kill", "killall", "ln"}
    | {"ls", "mkdir", "mv", "pip", "pkill", "printf", "pylint", "rm", "tar", "test", "touch", "["}
)
"""Commands that name a program's file, and do not start it."""

_WITHOUT_VALUE = (Form.NOTHING, Form.COUNT)
_DOLLAR = "\ue000"
"""Stands for a dollar sign that names no variable."""
_REFERENCE = re.compile(r"\$(?:\{(\w+)(?::?-([^{}]*))?\}|\((\w+)\)|(\w+))")
"""``${NAME}``, ``${NAME:-default}`` and ``$NAME`` of shells and units, ``$(NAME)`` of manifests."""


@dataclass(frozen=True, slots=True)
class Given:
    """One option as it was given: ``kind`` is "flag", "variable", "command", "word" or "unreadable".

    "sourced" is a variable of a manifest whose value stands elsewhere, as ``value`` says; without a name it is many.
    """

    kind: str
    name: str
    value: str
    line: int


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return each line with those that a final backslash adds, and its number."""
    number, held = 0, ""
    for index, line in enumerate(text.splitlines(), start=1):
        begin = number or index
        if line.rstrip().endswith("\\") and not line.lstrip().startswith("#"):
            number, held = begin, held + line.rstrip()[:-1] + " "
            continue
        yield begin, held + line
        number, held = 0, ""
    if held:
        yield number, held


def read(system: System, text: str) -> Iterator[Given]:
    """Return every option of a text, line by line; never raises."""
    is_unit = bool(_UNIT.search(text))
    for line, content in logical_lines(text):
        if not is_unit or content.strip().startswith((*_UNIT_LINES, "Environment")):
            yield from read_line(system, content, line)


def read_line(system: System, content: str, line: int) -> Iterator[Given]:
    """Return the options of one logical line."""
    stripped = content.strip()
    if not stripped or stripped.startswith(("#", "[", ";")):
        return
    key, sign, rest = stripped.partition("=")
    words = stripped
    if sign and key.strip() in _UNIT_LINES:
        words = rest.strip().lstrip("-@+!:")
    elif sign and key.strip() == "Environment":
        words = rest
    elif sign and key.strip() == "EnvironmentFile":
        yield Given("word", "EnvironmentFile", rest.strip().lstrip("-"), line)
        return
    elif stripped.startswith("ENV "):
        words = _dockerfile(stripped[4:].strip())
    elif stripped.startswith(("CMD", "ENTRYPOINT")) and "[" in stripped:
        words = " ".join(re.findall(r'"(?:[^"\\]|\\.)*"', stripped))
    try:
        tokens = shlex.split(_with_plain_dollars(words), comments=True)
    except ValueError as error:
        if any(program in stripped for program in PROGRAMS[system]) or _ASSIGNMENT.match(stripped):
            yield Given("unreadable", stripped[:60], str(error), line)
        return
    yield from read_tokens(system, tokens, line)


def _with_plain_dollars(words: str) -> str:
    """Return words with every dollar sign that a shell takes as it is replaced by a stand-in."""
    given: list[str] = []
    quote, escaped = "", False
    for char in words:
        if char == "$" and (escaped or quote == "'"):
            if escaped:
                given.pop()
            given.append(_DOLLAR)
        else:
            given.append(char)
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
    return "".join(given)


def expanded(text: str, variables: Mapping[str, str]) -> tuple[str, str]:
    """Return a value with the variables put in, and the name of the first one that is not known ("" for none)."""
    given = [(_name_in(found), found[2]) for found in _REFERENCE.finditer(text)]
    missing = [name for name, default in given if name not in variables and default is None]
    value = _REFERENCE.sub(
        lambda found: variables.get(_name_in(found), found[0] if found[2] is None else found[2]), text
    )
    return value.replace(_DOLLAR, "$"), missing[0] if missing else ""


def _name_in(found: re.Match[str]) -> str:
    return found[1] or found[3] or found[4]


def _dockerfile(rest: str) -> str:
    name, blank, value = rest.partition(" ")
    return f"{name}={shlex.quote(value.strip())}" if blank and "=" not in name else rest


def read_tokens(system: System, tokens: list[str], line: int) -> Iterator[Given]:
    """Return the options of the words of one command or of a list of assignments."""
    rest = list(tokens)
    if whole := _value_with_blanks(system, rest):
        yield Given("variable", *whole, line)
        return
    while rest and (rest[0] in {"export", "env", "exec", "sudo"} or _ASSIGNMENT.fullmatch(rest[0])):
        if found := _ASSIGNMENT.fullmatch(rest.pop(0)):
            yield Given("variable", found[1], found[2], line)
    while rest:
        end = next((index for index, word in enumerate(rest) if word in _ENDS), len(rest))
        yield from _command(system, rest[:end], line)
        del rest[: end + 1]


def _command(system: System, words: list[str], line: int) -> Iterator[Given]:
    """Return the options of one command."""
    rest = list(words)
    # A line of a Makefile may begin with @, - or +.
    named = [word.lstrip("@-+") for word in rest[:3]]
    if any(word in _CONTAINERS for word in named):
        yield from _container(system, rest, line)
        return
    if named and named[0] in _MENTIONS:
        rest = list(dropwhile(lambda word: not word.endswith(";"), rest))[1:]
    while rest:
        if _is_program(system, rest.pop(0)):
            yield from _program(system, rest, line)


def _container(system: System, rest: list[str], line: int) -> Iterator[Given]:
    """Return the variables of ``docker run``, and the options behind its image."""
    while rest and rest[0] not in _RUNS:
        del rest[0]  # "docker build -t IMAGE ." names the program's image, and starts nothing
    is_exec = rest[:1] == ["exec"]
    del rest[:1]
    while rest and rest[0].startswith("-"):
        name, sign, value = rest.pop(0).partition("=")
        is_short = not name.startswith("--")
        if is_short and len(name) > 2 and name[1] not in _LETTERS:
            name, value, sign = name[:2], f"{name[2:]}{sign}{value}", "="
        takes_next = not sign and name not in _SWITCHES and not (is_short and _LETTERS.issuperset(name))
        value = rest.pop(0) if takes_next and rest else value
        if name == "--env-file":
            yield Given("word", name, value, line)
        elif name in {"-e", "--env"} and (found := _ASSIGNMENT.fullmatch(value)):
            yield Given("variable", found[1], found[2], line)
    if not rest:
        return
    image = rest.pop(0)
    if not is_exec and _is_program(system, image) and _is_for_entrypoint(system, rest):
        yield from _program(system, rest, line)
        return
    while rest:
        if _is_program(system, rest.pop(0)):
            yield from _program(system, rest, line)


def _is_for_entrypoint(system: System, rest: list[str]) -> bool:
    """Return whether the words behind the program's image are its own, and no other command such as a shell."""
    return bool(rest) and (rest[0].startswith("-") or rest[0] in COMMANDS.get(system, {}) or rest[0] == "...")


def _value_with_blanks(system: System, tokens: list[str]) -> tuple[str, str] | None:
    """Return name and value of ``NAME=a command`` in an environment file, which needs no quotes there.

    A shell would run the command's second word, which is never what is meant of an option that is a command.
    """
    found = _ASSIGNMENT.fullmatch(tokens[0]) if len(tokens) > 1 else None
    option = option_for_variable(system, found[1]) if found else None
    if found is None or option is None or option.form is not Form.COMMAND:
        return None
    if any(word in _ENDS or word == "export" or _ASSIGNMENT.fullmatch(word) for word in tokens[1:]):
        return None
    if found[2].endswith(";") or any(_is_program(system, word) for word in tokens[1:]):
        return None
    return found[1], shlex.join([found[2], *tokens[1:]])


def _is_program(system: System, word: str) -> bool:
    """Return whether a word is the program's path, or its image with or without a tag."""
    name = word.rpartition("/")[2].partition(":")[0]
    return any(name == program.rpartition("/")[2] for program in PROGRAMS[system])


def _program(system: System, rest: list[str], line: int) -> Iterator[Given]:
    """Take the words after the program's name, up to where its command ends."""
    while rest and rest[0] not in _ENDS:
        word = rest.pop(0)
        ends, word = word.endswith(";"), word.removesuffix(";")
        if not word.startswith("-") or word == "-":
            known = COMMANDS.get(system, {})
            if word in known:
                yield Given("command", word, "", line)
            elif word and not _is_program(system, word) and word != "...":
                yield Given("word", word, "", line)
        else:
            yield from _flag(system, word, rest, line)
        if ends:
            return


def _flag(system: System, word: str, rest: list[str], line: int) -> Iterator[Given]:
    name, sign, value = word.partition("=")
    option = option_for_flag(system, name)
    if option is not None and option.form is Form.COUNT:
        yield Given("flag", name, value or str(len(name.lstrip("-")) if name.startswith("-v") else 1), line)
        return
    takes_value = option is None or option.form not in _WITHOUT_VALUE
    if not sign and takes_value and rest and not rest[0].startswith("-") and rest[0] not in _ENDS:
        value = rest.pop(0)
        if value.endswith(";") and not rest:
            value = value.removesuffix(";")
    yield Given("flag", name, value, line)
