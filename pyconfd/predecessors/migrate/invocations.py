"""Command lines, environment files, units, Dockerfiles and manifests to the options that stand in them."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyconfd.predecessors.migrate.options import COMMANDS, PROGRAMS, OptionForm, option_for_flag, option_for_variable
from pyconfd.predecessors.migrate.report import System

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_CONTAINER_VARIABLE = re.compile(r"(?:-e|--env=)([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_UNIT_LINES = ("ExecStart", "ExecStartPre", "ExecReload", "ExecStartPost")
_UNIT = re.compile(r"^\[Service\]\s*$", re.MULTILINE)
_ENDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "done", "2>&1", "<"})
_CONTAINERS = frozenset({"docker", "podman"})
_MENTIONS = frozenset(
    {"ADD", "COPY", "chmod", "chown", "cp", "docker-compose", "echo", "flake8", "install", "kill", "killall", "ln"}
    | {"ls", "mkdir", "mv", "pip", "pkill", "printf", "pylint", "rm", "tar", "test", "touch", "["}
)
"""Commands that name a program's file, and do not start it."""

_WITHOUT_VALUE = (OptionForm.NOTHING, OptionForm.COUNT)
_DOLLAR = "\ue000"
"""Stands for a dollar sign that names no variable."""
_REFERENCE = re.compile(r"\$(?:\{(\w+)(?::?-([^{}]*))?\}|\((\w+)\)|(\w+))")
"""``${NAME}``, ``${NAME:-default}`` and ``$NAME`` of shells and units, ``$(NAME)`` of manifests."""


@dataclass(frozen=True, slots=True)
class GivenOption:
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


def read(system: System, text: str) -> Iterator[GivenOption]:
    """Return every option of a text, line by line; never raises."""
    is_unit = bool(_UNIT.search(text))
    for line, content in logical_lines(text):
        if not is_unit or content.strip().startswith((*_UNIT_LINES, "Environment")):
            yield from read_line(system, content, line)


def read_line(system: System, content: str, line: int) -> Iterator[GivenOption]:
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
        yield GivenOption("word", "EnvironmentFile", rest.strip().lstrip("-"), line)
        return
    elif stripped.startswith("ENV "):
        words = _dockerfile(stripped[4:].strip())
    elif stripped.startswith(("CMD", "ENTRYPOINT")) and "[" in stripped:
        words = " ".join(re.findall(r'"(?:[^"\\]|\\.)*"', stripped))
    try:
        tokens = shlex.split(_with_plain_dollars(words), comments=True)
    except ValueError as error:
        if any(program in stripped for program in PROGRAMS[system]) or _ASSIGNMENT.match(stripped):
            yield GivenOption("unreadable", stripped[:60], str(error), line)
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


def read_tokens(system: System, tokens: list[str], line: int) -> Iterator[GivenOption]:
    """Return the options of the words of one command or of a list of assignments."""
    rest = list(tokens)
    if whole := _value_with_blanks(system, rest):
        yield GivenOption("variable", *whole, line)
        return
    while rest and (rest[0] in {"export", "env", "exec", "sudo"} or _ASSIGNMENT.fullmatch(rest[0])):
        if found := _ASSIGNMENT.fullmatch(rest.pop(0)):
            yield GivenOption("variable", found[1], found[2], line)
    while rest:
        end = next((index for index, word in enumerate(rest) if word in _ENDS), len(rest))
        yield from _command(system, rest[:end], line)
        del rest[: end + 1]


def _command(system: System, words: list[str], line: int) -> Iterator[GivenOption]:
    """Return the options of one command."""
    # A line of a Makefile may begin with @, - or +.
    begin = [word.lstrip("@-+") for word in words[:3]]
    programs = [index for index, word in enumerate(words) if _is_program(system, word)]
    if any(word in _CONTAINERS for word in begin):
        yield from _container_variables(words, line)
        # The last one: the container, or a mount, may have the program's name too.
        rest = words[programs[-1] + 1 :] if programs else []
        # Behind the program's image may stand another command, such as a shell.
        if rest and (rest[0].startswith("-") or rest[0] in COMMANDS.get(system, {}) or rest[0] == "..."):
            yield from _program(system, rest, line)
        return
    if begin and begin[0] in _MENTIONS:
        ended = next((index for index, word in enumerate(words) if word.endswith(";")), len(words))
        programs = [index for index in programs if index > ended]
    if programs:
        yield from _program(system, words[programs[0] + 1 :], line)


def _container_variables(words: list[str], line: int) -> Iterator[GivenOption]:
    """Return what ``docker run`` sets: ``-e NAME=VALUE``, ``-eNAME=VALUE``, ``--env=NAME=VALUE``, ``--env-file``."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--env-file"):
            yield GivenOption("word", "--env-file", word.partition("=")[2] or following, line)
        elif found := _CONTAINER_VARIABLE.fullmatch(word if word not in ("-e", "--env") else f"-e{following}"):
            yield GivenOption("variable", found[1], found[2], line)


def _value_with_blanks(system: System, tokens: list[str]) -> tuple[str, str] | None:
    """Return name and value of ``NAME=a command`` in an environment file, which needs no quotes there.

    A shell would run the command's second word, which is never what is meant of an option that is a command.
    """
    found = _ASSIGNMENT.fullmatch(tokens[0]) if len(tokens) > 1 else None
    option = option_for_variable(system, found[1]) if found else None
    if found is None or option is None or option.form is not OptionForm.COMMAND:
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


def _program(system: System, rest: list[str], line: int) -> Iterator[GivenOption]:
    """Return the options in the words after the program's name, up to where its command ends."""
    while rest and rest[0] not in _ENDS:
        word = rest.pop(0)
        ends, word = word.endswith(";"), word.removesuffix(";")
        if not word.startswith("-") or word == "-":
            known = COMMANDS.get(system, {})
            if word in known:
                yield GivenOption("command", word, "", line)
            elif word and not _is_program(system, word) and word != "...":
                yield GivenOption("word", word, "", line)
        else:
            yield from _flag(system, word, rest, line)
        if ends:
            return


def _flag(system: System, word: str, rest: list[str], line: int) -> Iterator[GivenOption]:
    name, sign, value = word.partition("=")
    option = option_for_flag(system, name)
    if option is not None and option.form is OptionForm.COUNT:
        yield GivenOption("flag", name, value or str(len(name.lstrip("-")) if name.startswith("-v") else 1), line)
        return
    takes_value = option is None or option.form not in _WITHOUT_VALUE
    if not sign and takes_value and rest and not rest[0].startswith("-") and rest[0] not in _ENDS:
        value = rest.pop(0)
        if value.endswith(";") and not rest:
            value = value.removesuffix(";")
    yield GivenOption("flag", name, value, line)
