"""What keeps record sets, as the rest sees it, and how it fails."""

from typing import Protocol

from pyconfd.dns.records import Change, RecordSet, Zone
from pyconfd.errors import RejectedInput, TransientError


class RefusedBatchError(RejectedInput):
    """Nothing of a batch was done: something is not as it was read, or breaks a rule. Reading again tells which."""


class ThrottledError(TransientError):
    """The account asked too often; all of its programs share one limit."""


class Provider(Protocol):
    """Record sets in hosted zones. All calls raise TransientError, or RejectedInput where trying again will not do."""

    def zones(self) -> tuple[Zone, ...]:
        """Return the hosted zones of the account."""
        ...

    def records(self, zone_id: str, name: str) -> tuple[RecordSet, ...]:
        """Return the record sets at a name and at its marker name."""
        ...

    def change(self, zone_id: str, changes: tuple[Change, ...]) -> None:
        """Carry out all changes or none.

        Raises:
            RefusedBatchError: a record set is not as a change says, or must not be.
        """
        ...
