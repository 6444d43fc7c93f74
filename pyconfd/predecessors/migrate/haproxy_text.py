"""HAProxy texts, also as Jinja templates: removed directives get their successors, traps are named."""

import re
from dataclasses import dataclass

from pyconfd.haproxy.config.removed import Replacement, find_in_lines
from pyconfd.haproxy.config.text import SECTION_KEYWORDS, Word, split_words
from pyconfd.predecessors.migrate.report import Effect, Findings

_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_MASK = re.compile(r"J[ose](\d+)xJ")
"""What stands for a tag while a line is split into words: ``Jo`` prints, ``Je`` ends a block, ``Js`` is any other."""

_LEADING = re.compile(r"(?:[ \t]*J[se]\d+xJ)*[ \t]*")
_TRAILING = re.compile(r"(?:[ \t]+(?:J[se]\d+xJ)+|(?:Je\d+xJ)+)+$")
_INNER = re.compile(r"J[se]\d+xJ")
_END_TAG = re.compile(r"\{%[-+]?\s*end")
_SECTION = re.compile(rf"^(?:{'|'.join(sorted(SECTION_KEYWORDS))})\b", re.MULTILINE)
_KNOWN_PASSWORDS = ("gimmestats!", "IAmAnIdiotForNotChangingTheDefaultPassword", "password", "admin")
_MARK = "# pyconfd migrate:"
_LOOP = re.compile(r"\{%[-+]?\s*(?:for|macro)\b")
_PROCESS = re.compile(r"\s+process\s+\S+")
"""Which of several processes: there is one now, so a tag in it goes too."""


def is_haproxy(text: str) -> bool:
    """Return whether a text has a section of HAProxy."""
    return bool(_SECTION.search(_TAG.sub("", text)))


def begins_with_section(text: str) -> bool:
    """Return whether a section of HAProxy is the first thing in a text: a script that writes one begins otherwise."""
    lines = (line.strip() for line in _TAG.sub("", text).splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return bool(_SECTION.match(first))


def upgrade(text: str, findings: Findings) -> str:
    """Return the text with every removed directive replaced where that is exact, and marked where not.

    Indentation, comments and tags of Jinja stay. What is no longer needed stays as a comment.
    """
    tags: list[str] = []

    def mask(found: re.Match[str]) -> str:
        tags.append(found[0])
        kind = "o" if found[0].startswith("{{") else "e" if _END_TAG.match(found[0]) else "s"
        return f"J{kind}{len(tags) - 1}xJ"

    def unmask(value: str) -> str:
        return _MASK.sub(lambda found: tags[int(found[1])], value)

    masked = _TAG.sub(mask, text).split("\n")
    removed = {
        found.index: found.replacement
        for found in find_in_lines([_Line(line).directive for line in masked], repeated=bool(_LOOP.search(text)))
    }
    lines: list[str] = []
    number, section = 1, ""
    for index, line in enumerate(masked):
        words = split_words(_MASK.sub("", line))
        if words and words[0].value in SECTION_KEYWORDS and line[:1] not in (" ", "\t"):
            section = words[0].value
        written, effect, message = _Line(line).upgraded(section, removed.get(index))
        if effect is not None:
            findings.add(number, effect, unmask(message))
        lines += map(unmask, written)
        number += 1 + sum(tags[int(found[1])].count("\n") for found in _MASK.finditer(line))
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Line:
    """One line with its tags masked."""

    text: str

    @property
    def directive(self) -> str:
        """What HAProxy would read, without the tags around it."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str, str]:
        """Indentation (with the tags that stand before the directive), directive, and what follows it."""
        found = _LEADING.match(self.text)
        begin = found.end() if found else 0
        body = self.text[begin:].rstrip()
        words = split_words(body)
        end = len(body)
        for position, char in enumerate(body):
            if char == "#" and split_words(body[:position]) == words:
                end = position
                break
        directive = body[:end].rstrip()
        if tags := _TRAILING.search(directive):
            directive = directive[: tags.start()]
        return self.text[:begin], directive, body[len(directive) :].strip()

    def _replacement(self, found: Replacement | None) -> Replacement | None:
        directive = self._parts[1]
        match split_words(directive):
            case [Word("errorfile"), status, Word(value) as file, *_] if value.endswith((".html", ".htm")):
                successor = ("http-error", "status", status, "content-type", "text/html", "file", file)
                return Replacement((successor,), "errorfile wants a whole HTTP response")
        if found is None or found.lines is None:
            return found
        tokens = [token for line in found.lines for token in line]
        kept = [tag for token in tokens if isinstance(token, Word) for tag in _MASK.findall(token.written)]
        # A value is quoted as it stands, and a tag in it prints something else.
        if _MASK.findall(_PROCESS.sub("", directive)) != kept or _INNER.search(directive):
            return Replacement(advice=f"write by hand, with the tags of the template: {'  and  '.join(found.texts())}")
        return found

    def upgraded(self, section: str, removed: Replacement | None) -> tuple[list[str], Effect | None, str]:
        """Return what stands there now, and what is to be reported."""
        indent, directive, comment = self._parts
        blank = indent[: len(indent) - len(indent.lstrip(" \t"))]
        end = f"  {comment}" if comment else ""
        replacement = self._replacement(removed)
        if replacement is None:
            if remark := _remark(directive, section):
                return [f"{blank}{_MARK} {remark}", self.text], Effect.NOTED, f"{directive}: {remark}"
            return [self.text], None, ""
        if replacement.lines:
            first, *others = replacement.texts()
            message = f"{directive} -> {'  and  '.join(replacement.texts())}"
            return [f"{indent}{first}{end}", *(f"{blank}{other}" for other in others)], Effect.CHANGED, message
        if replacement.is_exact:
            # Tags before it may open a block, so they stay.
            return (
                [f"{indent}{_MARK} no longer needed: {directive}{end}"],
                Effect.CHANGED,
                f"{directive}: {replacement}",
            )
        advice = f"{blank}{_MARK} {_MASK.sub('...', str(replacement))}"
        return [advice, self.text], Effect.LEFT, f"{directive}: {replacement}"


def _remark(directive: str, section: str) -> str:
    """Return what still works and may not be what was meant."""
    words = [word.value for word in split_words(directive)]
    match words:
        case ["stats", "auth", credentials, *_] if credentials.partition(":")[2] in _KNOWN_PASSWORDS:
            return "a password that everybody knows: change it"
        case ["stats", "auth", *_] if section == "defaults":
            return "in defaults this opens the statistics on every HTTP frontend"
        case ["option", "httplog", *_] if section == "backend":
            return "only frontends write logs; HAProxy warns about it"
        case ["acl", _name, fetch, *_] if fetch.startswith("hdr_dom("):
            return "matches the name anywhere in the host: x.example.com.attacker.net too; hdr(host),host_only does not"
    return ""
