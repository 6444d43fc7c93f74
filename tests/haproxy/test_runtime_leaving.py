"""Servers on their way out, and a worker that somebody else replaces or a connection that idles: a real HAProxy."""

import socket

import psutil
import pytest

from pyconfd.haproxy.runtime.runtime import DELETED_AT_ONCE, NotConfirmed
from pyconfd.model.operations import AddServer, RemoveServer, SetWeight
from tests.haproxy.serving import PLAIN, Served, added, address_of
from tests.world.backends import Backend
from tests.world.haproxy import wait_until


def removed(pod: Backend, *words: str) -> RemoveServer:
    return RemoveServer("be", pod.name, address_of(pod), words)


def reaped(served: Served, limit_s: float = 60) -> bool:
    served.runtime.reap(limit_s)
    return not served.runtime.leaving


def test_a_removed_server_gets_nothing_new_and_is_deleted(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    served.execute(added(pod))
    assert "second" in served.answers()
    served.execute(removed(pod))
    assert served.answers() == {"first"}
    assert served.serves("second").drain
    wait_until(lambda: reaped(served), "it is deleted")
    assert served.server("second") is None


def test_many_that_leave_are_deleted_a_few_at_a_time(served: Served) -> None:
    """A thousand deletions in one go would keep the next change waiting."""
    names = [f"s{number}" for number in range(DELETED_AT_ONCE + 50)]
    served.execute(*(AddServer("be", name, "127.0.0.1:9") for name in names))
    served.execute(*(RemoveServer("be", name, "127.0.0.1:9") for name in names))
    served.runtime.reap(60)
    assert len(served.runtime.leaving) == 50
    wait_until(lambda: reaped(served), "they are deleted")


def test_a_session_is_ended_by_its_client_or_after_the_limit(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    served.execute(added(pod), SetWeight("be", "first", 0))
    with served.held(pod) as client:
        served.execute(SetWeight("be", "first", 1), removed(pod))
        served.clock = 59.0
        for _ in range(3):
            assert not reaped(served)
        assert served.serves("second").drain
        client.settimeout(20)
        served.clock = 61.0
        wait_until(lambda: reaped(served), "its session is ended, and it is deleted")
        client.recv(1000)
    assert served.server("second") is None


def test_a_server_goes_when_its_last_session_has(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    served.execute(added(pod), SetWeight("be", "first", 0))
    with served.held(pod):
        served.execute(removed(pod))
        assert not reaped(served)
        served.pods.stop("second")
        wait_until(lambda: reaped(served), "it is deleted")


def test_a_server_that_comes_back_serves_again(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    words = ("check", *PLAIN)
    served.execute(added(pod, *words, "weight", "10"), SetWeight("be", "first", 0))
    with served.held(pod):
        served.execute(SetWeight("be", "first", 1), removed(pod, *words, "weight", "10"))
        assert not reaped(served)
        pod.delay_s = 0.0
        served.execute(added(pod, *words, "weight", "20"))
        assert served.runtime.leaving == {}
        assert served.answers() == {"first", "second"}
    assert served.serves("second").weight == 20
    # and is no longer about to be deleted
    served.clock = 1000.0
    assert reaped(served)
    assert served.serves("second").weight == 20


@pytest.mark.parametrize("different", ["address", "words", "no words before"])
def test_one_that_comes_back_as_something_else_needs_a_reload(served: Served, different: str) -> None:
    pod, other = (served.pods.add(name, "127.0.0.1", 0) for name in ("second", "third"))
    before = () if different == "no words before" else ("maxconn", "5")
    served.execute(added(pod, *before), SetWeight("be", "first", 0))
    with served.held(pod):
        served.execute(removed(pod, *before))
        back = added(other, *before, name="second") if different == "address" else added(pod, "maxconn", "6")
        assert "still there" in served.refusal(back)
    assert served.serves("second").drain


def test_a_server_that_is_there_already_is_not_taken_for_the_one_that_was_wanted(served: Served) -> None:
    served.ask(f"add server be/second {address_of(served.first)} maxconn 1")
    assert "Already exists" in served.refusal(added(served.first, "maxconn", "2", name="second"))


def test_one_that_an_operator_has_deleted_is_forgotten(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    served.execute(added(pod))
    served.execute(removed(pod))
    served.ask("set server be/second state maint")
    assert "deleted" in served.ask("del server be/second")
    assert reaped(served)
    served.execute(added(pod))
    assert served.answers() == {"first", "second"}


def test_a_reload_by_somebody_else_is_noticed_and_nothing_is_sent_to_the_new_worker(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    served.execute(SetWeight("be", "first", 3))
    with served.held(served.first):  # so the worker of the past stays, and the connection to it
        served.reload()
        assert "another program reloaded" in served.refusal(added(pod))
        served.runtime.reap(60)
        assert "not known" in served.refusal(added(pod))
        with pytest.raises(NotConfirmed):
            served.runtime.servers(["be"])
    assert "second" not in served.ask("show servers state be")
    served.connect()
    served.first.delay_s = 0.0
    served.execute(added(pod))
    assert served.answers() == {"first", "second"}


def test_a_worker_that_is_gone_is_noticed_before_anything_is_sent(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    former = served.haproxy.running()
    assert former is not None
    served.reload()
    # The connection would keep it for as long as it is not used.
    psutil.Process(former.worker_pid).kill()
    wait_until(lambda: not _runs(former.worker_pid), "the former worker has ended")
    assert "another program reloaded" in served.refusal(added(pod))
    assert "second" not in served.ask("show servers state be")
    served.connect()
    served.execute(added(pod))


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_leaving_servers_are_forgotten_with_their_worker(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    served.execute(added(pod))
    served.execute(removed(pod))
    served.reload()
    served.connect()
    assert served.runtime.leaving == {}


def test_the_connection_outlives_the_timeout_of_the_socket(served: Served) -> None:
    served.execute(SetWeight("be", "first", 3))
    with socket.socket(socket.AF_UNIX) as witness:  # opened after it, and idle for as long
        witness.settimeout(30)
        witness.connect(served.haproxy.stats_socket)
        while witness.recv(1000):
            pass
    connections = _sessions_so_far(served)
    served.execute(SetWeight("be", "first", 4))
    assert served.serves("first").weight == 4
    assert _sessions_so_far(served) == connections + 1  # that of the question itself


def _sessions_so_far(served: Served) -> int:
    return int(served.ask("show info").partition("\nCumConns: ")[2].split()[0])
