"""What became of a claim: its conditions, its servers, and what to do. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from pyconfd.explain.configuration import RenderedConfig, ServerLine, host_and_port
from pyconfd.haproxy.runtime.servers_now import ServerNow, condition_of
from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.condition import Age, Condition, ConditionStatus, ConditionType, condition_of_refusal
from pyconfd.model.context import Context, PresetName, Refusal, RefusalReason
from pyconfd.model.explanation import ClaimReport, EndpointReport, InstanceState, ServerReport
from pyconfd.model.hold import command_of
from pyconfd.model.kubernetes import AnyObject, ObjectRef
from pyconfd.model.rendering import FileKind, Rendering
from pyconfd.model.snapshot import KIND_OF, Key, Named, Resource, Snapshot
from pyconfd.model.status import Phase
from pyconfd.presets import registry, values
from pyconfd.presets.certificates import ReadSecret, from_base64, key_body, read_secret
from pyconfd.presets.endpoints import unservable
from pyconfd.presets.policies.users import UserList, read_users
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.routing.types import RouteServer
from pyconfd.presets.views import EndpointView
from pyconfd.status.redaction import public_refusal

SHARE_SPENT = "ReloadShareSpent"
WAITS_FOR_SHARE = (
    "it needs a reload, and waits for up to 30 s: half of all former workers were replaced for its namespace"
)
TLS = "kubernetes.io/tls"
_STAGES = tuple(ConditionType)
_TRUE, _FALSE, _UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN
_REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "NameTaken": "take another name, or ask the owner's namespace to give it up or to share it",
        "NameReserved": "wait until the reservation ends, or claim the name from the namespace that it is reserved for",
        "PortTaken": "choose another port, or free this one",
        "NotAllowed": "ask for something that is allowed, or have the setting changed that is named above",
        "ForbiddenAddress": "send traffic to addresses of pods or nodes; the settings can allow others",
        "NoSuchPort": "name a port that the service has",
        "NoNodePort": "give the service the type NodePort or LoadBalancer",
        "NoSuchService": "create what is missing, or correct what names it",
        "NoSuchAddress": "have addresses in addresses.pool that this machine has, and ask for one of them or for none",
        "NoFreeAddress": "add addresses to the setting addresses.pool, or remove an object that has one",
        "NoCertificate": "correct what is named above; the certificate is used as soon as it can be read",
        "Forbidden": "grant what is named above; it is used as soon as it is granted",
        "Incomplete": "add what is missing",
        "Unreadable": "look at the object with kubectl get -o yaml; it is not as the API says it should be",
        "BadTemplate": "correct the template; it is tried again when it changes",
        "UnsupportedAnnotation": "see docs/ingress.md: what it asks for may be had otherwise",
        "Quarantined": "correct the object: it is tried again as soon as it changes",
        "NoFrontend": "see pyconfd render: no fragment opens its ports",
        "NoServer": "see pyconfd render: no fragment makes a server of it",
        "NotUsed": "give it to certificate_file in a fragment, and name the file in a bind",
        SHARE_SPENT: "wait; changes that come together need one reload, and haproxy.max_old_workers allows more",
        "HAProxyDown": "start HAProxy: the first line of pyconfd status says why it does not run, and what to type",
        "Paused": "pyconfd resume ends the pause",
        "Unexplained": "this is a bug: please report it, with the output of pyconfd record",
    }
)
_MOST_REMEDIES = 2
"""The likeliest come first; more of them are read by nobody."""
_CORRECT = "correct this field; it is read again as soon as the object changes"


@dataclass(frozen=True)
class Evidence:
    """What explanations are made of.

    ``desired`` is what the newest Snapshot gave (None where nothing could be rendered), ``running`` the running
    configuration. ``refused`` are all refusals, also those of objects that cannot be read. ``live`` returns the servers
    of a backend by name as HAProxy shows them, None where it could not be asked; ``check`` what its health check said
    of one, ``route`` why this machine may not reach an address, "" for nothing. ``haproxy`` is False where only other
    load balancers are served, whose configurations cannot be read here. ``kept`` are addresses that are served only
    because their removal is held, by preset and key. ``fragments`` are texts by name, ``secret_namespaces`` those whose
    TLS Secrets are read. ``variables`` are what fragments read as ``vars``; ``own_fragments`` are those of the shipped
    ones that the operator changed or left out.
    """

    now: float
    snapshot: Snapshot
    context: Context
    presets: Sequence[str]
    options: PresetOptions
    desired: Rendering | None
    running: Rendering | None
    refused: Sequence[Refusal]
    ages: Mapping[Refusal, Age] = field(default_factory=lambda: MappingProxyType({}))
    instance: InstanceState = field(default_factory=InstanceState)
    live: Callable[[str], Mapping[str, ServerNow] | None] = lambda _: None
    check: Callable[[str, str], str] = lambda _backend, _server: ""
    route: Callable[[str], str] = lambda _: ""
    fragments: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    haproxy: bool = True
    kept: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    secret_namespaces: Sequence[str] = ()
    variables: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    own_fragments: Sequence[str] = ()

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """All claims, with what is refused of each."""
        return tuple(registry.claims_of(self.context, self.refused))

    @cached_property
    def configuration(self) -> RenderedConfig:
        """The running configuration; empty where there is none."""
        return RenderedConfig(self.running or Rendering(()))

    @cached_property
    def wanted(self) -> RenderedConfig:
        """What was rendered last."""
        return self.configuration if self.desired is self.running else RenderedConfig(self.desired or Rendering(()))

    @cached_property
    def _by_address(self) -> Mapping[str, list[tuple[Claim, ClaimedBackend]]]:
        found = defaultdict(list)
        for claim in self.claims:
            for backend in claim.backends:
                for address in {each.address for each in backend.endpoints}:
                    found[address].append((claim, backend))
        return found

    @cached_property
    def _by_section(self) -> Mapping[str, list[tuple[Claim, ClaimedBackend]]]:
        found = defaultdict(list)
        for claim in self.claims:
            for backend in claim.backends:
                found[backend.section].append((claim, backend))
        return found

    def _owners_of(self, line: ServerLine) -> list[tuple[Claim, ClaimedBackend]]:
        """Return whose a server is: of those with its address the ones that its backend is named after, else all.

        Two Services may select the same pods, so the address alone does not tell them apart. The index by address is
        made last: with 100,000 endpoints it takes a second.
        """
        for section in _sections_in(line.backend):
            named = self._by_section.get(section, ())
            if at := [each for each in named if each[1].is_at(line.address, line.port)]:
                return at
        found = (each for each in self._by_address.get(line.address, ()) if not each[1].unreachable)
        return [each for each in found if each[1].is_at(line.address, line.port)]

    def owner_of(self, line: ServerLine) -> Claim | None:
        """Return whose a server is, as far as it is known; of several the first that claims it."""
        return next((claim for claim, _ in self._owners_of(line)), None)

    def lines_of(self, backend: ClaimedBackend, configuration: RenderedConfig) -> list[ServerLine]:
        """Return the servers that lead to what the templates were given, none where no listener does."""
        if backend.unreachable:
            return []
        places = dict.fromkeys((each.address, each.port) for each in backend.endpoints)
        found = (line for address, port in places for line in configuration.at(address, port))
        return [line for line in found if any(owner is backend for _, owner in self._owners_of(line))]

    def servers_of(self, claim: Claim) -> list[ServerLine]:
        """Return the servers that are taken for those of a claim, each once."""
        lines = dict.fromkeys(line for backend in claim.backends for line in self.lines_of(backend, self.configuration))
        return [line for line in lines if self.owner_of(line) is claim]


@lru_cache(maxsize=4096)
def _sections_in(backend: str) -> tuple[str, ...]:
    """Return the parts of a backend's name that begin and end where a word does, the longest first."""
    starts = [at for at in range(len(backend)) if not at or not backend[at - 1].isalnum()]
    ends = [at for at in range(1, len(backend) + 1) if at == len(backend) or not backend[at].isalnum()]
    parts = {backend[start:end] for start in starts for end in ends if start < end}
    return tuple(sorted(parts, key=lambda part: (-len(part), part)))


def report_of(claim: Claim, evidence: Evidence, host: str = "") -> ClaimReport:
    """Return what became of a claim, or of the one name ``host`` that it claims."""
    mine = [backend for backend in claim.backends if not host or host in backend.hosts]
    lines = dict.fromkeys(line for backend in mine for line in evidence.lines_of(backend, evidence.configuration))
    servers = tuple(server_report(line, evidence, claim) for line in lines)
    refused: Sequence[Refusal] = claim.refused
    if host:
        refused = [each for each in refused if each.value == values.shortened(host)] or refused
    found = [refusal_condition(each, evidence) for each in refused]
    wrong = [each for each in found if each.status is not _TRUE]
    conditions = _in_order(found, _decisive(claim, mine, servers, wrong, evidence))
    waits_for_pods = any(each.reason == "NoReadyEndpoints" for each in conditions)
    return ClaimReport(
        object=f"{claim.ref} {values.shortened(claim.item)}".rstrip(),
        conditions=conditions,
        preset=claim.preset,
        because=claim.because,
        names=claim.names,
        servers=servers,
        endpoints=tuple(map(endpoint_report, claim.endpoints)) if waits_for_pods else (),
        remedy=_remedy_of_servers(servers, evidence) or remedy_of(claim.ref, conditions, evidence),
        created=_created(claim.ref, evidence),
    )


def _decisive(  # noqa: PLR0911 - one for each way to end
    claim: Claim,
    mine: Sequence[ClaimedBackend],
    servers: Sequence[ServerReport],
    refused: Sequence[Condition],
    evidence: Evidence,
) -> Condition:
    """Return the condition that says how far a claim came: the first of these that is true."""
    if claim.listens:
        return _listening(claim, refused, evidence)
    reachable = [backend for backend in mine if not backend.unreachable]
    has_endpoints = any(backend.endpoints for backend in reachable)
    if servers:
        return _unless_down(evidence, Condition(ConditionType.PROGRAMMED, _TRUE, "Programmed", _served_by(servers)))
    if has_endpoints and not evidence.haproxy:
        why = "its addresses are sent to the targets; pyconfd status shows their state"
        return Condition(ConditionType.PROGRAMMED, _UNKNOWN, "ProgrammedByTargets", why)
    if any(evidence.lines_of(backend, evidence.wanted) for backend in reachable):
        return _not_applied(claim.ref, evidence.instance)
    if refused and (not reachable or has_endpoints or claim.has_ready):
        return min(refused, key=lambda each: _STAGES.index(each.type))
    if has_endpoints and evidence.desired is None:
        return _not_applied(claim.ref, evidence.instance)
    if has_endpoints:
        names = ", ".join(backend.name for backend in mine)
        return Condition(ConditionType.RENDERED, _FALSE, "NoServer", f"the fragments make no server of {names}")
    if mine and not reachable:
        return Condition(ConditionType.RENDERED, _FALSE, "NoListener", mine[0].unreachable)
    if mine or not claim.has_ready:
        return Condition(ConditionType.RESOLVED_REFS, _FALSE, "NoReadyEndpoints", _why_not_ready(claim))
    return Condition(ConditionType.PROGRAMMED, _UNKNOWN, "Unexplained", "not served, and nothing says why")


def _listening(claim: Claim, refused: Sequence[Condition], evidence: Evidence) -> Condition:
    """Return how far an object came that has ports and no servers of its own."""
    wanted = set(claim.frontends)
    if not evidence.haproxy and wanted:
        why = "its ports are sent to the targets; pyconfd status shows their state"
        return Condition(ConditionType.PROGRAMMED, _UNKNOWN, "ProgrammedByTargets", why)
    if wanted and wanted <= {each.name for each in evidence.configuration.sections}:
        why = "its ports are open; what they lead to is said of its routes"
        return _unless_down(evidence, Condition(ConditionType.PROGRAMMED, _TRUE, "Programmed", why))
    if wanted and (evidence.desired is None or wanted <= {each.name for each in evidence.wanted.sections}):
        return _not_applied(claim.ref, evidence.instance)
    if refused:
        return min(refused, key=lambda each: _STAGES.index(each.type))
    return Condition(ConditionType.RENDERED, _FALSE, "NoFrontend", "none of its ports has a frontend")


def _unless_down(evidence: Evidence, condition: Condition) -> Condition:
    """Return ``condition``, or that HAProxy does not run."""
    if evidence.instance.phase != Phase.DOWN:
        return condition
    why = "its configuration is installed, but HAProxy does not run (see above)"
    return Condition(ConditionType.PROGRAMMED, _FALSE, "HAProxyDown", why)


def _in_order(refused: Sequence[Condition], decisive: Condition) -> tuple[Condition, ...]:
    """Return all conditions: what was refused, what decides, and what follows from that for the other stages."""
    found = dict.fromkeys([*refused, decisive])
    for stage in _STAGES:
        if any(each.type is stage for each in found):
            continue
        if _STAGES.index(stage) < _STAGES.index(decisive.type):
            found[Condition(stage, _TRUE, stage.value)] = None
        else:
            # A claim that ended before it was rendered is certainly not programmed; of the rest nothing is known.
            status = _FALSE if stage is ConditionType.PROGRAMMED else _UNKNOWN
            found[Condition(stage, status, "Blocked", f"{decisive.type} is {decisive.status}")] = None
    return tuple(sorted(found, key=lambda each: _STAGES.index(each.type)))


def _not_applied(ref: ObjectRef, instance: InstanceState) -> Condition:
    if instance.paused:
        reason, why = "Paused", "applying is paused"
    elif instance.hold_id and not instance.held_since:
        reason, why = "Held", "the change that brings it is held"
    elif ref.namespace in instance.spent_share:
        reason, why = SHARE_SPENT, f"{WAITS_FOR_SHARE}; other namespaces' changes go on"
    else:
        reason, why = "Pending", "not in the running configuration yet"
    return Condition(ConditionType.PROGRAMMED, _FALSE, reason, why)


def _served_by(servers: Sequence[ServerReport]) -> str:
    """Return how many servers there are; one that drains gets nothing new, so it is counted apart."""
    held, by_hand = sum(server.held for server in servers), sum(server.by_hand for server in servers)
    draining = sum(server.draining and not server.by_hand for server in servers)
    staying = [server for server in servers if not (server.draining or server.by_hand)]
    number = len(staying) or len(servers)
    count = f"served by {number} server{'s' if number != 1 else ''}"
    leaving = {f"{draining} more draining": draining, f"{by_hand} more taken out by hand": by_hand}
    if staying:
        count += "".join(f", {words}" for words, some in leaving.items() if some)
    elif draining and by_hand:
        count += f", {by_hand} of them taken out by hand, the others draining"
    else:
        count += ", all of them " + ("taken out by hand" if by_hand else "draining: no ready pod is left")
    count += f", {'all' if held == len(servers) else held} of them held by removal protection" if held else ""
    if not staying or any(server.state in {"", "up"} for server in staying):
        return count
    why = next((f": {server.why}" for server in staying if server.why), "")
    return f"{count}, none of them up{why}"


def _why_not_ready(claim: Claim) -> str:
    if not claim.endpoints:
        if claim.ref.kind == "Service":
            return "it has no endpoints: its selector, if it has one, matches no running pod"
        return "no backend that it names has endpoints"
    if claim.has_ready:
        return "its endpoints are ready, but no node may get traffic for them (ready, schedulable, with an address)"
    count = len(claim.endpoints)
    return "its only endpoint is not ready" if count == 1 else f"none of its {count} endpoints is ready"


def shown_refusal(refusal: Refusal) -> Refusal:
    """Return a refusal without secrets, and with a value that is short."""
    shown = public_refusal(refusal)
    # A preset that shortened the value added three dots, and escaped it.
    is_short = len(shown.value) <= values.SHOWN_CHARACTERS + 3
    return shown if is_short else replace(shown, value=values.shortened(shown.value))


def refusal_condition(refusal: Refusal, evidence: Evidence) -> Condition:
    """Return the condition that a refusal sets, without secrets."""
    age = evidence.ages.get(refusal)
    return condition_of_refusal(shown_refusal(refusal), age.since if age else 0.0)


def refused_object(ref: ObjectRef, refused: Iterable[Refusal], evidence: Evidence) -> ClaimReport:
    """Return what an object is refused for, the newest first."""
    conditions = sorted((refusal_condition(each, evidence) for each in refused), key=lambda each: -each.since)
    return ClaimReport(str(ref), tuple(conditions), remedy=remedy_of(ref, conditions, evidence))


def not_claimed(key: Key, evidence: Evidence, resource: Resource = Resource.SERVICES) -> ClaimReport:
    """Return what would make an object claim something: first what was probably meant, then what each preset needs."""
    service = evidence.snapshot.services.get(key) if resource is Resource.SERVICES else None
    kind = "Endpoints" if resource is Resource.SERVICES and service is None else KIND_OF[resource]
    ref = ObjectRef(kind, key.namespace, key.name, evidence.snapshot.cluster)
    never = unservable(service) if service is not None else ""
    presets = {name: registry.PRESETS[name] for name in evidence.presets}
    if resource is not Resource.SERVICES:
        presets = {name: preset for name, preset in presets.items() if resource in preset.resources}
    if service is not None and service.spec.type == "LoadBalancer":
        presets = dict(sorted(presets.items(), key=lambda each: each[0] != PresetName.LOADBALANCER))
    ways = (f"{preset.how_to_claim(evidence.options)} (preset {name})" for name, preset in presets.items())
    record = getattr(evidence.snapshot, resource.field).get(key)
    hints = [*filter(None, [never]), *_mistakes(record, evidence), *ways][:_MOST_REMEDIES]
    conditions = _in_order((), Condition(ConditionType.ACCEPTED, _FALSE, "NotClaimed", "it claims nothing"))
    return ClaimReport(str(ref), conditions, remedy="; or ".join(hints))


def _has_users(rendering: Rendering | None, name: str) -> bool:
    return rendering is not None and f"\nuserlist {name}\n" in rendering.text


def _about_users(users: UserList) -> str:
    return users.fault or f"{len(users.users)} users{f' ({users.notes}: left out)' if users.notes else ''}"


def secret_report(key: Key, evidence: Evidence) -> ClaimReport:
    """Return which certificate files hold a Secret, or why none does; no value of it is repeated."""
    secret = evidence.snapshot.secrets[key]
    ref = ObjectRef("Secret", key.namespace, key.name, evidence.snapshot.cluster)
    bodies = []
    for name, value in (secret.data or {}).items():
        try:
            bodies.append(key_body(from_base64(value, name)))
        except ValueError:
            continue  # another value of the Secret
    mine = [each for each in evidence.refused if each.ref.kind == "Secret" and each.ref[1:3] == key]
    # A Secret that nothing names is not refused of anything: its fault is said here only.
    read = read_secret(secret, evidence.snapshot.host.hour) if secret.type == TLS else ReadSecret(None)
    mine += [Refusal(ref, "data", "", RefusalReason.INVALID_VALUE, read.fault)] if read.fault and not mine else []
    refused = [refusal_condition(each, evidence) for each in mine]
    is_read_by_name = Named(Resource.SECRETS, *key) in registry.named_of(evidence.presets, evidence.options)
    files, users = _files_with(bodies, evidence.running), read_users(secret)
    if users is not None and users.name and _has_users(evidence.running, users.name):
        held = Condition(ConditionType.PROGRAMMED, _TRUE, "Programmed", "its users are in the configuration")
        decisive = _unless_down(evidence, held)
    elif files:
        held = Condition(ConditionType.PROGRAMMED, _TRUE, "Programmed", "in the certificate files below")
        decisive = _unless_down(evidence, held)
    elif refused:
        decisive = refused[0]
    elif secret.type != TLS and not is_read_by_name:
        unnamed = "no object that is served names it in basic-auth-secret"
        only = unnamed if users is not None and users.users else f"fragments get Secrets of type {TLS} only"
        decisive = Condition(ConditionType.ACCEPTED, _FALSE, "NotClaimed", only)
    elif _files_with(bodies, evidence.desired):
        decisive = _not_applied(ref, evidence.instance)
    else:
        unused = "no fragment writes it to a certificate file"
        decisive = Condition(ConditionType.RENDERED, _FALSE, "NotUsed", unused)
    conditions = _in_order(refused, decisive)
    return ClaimReport(
        object=str(ref),
        conditions=conditions,
        because=f"type {secret.type or '(none)'}, {read.about if users is None else _about_users(users)}",
        files=files,
        remedy=remedy_of(ref, conditions, evidence),
        created=secret.metadata.creation_timestamp or "",
    )


def _files_with(bodies: Sequence[str], rendering: Rendering | None) -> tuple[str, ...]:
    files = rendering.files if rendering is not None else ()
    certificates = (file for file in files if file.kind is FileKind.CERTIFICATE)
    return tuple(file.path for file in certificates if any(body in file.content for body in bodies))


def server_report(line: ServerLine, evidence: Evidence, claim: Claim | None = None) -> ServerReport:
    """Return a server with what HAProxy says of it, and whose it is."""
    claim = claim or evidence.owner_of(line)
    behind = next((each for each in claim.endpoints if each.address == line.address), None) if claim else None
    kept = (evidence.kept.get((claim.preset, each.key), ()) for each in claim.backends) if claim is not None else ()
    return msgspec.structs.replace(
        server_state(line, evidence, behind),
        place=evidence.configuration.place_of(line.line),
        object=str(claim.ref) if claim else "",
        held=any(line.address in addresses for addresses in kept),
    )


def server_state(line: ServerLine, evidence: Evidence, behind: EndpointView | RouteServer | None) -> ServerReport:
    """Return a server with what HAProxy says of it, and the pod ``behind`` it."""
    state, weight, seconds, why = "", -1, -1, ""
    shown = evidence.live(line.backend)
    if shown is not None:
        now = shown.get(line.name)
        state = condition_of(now) if now is not None else "absent"
        weight, seconds = (now.weight, now.changed_s) if now is not None else (-1, -1)
    if state == "down":
        why = "; ".join(filter(None, (evidence.check(line.backend, line.name), evidence.route(line.address))))
    return ServerReport(
        backend=line.backend,
        name=line.name,
        address=line.target,
        state=state,
        place="",
        line=line.line,
        weight=weight,
        state_s=seconds,
        pod=behind.pod if behind is not None else "",
        draining=state == "drain" or (behind is not None and behind.terminating),
        by_hand=state in {"drain", "maint"}
        and (behind is None or (behind.state == "ready" and not behind.terminating)),
        why=why,
    )


def endpoint_report(view: EndpointView, why: str = "") -> EndpointReport:
    """Return an endpoint that has no server."""
    host = f"[{view.address}]" if ":" in view.address else view.address
    return EndpointReport(f"{host}:{view.port}" if view.port else host, view.state, view.pod, view.node, why)


def _remedy_of_servers(servers: Sequence[ServerReport], evidence: Evidence) -> str:
    if any(server.held for server in servers):
        allow = f"pyconfd allow {evidence.instance.hold_id}"
        return f"look at the cluster; if the loss is meant, {allow} lets it through"
    if not servers or any(server.state in {"", "up", "starting"} for server in servers):
        return ""
    if by_hand := [server for server in servers if server.by_hand]:
        return f"pyconfd server ready {by_hand[0].backend}/{by_hand[0].name} ends what was set by hand"
    hosts = (host_and_port(server.address)[0] for server in servers if server.state == "down")
    if host := next((each for each in hosts if evidence.route(each)), ""):
        return f'route the pods\' network to the nodes (ip route get {host}), or set kubernetes.backend_target = "node"'
    return "no server takes traffic: look at the pods, and at the checks in the log of HAProxy"


def remedy_of(  # noqa: PLR0911 - one for each reason
    ref: ObjectRef, conditions: Sequence[Condition], evidence: Evidence
) -> str:
    """Return what to do about the first condition that is not true, "" where all are."""
    first = next((each for each in conditions if each.status is not _TRUE), None)
    if first is None:
        return ""
    match first.reason:
        case "Incomplete":
            # What is missing is often there under a misspelled name.
            service = evidence.snapshot.services.get(Key(ref.namespace, ref.name))
            return "; ".join([*_mistakes(service, evidence), _REMEDIES["Incomplete"]][:_MOST_REMEDIES])
        case "UnknownClass":
            found: Mapping[Key, AnyObject] = evidence.snapshot.ingresses
            found = evidence.snapshot.gateways if ref.kind == "Gateway" else found
            return "; ".join(_mistakes(found.get(Key(ref.namespace, ref.name)), evidence)) or _CORRECT
        case "NoReadyEndpoints" if ref.kind == "Service":
            selected = f"-n {ref.namespace} -l kubernetes.io/service-name={ref.name}"
            return f"look at its pods: kubectl get endpointslices {selected} -o wide, and kubectl describe pod"
        case "NoReadyEndpoints":
            return "look at its pods with kubectl describe pod"
        case "Held":
            return f"look at what is held with pyconfd status; {command_of(evidence.instance.hold_id)} lets it through"
        case "Pending" if evidence.instance.problems:
            return "correct what keeps the newest configuration from being applied (see above)"
        case "Pending":
            return "wait for the next apply; pyconfd status shows what it waits for"
        case "NoListener" | "NotClaimed" | "ProgrammedByTargets":
            return ""
        case reason:
            return _REMEDIES.get(reason, _CORRECT)


def _created(ref: ObjectRef, evidence: Evidence) -> str:
    resource = next(each for each in Resource if KIND_OF[each] == ref.kind)
    found = getattr(evidence.snapshot, resource.field).get(Key(ref.namespace, ref.name))
    return (found.metadata.creation_timestamp or "") if found is not None else ""


def _mistakes(record: AnyObject | None, evidence: Evidence) -> Iterator[str]:
    """Return what of an object has no effect, though a claim was probably meant by it."""
    if record is not None:
        for name in evidence.presets:
            yield from registry.PRESETS[name].mistakes(record, evidence.snapshot, evidence.options)
