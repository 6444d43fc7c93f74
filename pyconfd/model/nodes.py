"""What the balancers of one cluster tell each other of themselves, and what differs between them."""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

SILENT_S = 45.0
"""A node that was not heard of for so long is silent: three of its messages are missing."""

DIFFERS_S = 60.0
"""Nodes follow the cluster one after the other: what differs for less is no difference."""

_Word = Annotated[str, Meta(max_length=64)]
_Text = Annotated[str, Meta(max_length=400)]
_Count = Annotated[int, Meta(ge=0, le=2**53)]


class NodeSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """One balancer as it says of itself; what a newer version says beside is not read.

    ``fragments`` is the digest of those that it serves, ``generation`` a number of its own, and times are of its clock.
    ``level`` and ``sentence`` are whether everybody is served; ``holds``: it has a floating address, None where it has
    none of its own. ``beat`` is another number each time.
    """

    version: _Word
    level: _Word
    sentence: _Text
    fragments: _Word = ""
    generation: _Count = 0
    applied_at: _Count = 0
    started_at: _Count = 0
    hosts: _Count | None = None
    refused: _Count = 0
    holds: bool | None = None
    beat: _Count = 0


class NodeState(NamedTuple):
    """One balancer as this one knows it; ``heard_s`` is for how long nothing new was heard, ``is_own``: this one.

    ``differences`` are in words, of what differs from this one for a minute.
    """

    name: str
    summary: NodeSummary
    heard_s: float = 0.0
    is_own: bool = False
    differences: tuple[str, ...] = ()

    @property
    def is_silent(self) -> bool:
        """Whether it was not heard of for so long that what it said may be over."""
        return self.heard_s >= SILENT_S


def differences(own: NodeSummary, other: NodeSummary) -> Iterator[tuple[str, str]]:
    """Return what another balancer has otherwise: what, and a sentence about the other one."""
    if other.version != own.version:
        yield "version", f"it runs version {other.version}, this one {own.version}"
    if other.fragments != own.fragments and other.fragments and own.fragments:
        yield "fragments", "it serves other fragments than this one: pyconfd fragments on both"
    if other.hosts != own.hosts and other.hosts is not None and own.hosts is not None:
        yield "hosts", f"it serves {other.hosts:,} names, this one {own.hosts:,}: pyconfd status on both"
    if other.refused != own.refused:
        yield "refused", f"it leaves {other.refused:,} objects out, this one {own.refused:,}: pyconfd status on both"
