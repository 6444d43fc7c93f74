"""A cluster: the store, and what Kubernetes' own controllers would write into it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.world import objects
from tests.world.objects import EndpointSpec, PortSpec, SlicePort
from tests.world.patches import clone
from tests.world.resources import KINDS, RESOURCES
from tests.world.statuses import ApiError
from tests.world.store import Obj, Part, Store


class Cluster(Store):
    """The store with the conveniences that tests and the demo use."""

    def add_namespace(self, name: str) -> None:
        """Nothing happens where it exists."""
        with self.changed:
            if not self.exists("namespaces", "", name):
                self.create("namespaces", {"metadata": {"name": name}})

    def has_namespace(self, name: str) -> bool:
        """Whether objects can be created in it; the first two are there in every cluster."""
        return name in {"default", "kube-system"} or self.exists("namespaces", "", name)

    def exists(self, resource: str, namespace: str, name: str) -> bool:
        """Whether the object is there."""
        try:
            self.stored(resource, namespace, name)
        except ApiError:
            return False
        return True

    def create(self, resource: str, obj: Mapping[str, Any], *, part: Part = Part.WHOLE, dry_run: bool = False) -> Obj:
        """As Store.create; Services and Namespaces get the defaults of the API server, and a new namespace is made."""
        if resource == "services":
            written = {name: each for name, each in obj.items() if name != "status" or part is Part.WHOLE}
            obj, part = objects.with_service_defaults(written), Part.WHOLE
        elif resource == "namespaces":
            obj = objects.with_namespace_defaults(obj)
        elif RESOURCES[resource].namespaced and resource not in self.absent:
            self.add_namespace(obj["metadata"].get("namespace") or "default")
        return super().create(resource, obj, part=part, dry_run=dry_run)

    def delete(self, resource: str, namespace: str, name: str) -> Obj:
        """As Store.delete; with a Service go its Endpoints and EndpointSlices."""
        with self.changed:
            last = super().delete(resource, namespace, name)
            if resource == "services":
                if self.exists("endpoints", namespace, name):
                    super().delete("endpoints", namespace, name)
                for obj in self._slices(namespace, name):
                    super().delete("endpointslices", namespace, obj["metadata"]["name"])
            return last

    def add_service(
        self,
        namespace: str,
        name: str,
        *,
        ports: Sequence[PortSpec] = (PortSpec("web", 80, 8080),),
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        type: str = "ClusterIP",  # noqa: A002 - the API's own name
        families: Sequence[str] = ("IPv4",),
        spec: Mapping[str, Any] | None = None,
    ) -> Obj:
        """A Service without endpoints yet; ``spec`` is merged over the rest (externalTrafficPolicy ...)."""
        self.add_namespace(namespace)
        made = objects.service(
            namespace, name, ports, annotations=annotations, labels=labels, type=type, families=families, spec=spec
        )
        return self.create("services", made)

    def delete_service(self, namespace: str, name: str) -> None:
        """The Service, its Endpoints and its EndpointSlices."""
        self.delete("services", namespace, name)

    def set_endpoints(
        self,
        namespace: str,
        name: str,
        endpoints: Iterable[EndpointSpec],
        ports: Sequence[SlicePort] | None = None,
        family: str | None = None,
    ) -> None:
        """Write the EndpointSlices and the Endpoints object of a Service as the controllers would.

        ``endpoints`` replaces what was there, in one family when ``family`` is given, else in all of the Service.
        ``ports`` None means the Service's target ports. Only what differs is written. The Endpoints object holds the
        first family of the Service.
        """
        with self.changed:
            owner = self.get("services", namespace, name)
            everything = list(endpoints)
            used = self._target_ports(owner) if ports is None else list(ports)
            families: list[str] = owner["spec"].get("ipFamilies") or ["IPv4"]
            current = self._slices(namespace, name)
            present = {endpoint.family for endpoint in everything} | {old["addressType"] for old in current}
            for each in [family] if family else [*families, *sorted(present - set(families))]:
                members = [endpoint for endpoint in everything if endpoint.family == each]
                self._write_slices(owner, members, used, [old for old in current if old["addressType"] == each], each)
            if family in {None, families[0]}:
                primary = [endpoint for endpoint in everything if endpoint.family == families[0]]
                there = self.exists("endpoints", namespace, name)
                old = self.stored("endpoints", namespace, name).obj if there else None
                self.put("endpoints", objects.endpoints_object(owner, primary, used, old))

    def _write_slices(
        self, owner: Obj, members: list[EndpointSpec], ports: list[SlicePort], current: list[Obj], family: str
    ) -> None:
        wanted = objects.slices(owner, members, ports, current, family)
        for made in wanted:
            self.put("endpointslices", made)
        names = {made["metadata"]["name"] for made in wanted}
        for old in current:
            if old["metadata"]["name"] not in names:
                super().delete("endpointslices", owner["metadata"]["namespace"], old["metadata"]["name"])

    def _slices(self, namespace: str, name: str) -> list[Obj]:
        """Copies of the slices that the slice controller made for a Service; their names begin with the Service's."""
        made = objects.SLICE_MANAGER | {objects.SERVICE_NAME: name}
        return [
            clone(stored.obj)
            for stored in self.named("endpointslices", namespace, f"{name}-")
            if (stored.obj["metadata"].get("labels") or {}).items() >= made.items()
        ]

    @staticmethod
    def _target_ports(owner: Obj) -> list[SlicePort]:
        ports = owner["spec"].get("ports") or []
        return [
            SlicePort(
                port.get("name", ""),
                port["targetPort"] if isinstance(port["targetPort"], int) else port["port"],
                port["protocol"],
            )
            for port in ports
        ]

    def add_node(
        self,
        name: str,
        address: str,
        *,
        addresses: Mapping[str, str] | None = None,
        ready: bool = True,
        unschedulable: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> Obj:
        """Create or replace a Node; ``address`` is its InternalIP, ``addresses`` further ones by type."""
        all_addresses = {"InternalIP": address} | dict(addresses or {})
        return self.put(
            "nodes", objects.node(name, all_addresses, ready=ready, unschedulable=unschedulable, labels=labels)
        )

    def annotate(self, resource: str, namespace: str, name: str, annotations: Mapping[str, str | None]) -> Obj:
        """Set annotations; None removes one. Raises: ApiError: 404."""
        return self.patch(resource, namespace, name, {"metadata": {"annotations": dict(annotations)}})

    def load(self, path: Path) -> int:
        """Create or replace every object of a YAML or JSON file (Lists, several documents); return how many there were.

        Raises:
            ApiError: for a kind that the fake does not serve.
        """
        if path.suffix == ".json":
            return self.load_object(msgspec.json.decode(path.read_bytes()))
        documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
        return sum(self.load_object(document) for document in documents if document)

    def dump(self, path: Path) -> None:
        """Write everything as one JSON List, as ``kubectl get ... -o json`` would; ``load`` reads it back."""
        with self.changed:
            stored = [each for resource in RESOURCES for each in self.page(resource).items]
        path.write_bytes(
            b'{"apiVersion":"v1","kind":"List","items":[' + b",".join(each.full for each in stored) + b"]}\n"
        )

    def load_object(self, document: Mapping[str, Any]) -> int:
        """Create or replace one object, or every item of a List; return how many there were."""
        kind = str(document.get("kind", ""))
        if kind.endswith("List"):
            head = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
            return sum(self.load_object(head | item) for item in document.get("items") or [])
        resource = KINDS.get((str(document.get("apiVersion")), kind))
        if resource is None:
            known = ", ".join(RESOURCES)
            raise ApiError(400, f"cannot load {document.get('apiVersion')} {kind}: the fake serves {known}")
        metadata = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
        self.put(resource.plural, {**document, "metadata": metadata})
        return 1
