"""The store behind one reflector: its objects as of the last list and the events since."""

from collections.abc import Iterable, Mapping
from typing import assert_never

from pyconfd.model.context import Refusal
from pyconfd.model.kubernetes import AnyObject, EndpointSlice, Node, Pod
from pyconfd.model.snapshot import DELETION_COUNTS, RECORD_OF, Key, Terminating
from pyconfd.model.versioned import VersionedDict
from pyconfd.sources.kubernetes.decode import Bookmark, Deleted, Event, Unreadable, Upserted, key_of, same_content

_DELETION_COUNTS = tuple(RECORD_OF[resource] for resource in DELETION_COUNTS)


class Cache:
    """The objects of one resource by key; not thread-safe.

    ``version`` grows with each visible change: an object that came again with nothing new but its resourceVersion is
    none (kubelets write their nodes every few seconds), and the record that is already there stays.
    """

    def __init__(self) -> None:
        self.version = 0
        self.terminating = Terminating()
        self._records: dict[Key, AnyObject] = {}
        self._refusals: dict[Key | None, Refusal] = {}
        self._view: VersionedDict[Key, AnyObject] = VersionedDict({})
        self._changed: dict[Key, AnyObject | None] | None = None
        """What came, changed or went (None) since the last view; None after a whole list."""
        self._view_version = 0

    def __len__(self) -> int:
        return len(self._records)

    def replace(self, items: Iterable[AnyObject], refusals: Iterable[Refusal]) -> bool:
        """Apply a whole list and return whether anything changed; what is not in it is deleted."""
        records: dict[Key, AnyObject] = {}
        changed = False
        for item in items:
            key = key_of(item)
            old = self._records.get(key)
            if old is not None and same_content(old, item):
                records[key] = old
            else:
                records[key] = item
                changed = True
                self._note_terminating(item)
        refused = {_key_of_refusal(refusal): refusal for refusal in refusals}
        changed = changed or len(records) != len(self._records) or refused != self._refusals
        self._records, self._changed = records, None
        self._refusals = refused
        if changed:
            self.version += 1
        return changed

    def apply(self, event: Event) -> bool:
        """Apply one event and return whether anything changed."""
        match event:
            case Upserted(record):
                changed = self._upsert(record)
            case Deleted(key, _):
                former = self._records.get(key)
                if isinstance(former, _DELETION_COUNTS):
                    self.terminating.deleted(former.metadata.uid)
                dropped = self._drop(key)
                changed = self._refusals.pop(key, None) is not None or dropped
            case Unreadable(refusal, key, _):
                dropped = key is not None and self._drop(key)
                changed = dropped or self._refusals.get(key) != refusal
                self._refusals[key] = refusal
            case Bookmark():
                changed = False
            case _:
                assert_never(event)
        if changed:
            self.version += 1
        return changed

    def view(self) -> Mapping[Key, AnyObject]:
        """Return an immutable view; the same one again until something changes."""
        if self._view_version != self.version:
            changed = self._changed
            self._view = VersionedDict(self._records) if changed is None else self._view.replaced(changed)
            self._view_version = self.version
            self._changed = {}
        return self._view

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the objects that could not be read, sorted."""
        return tuple(sorted(self._refusals.values()))

    def _upsert(self, record: AnyObject) -> bool:
        self._note_terminating(record)
        key = key_of(record)
        healed = self._refusals.pop(key, None) is not None
        former = self._records.get(key)
        if same_content(former, record):
            return healed
        self._records[key] = record
        self._note(key, record)
        return True

    def _note_terminating(self, record: AnyObject) -> None:
        if isinstance(record, Pod):
            address = record.status.pod_ip or ""
            (self.terminating.leaves if record.metadata.deletion_timestamp else self.terminating.returned)(address)
        elif isinstance(record, EndpointSlice):
            for endpoint in record.endpoints or ():
                if endpoint.conditions is not None and endpoint.conditions.terminating and endpoint.addresses:
                    self.terminating.leaves(endpoint.addresses[0])
                elif self.terminating and endpoint.addresses:
                    self.terminating.returned(endpoint.addresses[0])
        elif isinstance(record, Node):
            leaves = record.spec.unschedulable or record.metadata.deletion_timestamp
            for item in record.status.addresses or ():
                (self.terminating.leaves if leaves else self.terminating.returned)(item.address)

    def _drop(self, key: Key) -> bool:
        self._note(key, None)
        return self._records.pop(key, None) is not None

    def _note(self, key: Key, record: AnyObject | None) -> None:
        if self._changed is not None:
            self._changed[key] = record


def _key_of_refusal(refusal: Refusal) -> Key | None:
    return Key(refusal.ref.namespace, refusal.ref.name) if refusal.ref.name != "(no name)" else None
