from typing import Any

import pytest

from pyconfd.dns.floating import HookState, hook_state

NOW = 1_800_000_000.0
V4, V6 = "192.0.2.9", "2001:db8::9"


def report(*, holds: bool = True, rivals: bool = False, drained: bool = False, holder: str = "lb2") -> dict[str, Any]:
    """As the hook writes it, with one router."""
    instance = {
        "addresses": [f"{V4}/24", V6],
        "holds": holds,
        "holder": holder,
        "rivals": [{"hardware": "x", "peer": "lb2"}] if rivals else [],
    }
    return {"at": NOW - 5, "routers": [{"drained": {"at": 1} if drained else None, "instances": [instance]}]}


def test_the_holder_is_who_the_hook_says() -> None:
    assert hook_state(report(), NOW) == HookState({V4: "", V6: ""})
    away = hook_state(report(holds=False), NOW).holding
    assert "lb2 has it" in away[V4]
    assert away.keys() == {V4, V6}
    assert "nobody seems to have it" in hook_state(report(holds=False, holder=""), NOW).holding[V6]


def test_who_shares_the_address_with_a_rival_does_not_count_as_its_holder() -> None:
    assert "another node has" in hook_state(report(rivals=True), NOW).holding[V4]


def test_a_dead_hook_says_nothing_of_holders_but_an_order_to_drain_stands() -> None:
    assert hook_state(report(drained=True), NOW + 60) == HookState({}, drained=True)
    assert hook_state(report(), NOW + 60) == HookState({})
    both = report(drained=True)
    both["routers"].append(report()["routers"][0])
    assert not hook_state(both, NOW).drained  # one router of two is no drained node


@pytest.mark.parametrize(
    "document", [{}, {"routers": None}, {"at": "x", "routers": []}, {"at": NOW, "routers": [{"drained": None}]}]
)
def test_what_is_no_report_is_not_known(document: dict[str, Any]) -> None:
    assert hook_state(document, NOW) == HookState({})
