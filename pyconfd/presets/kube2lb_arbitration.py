"""Who gets which port and which name in preset ``kube2lb``, where several services ask for one."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any

import msgspec

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.tenure import Name, Owner, Owners, Tenures
from pyconfd.presets import values
from pyconfd.presets.claiming import ClaimOptions
from pyconfd.presets.kube2lb_names import NameTemplate, ServerName, name_template
from pyconfd.presets.kube2lb_views import Kube2lbPort, Kube2lbService
from pyconfd.presets.reading import PresetOptions
from pyconfd.presets.tenures import Seats

EXTERNAL_DOMAINS = "kube2lb/external-domains"

_Socket = tuple[str, int, str]
"""Address, port and protocol to listen on."""

_EntryKey = tuple[str, str, Kube2lbPort]


@dataclass(frozen=True, slots=True)
class Claim:
    """One service with all of its ports that can be served."""

    ref: ObjectRef
    created: str
    entries: tuple[Kube2lbService, ...]

    @property
    def rank(self) -> tuple[str, str, str]:
        """The older service wins; the name decides between twins."""
        return self.created, self.ref.namespace, self.ref.name

    @property
    def owner(self) -> Owner:
        """Names it for those who come after it."""
        return Owner(self.ref.kind, self.ref.namespace, self.ref.name, self.created)

    @property
    def asks(self) -> tuple[Any, ...]:
        """All that decides who gets what; the endpoints do not."""
        return self.rank, [(entry.port, entry.node_port, entry.external) for entry in self.entries]


@dataclass(frozen=True, slots=True)
class Decided:
    """Who serves what: the claims with the ports that they got, and the names given out to them."""

    names: "Names"
    services: list[Kube2lbService]
    by_port: list[tuple[Kube2lbPort, list[Kube2lbService]]]
    refused: tuple[Refusal, ...]
    owners: Owners
    tenures: Tenures


def decide(claims: list[Claim], options: PresetOptions) -> Decided:
    """Give out ports and names to the claims, which come in order of their rank, unless others have tenure."""
    refused: list[Refusal] = []
    own, tenures = options.kube2lb, options.tenures_of("kube2lb")
    templates = tuple(name_template(text) for text in own.server_name_templates)
    seats = Seats(tenures, lambda: _wanted(claims, templates, own.domain))
    owners: dict[Name, Owner] = {}
    claims = _without_port_conflicts(claims, seats, owners, refused)
    names = Names([_asking(claim) for claim in claims], templates, seats, options.claims)
    refused.extend(names.refusals(own.domain))
    owners |= names.owners(own.domain)
    services = [entry for claim in sorted(claims, key=lambda claim: claim.ref) for entry in claim.entries]
    by_port: dict[Kube2lbPort, list[Kube2lbService]] = defaultdict(list)
    for entry in services:
        by_port[entry.port].append(entry)
    return Decided(
        names,
        services,
        [(port, by_port[port]) for port in sorted(by_port, key=_port_order)],
        tuple(refused),
        owners,
        tenures,
    )


def _wanted(
    claims: list[Claim], templates: tuple[NameTemplate, ...], domain: str
) -> Iterator[tuple[Name, str, ObjectRef]]:
    """Give all that the claims ask for and that may be kept for somebody else."""
    for claim in claims:
        for entry in claim.entries:
            place = _place(entry.port)
            yield Name(place, ""), claim.ref.namespace, claim.ref
            for name in entry.external:
                yield Name(place, name), claim.ref.namespace, claim.ref
            for template in templates:
                with suppress(ValueError):
                    yield Name(place, template.name(entry, domain)), claim.ref.namespace, claim.ref


def _place(port: Kube2lbPort) -> str:
    return f"{port.bind}/{port.protocol}"


def _asking(claim: Claim) -> Claim:
    """Give a claim without what stands behind it, which soon is out of date."""
    entries = (msgspec.structs.replace(entry, endpoints=(), draining=()) for entry in claim.entries)
    return Claim(claim.ref, claim.created, tuple(entries))


def with_claims(decided: Decided, replaced: Iterable[tuple[Claim, Claim]]) -> Decided:
    """Give what was decided for claims that still ask for the same, though other endpoints may stand behind them."""
    renewed: dict[int, Kube2lbService] = {}
    for old, new in replaced:
        pairs = zip(old.entries, new.entries, strict=True)
        renewed |= {id(before): after for before, after in pairs if before is not after}
    if not renewed:
        return decided
    ports = {entry.port for entry in renewed.values()}

    def anew(entries: Iterable[Kube2lbService]) -> list[Kube2lbService]:
        return [renewed.get(id(entry), entry) for entry in entries]

    return replace(
        decided,
        services=anew(decided.services),
        by_port=[(port, anew(entries) if port in ports else entries) for port, entries in decided.by_port],
    )


def _without_port_conflicts(
    claims: list[Claim], seats: Seats, owned_names: dict[Name, Owner], refused: list[Refusal]
) -> list[Claim]:
    """Leave out what asks for a taken socket; only ports of mode http over TCP can be shared, by host names.

    Whoever has a socket alone is put into ``owned_names``.
    """
    owners: dict[_Socket, tuple[Claim, Kube2lbPort]] = {}
    kept = []
    for claim in claims:
        entries = []
        for entry in claim.entries:
            port, place = entry.port, _place(entry.port)
            shared = (port.mode, port.protocol) == ("http", "tcp")
            reserved = seats.barred(Name(place, ""), claim.ref.namespace, claim.created)
            if not reserved and not shared:
                reserved = seats.barred_from_place(place, claim.ref.namespace)
            if reserved:
                reason = RefusalReason.NAME_RESERVED
                refused.append(refusal(claim.ref, "spec.ports", str(port.port), reason, reserved))
                continue
            owner, owned = owners.setdefault((port.ip, port.port, port.protocol), (claim, port))
            if owned is port or (owned == port and shared):
                entries.append(entry)
                if not shared:
                    owned_names[Name(place, "")] = claim.owner
                continue
            why = "in another mode" if owned.mode != port.mode else f"in mode {port.mode}, which cannot be shared"
            detail = f"{owner.ref} listens on {owned.bind}/{port.protocol} already (the older one keeps it), {why}"
            refused.append(refusal(claim.ref, "spec.ports", str(port.port), RefusalReason.PORT_TAKEN, detail))
        kept.append(Claim(claim.ref, claim.created, tuple(entries)))
    return kept


@dataclass(frozen=True)
class Names:
    """The server names of all services; a name that several want on one socket belongs to the oldest of them.

    Names that come from the templates are given out before those of annotations, so that no annotation takes the
    name that another service has by itself. ``seats`` keep names for those who had them, ``rules`` say who may have
    them at all.
    """

    claims: list[Claim]
    templates: tuple[NameTemplate, ...]
    seats: Seats
    rules: ClaimOptions
    _by_domain: dict[str, dict[_EntryKey, list[ServerName]]] = field(default_factory=dict)
    _refused: dict[str, list[Refusal]] = field(default_factory=dict)
    _owners: dict[str, dict[Name, Owner]] = field(default_factory=dict)

    def of(self, service: Kube2lbService, domain: object) -> list[ServerName]:
        """Give the names by which clients ask for ``service``, those of the templates first.

        Raises:
            ValueError: ``service`` is not one of ``services``.
        """
        try:
            return list(self._names(str(domain)).get(_key(service), ()))
        except (AttributeError, TypeError):
            raise ValueError(f"ServerNames takes one of services, not {values.shown(str(service))}") from None

    def refusals(self, domain: str) -> list[Refusal]:
        """Give the names that went to somebody else, or are none."""
        self._names(domain)
        return self._refused[domain]

    def owners(self, domain: str) -> Owners:
        """Give who has which name."""
        self._names(domain)
        return self._owners[domain]

    def _names(self, domain: str) -> dict[_EntryKey, list[ServerName]]:
        if domain not in self._by_domain:
            self._by_domain[domain], self._refused[domain], self._owners[domain] = self._given_out(domain)
        return self._by_domain[domain]

    def _given_out(self, domain: str) -> tuple[dict[_EntryKey, list[ServerName]], list[Refusal], dict[Name, Owner]]:
        owners: dict[Name, Claim] = {}
        names: dict[_EntryKey, list[ServerName]] = defaultdict(list)
        refused: list[Refusal] = []

        def give(claim: Claim, entry: Kube2lbService, where: str, wanted: Iterable[ServerName]) -> None:
            for name in wanted:
                lost = self._lost(claim, entry.port, name, owners)
                if lost is not None:
                    refused.append(refusal(claim.ref, where, name, *lost))
                elif name not in names[_key(entry)]:
                    names[_key(entry)].append(name)

        for claim in self.claims:
            for entry in claim.entries:
                give(claim, entry, "server name", self._from_templates(claim, entry, domain, refused))
        for claim in self.claims:
            for entry in claim.entries:
                give(claim, entry, f"annotation {EXTERNAL_DOMAINS}", map(ServerName, entry.external))
        return names, refused, {name: claim.owner for name, claim in owners.items()}

    def _lost(
        self, claim: Claim, port: Kube2lbPort, name: ServerName, owners: dict[Name, Claim]
    ) -> tuple[RefusalReason, str] | None:
        """Give a name to a claim in ``owners``, or say why it cannot have it."""
        namespace, seat = claim.ref.namespace, Name(_place(port), str(name))
        if wrong := self.rules.domain(namespace, name):
            return RefusalReason.NOT_ALLOWED, wrong
        if kept := self.seats.barred(seat, namespace, claim.created):
            return RefusalReason.NAME_RESERVED, kept
        owner = owners.setdefault(seat, claim)
        if owner is claim or port.mode != "http":
            return None
        detail = f"{owner.ref} has this name on {port.bind} already; choose another one for one of them"
        return RefusalReason.NAME_TAKEN, detail

    def _from_templates(
        self, claim: Claim, entry: Kube2lbService, domain: str, refused: list[Refusal]
    ) -> Iterator[ServerName]:
        for template in self.templates:
            try:
                yield template.name(entry, domain)
            except ValueError as error:
                refused.append(
                    refusal(claim.ref, "server name", template.text, RefusalReason.INVALID_VALUE, str(error))
                )


def _key(entry: Kube2lbService) -> _EntryKey:
    return entry.namespace, entry.name, entry.port


def _port_order(port: Kube2lbPort) -> tuple[int, bytes, int, str, str]:
    address = ip_address(port.ip)
    return address.version, address.packed, port.port, port.protocol, port.mode


def refusal(ref: ObjectRef, field_: str, value: str, reason: RefusalReason, detail: str) -> Refusal:
    """Refuse a value of an object; it is shown shortened and escaped."""
    return Refusal(ref, field_, values.shown(value), reason, detail)
