"""Preset ``kubefigurator``: Services labelled for haproxy-kubefigurator, on listeners of their own choice.

Gives ``listeners`` (one for each address and port) and ``backends`` (one for each port of a Service that is served).
Where two ask for one listener or one host name on it, the older Service has it and the other is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import targets, values
from pyconfd.presets.cluster import Translated
from pyconfd.presets.kubefigurator_claims import ANY, Claim, Slot, claims
from pyconfd.presets.reading import PresetOptions, Reading
from pyconfd.presets.views import EndpointView


class Route(msgspec.Struct, frozen=True, gc=False):
    """One host name of a listener, as a Host header has it (an IPv6 address in brackets), and its backend's name.

    ``wildcard`` says that ``hostname`` is the end of names, for example ``.example.com``.
    """

    hostname: str
    backend: str
    wildcard: bool = False


class Listener(msgspec.Struct, frozen=True, gc=False):
    """One address and port.

    ``address`` is ``*`` or an IP address; ``mode`` is "http" (then there are ``routes``) or "tcp" (then there is a
    ``default_backend``); ``certificates`` are paths, sorted, none for no TLS.
    """

    name: str
    address: str
    port: int
    mode: str
    certificates: tuple[str, ...]
    routes: tuple[Route, ...]
    default_backend: str = ""


class Backend(msgspec.Struct, frozen=True, gc=False):
    """One port of one Service; ``port`` is its name.

    ``ssl`` is TLS to the servers, ``verify`` whether their certificates are verified with ``ca_file``. ``node_port``
    is 0 where traffic goes to pods. ``targets`` are the nodes without the port, or the pods.
    """

    name: str
    namespace: str
    service: str
    port: str
    mode: str
    balance: str
    ssl: bool
    verify: bool
    ca_file: str
    node_port: int
    targets: tuple[EndpointView, ...]

    @property
    def endpoints(self) -> tuple[EndpointView, ...]:
        """Where traffic goes, with its port. Made when asked: thousands of Services share the same nodes."""
        if not self.node_port:
            return self.targets
        return tuple(msgspec.structs.replace(target, port=self.node_port) for target in self.targets)


@dataclass(slots=True)
class _Taken:
    """A listener while it is given away: its first claimant decides mode and TLS; then who has which host name."""

    first: Claim
    owners: dict[str, Claim] = field(default_factory=dict)
    served: dict[str, Claim] = field(default_factory=dict)


def read(snapshot: Snapshot, cluster: Translated, options: PresetOptions, former: Reading | None = None) -> Reading:
    """Give ``listeners``, sorted by address and port, and ``backends``, sorted by name."""
    refused: list[Refusal] = []
    taken: dict[Slot, _Taken] = {}
    for claim in sorted(claims(snapshot, cluster, options, refused), key=lambda claim: claim.rank):
        listener = taken.setdefault(claim.slot, _Taken(claim))
        conflict = _conflict(claim, listener)
        if conflict is not None:
            refused.append(conflict)
            continue
        # A claim whose certificate is missing keeps its name: nobody takes it over while the file is renewed.
        listener.owners[claim.hostname] = claim
        missing = _unusable(claim, snapshot.host.certificates, options)
        if missing is not None:
            refused.append(missing)
        else:
            listener.served[claim.hostname] = claim
    used = {slot: listener for slot, listener in sorted(taken.items()) if listener.served}
    backends = _backends(used, cluster, options)
    return Reading(
        {"listeners": [_listener(slot, listener) for slot, listener in used.items()], "backends": backends},
        tuple(sorted(refused)),
        sum(endpoint.state == "ready" for backend in backends for endpoint in backend.targets),
        frozenset(slot.port for slot in taken),
    )


def _conflict(claim: Claim, listener: _Taken) -> Refusal | None:
    first = listener.first
    if first is claim:
        return None
    older = f"{first.who} listens there already (the older Service keeps it)"
    if first.mode != claim.mode:
        detail = f"{older}, in mode {first.mode}; choose another listen-port or listen-ip"
        return claim.refusal("haproxy-mode", claim.mode, RefusalReason.PORT_TAKEN, detail)
    if bool(first.certificate) != bool(claim.certificate):
        detail = f"{older}, with{'' if first.certificate else 'out'} TLS; choose another listen-port or change use-ssl"
        return claim.refusal("use-ssl", "true" if claim.certificate else "false", RefusalReason.PORT_TAKEN, detail)
    if claim.mode == "tcp":
        detail = f"{older}; in mode tcp a port has one service: choose another listen-port or listen-ip"
        return claim.refusal("listen-port", str(claim.slot.port), RefusalReason.PORT_TAKEN, detail)
    owner = listener.owners.get(claim.hostname)
    if owner is None:
        return None
    detail = f"{owner.who} has this name on {claim.slot} already (the older Service keeps it); change one of them"
    return claim.refusal("hostname", claim.hostname, RefusalReason.NAME_TAKEN, detail)


def _unusable(claim: Claim, certificates: Mapping[str, str] | None, options: PresetOptions) -> Refusal | None:
    """Say why a claim cannot be served for want of a file; None where it can, or where nothing is known."""
    if certificates is None:
        return None
    if claim.certificate:
        fault = certificates.get(claim.certificate, "the file does not exist")
        if fault:
            detail = f"{fault}; put certificate and key there and it is served; only this is left out until then"
            return claim.refusal("ssl-certificate", claim.certificate, RefusalReason.NO_CERTIFICATE, detail)
    ca_file = options.kubefigurator.ca_file
    if claim.tls and claim.verify and not ca_file.startswith("@"):
        fault = certificates.get(ca_file, "the file does not exist")
        if fault:
            detail = f"the setting kubefigurator.ca_file names {ca_file}: {fault}"
            return claim.refusal("backends-verify-ssl", "true", RefusalReason.NO_CERTIFICATE, detail)
    return None


def _listener(slot: Slot, listener: _Taken) -> Listener:
    served = listener.served
    routes = [_route(name, claim) for name, claim in served.items()] if listener.first.mode == "http" else []
    # Whole names first, then wildcards, the longest (the most special) first.
    routes.sort(key=lambda route: (route.wildcard, -len(route.hostname) * route.wildcard, route.hostname))
    return Listener(
        name=f"k8s-service_{'all' if slot.address == ANY else slot.address}_{slot.port}_listen",
        address=slot.address,
        port=slot.port,
        mode=listener.first.mode,
        certificates=tuple(sorted({claim.certificate for claim in served.values() if claim.certificate})),
        routes=tuple(routes),
        default_backend=_backend_name(listener.first) if listener.first.mode == "tcp" else "",
    )


def _route(hostname: str, claim: Claim) -> Route:
    if hostname.startswith("*."):
        return Route(hostname[1:], _backend_name(claim), wildcard=True)
    return Route(f"[{hostname}]" if values.address(hostname) and ":" in hostname else hostname, _backend_name(claim))


def _backend_name(claim: Claim) -> str:
    return f"k8s-service_{claim.ref.namespace}_{claim.ref.name}_{claim.port_name}_backend"


def _backends(used: Mapping[Slot, _Taken], cluster: Translated, options: PresetOptions) -> list[Backend]:
    own = options.kubefigurator
    by_family: dict[tuple[str, ...], tuple[EndpointView, ...]] = {}
    found = []
    for listener in used.values():
        for claim in listener.served.values():
            if own.node_ports:
                wanted = targets.families(claim.service)
                if wanted not in by_family:
                    by_family[wanted] = targets.addresses(cluster.view.nodes, options.node_address_types, wanted)
                behind = targets.on_nodes(claim.port, claim.service, by_family[wanted])
            else:
                behind = targets.pods(claim.port, claim.service)
            found.append(
                Backend(
                    name=_backend_name(claim),
                    namespace=claim.ref.namespace,
                    service=claim.ref.name,
                    port=claim.port_name,
                    mode=claim.mode,
                    balance=claim.balance,
                    ssl=claim.tls,
                    verify=claim.tls and claim.verify,
                    ca_file=own.ca_file,
                    node_port=claim.port.node_port if own.node_ports else 0,
                    targets=behind,
                )
            )
    return sorted(found, key=lambda backend: backend.name)
