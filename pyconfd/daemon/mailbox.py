"""Wakes the loop from other threads; what happened is read from its source, so only the latest state counts."""

import threading


class Mailbox:
    """Counts posts; safe to use from any thread and from signal handlers' wake-up thread."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._posts = 0
        self._urgent = False

    def post(self) -> None:
        """Say that something changed."""
        with self._condition:
            self._posts += 1
            self._condition.notify()

    def nudge(self) -> None:
        """End a wait early without saying that something changed."""
        with self._condition:
            self._urgent = True
            self._condition.notify()

    def take(self, timeout_s: float) -> int:
        """Wait up to ``timeout_s`` for a post or nudge; give the number of posts since the last call."""
        with self._condition:
            self._condition.wait_for(lambda: self._posts or self._urgent, timeout_s)
            posts, self._posts, self._urgent = self._posts, 0, False
            return posts
