"""Publishing to etcd and consuming from it: part of the composition root."""

import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import structlog

from pyconfd import __version__, guard, wiring
from pyconfd.daemon.consuming import Consumer, ConsumerWorld, Found, Publication
from pyconfd.daemon.loop import EXIT_OK, Daemon, LoopSettings
from pyconfd.daemon.notify import SystemdNotifier
from pyconfd.daemon.ports import World
from pyconfd.daemon.publishing import PublishingSource
from pyconfd.daemon.signals import Signals
from pyconfd.errors import ConfigurationError, Problem, RejectedInput, TransientError
from pyconfd.etcd.campaign import Campaign
from pyconfd.etcd.client import EtcdClient
from pyconfd.etcd.keys import Keys
from pyconfd.etcd.local import localise
from pyconfd.etcd.memory import Memory
from pyconfd.etcd.producer import EtcdBalancer
from pyconfd.etcd.publication import Producer, Published
from pyconfd.etcd.source import PublishedSource
from pyconfd.haproxy import unit as systemd
from pyconfd.haproxy.balancer import Balancer
from pyconfd.haproxy.census import census_of
from pyconfd.haproxy.check import check
from pyconfd.haproxy.stubs import with_stubs
from pyconfd.model.plan import Noop, Reload, ReloadReason
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import ApiServerState, SourceHealth, Status
from pyconfd.settings import Resolved, Settings, TotalLoss, resolve_again
from pyconfd.sources.kubernetes.source import KubernetesSource
from pyconfd.status.logging import configure
from pyconfd.status.report import StatusFile
from pyconfd.status.server import StatusServer
from pyconfd.wiring import Holds, SystemClock

log = structlog.get_logger(__name__)

PUBLISHED = "published"
CONSUMED = "consumed"
"""Names of files in the state directory."""


class Runnable(Protocol):
    """A loop."""

    def run(self) -> int:
        """Run until :meth:`stop`; give the exit status."""
        ...

    def stop(self) -> None:
        """Ask it to end."""
        ...

    def status(self) -> Status:
        """Give the state as of now."""
        ...


def publish(settings: Resolved) -> int:
    """Watch the cluster and publish until asked to stop; SIGHUP begins anew with fresh settings."""
    return _serve(settings, _producing)


def consume(settings: Resolved) -> int:
    """Watch etcd and apply until asked to stop; SIGHUP begins anew with fresh settings."""
    return _serve(settings, _consuming)


def publish_once(settings: Settings) -> str:
    """Render, check and publish unless that is published already; give a sentence about it.

    Raises:
        RejectedInput: it cannot be used, or would take every endpoint away.
        TransientError: the cluster or etcd does not answer, or another producer publishes.
        ApplyError: it could not be published.
    """
    configure("WARNING", "text")
    with ExitStack() as stack:
        campaign, balancer = _producer(settings, stack)
        stack.callback(campaign.resign)
        standing = campaign.turn()
        if not standing.leads:
            remedy = "stop that one first, or leave it to it: one producer is enough"
            raise TransientError(Problem("etcd", f"the producer {standing.holder} publishes", remedy))
        last = balancer.last_good()
        serving = last.generation if last else None
        once = wiring.render_once(settings, (), serving.curdate if serving else None)
        plan = balancer.plan(once.rendered.rendering)
        if isinstance(plan, Noop) and serving:
            return f"Generation {serving.number} says all of it already; nothing was written."
        if serving and once.rendered.used_curdate:
            once = wiring.render_once(settings, (), None)
        rendering, census = once.rendered.rendering, once.context.census
        if serving and settings.apply.total_loss is TotalLoss.HOLD:
            held = guard.judge(serving.census, census, digest=lambda: rendering.digest, allowed=frozenset())
            if held:
                message = held.problem.message.replace("serving", "being published")
                raise RejectedInput(Problem("guard", message, "if this is meant: --apply-total-loss apply"))
        reload = plan if isinstance(plan, Reload) else Reload((ReloadReason.FIRST_CONFIGURATION,))
        clock = SystemClock()
        now = clock.now()
        applied = balancer.apply(rendering, reload, curdate=clock.date(now), census=census, now=now)
        return f"Published below {settings.etcd.path} as generation {applied.generation.number}."


def _producing(settings: Settings, notifier: SystemdNotifier, stack: ExitStack) -> Daemon:
    campaign, balancer = _producer(settings, stack)
    holds = Holds(settings.runtime_dir)
    world = World(
        source=PublishingSource(
            KubernetesSource(settings.kubernetes, wiring.resources(settings), named=wiring.named(settings)),
            _Candidate(campaign),
        ),
        balancer=balancer,
        notifier=notifier,
        clock=SystemClock(),
        read_fragments=lambda: wiring.fragments(settings),
        make_renderer=lambda found: wiring.renderer(settings, found),
        preset_options=lambda renderer: wiring.preset_options(settings, renderer),
        allowed_holds=holds.allowed,
        forget_holds=holds.forget,
        publish=StatusFile(settings.runtime_dir).update,
    )
    return Daemon(world, LoopSettings(wiring.apply_settings(settings), settings.presets.use, __version__, os.getpid()))


def _producer(settings: Settings, stack: ExitStack) -> tuple[Campaign, EtcdBalancer]:
    """Give the two parts of a producer; nothing is asked yet."""
    etcd, keys = settings.etcd, Keys(settings.etcd.path)
    name = f"{socket.gethostname()}/{os.getpid()}"
    voting, writing = EtcdClient(etcd), EtcdClient(etcd, quiet=True)
    stack.callback(writing.close)
    stack.callback(voting.close)
    campaign = Campaign(voting, keys, name=name, lease_s=etcd.lease_s, clock=time.time)
    facts = systemd.gather(settings.haproxy.unit)

    def judge(rendering: Rendering) -> None:
        check(with_stubs(rendering), settings=settings.haproxy, unit=facts)

    balancer = EtcdBalancer(
        writing,
        campaign,
        keys=keys,
        check=judge,
        files_dir=_files_dir(settings),
        producer=Producer(name, __version__),
        memory=Memory(settings.state_dir, PUBLISHED, settings.etcd.path),
        keep=etcd.keep,
    )
    return campaign, balancer


def _consuming(settings: Settings, notifier: SystemdNotifier, stack: ExitStack) -> Consumer:
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir)
    stack.callback(balancer.close)
    for problem in balancer.startup():
        log.warning("setup.problem", place=problem.place, problem=problem.message, remedy=problem.remedy)
    holds = Holds(settings.runtime_dir)
    world = ConsumerWorld(
        source=publications(settings),
        balancer=balancer,
        notifier=notifier,
        clock=SystemClock(),
        taken=Memory(settings.state_dir, CONSUMED, settings.etcd.path),
        count=census_of,
        allowed_holds=holds.allowed,
        forget_holds=holds.forget,
        publish=StatusFile(settings.runtime_dir).update,
    )
    return Consumer(world, settings.apply, version=__version__, pid=os.getpid())


def publications(settings: Settings) -> "EtcdPublications":
    """Give the source of a consumer."""
    source = PublishedSource(
        lambda quiet: EtcdClient(settings.etcd, quiet=quiet), Keys(settings.etcd.path), poll_s=settings.etcd.poll_s
    )
    return EtcdPublications(source, _files_dir(settings))


def _files_dir(settings: Settings) -> str:
    return settings.haproxy.files_dir or str(Path(settings.haproxy.conf).parent / "files")


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


class EtcdPublications:
    """What etcd holds, in the words of the consumer's loop."""

    def __init__(self, source: PublishedSource, files_dir: str) -> None:
        self._source = source
        self._files_dir = files_dir

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to read."""
        self._source.start(notify)

    def found(self) -> Found | None:
        """Give what was read, None until something was."""
        reading = self._source.reading()
        if not reading.read:
            return None
        published = reading.published
        return Found(self._publication(published) if published else None, reading.error)

    def health(self) -> SourceHealth:
        """Say how etcd does."""
        return self._source.health()

    def relist(self) -> None:
        """Read again."""
        self._source.relist()

    def stop(self) -> None:
        """End all threads."""
        self._source.stop()

    def _publication(self, published: Published) -> Publication:
        return Publication(
            number=published.pointer.number,
            digest=published.pointer.sha256,
            curdate=published.pointer.curdate,
            local=bool(published.certificates),
            make=lambda: localise(published, self._files_dir),
        )


Build = Callable[[Settings, SystemdNotifier, ExitStack], Runnable]
"""Makes a loop; what has to be given back goes to the stack."""


def _serve(resolved: Resolved, build: Build) -> int:
    """Run a loop until a signal ends it; SIGHUP begins anew, with the former settings where the new ones are wrong."""
    notifier = SystemdNotifier()
    current = resolved
    with Signals() as signals:
        while True:
            code = _run(current, build, notifier, signals)
            if code != EXIT_OK or not signals.asks_for_new_settings():
                break
            notifier.reloading("reading the settings again")
            try:
                current = resolve_again(current)
            except ConfigurationError as error:
                for problem in error.problems:
                    log.error("settings.refused", place=problem.place, problem=problem.message, remedy=problem.remedy)  # noqa: TRY400 - the message says all
    notifier.stopping()
    notifier.close()
    return code


def _run(resolved: Resolved, build: Build, notifier: SystemdNotifier, signals: "Signals") -> int:
    settings = resolved.settings
    configure(settings.log.level, settings.log.format)
    log.info("daemon.started", version=__version__, pid=os.getpid(), config=resolved.config_found and resolved.config)
    for note in resolved.notes:
        log.warning("settings.noted", note=note)
    with ExitStack() as stack:
        loop = build(settings, notifier, stack)
        if settings.status.listen:
            _listen(StatusServer(settings.status.listen, loop.status), stack)
        signals.stop_with(loop)
        return loop.run()


def _listen(page: StatusServer, stack: ExitStack) -> None:
    """Serve the status page; that it cannot listen stops nothing else."""
    stack.callback(page.stop)
    try:
        page.start()
    except TransientError as error:
        problem = error.problems[0]
        log.error("status_page.failed", place=problem.place, problem=problem.message, remedy=problem.remedy)  # noqa: TRY400 - the message says all
