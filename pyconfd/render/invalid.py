"""The errors that templates raise: a value that cannot stand in haproxy.cfg, and a name that is not there."""

from difflib import get_close_matches
from functools import partial
from typing import Any

from jinja2 import StrictUndefined, Undefined, UndefinedError
from jinja2.utils import missing


class InvalidValueError(ValueError):
    """``str()`` says what is wrong, ``remedy`` what to do; the engine adds fragment, line and object."""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.remedy = remedy
        super().__init__(message)


def shown(value: object, limit: int = 60) -> str:
    """Return ``value`` as a message may show it: quoted, escaped, on one line, at most ``limit`` characters."""
    text = repr(str(value))
    return text if len(text) <= limit else f"{text[: limit - 4]}...{text[-1]}"


def did_you_mean(name: str, known: Any) -> str:
    """Return a remedy that names what was probably meant, or what there is; "" if there is nothing."""
    names = sorted({str(one) for one in known})
    if close := get_close_matches(name, names, n=3, cutoff=0.6):
        return f"did you mean {' or '.join(repr(one) for one in close)}?"
    if not names:
        return ""
    listed = ", ".join(names[:20])
    return f"there is: {listed}{', ...' if len(names) > 20 else ''}"


class MissingNameError(UndefinedError):
    """``owner`` is the object that has no ``name``, or ``NO_OWNER`` for a variable; ``hint`` is Jinja's own text."""

    def __init__(self, message: str, *, owner: Any, name: object, hint: str) -> None:
        self.owner = owner
        self.missing_name = str(name)
        self.hint = hint
        super().__init__(message)


NO_OWNER: Any = missing


def _remembering(hint: str | None, obj: Any, name: str | None, exc: type[Exception]) -> Any:
    # Jinja calls this with the message only; other classes than UndefinedError (a template not found) say enough.
    return partial(MissingNameError, owner=obj, name=name, hint=hint or "") if exc is UndefinedError else exc


class Strict(StrictUndefined):
    """Any use of an undefined name is an error, except ``is defined`` and ``default``."""

    __slots__ = ()

    def __init__(
        self, hint: str | None = None, obj: Any = missing, name: str | None = None, exc: Any = UndefinedError
    ) -> None:
        super().__init__(hint, obj, name, _remembering(hint, obj, name, exc))


class Lenient(Undefined):
    """An undefined name prints as nothing and loops over nothing, as with python-confd; its attributes are errors."""

    __slots__ = ()

    def __init__(
        self, hint: str | None = None, obj: Any = missing, name: str | None = None, exc: Any = UndefinedError
    ) -> None:
        super().__init__(hint, obj, name, _remembering(hint, obj, name, exc))
