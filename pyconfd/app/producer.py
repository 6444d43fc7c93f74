"""``pyconfd publish``: what the cluster asks for, put into etcd for many balancers."""

import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

from pyconfd import __version__, guard, wiring
from pyconfd.app.daemon import cluster_loop
from pyconfd.app.rehearsal import rehearse
from pyconfd.app.serving import Surroundings, serve, warn
from pyconfd.daemon.loop import Daemon
from pyconfd.daemon.publishing import PublishingSource
from pyconfd.errors import ConfigurationError, Problem, RejectedInput, TransientError
from pyconfd.etcd.campaign import Campaign
from pyconfd.etcd.client import EtcdClient
from pyconfd.etcd.keys import Keys
from pyconfd.etcd.memory import Memory
from pyconfd.etcd.producer import EtcdBalancer
from pyconfd.etcd.publication import Producer
from pyconfd.haproxy import unit as systemd
from pyconfd.haproxy.check import check
from pyconfd.haproxy.layout import files_dir_of
from pyconfd.haproxy.stubs import with_stubs
from pyconfd.model.plan import Noop, Reload, ReloadReason
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import ApiServerState
from pyconfd.settings import Enabled, Resolved, Settings, TotalLoss
from pyconfd.sources.kubernetes.source import KubernetesSource
from pyconfd.status.logging import configure
from pyconfd.wiring import SystemClock

PUBLISHED = "published"
"""The name of a file in the state directory."""


def publish(settings: Resolved) -> int:
    """Watch the cluster and publish to etcd until asked to stop; SIGHUP begins anew with fresh settings."""
    return serve(settings, _producing)


def publish_once(settings: Settings) -> str:
    """Render, check and publish unless that is published already; give a sentence about it.

    Raises:
        RejectedInput: it cannot be used, or would take every endpoint away.
        ConfigurationError: there is nothing to publish.
        TransientError: the cluster or etcd does not answer, or another producer publishes.
        ApplyError: it could not be published.
    """
    configure("WARNING", "text")
    warn("setup.problem", _judged(settings))
    with ExitStack() as stack:
        campaign, balancer = _producer(settings, stack, renews=True)
        stack.callback(campaign.resign)
        _lead(campaign)
        last = balancer.last_good()
        serving = last.generation if last else None
        former = serving.curdate if serving else None
        once = rehearse(settings, (), balancer, curdate=former, judged_here=False).once
        plan = balancer.plan(once.rendered.rendering)
        if isinstance(plan, Noop) and serving:
            return f"Generation {serving.number} says all of it already; nothing was written."
        if former and former in once.rendered.rendering.text:
            once = rehearse(settings, (), balancer, judged_here=False).once
        rendering, census = once.rendered.rendering, once.context.census
        if serving and settings.apply.total_loss is TotalLoss.HOLD:
            held = guard.judge(serving.census, census, digest=lambda: rendering.digest, allowed=frozenset())
            if held:
                message = held.problem.message.replace("serving", "being published")
                raise RejectedInput(Problem("guard", message, "if this is meant: --apply-total-loss apply"))
        reload = plan if isinstance(plan, Reload) else Reload((ReloadReason.FIRST_CONFIGURATION,))
        _lead(campaign)  # whoever was searched for may have taken longer than the lease
        clock = SystemClock()
        now = clock.now()
        applied = balancer.apply(rendering, reload, curdate=clock.date(now), census=census, now=now)
        missing = ", ".join(sorted({str(each.ref) for each in once.refused if each.reason.spoils}))
        without = f", without {missing} (pyconfd check says why)" if missing else ""
        return f"Published below {settings.etcd.path} as generation {applied.generation.number}{without}."


def _lead(campaign: Campaign) -> None:
    """Get the lease, or renew it; raises TransientError where somebody else has it, or etcd does not answer."""
    standing = campaign.turn()
    if not standing.leads:
        remedy = "stop that one first, or leave it to it: one producer is enough"
        raise TransientError(Problem("etcd", f"the producer {standing.holder} publishes", remedy))


def _producing(settings: Settings, around: Surroundings) -> Daemon:
    warn("setup.problem", _judged(settings))
    campaign, balancer = _producer(settings, around.parts)
    # Nothing is judged by this host: what is published is for others.
    cluster = KubernetesSource(settings.kubernetes, wiring.resources(settings), named=wiring.named(settings))
    source = PublishingSource(cluster, _Candidate(campaign))
    return cluster_loop(settings, around, source, balancer, wiring.workers(settings, ()))


def _judged(settings: Settings) -> tuple[Problem, ...]:
    """Return what will not be published.

    Raises:
        ConfigurationError: nothing would be.
    """
    if not wiring.serves_haproxy(settings):
        place = "target" if settings.haproxy.enabled is Enabled.AUTO else "haproxy.enabled"
        message = "publish puts the configuration of haproxy into etcd, and these settings serve none"
        remedy = 'set haproxy.enabled = "yes"; targets are applied where they are, by pyconfd run'
        raise ConfigurationError(Problem(place, message, remedy))
    names = ", ".join(target.settings.name for target in wiring.targets(settings))
    if not names:
        return ()
    message = f"publish puts only the configuration of haproxy into etcd: it does nothing for {names}"
    return (Problem("targets", message, "have pyconfd run apply the targets, and leave them out here"),)


def _producer(settings: Settings, stack: ExitStack, *, renews: bool = False) -> tuple[Campaign, EtcdBalancer]:
    """Return the two parts of a producer; nothing is asked yet. With ``renews`` each check does that with the lease."""
    etcd, keys = settings.etcd, Keys(settings.etcd.path)
    name = f"{socket.gethostname()}/{os.getpid()}"
    voting, writing = EtcdClient(etcd), EtcdClient(etcd, quiet=True)
    stack.callback(writing.close)
    stack.callback(voting.close)
    campaign = Campaign(voting, keys, name=name, lease_s=etcd.lease_s, clock=time.time)
    facts = systemd.gather(settings.haproxy.unit)

    def judge(rendering: Rendering) -> None:
        check(with_stubs(rendering), settings=settings.haproxy, unit=facts)
        if renews:
            _lead(campaign)

    balancer = EtcdBalancer(
        writing,
        campaign,
        keys=keys,
        check=judge,
        files_dir=files_dir_of(settings.haproxy),
        producer=Producer(name, __version__),
        memory=Memory(settings.state_dir, PUBLISHED, settings.etcd.path),
        keep=etcd.keep,
    )
    return campaign, balancer


class _Candidate:
    """A campaign in the words of the loop."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign

    def start(self, notify: Callable[[], None]) -> None:
        self._campaign.start(notify)

    def note(self) -> str:
        standing = self._campaign.standing
        if standing.leads:
            return "publishes: this producer holds the lease"
        return f"stands by: {standing.holder} publishes" if standing.holder else "stands for election"

    def states(self) -> tuple[ApiServerState, ...]:
        return self._campaign.states()

    def stop(self) -> None:
        self._campaign.stop()
