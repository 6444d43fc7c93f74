"""Keeps back a change that would leave nothing to serve.

An empty list after a permission change, a restored etcd or a wrong cluster looks like a cluster in which everything
was deleted. HAProxy's own health checks know better which of the last known servers answer, so the change waits until
the cluster shows endpoints again or an operator says that it is meant.
"""

import hashlib
from collections.abc import Callable

from pyconfd.errors import Problem
from pyconfd.model.context import Census
from pyconfd.model.outcome import Held


def judge(before: Census | None, after: Census, *, digest: Callable[[], str], allowed: frozenset[str]) -> Held | None:
    """Give a hold if every endpoint is gone at once, else None.

    ``before`` is the census of what is applied (None: nothing is), ``digest`` gives that of the rendering in
    question, which is asked for only where it is held, and ``allowed`` are the holds that an operator let through.
    """
    if before is None:
        return None
    lost = "claimed" if before.claimed and not after.claimed else "total" if before.total and not after.total else ""
    if not lost:
        return None
    hold_id = hashlib.sha256(f"{lost} {digest()}".encode()).hexdigest()[:8]
    if hold_id in allowed:
        return None
    count = before.claimed if lost == "claimed" else before.total
    gone = "the last ready endpoint" if count == 1 else f"all {count:,} ready endpoints"
    went = "is" if count == 1 else "are"
    what = "behind the served names" if lost == "claimed" else "in the cluster"
    return Held(
        hold_id,
        Problem(
            "guard",
            f"{gone} {what} {went} gone at once; the last good configuration keeps serving",
            f"check the cluster and pyconfd's permissions; if this is meant, run: pyconfd allow {hold_id}",
        ),
    )
