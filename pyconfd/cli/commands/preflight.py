"""``pyconfd preflight``: look at everything that the daemon will need, or at a new haproxy. It changes nothing."""

import os
import re
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click
import psutil

from pyconfd import wiring
from pyconfd.app.dry_run import EmptyBalancer, dry_run
from pyconfd.cli.command import CommandContext, command, json_option, snapshot_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_text
from pyconfd.errors import Problem, PyconfdError, TransientError
from pyconfd.haproxy.config.certificates import CertificateFiles
from pyconfd.haproxy.process import preflight as haproxy
from pyconfd.haproxy.process import unit as systemd
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.check import has_listener
from pyconfd.haproxy.process.host import promotes_secondaries
from pyconfd.haproxy.process.preflight import idle_close_note
from pyconfd.model.context import PresetName, Refusal, left_out
from pyconfd.model.preflight import Finding, Level, findings_of
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.model.snapshot import HostFacts
from pyconfd.model.status import CredentialState, Renewal
from pyconfd.presets.addresses import absent
from pyconfd.printable import clean, short_duration
from pyconfd.settings import Settings
from pyconfd.settings.vip import VipSettings
from pyconfd.sources.kubernetes import preflight as kubernetes
from pyconfd.status.document import read_report
from pyconfd.status.listen import bind, parse_listen
from pyconfd.system.command import run

_EARLIEST_S = 1735689600.0
"""2025-01-01: a clock before this version was written is wrong."""

_MOST_NAMED = 10
_CHECK_TIMEOUT_S = 180.0


_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FAILURE: "red"}


@command(
    examples={
        "sudo -u pyconfd -- pyconfd preflight": "as the service",
        "pyconfd preflight --strict": "warnings count as failures",
        "pyconfd preflight --new-haproxy /tmp/new/usr/sbin/haproxy": "before an upgrade",
    },
    exits={
        Exit.OK: "nothing is in the way; there may be warnings",
        Exit.FAILED: "there are failures, or with --strict warnings",
    },
)
@click.option("--new-haproxy", metavar="PATH", default="", help="Look only at what this haproxy would make of it.")
@snapshot_option("With --new-haproxy: what `pyconfd record` or kubectl wrote, in place of the cluster.")
@click.option("--strict", is_flag=True, help="End as with failures where there are warnings.")
@json_option
def preflight(
    context: CommandContext, new_haproxy: str, snapshots: tuple[str, ...], *, as_json: bool, strict: bool
) -> int:
    """Look at everything that the daemon needs, or at a new haproxy.

    Before it is started or beside it; nothing is changed. HAProxy, its sockets and the way to reload it, directories,
    fragments (rendered for an empty cluster and for the real one, and checked by HAProxy), each API server and each
    permission there, certificates, the clock. Each line is ok, a warning or a failure, with what to do. Run it
    as the user that pyconfd runs as.

    With --new-haproxy it looks at what another haproxy would make of this machine: the new one checks the installed
    configuration, the one that a boot without API servers would load, and the one that the cluster gives now, and what
    it warns of for the first time is reported.
    """
    # What is wrong is reported as a finding, once, and not logged as well.
    settings = context.settings(log_level="CRITICAL")
    findings = look_at_new_haproxy(settings, new_haproxy, snapshots) if new_haproxy else look(settings, time.time())
    return print_findings(findings, as_json=as_json, strict=strict)


def print_findings(findings: Iterable[Finding], *, as_json: bool, strict: bool) -> Exit:
    """Print findings as they come; return the exit code, with ``strict`` that of failures for warnings too."""
    counts: dict[str, int] = dict.fromkeys(Level, 0)
    values = []
    for finding in findings:
        # API servers, templates and haproxy said parts of it, and it goes to a terminal.
        what, message, remedy = clean(finding.what), clean(finding.message), clean(finding.remedy)
        counts[finding.level] += 1
        if as_json:
            level, topic = str(finding.level), finding.topic
            values.append({"level": level, "topic": topic, "what": what, "message": message, "remedy": remedy})
            continue
        label = click.style(f"{finding.level:<7}", fg=_COLOURS[finding.level])
        print_text(f"{label}  {finding.topic:<12} {what}: {message}")
        if remedy:
            print_text(f"{'':<9}{'':<13}-> {remedy}")
    bad = counts[Level.FAILURE] > 0 or (strict and counts[Level.WARNING] > 0)
    if as_json:
        print_json({"passed": not bad, **counts, "findings": values})
    else:
        warnings, failures = counts[Level.WARNING], counts[Level.FAILURE]
        plural = "s" if warnings != 1 else "", "s" if failures != 1 else ""
        print_text(f"{counts[Level.OK]} ok, {warnings} warning{plural[0]}, {failures} failure{plural[1]}")
    return Exit.FAILED if bad else Exit.OK


def look(settings: Settings, now: float) -> Iterator[Finding]:
    """Yield what was found, one thing after the other as it was looked at."""
    yield _clock(now)
    yield from _daemon(settings)
    yield from floating_addresses(settings.vip)
    served = wiring.serves_haproxy(settings)
    unit = systemd.gather(settings.haproxy.unit) if served else systemd.UnitFacts()
    own = (("state_dir", settings.state_dir), ("runtime_dir", settings.runtime_dir))
    rendering: Rendering | None = None
    if served:
        yield from haproxy.program(settings.haproxy)
        yield from haproxy.directories(settings.haproxy, unit, own)
        yield from haproxy.process(settings.haproxy, unit, _installed(settings))
        yield from shared_addresses(settings)
        yield from pool_of_addresses(settings, wiring.HostReader(settings).read())
        rendering = yield from _for_empty_cluster(settings, unit)
    else:
        yield from (haproxy.writable(name, path) for name, path in own)
    answers = list(_cluster(settings, now))
    yield from answers
    if not any(finding.level is Level.FAILURE for finding in answers):
        rendering = (yield from _for_cluster(settings, unit)) or rendering
    if served and rendering is not None:
        yield from _adoption(settings, unit, rendering)
        yield from haproxy.sockets(rendering.text)
        yield from haproxy.certificates(rendering, now)
    yield from _own_certificates(settings)


def _adoption(settings: Settings, unit: systemd.UnitFacts, rendering: Rendering) -> Iterator[Finding]:
    """Return what the first configuration would end; nothing where this user cannot know whether there was one."""
    if Path(settings.state_dir).is_dir() and not os.access(settings.state_dir, os.R_OK | os.X_OK):
        return
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir, unit=unit)
    if (problem := balancer.adoption(rendering)) is not None:
        yield Finding.of(Level.WARNING, "haproxy", problem)


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
        message = (
            f"it runs as {runs_as}, and this is {mine}: what is reported of directories, sockets and reloads is not"
        )
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


def shared_addresses(settings: Settings) -> Iterator[Finding]:
    """Look whether Ingresses have an address to publish."""
    if PresetName.INGRESS in settings.presets.names and not wiring.base_options(settings).addresses.shared:
        message = "neither addresses.shared nor a floating address outside of the pool: no Ingress gets an ADDRESS"
        remedy = 'set addresses.shared = ["..."], where clients reach this balancer; external-dns reads it'
        yield Finding(Level.WARNING, "addresses", "addresses.shared", message, remedy)


def pool_of_addresses(settings: Settings, host: HostFacts) -> Iterator[Finding]:
    """Count the addresses of the pool that no connection to this machine can have."""
    pool = settings.addresses.pool_addresses
    missing = [each for each in pool if each not in host.addresses and not each.startswith("127.")]
    if not pool:
        return
    if not missing:
        yield Finding.ok("addresses", "addresses.pool", f"all {len(pool):,} addresses of the pool are on this host")
        return
    more = f" and {len(missing) - 3:,} more" if len(missing) > 3 else ""
    count = f"{len(missing):,} of {len(pool):,} addresses of the pool"
    message = f"{count} are not on this host: {', '.join(missing[:3])}{more}"
    if any(absent(each, host) for each in missing):
        remedy = f"ip address add {missing[0]} dev DEVICE, in a way that a reboot keeps: docs/install.md, the pool"
        yield Finding(Level.FAILURE, "addresses", "addresses.pool", message, remedy)
    elif settings.vip.floating:
        yield Finding.ok("addresses", "addresses.pool", f"{count} are with another node, or none; [vip] moves them")
    else:
        remedy = "right only where another machine may hold them: ip_nonlocal_bind is 1, and there is no [vip]"
        yield Finding(Level.WARNING, "addresses", "addresses.pool", message, remedy)


def floating_addresses(vip: VipSettings) -> Iterator[Finding]:
    """Yield whether the removal of a floating address takes others of this node with it."""
    if not (vip.interface and any("." in address for address in vip.floating)):
        return
    name = f"net.ipv4.conf.{vip.interface}.promote_secondaries"
    if promotes_secondaries(vip.interface):
        yield Finding.ok("addresses", name, "this node keeps its own address when the floating one is removed")
        return
    message = "it is 0: the removal of a floating address can remove this node's own address"
    remedy = "sysctl -w net.ipv4.conf.all.promote_secondaries=1, and the same in /etc/sysctl.d/60-pyconfd.conf"
    yield Finding(Level.FAILURE, "addresses", name, message, remedy)


def _installed(settings: Settings) -> str:
    try:
        return Path(settings.haproxy.conf).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # there is none yet, or it may not be read: then the sockets of the settings are asked


def _for_empty_cluster(settings: Settings, unit: systemd.UnitFacts) -> Generator[Finding, None, Rendering | None]:
    """Render for a cluster without objects, and let HAProxy check that; return the rendering."""
    what, directory = "an empty cluster", settings.templates.dir
    try:
        found = wiring.fragments(settings)
        rendering = wiring.render_empty_cluster(settings, wiring.renderer(settings, found))
    except PyconfdError as error:
        yield from findings_of(Level.FAILURE, "fragments", error.problems)
        return None
    count = len(found.fragments)
    yield Finding.ok("fragments", directory, f"{count} fragment{'s' if count != 1 else ''} can be read and rendered")
    if not has_listener(rendering.text):
        message = f"for {what} nothing binds, so HAProxy has nothing to start with until an object asks for it"
        yield Finding(Level.WARNING, "fragments", what, message, "add a fragment with a frontend that always binds")
        return rendering
    try:
        Balancer(settings.haproxy, settings.apply, settings.state_dir, unit=unit).check(rendering)
    except PyconfdError as error:
        yield from findings_of(Level.FAILURE, "fragments", error.problems)
    else:
        yield _accepted(what)
    if note := idle_close_note(rendering.text):
        yield Finding(Level.WARNING, "fragments", "idle-close-on-response", note, "add the option to these listeners")
    return rendering


def _accepted(what: str) -> Finding:
    return Finding.ok("fragments", what, "HAProxy accepts what the fragments give for it")


def _cluster(settings: Settings, now: float) -> Iterator[Finding]:
    """Ask each API server, and look at what is shown to them."""
    try:
        found, credentials = kubernetes.look(settings.kubernetes, wiring.rights(settings))
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
        return Finding(Level.FAILURE, "credentials", state.name, f"expired {short_duration(-left)} ago", "renew it")
    if state.renewal(now) is not Renewal.NOT_DUE:
        return Finding(Level.WARNING, "credentials", state.name, f"expires in {short_duration(left)}", "renew it")
    return Finding.ok("credentials", state.name, f"is good for {short_duration(left)}")


def _for_cluster(settings: Settings, unit: systemd.UnitFacts) -> Generator[Finding, None, Rendering | None]:
    """Render what the cluster holds, and let HAProxy and the targets check that; return the rendering."""
    what = "the cluster as it is"
    served = wiring.serves_haproxy(settings)
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir, unit=unit) if served else None
    try:
        once = dry_run(settings, (), balancer or EmptyBalancer(), again=True)
        texts = wiring.render_targets(settings, once.context)
    except PyconfdError as error:
        yield from findings_of(Level.FAILURE, "fragments", error.problems)
        return None
    # Where nobody would be left, it is no object's fault.
    yield from _left_out(left_out(once.refused), what, Level.WARNING if once.context.totals.claimed else Level.FAILURE)
    yield from (Finding(Level.WARNING, "settings", "note", note, "see docs/operating.md") for note in once.notes)
    if balancer is not None:
        yield _accepted(what)
        yield from _binds(balancer, once.rendering)
    for target, text in texts:
        name = f"target {target.settings.name}"
        try:
            target.check(text)
        except PyconfdError as error:
            yield from findings_of(Level.FAILURE, "targets", error.problems)
        else:
            yield Finding.ok("targets", name, "its check accepts what its template gives")
    return once.rendering if once.rendering.pieces else None


def _binds(balancer: Balancer, rendering: Rendering) -> Iterator[Finding]:
    """Return which ports or addresses HAProxy will not get; its check does not open them."""
    if problems := balancer.bind_problems(rendering):
        # Before its one restart the former haproxy has them, and lets them go then.
        own = problems[0].place.endswith(".service")
        yield from findings_of(Level.WARNING if own else Level.FAILURE, "binds", problems)
    else:
        yield Finding.ok("binds", "ports and addresses", "each can be had, or HAProxy has it")


def _left_out(refused: tuple[Refusal, ...], what: str, level: Level) -> Iterator[Finding]:
    """Name what fragments or HAProxy choke on, and count what asks for something that it may not have."""
    named = [each for each in refused if each.reason.breaks_everything][:_MOST_NAMED]
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
    if PresetName.KUBEFIGURATOR not in settings.presets.names:
        return
    own = settings.kubefigurator
    files = CertificateFiles(own.ssl_dir, (own.ca_file,)).read()
    if files is None:
        message = f"{own.ssl_dir} may not be listed, so a bad certificate is not noticed in time"
        yield Finding(
            Level.WARNING, "certificates", "kubefigurator.ssl_dir", message, f"let this user list {own.ssl_dir}"
        )
        return
    for path, fault in files.items():
        if fault:
            yield Finding(Level.WARNING, "certificates", path, fault, "what names it is left out until it is corrected")
    if not any(files.values()):
        yield Finding.ok("certificates", "kubefigurator.ssl_dir", f"{len(files)} files can be used")


def look_at_new_haproxy(settings: Settings, binary: str, snapshot_files: tuple[str, ...]) -> Iterator[Finding]:
    """Yield what another haproxy makes of what is installed, kept, and asked for now."""
    # An own chk_cmd names the program that is there now.
    new = replace(settings.haproxy, binary=binary, chk_cmd=())
    looked_at = list(haproxy.program(new))
    yield from looked_at
    if any(finding.level is Level.FAILURE for finding in looked_at):
        return
    balancer = Balancer(new, settings.apply, settings.state_dir, unit=systemd.gather(settings.haproxy.unit))
    conf, installed = settings.haproxy.conf, _installed(settings)
    if installed:
        yield from _judged(balancer, Rendering((Piece(conf, installed),)), "what is installed")
        yield from _new_warnings(settings.haproxy.binary, binary, conf)
    last = balancer.last_good()
    if last is not None:
        what = f"generation {last.generation.number}, which a boot without any API server would load"
        yield from _judged(balancer, last.rendering, what)
    try:
        # No object is left out for what the new one refuses: that is reported.
        curdate = last.generation.curdate if last else None
        once = dry_run(settings, snapshot_files, EmptyBalancer(), curdate=curdate)
    except TransientError as error:
        remedy = "look again when an API server answers, or give what pyconfd record wrote with --snapshot"
        for each in error.problems:
            message = f"not rendered: {each.message}"
            yield Finding(Level.WARNING, "haproxy", "the cluster as it is", message, remedy)
    except PyconfdError as error:
        yield from findings_of(Level.FAILURE, "haproxy", error.problems)
    else:
        yield from _judged(balancer, once.rendering, "what the cluster gives now")


def _judged(balancer: Balancer, rendering: Rendering, what: str) -> Iterator[Finding]:
    try:
        balancer.check(rendering)
    except PyconfdError as error:
        for problem in error.problems:
            remedy = f"{problem.remedy or 'correct the fragment'}; until then keep the haproxy that runs"
            yield Finding.of(Level.FAILURE, "haproxy", Problem(problem.place or what, problem.message, remedy))
    else:
        yield Finding.ok("haproxy", what, "the new one accepts it")


def _new_warnings(old: str, new: str, conf: str) -> Iterator[Finding]:
    """Yield what the new one warns of and the old one does not: mostly what a later version will reject."""
    before = set(_warnings(old, conf))
    for text in _warnings(new, conf):
        if text not in before:
            remedy = "change the fragment before a later version refuses it"
            yield Finding(Level.WARNING, "haproxy", conf, text, remedy)


def _warnings(binary: str, conf: str) -> list[str]:
    try:
        output = run([binary, "-W", "-c", "-f", conf], timeout_s=_CHECK_TIMEOUT_S).output
    except TransientError:
        return []
    return re.findall(r"^\[WARNING\]\s+\(\d+\) : (.*)$", output, re.MULTILINE)
