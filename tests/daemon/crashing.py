"""A child that pins or unpins, runs the loop until it has settled, and dies before its n-th effect.

Reads one JSON object a line; see :mod:`tests.haproxy.crashing`. ``do`` is ``pin`` (to ``generation`` and ``inputs``),
``unpin`` or ``nothing``.
"""

import sys
import time
from contextlib import ExitStack
from typing import Any

from pyconfd import wiring
from pyconfd.app.daemon import pinned_settings, pinning, rollout_port
from pyconfd.daemon.loop import Daemon, LoopSettings
from pyconfd.daemon.name_register import NameRegisterFile
from pyconfd.daemon.ports import World
from pyconfd.haproxy.history.pins import PinFile
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.status import Phase, Pin
from pyconfd.settings import ApplySettings, HaproxySettings, HistorySettings, ReloadMethod, Settings, TemplateSettings
from pyconfd.sources.fragments import read_fragments
from tests.daemon.fakes import FakeClock, FakeNotifier, FakeSource, cluster
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
    """One run of the loop, from start to where it has settled; it begins anew where a pin asks for that."""

    def __init__(self, own: Settings) -> None:
        self.own = own
        self.clock = FakeClock()
        self.begin()

    def begin(self) -> None:
        self.anew = False
        self.parts = ExitStack()
        settings = pinned_settings(self.own)
        self.balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir, unit=UnitFacts())
        self.parts.callback(self.balancer.close)
        self.balancer.startup()
        chosen = pinning(self.own, settings, lambda: read_fragments(settings.templates.dir), self._begin_anew)
        source = FakeSource(cluster("192.0.2.10"))
        world = World(
            source=source,
            balancer=self.balancer,
            notifier=FakeNotifier(),
            clock=self.clock,
            read_fragments=chosen.read,
            make_renderer=lambda found: wiring.renderer(settings, found, inputs=chosen.keep(found)),
            preset_options=lambda renderer: wiring.preset_options(settings, renderer),
            allowed_holds=frozenset,
            forget_holds=lambda: None,
            publish=lambda _: None,
            other_problems=chosen.problems,
            former_fragments=chosen.former,
            pinned=lambda serving, refused: chosen.status(serving, refused=refused),
            rollout=rollout_port(settings, self.balancer, self.parts),
            name_register=NameRegisterFile(settings.state_dir, settings.claims.reserve_s),
        )
        loop = LoopSettings(settings.apply, settings.presets.use, "0", 1, history=settings.history)
        self.daemon = Daemon(world, loop)
        self.daemon.start()
        source.notify()

    def _begin_anew(self) -> None:
        self.anew = True

    def settle(self) -> None:
        """Go on until all serves, and has run for a while."""
        for _ in range(200):
            self.clock.advance(1.0)
            self.daemon.step(self.daemon.mailbox.take(0.0))
            if self.anew:
                self.end()
                self.begin()
            status = self.daemon.status()
            served = status.phase is Phase.SERVING and (status.pin is None or status.pin.serves)
            marked = any(entry.ran_well for entry in self.balancer.store.entries()[:1])
            if served and marked and not status.pending_since and not self.balancer.file_behind:
                return
            time.sleep(0.01)
        raise AssertionError(self.daemon.status())

    def end(self) -> None:
        self.daemon.close()
        self.parts.close()


def act(request: dict[str, Any]) -> None:
    run = Run(settings_of(request))
    run.daemon.step(1)
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
