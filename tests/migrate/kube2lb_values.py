"""What kube2lb's templates see, as plain records: the names that the translated templates use."""

import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class Port:
    ip: str
    port: int
    mode: str
    protocol: str

    def __str__(self) -> str:
        return f"{ipaddress.ip_address(self.ip).packed.hex()}_{self.port}_{self.protocol}_{self.mode}"


@dataclass(frozen=True)
class Endpoint:
    name: str
    ip: str
    port: int

    def __str__(self) -> str:
        return f"{self.ip}:{self.port}"


@dataclass(frozen=True)
class Service:
    name: str
    namespace: str
    port: Port
    endpoints: tuple[Endpoint, ...]
    node_port: int
    external: list[str]
    timeout: int

    def __str__(self) -> str:
        return f"{self.name}_{self.namespace}_{self.port.port}_{self.port.protocol}_{self.port.mode}"


@dataclass(frozen=True)
class ServerName:
    name: str

    @property
    def is_regexp(self) -> bool:
        return self.name.startswith("~")

    @property
    def regexp(self) -> str:
        return self.name.removeprefix("~")

    def __str__(self) -> str:
        return self.name


def _port(value: dict[str, Any]) -> Port:
    return Port(value["IP"], value["Port"], value["Mode"], value["Protocol"])


def _service(value: dict[str, Any]) -> Service:
    endpoints = tuple(Endpoint(one["Name"], one["IP"], one["Port"]) for one in value["Endpoints"])
    port, external = _port(value["Port"]), value["External"]
    return Service(value["Name"], value["Namespace"], port, endpoints, value["NodePort"], external, value["Timeout"])


def _server_names(service: Service, domain: str) -> list[ServerName]:
    names = [f"{service.name}.{service.namespace}.svc.{domain}", *service.external]
    return [ServerName(name) for name in names]


def kube2lb_names(path: Path) -> dict[str, Any]:
    """Give the names of the templates for a cluster in a JSON file."""
    value = json.loads(path.read_text(encoding="utf-8"))
    fields = {
        "services": [_service(service) for service in value["Services"]],
        "ports": [_port(port) for port in value["Ports"]],
        "nodes": value["Nodes"],
        "domain": value["Domain"],
    }
    return {
        **fields,
        "kube2lb": SimpleNamespace(**fields),
        "ServerNames": _server_names,
        "EscapeNode": lambda node: node.replace(".", "_").replace(":", "_"),
        "IntRange": lambda n, initial, step: [initial + index * step for index in range(n)],
        "Add": lambda *values: sum(values),
        "ToLower": str.lower,
        "ToUpper": str.upper,
    }
