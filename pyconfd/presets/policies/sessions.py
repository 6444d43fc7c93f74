"""Words that keep a client at its pod: a cookie, or a header, whose random value requests are hashed by.

Its value names no pod, and a client that makes one up chooses no more than one pod of many for itself. A session that
ends after a time has that in its value too: ``BEGAN.USED.RANDOM`` in seconds, so that no load balancer keeps any.
"""

import re
from typing import Any, NamedTuple

from pyconfd.presets import values

_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+:@%/=-]{0,255}", re.ASCII)
_MOST_SECONDS = 2**31 - 1
_SAME_SITE = {"lax": "Lax", "strict": "Strict", "none": "None"}


class Session(NamedTuple):
    """What a client keeps its pod by, "" for nothing; its times are in seconds.

    The cookie has the other attributes, and ``secure`` None is for clients that have TLS. ``absolute`` and ``idle`` are
    how long a session lasts at all and without a request, None for any time.
    """

    name: str = ""
    is_header: bool = False
    path: str = "/"
    domain: str = ""
    max_age: int | None = None
    same_site: str = "Lax"
    secure: bool | None = None
    absolute: int | None = None
    idle: int | None = None

    def __bool__(self) -> bool:
        """Return whether there is one: its attributes alone keep nobody."""
        return bool(self.name)

    @property
    def is_timed(self) -> bool:
        """Whether its value says since when it lasts."""
        return self.absolute is not None or self.idle is not None

    @property
    def lines(self) -> "Session":
        """Itself without its values: equal ones have the same lines."""
        if not self:
            return NO_SESSION
        absolute, idle = (None if each is None else 0 for each in (self.absolute, self.idle))
        secure = None if self.secure is None else False
        return Session(self.name, self.is_header, secure=secure, absolute=absolute, idle=idle)

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """The values that lines read from a map, each by its name there."""
        if not self:
            return ()
        times = (("absolute", self.absolute), ("idle", self.idle))
        found = [(name, str(seconds)) for name, seconds in times if seconds is not None]
        return (*found, *([] if self.is_header else [("cookie", self._attributes)]))

    @property
    def _attributes(self) -> str:
        # Browsers take none that is for other sites without Secure.
        is_secure = self.secure or self.same_site == "None"
        parts = [
            f"Path={self.path}",
            *([f"Domain={self.domain}"] if self.domain else []),
            *([f"Max-Age={self.max_age}"] if self.max_age is not None else []),
            "HttpOnly",
            f"SameSite={self.same_site}",
            *(["Secure"] if is_secure else []),
        ]
        return "; ".join(parts)


NO_SESSION = Session()


def path(text: str) -> str:
    """Parse the path of a cookie; raise ValueError."""
    if not _PATH.fullmatch(text.strip()):
        raise ValueError("expected a path, such as /app, without semicolons and commas, of at most 256 characters")
    return text.strip()


def domain(text: str) -> str:
    """Parse the domain of a cookie; raise ValueError."""
    name = values.host_name(text.strip().removeprefix("."))
    if name.startswith("*") or values.address(name) is not None:
        raise ValueError("expected a domain, such as example.com")
    return name


def max_age(text: str) -> int:
    """Parse for how many seconds a browser keeps a cookie; raise ValueError."""
    return values.number(text, 1, _MOST_SECONDS, " of seconds")


def same_site(text: str) -> str:
    """Parse which requests of other sites a cookie is sent with; raise ValueError."""
    found = _SAME_SITE.get(text.strip().lower())
    if found is None:
        raise ValueError(f"expected one of {', '.join(_SAME_SITE.values())}")
    return found


def with_field(found: Session, field: str, value: Any) -> Session:
    """Return a session with another attribute of its cookie.

    Raises:
        ValueError: there is no cookie.
    """
    if not found:
        raise ValueError("there is no cookie: it goes with the word session-cookie")
    return found._replace(**{field: value})
