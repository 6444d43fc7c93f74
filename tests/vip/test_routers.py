"""When the hook decides about a router if nothing happens until then."""

from collections.abc import Callable

import pytest

from pyconfd.settings.vip import NodeSettings, VipSettings
from pyconfd.vip.policy import Alarm, Fault, Hold, Limits, Role, Stance
from pyconfd.vip.routers import CALM_S, RouterState
from pyconfd.vip.topology import topology

NOW, HANG_S = 100.0, 0.25
LIMITS = Limits(advert_s=0.1, ping_misses=2, offer_s=30.0)
ADDRESS = "192.0.2.10"


def state_of(role: Role, *, holds: bool) -> RouterState:
    """Give one router of two nodes, in the state of one that is fine."""
    nodes = (NodeSettings("lb1", ("192.0.2.11",)), NodeSettings("lb2", ("192.0.2.12",)))
    found = topology(
        VipSettings(interface="eth0", virtual_router_id=51, addresses=(f"{ADDRESS}/24",), nodes=nodes, node="lb1"),
        "lb1",
    )
    state = RouterState(found.routers[0], NOW, 0.2, LIMITS)
    state.sight.role = role
    state.sight.watching_since = NOW - 60.0
    if holds:
        state.sight.held = frozenset({ADDRESS})
        state.sight.announced = {ADDRESS}
        state.sight.own_advert = NOW
    return state


def test_who_stands_by_and_who_holds_it_decide_after_a_while() -> None:
    for state in (state_of(Role.BACKUP, holds=False), state_of(Role.MASTER, holds=True)):
        assert state.decide_at(NOW) == NOW + CALM_S


def test_a_late_advert_of_its_own_is_looked_for_in_time() -> None:
    state = state_of(Role.MASTER, holds=True)
    state.sight.own_advert = NOW - HANG_S + 0.01
    assert state.decide_at(NOW) == pytest.approx(NOW + 0.01)


def _stance(hold: Hold) -> Callable[[RouterState], None]:
    def change(state: RouterState) -> None:
        state.stance = Stance(hold, NOW, frozenset({Fault.HAPROXY_DEAD}))

    return change


def _alarm(state: RouterState) -> None:
    state.alarms = frozenset({Alarm.STRANGER})


def _hand_over(state: RouterState) -> None:
    state.handing_over = NOW


@pytest.mark.parametrize("change", [_stance(Hold.FAULT), _stance(Hold.LAST), _alarm, _hand_over])
@pytest.mark.parametrize(("role", "holds"), [(Role.BACKUP, False), (Role.MASTER, True)])
def test_whatever_is_not_as_usual_is_decided_about_at_each_turn(
    change: Callable[[RouterState], None], role: Role, *, holds: bool
) -> None:
    state = state_of(role, holds=holds)
    change(state)
    assert state.decide_at(NOW) <= NOW


@pytest.mark.parametrize(
    ("role", "holds"), [(Role.UNKNOWN, False), (Role.UNKNOWN, True), (Role.FAULT, False), (Role.BACKUP, True)]
)
def test_a_role_that_does_not_fit_what_is_held_is_decided_about_at_each_turn(role: Role, *, holds: bool) -> None:
    assert state_of(role, holds=holds).decide_at(NOW) <= NOW


def test_an_address_that_was_not_announced_or_is_missing_too() -> None:
    state = state_of(Role.MASTER, holds=True)
    state.sight.announced.clear()
    assert state.decide_at(NOW) <= NOW
    assert state_of(Role.MASTER, holds=False).decide_at(NOW) <= NOW


def test_connections_that_were_left_behind_wait_for_the_peers_advert() -> None:
    state = state_of(Role.BACKUP, holds=False)
    state.moved(frozenset(), frozenset({ADDRESS}), NOW)
    assert not state.stands_by
    assert state.decide_at(NOW) <= NOW
