"""Wakes the loop from other threads; what happened is read from its source, so only the latest state counts."""

import queue


class Mailbox:
    """Counts posts. Safe in any thread and in signal handlers: ``SimpleQueue.put`` may interrupt itself."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.stopped = False
        """True once somebody asked the loop to end."""

    def post(self) -> None:
        """Say that something changed."""
        self._queue.put(1)

    def nudge(self) -> None:
        """End a wait early without saying that something changed."""
        self._queue.put(0)

    def stop(self) -> None:
        """Ask the loop to end, and wake it."""
        self.stopped = True
        self._queue.put(0)

    def take(self, timeout_s: float) -> int:
        """Wait up to ``timeout_s`` for a post or a nudge; give the number of posts since the last call."""
        posts = 0
        try:
            posts += self._queue.get(timeout=timeout_s)
            while True:
                posts += self._queue.get_nowait()
        except queue.Empty:
            return posts
