"""A child that pins or unpins, runs the loop until it has settled, and dies before its n-th effect.

Reads one JSON object a line; see :mod:`tests.haproxy.crashing`. ``do`` is ``pin`` (to ``generation`` and ``inputs``),
``unpin`` or ``nothing``.
"""

import sys
import time
from typing import Any

from pyconfd.haproxy.history.pins import PinFile
from pyconfd.model.status import Phase, Pin
from pyconfd.settings import ApplySettings, HaproxySettings, HistorySettings, ReloadMethod, Settings, TemplateSettings
from tests.daemon.fakes import FakeClock, FakeSource, SettingsBed, cluster
from tests.haproxy.crashing import arm, main

HISTORY = HistorySettings(ran_well_s=3.0, rollout_monitor_s=0.0)


def settings_of(request: dict[str, Any]) -> Settings:
    return Settings(
        haproxy=HaproxySettings(reload_method=ReloadMethod.MASTER, **request["settings"]),
        apply=ApplySettings(keep_generations=3, retry_min_s=0.1, retry_max_s=0.2),
        history=HISTORY,
        templates=TemplateSettings(dir=request["templates"], vars={"answer": request["answer"]}),
        state_dir=request["state_dir"],
    )


class Run:
    """One run of the loop, from start to where it has settled; it starts again where a pin asks for that."""

    def __init__(self, own: Settings) -> None:
        self.own, self.clock = own, FakeClock()
        self.begin()

    def begin(self) -> None:
        source = FakeSource(cluster("192.0.2.10"))
        self.bed = SettingsBed(self.own, source, self.clock)
        source.notify()

    def settle(self) -> None:
        """Go on until all serves, and has run for a while."""
        for _ in range(200):
            self.clock.advance(1.0)
            self.bed.turn()
            if self.bed.is_to_restart:
                self.end()
                self.begin()
            status = self.bed.status
            served = status.phase is Phase.SERVING and (status.pin is None or status.pin.serves)
            marked = any(entry.ran_well for entry in self.bed.real.store.entries()[:1])
            if served and marked and not status.pending_since and not self.bed.real.file_behind:
                return
            time.sleep(0.01)
        raise AssertionError(self.bed.status)

    def end(self) -> None:
        self.bed.daemon.close()
        self.bed.end()


def act(request: dict[str, Any]) -> None:
    run = Run(settings_of(request))
    run.bed.daemon.step(1)
    arm(request["die_before"])
    pins = PinFile(request["state_dir"])
    if request["do"] == "pin":
        pins.begin(Pin("one", request["generation"], request["inputs"], 1.0))
    elif request["do"] == "unpin":
        pins.end()
    run.settle()
    run.end()
    sys.setprofile(None)


if __name__ == "__main__":
    main(act)
