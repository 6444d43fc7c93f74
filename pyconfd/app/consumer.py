"""``pyconfd consume``: what is published in etcd, applied here."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from pyconfd import __version__
from pyconfd.app.names import with_names
from pyconfd.app.serving import Surroundings, guard_rules, serve
from pyconfd.daemon.consumer_ports import ConsumerWorld, Found, Publication
from pyconfd.daemon.consuming import Consumer
from pyconfd.daemon.pause import Pause
from pyconfd.etcd.client import EtcdClient
from pyconfd.etcd.keys import Keys
from pyconfd.etcd.listeners import names_certificates
from pyconfd.etcd.local import localise
from pyconfd.etcd.memory import Memory
from pyconfd.etcd.publication import Published
from pyconfd.etcd.source import PublishedSource
from pyconfd.haproxy.adoption import adopted
from pyconfd.haproxy.balancer import Balancer
from pyconfd.haproxy.census import census_of
from pyconfd.haproxy.certificates import NamedCertificates
from pyconfd.haproxy.layout import files_dir_of
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import SourceHealth
from pyconfd.settings import Resolved, Settings
from pyconfd.status.changes import ChangeLog

log = structlog.get_logger(__name__)

CONSUMED = "consumed"
"""The name of a file in the state directory."""


def consume(settings: Resolved) -> int:
    """Watch etcd and apply until asked to stop; SIGHUP begins anew with fresh settings."""
    return serve(settings, with_names(_consuming, settings))


def _consuming(settings: Settings, around: Surroundings) -> Consumer:
    world = ConsumerWorld(
        source=publications(settings),
        balancer=around.open(Balancer(settings.haproxy, settings.apply, settings.state_dir)),
        notifier=around.notifier,
        clock=around.clock,
        taken=Memory(settings.state_dir, CONSUMED, settings.etcd.path),
        count=census_of,
        allowed_holds=lambda: around.holds.allowed() | adopted(settings.state_dir),
        forget_holds=around.holds.forget,
        publish=around.status_file.update,
        other_problems=around.problems,
        paused=Pause(settings.state_dir).read,
        changes=ChangeLog(settings.runtime_dir),
    )
    return Consumer(world, settings.apply, guard_rules(settings), version=__version__, pid=os.getpid())


def publications(settings: Settings) -> "EtcdPublications":
    """Return the source of a consumer."""
    source = PublishedSource(
        lambda quiet: EtcdClient(settings.etcd, quiet=quiet), Keys(settings.etcd.path), poll_s=settings.etcd.poll_s
    )
    return EtcdPublications(source, files_dir_of(settings.haproxy))


class EtcdPublications:
    """What etcd holds, in the words of the consumer's loop."""

    def __init__(self, source: PublishedSource, files_dir: str) -> None:
        self._source = source
        self._files_dir = files_dir
        self._certificates = NamedCertificates(time.monotonic)
        self._lacking: Mapping[str, str] = {}

    def start(self, notify: Callable[[], None]) -> None:
        """Begin to read."""
        self._source.start(notify)

    def found(self) -> Found | None:
        """Return what was read, None until something was."""
        reading = self._source.reading()
        if not reading.read:
            return None
        published = reading.published
        return Found(self._publication(published) if published else None, reading.error)

    def health(self) -> SourceHealth:
        """Return how etcd does, and what is left out here."""
        health = self._source.health()
        lacking = (f"{path}: {fault}" for path, fault in sorted(self._lacking.items()))
        return replace(health, note="; left out here: ".join(filter(None, (health.note, ", ".join(lacking)))))

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
            local=bool(published.certificates) or names_certificates(published.pieces),
            make=lambda: self._made(published),
        )

    def _made(self, published: Published) -> Rendering:
        rendering, lacking = localise(published, self._files_dir, fault=self._certificates.fault)
        for path in lacking.keys() - self._lacking.keys():
            log.warning("certificate.lacking", path=path, problem=lacking[path], remedy="put certificate and key there")
        self._lacking = lacking
        return rendering
