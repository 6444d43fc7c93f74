"""Jobs beside the loop."""

from functools import partial
from threading import Event

from pyconfd.vip.output import SLOW_S, Background
from tests.vip.network import wait_for


def test_of_several_jobs_of_one_name_the_last_is_done_and_each_other_name_in_its_turn() -> None:
    begun, free, done = Event(), Event(), list[str]()

    def slow() -> str:
        begun.set()
        free.wait(30)
        return ""

    def job(name: str) -> str:
        done.append(name)
        return ""

    background = Background("test")
    background.put("slow", slow, 0.0)
    assert begun.wait(30)
    for name in ("a1", "b1", "a2"):
        background.put(name[0], lambda name=name: job(name), 0.0)  # type: ignore[misc]
    free.set()
    wait_for("the end of all", lambda: len(done) > 1)
    background.close()
    assert done == ["a2", "b1"]


def test_a_job_that_hangs_is_told_with_those_that_wait_for_it() -> None:
    free = Event()
    background = Background("test")
    background.put("slow", lambda: "" if free.wait(60) else "late", 10.0)
    background.put("next", lambda: "", 10.5)
    assert background.error("slow", 10.0 + SLOW_S / 2) == background.error("other", 99.0) == ""
    assert "hang" in background.error("slow", 10.0 + SLOW_S)
    assert "hang" in background.error("next", 10.0 + SLOW_S)
    free.set()
    wait_for("the end of it", lambda: background.error("next", 99.0) == "")
    background.close()


def test_jobs_that_come_without_a_pause_and_end_each_are_no_hang() -> None:
    begun, free = [Event() for _ in range(3)], [Event() for _ in range(3)]

    def job(number: int) -> str:
        begun[number].set()
        return "" if free[number].wait(60) else "late"

    background = Background("test")
    for number, now in enumerate((10.0, 11.5, 13.0)):
        background.put(f"{number}", partial(job, number), now)
        if number:
            free[number - 1].set()
        assert begun[number].wait(60)
        assert background.error(f"{number}", now + 1.0) == ""
    assert "hang" in background.error("2", 13.0 + SLOW_S)
    free[2].set()
    background.close()


def test_an_error_is_told_until_it_is_mended() -> None:
    background = Background("test")
    background.put("file", lambda: "No space left on device", 0.0)
    wait_for("the error", lambda: background.error("file", 0.0) == "No space left on device")
    background.put("file", lambda: "", 0.0)
    wait_for("the mending", lambda: background.error("file", 0.0) == "")
    background.close()
