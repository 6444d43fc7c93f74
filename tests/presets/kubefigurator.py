"""Services of haproxy-kubefigurator's users, and what the preset reads from them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from pyconfd.model.context import Context, RefusalReason
from pyconfd.model.kubernetes import (
    Service,
    ServicePort,
)
from pyconfd.model.snapshot import HostFacts
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.predecessors.kubefigurator.preset import Backend, KubefiguratorListener
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions, own_options
from tests.presets.objects import Named, node, service, snapshot

PREFIX = "haproxy-kubefigurator."
NODES = (node("n1", "10.0.0.1"), node("n2", "10.0.0.2"))
HOST = HostFacts(addresses=frozenset({"127.0.0.1", "192.0.2.7", "2001:db8::7"}))


def labelled(
    name: str,
    annotations: Mapping[str, str] | None = None,
    *,
    ports: Sequence[ServicePort] = (ServicePort("web", 80, node_port=30080),),
    created: str | None = "2026-01-01T00:00:00Z",
    label: str = "yes",
    policy: str | None = None,
    families: tuple[str, ...] | None = None,
) -> Service:
    given = {PREFIX + key: value for key, value in (annotations or {}).items()}
    made = service(name, given, ports=ports, created=created, type_="NodePort", policy=policy, families=families)
    labels = {f"{PREFIX}enabled": label}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


def web(name: str, hostname: str = "shop.example.com", **changes: str) -> dict[str, str]:
    return {f"{name}.hostname": hostname} | {f"{name}.{key.replace('_', '-')}": each for key, each in changes.items()}


def tcp(port: str) -> dict[str, str]:
    return {"web.haproxy-mode": "tcp", "web.listen-port": port}


def read(*objects: Named, host: HostFacts = HOST, options: PresetOptions | None = None, **own: object) -> Context:
    mine = KubefiguratorOptions(**own)  # type: ignore[arg-type]
    seen = replace(snapshot(*objects, *NODES), host=host)
    return registry.translate(seen, ("kubefigurator",), replace(options or PresetOptions(), own=own_options(mine)))


def listeners(context: Context) -> dict[str, KubefiguratorListener]:
    return {listener.name: listener for listener in context.names["listeners"]}


def backends(context: Context) -> dict[str, Backend]:
    return {backend.name: backend for backend in context.names["backends"]}


def only(context: Context) -> Backend:
    (backend,) = backends(context).values()
    return backend


def refused(context: Context) -> list[tuple[str, RefusalReason]]:
    return [(refusal.ref.name, refusal.reason) for refusal in context.refused]


def holding(certificates: Mapping[str, str]) -> HostFacts:
    return replace(HOST, certificates=certificates)
