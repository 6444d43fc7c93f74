"""A real API server and controller manager of Kubernetes with an etcd behind them, on loopback."""

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.world.etcd import EtcdProcess
from tests.world.haproxy import free_port, wait_until
from tests.world.pki import CertificateAuthority

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "conformance"
"""Where the Makefile puts the binaries."""
PATIENCE_S = 120.0
_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
)
"""None of nodes: a node stand-in sends no heartbeats."""


class ControlPlane:
    """Everything in one folder; leaving the ``with`` ends it. ``kubeconfig`` is the administrator's."""

    def __init__(self, folder: Path, *, controllers: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._stack = ExitStack()
        self._folder = folder
        self._controllers = controllers
        authority = CertificateAuthority(folder / "pki", "kubernetes")
        self.ca = authority.cert
        self.token = "admin"
        """The administrator's."""
        self._serving = authority.server("apiserver")
        self.url = f"https://127.0.0.1:{free_port()}"
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(self._kubeconfig()), encoding="utf-8")
        self.kubeconfig.chmod(0o600)

    def __enter__(self) -> Self:
        """Start all, and wait until the API server is ready."""
        try:
            etcd = self._stack.enter_context(EtcdProcess(self._folder / "etcd", arguments=("--unsafe-no-fsync",)))
            key = self._service_account_key()
            self._run_api_server(etcd.url, key)
            if self._controllers:
                self._run_controller_manager(key)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(self, name: str, command: tuple[str | Path, ...], flags: Mapping[str, object]) -> subprocess.Popen[bytes]:
        """Start a process that ends with the control plane and logs to ``<name>.log``."""
        argv = [*map(str, command), *(f"--{flag}={value}" for flag, value in flags.items())]
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def kubectl(self, *arguments: str, given: str | None = None, check: bool = True) -> str:
        """Run kubectl as the administrator; return what it printed. Raises: AssertionError."""
        argv = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._folder)}
        done = subprocess.run(
            argv, input=given, capture_output=True, text=True, check=False, env=environment, timeout=PATIENCE_S
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def apply(self, *arguments: str, given: str | None = None) -> None:
        """Apply manifests: ``given``, or what the arguments name."""
        self.kubectl("apply", "--server-side", *(arguments or ("-f", "-")), given=given)

    def _run_api_server(self, etcd: str, key: Path) -> None:
        tokens = self._folder / "tokens.csv"
        tokens.write_text(f"{self.token},admin,admin,system:masters\n", encoding="utf-8")
        server = self.run(
            "apiserver",
            (CACHE / "controlplane", "kube-apiserver"),
            {
                "etcd-servers": etcd,
                "bind-address": "127.0.0.1",
                "secure-port": self.url.rpartition(":")[2],
                "advertise-address": "192.0.2.1",  # nobody uses it: it has to be there and no loopback address
                "endpoint-reconciler-type": "none",
                "tls-cert-file": self._serving.cert,
                "tls-private-key-file": self._serving.key,
                "token-auth-file": tokens,
                "authorization-mode": "RBAC",
                "service-cluster-ip-range": "10.0.0.0/16,fd00::/108",
                "service-account-issuer": "https://kubernetes.default.svc",
                "service-account-key-file": key,
                "service-account-signing-key-file": key,
            },
        )
        log = self._folder / "apiserver.log"

        def ready() -> bool:
            if server.poll() is not None:
                raise AssertionError(f"the API server ended:\n{log.read_text()[-3000:]}")
            return self.kubectl("get", "--raw", "/readyz", check=False) == "ok"

        wait_until(ready, "the API server is ready", limit_s=PATIENCE_S, pause_s=0.5)

    def _run_controller_manager(self, key: Path) -> None:
        self.run(
            "controller-manager",
            (CACHE / "controlplane", "kube-controller-manager"),
            {
                "kubeconfig": self.kubeconfig,
                "leader-elect": "false",
                "secure-port": 0,
                "controllers": ",".join(_CONTROLLERS),
                "service-account-private-key-file": key,
                "root-ca-file": self.ca,
            },
        )

    def _service_account_key(self) -> Path:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        path = self._folder / "service-accounts.key"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
        )
        return path

    def _kubeconfig(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "admin"}}],
            "current-context": "it",
        }
