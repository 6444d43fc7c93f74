"""What each balancer says of itself, in one ConfigMap beside the Lease, which all of them read.

A thread of its own reads and writes it; neither the loop nor traffic waits for it. Ages come from this process's clock:
for how long the text of a node has been the same, whatever that node's clock says.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from pyconfd.errors import TransientError
from pyconfd.model.nodes import DIFFERS_S, NodeState, NodeSummary, differences
from pyconfd.printable import clean
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.config_maps import ConfigMapThread
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.failures import ApiError
from pyconfd.sources.kubernetes.resources import nodes_name
from pyconfd.sources.kubernetes.writing import CONFLICT
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


@dataclass(slots=True)
class _Heard:
    """The text of a node, and since when it is that; ``differs`` has since when what differs from this node."""

    text: str
    since: float
    summary: NodeSummary
    differs: dict[str, float] = field(default_factory=dict)


class NodeBoard(ConfigMapThread):
    """Exchanges summaries from a thread of its own between :meth:`start` and :meth:`stop`, or by :meth:`step`.

    Raises:
        ConfigurationError: from the constructor: no API server is known.
    """

    thread_name, event = "nodes", "nodes.failed"

    def __init__(
        self,
        settings: KubernetesSettings,
        *,
        lease: tuple[str, str],
        identity: str,
        clock: SystemClock | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._name = nodes_name(lease[1])
        super().__init__(settings, lease[0], self._name, clock, credentials)
        self._identity = identity
        self._summarise: Callable[[], NodeSummary | None] = lambda: None
        self._heard: dict[str, _Heard] = {}
        self._own: NodeSummary | None = None
        self._beat = 0
        self._states: tuple[tuple[NodeState, float], ...] = ()

    def start(self, summarise: Callable[[], NodeSummary | None]) -> None:
        """Begin; ``summarise`` is called in the thread and returns what this node says, None for nothing yet."""
        self._summarise = summarise
        self._begin()

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

    def _exchange(self) -> None:
        found = self._read_map(self._name)
        self._hear(found.data)
        self._write_map(self._name, self._written(found.data), found.version)

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
