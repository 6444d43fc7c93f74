"""An explanation for a person: conditions, servers, since when, what to do. Pure."""

from collections.abc import Iterator, Sequence

from pyconfd.model.condition import Condition, ConditionStatus
from pyconfd.model.explanation import (
    ClaimReport,
    EndpointReport,
    Explanation,
    InstanceState,
    LineOrigin,
    RequestAnswer,
    ServerReport,
)
from pyconfd.model.status import Phase
from pyconfd.printable import clean, short_duration
from pyconfd.status.text import Pen

_GOOD, _WARNING, _BAD, _BOLD = "32", "33", "31", "1"
_SHOWN = 50
_STATES = {"up": _GOOD, "down": _BAD, "absent": _BAD}
_STATUSES = {ConditionStatus.TRUE: _GOOD, ConditionStatus.FALSE: _BAD, ConditionStatus.UNKNOWN: _WARNING}


def render(explanation: Explanation, *, colour: bool = False) -> str:
    """Return an explanation as lines that end with a newline; ANSI colours only with ``colour``."""
    pen, now = Pen(colour), explanation.now
    lines = [*_instance(explanation.instance, now, pen)]
    if explanation.candidates:
        lines.append(f"{clean(explanation.query)!r} stands for several things; ask for one of them:")
        lines += _some([f"  pyconfd explain {clean(each)}" for each in explanation.candidates])
        lines += (_row("note", clean(each)) for each in explanation.notes)
    elif explanation.request is not None:
        lines.append(pen(_BOLD, clean(explanation.subject)))
        lines += _request(explanation.request, explanation.servers, pen)
        lines += (_row("note", clean(each)) for each in explanation.notes)
        for claim in explanation.claims:
            lines += ["", *_claim(claim, now, pen, with_servers=False)]
        if explanation.close:
            lines += ["", _meant(explanation)]
    elif not explanation.found:
        looked_in = clean(", ".join(explanation.looked_in))
        lines.append(f"Nothing is called {clean(explanation.query)!r}. Looked in: {looked_in}.")
        lines += (_row("note", clean(each)) for each in explanation.notes)
        if explanation.close:
            lines.append(_meant(explanation))
    elif not explanation.query and not explanation.claims:
        lines.append("Nothing is refused.")
    else:
        lines += _answer(explanation, pen)
    return "\n".join(lines).rstrip("\n") + "\n"


def _meant(explanation: Explanation) -> str:
    return f"Did you mean {clean(' or '.join(explanation.close))}?"


def _row(title: str, text: str) -> str:
    return f"  {title:<12}  {text}"


def _some(lines: Sequence[str]) -> list[str]:
    more = [f"  and {len(lines) - _SHOWN} more; --json has all"] if len(lines) > _SHOWN else []
    return [*lines[:_SHOWN], *more]


def _since(since: float, now: float) -> str:
    return f", for {short_duration(now - since)}" if since else ""


def _instance(instance: InstanceState, now: float, pen: Pen) -> Iterator[str]:
    """Return what keeps the newest configuration from being applied, where something does."""
    for note in instance.notes:
        yield f"{pen(_WARNING, 'note:')} {clean(note)}"
    held_only = instance.phase == Phase.HELD and instance.held_since
    if instance.phase not in {"", Phase.SERVING} and not held_only:
        generation = instance.generation
        kept = f"generation {generation} is installed, nothing is served" if generation else "nothing is served"
        running = f"generation {generation} keeps running" if generation else "nothing is applied"
        state = f"pyconfd is {instance.phase.replace('_', ' ')}{_since(instance.since, now)}: {running}"
        if instance.phase == Phase.DOWN:
            state = f"HAProxy does not run{_since(instance.since, now)}: {kept}"
        yield pen(_BAD, state)
    if instance.paused:
        yield pen(_WARNING, "applying is paused, so nothing that came since is applied: pyconfd resume ends that")
    if instance.held_since:
        yield pen(_WARNING, f"removals are held{_since(instance.held_since, now)}; everything else is applied")
    for problem in instance.problems:
        yield from (f"  {clean(line)}" for line in problem.splitlines())


def _answer(explanation: Explanation, pen: Pen) -> Iterator[str]:
    """Return first the line or the servers that were asked about, then the claims behind them."""
    line, servers, endpoints = explanation.line, explanation.servers, explanation.endpoints
    is_about_claims = line is None and not servers and not endpoints and explanation.claims
    if explanation.notes:
        yield pen(_BOLD, clean(explanation.subject))
        yield from (_row("note", clean(each)) for each in explanation.notes)
        if explanation.claims:
            yield ""
    elif not is_about_claims:
        yield from _line(line, pen) if line is not None else [pen(_BOLD, clean(explanation.subject))]
        yield from _servers(servers, pen)
        for each in servers:
            if not each.object:
                name = f"{clean(each.backend)}/{clean(each.name)}"
                yield _row("note", f"{name}: no object that claims to be served has this address")
        yield from _some([_endpoint(each) for each in endpoints])
        if line is None and not servers and not endpoints:
            yield "  no server is in it, and no object of the cluster stands behind it: it is the operator's own"
    for number, claim in enumerate(explanation.claims[:_SHOWN]):
        if number or not is_about_claims:
            yield ""
        yield from _claim(claim, explanation.now, pen, with_servers=not servers)
    if len(explanation.claims) > _SHOWN:
        yield f"and {len(explanation.claims) - _SHOWN} more; --json has all"


_RESULTS = {"chosen": _GOOD, "lost": _WARNING}


def _request(answer: RequestAnswer, servers: Sequence[ServerReport], pen: Pen) -> Iterator[str]:
    """Return the way of a request: what was looked at in order, the servers, and what is not covered."""
    steps = list(answer.steps)
    lost = [each for each in steps if each.result == "lost"]
    hidden = {id(each) for each in lost[_SHOWN:]}
    last = next((number for number, each in enumerate(steps) if each.part in {"timeout", "answer"}), len(steps))
    for number, step in enumerate(steps):
        if number == last:
            yield from _servers(servers, pen)
        if id(step) in hidden:
            continue
        where = clean(", ".join(filter(None, (step.object, step.field))))
        result = f"{pen(_RESULTS[step.result], step.result)}: " if step.part == "rule" and step.result else ""
        yield _row(step.part, f"{result}{clean(step.text)}{f'  ({where})' if where else ''}")
    if hidden:
        yield _row("rule", f"{len(hidden):,} more rules lost; --json has all")
    yield from (_row("not covered", pen(_WARNING, clean(each))) for each in answer.uncovered)


def _claim(claim: ClaimReport, now: float, pen: Pen, *, with_servers: bool) -> Iterator[str]:
    preset = f" (preset {claim.preset})" if claim.preset else ""
    because = f": {clean(claim.because)}{preset}" if claim.because else ""
    names = f", for {clean(', '.join(claim.names[:_SHOWN]))}" if claim.names else ""
    yield f"{pen(_BOLD, clean(claim.object))}{because}{names}"
    yield from _some([_condition(each, now, pen) for each in claim.conditions])
    if claim.remedy:
        yield _row("to do", clean(claim.remedy))
    if claim.created:
        yield _row("created", clean(claim.created))
    yield from _servers(claim.servers if with_servers else (), pen)
    yield from _some([_endpoint(each) for each in claim.endpoints])
    yield from (_row("file", clean(path)) for path in claim.files)


def _condition(condition: Condition, now: float, pen: Pen) -> str:
    status = pen(_STATUSES[condition.status], f"{condition.status:<7}")
    reason = "" if condition.reason == condition.type else f" {condition.reason}{_since(condition.since, now)}"
    message = f" {clean(condition.message)}" if condition.message else ""
    return _row(condition.type, f"{status}{reason}{':' if reason and message else ''}{message}").rstrip()


def _endpoint(endpoint: EndpointReport) -> str:
    why = f": {clean(endpoint.why)}" if endpoint.why else ""
    pod = f"  pod {clean(endpoint.pod)}" if endpoint.pod else ""
    return _row("endpoint", f"{clean(endpoint.address) or '(no address)'}  {endpoint.state}{why}{pod}")


def _servers(servers: Sequence[ServerReport], pen: Pen) -> list[str]:
    names = [f"{clean(each.backend)}/{clean(each.name)}" for each in servers]
    wide = max(map(len, names[:_SHOWN]), default=0)
    far = max((len(each.address) for each in servers[:_SHOWN]), default=0)
    lines = []
    for name, each in zip(names, servers, strict=True):
        state = pen(_STATES.get(each.state, _WARNING), each.state or "not asked")
        state += f" for {short_duration(each.state_s)}" if each.state_s >= 0 else ""
        # What has no weight gets nothing new: it drains, whatever the health checks say.
        state += " weight 0" if each.weight == 0 else ""
        state += ", its pod terminates" if each.draining and each.state != "drain" else ""
        state += pen(_WARNING, ", set by hand") if each.by_hand else ""
        state += f": {clean(each.why)}" if each.why else ""
        state += pen(_WARNING, ", held: not ready in the cluster any more") if each.held else ""
        pod = f"  pod {clean(each.pod)}" if each.pod else ""
        where = f"(line {each.line}, {each.place})"
        lines.append(_row("server", f"{name:<{wide}}  {clean(each.address):<{far}}  {state}{pod}  {where}"))
    return _some(lines)


def _line(line: LineOrigin, pen: Pen) -> Iterator[str]:
    yield f"{pen(_BOLD, f'line {line.number}')} of haproxy.cfg: {clean(line.text) or '(empty)'}"
    yield _row("section", clean(line.section))
    if line.fragment:
        yield _row("fragment", f"{clean(line.fragment)}, line {line.rendered_line} of what it gave")
    for number, text in line.template_lines[:_SHOWN]:
        yield _row("written at", f"{clean(line.fragment)}:{number}  {clean(text)}")
    if not line.template_lines and line.text and line.fragment:
        yield _row("written at", "no line of the fragment reads like it: a filter, a macro or an include made it")
