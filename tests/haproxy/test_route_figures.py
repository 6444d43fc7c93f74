"""What is made of the counters of workers; tests/e2e/test_route_figures.py has real ones."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pyconfd.haproxy.config.spares import NO_SPARES, Spares
from pyconfd.haproxy.runtime.route_figures import (
    FiguresWatch,
    SavedFigures,
    SavedWorker,
    WorkerFigures,
    entries_of,
    figures_file,
    statistics_of,
)
from pyconfd.haproxy.runtime.sockets import NoAnswer
from pyconfd.model.route_figures import RouteFigures

HEAD = "# pxname,svname,scur,stot,bin,bout,econ,eresp,wretr,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,mode,"
STATISTICS = f"""{HEAD}
web,BACKEND,2,10,100,1000,1,2,3,0,7,1,1,1,http,
tcp,BACKEND,1,5,50,500,,,,,,,,,tcp,
short,BACKEND,1
"""
TABLE = """# table: http-in, type: string, size:102400, used:2
0x55: key=web use=0 exp=0 shard=0 gpc0=4 gpc1=3 gpc2=0 gpc3=0 gpc4=0 gpc5=0 gpc6=0 gpc7=0 gpc8=0 gpc9=1 gpc10=2
0x56: key=other use=0 exp=0 gpc0=4
"""
STEPS = (4, 3, 0, 0, 0, 0, 0, 0, 0, 1, 2)


def test_statistics_are_read_by_the_names_of_their_columns() -> None:
    assert list(statistics_of(STATISTICS)) == [
        ("web", "http", 2, (0, 7, 1, 1, 1, 10, 100, 1000, 3, 1, 2)),
        ("tcp", "tcp", 1, (0, 0, 0, 0, 0, 5, 50, 500, 0, 0, 0)),
    ]


@pytest.mark.parametrize(
    "answer", ["", "Unknown command", "# pxname,svname,\na,BACKEND,\n", HEAD.removesuffix("mode,")]
)
def test_statistics_of_another_form_are_left_out(answer: str) -> None:
    assert list(statistics_of(answer)) == []


def test_steps_are_read_and_entries_of_another_table_are_left_out() -> None:
    assert list(entries_of(TABLE)) == [("web", STEPS)]


def test_steps_are_shown_as_sums() -> None:
    assert RouteFigures(steps=STEPS).cumulative == (4, 7, 7, 7, 7, 7, 7, 7, 7, 8, 10)


def line(name: str, requests: int, mode: str = "http") -> str:
    return f"{name},BACKEND,0,{requests},0,0,0,0,0,0,{requests},0,0,0,{mode},"


class Answers:
    """A worker that answers what it is given."""

    def __init__(self, *lines: str, pid: int = 7, began: int = 100) -> None:
        self.pid, self.began = pid, began
        self.lines: Sequence[str] = lines
        self.is_stopping, self.connections = False, 1
        self.tables: Mapping[str, str] = {}

    def __call__(self, commands: Sequence[str]) -> list[str]:
        return [self._answer(command) for command in commands]

    def _answer(self, command: str) -> str:
        if command == "show info":
            if not self.pid:
                return "Can't find the target CLI!"
            numbers = {"Stopping": int(self.is_stopping), "CurrConns": self.connections, "Pid": self.pid}
            return "\n".join(f"{name}: {number}" for name, number in {**numbers, "Start_time_sec": self.began}.items())
        if command == "show table":
            return "\n".join(f"# table: {name}, type: string, size:102400, used:1" for name in self.tables)
        if command.startswith("show table "):
            return self.tables[command.removeprefix("show table ")]
        return "\n".join((HEAD, *self.lines))

    def close(self) -> None:
        pass


def requests(counted: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    return {name: sum(counts[:5]) for name, counts in counted.items()}


def test_what_was_counted_before_counts_once() -> None:
    answers = Answers(line("web", 7), line("quiet", 1))
    worker = WorkerFigures(answers)
    assert requests(worker.counted(NO_SPARES)[0]) == {"web": 7, "quiet": 1}
    answers.lines = [line("web", 9), line("quiet", 1)]
    assert requests(worker.counted(NO_SPARES)[0]) == {"web": 2}


def test_counters_that_begin_again_lose_nothing() -> None:
    answers = Answers(line("web", 7))
    worker = WorkerFigures(answers)
    worker.counted(NO_SPARES)
    answers.lines = [line("web", 3)]  # removed and added again
    assert requests(worker.counted(NO_SPARES)[0]) == {"web": 3}


def test_counters_of_a_table_that_wrap_lose_nothing() -> None:
    answers = Answers(line("web", 1))
    worker = WorkerFigures(answers)
    grown = []
    for first in ((1 << 31) + 1, (1 << 32) - 2, 5, 7):
        answers.tables = {"http-in": TABLE.replace("gpc0=4 gpc1", f"gpc0={first} gpc1")}
        grown.append(worker.counted(NO_SPARES)[1]["web"])
    assert [counts[0] for counts in grown[1:]] == [(1 << 31) - 3, 7, 2]
    # Nothing else is counted once more.
    assert all(counts[1:] == (0,) * 10 for counts in grown[1:])


def test_tables_of_several_frontends_are_added() -> None:
    answers = Answers()
    answers.tables = {"http-in": TABLE, "https-terminate": TABLE}
    answers.lines = [line("web", 1)]
    worker = WorkerFigures(answers)
    assert worker.counted(NO_SPARES)[1] == {"web": tuple(2 * count for count in STEPS)}


def test_a_spare_counts_for_whom_it_serves_then() -> None:
    spare = "spare-http-service-1"
    answers = Answers(line(spare, 4))
    worker = WorkerFigures(answers)
    assert worker.counted(NO_SPARES) == ({}, {})
    assert not worker.sessions
    answers.lines = [line(spare, 6)]
    assert requests(worker.counted(Spares(serving={"first": spare}))[0]) == {"first": 2}
    assert worker.sessions == {"first": 0}
    answers.lines = [line(spare, 9)]
    assert requests(worker.counted(Spares(serving={"second": spare}))[0]) == {"second": 3}
    # Whose spares a worker has that was replaced is not known any more, and it may be that nobody has seen it yet.
    answers.lines = [line(spare, 10)]
    assert requests(worker.counted(NO_SPARES)[0]) == {"second": 1}


def test_a_worker_is_alone_when_it_was_replaced_and_nobody_is_connected() -> None:
    answers = Answers()
    worker = WorkerFigures(answers)
    found = []
    for answers.is_stopping, answers.connections in ((False, 0), (True, 1), (True, 0)):
        worker.look()
        found.append((worker.is_stopping, worker.is_alone))
    assert found == [(False, False), (True, False), (True, True)]


@pytest.mark.parametrize("pid", [8, 0])
def test_a_worker_that_the_master_does_not_find_has_ended(pid: int) -> None:
    answers = Answers(line("web", 1))
    worker = WorkerFigures(answers)
    answers.pid = pid
    with pytest.raises(NoAnswer):
        worker.look()
    answers.pid = 0
    with pytest.raises(NoAnswer):
        WorkerFigures(answers)


def test_without_a_worker_what_was_saved_is_shown(tmp_path: Path) -> None:
    sums = (0, 7, 0, 0, 0, 10, 100, 1000, 3, 1, 2)
    figures_file(str(tmp_path)).save(SavedFigures([("web", sums)], [("web", STEPS)], [SavedWorker(7, 100, [], [])]))
    watch = FiguresWatch(tuple, lambda: str(tmp_path / "none.sock"), figures_file(str(tmp_path)))
    assert watch.newest() == {"web": RouteFigures(sums[:5], STEPS, 10, 100, 1000, 3, 1, 2, 0)}


def test_what_the_newest_worker_lacks_goes_once_it_has_answered(tmp_path: Path) -> None:
    figures_file(str(tmp_path)).save(SavedFigures([("gone", (0, 7, *[0] * 9)), ("web", (0, 1, *[0] * 9))], [], []))
    watch = FiguresWatch(tuple, lambda: str(tmp_path / "none.sock"), figures_file(str(tmp_path)), look_s=0)
    old, now = Answers(line("web", 1)), Answers(pid=8)
    old.is_stopping = True
    watch._workers = [WorkerFigures(old), WorkerFigures(now)]
    # One that ends is not asked for what is there, and the other has not answered yet.
    assert watch.newest().keys() == {"gone", "web"}
    now.lines = [line("web", 1)]
    assert watch.newest().keys() == {"web"}


def test_a_reload_does_not_wait_for_a_worker_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyconfd.haproxy.runtime.route_figures.LIMIT_S", 0.01)
    asked, answers = threading.Event(), threading.Event()

    def paths() -> Sequence[str]:
        asked.set()
        assert answers.wait(60)
        return ()

    watch = FiguresWatch(paths, lambda: str(tmp_path / "none.sock"), figures_file(str(tmp_path)))
    scrape = threading.Thread(target=watch.newest)
    scrape.start()
    assert asked.wait(60)
    watch.read()
    assert scrape.is_alive()
    answers.set()
    scrape.join()
    watch.read()


def test_what_another_version_counted_otherwise_is_left_out(tmp_path: Path) -> None:
    figures_file(str(tmp_path)).save(SavedFigures([("web", (1, 2))], [("web", (1,))], []))
    watch = FiguresWatch(tuple, lambda: str(tmp_path / "none.sock"), figures_file(str(tmp_path)))
    assert watch.newest() == {}


def test_a_damaged_file_begins_at_nothing(tmp_path: Path) -> None:
    figures_file(str(tmp_path)).path.write_text('{"sums": 7}')
    watch = FiguresWatch(tuple, lambda: str(tmp_path / "none.sock"), figures_file(str(tmp_path)))
    assert watch.newest() == {}
