"""Undefined names that remember what was missing, so that the message can say what was probably meant."""

from functools import partial
from typing import Any

from jinja2 import StrictUndefined, Undefined, UndefinedError
from jinja2.utils import missing


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
