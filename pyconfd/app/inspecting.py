"""``pyconfd preflight``: looks at everything that the daemon will need, before it is started. It changes nothing."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from pyconfd import wiring
from pyconfd.app.rehearsal import Nothing, rehearse
from pyconfd.errors import Problem, PyconfdError, RejectedInput
from pyconfd.haproxy import preflight as haproxy
from pyconfd.haproxy import unit as systemd
from pyconfd.haproxy.balancer import Balancer
from pyconfd.haproxy.certificates import CertificateFiles
from pyconfd.haproxy.check import has_listener
from pyconfd.haproxy.preflight import idle_close_note
from pyconfd.model.context import Refusal
from pyconfd.model.preflight import Finding, Level, findings_of
from pyconfd.model.preset import PresetName
from pyconfd.model.rendering import Rendering
from pyconfd.model.status import CredentialState, Renewal
from pyconfd.printable import clean
from pyconfd.settings import Settings
from pyconfd.sources.kubernetes import preflight as kubernetes
from pyconfd.sources.kubernetes.resources import reads
from pyconfd.status.durations import short
from pyconfd.status.listen import bind, parse_listen
from pyconfd.status.logging import configure
from pyconfd.status.report import read_report

_EARLIEST_S = 1735689600.0
"""2025-01-01: a clock before this version was written is wrong."""

_NOTHING = Rendering(())
_MOST_NAMED = 10


def preflight(settings: Settings, *, clock: Callable[[], float] = time.time) -> Iterator[Finding]:
    """Return what was found, one thing after the other as it was looked at; ``clock`` gives seconds since the epoch."""
    configure("CRITICAL", "text")  # what is wrong is told as a finding, once
    for found in _findings(settings, clock()):
        # API servers, templates and haproxy said parts of it, and it goes to a terminal.
        yield replace(found, what=clean(found.what), message=clean(found.message), remedy=clean(found.remedy))


def _findings(settings: Settings, now: float) -> Iterator[Finding]:
    yield _clock(now)
    yield from _daemon(settings)
    served = wiring.serves_haproxy(settings)
    unit = systemd.gather(settings.haproxy.unit) if served else systemd.UnitFacts()
    own = (("state_dir", settings.state_dir), ("runtime_dir", settings.runtime_dir))
    rendering = _NOTHING
    if served:
        yield from haproxy.program(settings.haproxy)
        yield from haproxy.directories(settings.haproxy, unit, own)
        yield from haproxy.process(settings.haproxy, unit, _installed(settings))
        empty = _Rendered()
        yield from _for_nothing(settings, unit, empty)
        rendering = empty.rendering
    else:
        yield from (haproxy.writable(name, path) for name, path in own)
    answers = list(_cluster(settings, now))
    yield from answers
    if not any(finding.level is Level.FAILURE for finding in answers):
        real = _Rendered()
        yield from _for_cluster(settings, unit, real)
        rendering = real.rendering if real.rendering.pieces else rendering
    if served and rendering.pieces:
        yield from _adoption(settings, unit, rendering)
        yield from haproxy.sockets(rendering.text)
        yield from haproxy.limits(settings.haproxy, unit, rendering)
        yield from haproxy.certificates(rendering, now)
    yield from _own_certificates(settings)


def _adoption(settings: Settings, unit: systemd.UnitFacts, rendering: Rendering) -> Iterator[Finding]:
    """Return what the first configuration would end; nothing where this user cannot know whether there was one."""
    if Path(settings.state_dir).is_dir() and not os.access(settings.state_dir, os.R_OK | os.X_OK):
        return
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir, unit=unit)
    if (problem := balancer.adoption(rendering)) is not None:
        yield Finding.of(Level.WARNING, "haproxy", problem)


class _Rendered:
    """What a step rendered, for the steps after it."""

    def __init__(self) -> None:
        self.rendering = _NOTHING


def _clock(now: float) -> Finding:
    if now < _EARLIEST_S:
        shown = time.strftime("%Y-%m-%d", time.gmtime(max(0.0, now)))
        problem = Problem(
            "clock", f"the clock says {shown}: certificates and tokens seem not valid yet", "set it (NTP)"
        )
        return Finding.of(Level.FAILURE, "clock", problem)
    return Finding.ok("clock", "clock", time.strftime("it is %Y-%m-%d %H:%M:%S UTC", time.gmtime(now)))


def another_user(runs_as: str, mine: str) -> Iterator[Finding]:
    """Warn where this is another user than the daemon's: its rights are others."""
    if runs_as != mine:
        message = f"it runs as {runs_as}, and this is {mine}: what is told of directories, sockets and reloads is not"
        remedy = f"sudo -u {runs_as} pyconfd preflight, and change no owner because of this run"
        yield Finding.of(Level.WARNING, "pyconfd", Problem("user", f"{message} about the daemon", remedy))


def _daemon(settings: Settings) -> Iterator[Finding]:
    report = read_report(settings)
    if report.running and report.status is not None:
        pid = report.status.pid
        yield Finding.ok("pyconfd", "daemon", f"runs (pid {pid}); this was looked at beside it")
        with suppress(psutil.Error):
            yield from another_user(psutil.Process(pid).username(), psutil.Process().username())
        return
    if not settings.status.listen:
        yield Finding.ok("pyconfd", "status.listen", "is switched off")
        return
    try:
        bind(parse_listen(settings.status.listen)).close()
    except PyconfdError as error:
        yield from findings_of(Level.WARNING, "pyconfd", error.problems)
    else:
        yield Finding.ok("pyconfd", "status.listen", f"{settings.status.listen} is free")


def _installed(settings: Settings) -> str:
    try:
        return Path(settings.haproxy.conf).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # there is none yet, or it may not be read: then the sockets of the settings are asked


def _for_nothing(settings: Settings, unit: systemd.UnitFacts, rendered: _Rendered) -> Iterator[Finding]:
    """Render for a cluster without objects, and let HAProxy check that."""
    what, directory = "an empty cluster", settings.templates.dir
    try:
        found = wiring.fragments(settings)
        rendered.rendering = wiring.for_nothing(settings, wiring.renderer(settings, found))
    except PyconfdError as error:
        yield from findings_of(Level.FAILURE, "fragments", error.problems)
        return
    count = len(found.fragments)
    yield Finding.ok("fragments", directory, f"{count} fragment{'s' if count != 1 else ''} can be read and rendered")
    if not has_listener(rendered.rendering.text):
        message = f"for {what} nothing binds, so HAProxy has nothing to start with until an object asks for it"
        yield Finding(Level.WARNING, "fragments", what, message, "add a fragment with a frontend that always binds")
        return
    yield from _checked(settings, unit, rendered.rendering, what)
    if note := idle_close_note(rendered.rendering.text):
        yield Finding(Level.WARNING, "fragments", "idle-close-on-response", note, "add the option to these listeners")


def _checked(settings: Settings, unit: systemd.UnitFacts, rendering: Rendering, what: str) -> Iterator[Finding]:
    try:
        Balancer(settings.haproxy, settings.apply, settings.state_dir, unit=unit).check(rendering)
    except PyconfdError as error:
        yield from findings_of(Level.FAILURE, "fragments", error.problems)
    else:
        yield _accepted(what)


def _accepted(what: str) -> Finding:
    return Finding.ok("fragments", what, "HAProxy accepts what the fragments give for it")


def _cluster(settings: Settings, now: float) -> Iterator[Finding]:
    """Ask each API server, and look at what is shown to them."""
    try:
        wanted = reads(settings.kubernetes, wiring.resources(settings), wiring.named(settings))
        found, credentials = kubernetes.look(settings.kubernetes, wanted, events=settings.events.enabled)
    except PyconfdError as error:
        yield from findings_of(Level.FAILURE, "kubernetes", error.problems)
        return
    yield from found
    yield from (_credential(state, now) for state in credentials.states())


def _credential(state: CredentialState, now: float) -> Finding:
    if state.problem:
        return Finding(Level.FAILURE, "credentials", state.name, state.problem, "mend or renew it")
    if not state.expires_at:
        return Finding.ok("credentials", state.name, "does not say when it ends")
    left = state.expires_at - now
    if left <= 0:
        return Finding(Level.FAILURE, "credentials", state.name, f"expired {short(-left)} ago", "renew it")
    if state.renewal(now) is not Renewal.NOT_DUE:
        return Finding(Level.WARNING, "credentials", state.name, f"expires in {short(left)}", "renew it")
    return Finding.ok("credentials", state.name, f"is good for {short(left)}")


def _for_cluster(settings: Settings, unit: systemd.UnitFacts, rendered: _Rendered) -> Iterator[Finding]:
    """Render what the cluster holds, and let HAProxy and the targets check that."""
    what = "the cluster as it is"
    served = wiring.serves_haproxy(settings)
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir, unit=unit) if served else None
    try:
        once = rehearse(settings, (), balancer or Nothing(), again=True).once
        texts = wiring.render_targets(settings, once)
    except PyconfdError as error:
        yield from findings_of(Level.FAILURE, "fragments", error.problems)
        return
    # Where nobody would be left, it is no object's fault.
    yield from _left_out(once.refused, what, Level.WARNING if once.context.census.claimed else Level.FAILURE)
    yield from (Finding(Level.WARNING, "settings", "note", note, "see docs/operating.md") for note in once.notes)
    if balancer is not None:
        rendered.rendering = once.rendered.rendering
        yield _accepted(what)
        yield from _binds(balancer, rendered.rendering)
    for target, text in texts:
        name = f"target {target.settings.name}"
        try:
            target.check(text)
        except PyconfdError as error:
            yield from findings_of(Level.FAILURE, "targets", error.problems)
        else:
            yield Finding.ok("targets", name, "its check accepts what its template gives")


def _binds(balancer: Balancer, rendering: Rendering) -> Iterator[Finding]:
    """Return which ports or addresses HAProxy will not get; its check does not open them."""
    try:
        balancer.judge_binds(rendering)
    except RejectedInput as error:
        # Before its one restart the former haproxy has them, and lets them go then.
        own = error.problems[0].place.endswith(".service")
        yield from findings_of(Level.WARNING if own else Level.FAILURE, "binds", error.problems)
    else:
        yield Finding.ok("binds", "ports and addresses", "each can be had, or HAProxy has it")


def _left_out(refused: tuple[Refusal, ...], what: str, level: Level) -> Iterator[Finding]:
    """Name what fragments or HAProxy choke on, and count what asks for something that it may not have."""
    named = [each for each in refused if each.reason.spoils][:_MOST_NAMED]
    for each in named:
        name, remedy = f"{each.ref} {each.field}".rstrip(), "mend it, or the fragment that cannot do with it"
        yield Finding(level, "objects", name, each.detail, remedy)
    if count := len(refused) - len(named):
        message = (
            f"{count} {'more ' if named else ''}object{'s or values are' if count != 1 else ' or value is'} refused"
        )
        yield Finding(Level.WARNING, "objects", what, message, "pyconfd explain --all-refused lists them")


def _own_certificates(settings: Settings) -> Iterator[Finding]:
    """Look at the files that Services may name with the preset kubefigurator."""
    if PresetName.KUBEFIGURATOR not in settings.presets.use:
        return
    own = settings.kubefigurator
    files = CertificateFiles(own.ssl_dir, (own.ca_file,)).read()
    if files is None:
        message = f"{own.ssl_dir} may not be listed, so nobody notices in time which certificate is bad"
        yield Finding(
            Level.WARNING, "certificates", "kubefigurator.ssl_dir", message, f"let this user list {own.ssl_dir}"
        )
        return
    for path, fault in files.items():
        if fault:
            yield Finding(Level.WARNING, "certificates", path, fault, "who names it is left out until it is mended")
    if not any(files.values()):
        yield Finding.ok("certificates", "kubefigurator.ssl_dir", f"{len(files)} files can be used")
