"""Renders templates from the cluster in a thread, so that nothing else waits for one that takes long."""

import hashlib
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from pyconfd.errors import PendingRendering, RejectedInput
from pyconfd.model.context import ClusterTemplate
from pyconfd.predecessors.sandbox.renderer import OverLimitError

_MOST_REMEMBERED = 8
"""One attempt may ask for several forms of one template: ports that cannot be had are left out in the second."""
_PATIENCE_S = 5.0
"""How long a stop waits for the thread; ``interrupt`` has ended the rendering by then."""

_Result = str | RejectedInput


class BackgroundTemplates:
    """Remembers what the last requests gave, and what each source gave last.

    A newer request replaces one of the same template that still waits, so a steady stream of changes cannot pile up.
    """

    def __init__(self, render: Callable[[ClusterTemplate], str], interrupt: Callable[[], object]) -> None:
        """Call ``render`` in the thread; ``interrupt``, called from another one, ends the rendering that runs."""
        self._render = render
        self._interrupt = interrupt
        self._lock = threading.Condition()
        self._waiting: dict[str, tuple[bytes, ClusterTemplate]] = {}
        self._running: bytes | None = None
        self._done: dict[bytes, _Result] = {}
        self._latest: dict[tuple[str, str], _Result] = {}
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
            RejectedInput: it is rejected.
            PendingRendering: it is being rendered.
        """
        request = _digest(template)
        with self._lock:
            if self._bug is not None:
                raise self._bug
            result = self._done.get(request)
            if result is None or (isinstance(result, OverLimitError) and time.monotonic() >= result.until):
                if request != self._running:
                    self._waiting[template.name] = request, template
                    self._lock.notify()
                raise PendingRendering(self._latest.get((template.name, template.text)))
            self._remember(request, template, result)
        if isinstance(result, RejectedInput):
            raise RejectedInput(*result.problems, step=result.step)  # a new one: the old one collects tracebacks
        return result

    def _run(self, on_done: Callable[[], None]) -> None:
        try:
            while True:
                with self._lock:
                    self._lock.wait_for(lambda: self._waiting or self._stopping)
                    if self._stopping:
                        return
                    self._running, template = self._waiting.pop(next(iter(self._waiting)))
                result: _Result
                try:
                    result = self._render(template)
                except RejectedInput as error:
                    result = error.with_traceback(None)
                with self._lock:
                    self._remember(self._running, template, result)
                    self._running = None
                on_done()
        finally:
            # The loop raises it and ends; the service manager starts the process again.
            self._bug = sys.exception()
            if self._bug is not None:
                on_done()

    def _remember(self, request: bytes, template: ClusterTemplate, result: _Result) -> None:
        """Move it to the end, so that what was asked for long ago is forgotten first."""
        for memory, key in ((self._done, request), (self._latest, (template.name, template.text))):
            known: dict[object, _Result] = memory  # type: ignore[assignment]
            known.pop(key, None)
            known[key] = result
            while len(known) > _MOST_REMEMBERED:
                del known[next(iter(known))]


def _digest(template: ClusterTemplate) -> bytes:
    """Return a digest of all that decides what a template renders to."""
    asked = (template.name, template.text, dict(template.names), dict(template.required))
    return hashlib.blake2b(msgspec.json.encode(asked, enc_hook=dict), digest_size=16).digest()
