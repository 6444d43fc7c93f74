"""``pyconfd dns run``: keeps the names of this node in step; a process of its own, whoever starts it."""

import os
import signal
import time

import structlog

from pyconfd.dns.following import Following
from pyconfd.dns.site import site_of
from pyconfd.errors import PyconfdError, first_line
from pyconfd.settings import Resolved, Settings, names_of, resolve_again
from pyconfd.status.logging import configure
from pyconfd.system.notify import SystemdNotifier
from pyconfd.system.state_file import StateLock

log = structlog.get_logger(__name__)

_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def run(resolved: Resolved, *, child_of: int = 0) -> int:
    """Keep the names in step until asked to stop; SIGHUP begins anew with fresh settings. The exit code.

    To stop changes nothing: ``pyconfd dns withdraw`` takes a node out. With ``child_of`` it also ends when that process
    is no longer its parent.

    Raises:
        ConfigurationError: the settings cannot be used.
        TransientError: another process keeps the names of this node.
    """
    notifier = SystemdNotifier()
    refused = ""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        while _ended_by(resolved.settings, notifier, child_of, refused) == signal.SIGHUP:
            notifier.reloading("reading the settings again")
            try:
                fresh = resolve_again(resolved)
                site_of(fresh.settings)
            except PyconfdError as error:
                refused = f"{first_line(error.problems)}; the former settings are still in force"
                log.error("settings.refused", problem=first_line(error.problems))  # noqa: TRY400 - no bug of ours
            else:
                resolved, refused = fresh, ""
        notifier.stopping()
    finally:
        notifier.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    return 0


def _ended_by(settings: Settings, notifier: SystemdNotifier, child_of: int, refused: str) -> int:
    """Serve until a signal comes, which is only looked for between two turns; give its number."""
    configure(settings.log.level, settings.log.format)
    lock = StateLock(settings.state_dir, "dns.lock", "keeps the names in Route 53", "pyconfd-dns")
    with Following(settings) as following:
        lock.acquire()
        try:
            log.info("dns.started", names=[each.name for each in names_of(settings.dns)], node=following.site.node)
            number = _turns(following, notifier, child_of, refused)
        finally:
            lock.release()
    log.info("dns.stopped", signal=number)
    return number


def _turns(following: Following, notifier: SystemdNotifier, child_of: int, refused: str) -> int:
    told = ""
    while True:
        wait_s = following.turn(time.time())
        line = "; ".join(filter(None, (following.line, refused)))
        if not told:
            notifier.ready(line)
        elif line != told:
            notifier.status(line)
        told = line
        notifier.watchdog()
        came = signal.sigtimedwait(_SIGNALS, wait_s)
        if came is not None:
            return came.si_signo
        if child_of and os.getppid() != child_of:
            log.warning("parent.gone", pid=child_of)
            return signal.SIGTERM
