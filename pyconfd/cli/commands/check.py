"""``pyconfd check``: render, and have HAProxy and the targets' commands validate it."""

from collections.abc import Iterator
from dataclasses import dataclass

from pyconfd import wiring
from pyconfd.app.dry_run import EmptyBalancer, dry_run
from pyconfd.cli.command import SNAPSHOT_HELP, CommandContext, command, json_option, snapshot_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_notes, print_refused, print_text, refused_as_json
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.check import haproxy_version
from pyconfd.haproxy.process.prerequisites import idle_close_note, sockets
from pyconfd.model.context import Refusal
from pyconfd.settings import Settings


@dataclass(frozen=True, slots=True)
class Checked:
    """A rendering that HAProxy accepts; ``refused`` is what it does without, the version "" where haproxy is off."""

    refused: tuple[Refusal, ...]
    notes: tuple[str, ...]
    haproxy_version: str


@command(
    examples={
        "pyconfd check": "from the cluster",
        "pyconfd check --snapshot dump.yaml --template-dir .": "offline, for continuous integration",
    },
    exits={
        Exit.OK: "HAProxy accepts it",
        Exit.FAILED: "a fragment or HAProxy refuses it: nothing of it would be served",
        Exit.QUARANTINED: "HAProxy accepts it without the objects that are named: these would go into quarantine",
    },
)
@snapshot_option(SNAPSHOT_HELP)
@json_option
def check(context: CommandContext, snapshots: tuple[str, ...], *, as_json: bool) -> int:
    """Render and let HAProxy check.

    HAProxy checks it as its unit would run it; nothing is changed. An object for which everything would be refused is
    left out and named, as `pyconfd run` does it.
    """
    checked = check_once(context.settings(), snapshots)
    spoilt = sorted({str(each.ref) for each in checked.refused if each.reason.breaks_everything})
    if as_json:
        refused, version = refused_as_json(checked.refused), checked.haproxy_version or None
        print_json({"haproxy": version, "quarantined": spoilt, "notes": list(checked.notes), "refused": refused})
        return Exit.QUARANTINED if spoilt else Exit.OK
    print_notes(checked.notes)
    print_refused(checked.refused)
    who = f"HAProxy {checked.haproxy_version} accepts" if checked.haproxy_version else "the targets' checks accept"
    if spoilt:
        print_text(f"The configuration is good only without {', '.join(spoilt)}: {who} the rest.")
        return Exit.QUARANTINED
    print_text(f"The configuration is good: {who} it.")
    return Exit.OK


def check_once(settings: Settings, snapshot_files: tuple[str, ...]) -> Checked:
    """Render and let HAProxy check, and the command of each target."""
    served = wiring.serves_haproxy(settings)
    balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir) if served else None
    once = dry_run(settings, snapshot_files, balancer or EmptyBalancer(), again=True)
    for target, text in wiring.render_targets(settings, once.context):
        target.check(text)
    if balancer is None:
        return Checked(once.refused, once.notes, "")
    here = _notes_about_this_machine(balancer, once.rendering.text) if not snapshot_files else ()
    idle = idle_close_note(once.rendering.text)
    notes = (*once.notes, *here, *([idle] if idle else []))
    return Checked(once.refused, notes, haproxy_version(settings.haproxy.binary))


def _notes_about_this_machine(balancer: Balancer, text: str) -> Iterator[str]:
    """Yield what would keep this machine from applying it; files may be checked anywhere."""
    for problem in balancer.problems():
        yield f"{problem.place}: {problem.message}; {problem.remedy}"
    for missing in sockets(text):
        yield f"{missing.message}; {missing.remedy}"
