"""How much may be asked for: the words of limits, as values and lines of a backend.

A limit is for all rules of the object that says it together. HAProxy counts in a few stick tables that all limits
share, under a hash of the object and of who is counted: a request that is allowed counts, one that is refused does
not, so that a client who asks for more than the limit goes on to get as much as the limit.

What a tenant can do to others with it: a full table forgets those that asked longest ago, so that many counted ones
(a limit by a header that clients make up) make HAProxy forget counts of other limits too, never add to them.
"""

import re
from typing import NamedTuple

from pyconfd.presets import values

_MOST = 1_000_000
_HEADER = re.compile(r"header:([A-Za-z0-9][A-Za-z0-9_-]{0,63})", re.ASCII)


class RequestLimits(NamedTuple):
    """Limits of one object, None for those that it does not ask for; ``by`` is "client", "route" or "header:NAME".

    ``status`` is that of requests beyond them.
    """

    second: int | None = None
    minute: int | None = None
    burst: int | None = None
    connections: int | None = None
    by: str = "client"
    status: int = 429

    def __bool__(self) -> bool:
        """Return whether there is a limit: the others only say more of one."""
        return any(each is not None for each in (self.second, self.minute, self.connections))

    @property
    def header(self) -> str:
        """The header whose values are counted, "" for none."""
        return self.by.removeprefix("header:") if self.by.startswith("header:") else ""

    @property
    def lines(self) -> "RequestLimits":
        """These without their values: equal ones have the same lines."""
        if not self:
            return NO_LIMITS
        second, minute, connections = (
            0 if each is not None else None for each in (self.second, self.minute, self.connections)
        )
        has_burst = self.burst is not None and (second is not None or minute is not None)
        return RequestLimits(second, minute, 0 if has_burst else None, connections, self.by, self.status)

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """The values that lines read from a map, each by its name there."""
        lines = self.lines
        return tuple(
            (name, str(getattr(self, name)))
            for name in ("second", "minute", "burst", "connections")
            if getattr(lines, name) is not None
        )

    @property
    def text(self) -> str:
        """All of it in words for people."""
        whom = {"client": "each client address", "route": "all clients"}.get(self.by, f"each value of {self.header}")
        parts = {"a second": self.second, "a minute": self.minute, "at the same time": self.connections}
        limits = ", ".join(f"{number} requests {period}" for period, number in parts.items() if number is not None)
        beyond = f", and {self.burst} beyond" if self.burst and self.lines.burst is not None else ""
        return f"{limits}{beyond} for {whom}, else {self.status}"


NO_LIMITS = RequestLimits()


def most(text: str) -> int:
    """Parse the most requests that are allowed; raise ValueError."""
    return values.number(text, 1, _MOST)


def burst(text: str) -> int:
    """Parse how many requests are allowed beyond a limit, which may be none."""
    return 0 if text.strip() == "0" else most(text)


def status(text: str) -> int:
    """Parse the status of requests beyond a limit."""
    if text.strip() not in {"429", "503"}:
        raise ValueError("expected 429 or 503")
    return int(text)


def counted_by(text: str) -> str:
    """Parse who is counted."""
    text = text.strip()
    if text in {"client", "route"}:
        return text
    if found := _HEADER.fullmatch(text):
        return f"header:{found[1].lower()}"
    raise ValueError("expected client, route or header:NAME, such as header:X-Api-Key")
