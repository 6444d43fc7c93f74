"""Finds the servers that a person means. Pure."""

import difflib
from collections.abc import Sequence

from pyconfd.errors import Problem, RejectedInput
from pyconfd.haproxy.readback import ServerNow

_SHOWN = 10


def find_servers(name: str, servers: Sequence[ServerNow], *, several: bool = False) -> list[ServerNow]:
    """Return what ``name`` stands for.

    That is ``backend/server``, the name of a server, its address with or without the port, or the pod that the names
    of shipped fragments begin with, in one backend (``backend/pod``) or any.

    Raises:
        RejectedInput: there is none, or more than one and not ``several``; names the candidates.
    """
    exact = [one for one in servers if _full(one) == name]
    found = exact or [one for one in servers if name in {one.name, one.target, one.address, f"[{one.address}]"}]
    found = found or [one for one in servers if f"{name}:" in {_pod(one), f"{one.backend}/{_pod(one)}"}]
    if not found:
        known = list(dict.fromkeys(text for one in servers for text in (_full(one), one.name, one.target)))
        close = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "pyconfd server list shows all"
        raise RejectedInput(Problem("server", f"there is no server {name!r}", hint))
    if len(found) > 1 and not several:
        names = [f"{_full(one)} ({one.target})" for one in found]
        more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
        candidates = ", ".join([*names[:_SHOWN], *more])
        message = f"{name!r} stands for {len(found)} servers: {candidates}"
        raise RejectedInput(Problem("server", message, "name one as BACKEND/SERVER, or take all with --all"))
    return found


def _pod(server: ServerNow) -> str:
    return server.name[: server.name.find(":") + 1]


def _full(server: ServerNow) -> str:
    return f"{server.backend}/{server.name}"
