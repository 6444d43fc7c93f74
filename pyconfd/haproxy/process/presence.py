"""Whether HAProxy runs, from one look after the other. Pure.

One look is no proof: a HAProxy that cannot bind starts, is there for 100 ms and ends, again and again, and some looks
fall into that time. So it is up again only when the same process was seen for a while.
"""

SETTLES_S = 2.0
"""How long one process has to answer until HAProxy counts as up again."""
SETTLES_UNASKED_S = 10.0
"""The same where no socket was ever seen to answer: the process may still read its configuration, and fail then."""


class Presence:
    """``up`` is None before enough is known; ``changed_at`` is when it was last set, of the clock of ``now``."""

    def __init__(self) -> None:
        self.up: bool | None = None
        self.changed_at = 0.0
        self._pids = frozenset[int]()
        """The master and the newest worker that were seen last, or all that was seen where none answered."""
        self._since = 0.0
        self._settled = False
        self._has_answered = False

    def see(self, pids: frozenset[int], now: float, *, answers: bool, may_ask: bool = True) -> None:
        """Record a look: the processes of HAProxy, none for nothing, and whether the newest worker answered.

        ``may_ask`` is False where its sockets are forbidden, so that no answer says nothing.
        """
        self._has_answered = (self._has_answered or answers) and may_ask
        if not pids:
            self._pids, self._settled = pids, False
            self._set(False, now)
            return
        if not pids & self._pids:
            # A restart: what came may be gone at once. One that answers is believed as long as all was well before.
            believed = answers and (self._settled or self.up is None)
            self._pids, self._since, self._settled = pids, now, False
            if believed:
                self._set(True, now)
            elif self.up is not None:
                self._set(False, now)
            return
        if answers:
            self._pids = pids
        waits_s = SETTLES_S if self._has_answered else SETTLES_UNASKED_S
        if now - self._since >= waits_s and (answers or self.up is not False or not self._has_answered):
            self._settled = True
            self._set(True, now)

    def replaced(self, pids: frozenset[int], now: float) -> None:
        """Record a reload that was verified: what was up goes on in these processes."""
        self._has_answered = True
        if self.up and pids:
            self._pids, self._settled = pids, True
        else:
            self.see(pids, now, answers=True)

    def _set(self, up: bool, now: float) -> None:
        if self.up is not up:
            self.up, self.changed_at = up, now
