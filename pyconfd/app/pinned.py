"""Build what pins and the rollout monitor need: the pin file, the kept generations, and these settings."""

from collections.abc import Callable
from contextlib import ExitStack, suppress

from pyconfd.daemon.pinning import Pinning, Surroundings
from pyconfd.daemon.ports import RolloutPort
from pyconfd.errors import PyconfdError
from pyconfd.haproxy.balancer import Balancer
from pyconfd.haproxy.bases import BasisStore
from pyconfd.haproxy.generations import GenerationStore
from pyconfd.haproxy.pin import PinFile
from pyconfd.haproxy.traffic import TrafficWatch
from pyconfd.model.rendering import FragmentSet
from pyconfd.settings import Settings
from pyconfd.settings.basis import kept, with_kept


def pinned_settings(settings: Settings) -> Settings:
    """Return the settings with those that are pinned; where these cannot be had, the loop says why."""
    pin = PinFile(settings.state_dir).read()
    if pin is not None and not pin.broken:
        with suppress(PyconfdError):
            return with_kept(settings, BasisStore(settings.state_dir).read(pin.basis).settings)
    return settings


def pinning(
    own: Settings, in_force: Settings, read: Callable[[], FragmentSet], begin_anew: Callable[[], None]
) -> Pinning:
    """Return what chooses the fragments; ``own`` are the settings of the files, ``in_force`` those of this run."""
    bases = BasisStore(own.state_dir)
    bases.clean()
    around = Surroundings(
        read=read,
        pin=PinFile(own.state_dir).read,
        bases=bases,
        on_disk=kept(own),
        in_force=kept(in_force),
        taking=lambda basis: kept(with_kept(own, basis.settings)),
        begin_anew=begin_anew,
        needed=GenerationStore(own.state_dir, own.apply.keep_generations).bases,
    )
    return Pinning(around)


def rollout_port(settings: Settings, balancer: Balancer, parts: ExitStack) -> RolloutPort:
    """Return what the rollout monitor reads and marks; ``parts`` stops the thread that reads HAProxy's counters."""
    watch = TrafficWatch(lambda: balancer.sockets)
    if settings.history.rollout_monitor_s:
        parts.callback(watch.stop)
        watch.start()
    return RolloutPort(watch.newest, balancer.store.mark_ran_well)
