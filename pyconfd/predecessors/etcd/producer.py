"""Puts renderings into etcd: for the loop it is a balancer whose generations are publications."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from pyconfd.errors import ApplyError, Problem, TransientError
from pyconfd.model.balancing import TakesAll
from pyconfd.model.context import EndpointTotals
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Applied, Generation, Outcome, Step, Stored, Unchanged
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason
from pyconfd.model.rendering import FileKind, Rendering
from pyconfd.predecessors.etcd.campaign import Campaign, Leadership, PointerState, parse_pointer_state
from pyconfd.predecessors.etcd.client import (
    EtcdClient,
    EtcdError,
    StoredValue,
    at_revision,
    created_at,
    deleting,
    exists,
    putting,
)
from pyconfd.predecessors.etcd.publication import (
    FormerPublication,
    Keys,
    KnownGeneration,
    Packed,
    Pointer,
    Producer,
    PublishedFile,
    encode_pointer,
    pack,
)

log = structlog.get_logger(__name__)

READER_S = 300.0
"""Chunks stay for so long after their generation was replaced, however many came since: a slow reader ends in peace."""
MAX_HISTORY = 200
_DELETIONS = 100


class EtcdBalancer(TakesAll):
    """The producer's side.

    ``check`` judges a rendering as HAProxy would (raises RejectedInput or TransientError). ``files_dir`` is where the
    renderings' declared files belong. While another producer holds the campaign nothing is written.
    """

    def __init__(
        self,
        client: EtcdClient,
        campaign: Campaign,
        *,
        keys: Keys,
        check: Callable[[Rendering], None],
        files_dir: str,
        producer: Producer,
        memory: KnownGeneration,
        keep: int,
    ) -> None:
        self._client = client
        self._campaign = campaign
        self._keys = keys
        self._check = check
        self._files_dir = files_dir
        self._producer = producer
        self._memory = memory
        self._keep = keep
        self._floor, _ = memory.load()
        self._progress: Callable[[], None] | None = None
        self._own: tuple[str, Rendering] | None = None

    def check(self, rendering: Rendering) -> None:
        """Check ``rendering`` with HAProxy, and whether it can be published; raises as :meth:`apply` does."""
        pack(rendering, self._files_dir)
        self._check(rendering)

    def listener_conflicts(self, rendering: Rendering) -> Mapping[Listener, str]:
        """Return none: which ports are free is known where the rendering is consumed, and judged there."""
        del rendering
        return {}

    def last_good(self) -> Stored | None:
        """Return what is published, None where that is nothing or not known; its text is not read back."""
        pointer = self._known(self._campaign.leadership.found)
        if pointer is None:
            return None
        own = self._own[1] if self._own and self._own[0] == pointer.sha256 else None
        generation = Generation(
            number=pointer.number,
            digest=own.digest if own else "",
            applied_at=pointer.created,
            curdate=pointer.curdate,
            totals=pointer.totals,
        )
        return Stored(generation, own or Rendering(()))

    def plan(self, rendering: Rendering) -> Plan:
        """Compare with what is published; nothing is to be done while another producer leads.

        Raises:
            ApplyError: it is not known what is published.
            RejectedInput: it cannot be published.
        """
        leadership = self._campaign.leadership
        if not leadership.known:
            raise ApplyError(Step.PUBLISH, *self._why_unknown())
        if leadership.found.newer is not None:
            raise leadership.found.newer
        pointer = self._known(leadership.found)
        if not rendering.pieces and pointer is not None:
            return Noop()  # what last_good() returns for what another producer rendered
        packed = pack(rendering, self._files_dir).pointer
        if pointer is None:
            reason = ReloadReason.FILE_EDITED if self._floor else ReloadReason.FIRST_CONFIGURATION
            return Reload((reason,), ("nothing is published",))
        if not leadership.leads:
            return Noop()
        went_back = f"etcd went back from {self._floor} to {pointer.number}" if pointer.number < self._floor else ""
        if went_back or leadership.damage:
            return Reload((ReloadReason.FILE_EDITED,), (went_back or leadership.damage,))
        if pointer.sha256 == packed.sha256:
            self._own = (packed.sha256, rendering)
            return Noop()
        return Reload(_reasons(pointer, packed))

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, totals: EndpointTotals, now: float) -> Applied:
        """Check and publish.

        Raises:
            RejectedInput: HAProxy refuses it, or it cannot be published; nothing was written.
            TransientError: the check could not be run.
            ApplyError: it could not be published; what was published before still is.
        """
        self._fence()
        packed = pack(rendering, self._files_dir)
        self._check(rendering)
        # Asked once more: the check may have taken longer than a lease.
        fence = self._fence()
        try:
            pointer = self._write(packed, fence, curdate=curdate, totals=totals, now=now)
        except EtcdError as error:
            raise ApplyError(Step.PUBLISH, *error.problems) from error
        self._own = (packed.pointer.sha256, rendering)
        generation = Generation(
            number=pointer.number,
            digest=rendering.digest,
            applied_at=now,
            curdate=curdate,
            reasons=tuple(reason.value for reason in plan.reasons),
            totals=totals,
        )
        return Applied(generation, plan, verified=True)

    def restore_last_good(self, now: float) -> Outcome | None:
        """Leave what is published, or publish it again where it is damaged; return None where nothing is."""
        last = self.last_good()
        if last is None:
            return None
        plan = self.plan(last.rendering)
        if not isinstance(plan, Reload):
            return Unchanged(last.generation)
        generation = last.generation
        return self.apply(last.rendering, plan, curdate=generation.curdate, totals=generation.totals, now=now)

    def runs(self) -> bool:
        """Return whether there is something that takes publications: etcd."""
        return self._campaign.leadership.known

    def report_progress(self, progress: Callable[[], None]) -> None:
        """Call ``progress`` after each chunk."""
        self._progress = progress

    def _fence(self) -> int:
        leadership = self._campaign.leadership
        if not leadership.leads:
            raise ApplyError(Step.PUBLISH, _not_leading(leadership))
        return leadership.fence

    def _why_unknown(self) -> tuple[Problem, ...]:
        try:
            self._client.read(self._keys.pointer)
        except EtcdError as error:
            return error.problems
        return (Problem("etcd", "it is not decided yet which producer publishes", "nothing to do"),)

    def _write(self, packed: Packed, fence: int, *, curdate: str, totals: EndpointTotals, now: float) -> Pointer:
        found = parse_pointer_state(self._client.read(self._keys.pointer))
        if found.newer is not None:
            raise found.newer
        former = self._known(found)
        number = max(former.number if former else 0, self._floor) + 1
        pointer = msgspec.structs.replace(
            packed.pointer,
            number=number,
            producer=self._producer,
            created=now,
            curdate=curdate,
            claimed=totals.claimed,
            total=totals.total,
            history=_history(former, self._keep, now),
        )
        content = encode_pointer(pointer)
        chunks = [self._keys.chunk(packed.pointer.stored.sha256, index) for index in range(len(packed.chunks))]
        for key, chunk in zip(chunks, packed.chunks, strict=True):
            self._client.put(key, chunk)
            if self._progress is not None:
                self._progress()
        compare = [
            at_revision(self._keys.pointer, found.value.mod_revision if found.value else 0),
            created_at(self._keys.campaign, fence),
            *(exists(key) for key in chunks),
        ]
        written = self._put_pointer(compare, content, found.value)
        if written is None:
            self._campaign.wake()
            message = f"generation {number} was not published: another producer wrote meanwhile, or the lease ended"
            raise ApplyError(Step.PUBLISH, Problem("etcd", message, "nothing to do: it is tried again"))
        self._campaign.published(PointerState(written, pointer))
        self._floor = pointer.number
        self._remember(pointer)
        self._collect(pointer, fence, written)
        return pointer

    def _put_pointer(
        self, compare: Sequence[dict[str, Any]], content: bytes, former: StoredValue | None
    ) -> StoredValue | None:
        """Write the pointer if ``compare`` holds; return what the key held then, None where that is not ours."""
        lost: EtcdError | None = None
        try:
            done = self._client.transact(compare, [putting(self._keys.pointer, content)])
            if done.succeeded:  # whatever it holds by now: the next producer may have written already
                return StoredValue(content, done.revision, former.create_revision if former else done.revision)
        except EtcdError as error:
            lost = error  # whether it was done shows what the key holds
        found = self._client.read(self._keys.pointer)
        if found is not None and found.content == content:
            return found
        if lost is not None:
            raise lost
        return None

    def _collect(self, pointer: Pointer, fence: int, written: StoredValue) -> None:
        """Delete chunks that no kept generation needs; only while pointer and campaign are still ours."""
        wanted = {pointer.stored.sha256, *(former.stored for former in pointer.history)}
        compare = [at_revision(self._keys.pointer, written.mod_revision), created_at(self._keys.campaign, fence)]
        try:
            stale = [key for key in self._client.keys(self._keys.chunks) if self._keys.stored_of(key) not in wanted]
            for start in range(0, len(stale), _DELETIONS):
                self._client.transact(compare, [deleting(key) for key in stale[start : start + _DELETIONS]])
        except EtcdError as error:
            log.debug("chunks.left", problem=str(error))  # the next publication sees to it

    def _known(self, found: PointerState) -> Pointer | None:
        """Return the pointer; its number is the least that the next one exceeds, whatever etcd loses."""
        pointer = found.pointer
        if pointer is not None and pointer.number > self._floor:
            self._floor = pointer.number
            self._remember(pointer)
        return pointer

    def _remember(self, pointer: Pointer) -> None:
        try:
            self._memory.save(pointer.number, pointer.sha256)
        except TransientError as error:
            log.warning("memory.not_written", problem=str(error))


def _not_leading(leadership: Leadership) -> Problem:
    if leadership.holder:
        return Problem("etcd", f"the producer {leadership.holder} publishes; this one stands by", "nothing to do")
    return Problem(
        "etcd",
        "the lease of this producer ended; it takes part in the election again",
        "is etcd slow, or etcd.lease_s short?",
    )


def _history(former: Pointer | None, keep: int, now: float) -> tuple[FormerPublication, ...]:
    """Return the former generations whose chunks stay, newest first; ``created`` is when each was published."""
    if former is None:
        return ()
    entries = [FormerPublication(former.number, former.stored.sha256, former.created), *former.history]
    replaced_at = [now, *(entry.created for entry in entries)]
    kept = [entry for index, entry in enumerate(entries) if index < keep - 1 or now - replaced_at[index] < READER_S]
    return tuple(kept[:MAX_HISTORY])


def _reasons(pointer: Pointer, packed: Pointer) -> tuple[ReloadReason, ...]:
    def of_kind(files: Sequence[PublishedFile], kind: FileKind) -> list[PublishedFile]:
        return [file for file in files if file.kind is kind]

    reasons = []
    if of_kind(pointer.files, FileKind.CERTIFICATE) != of_kind(packed.files, FileKind.CERTIFICATE):
        reasons.append(ReloadReason.CERTIFICATES_CHANGED)
    if of_kind(pointer.files, FileKind.MAP) != of_kind(packed.files, FileKind.MAP):
        reasons.append(ReloadReason.MAPS_CHANGED)
    if pointer.text_sha256 != packed.text_sha256 or not reasons:
        reasons.append(ReloadReason.TEXT_CHANGED)
    return tuple(sorted(reasons))
