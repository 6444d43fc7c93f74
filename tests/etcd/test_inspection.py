"""What is damaged in etcd after it was published is found by the producer, and published anew."""

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyconfd.etcd.campaign import ChunkInspection
from pyconfd.model.outcome import Applied, Unchanged
from pyconfd.model.plan import Noop, Reload, ReloadReason
from tests.etcd.stage import LightConsumer, Stage, wait_for
from tests.etcd.test_producer import KEYS, Maker, Makers, pointer_in, text_in
from tests.world.etcd import EtcdProcess


@pytest.fixture
def maker(etcd: EtcdProcess, tmp_path: Path) -> Iterator[Maker]:
    with ExitStack() as stack:
        maker = Makers(etcd, tmp_path, stack).make("one", lease_s=600.0)
        maker.campaign.run_round()
        yield maker


def break_chunk(etcd: EtcdProcess, maker: Maker, index: int, damage: str) -> None:
    key = KEYS.chunk(pointer_in(maker).stored.sha256, index).decode()
    etcd.ctl(*(("del", key) if damage == "is gone" else ("put", key, "something else")))


@pytest.mark.parametrize("damage", ["is gone", "was changed"])
def test_a_damaged_chunk_is_published_again(maker: Maker, etcd: EtcdProcess, damage: str) -> None:
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


def test_each_of_many_chunks_is_looked_at(maker: Maker, etcd: EtcdProcess) -> None:
    maker.publish("".join(f"# {random.Random(number).randbytes(40).hex()}\n" for number in range(20_000)))
    count = len(pointer_in(maker).stored.chunks)
    assert count > 1
    break_chunk(etcd, maker, count - 1, "is gone")
    assert f"chunk {count} of {count}" in maker.campaign.run_round().damage
    # Where there is time for one only, the next look goes on from there, and what was found stays found.
    hurried = ChunkInspection(maker.client, KEYS, limit_s=0.0)
    pointer = pointer_in(maker)
    said = [hurried.damage(pointer) for _ in range(count + 1)]
    assert [bool(each) for each in said] == [False] * (count - 1) + [True, True]


def test_where_nothing_can_be_rendered_what_was_published_is_put_back(maker: Maker, etcd: EtcdProcess) -> None:
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


def test_who_stands_by_leaves_it_to_the_leader(maker: Maker, etcd: EtcdProcess, tmp_path: Path) -> None:
    maker.publish("a\n")
    break_chunk(etcd, maker, 0, "is gone")
    with ExitStack() as stack:
        other = Makers(etcd, tmp_path, stack).make("other")
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


@pytest.mark.haproxy
def test_a_running_producer_mends_it_and_a_new_balancer_gets_it(stage: Stage) -> None:
    stage.service("shop", "127.19.9.1")
    producer = stage.configure("producer")
    stage.start("publish", producer)
    pointer = "/pyconfd/current"
    wait_for(lambda: stage.etcd.ctl("get", pointer).stdout, lambda: stage.log(producer))
    stage.etcd.ctl("del", "/pyconfd/chunks/", "--prefix")
    with LightConsumer(stage.etcd, stage.folder / "light") as light:
        wait_for(lambda: "127.19.9.1" in light.text(), lambda: f"{light.status()} {stage.log(producer)}")
    assert "publication.damaged" in stage.log(producer)
    # The operator's own way, once: nothing else publishes.
    wait_for(lambda: '"number": 2' in stage.etcd.ctl("get", pointer, "--print-value-only").stdout, "it is number 2")
