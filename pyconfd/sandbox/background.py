"""Templates from the cluster, rendered in a thread so that nothing waits for a slow one; and the last accepted ones."""

import hashlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from pyconfd.errors import PendingRendering, RejectedInput
from pyconfd.model.context import AcceptedTemplate, ClusterTemplate
from pyconfd.sandbox.renderer import OverLimitError
from pyconfd.system.state_file import StateFile

FILE = "cluster-templates.json"

_MOST_BYTES = 64 << 20
_ENTRY_BYTES = 1_000
"""What an entry costs beside its text."""
_MOST_SOURCES = 8
_PATIENCE_S = 5.0
"""How long a stop waits for the thread; ``interrupt`` has ended the rendering by then."""

_Outcome = str | RejectedInput
_Request = tuple[str | bool, ...]
_Key = tuple[str, bool, bool]
"""A template's name, whether its source was accepted before, and whether it is a trial."""


class BackgroundTemplates:
    """Remembers what each request gave, and what each source gave last.

    A newer request replaces one that still waits under the same key, so a steady stream of changes cannot pile up.
    """

    def __init__(self, render: Callable[[ClusterTemplate], str], interrupt: Callable[[], object]) -> None:
        """Call ``render`` in the thread; ``interrupt``, called from another one, ends the rendering that runs."""
        self._render = render
        self._interrupt = interrupt
        self._lock = threading.Condition()
        self._waiting: dict[_Key, tuple[_Request, ClusterTemplate]] = {}
        self._running: _Request | None = None
        self._done: dict[_Request, _Outcome] = {}
        self._latest: dict[tuple[str, str], _Outcome] = {}
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._bug: BaseException | None = None

    def start(self, on_done: Callable[[], None]) -> None:
        """Begin; ``on_done`` is called from the thread after each rendering."""
        self._thread = threading.Thread(target=self._run, args=(on_done,), name="cluster-templates", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and the rendering that runs."""
        with self._lock:
            self._stopping = True
            self._lock.notify()
        self._interrupt()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)

    def render(self, template: ClusterTemplate) -> str:
        """Return the text of ``template`` if it is known; returns at once.

        Raises:
            RejectedInput: it is refused.
            PendingRendering: it is being rendered.
        """
        known = request = _request(template)
        with self._lock:
            if self._bug is not None:
                raise self._bug
            if known not in self._done:
                known = _with_budget(request, template)
            outcome = self._done.get(known)
            if outcome is None or (isinstance(outcome, OverLimitError) and time.monotonic() >= outcome.until):
                if request != self._running:
                    self._waiting[template.name, template.accepted, template.trial] = request, template
                    self._lock.notify()
                raise PendingRendering(self._latest.get((template.name, template.text)))
            self._keep(known, template, outcome)
        if isinstance(outcome, RejectedInput):
            raise RejectedInput(*outcome.problems, step=outcome.step)  # a new one: the old one collects tracebacks
        return outcome

    def _run(self, on_done: Callable[[], None]) -> None:
        try:
            while True:
                with self._lock:
                    self._lock.wait_for(lambda: self._waiting or self._stopping)
                    if self._stopping:
                        return
                    self._running, template = self._waiting.pop(next(iter(self._waiting)))
                outcome = self._outcome(template)
                with self._lock:
                    self._remember(self._running, template, outcome)
                    self._running = None
                on_done()
        finally:
            # The loop raises it and ends; the service manager starts the process again.
            self._bug = sys.exception()
            if self._bug is not None:
                on_done()

    def _outcome(self, template: ClusterTemplate) -> _Outcome:
        try:
            return self._render(template)
        except RejectedInput as error:
            return error.with_traceback(None)

    def _remember(self, request: _Request, template: ClusterTemplate, outcome: _Outcome) -> None:
        self._keep(
            _with_budget(request, template) if isinstance(outcome, OverLimitError) else request, template, outcome
        )
        cost = sum(map(_cost, self._done.values()))
        while cost > _MOST_BYTES and len(self._done) > 1:
            cost -= _cost(self._done.pop(next(iter(self._done))))

    def _keep(self, known: _Request, template: ClusterTemplate, outcome: _Outcome) -> None:
        """Put it last, so that what was asked for long ago is forgotten first."""
        self._done.pop(known, None)
        self._done[known] = outcome
        if not template.trial:
            source = template.name, template.text
            self._latest.pop(source, None)
            self._latest[source] = outcome
            while len(self._latest) > _MOST_SOURCES:
                del self._latest[next(iter(self._latest))]


def _request(template: ClusterTemplate) -> _Request:
    asked: Any = (template.name, template.text, dict(template.names), dict(template.required))
    return (hashlib.blake2b(msgspec.json.encode(asked), digest_size=16).hexdigest(),)


def _with_budget(request: _Request, template: ClusterTemplate) -> _Request:
    """Return what a refusal is known by that is about the time a template may take, not about the request."""
    return *request, template.accepted


def _cost(outcome: _Outcome) -> int:
    return _ENTRY_BYTES + (len(outcome) if isinstance(outcome, str) else 0)


class AcceptedTemplates:
    """The templates that were applied last, in the state directory, so that a bad one can be replaced after a restart.

    A file that cannot be read counts as empty.
    """

    def __init__(self, state_dir: str) -> None:
        # Only for this user: a template may hold a password.
        self._file = StateFile(Path(state_dir) / FILE, list[AcceptedTemplate], mode=0o600)
        self._known: Mapping[str, AcceptedTemplate] | None = None

    def known(self) -> Mapping[str, AcceptedTemplate]:
        """Return what was kept last, by name."""
        if self._known is None:
            self._known = MappingProxyType({each.name: each for each in self._file.load() or ()})
        return self._known

    def keep(self, accepted: tuple[AcceptedTemplate, ...]) -> None:
        """Keep just these; a failure stops nobody and is tried again at each call."""
        wanted = {each.name: each for each in accepted}
        if self._file.problem is None and wanted == self.known():
            return
        self._known = MappingProxyType(wanted)
        self._file.save(list(accepted))
