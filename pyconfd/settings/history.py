"""The section about kept generations and the rollout monitor."""

from dataclasses import dataclass
from typing import Annotated

from pyconfd.settings.kinds import Seconds
from pyconfd.settings.setting import Setting

_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """``[history]``: how long generations are kept, when one ran well, how long a new one is monitored."""

    keep_for_s: Annotated[
        float,
        Setting("generations older than this are removed, but for those that a rollback or a boot needs", Seconds()),
    ] = 30 * _DAY_S
    ran_well_s: Annotated[
        float, Setting("a structure that ran so long without an event serves at a boot", Seconds(above=False))
    ] = 60.0
    rollout_monitor_s: Annotated[
        float,
        Setting(
            "error rates and servers that are up are compared for so long after a reload; 0: never",
            Seconds(above=False),
        ),
    ] = 60.0


UNCHANGED = HistorySettings()
"""The defaults."""
