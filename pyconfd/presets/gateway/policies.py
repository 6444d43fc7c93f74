"""BackendTLSPolicies: TLS from the balancer to the pods of Services."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pyconfd.derived import Resolver
from pyconfd.model.gateway_api import BackendTLSPolicy
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key
from pyconfd.presets.certificates import pem_path
from pyconfd.presets.cluster import ReadService
from pyconfd.presets.gateway.listeners import ResolvedCertificate
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


class TlsPolicyTarget(NamedTuple):
    """What a policy is for; ``at`` is None where that is no Service. ``field`` and ``value`` are as written."""

    at: PolicyPort | None
    field: str
    value: str


class ValidatedPolicy(NamedTuple):
    """One policy by itself: what it asks for, and of what. ``tls`` None: nothing can be verified."""

    meta: ObjectMeta
    targets: tuple[TlsPolicyTarget, ...]
    invalid: tuple[Fault, ...]
    unresolved: tuple[Fault, ...]
    tls: BackendTls | None
    bundle: tuple[str, str]

    @property
    def rank(self) -> str:
        """The older one has a target."""
        return self.meta.creation_timestamp or ""


def policy_of(targets: Resolver[PolicyPort, TargetPolicy], service: Key, port: str) -> TargetPolicy | None:
    """Return the policy for a port, that which names it before that for all ports of the Service."""
    return targets.get(PolicyPort(service, port)) or targets.get(PolicyPort(service, ""))


def validate(
    key: Key, policy: BackendTLSPolicy, bundle_of: Callable[[Key], ResolvedCertificate], directory: str
) -> ValidatedPolicy:
    """Return what a policy asks for; ``directory`` is where files with CA certificates are."""
    invalid, unresolved, tls, bundle = _validation(key, policy, bundle_of, directory)
    return ValidatedPolicy(
        policy.metadata, tuple(_targets(key, policy)), tuple(invalid), tuple(unresolved), tls, bundle
    )  # fmt: skip


def _targets(key: Key, policy: BackendTLSPolicy) -> Iterator[TlsPolicyTarget]:
    for place, target in enumerate(policy.spec.target_refs):
        field = f"spec.targetRefs[{place}]"
        if (target.group, target.kind) in {("", "Service"), ("core", "Service")}:
            at = PolicyPort(Key(key.namespace, target.name), target.section_name or "")
            yield TlsPolicyTarget(at, field, target.name)
        else:
            yield TlsPolicyTarget(None, field, f"{target.kind} {target.name}")


def decide_policy(
    key: Key,
    policy: ValidatedPolicy,
    services: Resolver[Key, ReadService],
    targets: Resolver[PolicyPort, TargetPolicy],
) -> PolicyDecision:
    """Return what becomes of a policy; ``targets`` has which policy has what."""
    conflicts = []
    number = 0
    for target in policy.targets:
        if target.at is None:
            detail = "policies are for Services: name a Service"
            conflicts.append(Fault("TargetNotFound", target.field, target.value, detail))
            continue
        holder = targets.get(target.at)
        if wrong := missing(target.at, services.get(target.at.service)):
            conflicts.append(Fault("TargetNotFound", target.field, target.value, wrong))
        elif holder is not None and holder.key != key:
            detail = f"BackendTLSPolicy {holder.key.namespace}/{holder.key.name} has it already (the older one)"
            conflicts.append(Fault("Conflicted", target.field, target.value, detail))
        else:
            number += 1
    # A policy that is for something is accepted, though others have its other targets.
    not_accepted = policy.invalid or (conflicts if not number else ())
    return PolicyDecision(
        policy.meta,
        tuple(dict.fromkeys(each.at.service for each in policy.targets if each.at is not None)),
        (of_faults("Accepted", not_accepted), of_faults("ResolvedRefs", policy.unresolved)),
        (*policy.invalid, *conflicts, *policy.unresolved),
        policy.bundle,
    )


def missing(at: PolicyPort, service: ReadService | None) -> str:
    """Return why there is no such port of a Service, or Service; "" where there is."""
    if service is None or service.object is None or service.view is None:
        return "there is no such Service"
    if at.name and all(port.name != at.name for port in service.view.ports):
        return f"the Service has no port with the name {at.name}"
    return ""


def _validation(
    key: Key, policy: BackendTLSPolicy, ca_bundle: Callable[[Key], ResolvedCertificate], directory: str
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
