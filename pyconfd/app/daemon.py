"""``pyconfd run``, and the loop around a cluster that it shares with ``pyconfd publish``."""

import os
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

from pyconfd import __version__, wiring
from pyconfd.app.serving import Surroundings, serve
from pyconfd.daemon.loop import Daemon, LoopSettings
from pyconfd.daemon.pause import Pause
from pyconfd.daemon.ports import RestoringBalancer, Source, World
from pyconfd.errors import PyconfdError
from pyconfd.model.rendering import FragmentSet
from pyconfd.sandbox.accepted import AcceptedTemplates
from pyconfd.settings import Resolved, Settings
from pyconfd.sources.fragments import SettledFragments
from pyconfd.status.changes import ChangeLog
from pyconfd.targets.worker import Targets

log = structlog.get_logger(__name__)

_SETTLING_S = 0.05
"""Far longer than an editor needs between truncating a file and writing it, far shorter than anybody notices."""


def run(settings: Resolved) -> int:
    """Run the daemon until it is asked to stop; SIGHUP begins anew with the settings as they are then."""
    return serve(settings, _daemon)


def _daemon(settings: Settings, around: Surroundings) -> Daemon:
    targets = wiring.targets(settings)
    balancer = around.open(wiring.balancer(settings, targets))
    return cluster_loop(settings, around, wiring.source(settings), balancer, wiring.workers(settings, targets))


def cluster_loop(
    settings: Settings, around: Surroundings, source: Source, balancer: RestoringBalancer, targets: Targets
) -> Daemon:
    """Give the loop that brings what ``source`` reads to ``balancer`` and ``targets``."""
    for note in wiring.preset_notes(settings):
        log.warning("presets.noted", note=note)
    with suppress(PyconfdError):  # the loop reads the fragments itself and says what is wrong
        found = wiring.fragments(settings)
        if note := wiring.order_note(found):
            log.warning("fragments.order_differs", note=note)
        if note := wiring.option_note(settings, found):
            log.warning("fragments.option_missing", note=note)
    world = World(
        source=source,
        balancer=balancer,
        notifier=around.notifier,
        clock=around.clock,
        read_fragments=_fragments_reader(settings),
        make_renderer=lambda found: wiring.renderer(settings, found),
        preset_options=lambda renderer: wiring.preset_options(settings, renderer),
        allowed_holds=around.holds.allowed,
        forget_holds=around.holds.forget,
        publish=around.status_file.update,
        other_problems=lambda: (*around.page.problems(), *targets.problems()),
        targets=targets,
        base_options=wiring.base_options(settings),
        templates=AcceptedTemplates(settings.state_dir),
        paused=Pause(settings.state_dir).read,
        changes=ChangeLog(settings.runtime_dir),
    )
    return Daemon(world, LoopSettings(wiring.apply_settings(settings), settings.presets.use, __version__, os.getpid()))


def _fragments_reader(settings: Settings) -> Callable[[], FragmentSet]:
    if not wiring.serves_haproxy(settings):
        return lambda: FragmentSet(())
    return SettledFragments(
        settings.templates.dir,
        lambda: time.sleep(_SETTLING_S),
        may_be_empty=wiring.has_cluster_template(settings),
    ).read
