"""Snippets of ingress-nginx that do nothing but set headers, in the words of policies.

Nothing of a snippet is executed, and no text of it gets to HAProxy: where each directive is one of those here, with
plain values, its headers are values of words, parsed as anybody's. Any other snippet says something that is not known,
so that it closes.

Source: headers-more-nginx-module, README; NGINX, ngx_http_proxy_module.
"""

import re
from collections.abc import Iterator

SNIPPET = "configuration-snippet"
_LONGEST = 4_096
_SPACE = re.compile(r"(?:\s|#[^\n]*(?:\n|$))*")
_ARGUMENT = re.compile(r"\"([^\"\\$]*)\"|'([^'\\$]*)'|([^\s;{}\"'\\$#][^\s;{}\"'\\$]*)")
_HEADER = re.compile(r"([A-Za-z0-9-]+):[ \t]*([^\r\n]*[^\s])[ \t]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
_SET = {"more_set_headers": "response-headers", "more_set_input_headers": "request-headers"}
_REMOVE = {"more_clear_headers": "remove-response-headers", "more_clear_input_headers": "remove-request-headers"}


def words_of_snippet(text: str) -> dict[str, str] | None:
    """Return the words that a snippet stands for, None where it may say anything else."""
    lines: dict[str, list[str]] = {}
    try:
        for directive, *arguments in _statements(text):
            word, found = _headers(directive, arguments)
            lines.setdefault(word, []).extend(found)
    except ValueError:
        return None
    return {word: "\n".join(found) for word, found in lines.items()}


def _headers(directive: str, arguments: list[str]) -> tuple[str, list[str]]:
    if directive == "proxy_set_header" and len(arguments) == 2 and _NAME.fullmatch(arguments[0]) and arguments[1]:
        arguments = [": ".join(arguments)]
        directive = "more_set_input_headers"
    shape = _HEADER if directive in _SET else _NAME if directive in _REMOVE else None
    if shape is None or not arguments or not all(map(shape.fullmatch, arguments)):
        raise ValueError(directive)
    return _SET.get(directive) or _REMOVE[directive], arguments


def _statements(text: str) -> Iterator[list[str]]:
    """Return directives with their arguments; raise ValueError for variables, blocks and escapes."""
    if len(text) > _LONGEST:
        raise ValueError("too long")
    at, found = _after_space(text, 0), list[str]()
    while at < len(text):
        if text[at] == ";" and found:
            yield found
            at, found = at + 1, []
        elif (argument := _ARGUMENT.match(text, at)) is not None:
            found.append(next(each for each in argument.groups() if each is not None))
            at = argument.end()
            if text[at : at + 1] not in {"", ";", "#"} and not text[at].isspace():
                raise ValueError("no space behind a quoted text")
        else:
            raise ValueError(text[at])
        at = _after_space(text, at)
    if found:
        raise ValueError("no end")


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
