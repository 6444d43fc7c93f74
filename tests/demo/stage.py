"""What the demos run on: an appliance with two API servers."""

import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyconfd.model.changes import Action
from pyconfd.status.changes import ChangeReader, line_of
from tests.world.appliance import Appliance
from tests.world.clients import Crowd

PAUSE_S = 0.1
"""Between two requests of a client that keeps asking: seen on the page, and no load for who reads it."""


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C, and what else ends the demo, for as long as the ``with`` lasts."""
    former = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)


class Stage(Appliance, ABC):
    """A demo's appliance, in a folder that goes with it."""

    def __init__(self) -> None:
        self._folder = ExitStack()
        super().__init__(
            Path(self._folder.enter_context(tempfile.TemporaryDirectory(prefix="pyconfd-demo-"))), api_servers=2
        )
        self.forks = False  # who watches sees what users would start

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # One Ctrl-C more would end this halfway, and haproxy has a session of its own: it would stay.
        with _interrupts_ignored():
            super().__exit__(kind, error, trace)
            self._folder.close()

    @abstractmethod
    def populate(self) -> None:
        """Create the sample cluster."""

    @property
    def statistics_page(self) -> str:
        """The address of HAProxy's statistics, with the credentials that it asks for."""
        return f"http://127.0.0.1:{self.stats}/"

    @abstractmethod
    def clients(self) -> tuple[Crowd, ...]:
        """Start clients that keep asking while it stays up, so that the page and the log have something to show."""

    @abstractmethod
    def to_try(self) -> tuple[str, ...]:
        """Return commands to play with while it stays up."""

    def told(self, what: str) -> str:
        """Wait until ``pyconfd watch`` has told that ``what`` is done, return its line without the time."""
        found: list[str] = []

        def is_told() -> bool:
            with ChangeReader(f"{self.folder}/run") as reader:
                done = [line_of(change) for change in reader.known() if change.action is not Action.DEFERRED]
            found[:] = [each for each in done if what in each]
            return bool(found)

        self.until(is_told, f"pyconfd tells of {what}")
        return found[-1].partition(" ")[2]


@dataclass(frozen=True, slots=True)
class Play:
    """A stage, and the scenes that are played on it."""

    stage: Callable[[], Stage]
    scenes: Sequence[Callable[[Any], None]]
