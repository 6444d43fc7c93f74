"""All presets, and what those in use make of one Snapshot together."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType

import structlog

from pyconfd.derived import SameParts
from pyconfd.errors import Problem, PyconfdError, RejectedInput
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.claim import Claim
from pyconfd.model.context import (
    Claimed,
    ClusterTemplate,
    Context,
    EndpointTotals,
    Refusal,
    RefusalReason,
    in_order,
)
from pyconfd.model.gateway_service import NO_SERVICES
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Step
from pyconfd.model.rendering import OutputFile
from pyconfd.model.reservation import NO_OWNERS, Owner, Owners
from pyconfd.model.snapshot import Key, Named, Resource, Snapshot
from pyconfd.model.versioned import GivenDict
from pyconfd.presets import addresses, cluster, host_ownership, listener_ownership, values
from pyconfd.presets.certificates import certificate_for, notes_on, presented
from pyconfd.presets.cluster import Cluster, ReadService
from pyconfd.presets.domains import DomainsPreset
from pyconfd.presets.gateway.mirror import script_file
from pyconfd.presets.gateway.preset import GatewayPreset
from pyconfd.presets.graph import PresetGraph
from pyconfd.presets.ingress.preset import IngressPreset
from pyconfd.presets.listener_ownership import name_of
from pyconfd.presets.loadbalancer import LoadbalancerPreset
from pyconfd.presets.preset import Preset, PresetOptions, PresetResult
from pyconfd.presets.views import EndpointView

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _DefaultCertificate:
    """The certificate of the settings, and why there is none."""

    path: str = ""
    files: tuple[OutputFile, ...] = ()
    refused: tuple[Refusal, ...] = ()
    presented: Mapping[str, PresentedCertificate] = field(default_factory=dict)


_PATH_FIRST = attrgetter("path", "content", "kind")
_NO_DEFAULT = _DefaultCertificate()


class Memo:
    """What was made of the last Snapshot, so that only what follows from a change is made again; of one thread.

    It changes nothing but the time that a translation takes, and which objects of the result are those of a former one.
    """

    def __init__(self) -> None:
        self._refused = SameParts[tuple[Refusal, ...]]()
        self._in_order: tuple[Refusal, ...] = ()
        self._graph: PresetGraph | None = None
        self.listeners = SameParts[frozenset[Listener]]()
        self.bound = SameParts[Owners]()
        self.files = SameParts[tuple[OutputFile, ...]]()
        self.default = SameParts[_DefaultCertificate]()
        self.tls = SameParts[GivenDict]()
        self.rules = SameParts[GivenDict]()
        self.names = SameParts[Mapping[str, object]]()

    def see(self, snapshot: Snapshot, names: Sequence[str], options: PresetOptions, had: Owners) -> Cluster:
        """Read a Snapshot."""
        graph = self._graph
        wanted = snapshot.cluster, [PRESETS[name] for name in names]
        if graph is None or graph.graph.is_broken or (graph.objects.cluster, graph.presets) != wanted:
            graph = self._graph = PresetGraph(*wanted)
        return graph.see(snapshot, options, had)

    def forget(self) -> None:
        """Forget the collections: an exception may have left anything half done."""
        self._graph = None

    @property
    def faulty(self) -> frozenset[Key]:
        """The objects of which a function raised an exception when a Snapshot was read last."""
        found = self._graph.faults if self._graph is not None else ()
        return frozenset(Key(each.ref.namespace, each.ref.name) for each in found)

    @property
    def graph(self) -> PresetGraph:
        """The collections, as they are after :meth:`see`."""
        if self._graph is None:
            raise RuntimeError("nothing was read yet")
        return self._graph

    def sorted_refusals(self, *parts: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
        """Return all refusals once, in order; the same tuple as before where all parts are."""
        self._in_order = self._refused.made(parts, lambda: in_order(*parts, former=self._in_order))
        return self._in_order


SWITCH = "cluster_templates.allow_configuration_from_cluster"
"""The setting without which no template of the cluster is rendered."""


_REGISTERED: dict[str, Preset] = {}

PRESETS: Mapping[str, Preset] = MappingProxyType(_REGISTERED)
"""All presets by name."""


def register(*presets: Preset) -> None:
    """Add presets; the composition root does it, before anything is read."""
    _REGISTERED.update({preset.name: preset for preset in presets})


register(DomainsPreset(), IngressPreset(), GatewayPreset(), LoadbalancerPreset())


def resources_of(names: Sequence[str], *, secrets: bool) -> frozenset[Resource]:
    """Return what has to be read for these presets; TLS Secrets only where namespaces are named for them."""
    needed = frozenset[Resource]().union(*(PRESETS[name].resources for name in names))
    return needed | {Resource.SECRETS} if secrets else needed


def statuses_of(names: Sequence[str]) -> frozenset[Resource]:
    """Return the kinds that these presets have a status for."""
    return frozenset[Resource]().union(*(PRESETS[name].writes_status for name in names))


def named_of(names: Sequence[str], options: PresetOptions) -> frozenset[Named]:
    """Return the single objects that these presets read by name."""
    return frozenset(each for name in names for each in PRESETS[name].named_objects(options))


def clashes(given: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """Return which template variables several presets give, which preset has each, and how the other's is reached.

    ``given`` has the names by preset, in order of precedence.
    """
    notes = []
    owners: dict[str, str] = {}
    for preset, names in given.items():
        for name in sorted(names):
            owner = owners.setdefault(name, preset)
            if owner != preset:
                notes.append(f"{name} is that of preset {owner}, listed first; that of {preset} is {preset}.{name}")
    return tuple(notes)


def translate(
    snapshot: Snapshot,
    names: Sequence[str],
    options: PresetOptions,
    memo: Memo | None = None,
    *,
    had: Owners = NO_OWNERS,
) -> Context:
    """Return the names for the templates, and all refusals sorted.

    Every preset's names stand under its own name too (``kube2lb.services``); the plain names belong to the preset
    listed first. A preset that gives a name equal to its own (``domains``) gives just that. Where two presets listen
    at the same place the older claim has it. With ``memo`` (that of the former translations) only what changed is made
    again, and what did not is the same object as before. ``had`` are the addresses of the pool that objects had before.

    Raises:
        RejectedInput: a bug concerns everything; one that concerns some objects leaves them out.
    """
    memo = memo or Memo()
    try:
        return _translate(snapshot, names, options, memo, had)
    except PyconfdError:
        raise
    except Exception as error:
        memo.forget()
        log.exception("translation.failed")
        message = f"a bug of pyconfd ({type(error).__name__}): the presets can make nothing of the cluster"
        raise RejectedInput(Problem("presets", message, _REPORT), step=Step.RENDER) from error


_REPORT = (
    "the running configuration stays; report it with the traceback: journalctl -u pyconfd | grep translation.failed"
)


def _translate(snapshot: Snapshot, names: Sequence[str], options: PresetOptions, memo: Memo, had: Owners) -> Context:
    read = memo.see(snapshot, names, options, had)
    results = [memo.graph.result(name) for name in names]
    default = _default_certificate(read, options, memo)
    templates: list[ClusterTemplate] = []
    assigned, hosts = memo.graph.addresses.owners(), memo.graph.hosts.owners()
    owners: dict[str, Owners] = {addresses.RESERVED: assigned} if assigned else {}
    reserved = dict(owners)
    if hosts:
        reserved[host_ownership.SCOPE] = hosts
    claimed = 0
    for name, result in zip(names, results, strict=True):
        templates += result.templates
        claimed += result.claimed
        if result.owners:
            owners[name] = result.owners
        if kept := result.owners if result.reserves is None else result.reserves:
            reserved[name] = kept
    listeners = tuple(result.listeners for result in results)
    statuses_of_policies, refused_policies = memo.graph.route_policies()
    pool = options.addresses.members
    if bound := memo.bound.made((pool, *listeners), lambda: _bound(listeners, pool)):
        reserved[listener_ownership.SCOPE] = bound
    script = script_file(options.tls.directory) if memo.graph.rules().is_mirrored else None
    off = () if options.cluster_templates else tuple(map(_switched_off, templates))
    return Context(
        _template_names(names, results, read, default, memo, script=script),
        memo.sorted_refusals(
            read.refused,
            *(result.refused for result in results),
            refused_policies,
            default.refused,
            off,
            memo.graph.faults,
            memo.graph.auth.refused,
        ),
        EndpointTotals(claimed, read.ready),
        memo.listeners.made(listeners, lambda: frozenset().union(*listeners)),
        templates=() if off else tuple(templates),
        files=_sorted_files(
            (
                *(result.files for result in results),
                default.files,
                (script,) if script is not None else (),
                memo.graph.auth.files,
            ),
            memo,
        ),
        dns_names=_dns_names(results),
        claimed=tuple(
            Claimed(name, result.serves, result.addresses_of) for name, result in zip(names, results, strict=True)
        ),
        everything=Claimed("cluster", read.services, cluster.ready_addresses),
        owners=owners,
        reserved=reserved,
        statuses=(*(result.statuses for result in results), *filter(None, (statuses_of_policies,))),
        services=next((result.services for result in results if result.services), NO_SERVICES),
        certificates=(*(result.certificates for result in results), default.presented),
        claims={name: result.claims for name, result in zip(names, results, strict=True)},
    )


def _template_names(
    names: Sequence[str],
    results: Sequence[PresetResult],
    read: Cluster,
    default: _DefaultCertificate,
    memo: Memo,
    *,
    script: OutputFile | None,
) -> Mapping[str, object]:
    """Return the names for the templates; the same object as before where each value is."""
    view, in_use = read.view, bool(default.path) or any(result.ends_tls for result in results)
    named, reads_hello = memo.graph.named_virtual_hosts(), memo.graph.hosts.read_hello()
    tls = memo.tls.made(
        (default, in_use, reads_hello),
        lambda: GivenDict(default_certificate=default.path, in_use=in_use, reads_hello=reads_hello),
    )

    found, path = memo.graph.rules(), script.path if script is not None else ""
    rules = memo.rules.made(
        (*found, path),
        lambda: GivenDict(
            backends=found.backends,
            profiles=found.profiles,
            limited=found.is_limited,
            verifies_clients=found.verifies_clients,
            users=found.users,
            mirror_script=path,
        ),
    )

    auth = memo.graph.auth.given()

    def make() -> Mapping[str, object]:
        given: dict[str, object] = {
            "cluster": view,
            "tls": tls,
            "named_virtual_hosts": named,
            "rules": rules,
            "auth": auth,
        }
        for name, result in zip(names, results, strict=True):
            given.setdefault(name, MappingProxyType(dict(result.names)))
            given.update({each: value for each, value in result.names.items() if each not in given or each == name})
        return MappingProxyType(given)

    parts: list[object] = [read.services, view.nodes, view.certificates, tls, named, rules, auth, *names]
    for value in (value for result in results for value in result.names.values()):
        parts += value.values() if isinstance(value, GivenDict) else (value,)  # it is made again for each result
    return memo.names.made(tuple(parts), make)


def _bound(listeners: Sequence[Mapping[Listener, Owner]], pool: Collection[str]) -> Owners:
    """Return who listens where; the addresses of the pool are shared out, and reserved, by themselves."""
    return {
        name_of(listener): owner
        for mine in listeners
        for listener, owner in mine.items()
        if listener.address not in pool
    }


def _default_certificate(read: Cluster, options: PresetOptions, memo: Memo) -> _DefaultCertificate:
    """Return what the settings name for clients that name no host, or an unknown one."""
    key = options.tls.default
    if key is None:
        return _NO_DEFAULT

    def find() -> _DefaultCertificate:
        found = certificate_for(read, options.tls, *key, ())
        ref = ObjectRef("Secret", *key, read.view.name)
        setting = "tls.default_certificate"
        refused = (Refusal(ref, setting, "", RefusalReason.NO_CERTIFICATE, found.fault),) if found.fault else ()
        shown = presented(found, "")
        return _DefaultCertificate(
            found.path,
            (found.file,) if found.file is not None else (),
            (*refused, *notes_on(found, ref, (setting, setting), "")),
            {"": shown} if shown is not None else {},
        )

    return memo.default.made((options.tls, read.secrets.get(key), read.snapshot.denied), find)


def _sorted_files(parts: tuple[tuple[OutputFile, ...], ...], memo: Memo) -> tuple[OutputFile, ...]:
    return memo.files.made(parts, lambda: tuple(sorted({file for part in parts for file in part}, key=_PATH_FIRST)))


def _switched_off(template: ClusterTemplate) -> Refusal:
    detail = f"it is not rendered; to trust its author as much as a writer of fragments, set {SWITCH} = true"
    return Refusal(template.ref, template.field, "", RefusalReason.NOT_ALLOWED, detail)


def _dns_names(results: Sequence[PresetResult]) -> tuple[str, ...] | None:
    found = [result.dns_names for result in results if result.dns_names is not None]
    return tuple(sorted({name for names in found for name in names})) if found else None


def claims_of(context: Context, refused: Iterable[Refusal] | None = None) -> Iterator[Claim]:
    """Return all claims with their endpoints and refusals, in the order of the presets and of their objects.

    ``refused`` are all refusals, those of ``context`` by default.
    """
    services = context.everything.by_name if context.everything is not None else {}
    by_object: defaultdict[tuple[str, str], list[Refusal]] = defaultdict(list)
    for refusal in context.refused if refused is None else refused:
        by_object[refusal.ref.namespace, refusal.ref.name].append(refusal)
    for name, claims in context.claims.items():
        for claim in _readable(name, claims):
            own = claim.ref
            # Names are shortened in refusals.
            shown = values.shortened(own.namespace), values.shortened(own.name)
            found = {(own.namespace, own.name): None, shown: None}
            mine = tuple(each for key in found for each in by_object.get(key, ()) if _is_about(each, claim))
            endpoints = claim.endpoints or tuple(_endpoints_of(claim.services, services))
            yield replace(claim, refused=mine, endpoints=endpoints)


def _endpoints_of(keys: Iterable[Key], services: Mapping[Key, ReadService]) -> dict[EndpointView, None]:
    """Return all endpoints of these Services, in any state, each once."""
    views = (services[key].view for key in keys if key in services)
    return {each: None for view in views if view is not None for port in view.ports for each in port.endpoints}


def _readable(preset: str, claims: Callable[[], Iterable[Claim]]) -> Iterator[Claim]:
    """Return the claims of a preset, up to the object of which its code raises an exception: they explain only."""
    try:
        yield from claims()
    except Exception:
        log.exception("explanation.failed", preset=preset)


def _is_about(refusal: Refusal, claim: Claim) -> bool:
    kinds = {refusal.ref.kind, claim.ref.kind}
    if (len(kinds) > 1 and kinds != {"Service", "Endpoints"}) or refusal.ref.cluster not in {"", claim.ref.cluster}:
        return False
    item = values.shortened(claim.item)
    return not item or refusal.field == item or refusal.field.startswith(f"{item} ")
