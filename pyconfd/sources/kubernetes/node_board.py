"""What each balancer says of itself, in one ConfigMap beside the Lease, which all of them read.

A thread of its own reads and writes it; neither the loop nor traffic waits for it. Ages come from this process's clock:
for how long the text of a node has been the same, whatever that node's clock says.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from pyconfd.errors import Problem, TransientError
from pyconfd.model.nodes import DIFFERS_S, NodeState, NodeSummary, differences
from pyconfd.model.snapshot import Resource
from pyconfd.printable import clean
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.client import Method
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.failures import ApiError
from pyconfd.sources.kubernetes.lease import ANSWER_S
from pyconfd.sources.kubernetes.ownership_record import config_map
from pyconfd.sources.kubernetes.resources import nodes_name, path_of
from pyconfd.sources.kubernetes.writing import CONFLICT, NOT_FOUND, AnswerMetadata, Writer
from pyconfd.system.clock import SystemClock

EVERY_S = 12.0
"""How often a node writes, and reads what the others wrote."""

FORGET_S = 24 * 3600.0
"""What was silent for so long is removed by whoever writes next: the machine is gone."""

MOST_NODES = 16
_LONGEST = 2_000
"""Of one summary, in characters; a longer one is not read."""
_AFTER_CONFLICT_S = 0.3
_SERVER_ERROR = 500
_REMEDY = (
    "let it read and write this ConfigMap: pyconfd rbac prints the manifest; or set cluster_status.enabled = false"
)


class _ConfigMap(msgspec.Struct):
    metadata: AnswerMetadata
    data: dict[str, str] | None = None


@dataclass(slots=True)
class _Heard:
    """The text of a node, and since when it is that; ``differs`` has since when what differs from this node."""

    text: str
    since: float
    summary: NodeSummary
    differs: dict[str, float] = field(default_factory=dict)


class NodeBoard:
    """Exchanges summaries from a thread of its own between :meth:`start` and :meth:`stop`, or by :meth:`step`.

    Raises:
        ConfigurationError: from the constructor: no API server is known.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        *,
        lease: tuple[str, str],
        identity: str,
        clock: SystemClock | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._namespace, self._name = lease[0], nodes_name(lease[1])
        self._identity = identity
        self._place = f"ConfigMap {self._namespace}/{self._name}"
        self._writer = Writer(
            settings,
            answer_s=ANSWER_S,
            clock=self._clock,
            credentials=credentials,
            place=self._place,
            event="nodes.failed",
            remedy=_REMEDY,
        )
        self._summarise: Callable[[], NodeSummary | None] = lambda: None
        self._heard: dict[str, _Heard] = {}
        self._own: NodeSummary | None = None
        self._beat = 0
        self._states: tuple[tuple[NodeState, float], ...] = ()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, summarise: Callable[[], NodeSummary | None]) -> None:
        """Begin; ``summarise`` is called in the thread and returns what this node says, None for nothing yet."""
        self._summarise = summarise
        self._thread = threading.Thread(target=self._run, name="nodes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a request that runs is cut off."""
        self._stopping.set()
        self._writer.close()
        if self._thread is not None:
            self._thread.join(1.0)

    def problems(self) -> tuple[Problem, ...]:
        """Return why nodes do not hear of each other; safe in any thread."""
        return self._writer.problems()

    def states(self) -> tuple[NodeState, ...]:
        """Return this node and all others that were heard of, by name; safe in any thread."""
        now = self._clock.monotonic()
        return tuple(each if each.is_own else each._replace(heard_s=now - since) for each, since in self._states)

    def step(self) -> float:
        """Read what the others wrote, and write; return how long to wait for the next time."""
        own = self._summarise()
        pause_s = EVERY_S
        if own is not None:
            self._beat += 1
            self._own = msgspec.structs.replace(own, beat=self._beat)
            try:
                self._exchange()
                self._writer.succeeded()
            except TransientError as error:
                status = error.status if isinstance(error, ApiError) else None
                is_away = status == 0 or (status or 0) >= _SERVER_ERROR
                if status == CONFLICT:  # another node wrote in this moment
                    pause_s = _AFTER_CONFLICT_S
                elif not is_away:  # that no API server answers is reported by who reads the cluster
                    self._writer.failed(error)
        self._states = tuple(self._stated())
        return pause_s

    def _run(self) -> None:
        while not self._clock.wait(self._stopping, self.step()):
            self._writer.tend()

    def _exchange(self) -> None:
        path = path_of(Resource.CONFIGMAPS, self._namespace)
        try:
            found = self._decoded(self._writer.send(Method.GET, f"{path}/{self._name}"))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            self._writer.send(Method.CREATE, path, config_map(self._namespace, self._name, self._written({})))
            return
        self._hear(found.data or {})
        body = config_map(self._namespace, self._name, self._written(found.data or {}), found.metadata.resource_version)
        self._writer.send(Method.REPLACE, f"{path}/{self._name}", body)

    def _decoded(self, answer: bytes) -> _ConfigMap:
        try:
            return msgspec.json.decode(answer, type=_ConfigMap)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TransientError(Problem(self._place, f"cannot be read: {error}")) from error

    def _hear(self, data: Mapping[str, str]) -> None:
        now, heard = self._clock.monotonic(), self._heard
        others = [name for name in sorted(data) if name != self._identity][: MOST_NODES - 1]
        for name in others:
            text, known = data[name], heard.get(name)
            if known is not None and known.text == text:
                continue
            summary = summary_of(text)
            if summary is None:
                continue
            # The first time nobody knows how old it is.
            heard[name] = _Heard(text, now, summary, known.differs if known is not None else {})
        for name in heard.keys() - set(others):
            del heard[name]
        for each in heard.values():
            found = dict(differences(self._own, each.summary)) if self._own is not None else {}
            each.differs = {what: each.differs.get(what, now) for what in found}

    def _written(self, data: Mapping[str, str]) -> dict[str, str]:
        now = self._clock.monotonic()
        gone = {name for name, each in self._heard.items() if now - each.since >= FORGET_S}
        kept = {name: text for name, text in data.items() if name in self._heard and name not in gone}
        return {**kept, self._identity: msgspec.json.encode(self._own).decode()}

    def _stated(self) -> list[tuple[NodeState, float]]:
        now, own = self._clock.monotonic(), self._own
        if own is None:
            return []
        states = [(NodeState(self._identity, own, is_own=True), now)]
        for name, each in self._heard.items():
            words = dict(differences(own, each.summary))
            lasting = (what for what, since in each.differs.items() if now - since >= DIFFERS_S)
            found = tuple(words[what] for what in lasting if what in words)
            states.append((NodeState(clean(name), each.summary, differences=found), each.since))
        return sorted(states, key=lambda item: item[0].name)


def summary_of(text: str) -> NodeSummary | None:
    """Return what a node says of itself; None where it is too long, or nothing that this version knows."""
    if len(text) > _LONGEST:
        return None
    try:
        found = msgspec.json.decode(text, type=NodeSummary)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return msgspec.structs.replace(
        found, version=clean(found.version), level=clean(found.level), sentence=clean(found.sentence)
    )
