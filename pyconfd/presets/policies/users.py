"""Users with passwords, of Secrets that ``basic-auth-secret`` names, as HAProxy verifies them.

HAProxy asks crypt(3), in the thread that has the request: nothing else of that thread goes on meanwhile. It also does
so once for each user whenever it reads its configuration. So what a hash may cost is bounded, and so are all those of
a namespace together; and HAProxy remembers who was verified (``08-rules.tmpl``).

What a tenant can do to others with it: his users make each reload slower, up to the bound of his namespace; and his
passwords take a thread up to some tenths of each second, however many clients send new ones (``UserList.new``,
``failed``). A client with wrong passwords can only stop new logins of his own address, and of the attacked namespace.
"""

import base64
import binascii
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from pyconfd.model.kubernetes import Secret, why_left_out
from pyconfd.model.reservation import NEVER
from pyconfd.model.snapshot import Key
from pyconfd.presets import values

OPAQUE = "Opaque"
"""The type of Secrets without one. Source: Kubernetes' ``core/v1`` API."""
FILE_KEY = "auth"
"""Where a Secret has the lines of an htpasswd file. Source: ingress-nginx, examples/auth/basic."""

_USER = re.compile(r"[A-Za-z0-9._@+=~-]{1,64}", re.ASCII)
_BCRYPT = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}", re.ASCII)
_SHA = re.compile(
    r"\$(?:5\$(?:rounds=([0-9]{1,9})\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{43}"
    r"|6\$(?:rounds=([0-9]{1,9})\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{86})",
    re.ASCII,
)
_USUAL_COST, _MOST_COST = 5, 10
"""Of bcrypt. Each step takes twice as long: 1.4 ms with 5, the default of htpasswd, and 42 ms with 10."""
_USUAL_ROUNDS, _MOST_ROUNDS = 5_000, 100_000
"""Of SHA-crypt: 5,000 rounds take about as long as bcrypt with 5."""
_MOST_UNITS = 512
"""Of all users of a namespace; a unit is bcrypt with 5. HAProxy takes about 0.7 s to read as many."""
_UNITS_OF_NEW, _UNITS_OF_FAILED = 200, 40
"""What logins of a namespace may take in a second: all that are not remembered, and of these wrong passwords."""
_MOST_LINES = 2_000
_SHOWN_LINES = 5
_REMEDY = "make it with htpasswd -B"


class UserList(NamedTuple):
    """The users of a Secret with the hashes of their passwords. ``fault`` says why there are none.

    ``name`` is another one for each content: what HAProxy remembers of users begins with it. ``notes`` say which lines
    are left out, by their numbers. In a second, ``failed`` logins with wrong passwords and ``new`` ones at all may be
    verified for its namespace; ``units`` is what all of its users take together.
    """

    secret: Key
    since: str = NEVER
    name: str = ""
    users: tuple[tuple[str, str], ...] = ()
    units: int = 0
    failed: int = 1
    new: int = 1
    notes: str = ""
    fault: str = ""

    @property
    def rank(self) -> tuple[str, Key]:
        """The place among those of a namespace."""
        return self.since, self.secret


def read_users(secret: Secret) -> UserList | None:
    """Return the users of a Secret, or why it has none; None for one of another type."""
    if secret.type != OPAQUE:
        return None
    meta = secret.metadata
    key, since = Key(meta.namespace, meta.name), meta.creation_timestamp or NEVER
    if not values.is_object_name(key.name) or not values.is_object_name(key.namespace):
        return UserList(key, since, fault="not a name that can stand in a configuration")
    try:
        lines = tuple(_lines(secret.data or {}))
    except ValueError as error:
        return UserList(key, since, fault=str(error))
    return _parsed(key, since, lines)


def _lines(data: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Return users and hashes as they are written: of a file in ``auth``, else each key is a user."""
    if FILE_KEY in data and (":" in (text := _text(data[FILE_KEY], FILE_KEY)) or not text.startswith("$")):
        for line in text.splitlines():
            user, _, hashed = line.strip().partition(":")
            # What stands behind another colon is a comment for programs that read such files.
            yield user, hashed.partition(":")[0]
        return
    for user, value in sorted(data.items()):
        yield user, _text(value, "one of its values").strip()


def _text(value: str, name: str) -> str:
    if reason := why_left_out(name, value):
        raise ValueError(reason)
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64 of text") from None


@lru_cache(maxsize=1024)
def _parsed(key: Key, since: str, lines: tuple[tuple[str, str], ...]) -> UserList:
    if len(lines) > _MOST_LINES:
        return UserList(key, since, fault=f"more than {_MOST_LINES:,} lines")
    users: dict[str, str] = {}
    total = dearest = 0
    wrong: defaultdict[str, list[int]] = defaultdict(list)
    for number, (user, hashed) in enumerate(lines, 1):
        if (not user and not hashed) or user.startswith("#"):
            continue
        try:
            units = _units(hashed)
        except ValueError as error:
            wrong[str(error)].append(number)
            continue
        if not _USER.fullmatch(user) or user in users:
            wrong[_NO_USER].append(number)
            continue
        users[user] = hashed
        total, dearest = total + units, max(dearest, units)
    notes = "; ".join(f"{_numbered(numbers)}: {why}" for why, numbers in wrong.items())
    if not users:
        why = f"no user with a password that HAProxy can verify ({notes or 'it has no lines'})"
        return UserList(key, since, fault=why)
    content = repr((key, tuple(users.items()))).encode()
    name = f"users-{hashlib.sha256(content).hexdigest()[:32]}"
    failed, new = max(1, _UNITS_OF_FAILED // dearest), max(1, _UNITS_OF_NEW // dearest)
    return UserList(key, since, name, tuple(users.items()), total, failed, new, notes)


def _numbered(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN_LINES]))
    more = f" and {len(numbers) - _SHOWN_LINES} more" if len(numbers) > _SHOWN_LINES else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _units(hashed: str) -> int:
    """Return what it takes to verify a password by its hash.

    Raises:
        ValueError: HAProxy cannot, or it takes too much.
    """
    if found := _BCRYPT.fullmatch(hashed):
        cost = int(found[1])
        if not 4 <= cost <= _MOST_COST:
            raise ValueError(f"bcrypt with a cost of more than {_MOST_COST} takes too long: {_REMEDY} -C {_USUAL_COST}")
        return 1 << max(0, cost - _USUAL_COST)
    if found := _SHA.fullmatch(hashed):
        rounds = int(found[1] or found[2] or _USUAL_ROUNDS)
        if not 1_000 <= rounds <= _MOST_ROUNDS:
            raise ValueError(f"rounds are from 1,000 to {_MOST_ROUNDS:,}: {_REMEDY}")
        return -(-rounds // _USUAL_ROUNDS)
    kind = next((name for start, name in _KINDS.items() if hashed.startswith(start)), "")
    if kind:
        raise ValueError(f"HAProxy cannot verify {kind}: {_REMEDY}")
    raise ValueError(f"no hash of bcrypt ($2y$), SHA-256 ($5$) or SHA-512 ($6$): {_REMEDY}")


_NO_USER = "a former line has the user, or it has other characters than letters, digits and ._@+=~-, or more than 64"
_KINDS = {
    "$apr1$": "the MD5 of Apache ($apr1$), the default of htpasswd",
    "{SHA}": "{SHA}",
    "{SSHA}": "{SSHA}",
    "{PLAIN}": "{PLAIN}",
}


def beyond_room(lists: Iterable[UserList]) -> frozenset[Key]:
    """Return the Secrets of a namespace, the oldest first, that there is no room for."""
    total, found = 0, set()
    for each in lists:
        if total + each.units > _MOST_UNITS:
            found.add(each.secret)
        else:
            total += each.units
    return frozenset(found)


BEYOND_ROOM = (
    f"the passwords of this namespace's Secrets take too long to verify: together at most {_MOST_UNITS} users with"
    f" bcrypt of cost {_USUAL_COST}, or {_MOST_UNITS >> (_MOST_COST - _USUAL_COST)} with {_MOST_COST}"
)
