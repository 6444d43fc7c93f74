"""Which objects have a backend without a server that is up, and why, in words for the users of the cluster. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyconfd.model.claim import Claim
from pyconfd.model.context import Context
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.status import BackendDown
from pyconfd.presets import registry

NOT_READY = "NoReadyEndpoints"
UNREACHABLE = "EndpointsUnreachable"


class Unserved(NamedTuple):
    """One backend of one object: its requests get 503, or its connections are reset."""

    ref: ObjectRef
    backend: str
    reason: str
    message: str


def unserved(context: Context, down: Sequence[BackendDown]) -> Iterator[Unserved]:
    """Return the objects behind the backends that are down, each with why."""
    # The shipped fragments name the backend of a domain be-KEY, and all others as their preset does.
    sections = {each.backend.removeprefix("be-"): each for each in down}
    for claim in registry.claims_of(context):
        for backend in claim.backends:
            if found := sections.get(backend.section):
                yield _unserved(claim, backend.name, found.servers)


def _unserved(claim: Claim, backend: str, servers: int) -> Unserved:
    if not servers:
        namespace = claim.ref.namespace
        look = f"kubectl get endpointslices -n {namespace} -l kubernetes.io/service-name={backend.partition(':')[0]}"
        if claim.ref.kind == "Service":
            look = f"kubectl get endpointslices -n {namespace} -l kubernetes.io/service-name={claim.ref.name}"
        return Unserved(claim.ref, backend, NOT_READY, f"{backend}: no endpoint is ready, so nothing answers: {look}")
    count = "its server does not answer" if servers == 1 else f"none of its {servers} servers answers"
    message = f"{backend}: {count} the load balancer, though the cluster says ready: is there a route to the pods?"
    return Unserved(claim.ref, backend, UNREACHABLE, message)
