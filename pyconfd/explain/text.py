"""An explanation for a person: what, why, since when, what to do. Pure."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from pyconfd.model.explanation import (
    Ambiguous,
    AnyFate,
    Explanation,
    LineOrigin,
    NotApplied,
    NotAsked,
    NotReady,
    NotRendered,
    ObjectFate,
    Objects,
    Refusals,
    RefusedValue,
    Served,
    Servers,
    ServerState,
    TurnedAway,
    Unexplained,
    Unknown,
)
from pyconfd.model.status import Phase
from pyconfd.printable import clean, short_duration
from pyconfd.status.text import Pen

_GOOD, _WARNING, _BAD, _BOLD = "32", "33", "31", "1"
_SHOWN = 50
_STATES = {
    "up": _GOOD,
    "starting": _WARNING,
    "drain": _WARNING,
    "down": _BAD,
    "maint": _WARNING,
    "stopping": _WARNING,
    "absent": _BAD,
}
_WORDS = {
    "name_taken": "lost its name to another",
    "port_taken": "lost its port to another",
    "name_reserved": "the name is kept for its former owner",
    "not_allowed": "the settings do not allow it",
}


def render(explanation: Explanation, *, colour: bool = False) -> str:
    """Return an explanation as lines that end with a newline; ANSI colours only with ``colour``."""
    writer = _Writer(explanation, Pen(colour))
    return "\n".join([*writer.standing(), *writer.answer()]).rstrip("\n") + "\n"


class _Writer:
    def __init__(self, explanation: Explanation, pen: Pen) -> None:
        self._told = explanation
        self._pen = pen

    def standing(self) -> Iterator[str]:
        """Return what keeps the newest configuration from serving, where something does."""
        standing = self._told.standing
        for note in standing.notes:
            yield f"{self._pen(_WARNING, 'note:')} {clean(note)}"
        held_only = standing.phase == Phase.HELD and standing.held_since
        if standing.phase not in {"", Phase.SERVING} and not held_only:
            serves = f"generation {standing.generation} goes on serving" if standing.generation else "nothing serves"
            since = self._since(standing.since)
            yield self._pen(_BAD, f"pyconfd is {standing.phase.replace('_', ' ')}{since}: {serves}")
        if standing.held_since:
            since = self._since(standing.held_since)
            yield self._pen(_WARNING, f"removals are held{since}; everything else goes on")
        for problem in standing.problems:
            yield from (f"  {clean(line)}" for line in problem.splitlines())
        if standing.unasked:
            yield f"{self._pen(_WARNING, 'note:')} HAProxy could not be asked: {clean(standing.unasked)}"

    def answer(self) -> Iterator[str]:
        """Return the lines of the answer."""
        answer = self._told.answer
        match answer:
            case Objects():
                yield from self._objects(answer.objects)
            case Servers():
                yield from self._about_servers(answer)
            case LineOrigin():
                yield from self._line(answer)
            case Refusals(refused):
                yield from self._refusals(refused)
            case Ambiguous(candidates):
                yield f"{clean(self._told.query)!r} stands for several things; ask for one of them:"
                yield from (f"  pyconfd explain {clean(each)}" for each in candidates[:_SHOWN])
                yield from self._more(len(candidates))
            case Unknown(looked_in, close, kept):
                yield f"Nothing is called {clean(self._told.query)!r}. Looked in: {clean(', '.join(looked_in))}."
                yield from (f"  note        {clean(each)}" for each in kept)
                if close:
                    yield f"Did you mean {clean(' or '.join(close))}?"
            case _:
                assert_never(answer)

    def _objects(self, objects: Sequence[ObjectFate], *, servers: bool = True) -> Iterator[str]:
        for number, each in enumerate(objects[:_SHOWN]):
            if number:
                yield ""
            yield from self._object(each, servers=servers)
        yield from self._more(len(objects))

    def _object(self, told: ObjectFate, *, servers: bool) -> Iterator[str]:
        cluster = f" of cluster {told.cluster}" if told.cluster and told.cluster not in told.object else ""
        partly = (
            f"; {len(told.refused)} of its values refused" if told.refused and isinstance(told.fate, Served) else ""
        )
        yield f"{self._pen(_BOLD, clean(told.object))}{clean(cluster)}: {self._headline(told.fate)}{partly}"
        if told.because and not told.preset:
            yield f"  is          {clean(told.because)}"
        elif told.because:
            names = f", for {clean(', '.join(told.names[:_SHOWN]))}" if told.names else ""
            yield f"  asks by     {clean(told.because)} (preset {told.preset}){names}"
        if told.created:
            yield f"  created     {clean(told.created)}"
        if told.changed:
            yield f"  changed     {short_duration(self._told.now - told.changed_at)} ago: {clean(told.changed)}"
        yield from self._details(told.fate, servers=servers)
        for refused in told.refused[:_SHOWN]:
            yield from self._refused(refused, indent="  ", named=False)
        if told.remedy and not isinstance(told.fate, NotAsked | TurnedAway):
            yield f"  to do       {clean(told.remedy)}"

    def _details(self, fate: AnyFate, *, servers: bool) -> Iterator[str]:
        match fate:
            case Served(by, files):
                yield from self._servers(by if servers else (), indent="  ")
                yield from (f"  file        {clean(path)}" for path in files)
                if not by and not files:
                    yield "  its addresses are given to the targets; pyconfd status shows how they do"
            case NotReady(_, endpoints):
                for endpoint in endpoints[:_SHOWN]:
                    pod = f"  pod {clean(endpoint.pod)}" if endpoint.pod else ""
                    yield f"  endpoint    {clean(endpoint.address) or '(no address)'}  {endpoint.state}{pod}"
                yield from self._more(len(endpoints))
            case NotAsked(hints):
                yield from (f"  to do       {clean(hint)}" for hint in hints)
            case _:
                pass

    def _headline(self, fate: AnyFate) -> str:  # noqa: PLR0911 - one for each fate
        pen = self._pen
        match fate:
            case Served(servers):
                return self._served(servers)
            case NotApplied(held=True):
                return pen(_WARNING, "held: the change that brings it is kept back")
            case NotApplied():
                return pen(_WARNING, "not applied: the configuration that has it does not serve yet")
            case NotReady(why):
                return pen(_WARNING, f"not ready: {clean(why)}")
            case NotRendered(_, why):
                return pen(
                    _BAD, f"not rendered: {clean(why) or 'the fragments were given it and made no server of it'}"
                )
            case TurnedAway(reasons):
                words = ", ".join(_WORDS.get(reason, reason.replace("_", " ")) for reason in reasons)
                return pen(_BAD, f"refused ({words})")
            case NotAsked():
                return pen(_WARNING, "not asked for: nothing about it asks to be served")
            case Unexplained():
                return pen(_BAD, "not served, and nothing says why")
        assert_never(fate)

    def _served(self, servers: Sequence[ServerState]) -> str:
        """Return how many servers there are; one that drains gets nothing new, so it is counted apart."""
        if not servers:
            return self._pen(_GOOD, "served")
        held, draining = sum(server.held for server in servers), sum(server.draining for server in servers)
        staying = [server for server in servers if not server.draining] or servers
        count = f"served by {len(staying)} server{'s' if len(staying) != 1 else ''}"
        if draining == len(servers):
            count += ", all of them draining: no ready pod is left"
        elif draining:
            count += f", {draining} more draining"
        count += f", {'all' if held == len(servers) else held} of them held" if held else ""
        if draining == len(servers):
            return self._pen(_WARNING, count)
        up = any(server.state in {"", "up"} for server in staying)
        return self._pen(_GOOD, count) if up else self._pen(_BAD, f"{count}, none of them up")

    def _refused(self, refused: RefusedValue, *, indent: str, named: bool) -> Iterator[str]:
        what = f"{clean(refused.object)} " if named else ""
        value = f" {clean(refused.value)}" if refused.value else ""
        age = self._since(refused.since, at_least=refused.at_least)
        field = clean(refused.field) or ("as a whole" if named else "the whole object")
        yield f"{indent}refused     {what}{field}{value}{age} [{refused.reason}]"
        yield f"{indent}            {clean(refused.detail)}"
        yield f"{indent}  to do     {clean(refused.remedy)}"

    def _refusals(self, refused: Sequence[RefusedValue]) -> Iterator[str]:
        if not refused:
            yield "Nothing is refused."
        for each in refused:
            yield from self._refused(each, indent="", named=True)

    def _servers(self, servers: Sequence[ServerState], *, indent: str) -> Iterator[str]:
        shown = servers[:_SHOWN]
        names = [f"{clean(each.backend)}/{clean(each.name)}" for each in shown]
        wide = max(map(len, names), default=0)
        far = max((len(each.address) for each in shown), default=0)
        for name, each in zip(names, shown, strict=True):
            state = each.state or "not asked"
            age = f" for {short_duration(each.state_s)}" if each.state_s >= 0 else ""
            pod = f"  pod {clean(each.pod)}" if each.pod else ""
            # What has no weight gets nothing new: it drains, whatever the health checks say.
            weight = f" weight {each.weight}" if each.weight == 0 else ""
            state_of_pod = ", its pod terminates" if each.draining and each.state != "drain" else ""
            held = self._pen(_WARNING, ", held: not ready in the cluster any more") if each.held else ""
            yield (
                f"{indent}server      {name:<{wide}}  {clean(each.address):<{far}}  "
                f"{self._pen(_STATES.get(each.state, ''), state)}{age}{weight}{state_of_pod}{held}{pod}"
                f"  (line {each.line}, {each.place})"
            )
        yield from self._more(len(servers))

    def _about_servers(self, answer: Servers) -> Iterator[str]:
        yield self._pen(_BOLD, clean(answer.subject))
        yield from self._servers(answer.servers, indent="  ")
        for each in answer.servers:
            if not each.object:
                name = f"{clean(each.backend)}/{clean(each.name)}"
                yield f"  note        {name}: no object that asks to be served has this address"
        for endpoint, why in answer.unserved[:_SHOWN]:
            yield f"  endpoint    {clean(endpoint.address)}  {endpoint.state}: {clean(why)}"
        if not answer.servers and not answer.unserved and not answer.objects:
            yield "  no server is in it, and no object of the cluster stands behind it: it is the operator's own"
        if answer.objects:
            yield ""
            yield from self._objects(answer.objects, servers=False)

    def _line(self, answer: LineOrigin) -> Iterator[str]:
        yield f"{self._pen(_BOLD, f'line {answer.number}')} of haproxy.cfg: {clean(answer.text) or '(empty)'}"
        if answer.section:
            yield f"  section     {clean(answer.section)}"
        if answer.fragment:
            yield f"  fragment    {clean(answer.fragment)}, line {answer.rendered_line} of what it gave"
        for number, text in answer.template_lines[:_SHOWN]:
            yield f"  written at  {clean(answer.fragment)}:{number}  {clean(text)}"
        if not answer.template_lines and answer.text and answer.fragment:
            yield "  written at  no line of the fragment reads like it: a filter, a macro or an include made it"
        yield from self._servers(answer.servers, indent="  ")
        if answer.objects:
            yield ""
            yield from self._objects(answer.objects, servers=not answer.servers)

    def _since(self, since: float, *, at_least: bool = False) -> str:
        if not since:
            return ""
        return f", for {'at least ' if at_least else ''}{short_duration(self._told.now - since)}"

    def _more(self, count: int) -> Iterator[str]:
        if count > _SHOWN:
            yield f"  and {count - _SHOWN} more; --json has all"
