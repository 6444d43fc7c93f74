"""What the loop obeys."""

from dataclasses import dataclass, field

from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.settings import ApplySettings, HistorySettings


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """``presets`` in the order of the settings; ``version`` and ``pid`` are for the status."""

    apply: ApplySettings
    presets: tuple[str, ...]
    version: str
    pid: int
    removal: RemovalRules = field(default_factory=RemovalRules)
    history: HistorySettings = field(default_factory=HistorySettings)
