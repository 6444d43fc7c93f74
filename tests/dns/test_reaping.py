from dataclasses import replace

from pyconfd.dns.ownership import Marker
from pyconfd.dns.reaping import Suspicion, Verdict, judge

MARKER = Marker("prod", "n1", ("192.0.2.2",), 3)


def over(*looks: tuple[float, bool, str, int]) -> list[Verdict]:
    """Each look is the time, whether the node answers, who doubts it and its sequence."""
    suspicion: Suspicion | None = None
    found = []
    for now, answers, doubt, sequence in looks:
        marker = replace(MARKER, doubt=doubt, sequence=sequence)
        suspicion, verdict = judge(marker, suspicion, answers=answers, me="n0", now=now, after_s=100.0)
        found.append(verdict)
    return found


LEAVE, DOUBT, TRUST, FORGET = Verdict.LEAVE, Verdict.DOUBT, Verdict.TRUST, Verdict.FORGET


def test_a_node_is_forgotten_when_it_is_silent_on_the_network_and_in_route_53() -> None:
    assert over((1, False, "", 3), (101, False, "", 3), (102, False, "n0", 3), (202, False, "n0", 3)) == [
        LEAVE,
        DOUBT,
        LEAVE,
        FORGET,
    ]


def test_a_node_that_answers_is_trusted_whatever_was_thought() -> None:
    assert over((1, False, "n0", 3), (150, True, "n0", 3), (300, False, "n0", 3)) == [LEAVE, TRUST, LEAVE]
    assert over((1, True, "n7", 3)) == [LEAVE]


def test_a_node_that_writes_in_route_53_lives_although_it_does_not_answer() -> None:
    assert over((1, False, "", 3), (101, False, "", 3), (102, False, "n0", 3), (202, False, "", 4)) == [
        LEAVE,
        DOUBT,
        LEAVE,
        LEAVE,
    ]


def test_a_node_does_not_judge_itself_nor_what_has_no_node() -> None:
    for marker in (replace(MARKER, node="n0"), replace(MARKER, node="adopted:192.0.2.2")):
        assert judge(marker, Suspicion(3, 1.0, 1.0), answers=False, me="n0", now=9e9, after_s=1.0)[1] is LEAVE
