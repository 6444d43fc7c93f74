"""A pyconfd that knows nothing of the past, as a yardstick: what would serve if everything restarted."""

from pyconfd import wiring
from pyconfd.daemon.loop import Daemon, LoopSettings
from pyconfd.daemon.name_register import NameRegisterFile
from pyconfd.daemon.ports import World
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.model.rendering import Rendering
from pyconfd.model.reservation import Name, NameRegister
from pyconfd.sources.fragments import read_fragments
from pyconfd.sources.kubernetes.status_backlog import Asked
from tests.daemon.fakes import FakeBalancer, FakeClock, FakeNotifier, FakeSource, OfferedStatuses
from tests.simulation.place import Place


class _Judging(FakeBalancer):
    """A HAProxy in memory; what it accepts is what the real one does."""

    def __init__(self, clock: FakeClock, real: Balancer) -> None:
        super().__init__(clock)
        self._real = real

    def check(self, rendering: Rendering) -> None:
        self._real.check(rendering)


def names_of(place: Place, namespace: str) -> set[Name]:
    """Return the names that a namespace has by the register of the running pyconfd."""
    known = NameRegisterFile(place.settings.state_dir).at(0.0).register
    return {name for mine in known.reservations.values() for name, each in mine.items() if each.namespace == namespace}


def _who_has_what(place: Place) -> NameRegisterFile:
    """Return the names of objects that are there: what was given first stays, however old the others are."""
    known = NameRegisterFile(place.settings.state_dir).at(0.0).register
    given = {
        scope: {name: each for name, each in mine.items() if not each.until}
        for scope, mine in known.reservations.items()
    }
    made = NameRegisterFile()
    made.keep(NameRegister.of(given))
    return made


def fresh(place: Place) -> tuple[Rendering, Asked]:
    """Return what a pyconfd that starts with nothing but who has which name makes of what the API shows now.

    That is what it serves, and what the statuses of objects shall say.
    """
    own, clock, statuses = place.settings, FakeClock(), OfferedStatuses()
    source, balancer = FakeSource(place.source.snapshot()), _Judging(clock, place.balancer)
    world = World(
        source=source,
        balancer=balancer,
        notifier=FakeNotifier(),
        clock=clock,
        read_fragments=lambda: read_fragments(own.templates.dir),
        make_renderer=lambda found: wiring.renderer(own, found),
        preset_options=lambda renderer: wiring.preset_options(own, renderer),
        allowed_holds=frozenset,
        forget_holds=lambda: None,
        publish=lambda _: None,
        name_register=_who_has_what(place),
        object_statuses=statuses,
    )
    daemon = Daemon(world, LoopSettings(own.apply, own.presets.names, "0", 1))
    daemon.start()
    source.notify()
    for _ in range(20):
        clock.advance(0.5)
        daemon.step(daemon.mailbox.take(0.0))
    daemon.close()
    last = balancer.last_good()
    assert last is not None, daemon.status()
    return last.rendering, Asked(statuses.given[-1].statuses)
