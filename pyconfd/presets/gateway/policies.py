"""BackendTLSPolicies: TLS from the balancer to the pods of Services."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyconfd.model.gateway_api import BackendTLSPolicy
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key
from pyconfd.presets.certificates import pem_path
from pyconfd.presets.cluster import Cluster
from pyconfd.presets.gateway.listeners import Found
from pyconfd.presets.gateway.servers import BackendTls, san_fault
from pyconfd.presets.gateway.status import Fault, StatusCondition, name_fault, of_faults

SYSTEM_CAS = "@system-ca"
"""How HAProxy names the CA certificates of the machine it runs on."""


class PolicyPort(NamedTuple):
    """A Service, or the port of it with this name; ``name`` "" is all ports that nobody names."""

    service: Key
    name: str


class TargetPolicy(NamedTuple):
    """One policy at one target. ``tls`` None: it is there, but nothing can be verified, so that no request may go."""

    key: Key
    tls: BackendTls | None


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """One policy: where it holds, and what its status says."""

    meta: ObjectMeta
    services: tuple[Key, ...]
    conditions: tuple[StatusCondition, ...]
    faults: tuple[Fault, ...]
    bundle: tuple[str, str] = ("", "")
    """Path and content of the file with its CA certificates, "" for none."""


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies by what they are for; the older one has a target."""

    by_target: Mapping[PolicyPort, TargetPolicy] = field(default_factory=dict)
    decisions: Mapping[Key, PolicyDecision] = field(default_factory=dict)

    def of(self, service: Key, port: str) -> TargetPolicy | None:
        """Return the policy for a port, that which names it before that for all ports of the Service."""
        if not self.by_target:
            return None
        return self.by_target.get(PolicyPort(service, port)) or self.by_target.get(PolicyPort(service, ""))


def decide_policies(
    policies: Mapping[Key, BackendTLSPolicy],
    cluster: Cluster,
    ca_bundle: Callable[[Key], Found],
    directory: str,
) -> Policies:
    """Return what each policy asks for; ``directory`` is where files with CA certificates are."""
    by_target: dict[PolicyPort, TargetPolicy] = {}
    decisions = {}
    for key, policy in sorted(policies.items(), key=lambda item: (item[1].metadata.creation_timestamp or "", item[0])):
        invalid, unresolved, tls, bundle = _validation(key, policy, ca_bundle, directory)
        services: dict[Key, None] = {}
        conflicts = []
        targets = 0
        for place, target in enumerate(policy.spec.target_refs):
            field_ = f"spec.targetRefs[{place}]"
            if (target.group, target.kind) not in {("", "Service"), ("core", "Service")}:
                detail = "policies are for Services: name a Service"
                conflicts.append(Fault("TargetNotFound", field_, f"{target.kind} {target.name}", detail))
                continue
            at = PolicyPort(Key(key.namespace, target.name), target.section_name or "")
            services[at.service] = None
            holder = by_target.get(at)
            if wrong := _missing(at, cluster):
                conflicts.append(Fault("TargetNotFound", field_, target.name, wrong))
            elif holder is not None and holder.key != key:
                detail = f"BackendTLSPolicy {holder.key.namespace}/{holder.key.name} has it already (the older one)"
                conflicts.append(Fault("Conflicted", field_, target.name, detail))
            else:
                targets += 1
                by_target[at] = TargetPolicy(key, tls if not invalid else None)
        # A policy that is for something is accepted, though others have its other targets.
        not_accepted = invalid or (conflicts if not targets else [])
        decisions[key] = PolicyDecision(
            policy.metadata,
            tuple(services),
            (of_faults("Accepted", not_accepted), of_faults("ResolvedRefs", unresolved)),
            (*invalid, *conflicts, *unresolved),
            bundle,
        )
    return Policies(by_target, decisions)


def _missing(at: PolicyPort, cluster: Cluster) -> str:
    view = cluster.service(at.service)
    if at.service not in cluster.snapshot.services or view is None:
        return "there is no such Service"
    if at.name and all(port.name != at.name for port in view.ports):
        return f"the Service has no port with the name {at.name}"
    return ""


def _validation(
    key: Key, policy: BackendTLSPolicy, ca_bundle: Callable[[Key], Found], directory: str
) -> tuple[list[Fault], list[Fault], BackendTls | None, tuple[str, str]]:
    """Return what is invalid, which references are not resolved, the TLS to use, and the file for it."""
    validation = policy.spec.validation
    invalid: list[Fault] = []
    unresolved: list[Fault] = []
    bundles = []
    field_ = "spec.validation.caCertificateRefs"
    for reference in validation.ca_certificate_refs or ():
        if (reference.group, reference.kind) != ("", "ConfigMap"):
            kind = ".".join(filter(None, (reference.kind, reference.group)))
            unresolved.append(Fault("InvalidKind", field_, kind, "CA certificates are in ConfigMaps: name one"))
            continue
        found = ca_bundle(Key(key.namespace, reference.name))
        if found.fault:
            unresolved.append(Fault("InvalidCACertificateRef", field_, reference.name, found.fault))
        else:
            bundles.append(found.pem)
    if misnamed := name_fault(key):
        invalid.append(misnamed)
    well_known = validation.well_known_ca_certificates
    if wrong := san_fault(validation.subject_alt_names or (), validation.hostname):
        invalid.append(Fault("Invalid", "spec.validation", "", wrong))
    if well_known and validation.ca_certificate_refs:
        detail = "name CA certificates or well-known ones, not both"
        invalid.append(Fault("Invalid", "spec.validation.wellKnownCACertificates", well_known, detail))
    elif well_known and well_known != "System":
        invalid.append(Fault("Invalid", "spec.validation.wellKnownCACertificates", well_known, "supported is System"))
    elif not well_known and not bundles:
        detail = "no certificate of a pod can be verified: name a ConfigMap with CA certificates in ca.crt"
        invalid.append(Fault("NoValidCACertificate", field_, "", detail))
    if invalid:
        return invalid, unresolved, None, ("", "")
    path = SYSTEM_CAS if well_known else pem_path(directory, "policy_of", *key)
    tls = BackendTls(path, validation.hostname, tuple(validation.subject_alt_names or ()))
    return invalid, unresolved, tls, ("", "") if well_known else (path, "".join(bundles))
