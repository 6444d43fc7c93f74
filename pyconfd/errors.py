"""The error tree; each class says what happens next, never where it was raised.

::

    PyconfdError
    ├── ConfigurationError   exit 78; every problem at once, each with its place and a remedy
    ├── TransientError       it may pass: keep the running configuration, retry later
    ├── RejectedInput        keep the last good configuration until the input changes
    ├── AdoptionNeeded       change nothing until an operator decides about the running configuration
    └── ApplyError           put the former configuration back, then try again with back-off

Anything else is a bug: a traceback, exit 70, and systemd starts the process again. A library's own
exceptions stop at the adapter that called the library.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyconfd.printable import clean, clean_lines


@dataclass(frozen=True, slots=True)
class Clues:
    """What leads from a problem to the object behind it, the likeliest first.

    ``lines`` are pieces of the rendering with a line of their text (from 1); ``values`` are what a template had at hand
    when it failed, the innermost first.
    """

    lines: tuple[tuple[str, int], ...] = ()
    values: tuple[Any, ...] = ()


NO_CLUES = Clues()


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, in words for the person who has to repair it.

    ``place`` says where (``pyconfd.toml: haproxy.conf``, ``02-http.tmpl line 12``, ``demo/shop annotation domain``),
    ``message`` what is wrong, ``remedy`` what to do about it (may be empty). ``piece`` names the piece of the rendering
    in whose text it was found, where there is one; ``clues`` lead to the object behind it.
    """

    place: str
    message: str
    remedy: str = ""
    piece: str = field(default="", compare=False)
    clues: Clues = field(default=NO_CLUES, compare=False, repr=False)

    def __str__(self) -> str:
        message = clean_lines(self.message)
        text = f"{clean(self.place)}: {message}" if self.place else message
        return f"{text}\n    -> {clean_lines(self.remedy)}" if self.remedy else text


class PyconfdError(Exception):
    """The base of all errors that pyconfd raises on purpose."""

    def __init__(self, *problems: Problem) -> None:
        self.problems: tuple[Problem, ...] = problems
        super().__init__("\n".join(str(problem) for problem in problems))


class ConfigurationError(PyconfdError):
    """Settings or arguments cannot be used; carries every problem found."""


class TransientError(PyconfdError):
    """Something outside did not answer as it should; the same call may succeed later."""


class RejectedInput(PyconfdError):  # noqa: N818 - it names what happened to the input
    """Fragments or objects gave a configuration that cannot be used; nothing was changed.

    ``step`` names the step that turned it away, a value of :class:`pyconfd.model.outcome.Step`; "" before the
    transaction.
    """

    def __init__(self, *problems: Problem, step: str = "") -> None:
        self.step = step
        super().__init__(*problems)


class PendingRendering(Exception):  # noqa: N818 - it is no failure
    """A template of the cluster is being rendered in the background; its end wakes the loop.

    ``known`` is what its source gave last, for former values: a text, a refusal, or None where there is nothing yet.
    """

    def __init__(self, known: "str | RejectedInput | None" = None) -> None:
        self.known = known
        super().__init__("a template of the cluster is being rendered")


class AdoptionNeeded(PyconfdError):  # noqa: N818 - it names what is missing
    """The first configuration would end what HAProxy serves, and no operator has said that this is meant."""


class ApplyError(PyconfdError):
    """A good configuration could not be made to serve; the former one is back.

    ``step`` names the step of the transaction that failed: a value of
    :class:`pyconfd.model.outcome.Step`. ``disruptive`` says that the attempt itself interrupted traffic for a moment.
    """

    def __init__(self, step: str, *problems: Problem, disruptive: bool = False) -> None:
        self.step = step
        self.disruptive = disruptive
        super().__init__(*problems)


def first_line(problems: Sequence[Problem]) -> str:
    """Return the first problem on one line, for a log or a status line."""
    words = str(problems[0]).replace("\n    -> ", " -> ").splitlines() if problems else []
    return words[0] if words else ""
