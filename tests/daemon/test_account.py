"""What other threads see of the status while the loop changes it."""

from pyconfd.daemon.account import Account
from pyconfd.model.context import Census, Context
from pyconfd.model.outcome import Applied, Generation
from pyconfd.model.plan import Reload, ReloadReason
from pyconfd.model.status import SourceHealth, Status
from pyconfd.model.tenure import Name, Owner


class Watched(Account):
    """Notes what a thread would see that asks before and after each step."""

    def __init__(self) -> None:
        super().__init__(Status(0.0, "0", 1, started_at=0.0, heartbeat_at=0.0))
        self.seen: list[tuple[bool, bool]] = []

    def _put(self, status: Status) -> None:
        self._look()
        super()._put(status)
        self._look()

    def _look(self) -> None:
        status = self.at(1.0, SourceHealth())
        self.seen.append((status.pending_since == 0.0, status.generation is not None))


def test_nobody_sees_nothing_pending_beside_what_served_before() -> None:
    account = Watched()
    account.pending(1.0)
    generation = Generation(1, "digest", 1.0, "", (), Census())
    account.outcome(Applied(generation, Reload((ReloadReason.FIRST_CONFIGURATION,)), verified=True))
    account.beat(2.0)
    assert (True, False) not in account.seen, "all is applied, it says, and the generation is the former one"
    assert account.at(2.0, SourceHealth()).pending_since == 0.0


def test_names_that_are_served_are_counted_once() -> None:
    account = Account.begun(1000.0, None, version="1", pid=1)
    assert account.status.hosts_total is None
    owner = Owner("Service", "shop", "web", "")
    owners = {
        "domains": {Name("", "a.example.com"): owner, Name("port 6379", ""): owner},
        "kubefigurator": {Name("*:443", ""): owner, Name("*:443", "a.example.com"): owner, Name("*:443", "b"): owner},
    }
    entries = [{"hostnames": ["c.example.com", "b"]}, {}]
    account.serves(Context({"configmap": {"services": entries}}, owners=owners))
    assert account.status.hosts_total == 3
    account.serves(Context({}))
    assert account.status.hosts_total == 0
