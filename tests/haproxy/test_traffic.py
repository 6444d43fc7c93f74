"""What a worker counted: the text of its answer, and a real worker with a real reload."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd.haproxy.runtime.traffic import TrafficWatch, sample_of
from pyconfd.model.status import Counts, Sample
from tests.world.clients import ask
from tests.world.haproxy import HaproxyProcess, configuration, free_port, wait_until

ANSWER = """# pxname,svname,status,mode,econ,hrsp_5xx,req_tot,stot,
http-in,FRONTEND,OPEN,http,,7,100,50,
tcp-in,FRONTEND,OPEN,tcp,,,,5,
be_a,BACKEND,UP (2/3),http,1,7,90,40,
be_tcp,BACKEND,DOWN (0/2),tcp,4,,,5,
be_refused,BACKEND,UP (1/1),http,9,2,20,20,
a,b
"""


def test_an_answer_is_summed_by_backend_and_over_the_frontends() -> None:
    assert sample_of(ANSWER, 5.0, 77) == Sample(
        5.0,
        77,
        Counts(105, 7),
        {"be_a": Counts(90, 7, 2, 3), "be_tcp": Counts(5, 4, 0, 2), "be_refused": Counts(20, 9, 1, 1)},
    )


@pytest.mark.parametrize("answer", ["", "Unknown command", "# pxname,svname,\na,BACKEND,\n", "\n\n"])
def test_what_is_not_understood_is_left_out(answer: str) -> None:
    assert sample_of(answer, 0.0, 1).clients == Counts()


EXTRA = """frontend web
    mode http
    bind 127.0.0.1:{port}
    default_backend pods
backend pods
    mode http
    server dead 127.0.0.1:1
"""


@pytest.fixture
def haproxy(tmp_path: Path) -> Iterator[HaproxyProcess]:
    with HaproxyProcess(tmp_path) as running:
        yield running


@pytest.mark.haproxy
def test_a_worker_is_watched_and_the_next_one_after_a_reload(
    haproxy: HaproxyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyconfd.haproxy.runtime.traffic.SHARE", 1.0)
    port = free_port()
    socket_line = f"stats socket {haproxy.stats_socket} mode 600 level admin"
    haproxy.conf.write_text(configuration(free_port(), extra=EXTRA.format(port=port), global_lines=socket_line))
    watch = TrafficWatch(lambda: [f"{haproxy.stats_socket}.absent", haproxy.stats_socket], every_s=0.05)
    watch.start()
    try:
        assert watch.newest() is None
        haproxy.start()
        wait_until(watch.newest, "the worker is seen")
        assert ask(port, "x.example.com") == "503"
        # haproxy counts the failure, the answer and the request one after the other.
        counted = Counts(1, 1, 1, 1)
        wait_until(lambda: (found := watch.newest()) and found.backends["pods"] == counted, "the failure is counted")
        found = watch.newest()
        assert found is not None
        running = haproxy.running()
        assert running is not None
        assert found.worker == running.worker_pid
        haproxy.stop()
        wait_until(lambda: watch.newest() is None, "nobody answers")
        haproxy.start()
        wait_until(watch.newest, "the next worker is seen")
        found = watch.newest()
        assert found is not None
        assert found.worker != running.worker_pid
        assert found.backends["pods"].requests == 0
    finally:
        watch.stop()


def test_slow_answers_do_not_end_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without processors to spare each answer takes long, and the next one is read all the same."""
    monkeypatch.setattr("pyconfd.haproxy.runtime.traffic.SHARE", 1e-12)
    monkeypatch.setattr("pyconfd.haproxy.runtime.traffic.LONGEST_S", 0.01)
    asked = threading.Semaphore(0)

    def paths() -> tuple[str, ...]:
        asked.release()
        return ()

    watch = TrafficWatch(paths, every_s=0.0)
    watch.start()
    try:
        assert all(asked.acquire(timeout=60) for _ in range(3))
    finally:
        watch.stop()
