"""The section that says which generations are kept, and how a new one has to prove itself."""

from dataclasses import dataclass
from typing import Annotated

from pyconfd.settings.kinds import Boolean, Seconds
from pyconfd.settings.setting import Setting

_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """``[history]``: how long generations are kept, when one has proved itself, what happens where one does not."""

    keep_for_s: Annotated[
        float,
        Setting("generations older than this are removed, but for those that a rollback or a boot needs", Seconds()),
    ] = 30 * _DAY_S
    ran_well_s: Annotated[
        float, Setting("a structure that ran so long without an event serves at a boot", Seconds(above=False))
    ] = 60.0
    probation_s: Annotated[
        float,
        Setting(
            "errors and servers are compared with before for so long after a reload; 0: never", Seconds(above=False)
        ),
    ] = 60.0
    probation_rollback: Annotated[
        bool,
        Setting("go back to the former fragments by itself where errors leap up after an edit of them", Boolean()),
    ] = False


UNCHANGED = HistorySettings()
"""The defaults."""
