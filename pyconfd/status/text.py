"""A status for a person: aligned, a screenful, the worst first."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyconfd.model.condition import condition_of_refusal
from pyconfd.model.context import CERTIFICATE_NOTES, Refusal, RefusalReason
from pyconfd.model.hold import command_of
from pyconfd.model.nodes import NodeState
from pyconfd.model.status import (
    ApiServerState,
    CredentialState,
    Phase,
    PinStatus,
    Renewal,
    ResourceState,
    SparesStatus,
    Status,
    StatusWriterState,
    WriterRole,
)
from pyconfd.printable import clean, long_duration, short_duration
from pyconfd.status.document import STALE_AFTER_S, Freshness, StatusReport, liveness, sync_age_s

REFUSED_SHOWN = 10
NOTES_SHOWN = 10
OVERRIDES_SHOWN = 10
BACKENDS_SHOWN = 10
EDITS_SHOWN = 5
PROBLEM_WIDTH = 80

_GOOD, _WARNING, _BAD, _FAINT, _BOLD = "32", "33", "31", "2", "1"
_PHASE_COLOUR = {
    Phase.SERVING: _GOOD,
    Phase.STARTING: _WARNING,
    Phase.WAITING: _WARNING,
    Phase.SERVING_LAST_GOOD: _WARNING,
    Phase.HELD: _WARNING,
    Phase.REJECTED: _BAD,
    Phase.FAILED: _BAD,
    Phase.DOWN: _BAD,
}


_RENEWALS = {Renewal.NOW: ("CRITICAL: ", _BAD), Renewal.SOON: ("WARNING: ", _WARNING), Renewal.NOT_DUE: ("", "")}


@dataclass(frozen=True, slots=True)
class Pen:
    """Colours texts, or does not."""

    colour: bool

    def __call__(self, code: str, text: str) -> str:
        """Return ``text`` in the colour of this ANSI code."""
        return f"\033[{code}m{text}\033[0m" if self.colour and code and text else text


def render_text(report: StatusReport, *, colour: bool = False, floating: Sequence[str] = ()) -> str:
    """Return ``report`` as lines that end with a newline; ANSI colours only with ``colour``.

    ``floating`` are lines about the floating addresses of this node, which another process looks after.
    """
    pen = Pen(colour)
    lines = list(_headline(report, pen))
    if report.status is not None:
        status = report.status
        lines += _paused(status, report.now, pen)
        lines += _pinned(status, report.now, pen)
        lines += _problems(report, status, pen)
        lines += _down(status, report.now, pen)
        lines += _section("Floating address", map(clean, floating), pen)
        lines += _by_hand(status, report.now, pen)
        lines += _section("Targets", _aligned(_targets(status, report.now, pen)), pen)
        lines += _source(report, status, pen)
        lines += _in_quarantine(status, report.now, pen)
        # What is in quarantine is listed already.
        lines += _refused([one for one in status.refused if one.reason is not RefusalReason.QUARANTINED], pen)
        lines += _certificates([note for note in status.notes if note.reason in CERTIFICATE_NOTES], pen)
        lines += _noted([note for note in status.notes if note.reason not in CERTIFICATE_NOTES], pen)
        lines += _section("HAProxy", _left_behind(status, report.now), pen)
        lines += _counts(status, pen)
    else:
        lines += _section("Problems", (line for problem in report.problems for line in str(problem).splitlines()), pen)
        lines += _section("Floating address", map(clean, floating), pen)
    return "\n".join(lines) + "\n"


def _headline(report: StatusReport, pen: Pen) -> Iterator[str]:
    status = report.status
    if status is None:
        yield pen(_BAD, "NOT RUNNING") + "  there is neither a pyconfd that answers nor a status that it left behind"
        return
    words = status.phase.value.upper().replace("_", " ")
    about = f"pyconfd {clean(status.version)}, pid {status.pid}"
    if report.freshness is Freshness.LAST_KNOWN:
        age = report.now - status.now
        when = f"last known, {long_duration(age)} ago" if age >= -1 else "last known (the clock was set back since)"
        yield f"{pen(_BAD, 'NOT RUNNING')}  {about} does not answer; all below is {pen(_BOLD, when)}"
        yield f"was {words}  {_generation(status, report.now)}"
        return
    if status.phase is Phase.DOWN:
        down_for = short_duration(report.now - status.haproxy.since)
        yield f"{pen(_BAD, words)}  for {down_for}: haproxy {clean(status.haproxy.cause)}"
        yield f"  -> {clean(status.haproxy.remedy)}"
        yield f"nothing is served; {_generation(status, report.now)}"
    else:
        yield f"{pen(_PHASE_COLOUR[status.phase], words)}  {_generation(status, report.now)}"
    if status.next_attempt is not None:
        due = short_duration(max(0.0, status.next_attempt.at - report.now))
        yield f"next attempt in {due}: {clean(status.next_attempt.task)}"
    if status.phase in {Phase.WAITING, Phase.SERVING_LAST_GOOD}:
        yield from (pen(_BAD, clean(f"because of {each.place}: {each.message}")) for each in status.source.problems[:1])
    asked = (
        "" if report.freshness is Freshness.LIVE else f"; from its file, {short_duration(report.now - status.now)} old"
    )
    yield pen(_FAINT, f"{about}, up {short_duration(report.now - status.started_at)}{asked}")


def _generation(status: Status, now: float) -> str:
    generation = status.generation
    if generation is None:
        return "nothing applied yet"
    if generation.number == 0:
        return "targets only, no haproxy"
    parts = [
        f"generation {generation.number}",
        f"applied {short_duration(now - generation.applied_at)} ago",
        "verified" if status.verified else "not verified",
    ]
    if status.hosts_total is not None:
        parts.append(f"serves {_number_of(status.hosts_total, 'name')}")
    if status.live.down_total:
        parts.append(f"{_number_of(status.live.down_total, 'backend')} without a server that is up")
    if status.pending_since:
        parts.append(f"a change has waited for {short_duration(now - status.pending_since)}")
    return ", ".join(parts)


def _problems(report: StatusReport, status: Status, pen: Pen) -> list[str]:
    # The daemon and this command may have read the same file.
    found = list(dict.fromkeys((*map(str, report.problems), *status.problems)))
    if status.phase is Phase.DOWN:
        found = [each for each in found if each != str(status.haproxy.problem)]  # the headline says it
    if report.running:
        found += _ages(report, status)
    if status.hold_id:
        found += _hold(status)
    lines = []
    for problem in found:
        first, *rest = problem.splitlines() or [""]
        lines += [f"{pen(_BAD, '!')} {clean(first)}", *(f"    {clean(line.strip())}" for line in rest)]
    return _section("Problems", lines, pen)


def _hold(status: Status) -> Iterator[str]:
    """Return how a held change is allowed, unless the problem that holds it has said so."""
    command = command_of(status.hold_id)
    if not any(command in problem for problem in status.problems):
        yield f"a change is held back\n    -> look at it, then: {command}"


def _ages(report: StatusReport, status: Status) -> Iterator[str]:
    alive = liveness(replace(status, now=report.now))
    if not alive.good:
        yield alive.reason
    age = sync_age_s(status, report.now)
    whence = "API server" if status.source.api_servers or not status.source.etcd else "etcd"
    if age == float("inf"):
        if status.phase is not Phase.STARTING:
            yield f"no {whence} has given the whole data yet: the last good configuration runs, or nothing"
            # Nobody was asked then, so that nothing else says why.
            yield from (each.problem for each in status.source.credentials if each.problem)
    elif age >= STALE_AFTER_S:
        yield f"the data is {short_duration(age)} old: no {whence} confirms it (limit {short_duration(STALE_AFTER_S)})"


def _paused(status: Status, now: float, pen: Pen) -> list[str]:
    paused = status.live.paused
    if paused is None:
        return []
    end = f", {short_duration(paused.until - now)} left" if paused.until else ""
    reason = f": {clean(paused.reason)}" if paused.reason else ""
    return ["", pen(_WARNING, f"PAUSED for {short_duration(now - paused.since)}{end}{reason}"), "  -> pyconfd resume"]


def _pinned(status: Status, now: float, pen: Pen) -> list[str]:
    if status.pin is None:
        return []
    headline, below = pin_lines(status.pin, now)
    return ["", pen(_WARNING, clean(headline)), *(f"  {clean(line)}" for line in below)]


def pin_lines(pinned: PinStatus, now: float) -> tuple[str, tuple[str, ...]]:
    """Return a headline about a pin, and lines below it: what waits on disk, and how the pin is ended."""
    pin = pinned.pin
    if pin.broken:
        return "PINNED, but the pin cannot be read", (pin.broken,)
    reason = f": {pin.reason}" if pin.reason else ""
    headline = f"PINNED to generation {pin.generation} for {short_duration(now - pin.since)}{reason}"
    serves = () if pinned.serves else ("it is not applied yet" if not pinned.refused else "it cannot be applied",)
    waiting = pinned.waiting[:EDITS_SHOWN]
    more = len(pinned.waiting) - len(waiting)
    differs = (
        "fragments and settings on disk differ, and wait for `pyconfd unpin`:",
        *(f"    {change}" for change in waiting),
        *((f"    and {more} more",) if more > 0 else ()),
    )
    return headline, (*serves, *(differs if waiting else ()), "-> pyconfd unpin")


def override_words(value: str, since: float, until: float, source: str, now: float) -> str:
    """Return ``drain for 5 m, 25 m left (by command)``."""
    left = f", {short_duration(until - now)} left" if until > now else ", over"
    left = left if until else ""
    return (
        f"{value} for {short_duration(now - since)}{left} ({'by command' if source == 'command' else 'on the socket'})"
    )


def _down(status: Status, now: float, pen: Pen) -> list[str]:
    """Return the backends without a server that is up."""
    live = status.live
    rows = [
        [pen(_BAD, clean(one.backend)), f"for {short_duration(now - one.since)}", clean(one.words)]
        for one in live.down[:BACKENDS_SHOWN]
    ]
    lines = _aligned(rows)
    if live.down_total > BACKENDS_SHOWN:
        lines.append(f"... and {live.down_total - BACKENDS_SHOWN} more: pyconfd status --json")
    if lines:
        lines.append("  -> pyconfd explain BACKEND says why")
    return _section(f"No server up ({live.down_total})", lines, pen)


def _number_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s" if count else f"no {noun}"


def _by_hand(status: Status, now: float, pen: Pen) -> list[str]:
    """Return what differs from the rendering on purpose: set by hand, or on its way out."""
    live = status.live
    rows = []
    for override in live.overrides[:OVERRIDES_SHOWN]:
        words = override_words(override.value, override.since, override.until, override.source, now)
        gone = f"not there for {short_duration(now - override.missing_since)}" if override.missing_since else ""
        rows.append([clean(override.server), pen(_WARNING, clean(words)), gone])
    lines = _aligned(rows)
    if len(live.overrides) > OVERRIDES_SHOWN:
        lines.append(f"... and {len(live.overrides) - OVERRIDES_SHOWN} more: pyconfd server list")
    found = _section("Set by hand", lines, pen)
    if live.leaving_total:
        oldest = f", the oldest ({clean(live.leaving[0].server)}) for {short_duration(now - live.leaving[0].since)}"
        count = f"{live.leaving_total:,} {'server' if live.leaving_total == 1 else 'servers'}"
        found += _section("On their way out", [f"{count}{oldest if live.leaving else ''}"], pen)
    found += _section("Until the next reload", _spares(live.spares, now), pen)
    beyond = [f"{pen(_BAD, '!')} {clean(detail)}" for detail in live.beyond_repair[:OVERRIDES_SHOWN]]
    found += _section("Differs from the configuration; a reload repairs it", beyond, pen)
    why = [clean(live.unavailable)] if live.unavailable else []
    return [*found, *_section("Every change needs a reload", why, pen)]


def _spares(spares: SparesStatus, now: float) -> list[str]:
    """Return what the reload at leisure puts in order, and when it comes."""
    if not spares.order_at:
        return []
    served = f"{_number_of(spares.serving, 'backend')} served by spares ({spares.free:,} free)"
    parts = [served] if spares.serving else []
    parts += [f"{_number_of(spares.removed, 'removed backend')} still there"] if spares.removed else []
    return [f"{', '.join(parts)}; in {short_duration(max(0.0, spares.order_at - now))} at the earliest"]


def _targets(status: Status, now: float, pen: Pen) -> list[list[str]]:
    colours = {Phase.SERVING: _GOOD, Phase.REJECTED: _BAD, Phase.FAILED: _BAD}
    return [
        [
            clean(target.name),
            pen(colours.get(target.phase, _WARNING), target.phase.value),
            f"loaded {_ago(target.applied_at, now)}",
            clean(target.output),
        ]
        for target in status.targets
    ]


def _source(report: StatusReport, status: Status, pen: Pen) -> Iterator[str]:
    now, was = report.now, "" if report.running else "was "
    for title, states in (("API servers", status.source.api_servers), ("etcd", status.source.etcd)):
        servers = [_server(server, now, was, pen) for server in states]
        lines = []
        for server, line in zip(states, _aligned(servers), strict=True):
            lines += [line, *_remedy(server.last_error)]
        if title == "etcd" and status.source.note:
            lines.append(clean(status.source.note))
        yield from _section(title, lines, pen)
    yield from _section("Nodes", _nodes(status.nodes, pen), pen)
    yield from _section("Status of objects", _status_writer(status.status_writer), pen)
    credentials = [_credential(credential, now, pen) for credential in status.source.credentials]
    yield from _section("Credentials", _aligned(credentials), pen)
    reachable = any(server.healthy for server in status.source.api_servers)
    served = [resource for resource in status.source.resources if resource.served]
    lines = _aligned([_resource(resource, now, pen, say_problem=reachable) for resource in served])
    lines += _not_served(status.source.resources)
    if reachable:
        # What helps one resource mostly helps all: each remedy once, below them.
        lines += dict.fromkeys(line for each in status.source.resources for line in _remedy(each.problem))
    yield from _section("Resources", lines, pen)


def _nodes(nodes: Sequence[NodeState], pen: Pen) -> Iterator[str]:
    """Return all balancers side by side, and below each what it has otherwise; nothing for one that is alone."""
    if len(nodes) < 2:
        return
    for each, line in zip(nodes, _aligned([_node(each, pen) for each in nodes]), strict=True):
        yield line
        yield from (pen(_BAD, f"  {difference}") for difference in each.differences)


def _node(node: NodeState, pen: Pen) -> list[str]:
    summary, heard = node.summary, "this one" if node.is_own else f"heard {short_duration(node.heard_s)} ago"
    said = summary.sentence
    if node.is_silent:
        heard, said = pen(_BAD, f"not heard for {short_duration(node.heard_s)}"), f"said: {said}"
    holds = {None: "", True: "has the floating address", False: "backup"}[summary.holds]
    return [node.name, heard, summary.version, holds, said]


def _status_writer(state: StatusWriterState) -> Iterator[str]:
    """Return who writes the status of objects of the cluster."""
    if state.role is WriterRole.WRITER:
        waiting = f", {state.waiting:,} wait" if state.waiting else ""
        yield f"written by this balancer: {state.written_total:,} since the start{waiting}"
    elif state.role is WriterRole.STANDBY:
        yield f"written by {clean(state.holder)}" if state.holder else "written by nobody: no balancer holds the Lease"


def _server(server: ApiServerState, now: float, was: str, pen: Pen) -> list[str]:
    up = pen(_GOOD, f"{was}up") if server.healthy else pen(_BAD, f"{was}down")
    if not (server.last_error or server.last_ok_at):
        up = "unknown"
    use = f"{was}in use" if server.in_use else ""
    if server.last_error:
        said = f"{_brief(server.last_error, server.url)} ({_ago(server.last_error_at, now)})"
    else:
        said = f"answered {_ago(server.last_ok_at, now)}" if server.last_ok_at else "not asked yet"
    return [clean(server.url), up, use, said]


def _credential(credential: CredentialState, now: float, pen: Pen) -> list[str]:
    left = credential.expires_at - now
    if not credential.expires_at:
        expiry = "no known expiry"
    elif left <= 0:
        expiry = pen(_BAD, f"EXPIRED {short_duration(-left)} ago")
    else:
        mark, colour = _RENEWALS[credential.renewal(now)]
        expiry = pen(colour, f"{mark}expires in {short_duration(left)}")
    return [clean(credential.name), expiry, pen(_BAD, clean(credential.problem))]


def _resource(resource: ResourceState, now: float, pen: Pen, *, say_problem: bool) -> list[str]:
    """Return one row; that no API server can be reached is said once, above."""
    problem = _brief(resource.problem) if say_problem else ""
    confirmed = f"confirmed {_ago(resource.last_sync_at, now)}" if resource.synced else pen(_BAD, "not listed yet")
    return [
        resource.resource.value,
        f"{resource.objects:,} {'object' if resource.objects == 1 else 'objects'}",
        confirmed,
        pen(_BAD, problem),
    ]


def _not_served(resources: Sequence[ResourceState]) -> Iterator[str]:
    absent = [each for each in resources if not each.served]
    if names := ", ".join(each.resource.value for each in absent if not each.objects):
        yield f"not served by this cluster, and looked for: {names}"
    for each in absent:
        if each.objects:
            yield f"{each.resource.value}: no longer served; {each.objects:,} read before stay until a restart"


def _in_quarantine(status: Status, now: float, pen: Pen) -> list[str]:
    """Return which objects are left out so that everything else goes on, and since when."""
    found = status.quarantine.now
    lines = []
    for one in found[:REFUSED_SHOWN]:
        entry = f" {clean(one.entry)}" if one.entry else ""
        named = pen(_WARNING, clean(str(one.ref)) + entry)
        lines.append(f"{named}, for {short_duration(now - one.since)}: {clean(one.detail)}")
    if lines:
        lines.append("each is tried again when it changes, when a fragment changes, and from time to time")
    if len(found) > REFUSED_SHOWN:
        lines.append(f"... and {len(found) - REFUSED_SHOWN} more: pyconfd explain --all-refused")
    return _section(f"In quarantine ({len(found)})", lines, pen)


def _refused(refused: Sequence[Refusal], pen: Pen) -> list[str]:
    """Return the refused objects by their condition, a few of each: a rare one is not drowned by a frequent one."""
    groups: dict[str, list[str]] = defaultdict(list)
    for refusal in sorted(refused):
        condition = condition_of_refusal(refusal)
        heading = f"{condition.type}={condition.status} {condition.reason}"
        groups[heading].append(f"{clean(str(refusal.ref))}  {clean(condition.message)}")
    each_shows = max(1, REFUSED_SHOWN // max(1, len(groups)))
    lines = []
    for heading, found in sorted(groups.items()):
        lines += [f"{heading} ({len(found)})", *(f"    {line}" for line in found[:each_shows])]
    more = sum(max(0, len(found) - each_shows) for found in groups.values())
    if more:
        lines.append(f"... and {more} more: pyconfd explain --all-refused")
    return _section(f"Left out ({len(refused)})", lines, pen)


def _certificates(notes: Sequence[Refusal], pen: Pen) -> list[str]:
    """Return which certificates clients refuse, or will soon, the most urgent first."""
    ranked = sorted(notes, key=lambda each: (CERTIFICATE_NOTES.index(each.reason), each))
    lines = []
    for each in ranked[:NOTES_SHOWN]:
        soon = each.reason is RefusalReason.CERTIFICATE_EXPIRES_SOON
        mark = pen(_WARNING, "WARNING:") if soon else pen(_BAD, "CRITICAL:")
        lines.append(f"{mark} {clean(str(each.ref))}  {clean(each.detail)}")
    if len(notes) > NOTES_SHOWN:
        lines.append(f"... and {len(notes) - NOTES_SHOWN} more: pyconfd explain --all-refused")
    return _section(f"Certificates ({len(notes)})", lines, pen)


def _noted(notes: Sequence[Refusal], pen: Pen) -> list[str]:
    """Return what is to be known of objects that are served."""
    lines = [f"{clean(str(each.ref))}  {clean(each.detail)}" for each in notes[:NOTES_SHOWN]]
    if len(notes) > NOTES_SHOWN:
        lines.append(f"... and {len(notes) - NOTES_SHOWN} more: pyconfd explain --all-refused")
    return _section(f"Notes ({len(notes)})", lines, pen)


def _left_behind(status: Status, now: float) -> Iterator[str]:
    """Return what former changes have left behind."""
    known = status.applying
    if known.former.count:
        workers = (
            "1 former worker ends its" if known.former.count == 1 else f"{known.former.count} former workers end their"
        )
        count = _number_of(known.former.connections, "connection")
        yield f"{workers} sessions ({count}), the oldest was started {_ago(known.former.oldest_since, now)}"
        yield f"  {end_of_former(known.former.last_ends_at, now)}"
    if status.spent_share is not None:
        spent = status.spent_share
        yield f"{clean(spent.words)} (for {short_duration(now - spent.since)})"
    if known.last_ended is not None:
        count = _number_of(known.workers_ended_total, "former worker")
        was = "was" if known.workers_ended_total == 1 else "were"
        yield f"{count} {was} ended to make room for a reload, the last one {_ago(known.last_ended_at, now)}:"
        yield f"  {clean(known.last_ended.words)}"
    if known.file_behind_since:
        yield f"the file has been behind the runtime updates for {short_duration(now - known.file_behind_since)}"


def end_of_former(ends_at: float, now: float) -> str:
    """Return when the last former worker ends at the latest; 0.0: never."""
    if not ends_at:
        return "nothing ends them before their clients do: there is no hard-stop-after"
    at = time.strftime("%H:%M:%S", time.localtime(ends_at))
    return f"hard-stop-after ends the last of them at {at}, in {short_duration(ends_at - now)}"


def _counts(status: Status, pen: Pen) -> list[str]:
    rows = [
        ["changes", _tally(status.applying.plans_by_action)],
        ["reloads", _tally(status.reloads_by_reason)],
        ["failures", _tally(status.failures_by_step)],
        ["seen", f"{status.events_total:,} events, {status.reconciliations_total:,} reconciliations"],
    ]
    return _section("Since the start", _aligned(rows), pen)


def _tally(counts: Mapping[str, int]) -> str:
    pairs = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{clean(name)} {count:,}" for name, count in pairs if count) or "none"


def _section(title: str, lines: Iterable[str], pen: Pen) -> list[str]:
    shown = [f"  {line}" for line in lines]
    return ["", pen(_BOLD, title), *shown] if shown else []


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows with their columns under each other; what only colours takes no room."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)] if rows else []
    lines = []
    for row in rows:
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cell for cell, width in zip(cells, widths, strict=True) if width).rstrip())
    return lines


def _width(cell: str) -> int:
    if not cell.startswith("\033["):
        return len(cell)
    return len(cell) - len(cell.split("m", 1)[0]) - 1 - len("\033[0m")


def _brief(problem: str, known: str = "") -> str:
    """Return the problem without its remedy and without the URL that stands beside it, on one short line."""
    text = clean(" ".join(problem.partition("->")[0].split()))
    if known and text.startswith(known):
        text = text.removeprefix(known).lstrip(": ")
    return text if len(text) <= PROBLEM_WIDTH else f"{text[: PROBLEM_WIDTH - 3]}..."


def _remedy(problem: str) -> list[str]:
    remedy = clean(" ".join(problem.partition("->")[2].split()))
    return [f"  -> {remedy}"] if remedy else []


def _ago(at: float, now: float) -> str:
    return f"{short_duration(now - at)} ago" if at else "never"
