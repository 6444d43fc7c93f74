"""``pyconfd upgrade-check``: what a new haproxy or pyconfd would make of what is there, before it is installed.

It changes nothing, and needs neither to be stopped.
"""

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from pyconfd import __version__
from pyconfd.app.rehearsal import rehearse
from pyconfd.cli.command import CommandContext, command, json_option, snapshot_option
from pyconfd.cli.commands.plan import plan_once
from pyconfd.cli.commands.preflight import print_findings
from pyconfd.cli.exits import Exit
from pyconfd.errors import Problem, PyconfdError, TransientError
from pyconfd.haproxy import preflight as program
from pyconfd.haproxy import unit as systemd
from pyconfd.haproxy.balancer import Balancer
from pyconfd.haproxy.check import haproxy_version
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Stored
from pyconfd.model.plan import Noop
from pyconfd.model.preflight import Finding, Level, findings_of
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.settings import Resolved, Settings
from pyconfd.settings.table import CONFIG_ENV, TABLE
from pyconfd.system.command import CommandResult, run

_TIMEOUT_S = 180.0
_MOST_WARNINGS = 10
_WARNING = re.compile(r"^\[WARNING\]\s+\(\d+\) : (.*)$", re.MULTILINE)


@command(
    "upgrade-check",
    "Say what a new haproxy or a new pyconfd would make of what is there, before it is installed; nothing is"
    " changed. The new haproxy checks the installed configuration, the one that a boot without API servers would"
    " use, and the one that the cluster gives now, and what it warns of for the first time is told. The new"
    " pyconfd loads the settings and the kept generations, and plans its first configuration. Run it as the user"
    " that pyconfd runs as.",
    examples={
        "pyconfd upgrade-check --new-haproxy /tmp/haproxy-3.2/usr/sbin/haproxy": "unpacked with dpkg-deb -x",
        "pyconfd upgrade-check --new-pyconfd /tmp/new/bin/pyconfd": "in a virtual environment of its own",
        "pyconfd upgrade-check --new-haproxy PATH --strict": "warnings count as failures",
    },
    exits={
        Exit.OK: "nothing is in the way; there may be warnings",
        Exit.FAILED: "there are failures, or with --strict warnings: do not move",
    },
)
@click.option("--new-haproxy", metavar="PATH", default="", help="The new haproxy's program.")
@click.option("--new-pyconfd", metavar="PATH", default="", help="The new pyconfd's program.")
@snapshot_option("Render what `pyconfd record` or kubectl wrote, in place of the cluster; may be repeated.")
@click.option("--strict", is_flag=True, help="End as with failures where there are warnings.")
@json_option
def upgrade_check(
    context: CommandContext,
    new_haproxy: str,
    new_pyconfd: str,
    snapshots: tuple[str, ...],
    *,
    as_json: bool,
    strict: bool,
) -> int:
    """Try what is new."""
    if not new_haproxy and not new_pyconfd:
        raise click.UsageError("give --new-haproxy PATH, --new-pyconfd PATH, or both")
    settings = context.settings(log_level="CRITICAL")  # what is wrong is told as a finding, once
    found: list[Iterator[Finding]] = []
    if new_haproxy:
        found.append(_new_haproxy(settings, new_haproxy, snapshots))
    if new_pyconfd:
        found.append(_new_pyconfd(context.resolve(), new_pyconfd, snapshots))
    return print_findings(itertools.chain(*found), as_json=as_json, strict=strict)


def _new_haproxy(settings: Settings, binary: str, snapshot_files: tuple[str, ...]) -> Iterator[Finding]:
    # An own chk_cmd names the program that is there now.
    new = replace(settings, haproxy=replace(settings.haproxy, binary=binary, chk_cmd=()))
    looked_at = list(program.program(new.haproxy))
    yield from looked_at
    if any(finding.level is Level.FAILURE for finding in looked_at):
        return
    yield _compared(settings.haproxy.binary, binary)
    unit = systemd.gather(settings.haproxy.unit)
    balancer = Balancer(new.haproxy, new.apply, new.state_dir, unit=unit)
    installed = _installed(settings)
    if installed:
        yield from _judged(balancer, Rendering((Piece(settings.haproxy.conf, installed),)), "what is installed")
        yield from _new_warnings(settings.haproxy.binary, binary, settings.haproxy.conf)
    last = balancer.last_good()
    if last is not None:
        what = f"generation {last.generation.number}, which would serve after a boot without any API server"
        yield from _judged(balancer, last.rendering, what)
    try:
        curdate = last.generation.curdate if last else None
        once = rehearse(new, snapshot_files, _Unjudged(balancer), curdate=curdate).once
    except TransientError as error:
        remedy = "look again when an API server answers, or give what pyconfd record wrote with --snapshot"
        yield from (
            Finding(Level.WARNING, "haproxy", "the cluster as it is", f"not rendered: {each.message}", remedy)
            for each in error.problems
        )
    except PyconfdError as error:
        yield from findings_of(Level.FAILURE, "haproxy", error.problems)
    else:
        yield from _judged(balancer, once.rendered.rendering, "what the cluster gives now")


class _Unjudged:
    """What serves, where nobody is to be left out for what the new HAProxy refuses: that is to be told."""

    def __init__(self, balancer: Balancer) -> None:
        self._balancer = balancer

    def last_good(self) -> Stored | None:
        return self._balancer.last_good()

    def contested(self, rendering: Rendering) -> Mapping[Listener, str]:
        return self._balancer.contested(rendering)

    def check(self, rendering: Rendering) -> None:
        """Accept it."""


def _compared(old: str, new: str) -> Finding:
    try:
        known = haproxy_version(old)
    except TransientError:
        known = ""
    what = f"replaces {known}" if known else f"replaces a version that {old} does not tell"
    return Finding.ok("haproxy", new, what)


def _installed(settings: Settings) -> str:
    try:
        return Path(settings.haproxy.conf).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _judged(balancer: Balancer, rendering: Rendering, what: str) -> Iterator[Finding]:
    try:
        balancer.check(rendering)
    except PyconfdError as error:
        for problem in error.problems:
            remedy = f"{problem.remedy or 'mend the fragment'}; until then keep the haproxy that runs"
            yield Finding.of(Level.FAILURE, "haproxy", Problem(problem.place or what, problem.message, remedy))
    else:
        yield Finding.ok("haproxy", what, "the new one accepts it")


def _new_warnings(old: str, new: str, conf: str) -> Iterator[Finding]:
    """Tell of what the new one warns and the old one does not: mostly what a later version will refuse."""
    before = set(_warnings(old, conf))
    came = [text for text in _warnings(new, conf) if text not in before]
    remedy = "change the fragment before a later version refuses it"
    yield from (Finding(Level.WARNING, "haproxy", conf, text, remedy) for text in came[:_MOST_WARNINGS])
    if len(came) > _MOST_WARNINGS:
        message = f"{len(came) - _MOST_WARNINGS} more warnings"
        yield Finding(Level.WARNING, "haproxy", conf, message, f"{new} -c -f {conf} shows all")


def _warnings(binary: str, conf: str) -> Sequence[str]:
    try:
        return _WARNING.findall(run([binary, "-W", "-c", "-f", conf], timeout_s=_TIMEOUT_S).output)
    except TransientError:
        return ()


def _new_pyconfd(resolved: Resolved, path: str, snapshot_files: tuple[str, ...]) -> Iterator[Finding]:
    environ = _environment(resolved)
    asked = _asked([path, "--version"], environ)
    found = re.search(r"pyconfd, version (\S+)", asked.output)
    if not asked.ok or found is None:
        message = f"is no pyconfd that can be run: {asked.summary or 'it said nothing'}"
        yield Finding(Level.FAILURE, "pyconfd", path, message, "give the path of its bin/pyconfd")
        return
    yield Finding.ok("pyconfd", path, f"version {found[1]} replaces {__version__}")
    taken = _asked([path, "settings"], environ)
    if not taken.ok:
        message, remedy = f"does not take these settings: {taken.summary}", f"mend them: {path} settings"
        yield Finding(Level.FAILURE, "pyconfd", "settings", message, remedy)
        return
    yield Finding.ok("pyconfd", "settings", "are taken")
    for note in re.findall(r"^note: (.*)$", taken.output, re.MULTILINE):
        yield Finding(Level.WARNING, "pyconfd", "settings", note, "see docs/settings.md")
    past = _asked([path, "history"], environ)
    if past.ok:
        yield Finding.ok("pyconfd", "state", "the kept generations can be read")
    else:
        yield Finding(
            Level.FAILURE,
            "pyconfd",
            "state",
            f"cannot be read: {past.summary}",
            f"see {path} history; stay on this one",
        )
    yield from _planned(resolved.settings, path, environ, snapshot_files)


def _planned(
    settings: Settings, path: str, environ: dict[str, str], snapshot_files: tuple[str, ...]
) -> Iterator[Finding]:
    """Let the new one say what it would do when it starts."""
    files = [word for file in snapshot_files for word in ("--snapshot", str(Path(file).absolute()))]
    plan = _asked([path, "plan", *files], environ)
    what = "its first configuration"
    if plan.ok:
        yield Finding.ok("pyconfd", what, "is the one that serves: nothing changes")
    elif plan.exit_code == Exit.CHANGES and not plan.timed_out:
        also = "; this version would change something now as well" if _changes(settings, snapshot_files) else ""
        first = next((line.strip() for line in plan.output.splitlines() if line.strip()), "")
        remedy = f"see {path} plan, and move one node first"
        yield Finding(Level.WARNING, "pyconfd", what, f"differs from the one that serves ({first}){also}", remedy)
    else:
        remedy = f"see {path} plan; where no API server answers, give --snapshot"
        yield Finding(Level.FAILURE, "pyconfd", what, f"is not to be had: {plan.summary}", remedy)


def _changes(settings: Settings, snapshot_files: tuple[str, ...]) -> bool:
    try:
        return not isinstance(plan_once(settings, snapshot_files).plan, Noop)
    except PyconfdError:
        return True


def _asked(argv: list[str], environ: dict[str, str]) -> CommandResult:
    try:
        return run(argv, timeout_s=_TIMEOUT_S, env=environ)
    except TransientError as error:
        return CommandResult(127, error.problems[0].message)


def _environment(resolved: Resolved) -> dict[str, str]:
    """Return the environment in which another pyconfd has the same settings: flags as variables."""
    given = {
        TABLE[path].env: text if isinstance(text, str) else TABLE[path].joined(text)
        for path, text in resolved.flags.items()
        if path in TABLE and isinstance(text, str | list | tuple) and text
    }
    named = {CONFIG_ENV: str(Path(resolved.config).absolute())} if resolved.config_found else {}
    return {**os.environ, **resolved.environ, **given, **named}
