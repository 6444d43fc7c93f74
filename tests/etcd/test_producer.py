"""Producers against a real etcd: one at a time, one sequence of numbers, nothing lost and nothing torn."""

import itertools
import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pyconfd.errors import ApplyError, PyconfdError, RejectedInput
from pyconfd.model.context import EndpointTotals
from pyconfd.model.outcome import Applied, Unchanged
from pyconfd.model.plan import Noop, Reload, ReloadReason
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.predecessors.etcd.client import Compared, deleting
from pyconfd.predecessors.etcd.publication import UnknownFormatError
from tests.etcd.harness import KEYS, Maker, Makers, pointer_in, text_in, wait_for
from tests.world.etcd import EtcdProcess


def test_what_is_published_and_what_changed(makers: Makers, etcd: EtcdProcess) -> None:
    maker = makers.make("one")
    with pytest.raises(ApplyError, match="not decided yet"):
        maker.publish("a\n")
    assert maker.campaign.run_round().leads
    assert maker.balancer.last_good() is None
    first = maker.publish("a\n", (OutputFile(FileKind.MAP, "/f/maps/m", "k v\n"),))
    assert first is not None
    assert (first.number, first.reasons) == (1, ("first_configuration",))
    assert len(maker.checked) == 1
    assert maker.publish("a\n", (OutputFile(FileKind.MAP, "/f/maps/m", "k v\n"),)) is None
    second = maker.publish("a\n", (OutputFile(FileKind.MAP, "/f/maps/m", "k w\n"),))
    assert second is not None
    assert (second.number, second.reasons) == (2, ("maps_changed",))
    third = maker.publish("b\n")
    assert third is not None
    assert third.reasons == ("maps_changed", "text_changed")
    assert text_in(etcd) == "b\n"
    last = maker.balancer.last_good()
    assert last is not None
    assert (last.generation.number, last.generation.curdate, last.generation.totals) == (
        3,
        "today",
        EndpointTotals(1, 2),
    )
    assert maker.balancer.plan(last.rendering) == Noop()
    assert maker.balancer.restore_last_good(1.0) == Unchanged(last.generation)
    # One that restarts knows from etcd what serves, and publishes the same text no second time.
    maker.campaign.stop()
    again = makers.make("again")
    again.campaign.run_round()
    found = again.balancer.last_good()
    assert found is not None
    assert (found.generation.number, found.generation.totals) == (3, EndpointTotals(1, 2))
    assert again.balancer.plan(found.rendering) == Noop()
    assert again.publish("b\n") is None


def test_what_haproxy_refuses_is_not_published(makers: Makers) -> None:
    maker = makers.lead("one")
    maker.publish("a\n")

    def refuse(rendering: Rendering) -> None:
        raise RejectedInput(step="check")

    maker.balancer._check = refuse
    with pytest.raises(RejectedInput):
        maker.publish("b\n")
    assert pointer_in(maker).number == 1


def test_only_the_leader_writes_and_the_next_takes_over(makers: Makers) -> None:
    first, second = makers.lead("first"), makers.make("second")
    assert second.campaign.run_round().holder == "first"
    with pytest.raises(ApplyError, match="producer first publishes"):
        second.publish("b\n")  # nothing is published yet, so there would be something to do
    first.publish("a\n")
    second.campaign.run_round()
    assert second.publish("b\n") is None
    # The lease of the first ends, and it does not know.
    second.client.revoke(first.campaign._lease)
    assert second.campaign.run_round().leads
    taken = second.publish("b\n")
    assert taken is not None
    assert taken.number == 2
    # The first has not noticed yet: its pointer transaction fails, and its deletions too.
    assert first.campaign.leadership.leads
    with pytest.raises(ApplyError, match="another producer wrote meanwhile"):
        first.publish("c\n")
    assert pointer_in(second).number == 2
    assert not first.campaign.run_round().leads
    assert first.publish("c\n") is None


def test_a_lease_without_renewal_ends(makers: Makers) -> None:
    first, second = makers.make("first", lease_s=2.0), makers.make("second")
    first.campaign.run_round()
    assert first.campaign.leadership.leads
    wait_for(lambda: second.campaign.run_round().leads, "the second leads")
    assert not first.campaign.run_round().leads


def test_the_answer_to_a_won_election_was_lost(makers: Makers) -> None:
    maker = makers.lead("one")
    lease = maker.campaign._lease
    # As if the answer had never come: it holds the key and does not know.
    maker.campaign._leadership = replace(maker.campaign.leadership, fence=0, holder="")
    leadership = maker.campaign.run_round()
    assert leadership.leads
    assert maker.campaign._lease == lease


def test_a_stop_hands_over_at_once(makers: Makers) -> None:
    first, second = makers.lead("first"), makers.make("second")
    assert not second.campaign.run_round().leads
    first.campaign.stop()
    assert second.campaign.run_round().leads


def test_two_race_and_there_is_one_sequence(makers: Makers, etcd: EtcdProcess) -> None:
    both = [makers.make(side, start=True, lease_s=2.0) for side in ("left", "right")]
    numbers: list[tuple[int, str]] = []
    stop = threading.Event()

    def publish(maker: Maker, side: str) -> None:
        for count in itertools.count():
            if stop.is_set():
                return
            try:
                done = maker.publish(f"{side} {count}\n")
            except PyconfdError:
                done = None
            if done:
                numbers.append((done.number, f"{side} {count}\n"))
            if done and count % 4 == 3:  # it loses the key without knowing, while the other one runs at full speed
                maker.client.transact([], [deleting(KEYS.campaign)])
            stop.wait(0.02)

    threads = [threading.Thread(target=publish, args=(maker, side)) for maker, side in zip(both, "lr", strict=True)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(numbers) > 12 and {text[0] for _, text in numbers} == {"l", "r"}, "both published a lot")
    stop.set()
    for thread in threads:
        thread.join(30)
    given = [number for number, _ in numbers]
    assert sorted(given) == list(range(1, len(given) + 1)), "each number once, none left out"
    last = max(numbers)
    assert text_in(etcd) == last[1]
    assert pointer_in(both[0]).number == last[0]


def test_what_was_published_counts_where_another_one_came_at_once(makers: Makers, etcd: EtcdProcess) -> None:
    maker = makers.lead("one")
    transact = maker.client.transact

    def and_then_another(compare: Sequence[dict[str, Any]], success: Sequence[dict[str, Any]]) -> Compared:
        done = transact(compare, success)
        etcd.ctl("put", KEYS.pointer.decode(), "of another")
        return done

    maker.client.transact = and_then_another  # type: ignore[method-assign]
    done = maker.publish("a\n")
    assert done is not None
    assert done.number == 1


def test_a_large_rendering_goes_in_chunks(makers: Makers, etcd: EtcdProcess) -> None:
    maker = makers.lead("one")
    text = "".join(f"# {random.Random(number).randbytes(40).hex()}\n" for number in range(62_000))
    assert len(text) > 5_000_000
    maker.publish(text)
    chunks = maker.client.keys(KEYS.chunks)
    assert len(chunks) > 4
    assert text_in(etcd) == text


def test_old_chunks_go_and_needed_ones_stay(makers: Makers) -> None:
    maker = makers.lead("one", keep=2)
    maker.client.put(KEYS.chunk("f" * 64, 0), b"a producer died before its pointer")

    def publish(text: str, now: float) -> str:
        rendering = Rendering((Piece("01.conf", text),))
        maker.balancer.apply(
            rendering, Reload((ReloadReason.TEXT_CHANGED,)), curdate="", totals=EndpointTotals(), now=now
        )
        return pointer_in(maker).stored.sha256

    def stored() -> set[str]:
        return {KEYS.stored_of(key) for key in maker.client.keys(KEYS.chunks)}

    one = publish("1\n", 1000.0)
    assert stored() == {one}, "what no pointer names goes"
    two, three = publish("2\n", 1001.0), publish("3\n", 1002.0)
    assert stored() == {one, two, three}, "young ones stay for those who read them"
    four = publish("4\n", 2000.0)
    assert stored() == {three, four}
    assert publish("3\n", 3000.0) == three, "the same text once more"
    assert stored() == {three, four}
    assert [former.number for former in pointer_in(maker).history] == [4]


def test_etcd_lost_everything_or_went_back(makers: Makers, etcd: EtcdProcess) -> None:
    maker = makers.lead("one")
    for text in ("a\n", "b\n", "c\n"):
        maker.publish(text)
    etcd.kill()
    with pytest.raises(PyconfdError, match="Connection refused"):
        maker.publish("d\n")
    etcd.lose_data()
    etcd.start()
    leadership = maker.campaign.run_round()
    assert leadership.leads
    assert leadership.found.pointer is None
    assert maker.balancer.last_good() is None
    again = maker.publish("c\n")
    assert again is not None
    assert (again.number, again.reasons) == (4, ("file_edited",)), "numbers never go back"

    # A restored backup: the pointer is older than what was published.
    old = etcd.ctl("get", KEYS.pointer.decode(), "--print-value-only").stdout
    maker.publish("d\n")
    etcd.ctl("put", KEYS.pointer.decode(), old)
    maker.campaign.run_round()
    back = maker.publish("d\n")
    assert back is not None
    assert back.number == 6
    # Another machine's producer that saw the numbers goes on from there as well, after a restart too.
    maker.campaign.stop()
    etcd.kill()
    etcd.lose_data()
    etcd.start()
    restarted = makers.make("one")
    restarted.campaign.run_round()
    after = restarted.publish("d\n")
    assert after is not None
    assert after.number == 7


def test_a_broken_pointer_is_published_again(makers: Makers, etcd: EtcdProcess) -> None:
    maker = makers.lead("one")
    maker.publish("a\n")
    etcd.ctl("put", KEYS.pointer.decode(), "nonsense")
    maker.campaign.run_round()
    again = maker.publish("a\n")
    assert again is not None
    assert again.number == 2
    assert text_in(etcd) == "a\n"


def test_what_a_newer_pyconfd_published_stays(makers: Makers, etcd: EtcdProcess) -> None:
    maker = makers.make("one")
    etcd.ctl("put", KEYS.pointer.decode(), '{"format": 2}')
    maker.campaign.run_round()
    assert maker.balancer.last_good() is None
    with pytest.raises(UnknownFormatError):
        maker.publish("a\n")
    assert etcd.ctl("get", KEYS.pointer.decode(), "--print-value-only").stdout.strip() == '{"format": 2}'


def test_a_deleted_campaign_key_is_taken_again(makers: Makers, etcd: EtcdProcess) -> None:
    maker = makers.make("one")
    before = maker.campaign.run_round().fence
    etcd.ctl("del", KEYS.campaign.decode())
    with pytest.raises(ApplyError):
        maker.publish("a\n")
    after = maker.campaign.run_round()
    assert after.fence > before
    assert maker.publish("a\n") is not None


def break_chunk(etcd: EtcdProcess, maker: Maker, index: int, damage: str) -> None:
    key = KEYS.chunk(pointer_in(maker).stored.sha256, index).decode()
    etcd.ctl(*(("del", key) if damage == "is gone" else ("put", key, "something else")))


@pytest.mark.parametrize("damage", ["is gone", "was changed"])
def test_a_damaged_chunk_is_published_again(makers: Makers, etcd: EtcdProcess, damage: str) -> None:
    maker = makers.lead("one")
    maker.publish("a\n")
    assert not maker.campaign.run_round().damage
    break_chunk(etcd, maker, 0, damage)
    assert maker.publish("a\n") is None, "nobody looked yet"
    assert maker.campaign.run_round().damage == f"chunk 1 of 1 of generation 1 {damage}"
    again = maker.publish("a\n")
    assert again is not None
    assert (again.number, again.reasons) == (2, ("file_edited",))
    assert text_in(etcd) == "a\n"
    assert maker.publish("a\n") is None
    assert not maker.campaign.run_round().damage
    assert maker.publish("a\n") is None


def test_each_of_many_chunks_is_looked_at(makers: Makers, etcd: EtcdProcess) -> None:
    maker = makers.lead("one")
    maker.publish("".join(f"# {random.Random(number).randbytes(40).hex()}\n" for number in range(20_000)))
    count = len(pointer_in(maker).stored.chunks)
    assert count > 1
    break_chunk(etcd, maker, count - 1, "is gone")
    found = [maker.campaign.run_round().damage for _ in range(2 * count)]
    # What was found stays found.
    assert found[-1] == found[-2] == f"chunk {count} of {count} of generation 1 is gone"


def test_where_nothing_can_be_rendered_what_was_published_is_put_back(makers: Makers, etcd: EtcdProcess) -> None:
    maker = makers.lead("one")
    maker.publish("a\n")
    assert isinstance(maker.balancer.restore_last_good(1.0), Unchanged)
    break_chunk(etcd, maker, 0, "is gone")
    maker.campaign.run_round()
    last = maker.balancer.last_good()
    assert last is not None
    assert maker.balancer.plan(last.rendering) == Reload(
        (ReloadReason.FILE_EDITED,), ("chunk 1 of 1 of generation 1 is gone",)
    )
    done = maker.balancer.restore_last_good(2.0)
    assert isinstance(done, Applied)
    assert (done.generation.number, done.generation.curdate) == (2, "today")
    assert text_in(etcd) == "a\n"


def test_who_stands_by_leaves_it_to_the_leader(makers: Makers, etcd: EtcdProcess) -> None:
    maker = makers.lead("one")
    maker.publish("a\n")
    break_chunk(etcd, maker, 0, "is gone")
    other = makers.make("other")
    assert not other.campaign.run_round().damage
    assert other.publish("a\n") is None
    # It takes over: it finds the damage, and mends it as soon as it knows what is to be published.
    maker.campaign.stop()
    assert other.campaign.run_round().damage
    last = other.balancer.last_good()
    assert last is not None
    assert other.balancer.plan(last.rendering) == Noop(), "it does not know the text"
    assert other.publish("a\n") is not None
    assert text_in(etcd) == "a\n"
