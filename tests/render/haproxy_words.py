"""The words that HAProxy reads from a line, written again from its manual, section 2.2, to judge ``quote`` by."""

import re

PART = re.compile(
    r"""'(?P<strong>[^']*)'|"(?P<weak>(?:[^"\\$]|\\.)*)"|\\(?P<escaped>.)|(?P<plain>[^'"\\# \t])""", re.DOTALL
)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"} | {char: char for char in " \\#\"'$"}


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[0]), text, flags=re.DOTALL)


def words(line: str) -> list[str]:
    """Return the words of a line without comments; a variable in double quotes is an error here."""
    found: list[str] = []
    index = 0
    inside = False
    while index < len(line):
        if line[index] in " \t":
            inside = False
            index += 1
            continue
        part = PART.match(line, index)
        assert part, f"no word at {line[index:]!r}"
        strong, weak, escaped, plain = part.group("strong", "weak", "escaped", "plain")
        value = strong or plain or (unescaped(weak) if weak else "") or (unescaped(f"\\{escaped}") if escaped else "")
        found[-1:] = [found[-1] + value] if inside else [*found[-1:], value]
        inside = True
        index = part.end()
    return found
