"""What was set by hand is kept, what changed membership or addresses is repaired: the decisions."""

from dataclasses import replace

import pytest

from pyconfd.haproxy.expected import ExpectedBackend, expected_backend
from pyconfd.haproxy.index import Key, index_of
from pyconfd.haproxy.overrides import (
    GONE_AFTER_S,
    EndReason,
    Judgement,
    Moment,
    Override,
    OverrideKey,
    Source,
    brought_back,
    judge,
    judge_missing,
    kept,
)
from pyconfd.haproxy.readback import ServerNow
from pyconfd.model.plan import AddServer, Command, RemoveServer, ServerState, SetState, SetWeight

AT = Moment(1000.0, "7@boot")
TEXT = """backend b
    balance roundrobin
    server a 10.0.0.1:80 weight 10
    server z 10.0.0.2:80 weight 0
    server off 10.0.0.3:80 disabled
"""


def expected(text: str = TEXT, name: str = "b", keyword: str = "backend") -> ExpectedBackend:
    found = expected_backend(index_of(text), Key(keyword, name), cookies=False)
    assert found is not None
    return found


A = ServerNow("b", "a", "10.0.0.1", 80, 10, maint=False, drain=False)
Z = ServerNow("b", "z", "10.0.0.2", 80, 0, maint=False, drain=False)
OFF = ServerNow("b", "off", "10.0.0.3", 80, 1, maint=True, drain=False, operating=0)


def judged(*servers: ServerNow, known: tuple[Override, ...] = (), leaving: tuple[RemoveServer, ...] = ()) -> Judgement:
    on_their_way = {(one.backend, one.server): one for one in leaving}
    return judge(expected(), servers, {one.key: one for one in known}, on_their_way, AT)


def drained(**changes: object) -> Override:
    made = Override("b", "a", ServerState.DRAIN, 900.0, 0.0, Source.COMMAND, AT.worker)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_what_is_as_the_configuration_says_is_nobodys_override() -> None:
    # Weight 0 of a terminating endpoint and `disabled` are pyconfd's own; a failed health check is nobody's.
    assert judged(replace(A, operating=0), Z, OFF) == Judgement()


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (replace(A, drain=True), ServerState.DRAIN),
        (replace(A, maint=True), ServerState.MAINT),
        (replace(A, weight=50), 50),
        (replace(A, weight=0), 0),
    ],
)
def test_what_was_set_on_the_socket_is_seen_and_not_fought(found: ServerNow, wanted: ServerState | int) -> None:
    judgement = judged(found, Z, OFF)
    assert judgement.seen == [Override("b", "a", wanted, 1000.0, 0.0, Source.SOCKET, AT.worker)]
    assert judgement.commands == []


def test_a_disabled_server_that_was_made_ready_is_an_override() -> None:
    assert [one.wanted for one in judged(A, Z, replace(OFF, maint=False)).seen] == [ServerState.READY]


def test_set_back_by_hand_it_ends() -> None:
    judgement = judged(A, Z, OFF, known=(drained(),))
    assert judgement.ended == [(drained(), EndReason.BY_HAND)]
    assert judgement.commands == []


def test_in_force_nothing_is_done() -> None:
    assert judged(replace(A, drain=True), Z, OFF, known=(drained(),)) == Judgement()


def test_set_to_something_else_by_hand_that_counts() -> None:
    judgement = judged(replace(A, maint=True), Z, OFF, known=(drained(until=2000.0),))
    assert [(one.wanted, one.until, one.source) for one in judgement.seen] == [(ServerState.MAINT, 0.0, Source.SOCKET)]


@pytest.mark.parametrize("until", [999.0, 1000.0])
def test_at_its_end_the_server_gets_back_what_the_configuration_says(until: float) -> None:
    over = drained(until=until)
    judgement = judged(replace(A, drain=True), Z, OFF, known=(over,))
    assert judgement.ended == [(over, EndReason.EXPIRED)]
    assert judgement.commands == [SetState("b", "a", ServerState.READY)]
    weight = drained(wanted=50, until=until)
    assert judged(replace(A, weight=50), Z, OFF, known=(weight,)).commands == [SetWeight("b", "a", 10)]


def test_before_its_end_it_stays() -> None:
    assert judged(replace(A, drain=True), Z, OFF, known=(drained(until=1000.5),)) == Judgement()


def test_at_its_end_what_somebody_set_meanwhile_is_an_override_of_its_own() -> None:
    judgement = judged(replace(A, maint=True), Z, OFF, known=(drained(until=999.0),))
    assert [one.wanted for one in judgement.seen] == [ServerState.MAINT]
    assert judgement.commands == []


def test_in_a_new_worker_it_is_brought_back_and_not_taken_for_ended() -> None:
    before = drained(worker="6@boot")
    for judgement in (judged(A, Z, OFF, known=(before,)), brought_back(expected(), [before], AT)):
        assert judgement.commands == [SetState("b", "a", ServerState.DRAIN)]
        assert judgement.noted == [drained()]
        assert judgement.ended == []
    assert brought_back(expected(), [drained()], AT) == Judgement()


def test_no_weight_is_given_to_a_server_that_the_cluster_takes_out() -> None:
    override = Override("b", "z", 50, 900.0, worker="6@boot")
    assert brought_back(expected(), [override], AT).commands == []
    assert judged(A, Z, OFF, known=(override,)).commands == []
    assert judged(A, Z, OFF, known=(replace(override, worker=AT.worker),)) == Judgement()


def test_what_an_agent_says_is_nobodys_override() -> None:
    backend = expected("backend b\n    server a 10.0.0.1:80 agent-check agent-port 99\n")
    assert judge(backend, [replace(A, drain=True, weight=3)], {}, {}, AT) == Judgement()


def test_a_server_that_is_missing_is_added_with_what_was_set_on_it() -> None:
    judgement = judged(Z, OFF, known=(drained(),))
    added = AddServer("b", "a", "10.0.0.1:80", ("weight", "10"))
    assert judgement.commands == [added, SetState("b", "a", ServerState.DRAIN)]
    assert judgement.repairs == ["b/a is missing"]
    assert judgement.ended == []


def test_a_missing_server_that_cannot_be_added_needs_a_reload() -> None:
    backend = expected("backend b\n    balance source\n    server a 10.0.0.1:80\n")
    judgement = judge(backend, [], {}, {}, AT)
    assert judgement.commands == []
    assert judgement.beyond == ["b/a is missing (balance source takes no server while it runs)"]


def test_a_server_too_many_is_removed_but_not_one_on_its_way_out() -> None:
    extra = ServerNow("b", "new", "10.0.0.9", 80, 1, maint=False, drain=False)
    assert judged(A, Z, OFF, extra).commands == [RemoveServer("b", "new", "10.0.0.9:80")]
    gone = RemoveServer("b", "new", "10.0.0.9:80", ("check",))
    assert judged(A, Z, OFF, replace(extra, drain=True), leaving=(gone,)) == Judgement()
    assert judged(A, Z, OFF, replace(extra, maint=True), leaving=(gone,)) == Judgement()
    # Somebody let traffic to it again: which servers there are is for the configuration to say.
    assert judged(A, Z, OFF, extra, leaving=(gone,)).commands == [gone]


def test_a_server_with_another_address_goes_and_comes_back_while_another_serves() -> None:
    text = "backend b\n    server a 10.0.0.1:80\n    server c 10.0.0.2:80\n"
    c = ServerNow("b", "c", "10.0.0.2", 80, 1, maint=False, drain=False)
    moved = replace(A, weight=1, address="10.9.9.9")
    judgement = judge(expected(text), [moved, c], {}, {}, AT)
    assert judgement.commands == [RemoveServer("b", "a", "10.9.9.9:80")]
    assert judgement.repairs == ["b/a has the address 10.9.9.9:80"]
    for unfit in (replace(c, drain=True), replace(c, operating=0), replace(c, weight=0)):
        judgement = judge(expected(text), [moved, unfit], {}, {}, AT)
        assert not any(isinstance(command, RemoveServer) for command in judgement.commands)
        assert judgement.beyond == [
            "b/a has the address 10.9.9.9:80 (no other server of its backend could serve meanwhile)"
        ]


@pytest.mark.parametrize("address", ["localhost:80", "10.0.0.1", "unix@/run/a", "10.0.0.1:+5", "${HOST}:80"])
def test_addresses_that_the_process_shows_otherwise_are_not_judged(address: str) -> None:
    backend = expected(f"backend b\n    server a {address} weight 10\n")
    assert judge(backend, [replace(A, address="-", port=0)], {}, {}, AT) == Judgement()


@pytest.mark.parametrize(
    "lines",
    [
        "    server-template t 2 10.0.0.1:80\n",
        "    disabled\n    server a 10.0.0.1:80\n",
        "    .if defined(X)\n    server a 10.0.0.1:80\n    .endif\n",
        "    server ${NAME} 10.0.0.1:80\n",
        "    server a 10.0.0.1:80\n    server a 10.0.0.2:80\n",
    ],
)
def test_backends_whose_servers_the_text_does_not_tell_are_left_alone(lines: str) -> None:
    assert expected_backend(index_of(f"backend b\n{lines}"), Key("backend", "b"), cookies=True) is None


def test_an_override_waits_for_its_server_and_is_forgotten_then() -> None:
    away = drained(server="gone")
    assert judged(A, Z, OFF, known=(away,)).noted == [replace(away, missing_since=1000.0)]
    waiting = replace(away, missing_since=1000.0 - GONE_AFTER_S + 1)
    assert judge_missing([waiting], (), AT) == Judgement()
    forgotten = replace(away, missing_since=1000.0 - GONE_AFTER_S)
    assert judge_missing([forgotten], (), AT).ended == [(forgotten, EndReason.SERVER_GONE)]
    returned = drained(missing_since=500.0)
    assert judged(replace(A, drain=True), Z, OFF, known=(returned,)).noted == [drained()]


KNOWN = {
    one.key: one
    for one in (
        Override("b", "a", ServerState.MAINT, 1.0),
        Override("b", "a", 50, 1.0),
        drained(server="old", until=5.0),
    )
}


@pytest.mark.parametrize(
    ("command", "executed"),
    [
        (SetWeight("b", "a", 20), (SetWeight("b", "a", 50),)),
        (SetWeight("b", "a", 0), (SetWeight("b", "a", 0),)),
        (SetState("b", "a", ServerState.READY), (SetState("b", "a", ServerState.MAINT),)),
        (SetWeight("b", "c", 20), (SetWeight("b", "c", 20),)),
        (SetState("b", "old", ServerState.READY), (SetState("b", "old", ServerState.READY),)),
        (RemoveServer("b", "a"), (RemoveServer("b", "a"),)),
    ],
)
def test_an_update_leaves_in_force_what_was_set_by_hand(command: Command, executed: tuple[Command, ...]) -> None:
    assert kept([command], KNOWN, 1000.0) == executed
    assert kept([command], {}, 1000.0) == (command,)


def test_a_server_that_comes_back_gets_what_was_set_on_it() -> None:
    added = AddServer("b", "a", "10.0.0.1:80", ("weight", "10"))
    by_hand = (SetState("b", "a", ServerState.MAINT), SetWeight("b", "a", 50))
    assert kept([added], KNOWN, 1000.0) == (added, *by_hand)
    terminating = replace(added, words=("weight", "0"))
    assert kept([terminating], KNOWN, 1000.0) == (terminating, by_hand[0])


def test_there_is_one_override_for_each_aspect() -> None:
    assert set(KNOWN) == {
        OverrideKey("b", "a", "state"),  # type: ignore[arg-type]
        OverrideKey("b", "a", "weight"),  # type: ignore[arg-type]
        OverrideKey("b", "old", "state"),  # type: ignore[arg-type]
    }
