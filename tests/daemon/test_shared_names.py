"""The loop gives no name before it knows what other load balancers gave, and goes by what they settled."""

from pyconfd.model.ownership import NOTHING_RECORDED, Recorded
from pyconfd.model.reservation import Name, NameRegister, Reservation, owned_by
from pyconfd.presets.host_ownership import SCOPE
from tests.daemon.fakes import Bed
from tests.presets import objects

HOST = Name("", "shop.example.com")


class SharedByOthers:
    """What others remember, as the test says; and what this loop offered."""

    def __init__(self) -> None:
        self.is_ready = False
        self.decided: Recorded = NOTHING_RECORDED
        self.offered = NameRegister(), NOTHING_RECORDED

    def settled(self) -> Recorded:
        return self.decided

    def offer(self, register: NameRegister, settled: Recorded) -> None:
        self.offered = register, settled

    def decide(self, namespace: str) -> None:
        self.decided = {SCOPE: {HOST: Reservation(owned_by(namespace))}}


class OneOfTwo(Bed):
    """A loop beside another load balancer; two namespaces ask for one host, ``old`` since long."""

    reserve_s = 600.0

    def __init__(self) -> None:
        self.shared_names = self.shared = SharedByOthers()
        super().__init__()
        annotations = {"domain": HOST.name, "proto": "http"}
        ages = {"old": "2026-01-01T00:00:00Z", "new": "2026-02-01T00:00:00Z"}
        found = [objects.service("web", annotations, namespace=n, created=at) for n, at in ages.items()]
        slices = [
            objects.slice_("web", objects.endpoint(f"10.{n}.0.1"), namespace=each) for n, each in enumerate(ages, 1)
        ]
        self.source.show(objects.snapshot(*found, *slices))

    def serves_for(self) -> str:
        """Return the namespace whose pods are served."""
        return {(True, False): "old", (False, True): "new"}.get(("10.1." in self.serves, "10.2." in self.serves), "")

    def hear(self) -> None:
        """Wake it as the thread of the record does."""
        self.loop.mailbox.post()
        self.settle()


def test_nothing_is_given_before_it_is_known_what_others_gave() -> None:
    bed = OneOfTwo()
    bed.settle()
    assert bed.serves == ""
    bed.shared.decide("new")
    bed.shared.is_ready = True
    bed.hear()
    assert bed.serves_for() == "new", "though the other claim is older"


def test_where_others_gave_nothing_the_oldest_claim_has_it() -> None:
    bed = OneOfTwo()
    bed.shared.is_ready = True
    bed.hear()
    assert bed.serves_for() == "old"
    register, settled = bed.shared.offered
    assert register.reservations[SCOPE][HOST].namespace == "old"
    assert settled is NOTHING_RECORDED


def test_what_is_settled_later_moves_and_is_offered_as_taken_in() -> None:
    bed = OneOfTwo()
    bed.shared.is_ready = True
    bed.hear()
    bed.shared.decide("new")
    bed.hear()
    assert bed.serves_for() == "new"
    register, settled = bed.shared.offered
    assert register.owners[SCOPE][HOST].namespace == "new"
    assert settled is bed.shared.decided


def test_a_recorded_name_that_nobody_asks_for_is_kept_for_its_time_only() -> None:
    bed = OneOfTwo()
    bed.shared.decide("gone")
    bed.shared.is_ready = True
    bed.hear()
    assert bed.serves_for() == ""
    bed.run_for(bed.reserve_s + 5, turns=10_000)
    assert bed.serves_for() == "old"
