"""What removal protection holds, in the words of status, metrics and logs."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from pyconfd.errors import Problem

SHOWN = 8
"""So many names of a hold are shown."""

PLACE = "removal protection"
"""What its problems are said to be about."""

ADOPTION = "adopt"
"""The ID of the hold before the first configuration replaces one that pyconfd did not write."""


def command_of(hold_id: str) -> str:
    """Return the command that allows what is held."""
    return "pyconfd adopt" if hold_id == ADOPTION else f"pyconfd allow {hold_id}"


class HoldKind(StrEnum):
    """What would go: everything, all that one preset serves, or more than the allowed share."""

    TOTAL = "total"
    PRESET = "preset"
    SHARE = "share"


class HoldStep(StrEnum):
    """What happens to a hold; the last three end it."""

    BEGUN = "begun"
    CONFIRMED = "confirmed"
    EXPIRED = "expired"
    ALLOWED = "allowed"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class Hold:
    """Removals that are held; everything else of the same change went through.

    ``lost`` of ``of`` endpoints are gone from the cluster and still served; ``already_applied`` more were lost shortly
    before, and are not served any more. ``names`` are the first of the ``affected`` domains, services or backends.
    ``preset`` is "" unless all of one preset is gone. Times are seconds since the epoch: ``confirmed_at`` is when a
    second full list said the same, 0.0 for not yet; ``applies_at`` is when the loss is believed unless it ends before,
    0.0 where only an operator decides. ``missing_classes`` are those of pyconfd that are gone too, with their kind:
    without its class an object asks for nothing.
    """

    hold_id: str
    kind: HoldKind
    since: float
    lost: int
    of: int
    affected: int
    names: tuple[str, ...] = ()
    preset: str = ""
    confirmed_at: float = 0.0
    applies_at: float = 0.0
    already_applied: int = 0
    missing_classes: tuple[str, ...] = ()

    @property
    def problem(self) -> Problem:
        """Return what is held and what to do; the text stays the same while the hold does."""
        names = ", ".join(self.names) + (f" and {self.affected - len(self.names)} more" if self._more else "")
        remedy = "look at the cluster and pyconfd's permissions"
        behind = f" (behind {names})" if names else ""
        confirmed = "a second full list says the same" if self.confirmed_at else "a second full list is awaited"
        if self.kind is HoldKind.TOTAL:
            gone = "the last ready endpoint is gone" if self.of == 1 else f"all {self.of:,} ready endpoints are gone"
            gone += f", {self.already_applied:,} of them applied before" if self.already_applied else ""
            who = f"the other {self.lost:,} stay" if self.already_applied else "they stay"
            then = f"{who}, and HAProxy's own checks decide who gets traffic, until an operator says otherwise"
        else:
            gone = f"{self.lost:,} of {self.of:,} ready endpoints are gone at once"
            gone += f", after {self.already_applied:,} that are applied" if self.already_applied else ""
            if self.kind is HoldKind.PRESET:
                gone = f"all that preset {self.preset} serves is gone: {gone}"
            then = "they stay"
            if self.applies_at:
                at = datetime.fromtimestamp(self.applies_at, UTC).strftime("%H:%M:%S UTC")
                then = (
                    f"they stay until {at}, and are taken for gone then"
                    if self.confirmed_at
                    else f"they stay until that list confirms it, and until {at} at least"
                )
        if self.missing_classes:
            classes = " and ".join(self.missing_classes)
            gone = f"{classes} {'is' if len(self.missing_classes) == 1 else 'are'} gone, so {gone}"
            remedy = "create it again with `kubectl apply`"
        return Problem(
            PLACE,
            f"{gone}{behind}; {confirmed}; {then}",
            f"{remedy}; if this is meant, run: pyconfd allow {self.hold_id}",
        )

    @property
    def _more(self) -> bool:
        return self.affected > len(self.names)


@dataclass(frozen=True, slots=True)
class HoldEvent:
    """One step of a hold, as it was then."""

    step: HoldStep
    hold: Hold
