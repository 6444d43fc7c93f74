"""From two renderings and an observation to a Plan. Pure: a Plan is data.

Three texts are compared: desired (rendered just now), applied (last proven good) and running (what the worker says
it loaded, and what was changed in it since). Only when all three and the installed files agree is there nothing to do.
"""

from collections.abc import Iterator
from hashlib import sha256

from pyconfd.haproxy.compare import Comparison, TextDifference
from pyconfd.haproxy.live import Abilities, Obstacle
from pyconfd.haproxy.marker import mark
from pyconfd.haproxy.observation import NotRunning, Observation, Running
from pyconfd.model.moves import moves
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import FileKind, Rendering

MAX_DETAILS = 50
_NOT_RUNNING = "haproxy is not running"


def plan(
    desired: Rendering,
    applied: Rendering | None,
    observed: Observation | None,
    *,
    comparison: Comparison | None = None,
    abilities: Abilities | None = None,
) -> Plan:
    """Return Noop, what to change while it runs, or a Reload whose reasons and details say everything that differs.

    ``observed`` None trusts that disk and process are level with ``applied``. ``comparison`` remembers what was parsed
    before; ``abilities`` None stands for a process that cannot be changed.
    """
    if applied is None:
        first = Reload((ReloadReason.FIRST_CONFIGURATION,), ("the first configuration",))
        if observed is None or not isinstance(observed.running, NotRunning):
            return first
        return Reload((*first.reasons, ReloadReason.PROCESS_BEHIND), (*first.details, _NOT_RUNNING))
    can = abilities or Abilities()
    beside = [] if observed is None else [*_drift(applied, observed), *_behind(desired, applied, observed)]
    difference = (comparison or Comparison()).compare(applied, desired, can)
    if difference is None:
        if not beside:
            return Noop(verified=observed is None or isinstance(observed.running, Running))
        difference = TextDifference()
    moved = tuple(each.sentence for each in moves(applied.owners, desired.owners))
    shown = _limited([*moved, *difference.details, *(one.detail for one in (*difference.obstacles, *beside))])
    reasons = sorted({one.reason for one in (*difference.obstacles, *beside)})
    if not reasons and (can.runtime or not difference.commands):
        only = ("comments, blanks or the order of sections",)
        return RuntimeUpdate(tuple(difference.commands), shown or only, moved)
    advice = [one.advice for one in difference.obstacles if one.advice]
    if not can.runtime and difference.commands:
        reasons = sorted({*reasons, ReloadReason.NOT_LIVE})
        advice.append(can.why)
    # What the process runs is not known well enough to change it, where more than the text differs.
    live = RuntimeUpdate(tuple(difference.live)) if difference.live and can.runtime and not beside else None
    return Reload(tuple(reasons), shown, tuple(dict.fromkeys(advice)), live)


def is_level(applied: Rendering, observed: Observation) -> bool:
    """Return whether disk and process are what they should be with ``applied``, and could be asked."""
    if not isinstance(observed.running, Running):
        return False
    return not any(True for _ in (*_drift(applied, observed), *_behind(applied, applied, observed)))


def _limited(found: list[str]) -> tuple[str, ...]:
    details = list(dict.fromkeys(detail for detail in found if detail))
    if len(details) > MAX_DETAILS:
        details[MAX_DETAILS:] = [f"and {len(details) - MAX_DETAILS} more"]
    return tuple(details)


def _drift(applied: Rendering, observed: Observation) -> Iterator[Obstacle]:
    reason = ReloadReason.FILE_EDITED
    written = observed.written or applied
    if observed.untouched is not None and observed.untouched.same_as(written):
        return  # by inodes and times: a look at every five seconds must not read and compare everything
    if observed.installed_text is None:
        yield Obstacle(reason, "the installed configuration is gone")
    elif observed.installed_text != mark(written.text, written.digest):
        yield Obstacle(reason, "the installed configuration is not the one that pyconfd wrote")
    for file in written.files:
        found = observed.file_digests.get(file.path)
        if found is None:
            yield Obstacle(reason, f"{file.path} is gone")
        elif not file.content and file.kind is FileKind.CERTIFICATE:
            continue  # out of the history, which keeps no keys: what it was is not known any more
        elif found != sha256(file.content.encode()).hexdigest():
            yield Obstacle(reason, f"{file.path} is not the one that pyconfd wrote")


def _behind(desired: Rendering, applied: Rendering, observed: Observation) -> Iterator[Obstacle]:
    """Compare the process; that it runs what was applied is no surprise when something else is desired."""
    reason = ReloadReason.PROCESS_BEHIND
    if isinstance(observed.running, NotRunning):
        yield Obstacle(reason, _NOT_RUNNING)
    elif isinstance(observed.running, Running):
        digest = observed.running.digest
        if digest is None:
            yield Obstacle(reason, "haproxy runs a configuration that pyconfd did not write")
        elif (observed.running.worker_pid, digest) == observed.changed:
            return  # and what was changed in it since
        elif digest not in {applied.digest, desired.digest}:
            yield Obstacle(reason, f"haproxy runs another configuration ({digest[:12]})")
        elif digest != desired.digest and applied.digest == desired.digest:
            yield Obstacle(reason, f"haproxy still runs {digest[:12]}")
