"""``pyconfd preflight``: look at everything that the daemon will need, or at a new haproxy. It changes nothing."""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import click
import psutil

from pyconfd import wiring
from pyconfd.app.dry_run import EmptyBalancer, dry_run
from pyconfd.cli.command import CommandContext, command, json_option, snapshot_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_text
from pyconfd.errors import PyconfdError, TransientError
from pyconfd.haproxy.config.certificates import CertificateFiles
from pyconfd.haproxy.process import prerequisites as haproxy
from pyconfd.haproxy.process import unit as systemd
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.check import has_listener
from pyconfd.haproxy.process.host import promotes_secondaries
from pyconfd.haproxy.process.prerequisites import idle_close_note
from pyconfd.model.context import PresetName, Refusal, left_out
from pyconfd.model.finding import Finding, Level, findings_of
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.model.snapshot import HostFacts
from pyconfd.model.status import CredentialState, Renewal
from pyconfd.predecessors.targets.target import Target
from pyconfd.presets.addresses import absent
from pyconfd.printable import clean
from pyconfd.settings import Settings
from pyconfd.settings.vip import VipSettings
from pyconfd.sources.kubernetes import access
from pyconfd.status.document import read_report
from pyconfd.status.listen import bind, parse_listen
from pyconfd.status.page_access import PageAccess
from pyconfd.system.command import run

_EARLIEST_S = 1735689600.0
"""2025-01-01: a clock before this version was written is wrong."""

_MOST_NAMED = 10
_CHECK_TIMEOUT_S = 180.0
_ACCEPTED = "HAProxy accepts what the fragments give for it"

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
    """Check everything that the daemon needs, or a new haproxy.

    Before it is started or beside it; nothing is changed. HAProxy, its sockets and the way to reload it, _directories,
    fragments (rendered for an empty cluster and for the real one, and checked by HAProxy), each API server and each
    permission there, certificates, the clock. Each line is ok, a warning or a failure, with what to do. Run it
    as the user that pyconfd runs as.

    With --new-haproxy it looks at what another haproxy would make of this machine: the new one checks the installed
    configuration, the one that a boot without API servers would load, and the one that the cluster gives now, and what
    it warns of for the first time is reported.
    """
    # What is wrong is reported as a finding, once, and not logged as well.
    settings = context.settings(log_level="CRITICAL")
    examined = Examined(settings, time.time(), new_haproxy=new_haproxy, snapshot_files=snapshots)
    findings = run_checks(NEW_HAPROXY_CHECKS if new_haproxy else CHECKS, examined)
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
            values.append(replace(finding, what=what, message=message, remedy=remedy))
            continue
        label = click.style(f"{finding.level:<7}", fg=_COLOURS[finding.level])
        print_text(f"{label}  {finding.topic:<12} {what}: {message}")
        if remedy:
            print_text(f"{'':<9}{'':<13}-> {remedy}")
    bad = counts[Level.FAILURE] > 0 or (strict and counts[Level.WARNING] > 0)
    if as_json:
        print_json({"passed": not bad, **counts, "findings": [asdict(each) for each in values]})
    else:
        warnings, failures = counts[Level.WARNING], counts[Level.FAILURE]
        plural = "s" if warnings != 1 else "", "s" if failures != 1 else ""
        print_text(f"{counts[Level.OK]} ok, {warnings} warning{plural[0]}, {failures} failure{plural[1]}")
    return Exit.FAILED if bad else Exit.OK


class Examined:
    """What the checks look at, and what one leaves to those after it: the rendering and the names of failed checks."""

    def __init__(
        self, settings: Settings, now: float, *, new_haproxy: str = "", snapshot_files: tuple[str, ...] = ()
    ) -> None:
        self.settings, self.now, self.snapshot_files = settings, now, snapshot_files
        self.served = wiring.serves_haproxy(settings)
        self.unit = systemd.gather(settings.haproxy.unit) if self.served or new_haproxy else systemd.UnitFacts()
        own = settings.haproxy
        # An own chk_cmd names the program that is there now.
        self.haproxy = replace(own, binary=new_haproxy, chk_cmd=()) if new_haproxy else own
        self.installed = ""
        with suppress(OSError):  # there is none yet, or it may not be read: then the sockets of the settings are asked
            self.installed = Path(own.conf).read_text(encoding="utf-8", errors="replace")
        self.rendering: Rendering | None = None
        self.failed: set[str] = set()

    @cached_property
    def balancer(self) -> Balancer:
        """HAProxy with its files, to be asked only."""
        return Balancer(self.haproxy, self.settings.apply, self.settings.state_dir, unit=self.unit)


class Check(NamedTuple):
    """One thing that is looked at; a problem that ``examine`` raises is a finding of ``topic``."""

    name: str
    topic: str
    examine: Callable[[Examined], Iterable[Finding]]
    of_haproxy: bool = True
    """Whether it is left out where pyconfd serves without HAProxy."""
    level: Level = Level.FAILURE
    after: str = ""
    """The check that must not have failed."""


def run_checks(checks: Iterable[Check], examined: Examined) -> Iterator[Finding]:
    """Yield what the checks find, one thing after the other as it is looked at."""
    for check in checks:
        if check.after in examined.failed or (check.of_haproxy and not examined.served):
            continue
        try:
            for finding in check.examine(examined):
                if finding.level is Level.FAILURE:
                    examined.failed.add(check.name)
                yield finding
        except PyconfdError as error:
            examined.failed.add(check.name)
            yield from findings_of(check.level, check.topic, error.problems)


def _clock(examined: Examined) -> Iterator[Finding]:
    now = examined.now
    if now < _EARLIEST_S:
        shown = time.strftime("%Y-%m-%d", time.gmtime(max(0.0, now)))
        message = f"the clock says {shown}: certificates and tokens seem not valid yet"
        yield Finding(Level.FAILURE, "clock", "clock", message, "set it (NTP)")
    else:
        yield Finding.ok("clock", "clock", time.strftime("it is %Y-%m-%d %H:%M:%S UTC", time.gmtime(now)))


def another_user(runs_as: str, mine: str) -> Iterator[Finding]:
    """Warn where this is another user than the daemon's: its rights are others."""
    if runs_as != mine:
        what = "what is reported of directories, sockets and reloads is not about the daemon"
        remedy = f"sudo -u {runs_as} pyconfd preflight, and change no owner because of this run"
        yield Finding(Level.WARNING, "pyconfd", "user", f"it runs as {runs_as}, and this is {mine}: {what}", remedy)


def _daemon(examined: Examined) -> Iterator[Finding]:
    settings = examined.settings
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
    bind(parse_listen(settings.status.listen)).close()
    yield Finding.ok("pyconfd", "status.listen", f"{settings.status.listen} is free")


def status_page(settings: Settings, now: float) -> Iterator[Finding]:
    """Check the token and the certificate of the status page."""
    status, topic = settings.status, "status page"
    if not status.listen:
        return
    access = PageAccess(status, lambda: now)
    wrong = access.problems()
    yield from findings_of(Level.FAILURE, topic, wrong)
    if status.token_file and status.token_file not in {each.place for each in wrong}:
        yield Finding.ok(topic, "status.token_file", "can be used")
    for each in access.credentials():
        if not each.problem:
            due = each.renewal(now) is not Renewal.NOT_DUE
            yield Finding.of_expiry(topic, each.name, each.expires_at - now, due=due)
    if status.token_file and not status.tls_certificate and not parse_listen(status.listen).loopback:
        message = f"{status.listen} can be reached from other machines: the token can be read on its way"
        yield Finding(Level.WARNING, topic, "status.token_file", message, "set status.tls_certificate")


def shared_addresses(settings: Settings) -> Iterator[Finding]:
    """Check whether Ingresses have an address to publish."""
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


def _directories(examined: Examined) -> Iterator[Finding]:
    settings = examined.settings
    own = (("state_dir", settings.state_dir), ("runtime_dir", settings.runtime_dir))
    if examined.served:
        return haproxy.directories(settings.haproxy, examined.unit, own)
    return (haproxy.writable(name, path) for name, path in own)


def _empty_cluster(examined: Examined) -> Iterator[Finding]:
    settings, what = examined.settings, "an empty cluster"
    found = wiring.fragments(settings)
    examined.rendering = rendering = wiring.render_empty_cluster(settings, wiring.renderer(settings, found))
    count = len(found.fragments)
    message = f"{count} fragment{'s' if count != 1 else ''} can be read and rendered"
    yield Finding.ok("fragments", settings.templates.dir, message)
    if not has_listener(rendering.text):
        message = f"for {what} nothing binds, so HAProxy has nothing to start with until an object asks for it"
        yield Finding(Level.WARNING, "fragments", what, message, "add a fragment with a frontend that always binds")
        return
    if note := idle_close_note(rendering.text):
        yield Finding(Level.WARNING, "fragments", "idle-close-on-response", note, "add the option to these listeners")
    examined.balancer.check(rendering)
    yield Finding.ok("fragments", what, _ACCEPTED)


def _api_servers(examined: Examined) -> Iterator[Finding]:
    found, credentials = access.review(examined.settings.kubernetes, wiring.rights(examined.settings))
    yield from found
    yield from (_credential(state, examined.now) for state in credentials.states())


def _credential(state: CredentialState, now: float) -> Finding:
    if state.problem:
        return Finding(Level.FAILURE, "credentials", state.name, state.problem, "mend or renew it")
    if not state.expires_at:
        return Finding.ok("credentials", state.name, "does not say when it ends")
    due = state.renewal(now) is not Renewal.NOT_DUE
    return Finding.of_expiry("credentials", state.name, state.expires_at - now, due=due)


def _cluster(examined: Examined) -> Iterator[Finding]:
    settings, what = examined.settings, "the cluster as it is"
    once = dry_run(settings, (), examined.balancer if examined.served else EmptyBalancer(), again=True)
    texts = wiring.render_targets(settings, once.context)
    # Where nobody would be left, it is no object's fault.
    yield from _left_out(left_out(once.refused), what, Level.WARNING if once.context.totals.claimed else Level.FAILURE)
    yield from (Finding(Level.WARNING, "settings", "note", note, "see docs/operating.md") for note in once.notes)
    if examined.served:
        yield Finding.ok("fragments", what, _ACCEPTED)
        yield from _binds(examined.balancer, once.rendering)
    yield from run_checks((Check("target", "targets", partial(_target, *each)) for each in texts), examined)
    if once.rendering.pieces:
        examined.rendering = once.rendering


def _target(target: Target, text: str, _: Examined) -> Iterator[Finding]:
    target.check(text)
    yield Finding.ok("targets", f"target {target.settings.name}", "its check accepts what its template gives")


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
        more, objects = "more " if named else "", "objects or values are" if count != 1 else "object or value is"
        message = f"{count} {more}{objects} refused"
        yield Finding(Level.WARNING, "objects", what, message, "pyconfd explain --all-refused lists them")


def _adoption(examined: Examined) -> Iterator[Finding]:
    state_dir = examined.settings.state_dir
    if examined.rendering is None or (Path(state_dir).is_dir() and not os.access(state_dir, os.R_OK | os.X_OK)):
        return
    if (problem := examined.balancer.adoption(examined.rendering)) is not None:
        yield Finding.of(Level.WARNING, "haproxy", problem)


def _kubefigurator_certificates(settings: Settings) -> Iterator[Finding]:
    """Check the files that Services may name with the preset kubefigurator."""
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


CHECKS = (
    Check("clock", "clock", _clock, of_haproxy=False),
    Check("daemon", "pyconfd", _daemon, of_haproxy=False, level=Level.WARNING),
    Check("status_page", "status page", lambda e: status_page(e.settings, e.now), of_haproxy=False),
    Check("floating_addresses", "addresses", lambda e: floating_addresses(e.settings.vip), of_haproxy=False),
    Check("program", "haproxy", lambda e: haproxy.program(e.haproxy)),
    Check("directories", "directories", _directories, of_haproxy=False),
    Check("process", "reload", lambda e: haproxy.process(e.haproxy, e.unit, e.installed)),
    Check("shared_addresses", "addresses", lambda e: shared_addresses(e.settings)),
    Check("pool", "addresses", lambda e: pool_of_addresses(e.settings, wiring.HostReader(e.settings).read())),
    Check("empty_cluster", "fragments", _empty_cluster),
    Check("api_servers", "kubernetes", _api_servers, of_haproxy=False),
    Check("cluster", "fragments", _cluster, of_haproxy=False, after="api_servers"),
    Check("adoption", "haproxy", _adoption),
    Check("sockets", "haproxy", lambda e: haproxy.sockets(e.rendering.text if e.rendering else "")),
    Check("certificates", "certificates", lambda e: haproxy.certificates(e.rendering or Rendering(()), e.now)),
    Check("kubefigurator", "certificates", lambda e: _kubefigurator_certificates(e.settings), of_haproxy=False),
)
"""In the order in which they are run; the command prints what each finds before the next begins."""


def _new_and_installed(examined: Examined) -> Iterator[Finding]:
    conf = examined.settings.haproxy.conf
    if examined.installed:
        yield from _judged(examined, Rendering((Piece(conf, examined.installed),)), "what is installed")
        yield from _new_warnings(examined.settings.haproxy.binary, examined.haproxy.binary, conf)


def _new_and_last_good(examined: Examined) -> Iterator[Finding]:
    if (last := examined.balancer.last_good()) is not None:
        what = f"generation {last.generation.number}, which a boot without any API server would load"
        yield from _judged(examined, last.rendering, what)


def _new_and_cluster(examined: Examined) -> Iterator[Finding]:
    last = examined.balancer.last_good()
    try:
        # No object is left out for what the new one refuses: that is reported.
        curdate = last.generation.curdate if last else None
        once = dry_run(examined.settings, examined.snapshot_files, EmptyBalancer(), curdate=curdate)
    except TransientError as error:
        remedy = "look again when an API server answers, or give what pyconfd record wrote with --snapshot"
        for each in error.problems:
            message = f"not rendered: {each.message}"
            yield Finding(Level.WARNING, "haproxy", "the cluster as it is", message, remedy)
    else:
        yield from _judged(examined, once.rendering, "what the cluster gives now")


def _judged(examined: Examined, rendering: Rendering, what: str) -> Iterator[Finding]:
    try:
        examined.balancer.check(rendering)
    except PyconfdError as error:
        for each in error.problems:
            remedy = f"{each.remedy or 'correct the fragment'}; until then keep the haproxy that runs"
            yield Finding(Level.FAILURE, "haproxy", each.place or what, each.message, remedy)
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


NEW_HAPROXY_CHECKS = (
    Check("program", "haproxy", lambda e: haproxy.program(e.haproxy), of_haproxy=False),
    Check("installed", "haproxy", _new_and_installed, of_haproxy=False, after="program"),
    Check("last_good", "haproxy", _new_and_last_good, of_haproxy=False, after="program"),
    Check("cluster", "haproxy", _new_and_cluster, of_haproxy=False, after="program"),
)
