"""What the loop obeys."""

from dataclasses import dataclass, field

from pyconfd.guard import Rules
from pyconfd.settings import ApplySettings, HistorySettings


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """``presets`` in the order of the settings; ``version`` and ``pid`` are for the status."""

    apply: ApplySettings
    presets: tuple[str, ...]
    version: str
    pid: int
    guard: Rules = field(default_factory=Rules)
    history: HistorySettings = field(default_factory=HistorySettings)
