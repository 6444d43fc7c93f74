"""Which fragments are rendered with: those on disk, or those that are pinned."""

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from pyconfd.daemon.pinning import Pinning, PinSurroundings
from pyconfd.errors import Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.haproxy.history.pins import InputsStore
from pyconfd.model.inputs import GenerationInputs
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.status import Pin

AWAY = TransientError(Problem("/etc/pyconfd", "does not exist"))


def fragments(text: str) -> FragmentSet:
    return FragmentSet((Fragment("01.conf", text),))


class Desk(InputsStore):
    """A pinning with everything around it in memory."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.disk: FragmentSet | PyconfdError = fragments("new")
        self.pin: Pin | None = None
        self.kept: dict[str, GenerationInputs] = {}
        self.needed: set[str] = set()
        self.full = False
        self.begun_again = 0
        self.settings = settings or {}
        self.pinning = self.started()

    def started(self) -> Pinning:
        in_force = self.kept[self.pin.inputs].settings if self.pin else self.settings
        around = PinSurroundings(
            self._read,
            lambda: self.pin,
            self,
            self.settings,
            in_force,
            lambda inputs: inputs.settings,
            self._begin_again,
            lambda: self.needed,
        )
        return Pinning(around)

    def _read(self) -> FragmentSet:
        if isinstance(self.disk, PyconfdError):
            raise self.disk
        return self.disk

    def _begin_again(self) -> None:
        self.begun_again += 1

    def keep(self, inputs: GenerationInputs, needed: Collection[str]) -> None:
        if self.full:
            raise TransientError(Problem("inputs", "the disk is full"))
        self.kept = {digest: each for digest, each in self.kept.items() if digest in needed}
        self.kept[inputs.digest] = inputs

    def read(self, digest: str) -> GenerationInputs:
        if digest not in self.kept:
            raise RejectedInput(Problem("inputs", "is not there"))
        return self.kept[digest]

    def pins(self, text: str, settings: Mapping[str, Any] | None = None, number: int = 41) -> FragmentSet:
        inputs = GenerationInputs(fragments(text), self.settings if settings is None else settings)
        self.kept[inputs.digest] = inputs
        self.pin = Pin(f"id {text} {number}", number, inputs.digest, 10.0)
        return inputs.fragments


def test_a_pin_that_nobody_understands_lets_nothing_new_in() -> None:
    desk = Desk()
    desk.pin = Pin("", 0, "", 1.0, broken="pin.json is damaged")
    with pytest.raises(RejectedInput, match="damaged") as caught:
        desk.pinning.read()
    assert "pyconfd unpin" in caught.value.problems[0].remedy
    desk.pin = Pin("a", 7, "gone", 1.0)
    with pytest.raises(RejectedInput, match="is not there"):
        desk.pinning.read()


def test_what_serves_what_is_needed_and_what_is_pinned_is_kept() -> None:
    desk = Desk()
    pinned = desk.pins("old")
    first = desk.pinning.keep(fragments("first"))
    desk.needed = {first}
    second = desk.pinning.keep(fragments("second"))
    assert desk.pin is not None
    assert set(desk.kept) == {first, second, desk.pin.inputs}
    assert desk.pinning.former(first) == fragments("first")
    assert desk.pinning.former(desk.pin.inputs) == pinned
    assert desk.pinning.former("") is None
    assert desk.pinning.former("unknown") is None


def test_a_full_disk_is_shown_until_what_could_not_be_kept_is() -> None:
    desk = Desk()
    desk.full = True
    digest = desk.pinning.keep(fragments("first"))
    assert [problem.message for problem in desk.pinning.problems()] == ["the disk is full"]
    desk.full = False
    assert desk.pinning.problems() == ()
    assert set(desk.kept) == {digest}
