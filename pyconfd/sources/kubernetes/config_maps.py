"""ConfigMaps beside the Lease that several balancers read and write, each from a thread of its own."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from pyconfd.errors import Problem, TransientError
from pyconfd.model.snapshot import Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.client import Method
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.failures import ApiError
from pyconfd.sources.kubernetes.lease import ANSWER_S
from pyconfd.sources.kubernetes.resources import path_of
from pyconfd.sources.kubernetes.writing import NOT_FOUND, AnswerMetadata, Writer
from pyconfd.system.clock import SystemClock

_REMEDY = (
    "let it read and write this ConfigMap: pyconfd rbac prints the manifest; or set cluster_status.enabled = false"
)


class StoredConfigMap(msgspec.Struct):
    """What is read of a ConfigMap."""

    metadata: AnswerMetadata
    data: dict[str, str] = {}

    @property
    def version(self) -> str:
        """The resourceVersion, "" where there is no such ConfigMap yet."""
        return self.metadata.resource_version


def config_map(namespace: str, name: str, data: Mapping[str, str], version: str = "") -> bytes:
    """Return a ConfigMap as it is sent; ``version`` is the resourceVersion that it replaces."""
    metadata = {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "pyconfd"}}
    if version:
        metadata["resourceVersion"] = version
    return msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


class ConfigMapThread(ABC):
    """Reads and writes ConfigMaps of one namespace, between :meth:`start` of its child and :meth:`stop`, or by steps.

    ``place`` is the first of them in problems.

    Raises:
        ConfigurationError: from the constructor: no API server is known.
    """

    thread_name: ClassVar[str]
    event: ClassVar[str]
    """What the log says where it cannot be written."""

    def __init__(
        self,
        settings: KubernetesSettings,
        namespace: str,
        name: str,
        clock: SystemClock | None,
        credentials: Credentials | None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._namespace, self._place = namespace, f"ConfigMap {namespace}/{name}"
        self._writer = Writer(
            settings,
            answer_s=ANSWER_S,
            clock=self._clock,
            credentials=credentials,
            place=self._place,
            event=self.event,
            remedy=_REMEDY,
        )
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def step(self) -> float:
        """Read and write what is due; return how long to wait for the next time."""

    def stop(self) -> None:
        """End the thread; a request that runs is cut off."""
        self._stopping.set()
        self._writer.close()
        if self._thread is not None:
            self._thread.join(1.0)

    def problems(self) -> tuple[Problem, ...]:
        """Return why they cannot be read or written; safe in any thread."""
        return self._writer.problems()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.thread_name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._clock.wait(self._stopping, self.step()):
            self._writer.tend()

    def _read_map(self, name: str) -> StoredConfigMap:
        """Return a ConfigMap, one without a version where there is none; raises TransientError."""
        try:
            return self._decoded(self._writer.send(Method.GET, f"{self._path}/{name}"))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return StoredConfigMap(AnswerMetadata())
            raise

    def _write_map(self, name: str, data: Mapping[str, str], version: str) -> StoredConfigMap:
        """Write a ConfigMap, if it is still at ``version``, and return it as it is then; raises TransientError."""
        body = config_map(self._namespace, name, data, version)
        if version:
            return self._decoded(self._writer.send(Method.REPLACE, f"{self._path}/{name}", body))
        return self._decoded(self._writer.send(Method.CREATE, self._path, body))

    @property
    def _path(self) -> str:
        return path_of(Resource.CONFIGMAPS, self._namespace)

    def _decoded(self, answer: bytes) -> StoredConfigMap:
        try:
            return msgspec.json.decode(answer, type=StoredConfigMap)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TransientError(Problem(self._place, f"the answer cannot be read: {error}")) from error
