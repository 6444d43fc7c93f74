"""Judge text that the cluster supplied before HAProxy sees it: ``haproxy -c`` itself runs ``lua-load``. Pure.

Only what :mod:`pyconfd.predecessors.allowed_words` lists passes; an unknown directive is refused, so one that a later
HAProxy adds is too. The text is read as HAProxy reads it, and whatever could be read in two ways is refused.

Source: the configuration manual of HAProxy, 2.2 (quoting), 2.3 (environment variables), 2.4 (conditional blocks).
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from pyconfd.errors import Problem, RejectedInput
from pyconfd.haproxy.config.removed import Removed, describe, find_in_lines
from pyconfd.haproxy.config.text import SECTION_KEYWORDS, scan
from pyconfd.model.outcome import Step
from pyconfd.predecessors import allowed_words as known
from pyconfd.predecessors.allowed_words import (
    ACL_KEYWORDS,
    CONVERTERS,
    FETCHES,
    LEFT_OUT,
    OTHER_SECTIONS,
    PROXIES,
    expressions_in_format,
    read_expression,
)

MOST_WORDS = 64
"""Source: HAProxy's ``MAX_LINE_ARGS``; it refuses longer lines."""
LONGEST_LINE = 16_384

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_SPECIAL = re.compile(r"[\\\"'#$]|[^\t -~]")
_ACL_SUFFIX = re.compile(r"_(?:beg|dir|dom|end|ip|len|reg|str|sub)$")
_NUMBERED_COUNTER = re.compile(r"^sc[0-9]_")
_READS_FILES = re.compile(r"(?<![A-Za-z0-9_.-])(env|map(?:_[a-z0-9_]+)?|jwt_verify\w*|jwt_decrypt\w*)\(")
_FILE_WORDS = frozenset({"file", "lf-file", "errorfile"})
_MORE_CONVERTERS = re.compile(r"debug|when|lua\..*|map(?:_\w+)?|jwt_\w+")
"""Converters that are not on the list: behind a sample, a word of such a name is one, and no value."""
_SYSTEM_AUTHORITIES = "@system-ca"
_HOST_AND_PORTS = re.compile(r"[A-Za-z0-9_.:*\[\]%-]*(?::[+-]?[0-9-]+)?")
"""HAProxy fills in ``${NAME}`` in an address, quoted or not, and takes ``stream+/path`` for a socket."""


class Violation(NamedTuple):
    """Something that is not allowed: ``name`` is what an operator would allow ("" if nothing can).

    ``path`` is set where it depends on where that file is; ``certificate`` tells how HAProxy would read it.
    """

    name: str
    what: str
    path: str = ""
    certificate: bool = False


class UnreadableLineError(ValueError):
    """The line is no configuration, or could be read in more than one way."""


@lru_cache(maxsize=65_536)
def split(raw: str) -> tuple[str, ...]:
    """Return the words of a line, without quotes and escapes, as HAProxy splits it.

    Raises:
        UnreadableLineError: it has a control character, an open quote, an escaped byte, an empty word, a variable, a
            backslash at its end, a letter outside ASCII (but for comments), or is too long.
    """
    if len(raw) > LONGEST_LINE:
        raise UnreadableLineError(f"a line of {len(raw)} characters")
    if found := _CONTROL.search(raw):
        raise UnreadableLineError(f"the control character {found[0]!r}")
    values = tuple(raw.split())
    if _SPECIAL.search(raw):
        words, doubt = scan(raw)
        if doubt:
            raise UnreadableLineError(doubt)
        for word in words:
            if found := _NOT_ASCII.search(word.written):
                raise UnreadableLineError(f"the character {found[0]!r}, which is not ASCII")
            if not word.value:
                raise UnreadableLineError("an empty word, which HAProxy takes for the end of the line")
        values = tuple(word.value for word in words)
    if len(values) > MOST_WORDS:
        raise UnreadableLineError(f"{len(values)} words in one line, HAProxy takes {MOST_WORDS}")
    return values


def of_line(section: str, words: tuple[str, ...]) -> Iterator[Violation]:
    """Return what a line in a section asks for and is not on the list; nothing where all of it is allowed."""
    first = words[0]
    if first.startswith("."):
        yield Violation("", "conditional blocks and messages (.if, .notice ...) are never allowed")
        return
    if first in {"no", "default"}:
        yield from of_line(section, words[1:]) if len(words) > 1 else iter([Violation("", "a line of one word")])
        return
    if section == "global":
        yield from _of_global(words)
    elif section in known.PROXIES:
        yield from _of_proxy(words)
    elif first not in known.OTHER_SECTIONS.get(section, ()):
        yield Violation(f"{section} {first}", f"the directive '{first}'")
    elif section == "resolvers" and first == "nameserver":
        yield from _address(words[2:3])
    elif first == "errorfile":
        yield from _content(words, 2)
    yield from _anywhere(words)


def _of_global(words: tuple[str, ...]) -> Iterator[Violation]:
    first = words[0]
    if first.startswith("tune."):
        if first.startswith(known.TUNE_REFUSED):
            yield Violation(first, f"the directive '{first}'")
    elif first == "stats":
        yield from _second(words, known.STATS_GLOBAL)
    elif first not in known.GLOBAL:
        yield Violation(first, f"the directive '{first}'")
    elif first == "log":
        yield from _log(words)


def _of_proxy(words: tuple[str, ...]) -> Iterator[Violation]:
    first = words[0]
    judged = _JUDGED.get(first)
    if first not in known.PROXY:
        yield Violation(first, f"the directive '{first}'")
    elif first in _CHOICES:
        yield from _second(words, _CHOICES[first])
    elif first in known.RULES:
        yield from _rule(words)
    elif judged is not None:
        yield from judged(words)


def _second(words: tuple[str, ...], allowed: frozenset[str]) -> Iterator[Violation]:
    name = " ".join(words[:2])
    if len(words) < 2 or words[1] not in allowed:
        yield Violation(name, f"'{name}'")


def _log(words: tuple[str, ...]) -> Iterator[Violation]:
    if words[1:2] and words[1] not in {"global", "stdout", "stderr", "/dev/log"}:
        yield from _address(words[1:2])


def _bind(words: tuple[str, ...]) -> Iterator[Violation]:
    for address in words[1].split(",") if len(words) > 1 else ():
        yield from _address((address,))
    yield from _keywords("bind", words[2:], known.BIND)


def _address(words: tuple[str, ...]) -> Iterator[Violation]:
    for word in words:
        family, sign, rest = word.partition("@")
        if (sign and family not in known.ADDRESS_FAMILIES) or not _HOST_AND_PORTS.fullmatch(rest if sign else word):
            why = "UNIX sockets, descriptors and variables are not allowed"
            yield Violation("", f"the address '{word}' is none of the network ({why})")


def _keywords(directive: str, words: tuple[str, ...], table: Mapping[str, int]) -> Iterator[Violation]:
    index = 0
    while index < len(words):
        word = words[index]
        arguments = table.get(word)
        value = words[index + 1 : index + 2]
        if arguments is None:
            yield Violation(f"{directive} {word}", f"the keyword '{word}' of {directive}")
            # An operator who allows the keyword allows its argument; what follows is judged again.
            index += 1 if value and value[0] in table else 2
            continue
        if arguments == known.CERTIFICATE:
            if value != (_SYSTEM_AUTHORITIES,):
                yield from (Violation("", f"the file '{path}'", path, certificate=True) for path in value)
        elif arguments == known.ADDRESS:
            yield from _address(value)
        elif arguments == known.EXPRESSION:
            yield from _expression(value)
        index += 2 if arguments else 1


def _rule(words: tuple[str, ...]) -> Iterator[Violation]:
    first, at = words[0], known.RULES[words[0]]
    if words[1:2] == ("inspect-delay",):
        return
    if at == 2 and words[1:2] and words[1] not in known.TCP_STAGES:
        yield Violation(f"{first} {words[1]}", f"'{first} {words[1]}'")
        return
    action = words[at] if len(words) > at else ""
    name = action.partition("(")[0]
    if name == "use-service":
        service = words[at + 1] if len(words) > at + 1 else ""
        if service != "prometheus-exporter":
            yield Violation(f"use-service {service}".strip(), f"the service '{service}'")
    elif name not in known.ACTIONS:
        yield Violation(f"{first} {name}".strip(), f"the action '{name}' of {first}")
    elif name in known.ACTIONS_ON_SAMPLES:
        yield from _sample(words[at + 1 + known.ACTIONS_ON_SAMPLES[name] :])


def _sample(words: tuple[str, ...]) -> Iterator[Violation]:
    """Judge the expressions among words: a keyword (``period``) begins another one, a number is none."""
    expression: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in {"if", "unless"}:
            break
        if word in known.BEFORE_SAMPLES or word in known.BEFORE_VALUES:
            yield from _expression(tuple(expression))
            expression = []
            if word in known.BEFORE_VALUES:
                next(rest, None)
        elif expression or not word[0].isdigit():
            expression.append(word)
    yield from _expression(tuple(expression))


def _stick(words: tuple[str, ...]) -> Iterator[Violation]:
    yield from _sample(words[2:])


def _balance(words: tuple[str, ...]) -> Iterator[Violation]:
    if words[1:2] == ("hash",):
        yield from _sample(words[2:])
    elif words[1:2] == ("log-hash",):
        yield Violation("balance log-hash", "'balance log-hash'")


def _check_rule(words: tuple[str, ...]) -> Iterator[Violation]:
    if words[1:2] and words[1].partition("(")[0] == "set-var":
        yield from _sample(words[2:])
    for index, word in enumerate(words):
        if word == "status-code" or (word == "port" and words[1] == "connect"):
            yield from _sample(words[index + 1 : index + 2])


def _filter(words: tuple[str, ...]) -> Iterator[Violation]:
    yield from _second(words, known.FILTERS)
    if "key" in words:
        yield from _sample(words[words.index("key") + 1 :])


def _server(words: tuple[str, ...]) -> Iterator[Violation]:
    options = {"server": 3, "server-template": 4, "default-server": 1}[words[0]]
    yield from _address(words[options - 1 : options] if options > 1 else ())
    yield from _keywords("server", words[options:], known.SERVER)


def _acl(words: tuple[str, ...]) -> Iterator[Violation]:
    yield from _criterion(words[2:])


def _errorfile(words: tuple[str, ...]) -> Iterator[Violation]:
    yield from _content(words, 2)


def _content(words: tuple[str, ...], at: int) -> Iterator[Violation]:
    path = words[at] if len(words) > at else "(none)"
    yield Violation("", f"the file '{path}'", path)


def _anywhere(words: tuple[str, ...]) -> Iterator[Violation]:
    """Return what must not stand in any word: files, expressions that read one, the environment."""
    rule = words[0] in known.RULES or words[0] in {"http-error", "errorfile", "tcp-check", "http-check"}
    for index, word in enumerate(words):
        if (control := _CONTROL.search(word)) and words[0] != "tcp-check":  # which sends what other protocols want
            yield Violation("", f"the control character {control[0]!r} in a word")
        following = words[index + 1 : index + 2]
        if word == "-f" or (rule and index > 0 and word in _FILE_WORDS):
            yield from _content(words, index + 1)
        if word == "-M":
            yield Violation("acl -M", "a map file in an ACL")
        if rule and word == "addr":
            yield from _address(following)
        if word.lstrip("!") == "{":
            yield from _criterion(words[index + 1 :])
        if found := _READS_FILES.search(word):
            yield Violation(f"sample {found[1]}", f"'{found[1]}', which reads a file or the environment,")
        yield from _formats(word)


def _formats(word: str) -> Iterator[Violation]:
    """Judge each ``%[...]`` of a word."""
    for found in expressions_in_format(word):
        if found.end < 0:
            # A part of an expression in quotes of its own, or none at all: HAProxy will say so, but not before us.
            yield Violation("", "an expression %[ that is not closed in its word")
            return
        yield from _names(found.names)


def _criterion(words: tuple[str, ...]) -> Iterator[Violation]:
    """Judge what an ACL looks at: HAProxy takes the words behind it for converters, too, as long as they are some."""
    yield from _expression(words[:1])
    sample = read_expression(words[0]).names[0] if words else ""
    if sample in ACL_KEYWORDS or (sample not in FETCHES and _ACL_SUFFIX.search(sample)):
        return
    for word in words[1:]:
        converters = read_expression(word).names
        if converters[0] not in CONVERTERS and not _MORE_CONVERTERS.fullmatch(converters[0]):
            break  # a value to compare with
        yield from _names(converters, first=1)


def _expression(words: tuple[str, ...]) -> Iterator[Violation]:
    """Judge an expression that fills whole words: a fetch with its converters, and converters in further words."""
    for position, word in enumerate(words):
        found = read_expression(word)
        yield from _names(found.names, first=position)
        if found.end != len(word):
            yield Violation("", f"'{word}', which is no expression that HAProxy reads to its end")


def _names(names: tuple[str, ...], first: int = 0) -> Iterator[Violation]:
    for position, name in enumerate(names, start=first):
        if position:
            if name not in CONVERTERS:
                yield Violation(f"sample {name}", f"the converter '{name}'")
            continue
        plain = _NUMBERED_COUNTER.sub("sc_", name)
        if plain not in FETCHES and _ACL_SUFFIX.sub("", plain) not in FETCHES:
            yield Violation(f"sample {name}", f"the sample '{name}'")


_CHOICES: Mapping[str, frozenset[str]] = {
    "option": known.OPTIONS,
    "stats": known.STATS,
    "mode": known.MODES,
}
_JUDGED: Mapping[str, Callable[[tuple[str, ...]], Iterator[Violation]]] = {
    "bind": _bind,
    "server": _server,
    "server-template": _server,
    "default-server": _server,
    "log": _log,
    "errorfile": _errorfile,
    "acl": _acl,
    "stick": _stick,
    "balance": _balance,
    "http-check": _check_rule,
    "tcp-check": _check_rule,
    "filter": _filter,
}


_SHOWN = 100
_MOST_PROBLEMS = 20
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,200}", re.ASCII)
_PATH = re.compile(r"/[A-Za-z0-9._/@+=-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Boundaries:
    """What text from the cluster may reach.

    ``certificates`` are the directories of keys and certificates: HAProxy may load them, and nothing else may read
    them, for a file that is answered with or matched against would give a private key away. ``contents`` are the
    directories of all other files. ``allow`` are the operator's further names, as a refusal prints them.
    """

    certificates: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    allow: frozenset[str] = frozenset()

    def certificate_is_inside(self, path: str) -> bool:
        """Return whether HAProxy may load this as a certificate."""
        path = path.removesuffix("/")  # HAProxy loads whole directories, too
        return _is_plain(path) and _is_below(path, (*self.certificates, *self.contents))

    def content_is_inside(self, path: str) -> bool:
        """Return whether HAProxy may read this as anything else."""
        return _is_plain(path) and _is_below(path, self.contents) and not _is_below(path, self.certificates)


@dataclass(frozen=True, slots=True)
class Judged:
    """The text that may serve, and what was left out of it or replaced."""

    text: str
    notes: tuple[Problem, ...] = ()


def judge(place: str, text: str, boundaries: Boundaries) -> Judged:
    """Return ``text`` (rendered from ``place``) if everything in it is allowed.

    Directives of a process (``user``, ``daemon``) are left out, and those that HAProxy removed are replaced by what
    says the same today; both with a note. What is judged is the text that HAProxy will read, after all of that.

    Raises:
        RejectedInput: something is not allowed; each problem names the line, and how an operator allows more.
    """
    lines = text.split("\n")
    removed = {found.index: found for found in find_in_lines(lines)}
    final, notes = _adjusted(place, lines, boundaries, removed)
    problems: list[Problem] = []
    section = ""
    for index, raw in final:
        problem, section = _judge_line(index, raw, section, boundaries, removed)
        if problem is not None:
            problems.append(replace(problem, place=f"{place} rendered line {index + 1}"))
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        kept = problems[:_MOST_PROBLEMS]
        if more > 0:
            kept.append(Problem(place, f"and {more} more lines that are not allowed"))
        raise RejectedInput(*kept, step=Step.RENDER)
    return Judged("\n".join(line for _, line in final), tuple(notes))


def _adjusted(
    place: str, lines: Sequence[str], boundaries: Boundaries, removed: dict[int, Removed]
) -> tuple[list[tuple[int, str]], list[Problem]]:
    """Return the final lines, each with the index of the one it comes from, and notes. Nothing is judged here."""
    final: list[tuple[int, str]] = []
    notes: list[Problem] = []
    section = ""
    for index, raw in enumerate(lines):
        written, note = [raw], ""
        try:
            words = split(raw)
        except UnreadableLineError:
            words = ()  # refused when it is judged
        if words and words[0] in SECTION_KEYWORDS:
            section = words[0]
        elif words and section == "global" and (name := _left_out(words, boundaries)):
            removed.pop(index, None)
            written = [f"    # {name}: left out by pyconfd, {LEFT_OUT[name]}"]
            note = f"left out: {LEFT_OUT[name]}"
        elif words and (found := removed.get(index)) and found.replacement.is_exact:
            written = [f"    {line}" for line in found.replacement.texts()]
            note = f"HAProxy removed it; {found.replacement}"
        final += [(index, part) for line in written for part in line.split("\n")]
        if note:
            notes.append(Problem(f"{place} rendered line {index + 1}", f"{shown(raw)}: {note}"))
    return final, notes


def _left_out(words: tuple[str, ...], boundaries: Boundaries) -> str:
    name = next((name for name in LEFT_OUT if words[: name.count(" ") + 1] == tuple(name.split())), "")
    return "" if name in boundaries.allow else name


def _judge_line(
    index: int, raw: str, section: str, boundaries: Boundaries, removed: Mapping[int, Removed]
) -> tuple[Problem | None, str]:
    """Return what is wrong with a line of ``section``, and the section of the next line."""
    found = removed.get(index)
    if found and not found.replacement.is_exact:
        return _refusal(raw, describe(found), str(found.replacement)), section
    try:
        words = split(raw)
    except UnreadableLineError as error:
        return _refusal(raw, str(error), "write the line without it; no setting allows this"), section
    if not words:
        return None, section
    if words[0] in SECTION_KEYWORDS:
        return _judge_header(raw, words, boundaries), words[0]
    return _judge_words(raw, section, words, boundaries), section


def _judge_words(raw: str, section: str, words: tuple[str, ...], boundaries: Boundaries) -> Problem | None:
    if not section:
        return _refusal(raw, "it stands before the first section", "begin with global or defaults")
    if section in boundaries.allow:
        return None
    for violation in _asked_for(section, words):
        if violation.path:
            inside = boundaries.certificate_is_inside if violation.certificate else boundaries.content_is_inside
            if inside(violation.path):
                continue
        if violation.name not in boundaries.allow:
            return _denial(raw, violation, boundaries)
    return None


def _judge_header(raw: str, words: tuple[str, ...], boundaries: Boundaries) -> Problem | None:
    keyword, *rest = words
    if keyword not in {"global", *PROXIES, *OTHER_SECTIONS, *boundaries.allow}:
        return _denial(raw, Violation(keyword, f"the section '{keyword}'"), boundaries)
    if keyword == "global":
        wrong = bool(rest)
    else:
        has_name = keyword != "defaults" or rest[:1] not in ([], ["from"])
        names, options = (rest[:1], rest[1:]) if has_name else ([], rest)
        wrong = (has_name and not names) or not (options == [] or (options[0] == "from" and len(options) == 2))
        wrong = wrong or any(not _NAME.fullmatch(name) for name in [*names, *options[1:]])
    if wrong:
        return _refusal(raw, "not a header of a section", "write KEYWORD NAME or KEYWORD NAME from NAME")
    return None


def _denial(raw: str, found: Violation, boundaries: Boundaries) -> Problem:
    if found.path:
        inside = (*(boundaries.certificates if found.certificate else ()), *boundaries.contents)
        remedy = f"use a file below {' or '.join(inside)}" if inside else "declare the file in a fragment of your own"
        remedy += "; an operator can name more with cluster_templates.directories"
        return _refusal(raw, f"{found.what} is outside the allowed directories", remedy)
    if found.name:
        remedy = f'an operator can allow it by name: cluster_templates.allow = ["{found.name}"]'
        return _refusal(raw, f"{found.what} is not allowed in text from the cluster", remedy)
    return _refusal(raw, found.what, "correct it in the template; no setting allows this")


def _refusal(raw: str, message: str, remedy: str) -> Problem:
    return Problem("", f"{message}: {shown(raw)}", remedy)


@lru_cache(maxsize=65_536)
def _asked_for(section: str, words: tuple[str, ...]) -> tuple[Violation, ...]:
    """Remember lines: when one service changes, all others are as they were."""
    return tuple(of_line(section, words))


def shown(raw: str) -> str:
    """Return a line fit to be printed: without control characters, and not longer than a terminal is wide."""
    text = raw.strip().encode("unicode_escape").decode("ascii").replace("\\\\", "\\")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_plain(path: str) -> bool:
    return bool(_PATH.fullmatch(path)) and posixpath.normpath(path) == path and not path.startswith("//")


def _is_below(path: str, directories: Iterable[str]) -> bool:
    return any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in directories if each)
