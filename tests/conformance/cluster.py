"""A control plane with a Node, in a network namespace of this process's own, with the CRDs and pyconfd beside it."""

import subprocess
from base64 import b64decode
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.conformance.controlplane import CACHE, ControlPlane
from tests.world.appliance import Appliance
from tests.world.haproxy import wait_until

CLASS = "pyconfd"
POOL = "192.0.2.0/24"
USABLE, UNUSABLE = "192.0.2.200", "198.51.100.1"
"""Addresses that a Gateway may ask for: one of the pool, and one that is not."""
_PODS, _BRIDGE = "10.244.0.0/16", "pods0"
_NETWORK = f"""
link add {_BRIDGE} type bridge forward_delay 0
link set {_BRIDGE} up
address add 10.244.0.1/16 dev {_BRIDGE}
route add local {POOL} dev lo
"""
"""All addresses of the pool are this host's, as on a balancer that holds them."""
_GATEWAY_CLASS = f"""
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata:
  name: {CLASS}
spec:
  controllerName: pyconfd.io/gateway
"""
PATIENCE_S = 60.0


class RealCluster:
    """The control plane, its Node and the Gateway API; only in namespaces of one's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.plane = ControlPlane(folder / "plane")

    def __enter__(self) -> Self:
        subprocess.run(["ip", "-batch", "-"], input=_NETWORK, text=True, check=True)
        self.plane.__enter__()
        flags = {
            "kubeconfig": self.plane.kubeconfig,
            "echo": CACHE / "echo",
            "folder": self._folder / "pods",
            "bridge": _BRIDGE,
        }
        self.plane.run("node", (CACHE / "node",), flags)
        self.plane.apply("-f", str(CACHE / "gateway-api" / "config" / "crd" / "standard"))
        self.plane.kubectl("wait", "--for=condition=Established", "customresourcedefinitions", "--all", "--timeout=60s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.plane.__exit__(kind, error, trace)

    def serve(self, appliance: Appliance) -> None:
        """Grant an appliance its rights and start it as users do: with what ``pyconfd rbac`` prints."""
        known = {"api_servers": [self.plane.url], "ssl_ca": str(self.plane.ca), "secret_namespaces": ["*"]}
        appliance.values["kubernetes"] = known
        appliance.values["claims"] = {"allow_endpoints": [_PODS]}
        appliance.values["addresses"] = {"pool": [POOL]}
        appliance.values["cluster_status"] = {"gateway_services": True}
        appliance.write_settings()
        rights = appliance.command("rbac")
        assert rights.returncode == 0, rights.stderr
        self.plane.apply(given=rights.stdout)
        self.plane.apply(given=_GATEWAY_CLASS)
        token = appliance.folder / "token"
        token.write_text(self._token(), encoding="utf-8")
        token.chmod(0o600)
        appliance.values["kubernetes"]["token_file"] = str(token)
        appliance.start()
        self.plane.kubectl("wait", "--for=condition=Accepted", "gatewayclass", CLASS, f"--timeout={PATIENCE_S:g}s")

    def _token(self) -> str:
        """Return the token that the controller manager puts into the Secret of the ServiceAccount."""
        found = ""

        def there() -> str:
            nonlocal found
            path = "jsonpath={.data.token}"
            found = self.plane.kubectl("-n", "pyconfd", "get", "secret", "pyconfd-token", "-o", path)
            return found

        wait_until(there, "the ServiceAccount has a token", limit_s=PATIENCE_S, pause_s=0.2)
        return b64decode(found).decode()
