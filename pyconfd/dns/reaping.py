"""Which nodes are dead: silent on the network, and silent in Route 53.

Both pieces of evidence are needed. A node that does not answer is doubted: that is written beside its record. A node
that lives and reaches Route 53 reads it and wipes it out; one that serves but does not reach Route 53 answers on the
network. Only where neither happens for the whole time, and its sequence stays the same, is it taken out.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from pyconfd.dns.ownership import Marker


class Verdict(StrEnum):
    """What to do about a node."""

    LEAVE = "leave"
    DOUBT = "doubt"
    TRUST = "trust"
    """Wipe the doubt out that this node wrote down."""
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Since when a node has been silent, and since when it has left a doubt standing; 0.0 for neither."""

    sequence: int
    silent_since: float = 0.0
    doubted_since: float = 0.0


def judge(
    marker: Marker, suspicion: Suspicion | None, *, answers: bool, me: str, now: float, after_s: float
) -> tuple[Suspicion | None, Verdict]:
    """Return what is thought of a node now, and what follows."""
    if marker.node == me or marker.adopted or not marker.addresses:
        return None, Verdict.LEAVE
    if answers:
        return None, Verdict.TRUST if marker.doubt == me else Verdict.LEAVE
    if suspicion is None or suspicion.sequence != marker.sequence:
        suspicion = Suspicion(marker.sequence, silent_since=now)
    doubted_since = (suspicion.doubted_since or now) if marker.doubt else 0.0
    suspicion = replace(suspicion, doubted_since=doubted_since)
    if now - suspicion.silent_since < after_s:
        return suspicion, Verdict.LEAVE
    if not marker.doubt:
        return suspicion, Verdict.DOUBT
    return suspicion, Verdict.FORGET if now - doubted_since >= after_s else Verdict.LEAVE
