"""What objects ask for in the preset ``domains``: the annotations read, each claim by itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import Endpoints, ObjectMeta, ObjectRef, Service
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.model.tenure import NEVER, Name, Owner
from pyconfd.presets import values
from pyconfd.presets.claiming import ClaimOptions
from pyconfd.presets.claims import Asked
from pyconfd.presets.cluster import Translated
from pyconfd.presets.views import PortView, ServiceView

_T = TypeVar("_T")

PREFIX = "pyconfd.io/"

ROUTED_BY_NAME = frozenset({"http", "https"})
"""Protocols whose connections name the domain they want, so that many domains share one port."""


@dataclass(frozen=True, slots=True)
class DomainClaim:
    """One object that asks for one domain; ``seat`` and ``owner`` are both for those who come after it.

    ``first_port`` is the number of its port in the first subset of Endpoints, 0 where that is not known.
    """

    ref: ObjectRef
    created: str
    seat: Name
    owner: Owner
    domain: str
    proto: str
    port: PortView
    listen_port: int | None
    service: Service | None
    view: ServiceView
    first_port: int = 0

    @property
    def rank(self) -> tuple[str, str, str, str]:
        """The older object wins; the name decides between twins."""
        return self.created, self.ref.namespace, self.ref.name, self.ref.kind

    @property
    def bound(self) -> int | None:
        """The port to bind, None for a protocol that is routed by name."""
        return None if self.proto in ROUTED_BY_NAME else self.listen_port or self.port.port

    @property
    def names(self) -> tuple[Name, ...]:
        """All that it asks for and that may be kept for somebody else."""
        bound = self.bound
        return (self.seat,) if bound is None else (self.seat, port_name(bound))

    @property
    def asks(self) -> tuple[Any, ...]:
        """All that decides who gets what; what stands behind it does not."""
        port = self.port
        return self.rank, self.domain, self.proto, self.listen_port, port.name, port.port, port.node_port


EXTERNAL_NAME = "a Service of type ExternalName is an alias in DNS: it has no endpoints to send traffic to"
NO_TCP = "the Service has no TCP port, and HAProxy balances only TCP"


class _Refused(Exception):  # noqa: N818 - it carries a Refusal out of a parser
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.detail)


def port_name(port: int) -> Name:
    """Return what stands for a port among the names that are kept."""
    return Name(f"port {port}", "")


class Former(NamedTuple):
    """What a former reading was made of, and what it found."""

    snapshot: Snapshot
    by_key: Mapping[Key, ServiceView]
    claims: Mapping[Key, Asked[DomainClaim]]


def asked(
    key: Key, snapshot: Snapshot, cluster: Translated, rules: ClaimOptions, former: Former
) -> Asked[DomainClaim] | None:
    """Return what the objects of one name ask for; None for nothing."""
    view = cluster.by_key.get(key)
    if view is None:
        return None
    service, endpoints = snapshot.services.get(key), snapshot.endpoints.get(key)
    if former.snapshot.services.get(key) is service and former.snapshot.endpoints.get(key) is endpoints:
        again = _with_view(former.claims.get(key), former.by_key.get(key), view)
        if again is not None:
            return again
    claims: list[DomainClaim] = []
    refused: list[Refusal] = []
    sources: list[tuple[str, ObjectMeta, Mapping[str, str], Endpoints | None]] = []
    if service is not None:
        sources.append(("Service", service.metadata, asked_by(service.metadata, "Service"), None))
    if endpoints is not None:
        sources.append(("Endpoints", endpoints.metadata, asked_by(endpoints.metadata, "Endpoints"), endpoints))
    for kind, meta, annotations, subsets in sources:
        if not (annotations["domain"] or annotations["proto"]):
            continue
        ref = ObjectRef(kind, key.namespace, key.name, snapshot.cluster)
        try:
            claim = _claim(ref, annotations, meta.creation_timestamp, service=service, endpoints=subsets, view=view)
            claims.append(_allowed(claim, rules))
        except _Refused as error:
            refused.append(error.refusal)
    return Asked(tuple(claims), tuple(refused)) if claims or refused else None


def _with_view(
    asked: Asked[DomainClaim] | None, former: ServiceView | None, view: ServiceView
) -> Asked[DomainClaim] | None:
    """Return what the same objects ask for with other endpoints behind them; None where the ports are others too."""
    if asked is None or former is None or list(map(_numbers, former.ports)) != list(map(_numbers, view.ports)):
        return None
    return Asked(
        tuple(
            DomainClaim(
                claim.ref, claim.created, claim.seat, claim.owner, claim.domain, claim.proto,
                view.ports[former.ports.index(claim.port)], claim.listen_port, claim.service, view,
                claim.first_port,
            )
            for claim in asked.claims
        ),
        asked.refused,
    )  # fmt: skip


def _numbers(port: PortView) -> tuple[str, int, str, int, int]:
    return port.name, port.port, port.protocol, port.node_port, port.target_port


def asked_by(meta: ObjectMeta, kind: str) -> Mapping[str, str]:
    """Return the annotations of a Service under their short names, the prefixed one wins; of Endpoints the plain ones.

    What is missing is "".
    """
    given = meta.annotations or {}
    if kind == "Endpoints":
        return {name: given.get(name, "") for name in ("domain", "proto", "port", "listen-port")}
    return {name: given.get(PREFIX + name, given.get(name, "")) for name in ("domain", "proto")} | {
        name: given.get(PREFIX + name, "") for name in ("port", "listen-port")
    }


def _claim(
    ref: ObjectRef,
    annotations: Mapping[str, str],
    created: str | None,
    *,
    service: Service | None,
    endpoints: Endpoints | None,
    view: ServiceView,
) -> DomainClaim:
    domain, proto = annotations.get("domain", ""), annotations.get("proto", "")
    if not domain or not proto:
        missing = "proto" if domain else "domain"
        detail = f"annotation {missing} is missing: an object is served when it has both domain and proto"
        raise _Refused(refusal(ref, f"annotation {missing}", "", RefusalReason.INCOMPLETE, detail))
    if service is not None and service.spec.type == "ExternalName" and endpoints is None:
        raise _Refused(refusal(ref, "spec.type", "ExternalName", RefusalReason.INVALID_VALUE, EXTERNAL_NAME))
    listen, wanted = annotations.get("listen-port", ""), _parsed(ref, "domain", domain, values.host_name)
    port = _chosen_port(ref, annotations.get("port", ""), view, endpoints)
    return DomainClaim(
        ref=ref,
        created=created or NEVER,
        seat=Name("", wanted),
        owner=Owner(ref.kind, ref.namespace, ref.name, created or NEVER),
        domain=wanted,
        proto=_parsed(ref, "proto", proto, values.protocol),
        port=port,
        listen_port=_parsed(ref, "listen-port", listen, values.port_number) if listen else None,
        service=service,
        view=view,
        first_port=_first_number(port, endpoints),
    )


def _first_number(port: PortView, endpoints: Endpoints | None) -> int:
    for subset in (endpoints.subsets or ())[:1] if endpoints else ():
        for item in subset.ports or ():
            if (item.name or "", item.protocol or "TCP") == (port.name, port.protocol):
                return item.port or 0
    return 0


def _allowed(claim: DomainClaim, rules: ClaimOptions) -> DomainClaim:
    """Return a claim that its namespace may make; what it asks of ports is judged where they are given away."""
    namespace = claim.ref.namespace
    for name, value, wrong in (
        ("domain", claim.domain, rules.domain(namespace, claim.domain)),
        ("proto", claim.proto, rules.protocol(namespace, claim.proto)),
    ):
        if wrong:
            raise _Refused(refusal(claim.ref, f"annotation {name}", value, RefusalReason.NOT_ALLOWED, wrong))
    return claim


def _parsed(ref: ObjectRef, name: str, value: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(value)
    except ValueError as error:
        raise _Refused(refusal(ref, f"annotation {name}", value, RefusalReason.INVALID_VALUE, str(error))) from None


def _chosen_port(ref: ObjectRef, wanted: str, view: ServiceView, endpoints: Endpoints | None) -> PortView:
    """Return the port that is asked for; else, as python-confd did, the first of the first subset; else the first."""
    candidates = [port for port in view.ports if port.protocol == "TCP"]
    if wanted:
        for port in candidates:
            if wanted in {port.name, str(port.port), str(port.target_port)}:
                return port
        names = ", ".join(f"{port.name or '(unnamed)'} {port.port}" for port in candidates) or "none"
        detail = f"the service has no such TCP port; it has: {names}"
        raise _Refused(refusal(ref, "annotation port", wanted, RefusalReason.NO_SUCH_PORT, detail))
    for subset in (endpoints.subsets or ())[:1] if endpoints else ():
        for item in (subset.ports or ())[:1]:
            found = next((port for port in candidates if port.name == (item.name or "")), None)
            if found:
                return found
    if not candidates and view.ports:
        protocols = ", ".join(sorted({port.protocol for port in view.ports}))
        raise _Refused(refusal(ref, "spec.ports", protocols, RefusalReason.INVALID_VALUE, NO_TCP))
    if not candidates:
        detail = "there is no port to send traffic to: it has no addresses yet"
        raise _Refused(refusal(ref, "spec.ports", "", RefusalReason.INCOMPLETE, detail))
    return candidates[0]


def refusal(ref: ObjectRef, field: str, value: str, reason: RefusalReason, detail: str) -> Refusal:
    """Refuse one field of an object; the value is shown shortened and escaped."""
    return Refusal(ref, field, values.shown(value), reason, detail)
