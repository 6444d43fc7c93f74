"""Pods of the demo's cluster, each a small server with an address of its own."""

from collections.abc import Mapping
from typing import Any

from tests.demo.stage import Stage
from tests.world.haproxy import free_port


class PodStage(Stage):
    """A stage whose presets read pods, not Services, and whose configuration comes from the cluster alone."""

    def __init__(self) -> None:
        super().__init__()
        # So that two runs at a time do not meet on one address.
        block = free_port()
        self._network = f"127.{block // 256 % 100 + 120}.{block % 256}"
        self._addresses: dict[str, str] = {}
        del self.values["templates.vars"]
        self.values["templates"] = {"dir": f"{self.folder}/fragments"}

    def address(self, pod: str) -> str:
        """Return the address of a pod, always the same one."""
        return self._addresses.setdefault(pod, f"{self._network}.{len(self._addresses) + 1}")

    def run_pod(
        self,
        name: str,
        labels: Mapping[str, str],
        *,
        namespace: str = "demo",
        annotations: Mapping[str, str] | None = None,
        answers: bool = True,
    ) -> None:
        """Start a pod that is ready."""
        if answers:
            self.pods.add(name, self.address(name))
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": dict(labels)}
        metadata["annotations"] = dict(annotations or {})
        self.cluster.add_namespace(namespace)
        self.cluster.put("pods", {"metadata": metadata, "spec": {}, "status": self._status(name, ready=True)})

    def set_ready(self, name: str, *, ready: bool, namespace: str = "demo") -> None:
        """Report a pod ready or not, as the kubelet does."""
        self.cluster.patch("pods", namespace, name, {"status": self._status(name, ready=ready)})

    def remove_pod(self, name: str, *, namespace: str = "demo") -> None:
        """Delete the Pod; its server goes on, as one does for its grace period."""
        self.cluster.delete("pods", namespace, name)

    def _status(self, name: str, *, ready: bool) -> dict[str, Any]:
        return {
            "phase": "Running",
            "podIP": self.address(name),
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "main", "ready": ready}],
        }

    def refused(self) -> dict[str, str]:
        """Return what was refused: the object and its field, and why."""
        refused = self.status().get("refused", ())
        return {f"{each['ref']['name']} {each['field']}".strip(): each["detail"] for each in refused}

    def problems(self) -> str:
        """Return the problems that the status shows."""
        return "\n".join(self.status().get("problems", ()))
