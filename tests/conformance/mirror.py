"""The end-to-end tests on a real control plane: what they write into the fake's store is written there too.

With ``REAL_API=1`` in the environment the fixture ``appliance`` is a :class:`RealAppliance`; the process that runs the
tests moves to a network namespace of its own.
"""

import ctypes
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyconfd.presets.policies.crd import definition
from tests.conformance.controlplane import CACHE, ControlPlane
from tests.world.apiserver import ApiServer
from tests.world.appliance import Appliance
from tests.world.cluster import Cluster
from tests.world.exchange import Exchange, fetch
from tests.world.resources import RESOURCES, Resource
from tests.world.store import Key, Obj, Stored, _Shelf

WANTED = bool(os.environ.get("REAL_API"))
_PODS = "198.18"
"""An EndpointSlice may not name loopback addresses; these are made local."""
_CLONE_NEWNET = 0x40000000
_NETWORK = f"link set lo up\nroute add local {_PODS}.0.0/16 dev lo\nroute add default dev lo\n"
_ONLY_THE_FAKE = "it asks the API server for what only the fake one does"
_OF_THE_SERVER = {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "deletionTimestamp"}


@contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    """Move this process to a network of its own, and start a control plane with the Gateway API and RoutePolicies."""
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        pytest.fail("REAL_API=1 needs root")
    subprocess.run(["ip", "-batch", "-"], input=_NETWORK, text=True, check=True)
    with ControlPlane(folder, controllers=False) as plane:  # the tests play the controllers
        plane.apply("-f", str(CACHE / "gateway-api" / "config" / "crd" / "standard"))
        plane.apply(given=json.dumps(definition()))
        plane.kubectl("wait", "--for=condition=Established", "customresourcedefinitions", "--all", "--timeout=60s")
        yield plane


class MirroredCluster(Cluster):
    """A store whose objects stand in the real API server too; single objects are read from there."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__()
        self._url = plane.url
        self._headers = {"Authorization": f"Bearer {plane.token}", "Content-Type": "application/json"}
        self._context = ssl.create_default_context(cafile=str(plane.ca))

    def get(self, resource: str, namespace: str, name: str) -> Obj:
        """As it stands in the real API server, with what pyconfd has written to it."""
        known = super().get(resource, namespace, name)
        found = self._ask("GET", RESOURCES[resource], (namespace, name)).body
        return known | {"status": found["status"]} if "status" in found else known

    def clear(self) -> None:
        """Delete everything there."""
        for resource in RESOURCES:
            for stored in self.page(resource).items:
                metadata = stored.obj["metadata"]
                if resource != "namespaces":
                    self.delete(resource, metadata.get("namespace", ""), metadata["name"])
        self._ask("DELETE", RESOURCES["leases"], ("pyconfd", "pyconfd"))

    def _commit(self, shelf: _Shelf, key: Key, obj: Obj | None) -> Stored:
        if obj is None:
            self._ask("DELETE", shelf.resource, key)
        else:
            self._write(shelf.resource, key, obj)
        return super()._commit(shelf, key, obj)

    def _write(self, resource: Resource, key: Key, obj: Obj) -> None:
        metadata = {name: each for name, each in obj["metadata"].items() if name not in _OF_THE_SERVER}
        sent = {"kind": resource.kind, "apiVersion": resource.api_version} | obj | {"metadata": metadata}
        found = self._ask("GET", resource, key)
        if found.status == 404:
            found = self._checked("POST", resource, key, sent)
        else:
            found = self._checked("PUT", resource, key, _at(found, sent))
        if resource.status and "status" in obj:
            self._checked("PUT", resource, key, _at(found, sent), "/status")

    def _checked(self, method: str, resource: Resource, key: Key, sent: Obj, part: str = "") -> Exchange:
        answer = self._ask(method, resource, key, sent, part)
        if answer.status == 404 and method == "POST" and answer.body["details"]["kind"] == "namespaces":
            self.add_namespace(key[0])
            answer = self._ask(method, resource, key, sent)
        if answer.status == 422:
            pytest.skip(f"the real API server does not take it: {answer.body['message']}")
        assert answer.status in {200, 201}, answer.body
        return answer

    def _ask(self, method: str, resource: Resource, key: Key, sent: Obj | None = None, part: str = "") -> Exchange:
        scope = f"/namespaces/{key[0]}" if resource.namespaced else ""
        name = "" if method == "POST" else f"/{key[1]}{part}"
        request = f"{method} {resource.prefix}{scope}/{resource.plural}{name}"
        return fetch(self._url, request, headers=self._headers, body=sent, context=self._context)


def _at(found: Exchange, sent: Obj) -> Obj:
    version = {"resourceVersion": found.body["metadata"]["resourceVersion"]}
    return sent | {"metadata": sent["metadata"] | version}


class RealAppliance(Appliance):
    """An appliance whose pyconfd reads the real API server."""

    pod_network = _PODS

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        self._plane = plane
        self._mirror = MirroredCluster(plane)
        super().__init__(folder, cluster=self._mirror)
        self._stack.callback(self._mirror.clear)

    def add_api_server(self, **options: Any) -> ApiServer:
        """Name the real one in the settings; what only the fake can do is not tested here."""
        if options or self.values["kubernetes"]["api_servers"]:
            pytest.skip(_ONLY_THE_FAKE)
        token = self.folder / "token"
        token.write_text(self._plane.token, encoding="utf-8")
        token.chmod(0o600)
        known = {"api_servers": [self._plane.url], "ssl_ca": str(self._plane.ca), "token_file": str(token)}
        self.values["kubernetes"] |= known
        stand_in: Any = _NoFake()
        self.servers.append(stand_in)
        return self.servers[0]


class _NoFake:
    """What stands for the fake API server in a test that asks it for a fault."""

    def __getattr__(self, name: str) -> Any:
        pytest.skip(_ONLY_THE_FAKE)

    def __setattr__(self, name: str, value: object) -> None:
        pytest.skip(_ONLY_THE_FAKE)
