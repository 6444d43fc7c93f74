"""Servers in the process against the configuration and the overrides: the decisions."""

from dataclasses import replace

import pytest

from pyconfd.haproxy.config.index import SectionKey, configured_backend, index_of
from pyconfd.haproxy.runtime.drift import Drift
from pyconfd.haproxy.runtime.overrides import GONE_AFTER_S, Override, OverrideKey
from pyconfd.haproxy.runtime.runtime import Leaving
from pyconfd.haproxy.runtime.servers_now import ServerNow
from pyconfd.model.operations import AddServer, Command, RemoveServer, ServerState, SetState, SetWeight

NOW = 1000.0
TEXT = """backend b
    balance roundrobin
    server a 10.0.0.1:80 weight 10
    server z 10.0.0.2:80 weight 0
    server off 10.0.0.3:80 disabled
"""


KEY = OverrideKey("b", "a")
A = ServerNow("b", "a", "10.0.0.1", 80, 10, maint=False, drain=False)
Z = ServerNow("b", "z", "10.0.0.2", 80, 0, maint=False, drain=False)
OFF = ServerNow("b", "off", "10.0.0.3", 80, 1, maint=True, drain=False, operating=0)
DRAIN = Override("b", "a", ServerState.DRAIN, 900.0)
MAINT = Override("b", "a", ServerState.MAINT, 900.0)
READY = Override("b", "off", ServerState.READY, 900.0)


def judged(
    *servers: ServerNow,
    known: tuple[Override, ...] = (),
    leaving: tuple[RemoveServer, ...] = (),
    fresh: bool = False,
    text: str = TEXT,
) -> Drift:
    backend = configured_backend(index_of(text), SectionKey("backend", "b"))
    assert backend is not None
    on_their_way = {
        (one.backend, one.server): Leaving(one.backend, one.server, one.address, one.words, 0.0) for one in leaving
    }
    found = Drift({one.key: one for one in known}, on_their_way, NOW, fresh)
    found.judge(backend, servers)
    return found


def test_what_is_as_the_configuration_says_is_left() -> None:
    # Weight 0 of a terminating endpoint and `disabled` are pyconfd's own; a failed health check is nobody's.
    assert judged(replace(A, operating=0), Z, OFF) == Drift()


@pytest.mark.parametrize(
    ("servers", "command", "repair"),
    [
        ((replace(A, weight=50), Z, OFF), SetWeight("b", "a", 10), "b/a has the weight 50"),
        ((replace(A, weight=0), Z, OFF), SetWeight("b", "a", 10), "b/a has the weight 0"),
        ((A, replace(Z, weight=1), OFF), SetWeight("b", "z", 0), "b/z has the weight 1"),
        (
            (A, Z, replace(OFF, maint=False)),
            SetState("b", "off", ServerState.MAINT),
            "b/off takes traffic but should be in maint",
        ),
    ],
)
def test_weights_and_ready_servers_are_repaired(servers: tuple[ServerNow, ...], command: Command, repair: str) -> None:
    assert judged(*servers) == Drift(commands=[command], repairs=[repair])


@pytest.mark.parametrize("state", [ServerState.DRAIN, ServerState.MAINT])
@pytest.mark.parametrize("fresh", [False, True])
def test_no_traffic_is_sent_to_a_server_that_somebody_took_out(state: ServerState, fresh: bool) -> None:
    server = replace(A, drain=state is ServerState.DRAIN, maint=state is ServerState.MAINT)
    assert judged(server, Z, OFF, fresh=fresh) == Drift(foreign={KEY: state})


@pytest.mark.parametrize(
    ("server", "override", "fresh", "command"),
    [
        (replace(A, drain=True), DRAIN, False, None),
        (replace(A, drain=True), replace(DRAIN, until=1000.5), False, None),
        (A, DRAIN, True, SetState("b", "a", ServerState.DRAIN)),
        (replace(A, drain=True), MAINT, True, SetState("b", "a", ServerState.MAINT)),
        (OFF, READY, True, SetState("b", "off", ServerState.READY)),
        (replace(OFF, maint=False), READY, False, None),
    ],
)
def test_overrides_are_kept_and_brought_into_force(
    server: ServerNow, override: Override, fresh: bool, command: Command | None
) -> None:
    others = [one for one in (A, Z, OFF) if one.name != server.name]
    commands = [] if command is None else [command]
    assert judged(server, *others, known=(override,), fresh=fresh) == Drift(commands=commands)


def test_an_override_that_somebody_changed_on_the_socket() -> None:
    repaired = judged(A, Z, OFF, known=(DRAIN,))
    assert repaired.commands == [SetState("b", "a", ServerState.DRAIN)]
    assert repaired.repairs == ["b/a takes traffic but should be in drain"]
    left = judged(replace(A, maint=True), Z, OFF, known=(DRAIN,))
    assert left == Drift(foreign={KEY: ServerState.MAINT})


@pytest.mark.parametrize("until", [999.0, 1000.0])
def test_at_its_end_the_server_gets_what_the_configuration_says(until: float) -> None:
    over = replace(DRAIN, until=until)
    judgement = judged(replace(A, drain=True), Z, OFF, known=(over,))
    assert judgement.overrides == {KEY: None}
    assert judgement.commands == [SetState("b", "a", ServerState.READY)]


def test_at_its_end_a_state_that_somebody_else_set_is_left() -> None:
    judgement = judged(replace(A, maint=True), Z, OFF, known=(replace(DRAIN, until=999.0),))
    assert judgement.foreign == {KEY: ServerState.MAINT}
    assert judgement.commands == []


def test_what_an_agent_says_is_left() -> None:
    text = "backend b\n    server a 10.0.0.1:80 agent-check agent-port 99\n"
    assert judged(replace(A, drain=True, weight=3), text=text) == Drift()


def test_a_server_that_is_missing_is_added_with_its_override() -> None:
    judgement = judged(Z, OFF, known=(DRAIN,))
    added = AddServer("b", "a", "10.0.0.1:80", ("weight", "10"))
    assert judgement.commands == [added, SetState("b", "a", ServerState.DRAIN)]
    assert judgement.repairs == ["b/a is missing"]
    assert judgement.overrides == {}


def test_a_missing_server_that_cannot_be_added_needs_a_reload() -> None:
    judgement = judged(text="backend b\n    balance source\n    server a 10.0.0.1:80\n")
    assert judgement.commands == []
    assert judgement.beyond == {"b/a is missing (balance source takes no server while it runs)": "b"}


def test_a_server_too_many_is_removed_but_not_one_on_its_way_out() -> None:
    extra = ServerNow("b", "new", "10.0.0.9", 80, 1, maint=False, drain=False)
    assert judged(A, Z, OFF, extra).commands == [RemoveServer("b", "new", "10.0.0.9:80")]
    gone = RemoveServer("b", "new", "10.0.0.9:80", ("check",))
    assert judged(A, Z, OFF, replace(extra, drain=True), leaving=(gone,)) == Drift()
    assert judged(A, Z, OFF, replace(extra, maint=True), leaving=(gone,)) == Drift()
    # Somebody let traffic to it again: which servers there are is for the configuration to say.
    assert judged(A, Z, OFF, extra, leaving=(gone,)).commands == [gone]


def test_a_server_with_another_address_goes_and_comes_back_while_another_serves() -> None:
    text = "backend b\n    server a 10.0.0.1:80\n    server c 10.0.0.2:80\n"
    c = ServerNow("b", "c", "10.0.0.2", 80, 1, maint=False, drain=False)
    moved = replace(A, weight=1, address="10.9.9.9")
    judgement = judged(moved, c, text=text)
    assert judgement.commands == [RemoveServer("b", "a", "10.9.9.9:80")]
    assert judgement.repairs == ["b/a has the address 10.9.9.9:80"]
    for unfit in (replace(c, drain=True), replace(c, operating=0), replace(c, weight=0)):
        judgement = judged(moved, unfit, text=text)
        assert not any(isinstance(command, RemoveServer) for command in judgement.commands)
        assert list(judgement.beyond) == [
            "b/a has the address 10.9.9.9:80 (no other server of its backend could serve meanwhile)"
        ]


@pytest.mark.parametrize("address", ["localhost:80", "10.0.0.1", "unix@/run/a", "10.0.0.1:+5", "${HOST}:80"])
def test_addresses_that_the_process_shows_otherwise_are_not_judged(address: str) -> None:
    text = f"backend b\n    server a {address} weight 10\n"
    assert judged(replace(A, address="-", port=0), text=text) == Drift()


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
    assert configured_backend(index_of(f"backend b\n{lines}"), SectionKey("backend", "b")) is None


def test_a_condition_on_another_line_than_a_server_leaves_the_servers_known() -> None:
    text = "backend b\n    .if defined(X)\n    option httpchk\n    .endif\n    server a 10.0.0.1:80\n"
    found = configured_backend(index_of(text), SectionKey("backend", "b"))
    assert found is not None
    assert list(found.servers) == ["a"]


@pytest.mark.parametrize(
    ("override", "stored"),
    [
        (DRAIN, {KEY: replace(DRAIN, missing_since=1000.0)}),
        (replace(DRAIN, missing_since=1000.0 - GONE_AFTER_S + 1), {}),
        (replace(DRAIN, missing_since=1000.0 - GONE_AFTER_S), {KEY: None}),
        (replace(DRAIN, until=5.0), {KEY: None}),
    ],
)
def test_an_override_waits_for_its_server_and_is_forgotten_then(
    override: Override, stored: dict[OverrideKey, Override | None]
) -> None:
    found = Drift(now=NOW)
    found.judge_absent([override])
    assert found.overrides == stored


def test_an_override_whose_server_is_back_waits_no_longer() -> None:
    returned = replace(DRAIN, missing_since=500.0)
    assert judged(replace(A, drain=True), Z, OFF, known=(returned,)).overrides == {KEY: DRAIN}
