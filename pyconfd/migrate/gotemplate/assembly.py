"""Tags and texts to the source of a Jinja template, white space exact whatever ``trim_blocks`` says."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyconfd.migrate.gotemplate.expressions import text_literal
from pyconfd.migrate.gotemplate.lexer import SPACES
from pyconfd.migrate.gotemplate.nodes import Text

STATEMENT, OUTPUT, REMARK = "%", "{", "#"
_CLOSING = {STATEMENT: "%}", OUTPUT: "}}", REMARK: "#}"}
_HAZARD = re.compile(r"\{(?=[{%#\r])|\r+")


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag of Jinja: ``kind`` is STATEMENT, OUTPUT or REMARK."""

    kind: str
    content: str


Item = Tag | Text

NEW_LINE = Text("", "\n", trim_left=True, trim_right=False)
"""A line break in the source that prints nothing; a tag must follow it."""


def remark(content: str) -> Tag:
    """Return a comment, whatever its content is."""
    safe = content.strip().replace("#}", "# }").replace("{#", "{ #")
    return Tag(REMARK, safe)


def assemble(items: Sequence[Item]) -> str:
    """Return the source; Jinja takes its last newline off."""
    out: list[str] = []
    for index, item in enumerate(items):
        before = items[index - 1] if index else None
        after = items[index + 1] if index + 1 < len(items) else None
        out.append(_text(item, after) if isinstance(item, Text) else _tag(item, before, after))
    return "".join(out) + "\n"


def _tag(tag: Tag, before: Item | None, after: Item | None) -> str:
    left = "-" if isinstance(before, Text) and before.trim_right else ""
    right = ""
    if isinstance(after, Text):
        if after.trim_left:
            right = "-"
        elif tag.kind != OUTPUT and after.value.startswith("\n"):
            right = "+"
    return f"{{{tag.kind}{left} {tag.content} {right}{_CLOSING[tag.kind]}"


def _text(node: Text, after: Item | None) -> str:
    if not node.value:
        return node.raw
    prefix = node.raw[: len(node.raw) - len(node.raw.lstrip(SPACES))] if node.trim_left else ""
    suffix = node.raw[len(node.raw.rstrip(SPACES)) :] if node.trim_right else ""
    value, first, last = node.value, "", ""
    # Jinja trims more kinds of blanks than Go.
    if node.trim_left and value[0].isspace():
        first, value = _literal(value[0]), value[1:]
    if value and node.trim_right and value[-1].isspace():
        value, last = value[:-1], _literal(value[-1])
    if value.endswith("{") and not suffix and (last or after is not None):
        value, last = value[:-1], _literal("{") + last
    return f"{prefix}{first}{_HAZARD.sub(lambda found: _literal(found[0]), value)}{last}{suffix}"


def _literal(value: str) -> str:
    return f"{{{{ {text_literal(value)} }}}}"
