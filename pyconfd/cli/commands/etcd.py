"""``pyconfd publish`` and ``pyconfd consume``: one rendering for many balancers, by way of etcd."""

import os
import socket
from contextlib import ExitStack

import click

from pyconfd import __version__, wiring
from pyconfd.admission.whole_change import total_loss
from pyconfd.app.daemon import cluster_loop
from pyconfd.app.dry_run import dry_run
from pyconfd.app.service import ServiceContext, removal_rules, serve, warn, with_dns
from pyconfd.cli.command import CommandContext, command
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_notes, print_text
from pyconfd.daemon.loop import Daemon
from pyconfd.daemon.pause import Pause
from pyconfd.errors import ConfigurationError, Problem, RejectedInput, TransientError
from pyconfd.haproxy.config.certificates import CertificateFiles, with_stubs
from pyconfd.haproxy.process import unit as systemd
from pyconfd.haproxy.process.adoption import adopted
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.check import check
from pyconfd.haproxy.process.layout import files_dir_of
from pyconfd.model.hold import PLACE
from pyconfd.model.plan import Noop, Reload, ReloadReason
from pyconfd.model.rendering import Rendering
from pyconfd.predecessors.etcd.campaign import Campaign
from pyconfd.predecessors.etcd.client import EtcdClient
from pyconfd.predecessors.etcd.consuming import Consumer, ConsumerWorld
from pyconfd.predecessors.etcd.local import LocalFiles
from pyconfd.predecessors.etcd.producer import EtcdBalancer
from pyconfd.predecessors.etcd.publication import Keys, KnownGeneration, Producer
from pyconfd.predecessors.etcd.publishing import PublishingSource
from pyconfd.predecessors.etcd.source import PublishedSource
from pyconfd.settings import Enabled, Resolved, Settings, TotalLoss
from pyconfd.sources.kubernetes.source import KubernetesSource
from pyconfd.status.changes import ChangeLog
from pyconfd.system.clock import SystemClock

PUBLISHED, CONSUMED = "published", "consumed"
"""Names of files in the state directory."""

_STOPPED = {Exit.OK: "it was asked to stop", Exit.BUG: "a bug; systemd starts it again"}
_ONCE = {
    Exit.OK: "published, or published already",
    Exit.FAILED: "it cannot be rendered, HAProxy refuses it, or etcd did not take it",
    Exit.TEMPORARY: "no API server or etcd answered, or another producer publishes; trying again may help",
}


@command(
    examples={
        "pyconfd publish --etcd-endpoints https://a:2379,https://b:2379": "until it is asked to stop",
        "pyconfd publish --once": "one rendering, for a job or a test",
    },
    exits={**_ONCE, **_STOPPED},
)
@click.option("--once", is_flag=True, help="Publish what the cluster asks for now, and end.")
def publish(context: CommandContext, *, once: bool) -> int:
    """Render for many balancers: put it into etcd.

    Watch the cluster, render, let HAProxy check, and put the result into etcd, from where `pyconfd consume` takes it on
    each balancer. Private keys stay here. Of several producers one publishes; when it ends, the next takes over.
    """
    if not once:
        return publish_until_stopped(context.resolve())
    print_text(publish_once(context.settings()))
    return Exit.OK


@command(
    examples={"pyconfd consume --etcd-endpoints https://a:2379,https://b:2379": "until it is asked to stop"},
    exits=_STOPPED,
)
def consume(context: CommandContext) -> int:
    """Apply what a producer put into etcd.

    Watch etcd and apply what `pyconfd publish` put there: verified, checked by HAProxy here, without losing a
    connection. Needs no access to Kubernetes. Without etcd HAProxy runs on as it is.
    """
    resolved = context.resolve()
    return serve(resolved, with_dns(_consuming, resolved))


@command(
    examples={"pyconfd apply --etcd-host https://a:2379": "publishes once"},
    exits=_ONCE,
    hidden=True,
)
def apply(context: CommandContext) -> int:
    """Do what haproxy-kubefigurator called `apply`: `pyconfd publish --once` now."""
    print_notes(("apply is `pyconfd publish --once` now",))
    print_text(publish_once(context.settings()))
    return Exit.OK


def publish_until_stopped(settings: Resolved) -> int:
    """Watch the cluster and publish to etcd until asked to stop; SIGHUP starts again with fresh settings."""
    return serve(settings, _producing)


def publish_once(settings: Settings) -> str:
    """Render, check and publish unless that is published already; return a sentence about it.

    Raises:
        RejectedInput: it cannot be used, or would take every endpoint away.
        ConfigurationError: there is nothing to publish.
        TransientError: the cluster or etcd does not answer, or another producer publishes.
        ApplyError: it could not be published.
    """
    warn("setup.problem", _without_haproxy(settings))
    with ExitStack() as stack:
        campaign, balancer = _producer(settings, stack, renews=True)
        stack.callback(campaign.resign)
        _lead(campaign)
        last = balancer.last_good()
        serving = last.generation if last else None
        former = serving.curdate if serving else None
        once = dry_run(settings, (), balancer, curdate=former, for_this_host=False)
        plan = balancer.plan(once.rendering)
        if isinstance(plan, Noop) and serving:
            return f"Generation {serving.number} says all of it already; nothing was written."
        if former and former in once.rendering.text:
            once = dry_run(settings, (), balancer, for_this_host=False)
        rendering, totals = once.rendering, once.context.totals
        if serving and settings.apply.total_loss is TotalLoss.HOLD:
            held = total_loss(serving.totals, totals, digest=lambda: rendering.digest)
            if held:
                message = held.problem.message.replace("serving", "being published")
                raise RejectedInput(Problem(PLACE, message, "if this is meant: --apply-total-loss apply"))
        reload = plan if isinstance(plan, Reload) else Reload((ReloadReason.FIRST_CONFIGURATION,))
        _lead(campaign)  # the search for an offending object may have taken longer than the lease
        clock = SystemClock()
        now = clock.now()
        applied = balancer.apply(rendering, reload, curdate=clock.date(now), totals=totals, now=now)
        missing = ", ".join(sorted({str(each.ref) for each in once.refused if each.reason.breaks_everything}))
        without = f", without {missing} (pyconfd check says why)" if missing else ""
        return f"Published below {settings.etcd.path} as generation {applied.generation.number}{without}."


def _lead(campaign: Campaign) -> None:
    """Get the lease, or renew it; raises TransientError where another producer has it, or etcd does not answer."""
    leadership = campaign.run_round()
    if not leadership.leads:
        remedy = "stop that one first, or leave it to it: one producer is enough"
        raise TransientError(Problem("etcd", f"the producer {leadership.holder} publishes", remedy))


def _producing(settings: Settings, around: ServiceContext) -> Daemon:
    warn("setup.problem", _without_haproxy(settings))
    campaign, balancer = _producer(settings, around.parts)
    # Without the facts about this host: what is published is for others.
    cluster = KubernetesSource(settings.kubernetes, wiring.resources(settings), named=wiring.named(settings))
    source = PublishingSource(cluster, campaign)
    return cluster_loop(settings, around, source, balancer, wiring.workers(settings, ()), turn=source)


def _without_haproxy(settings: Settings) -> tuple[Problem, ...]:
    """Return which targets will not be published.

    Raises:
        ConfigurationError: haproxy is not served, so nothing would be published.
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
    campaign = Campaign(voting, keys, name=name, lease_s=etcd.lease_s)
    facts = systemd.gather(settings.haproxy.unit)

    def validate(rendering: Rendering) -> None:
        check(with_stubs(rendering), settings=settings.haproxy, unit=facts)
        if renews:
            _lead(campaign)

    balancer = EtcdBalancer(
        writing,
        campaign,
        keys=keys,
        check=validate,
        files_dir=files_dir_of(settings.haproxy),
        producer=Producer(name, __version__),
        memory=KnownGeneration(settings.state_dir, PUBLISHED, settings.etcd.path),
        keep=etcd.keep,
    )
    return campaign, balancer


def _consuming(settings: Settings, around: ServiceContext) -> Consumer:
    world = ConsumerWorld(
        source=PublishedSource(EtcdClient(settings.etcd), Keys(settings.etcd.path), poll_s=settings.etcd.poll_s),
        files=LocalFiles(files_dir_of(settings.haproxy), CertificateFiles().fault),
        balancer=around.open(Balancer(settings.haproxy, settings.apply, settings.state_dir)),
        notifier=around.notifier,
        clock=around.clock,
        taken=KnownGeneration(settings.state_dir, CONSUMED, settings.etcd.path),
        allowed_holds=lambda: around.holds.allowed() | adopted(settings.state_dir),
        forget_holds=around.holds.forget,
        publish=around.status_file.update,
        other_problems=around.problems,
        paused=Pause(settings.state_dir).read,
        changes=ChangeLog(settings.runtime_dir),
    )
    return Consumer(world, settings.apply, removal_rules(settings), version=__version__, pid=os.getpid())
