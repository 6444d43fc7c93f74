"""Go's constants to Python values. Source: the Go specification, "Lexical elements"."""

import re

_ESCAPE = re.compile(
    rb"\\(?:([abfnrtv\\'\"])|([0-7]{3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.|$))", re.DOTALL
)
_SIMPLE = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b"'": b"'",
    b'"': b'"',
}
_DECIMAL = re.compile(r"[+-]?(0|[1-9](_?[0-9])*)")
_OLD_OCTAL = re.compile(r"[+-]?0(_?[0-7])+")
_BASED = re.compile(r"[+-]?0(?:[xX](_?[0-9a-fA-F])+|[oO](_?[0-7])+|[bB](_?[01])+)")
_FLOAT = re.compile(r"[+-]?([0-9](_?[0-9])*)?(\.([0-9](_?[0-9])*)?)?([eE][+-]?[0-9](_?[0-9])*)?")
_MAX_DIGITS = 400


def text_of(written: str) -> str:
    """Return the value of a quoted or raw string.

    Raises:
        ValueError: an escape is wrong, or the bytes are no UTF-8.

    """
    if written.startswith("`"):
        return written[1:-1].replace("\r", "")
    return _unescaped(written[1:-1], b'"')


def code_of(written: str) -> int:
    """Return the code point of a character constant.

    Raises:
        ValueError: it holds none or several.

    """
    value = _unescaped(written[1:-1], b"'")
    if len(value) != 1:
        raise ValueError("a character constant holds one character")
    return ord(value)


def number_of(written: str) -> int | float:
    """Return the value of a number.

    Raises:
        ValueError: it is none, or an imaginary one.

    """
    text = written.replace("_", "")
    if len(text) > _MAX_DIGITS:
        raise ValueError("the number is too long")
    if _BASED.fullmatch(written):
        return _fits(int(text, 0))
    if _OLD_OCTAL.fullmatch(written):
        return _fits(int(text, 8))
    if _DECIMAL.fullmatch(written):
        return _fits(int(text))
    if _FLOAT.fullmatch(written) and re.search("[0-9]", written):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError("the number is too large")
        # Go takes a float constant that is a whole number for an int as well; it prints as the float.
        return value
    raise ValueError("it is no number that has a counterpart in Jinja")


def _fits(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError("the number overflows an int")
    return value


def _unescaped(written: str, quote: bytes) -> str:
    def replace(found: re.Match[bytes]) -> bytes:
        simple, octal, byte, short, long, wrong = found.groups()
        if simple:
            if simple in b"'\"" and simple != quote:
                raise ValueError(f"unknown escape \\{simple.decode()}")
            return _SIMPLE[simple]
        if octal or byte:
            code = int(octal, 8) if octal else int(byte, 16)
            if code > 255:
                raise ValueError("an octal escape is above 255")
            return chr(code).encode() if quote == b"'" else bytes([code])
        if wrong is not None:
            raise ValueError("unknown escape")
        return chr(int(short or long, 16)).encode()

    try:
        return _ESCAPE.sub(replace, written.encode()).decode()
    except (UnicodeError, OverflowError) as error:
        raise ValueError(f"it is no text: {error}") from error
