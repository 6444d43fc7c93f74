"""``[guard]``: which losses are held."""

from dataclasses import dataclass
from typing import Annotated

from pyconfd.settings.kinds import Count, Seconds
from pyconfd.settings.setting import Setting


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """When a sudden loss of endpoints is held, beside that of all of them (``apply.total_loss``)."""

    share_percent: Annotated[
        int, Setting("a sudden loss of more than this part of all endpoints is held; 100 holds none", Count(1, 100))
    ] = 50
    least: Annotated[int, Setting("a loss of fewer endpoints than this is not held", Count(1, 1_000_000))] = 5
    window_s: Annotated[float, Setting("losses within this time count together", Seconds())] = 60.0
    persist_s: Annotated[
        float,
        Setting(
            "a held loss is believed once it has lasted so long and a second full list has confirmed it",
            Seconds(above=False),
        ),
    ] = 60.0
