from pyconfd.daemon.reconcile import Attempt
from pyconfd.daemon.retry import DISRUPTIVE_FACTOR, Retry
from pyconfd.model.outcome import Failed, Rejected, Step

PLAIN = Attempt(None, Rejected(Step.CHECK, ()))
DISRUPTIVE = Attempt(None, Failed(Step.VERIFY, (), disruptive=True))


def delays(retry: Retry, attempt: Attempt, count: int) -> list[float]:
    found, now = [], 100.0
    for _ in range(count):
        retry.failed(attempt, now)
        assert retry.due_at is not None
        found.append(retry.due_at - now)
        assert retry.standing(retry.due_at - 0.001) is attempt
        assert retry.standing(retry.due_at) is None
        now = retry.due_at
    return found


def test_pauses_double_up_to_the_longest() -> None:
    assert delays(Retry(first_s=1, last_s=10), PLAIN, 6) == [1, 2, 4, 8, 10, 10]


def test_what_costs_traffic_begins_with_the_longest_pause() -> None:
    assert delays(Retry(first_s=1, last_s=10), DISRUPTIVE, 3) == [10, 20, 40]
    assert delays(Retry(first_s=1, last_s=10), DISRUPTIVE, 9)[-1] == 10 * DISRUPTIVE_FACTOR


def test_forgetting_begins_anew() -> None:
    retry = Retry(first_s=1, last_s=10)
    delays(retry, PLAIN, 3)
    retry.clear()
    assert retry.due_at is None
    assert retry.standing(0.0) is None
    assert delays(retry, PLAIN, 2) == [1, 2]
