"""Keeps back sudden losses.

An empty list after a permission change, a restored etcd or a wrong cluster looks like a cluster in which everything
was deleted. HAProxy's own health checks know better which of the last known servers answer, so the removals wait until
the endpoints return, the loss proves to be lasting, or an operator says that it is meant.

:class:`Guard` judges Snapshots and keeps back removals alone; :class:`CountingGuard` and :func:`judge` have nothing but
numbers, and keep back a whole change. All of it is pure.
"""

from pyconfd.guard.census import CountingGuard, judge
from pyconfd.guard.changes import kept_back
from pyconfd.guard.guard import Guard, Moment, Seen
from pyconfd.guard.rules import Rules

__all__ = ["CountingGuard", "Guard", "Moment", "Rules", "Seen", "judge", "kept_back"]
