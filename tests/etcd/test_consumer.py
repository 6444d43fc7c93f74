"""A consumer (all of it but HAProxy) against a real etcd: what it takes, what it holds, what it survives."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.errors import ApplyError, Problem, RejectedInput
from pyconfd.model.status import Phase
from tests.etcd.harness import KEYS, LightConsumer, Maker, Makers, pointer_in, wait_for
from tests.world.etcd import EtcdProcess

SERVERS = "backend b\n    server one 192.0.2.1:80\n"


@pytest.fixture
def maker(makers: Makers) -> Maker:
    return makers.lead("one")


@pytest.fixture
def consumer(etcd: EtcdProcess, tmp_path: Path) -> Iterator[LightConsumer]:
    with LightConsumer(etcd, tmp_path / "consumer") as consumer:
        yield consumer


def text(number: int) -> str:
    return f"# {number}\n{SERVERS}"


def gets(consumer: LightConsumer, number: int) -> None:
    wait_for(lambda: consumer.text() == text(number), lambda: f"{number}: {consumer.status()}")
    wait_for(lambda: consumer.status().phase is Phase.SERVING, lambda: f"{consumer.status()}")


def says(consumer: LightConsumer, words: str) -> None:
    wait_for(lambda: words in " ".join(consumer.status().problems), lambda: f"{words!r}: {consumer.status()}")


def test_it_waits_for_the_first_and_follows(maker: Maker, consumer: LightConsumer) -> None:
    says(consumer, "nothing is published yet")
    assert consumer.status().phase is Phase.WAITING
    assert consumer.status().failures_by_step == {}
    for number in range(1, 4):
        maker.publish(text(number))
        gets(consumer, number)
    assert consumer.texts() == [text(1), text(2), text(3)]
    wait_for(lambda: consumer.status().source.etcd[0].in_use, lambda: f"{consumer.status()}")
    health = consumer.status().source
    assert (health.synced, health.note) == (True, "takes what one published")


def test_compaction_and_a_restart_go_unnoticed(maker: Maker, consumer: LightConsumer, etcd: EtcdProcess) -> None:
    maker.publish(text(1))
    gets(consumer, 1)
    etcd.compact()
    maker.publish(text(2))
    gets(consumer, 2)
    etcd.kill()
    etcd.start()
    etcd.compact()
    maker.publish(text(3))
    gets(consumer, 3)
    assert consumer.status().failures_by_step == {}
    assert len(consumer.texts()) == 3


def test_a_frozen_etcd_changes_nothing(maker: Maker, consumer: LightConsumer, etcd: EtcdProcess) -> None:
    maker.publish(text(1))
    gets(consumer, 1)
    etcd.freeze()
    wait_for(lambda: "no answer within the time limit" in consumer.status().source.etcd[0].last_error, "it is said")
    assert consumer.status().phase is Phase.SERVING
    assert consumer.text() == text(1)
    etcd.thaw()
    maker.campaign.run_round()
    maker.publish(text(2))
    gets(consumer, 2)


def test_etcd_lost_its_data(maker: Maker, consumer: LightConsumer, etcd: EtcdProcess) -> None:
    for number in (1, 2, 3):
        maker.publish(text(number))
    gets(consumer, 3)
    etcd.kill()
    etcd.lose_data()
    etcd.start()
    says(consumer, "etcd lost what was published, at least up to generation 3")
    assert consumer.text() == text(3)
    maker.campaign.run_round()
    maker.publish(text(4))
    gets(consumer, 4)
    assert consumer.status().problems == ()


def test_an_older_generation_is_held_until_it_is_allowed(
    makers: Makers, maker: Maker, consumer: LightConsumer, etcd: EtcdProcess
) -> None:
    for number in (1, 2, 3):
        maker.publish(text(number))
    gets(consumer, 3)
    etcd.kill()
    etcd.lose_data()
    etcd.start()
    # A producer that never saw the former numbers begins with 1.
    makers.lead("stranger").publish(text(9))
    says(consumer, "etcd has generation 1, this balancer took 3 already")
    status = consumer.status()
    assert (status.phase, consumer.text()) == (Phase.HELD, text(3))
    assert status.hold_id in " ".join(status.problems)
    consumer.allowed.add(status.hold_id)
    gets(consumer, 9)


@pytest.mark.parametrize("damage", ["chunk changed", "chunk gone", "pointer changed", "newer format", "nonsense"])
def test_half_a_generation_is_never_applied(
    maker: Maker, consumer: LightConsumer, etcd: EtcdProcess, damage: str
) -> None:
    maker.publish(text(1))
    gets(consumer, 1)
    pointer, chunk = KEYS.pointer.decode(), KEYS.chunk(pointer_in(maker).stored.sha256, 0).decode()
    content = etcd.ctl("get", pointer, "--print-value-only").stdout
    match damage:
        case "chunk changed":
            etcd.ctl("put", chunk, "something else")
            etcd.ctl("put", pointer, content + "\n")  # so that it is read again
        case "chunk gone":
            etcd.ctl("del", chunk)
            etcd.ctl("put", pointer, content + "\n")
        case "pointer changed":
            etcd.ctl("put", pointer, content.replace('"number": 1', '"number": 7'))
        case "newer format":
            etcd.ctl("put", pointer, json.dumps({"format": 2, "number": 2}))
        case _:
            etcd.ctl("put", pointer, "nonsense")
    says(consumer, "etcd:")
    assert consumer.status().phase is Phase.REJECTED
    assert consumer.text() == text(1)
    if damage == "newer format":
        return  # a producer of this version leaves it alone
    maker.campaign.run_round()
    maker.publish(text(2))
    gets(consumer, 2)
    assert consumer.texts() == [text(1), text(2)]


def test_what_this_machine_cannot_use_is_said_and_tried_again(maker: Maker, consumer: LightConsumer) -> None:
    maker.publish(text(1))
    gets(consumer, 1)
    for failure in (RejectedInput(Problem("check", "it refuses")), ApplyError("reload", Problem("reload", "it hangs"))):
        consumer.balancer.broken = failure
        maker.publish(f"{text(2)}# {failure.step}\n")
        says(consumer, failure.problems[0].message)
        assert consumer.text() == text(1)
    assert consumer.status().phase is Phase.FAILED
    # How often depends on how many tries have passed since.
    assert consumer.status().failures_by_step.keys() == {"check", "reload"}
    consumer.balancer.broken = None
    wait_for(lambda: consumer.text().startswith(text(2)), "it is tried again by itself")
    wait_for(lambda: consumer.taken.load()[0] == 3, "it is remembered")


def test_losing_every_server_is_held(maker: Maker, consumer: LightConsumer) -> None:
    maker.publish(text(1))
    gets(consumer, 1)
    maker.publish("# none\nbackend b\n    server one 192.0.2.1:80 weight 0\n")
    says(consumer, "all 1 servers would be gone at once")
    status = consumer.status()
    assert (status.phase, consumer.text()) == (Phase.HELD, text(1))
    consumer.allowed.add(status.hold_id)
    wait_for(lambda: consumer.text().startswith("# none"), "what was allowed")
    wait_for(lambda: not consumer.allowed, "a permission is for one change")


def test_a_boot_without_etcd_serves_the_last_good_one(maker: Maker, etcd: EtcdProcess, tmp_path: Path) -> None:
    first = LightConsumer(etcd, tmp_path / "consumer")
    with first:
        maker.publish(text(1))
        gets(first, 1)
    etcd.kill()
    with LightConsumer(etcd, tmp_path / "consumer", first.balancer) as again:
        wait_for(lambda: again.notifier.readies, "systemd is told")
        assert again.notifier.readies == ["READY serving last good generation 1"]
        assert again.status().phase is Phase.SERVING_LAST_GOOD
        etcd.start()
        wait_for(lambda: again.status().phase is Phase.SERVING, lambda: f"{again.status()}")
