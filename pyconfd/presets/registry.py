"""The presets by name, what is kept of former translations, and the reading of one Snapshot by several presets."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyconfd.model.claim import Claim
from pyconfd.model.context import Claimed, ClusterTemplate, Context, EndpointTotals, Refusal, RefusalReason
from pyconfd.model.listener import Listener
from pyconfd.model.snapshot import Key, Named, Resource, Snapshot
from pyconfd.presets import cluster, values
from pyconfd.presets.cluster import Translated
from pyconfd.presets.configmap import ConfigmapPreset
from pyconfd.presets.domains import DomainsPreset
from pyconfd.presets.hosts import HostsPreset
from pyconfd.presets.kube2lb.preset import Kube2lbPreset
from pyconfd.presets.kubefigurator.preset import KubefiguratorPreset
from pyconfd.presets.preset import Preset, PresetOptions, PresetResult, Translation

if TYPE_CHECKING:
    from pyconfd.model.reservation import Owner


@dataclass(frozen=True, slots=True)
class _KeptReading:
    name: str
    snapshot: Snapshot
    options: PresetOptions
    reading: PresetResult


class Memo:
    """Belongs to one thread that translates again and again; it is handed to each translation.

    It changes nothing but the time that a translation takes, and which objects of the result are those of the former
    one. It holds what was read of the last two Snapshots at most.
    """

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._kept: list[_KeptReading] = []
        self._refused: tuple[tuple[tuple[Refusal, ...], ...], tuple[Refusal, ...]] = ((), ())
        self._whole: tuple[tuple[str, ...], PresetOptions, Context] | None = None
        self._settled: tuple[tuple[object, ...], Context] | None = None
        self.cluster: Translated | None = None

    def whole(self, names: Sequence[str], options: PresetOptions) -> Context | None:
        """Return what the Snapshot at hand came to with just these presets and options, if that was asked for last."""
        known = self._whole
        return known[2] if known and known[0] == tuple(names) and known[1] is options else None

    def keep_whole(self, names: Sequence[str], options: PresetOptions, context: Context) -> None:
        """Keep what the Snapshot at hand came to."""
        self._whole = tuple(names), options, context

    def known_context(self, asked: tuple[object, ...]) -> Context | None:
        """Return what came of the very objects of ``asked``, if that was kept last."""
        known = self._settled
        return known[1] if known is not None and all(map(is_, known[0], asked)) else None

    def keep_context(self, asked: tuple[object, ...], context: Context) -> None:
        """Keep what came of ``asked``, as long as the same Snapshot is at hand."""
        self._settled = asked, context

    def begin(self, snapshot: Snapshot) -> None:
        """Forget the readings that were of no use for the Snapshot before this one."""
        if snapshot is not self._snapshot:
            self._kept = [kept for kept in self._kept if kept.snapshot is self._snapshot]
            self._snapshot, self._whole, self._settled = snapshot, None, None

    def former(self, name: str, options: PresetOptions) -> tuple[PresetResult | None, bool]:
        """Return the reading to build on, and whether it is of this very Snapshot with these options.

        One Snapshot may be read with several options (a port is contested, fragments are being tried): each has its
        own successor.
        """
        found: PresetResult | None = None
        for kept in reversed(self._kept):
            if kept.name != name:
                continue
            if kept.options is options or kept.options == options:
                return kept.reading, kept.snapshot is self._snapshot
            found = found or kept.reading
        return found, False

    def keep(self, name: str, snapshot: Snapshot, options: PresetOptions, reading: PresetResult) -> None:
        """Keep a reading for the next translation with these options."""
        self._kept = [kept for kept in self._kept if kept.name != name or kept.options != options]
        self._kept.append(_KeptReading(name, snapshot, options, reading))

    def sorted_refusals(self, parts: tuple[tuple[Refusal, ...], ...]) -> tuple[Refusal, ...]:
        """Return all refusals once, in order; the same tuple as before where all parts are."""
        former, result = self._refused
        if len(former) != len(parts) or any(old is not new for old, new in zip(former, parts, strict=True)):
            result = tuple(sorted({refusal for part in parts for refusal in part}))
            self._refused = (parts, result)
        return result


SWITCH = "cluster_templates.allow_configuration_from_cluster"
"""The setting without which no template of the cluster is rendered."""


_ALL = (DomainsPreset(), KubefiguratorPreset(), Kube2lbPreset(), ConfigmapPreset(), HostsPreset())

PRESETS: Mapping[str, Preset] = MappingProxyType({preset.name: preset for preset in _ALL})


def resources_of(names: Sequence[str], *, secrets: bool) -> frozenset[Resource]:
    """Return what has to be read for these presets; TLS Secrets only where namespaces are named for them."""
    needed = frozenset[Resource]().union(*(PRESETS[name].resources for name in names))
    return needed | {Resource.SECRETS} if secrets else needed


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


def translate(snapshot: Snapshot, names: Sequence[str], options: PresetOptions, memo: Memo | None = None) -> Context:
    """Return the names for the templates, and all refusals sorted. Never raises.

    Every preset's names stand under its own name too (``kube2lb.services``); the plain names belong to the preset
    listed first. A preset that gives a name equal to its own (``domains``) gives just that. Where two presets listen
    at the same place the older claim has it. With ``memo`` (that of the former translations) only what changed is made
    anew, and what did not is the same object as before.
    """
    memo = memo or Memo()
    memo.begin(snapshot)
    asked = options
    if (known := memo.whole(names, asked)) is not None:
        return known
    translated = memo.cluster = cluster.translate(snapshot, memo.cluster, options.claims)
    given: dict[str, object] = {"cluster": translated.view}
    readings = _readings(snapshot, names, translated, options, memo)
    owners = {name: reading.owners for name, reading in zip(names, readings, strict=True) if reading.owners}
    for name, reading in zip(names, readings, strict=True):
        given.setdefault(name, MappingProxyType(dict(reading.names)))
        given |= {each: value for each, value in reading.names.items() if each not in given or each == name}
    templates = tuple(template for reading in readings for template in reading.templates)
    off = () if options.cluster_templates else tuple(map(_switched_off, templates))
    context = Context(
        MappingProxyType(given),
        memo.sorted_refusals((translated.refused, *(reading.refused for reading in readings), off)),
        EndpointTotals(sum(reading.claimed for reading in readings), translated.ready),
        frozenset[Listener]().union(*(reading.listeners for reading in readings)),
        templates=() if off else templates,
        files=tuple(sorted({file for reading in readings for file in reading.files})),
        dns_names=_dns_names(readings),
        claimed=tuple(
            Claimed(name, reading.serves, reading.addresses_of) for name, reading in zip(names, readings, strict=True)
        ),
        everything=Claimed("cluster", translated.by_key, cluster.ready_addresses),
        owners=owners,
    )
    memo.keep_whole(names, asked, context)
    return context


def _switched_off(template: ClusterTemplate) -> Refusal:
    detail = f"it is not rendered; to trust its author as much as a writer of fragments, set {SWITCH} = true"
    return Refusal(template.ref, template.field, "", RefusalReason.NOT_ALLOWED, detail)


def _dns_names(readings: Sequence[PresetResult]) -> tuple[str, ...] | None:
    told = [reading.dns_names for reading in readings if reading.dns_names is not None]
    return tuple(sorted({name for names in told for name in names})) if told else None


def _readings(
    snapshot: Snapshot, names: Sequence[str], translated: Translated, options: PresetOptions, memo: Memo
) -> list[PresetResult]:
    """Return the reading of each preset, without the listeners that an older claim of another preset has."""
    readings = [_read(name, snapshot, translated, options, memo) for name in names]
    lost: list[dict[Listener, str]] = [{} for _ in names]
    # What one loses may let its next claim in, which may be too young as well: each round takes something away.
    while any(found := _lost_to_others(names, readings)):
        for number, more in enumerate(found):
            if more:
                lost[number] |= more
                asked = replace(options, contested={**options.contested, **lost[number]})
                readings[number] = _read(names[number], snapshot, translated, asked, memo)
    return readings


def _lost_to_others(names: Sequence[str], readings: Sequence[PresetResult]) -> list[dict[Listener, str]]:
    """Return for each preset the listeners that it gave away though an older claim of another one covers them."""
    lost: list[dict[Listener, str]] = [{} for _ in names]
    claimed = [
        (owner.since, owner.namespace, owner.name, number, listener, owner)
        for number, reading in enumerate(readings)
        for listener, owner in reading.listeners.items()
    ]
    if len({number for *_, number, _, _ in claimed}) < 2:
        return lost
    kept: defaultdict[int, list[tuple[int, Listener, Owner]]] = defaultdict(list)
    for *_, number, listener, owner in sorted(claimed):
        older = (each for each in kept[listener.port] if each[0] != number and _takes(each[1], listener))
        found = next(older, None)
        if found is None:
            kept[listener.port].append((number, listener, owner))
        else:
            other, place, by = found
            whose = f"{by.kind} {by.namespace}/{by.name} of preset {names[other]}"
            lost[number][listener] = f"{whose} listens on {place} already (the older one keeps it)"
    return lost


def _takes(older: Listener, listener: Listener) -> bool:
    """Return whether nothing of a listener is left to who comes later; an address that is not known may be any."""
    return older.covers(listener) or (not (older.address and listener.address) and older.overlaps(listener))


def _read(name: str, snapshot: Snapshot, translated: Translated, options: PresetOptions, memo: Memo) -> PresetResult:
    former, is_current = memo.former(name, options)
    if former is not None and is_current:
        return former
    reading = PRESETS[name].read(snapshot, translated, options, former)
    memo.keep(name, snapshot, options, reading)
    return reading


def claims_of(
    snapshot: Snapshot,
    context: Context,
    names: Sequence[str],
    options: PresetOptions,
    refused: Iterable[Refusal] | None = None,
) -> Iterator[Claim]:
    """Return all claims with what was refused of each, in the order of the presets and of their objects.

    ``context`` is what :func:`translate` returned. ``refused`` are all refusals, those of ``context`` by default.
    """
    view = context.names.get("cluster")
    services = {Key(each.namespace, each.name): each for each in view.services} if view is not None else {}
    by_object: defaultdict[tuple[str, str], list[Refusal]] = defaultdict(list)
    for refusal in context.refused if refused is None else refused:
        by_object[refusal.ref.namespace, refusal.ref.name].append(refusal)
    for name in names:
        preset, given = PRESETS[name], context.names.get(name, {})
        given = {name: given} if preset.gives == {name} else given
        for claim in preset.claims(Translation(snapshot, options, services, given)):
            own = claim.ref
            # Names are shortened in refusals.
            shown = values.shown(own.namespace), values.shown(own.name)
            found = {(own.namespace, own.name): None, shown: None}
            mine = tuple(each for key in found for each in by_object.get(key, ()) if _is_about(each, claim))
            yield replace(claim, refused=mine) if mine else claim


def _is_about(refusal: Refusal, claim: Claim) -> bool:
    kinds = {refusal.ref.kind, claim.ref.kind}
    if (len(kinds) > 1 and kinds != {"Service", "Endpoints"}) or refusal.ref.cluster not in {"", claim.ref.cluster}:
        return False
    item = values.shown(claim.item)
    return not item or refusal.field == item or refusal.field.startswith(f"{item} ")
