"""What is around the machines: a cluster, its API server, and pods, at addresses that the machines can reach."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from tests.image.machine import Lan
from tests.world.apiserver import ApiServer
from tests.world.backends import Backends
from tests.world.cluster import Cluster
from tests.world.objects import EndpointSpec, PortSpec

NAMESPACE = "demo"
POD_PORT = 8080


def followed(name: str, port: int) -> dict[str, Any]:
    """Return ``[dns]`` for a name that follows the floating address, in the zone at this port of the host."""
    return {
        "names": [name],
        "owner": "prod",
        "zone_id": "Z1",
        "mode": "vip",
        "vip": Lan.vip,
        "address_source": "interface",
        "interface": "host0",
        "endpoint_url": f"http://{Lan.host}:{port}",
        "accept_dead_nodes": True,
        "hold_s": 1,
        "interval_s": 5,
        "joins_an_hour": 600,
        "ttl_s": 5,  # a shutdown waits for as long
    }


class World:
    """Everything outside of the machines; leaving the ``with`` ends it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.cluster = Cluster()
        self.cluster.add_namespace("pyconfd")  # as pyconfd rbac does: the Lease is there
        self.pods = self._stack.enter_context(Backends(POD_PORT))
        self.api = self._stack.enter_context(ApiServer(self.cluster, host=Lan.host))
        self._members: dict[str, list[EndpointSpec]] = {}
        self._pods = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def serve(self, name: str, pods: int = 2) -> None:
        """Add a Service with pods that asks for ``<name>.example.com``."""
        annotations = {"domain": f"{name}.example.com", "proto": "http"}
        port = PortSpec(name="web", port=80, target=POD_PORT)
        self.cluster.add_service(NAMESPACE, name, ports=[port], annotations=annotations)
        self._members[name] = []
        for _ in range(pods):
            self.scale_up(name)

    def scale_up(self, name: str) -> str:
        """Start one more pod of a Service; return its name."""
        self._pods += 1
        pod, address = f"{name}-{self._pods}", f"10.79.16.{self._pods}"
        self.pods.add(pod, address)
        self._members[name].append(EndpointSpec(address, pod=pod, node="node-1"))
        self.cluster.set_endpoints(NAMESPACE, name, self._members[name])
        return pod

    def settings(self, **sections: Mapping[str, Any]) -> str:
        """Return the one file of a machine; ``sections`` are more tables of it."""
        tables: dict[str, Mapping[str, Any]] = {
            "kubernetes": {"api_servers": [self.api.url]},
            **sections,
        }
        lines = []
        for section, items in tables.items():
            lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in items.items())]
        return "\n".join(lines) + "\n"
