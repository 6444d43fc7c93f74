"""Gives each thing that asks to be served exactly one fate. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from pyconfd.explain.configuration import ServerLine
from pyconfd.explain.evidence import Evidence
from pyconfd.explain.hints import slips
from pyconfd.haproxy.runtime.readback import condition_of
from pyconfd.model.changes import Action, Change
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.explanation import (
    AnyFate,
    EndpointState,
    NotApplied,
    NotReady,
    NotRendered,
    ObjectFate,
    RefusedValue,
    Served,
    ServerState,
    TurnedAway,
    Unexplained,
)
from pyconfd.model.hold import command_of
from pyconfd.model.snapshot import RECORD_OF, Key, Resource
from pyconfd.presets import values
from pyconfd.presets.asks import Ask
from pyconfd.presets.views import EndpointView
from pyconfd.status.changes import without_time
from pyconfd.status.redaction import public_refusal

_DONE = frozenset({Action.LIVE, Action.RELOAD, Action.DEFERRED})
_MEND = "mend this field; it is looked at again as soon as the object changes"
_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        RefusalReason.NAME_TAKEN: "give one of the two another name, or take the name away from who has it",
        RefusalReason.PORT_TAKEN: "choose another port, or free this one",
        RefusalReason.NO_SUCH_PORT: "name a port that the service has",
        RefusalReason.NO_NODE_PORT: "give the service the type NodePort or LoadBalancer",
        RefusalReason.NO_SUCH_SERVICE: "create the service, or remove what names it",
        RefusalReason.NO_SUCH_ADDRESS: "choose an address that this machine has",
        RefusalReason.NO_CERTIFICATE: "put the certificate with its key in place; it is served by itself then",
        RefusalReason.FORBIDDEN: "give the account that right (pyconfd rbac prints all); it is read by itself then",
        RefusalReason.INCOMPLETE: "add what is missing; it is served by itself then",
        RefusalReason.UNREADABLE: "look at the object with kubectl get -o yaml; it is not as the API says it should be",
        RefusalReason.BAD_TEMPLATE: "mend the template; it is tried again when it changes",
        "quarantined": "mend the object: it is tried again as soon as it changes",
        "name_reserved": "wait until the former owner's time is over, or have the namespace of the name ask for it",
        "not_allowed": "ask for something that is allowed, or have the setting changed that is named above",
        "forbidden_address": "send traffic to addresses of pods or nodes; the settings can allow others",
    }
)


def fate_of(ask: Ask, evidence: Evidence, host: str = "") -> AnyFate:  # noqa: PLR0911 - one line for each fate
    """Return the fate of one ask, or of one name that it asks for: the first that is true in this order."""
    mine = [given for given in ask.given if not host or host in given.hosts]
    serving = [line for given in mine for line in evidence.lines_of(given, evidence.configuration)]
    if serving:
        lines = dict.fromkeys(serving)
        return Served(tuple(server_state(line, evidence, ask) for line in lines))
    reachable = [given for given in mine if not given.unreachable]
    targets = any(given.targets for given in reachable)
    refused = sorted({each.reason.value for each in refusals_of(ask, evidence, host)})
    if targets and not evidence.haproxy:
        return Served(())
    if any(evidence.lines_of(given, evidence.wanted) for given in reachable):
        return NotApplied(_is_held_as_a_whole(evidence))
    if refused and (not reachable or targets or _has_ready(ask)):
        return TurnedAway(tuple(refused))
    if targets and evidence.desired is None:
        return NotApplied(_is_held_as_a_whole(evidence))
    if targets or (mine and not reachable):
        return NotRendered(tuple(given.name for given in mine), next((each.unreachable for each in mine), ""))
    if mine or not _has_ready(ask):
        return NotReady(_why_not_ready(ask), tuple(map(endpoint_state, ask.endpoints)))
    return Unexplained()


def object_fate(ask: Ask, evidence: Evidence, host: str = "") -> ObjectFate:
    """Return the fate of one ask, or of one name that it asks for, with all that belongs to it."""
    fate = fate_of(ask, evidence, host)
    refused = tuple(refused_value(each, evidence) for each in refusals_of(ask, evidence, host))
    changed = _last_change(ask, fate, evidence)
    return ObjectFate(
        object=_titled(ask),
        cluster=ask.ref.cluster,
        preset=ask.preset,
        because=ask.because,
        names=ask.names,
        fate=fate,
        refused=refused,
        remedy=_remedy(ask, fate, refused, evidence),
        created=_created(ask, evidence),
        changed=without_time(changed) if changed else "",
        changed_at=changed.at if changed else 0.0,
    )


def fates(evidence: Evidence) -> Iterator[tuple[Ask, AnyFate]]:
    """Return the fate of everything that asks to be served."""
    return ((ask, fate_of(ask, evidence)) for ask in evidence.asks)


def refusals_of(ask: Ask, evidence: Evidence, host: str = "") -> list[Refusal]:
    """Return the refusals that concern an ask; where some are of the name ``host``, these."""
    mine = [each for each in evidence.refused if ask.concerns(each.ref, each.field)]
    return [each for each in mine if each.value == values.shown(host)] or mine if host else mine


def refused_value(refusal: Refusal, evidence: Evidence) -> RefusedValue:
    """Return a refusal as it is told, without secrets."""
    age, shown = evidence.ages.get(refusal), public_refusal(refusal)
    return RefusedValue(
        object=str(refusal.ref),
        field=refusal.field,
        value=shown.value,
        reason=refusal.reason.value,
        detail=shown.detail,
        remedy=_remedy_of(refusal, evidence),
        since=age.since if age else 0.0,
        at_least=age.at_least if age else False,
    )


def _remedy_of(refusal: Refusal, evidence: Evidence) -> str:
    remedy = _REMEDIES.get(refusal.reason, _MEND)
    if refusal.reason is RefusalReason.INCOMPLETE:
        # What is missing is often there under a name with a slip of the pen.
        remedy = "; ".join((*slips(Key(refusal.ref.namespace, refusal.ref.name), evidence), remedy))
    return remedy


def server_state(line: ServerLine, evidence: Evidence, ask: Ask | None = None) -> ServerState:
    """Return a server with what HAProxy says of it, and whose it is."""
    ask = ask or evidence.owner_of(line)
    behind = next((each for each in ask.endpoints if each.address == line.address), None) if ask else None
    state, weight, seconds = "", -1, -1
    shown = evidence.live(line.backend)
    if shown is not None:
        now = shown.get(line.name)
        state = condition_of(now) if now is not None else "absent"
        weight, seconds = (now.weight, now.changed_s) if now is not None else (-1, -1)
    return ServerState(
        backend=line.backend,
        name=line.name,
        address=line.target,
        state=state,
        place=evidence.configuration.place_of(line.line),
        line=line.line,
        weight=weight,
        state_s=seconds,
        object=str(ask.ref) if ask else "",
        pod=behind.pod if behind is not None else "",
        draining=state == "drain" or (behind is not None and behind.terminating),
        held=ask is not None
        and any(line.address in evidence.kept.get((ask.preset, given.key), ()) for given in ask.given),
    )


def endpoint_state(view: EndpointView) -> EndpointState:
    """Return an endpoint as it is told."""
    host = f"[{view.address}]" if ":" in view.address else view.address
    return EndpointState(f"{host}:{view.port}" if view.port else host, view.state, view.pod, view.node)


def _is_held_as_a_whole(evidence: Evidence) -> bool:
    return bool(evidence.standing.hold_id) and not evidence.standing.held_since


def _has_ready(ask: Ask) -> bool:
    return any(endpoint.state == "ready" for endpoint in ask.endpoints)


def _why_not_ready(ask: Ask) -> str:
    if not ask.endpoints:
        return "it has no endpoints: its selector matches no running pod"
    if _has_ready(ask):
        return "its endpoints are ready, but no node may get traffic for them (ready, schedulable, with an address)"
    count = len(ask.endpoints)
    return "its only endpoint is not ready" if count == 1 else f"none of its {count} endpoints is ready"


def _remedy(  # noqa: C901, PLR0911 - one for each fate
    ask: Ask, fate: AnyFate, refused: Iterable[RefusedValue], evidence: Evidence
) -> str:
    match fate:
        case Served(servers) if any(server.held for server in servers):
            hold_id = evidence.standing.hold_id
            return f"look at the cluster; if the loss is meant, pyconfd allow {hold_id} lets it through"
        case Served(servers):
            if servers and not any(server.state in {"", "up", "starting"} for server in servers):
                return "no server takes traffic: look at the pods, and at the checks in the log of HAProxy"
            return ""
        case NotApplied(held=True):
            return f"look at what is held with pyconfd status; {command_of(evidence.standing.hold_id)} lets it through"
        case NotApplied() if evidence.standing.problems:
            return "mend what keeps the newest configuration from being applied (see above)"
        case NotApplied():
            return "wait for the next apply; pyconfd status shows what it waits for"
        case NotReady() if ask.ref.kind == "Service":
            selected = f"-n {ask.ref.namespace} -l kubernetes.io/service-name={ask.ref.name}"
            return f"look at its pods: kubectl get endpointslices {selected} -o wide, and kubectl describe pod"
        case NotReady():
            return "look at its pods with kubectl describe pod"
        case NotRendered(names, why):
            shown = ", ".join(names)
            return f"no fragment makes a server of {shown}: see pyconfd render" if not why else ""
        case TurnedAway():
            return next(iter(refused)).remedy
        case Unexplained():
            return "this is a bug: please report it, with the output of pyconfd record"
        case _:
            return ""


def _last_change(ask: Ask, fate: AnyFate, evidence: Evidence) -> Change | None:
    """Return the last change of the process that names a backend of ``ask``."""
    names = {given.section for given in ask.given if given.section}
    names |= {server.backend for server in fate.servers} if isinstance(fate, Served) else set()
    if not names:
        return None
    mentioned = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, sorted(names)))})(?![\w.-])")
    told = (each for each in reversed(evidence.changes) if each.action in _DONE)
    return next((each for each in told if any(mentioned.search(text) for text in (each.summary, *each.details))), None)


def _titled(ask: Ask) -> str:
    return f"{ask.ref} {ask.item}".rstrip()


def _created(ask: Ask, evidence: Evidence) -> str:
    for resource in Resource:
        if RECORD_OF[resource].__name__ == ask.ref.kind:
            found = getattr(evidence.snapshot, resource.field).get(Key(ask.ref.namespace, ask.ref.name))
            return (found.metadata.creation_timestamp or "") if found is not None else ""
    return ""
