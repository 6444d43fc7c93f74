"""Parses the values that tenants of the cluster set: each is parsed into what it must be, or refused with the reason.

Nothing that passes here can add a word, a quote, a condition, a variable or a line to haproxy.cfg.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from pyconfd.model.listener import IPV4, parsed

SHOWN_CHARACTERS = 80
"""How much of a refused value is repeated to the operator."""

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_CENTURY_S = 3_153_600_000
_PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}", re.ASCII)
_OBJECT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?", re.ASCII)
_PATTERN = re.compile(r"[A-Za-z0-9_.~^$|()\[\]{}*+?/\\:@&=,;!-]{1,500}", re.ASCII)
_ODD_ESCAPE = re.compile(r"\\(?:$|[^.dDwWsSbB/\-^$|()\[\]{}*+?])", re.ASCII)
"""Two backslashes are one for HAProxy, and mean something else then."""
_VARIABLE = re.compile(r"\$[A-Za-z_{]", re.ASCII)
"""What HAProxy takes from the environment in double quotes; a pattern has ``$`` at the end of what it matches."""
_POSIX_CLASS = re.compile(r"\[([.:=])[^\]]*\1\]")
"""PCRE has these, or refuses them; Python takes them for sets of characters."""
_REPEATED = re.compile(r"(\)?)\{([0-9]*),?([0-9]*)\}")
_MOST_REPETITIONS = 999
_LARGEST_EXPANSION = 8_000
"""In characters: PCRE writes a repeated group out, and compiles no more than 64 KiB."""
CONDITION_WORDS = frozenset({"if", "unless", "or"})
"""What HAProxy reads in the words of a condition even where a value was meant."""

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:@+=,-]{1,253}", re.ASCII)
"""Without ``%``, which begins a variable wherever HAProxy reads a format."""


def host_name(value: str) -> str:
    """Return ``value`` as a lower-case host name, wildcard (``*.example.com``) or address, without a trailing dot.

    Raises:
        ValueError: It is none of these; the message says what was expected.
    """
    name = value.strip().lower().removesuffix(".")
    bare = name.removeprefix("[").removesuffix("]")
    # An address with a zone is none here: Python takes any text for a zone, line breaks too. To look for addresses only
    # where one could be saves most of the time of the many names.
    if ":" in bare or bare[-1:].isdigit():
        parsed = address(bare)
        if parsed is not None:
            return str(parsed)
    if len(name) > 253 or not _HOST_NAME.fullmatch(name) or name.removeprefix("*.").replace(".", "").isdigit():
        raise ValueError("not a host name: expected letters, digits, '-' and '.', for example shop.example.com")
    if name in CONDITION_WORDS:
        raise ValueError("this word means something else in a condition of HAProxy")
    return name


def comparable_name(text: str) -> str:
    """Return a host name as claims compare it; what is none as it can be shown."""
    try:
        return host_name(text) if text else ""
    except ValueError:
        return shortened(text)


def protocol(value: str) -> str:
    """Return ``value`` as the keyword that templates compare with, for example ``http`` or ``redis``.

    Raises:
        ValueError: It is not one word of letters, digits, '_', '.' and '-'.
    """
    word = value.strip()
    if not _PROTOCOL.fullmatch(word) or word in CONDITION_WORDS:
        raise ValueError("not a protocol: expected one word such as http, https or redis")
    # HTTP is http; any other word is the operator's own, and compared as it is written.
    return word.lower() if word.lower() in {"http", "https"} else word


def flag(value: str) -> bool:
    """Return whether ``value`` is "true".

    Raises:
        ValueError: It is neither that nor "false".
    """
    return _is_first_of(value, "true", "false")


def switch(value: str) -> bool:
    """Return whether ``value`` is "on".

    Raises:
        ValueError: It is neither that nor "off".
    """
    return _is_first_of(value, "on", "off")


def _is_first_of(value: str, first: str, second: str) -> bool:
    word = value.strip().lower()
    if word not in {first, second}:
        raise ValueError(f'neither "{first}" nor "{second}"')
    return word == first


def seconds(value: str) -> int:
    """Return a time in whole seconds, at most a hundred years.

    Raises:
        ValueError: It is none.
    """
    text = value.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _CENTURY_S):
        raise ValueError("not a time in seconds, for example 31536000 for a year")
    return int(text)


def number(value: str, least: int, most: int, unit: str = "") -> int:
    """Return a whole number, which ``unit`` says what of, such as `` of seconds``.

    Raises:
        ValueError: It is none, or not from ``least`` to ``most``.
    """
    text = value.strip()
    found = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else -1
    if not least <= found <= most:
        raise ValueError(f"expected a number{unit} from {least:,} to {most:,}")
    return found


def port_number(value: str) -> int:
    """Return ``value`` as a port number from 1 to 65535.

    Raises:
        ValueError: It is not.
    """
    text = value.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535):
        raise ValueError("not a port: expected a number from 1 to 65535")
    return int(text)


@lru_cache(maxsize=65_536)
def address(value: str) -> IPv4Address | IPv6Address | None:
    """Return ``value`` as an address without a zone, or None where it is no address."""
    try:
        found = parsed(value)
    except ValueError:
        return None
    return None if isinstance(found, IPv6Address) and found.scope_id else found


def canonical_address(value: str) -> tuple[str, str] | None:
    """Return an address in its usual spelling, and "ipv4" or "ipv6"; None where it is no address."""
    # IPv4 has one spelling; taking it apart costs most of the time of a translation with 100,000 endpoints.
    if IPV4.fullmatch(value):
        return value, "ipv4"
    found = address(value)
    return None if found is None else (str(found), "ipv4" if found.version == 4 else "ipv6")


def is_object_name(value: str) -> bool:
    """Return whether ``value`` could be the name of a Kubernetes object or a zone, and is no word of a condition."""
    return bool(_OBJECT_NAME.fullmatch(value)) and value not in CONDITION_WORDS


def object_name(value: str, expected: str) -> str:
    """Return the name of an object; ``expected`` says what is to be named.

    Raises:
        ValueError: Kubernetes would not accept it.
    """
    name = value.strip()
    if not is_object_name(name):
        raise ValueError(f"expected the name of {expected}")
    return name


def is_word(value: str) -> bool:
    """Return whether a template may print ``value`` anywhere: one word, no flag, and no word of a condition."""
    return bool(_PLAIN_WORD.fullmatch(value)) and not value.startswith("-") and value not in CONDITION_WORDS


def pattern(value: str) -> str:
    """Return ``value`` if it is one regular expression that no place of haproxy.cfg reads as anything else.

    With or without its first character (templates cut off ``^``) it is one word without quotes, blanks, ``#``, ``%``
    and back references; HAProxy and Python agree on what it matches.

    Raises:
        ValueError: it is not; the message says what was expected.
    """
    expected = (
        "not a plain regular expression: expected letters, digits and . * + ? ^ $ | ( ) [ ] { } \\ / - without blanks"
    )
    bare = value.removeprefix("^")
    if not _PATTERN.fullmatch(value) or _ODD_ESCAPE.search(value) or _VARIABLE.search(value) or "(?" in value:
        raise ValueError(expected)
    if bare.startswith("-") or bare in CONDITION_WORDS or bare in {"", "{", "}", "||", "!"}:
        raise ValueError(expected)
    if _POSIX_CLASS.search(value):
        raise ValueError("a class of POSIX such as [:alpha:] is not taken; write a-z")
    if _is_too_large(value):
        raise ValueError("not a regular expression of a usual size: it repeats too often")
    for text in (value, bare):
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError):
            raise ValueError("not a regular expression: its brackets or repetitions do not fit together") from None
    return value


def _is_too_large(value: str) -> bool:
    """Return whether HAProxy could refuse a pattern, and with it the whole configuration, for its size alone."""
    size = len(value)
    for group, *numbers in _REPEATED.findall(value):
        most = max((int(number[:6]) for number in numbers if number), default=0)
        if most > _MOST_REPETITIONS:
            return True
        size *= max(1, most) if group else 1
    return size > _LARGEST_EXPANSION


def plain_words(values: dict[str, str] | None) -> dict[str, str]:
    """Return those labels or annotations whose key and value are plain words; a template may print them as they are."""
    return {key: value for key, value in sorted((values or {}).items()) if is_word(key) and is_word(value)}


def shortened(value: str) -> str:
    """Return ``value`` shortened and escaped, fit to be printed in one line."""
    escaped = value.encode("unicode_escape").decode("ascii")
    return escaped if len(escaped) <= SHOWN_CHARACTERS else f"{escaped[:SHOWN_CHARACTERS]}..."
