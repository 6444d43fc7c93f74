"""Chooses what is rendered with: the fragments and settings on disk, or those of the generation that is pinned.

Endpoints are live in either case. Edits on disk are noticed and shown while something is pinned, and not applied.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.haproxy.history.pins import InputsStore
from pyconfd.model.inputs import GenerationInputs
from pyconfd.model.rendering import FragmentSet
from pyconfd.model.status import Pin, PinStatus

log = structlog.get_logger(__name__)

Kept = Mapping[str, Any]
"""The settings among the inputs of a generation."""


@dataclass(frozen=True, slots=True)
class PinSurroundings:
    """What is chosen from.

    ``read`` returns the fragments on disk; ``on_disk`` and ``in_force`` are the settings of the files, and those of
    this run; ``taking`` returns the latter for the inputs of a generation, or raises RejectedInput. ``restart`` ends
    this run and starts another one; ``needed`` returns the digests of the inputs of all generations.
    """

    read: Callable[[], FragmentSet]
    pin: Callable[[], Pin | None]
    inputs: InputsStore
    on_disk: Kept
    in_force: Kept
    taking: Callable[[GenerationInputs], Kept]
    restart: Callable[[], None]
    needed: Callable[[], Collection[str]]


class Pinning:
    """The choice; :meth:`status` may be called from any thread."""

    def __init__(self, around: PinSurroundings) -> None:
        self._around = around
        self._pin: Pin | None = None
        self._inputs: GenerationInputs | None = None
        self._waiting: tuple[FragmentSet, tuple[str, ...]] | None = None
        self._unkept: GenerationInputs | None = None
        self._status: PinStatus | None = None

    def read(self) -> FragmentSet:
        """Return the fragments to render with; raises PyconfdError where they cannot be read."""
        pin = self._around.pin()
        former, self._pin = self._pin, pin
        if pin != former:
            self._inputs = self._waiting = None
            log.warning("fragments.pinned" if pin else "fragments.unpinned", generation=(pin or former).generation)  # type: ignore[union-attr]
        self._status = PinStatus(pin) if pin else None
        if pin is None:
            self._restart_unless_in_force(self._around.on_disk, "on disk")
            return self._around.read()
        if pin.broken:
            remedy = "pin again with pyconfd rollback N, or end it with pyconfd unpin"
            raise RejectedInput(Problem("pin", pin.broken, remedy))
        if self._inputs is None:
            self._inputs = self._around.inputs.read(pin.inputs)
        waiting = self._on_disk(self._inputs)
        self._restart_unless_in_force(self._around.taking(self._inputs), f"of generation {pin.generation}")
        self._status = PinStatus(pin, serves=True, waiting=waiting)
        return self._inputs.fragments

    def status(self, serving: FragmentSet | None, *, refused: bool) -> PinStatus | None:
        """Return the status; ``serving`` are the applied fragments, ``refused`` says that the newest were rejected."""
        status, inputs = self._status, self._inputs
        if status is None:
            return None
        # With former settings the same fragments are not the same.
        serves = status.serves and inputs is not None and serving == inputs.fragments
        return replace(status, serves=serves, refused=refused and not serves)

    def keep(self, found: FragmentSet) -> str:
        """Store fragments and settings for a rollback, and return their digest; a failure is shown and tried again."""
        self._unkept = GenerationInputs(found, self._around.in_force)
        digest = self._unkept.digest
        self.problems()
        return digest

    def problems(self) -> tuple[Problem, ...]:
        """Try again to store what could not be stored, and return why that fails."""
        if self._unkept is None:
            return ()
        pin = self._around.pin()
        try:
            self._around.inputs.keep(self._unkept, {*self._around.needed(), *([pin.inputs] if pin else [])})
        except TransientError as error:
            return error.problems
        self._unkept = None
        return ()

    def former(self, digest: str) -> FragmentSet | None:
        """Return the fragments that a generation was made of, None if they are not known."""
        if not digest:
            return None
        try:
            return self._around.inputs.read(digest).fragments
        except PyconfdError as error:
            log.warning("former_fragments.unknown", problem=error.problems[0].message, place=error.problems[0].place)
            return None

    def served(self, found: FragmentSet) -> bool:
        """Return whether a generation that is kept was made of these fragments, with the settings of this run."""
        return GenerationInputs(found, self._around.in_force).digest in self._around.needed()

    def _on_disk(self, inputs: GenerationInputs) -> tuple[str, ...]:
        """Return in words how the fragments and settings on disk differ from ``inputs``."""
        try:
            found = self._around.read()
        except PyconfdError as error:
            return (f"the fragments on disk cannot be used: {error.problems[0].message}",)
        if self._waiting is None or self._waiting[0] != found:
            changes = tuple(map(str, inputs.changes_to(GenerationInputs(found, self._around.on_disk))))
            if changes:
                log.info("edits.waiting", changes=list(changes[:8]), pinned=self._pin.generation if self._pin else 0)
            self._waiting = found, changes
        return self._waiting[1]

    def _restart_unless_in_force(self, settings: Kept, whose: str) -> None:
        if settings != self._around.in_force:
            self._around.restart()
            raise TransientError(Problem("pin", f"the settings {whose} are taken: pyconfd starts again with them"))
