"""Pods by their labels, which of them are ready, and their objects as templates may print them."""

from typing import Any

import msgspec

from pyconfd.model.claim import ANY_PORT
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef, Pod
from pyconfd.model.versioned import GivenDict, GivenList
from pyconfd.presets import values
from pyconfd.presets.views import EndpointView


def is_ready(pod: Pod) -> bool:
    """Return whether traffic may be sent to a pod.

    It runs, has an address, is not being deleted, all its containers are ready, and so are its readiness gates, of
    which kubernetes-haproxy knew only the address and the containers.
    """
    status = pod.status
    if pod.metadata.deletion_timestamp or status.phase in {"Succeeded", "Failed"}:
        return False
    if values.address(status.pod_ip or "") is None or not status.container_statuses:
        return False
    if not all(container.ready for container in status.container_statuses):
        return False
    conditions = {condition.type: condition.status for condition in status.conditions or ()}
    if conditions.get("Ready", "True") != "True":
        return False
    return all(conditions.get(gate.condition_type) == "True" for gate in pod.spec.readiness_gates or ())


def address_of(pod: Pod) -> str:
    """Return a pod's address in its usual spelling, "" where it has none."""
    return address_of_text(pod.status.pod_ip or "")


def address_of_text(text: str) -> str:
    """Return an address in its usual spelling, "" where the text is none."""
    found = values.canonical_address(text)
    return found[0] if found else ""


def endpoint(address: str, pod: str = "", *, ready: bool = True) -> EndpointView:
    """Return a pod as an endpoint on any port: these presets leave the port to the templates."""
    state, family = "ready" if ready else "down", "ipv6" if ":" in address else "ipv4"
    return EndpointView(address, ANY_PORT, state, family, pod, ready=ready, serving=ready)


def wrong_address(pod: Pod, why: str, cluster: str) -> Refusal:
    """Refuse a pod for where it is."""
    ref = ObjectRef("Pod", values.shortened(pod.metadata.namespace), values.shortened(pod.metadata.name), cluster)
    address = values.shortened(pod.status.pod_ip or "")
    return Refusal(ref, "status.podIP", address, RefusalReason.FORBIDDEN_ADDRESS, why)


def whole(pod: Pod) -> dict[str, Any]:
    """Return the whole object as plain data; texts that are no plain words are left out, wherever they are."""
    return pod.whole.made(_plain_object) if pod.whole is not None else _without_whole(pod)


def _without_whole(pod: Pod) -> dict[str, Any]:
    made: dict[str, Any] = given(_kept(msgspec.to_builtins(pod)))
    return made


def _plain_object(json: bytes) -> dict[str, Any]:
    made: dict[str, Any] = given(_kept(msgspec.json.decode(json)))
    return made


def given(value: Any) -> Any:
    """Return plain data as templates are given it: they cannot change it."""
    if isinstance(value, dict):
        return GivenDict({key: given(item) for key, item in value.items()})
    return GivenList(map(given, value)) if isinstance(value, list) else value


class _Dropped:
    """Stands for a text that is left out."""


_DROPPED = _Dropped()


def _kept(value: Any) -> Any:
    # The depth is that of a Kubernetes object: the API bounds it, and msgspec refused anything deeper.
    if isinstance(value, str):
        return value if values.is_word(value) else _DROPPED
    if isinstance(value, dict):
        items = ((key, _kept(item)) for key, item in value.items() if values.is_word(key) or key == "")
        return {key: item for key, item in items if item is not _DROPPED}
    if isinstance(value, list | tuple):
        return [item for item in map(_kept, value) if item is not _DROPPED]
    return value
