"""The section ``[apply]``."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pyconfd.settings.kinds import Count, Seconds, choice_of
from pyconfd.settings.setting import Setting

_WAIT = Seconds()


class TotalLoss(StrEnum):
    """What to do when every endpoint is gone at once."""

    HOLD = "hold"
    APPLY = "apply"


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """``[apply]``: when changes are applied and what is kept."""

    quiet_s: Annotated[
        float,
        Setting(
            "a change that needs a reload is applied when nothing more came for so long; others are at once",
            Seconds(above=False),
        ),
    ] = 0.2
    cap_s: Annotated[
        float, Setting("a change that needs a reload is applied after so long at the latest", Seconds(above=False))
    ] = 2.0
    reload_interval_s: Annotated[
        float,
        Setting("least time between two reloads; what needs one waits and is merged", Seconds(above=False)),
    ] = 2.0
    drain_limit_s: Annotated[
        float, Setting("longest time that sessions of a removed server may go on", Seconds(above=False))
    ] = 600.0
    retry_min_s: Annotated[float, Setting("first pause before a failed change is tried again", _WAIT)] = 1.0
    retry_max_s: Annotated[float, Setting("longest pause between tries", _WAIT)] = 60.0
    boot_wait_s: Annotated[
        float, Setting("wait for the cluster at start before the last good one serves", Seconds(above=False))
    ] = 5.0
    keep_generations: Annotated[int, Setting("applied configurations kept on disk", Count(1, 10_000))] = 20
    total_loss: Annotated[
        TotalLoss,
        Setting(
            "when every endpoint is gone: hold that until an operator allows it, or (apply) as any other loss",
            choice_of(TotalLoss),
        ),
    ] = TotalLoss.HOLD
