"""What objects say of the addresses that traffic is sent to [pure]."""

from collections.abc import Iterator
from ipaddress import ip_address

from pyconfd.model.kubernetes import AnyObject, Endpoint, EndpointSlice, Node, Pod, TargetRef


def addresses_of(record: AnyObject) -> Iterator[tuple[str, Endpoint | None]]:
    """Return the addresses of an object that traffic is sent to."""
    if isinstance(record, EndpointSlice):
        for endpoint in record.endpoints or ():
            yield first_address(endpoint), endpoint
    elif isinstance(record, Pod):
        if record.status.pod_ip and record.status.phase not in {"Succeeded", "Failed"}:
            yield canonical(record.status.pod_ip), None
    elif isinstance(record, Node):
        for item in record.status.addresses or ():
            yield canonical(item.address), None


def leaves(record: AnyObject) -> bool:
    """Return whether a pod or node is being deleted, or a node was cordoned."""
    if isinstance(record, Node) and record.spec.unschedulable:
        return True
    return bool(record.metadata.deletion_timestamp)


def is_terminating(endpoint: Endpoint) -> bool:
    """Return whether the pod behind an endpoint is being deleted."""
    return bool(endpoint.conditions and endpoint.conditions.terminating)


def is_ready(endpoint: Endpoint) -> bool:
    """Return whether traffic may be sent to an endpoint."""
    return endpoint.conditions is None or (endpoint.conditions.ready is not False and not is_terminating(endpoint))


def identity_of(record: AnyObject, endpoint: Endpoint | None) -> tuple[str, str, str]:
    """Return who is behind an address: of an endpoint without a target just the namespace is known."""
    if isinstance(record, Pod):
        return record.metadata.namespace, "Pod", record.metadata.name
    if isinstance(record, Node):
        return "", "Node", record.metadata.name
    target = (endpoint.target_ref if endpoint else None) or TargetRef()
    return record.metadata.namespace, target.kind, target.name


def first_address(endpoint: Endpoint) -> str:
    """Return its address in the usual spelling, "" for none."""
    return canonical(endpoint.addresses[0]) if endpoint.addresses else ""


def canonical(address: str) -> str:
    """Return an address in its usual spelling; what is none stays."""
    if ":" not in address:
        return address
    try:
        return str(ip_address(address))
    except ValueError:
        return address
