"""Values that are kept from one round to the next."""

from pyconfd.model.last_round import LastRound

MANY = 50_000


def test_a_second_round_makes_only_what_is_new_however_many_there_are() -> None:
    made: list[int] = []

    def make(key: int) -> str:
        made.append(key)
        return str(key)

    kept = LastRound(make)
    assert kept.of(range(MANY)) == [str(each) for each in range(MANY)]
    made.clear()
    assert kept.of(range(1, MANY + 1))[-1] == str(MANY)
    assert made == [MANY]
    assert kept.of([7, 7]) == ["7", "7"]
    made.clear()
    kept.of([7, 8])
    assert made == [8], "what the round before lacked is made again"
