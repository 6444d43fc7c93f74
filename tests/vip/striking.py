"""One fault on one bed, with clients asking, and what came of it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.vip.bed import VIP4, VIP6, Bed
from tests.vip.faults import Fault
from tests.vip.observer import double_s, is_double, settled_s, states


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a fault did; times in seconds.

    ``new`` and ``kept`` are what came back to the clients, ``double_s`` how long two nodes could be reached at the
    address of the fault's family, ``settled_s`` when the holder changed for the last time (0: never), ``mended_s`` the
    same from the fault's end on, ``alarm_s`` when the alarm came: since the fault, or since there were two holders;
    ``events`` are the transitions of the former holder's hook with their causes.
    """

    before: str
    after: str
    new: Mapping[str, Any]
    kept: Mapping[str, Any]
    double_s: float
    settled_s: float
    mended_s: float
    alarm_s: float | None
    events: Sequence[tuple[str, str]]


def strike(bed: Bed, fault: Fault, limit_s: float) -> Outcome:
    """Inject a fault and mend it again; clients give up a request after ``limit_s``.

    Raises:
        AssertionError: not one node held the address in time, or the clients were not answered by it.
    """
    # A node that crashed may have its addresses still.
    holder = bed.leave_last() if fault.last else bed.holder
    with bed.traffic(fault.host, limit_s) as clients:
        clients.until_answered(holder.name, new=80)
        since = time.time()
        fault.inject(bed, holder)
        bed.until_settled(fault.bound_s, but=holder.name if fault.moves else "")
        ((after, _),) = bed.observer.holders(fault.host)
        if fault.serves:
            clients.until_answered(after)
        until = time.time()
        found = clients.finish()
    alarm_s = _alarm_s(bed, fault, since)
    seen = [(one["what"], one.get("cause", "")) for one in holder.transitions() if one["at"] >= since]
    fault.mend(bed, holder)
    bed.until_ready()
    bed.until_settled(fault.bound_s)
    events = bed.observer.events()
    return Outcome(
        holder.name, after, found["new"], found["kept"],
        double_s(events, fault.host, since, until),
        settled_s([event for event in events if event.at <= until], (VIP4, VIP6), since),
        settled_s(events, (VIP4, VIP6), until),
        alarm_s, seen,
    )  # fmt: skip


def _alarm_s(bed: Bed, fault: Fault, since: float) -> float | None:
    if not fault.alarm:
        return None
    doubles = (at for at, holders in states(bed.observer.events(), fault.host) if at >= since and is_double(holders))
    at = min(
        one["at"]
        for node in bed.nodes
        for one in node.transitions()
        if one["what"] == "alarm.raised" and one["cause"] == fault.alarm and one["at"] >= since
    )
    return float(at - next(doubles, since))


def wrongs(fault: Fault, outcome: Outcome) -> list[str]:
    """Return what should not have been."""
    moved = outcome.after != outcome.before
    found = {
        "the address moved": moved and fault.moves is False,
        "the address did not move": not moved and fault.moves is True,
        "the holder changed for a while": fault.moves is False and outcome.settled_s > 0,
        "its end moved the address": fault.harmless and outcome.mended_s > 0,
        "a new connection failed": fault.harmless and outcome.new["failed"] > 0,
        "a kept connection failed": fault.harmless and outcome.kept["failed"] > 0,
        "the hook did not record why": fault.event is not None and not _records(outcome.events, *fault.event),
    }
    return [what for what, is_so in found.items() if is_so]


def _records(events: Sequence[tuple[str, str]], what: str, cause: str) -> bool:
    return any(event == what and cause in causes.split(",") for event, causes in events)
