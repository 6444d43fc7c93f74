"""Every command about servers and backends against a real HAProxy, and what the process says of it afterwards."""

import pytest

from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.servers import MAX_WORDS, Inherited, servers_of, why_not_addable
from pyconfd.haproxy.config.text import parse
from pyconfd.haproxy.runtime.runtime import NotConfirmed, Runtime
from pyconfd.model.operations import (
    AddBackend,
    AddServer,
    Command,
    RemoveBackend,
    RemoveServer,
    ServerState,
    SetState,
    SetWeight,
)
from tests.haproxy.serving import PLAIN, Served, added, address_of
from tests.world.haproxy import free_port, wait_until


def test_an_added_server_serves_at_once(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    served.execute(added(pod))
    assert served.answers() == {"first", "second"}


def test_a_server_gets_the_words_of_default_server(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    text = f"""backend be
    default-server weight 30 maxconn 7 check inter 100ms rise 1 fall 1
    default-server weight 40
    server second {address_of(pod)} id 77 maxconn 9
"""
    (server,) = servers_of(parse(text)[0], Inherited())
    served.execute(server.addition)
    now = served.serves("second")
    assert (now.id, now.weight) == (77, 40)
    limit = served.ask("show stat").splitlines()
    column = limit[0].split(",").index("slim")
    row = next(one for one in limit if one.startswith("be,second,"))
    assert row.split(",")[column] == "9"
    wait_until(lambda: pod.heads, "its health is checked")


def test_a_failing_check_takes_an_added_server_out(served: Served) -> None:
    # Not any free port: while it is stopped, a connection of another process might take it.
    pod = served.pods.add("second", "127.0.0.1", free_port())
    served.execute(added(pod, "check", *PLAIN))
    assert "second" in served.answers()
    served.pods.stop("second")
    wait_until(lambda: served.serves("second").operating == 0, "it is down")
    assert served.answers() == {"first"}
    served.pods.start("second")
    wait_until(lambda: served.serves("second").operating == 2, "it is up")
    assert served.answers() == {"first", "second"}


TAKEN_BACK = [
    "check inter 100ms no-check",
    "disabled enabled",
    "ssl verify none no-ssl",
    "backup no-backup",
    "send-proxy no-send-proxy check-ssl no-check-ssl",
    "non-stick stick",
    "agent-check agent-port 1 no-agent-check",
    "no-ssl-reuse ssl-reuse no-tls-tickets tls-tickets tfo no-tfo",
]


def test_words_that_take_others_back_are_not_sent(served: Served) -> None:
    pods = [served.pods.add(f"s{number}", "127.0.0.1", 0) for number in range(len(TAKEN_BACK))]
    for pod, words in zip(pods, TAKEN_BACK, strict=True):
        text = f"backend be\n    default-server {words}\n    server {pod.name} {address_of(pod)}\n"
        (server,) = servers_of(parse(text)[0], Inherited())
        served.execute(server.addition)
    served.execute(added(served.first, "check", "inter", "100ms", name="witness"))
    before = len(served.first.heads)
    wait_until(lambda: len(served.first.heads) > before + 3, "the witness is checked some times")
    assert not any(pod.heads for pod in pods)
    assert served.answers(80) == {"first", *(pod.name for pod in pods)}


def test_an_ipv6_server(served: Served) -> None:
    pod = served.pods.add("six", "::1", 0)
    served.execute(AddServer("be", "six", f"[0:0::1]:{pod.port}", ()))
    assert served.answers() == {"first", "six"}


def test_a_disabled_server_waits(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    served.execute(added(pod, "check", *PLAIN, "disabled"))
    assert served.serves("second").maint
    assert served.answers() == {"first"}
    served.execute(SetState("be", "second", ServerState.READY))
    assert served.answers() == {"first", "second"}
    served.execute(SetState("be", "second", ServerState.MAINT))
    assert served.answers() == {"first"}


def test_weight_0_keeps_a_server_without_new_requests(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    served.execute(added(pod, "weight", "0"))
    assert served.answers() == {"first"}
    served.execute(SetWeight("be", "second", 256), SetWeight("be", "first", 0))
    assert served.answers() == {"second"}


def test_drain_is_a_state(served: Served) -> None:
    served.execute(SetState("be", "first", ServerState.DRAIN))
    assert served.serves("first").drain
    assert served.answers(4) == {"503"}


def test_many_servers_in_one_plan(served: Served) -> None:
    commands: list[Command] = [AddServer("be", f"s{at}", f"127.0.0.1:{at + 1}", ("disabled",)) for at in range(2_500)]
    served.execute(*commands)
    assert len(served.runtime.servers(["be"])) == 2_501
    served.execute(*(RemoveServer("be", f"s{at}", f"127.0.0.1:{at + 1}", ("disabled",)) for at in range(2_500)))
    while served.runtime.leaving:
        served.runtime.reap(60)
    assert [one.name for one in served.runtime.servers(["be"])] == ["first"]


IMPOSSIBLE: list[Command] = [
    AddServer("be", "first", "127.0.0.1:1", ()),
    AddServer("nobody", "second", "127.0.0.1:1", ()),
    AddServer("be", "second", "127.0.0.1:1", ("no-such-word",)),
    AddServer("be", "second", "127.0.0.1:1", ("weight", "1\nset maxconn global 7")),
    AddServer("be", "second", "127.0.0.1:1 ; set maxconn global 7", ()),
    RemoveServer("be", "nobody"),
    SetWeight("be", "nobody", 1),
    SetState("be", "nobody", ServerState.READY),
    AddBackend("late", "nowhere"),
    RemoveBackend("nobody"),
]


def test_what_cannot_be_done_is_told_and_does_no_harm(served: Served) -> None:
    limit = served.ask("show info").partition("\nMaxconn: ")[2].split()[0]
    for weight, command in enumerate(IMPOSSIBLE, start=2):
        with pytest.raises(NotConfirmed):
            served.execute(command)
        assert f"\nMaxconn: {limit}\n" in served.ask("show info"), command
        served.execute(SetWeight("be", "first", weight))
        assert served.serves("first").weight == weight, command


def test_a_backend_that_goes_live_where_haproxy_can(served: Served) -> None:
    pod = served.pods.add("second", "127.0.0.1", 0)
    commands = (AddBackend("late", "base", "http"), added(pod, backend="late", name="one"))
    if not served.runtime.abilities.backends:
        assert "add backend" in served.refusal(*commands)
        return
    served.execute(*commands)
    served.ask(f"add map {served.path('hosts.map')} late late")
    assert served.answers(host="late") == {"second"}
    served.ask(f"del map {served.path('hosts.map')} late")
    served.execute(RemoveBackend("late", (RemoveServer("late", "one", address_of(pod), ()),)))
    wait_until(lambda: _reaped(served) and "late" not in served.ask("show backend"), "the backend is gone")
    served.execute(*commands)
    assert served.serves("one", "late").weight == 1


def _reaped(served: Served) -> bool:
    served.runtime.reap(60)
    return not served.runtime.leaving


def test_a_cookie_on_an_added_server_where_haproxy_can(served: Served) -> None:
    command = added(served.first, "cookie", "c1", name="second")
    if served.runtime.abilities.cookies:
        served.execute(command)
        assert served.serves("second").weight == 1
    else:
        assert "cookie" in served.refusal(command)


def test_abilities_are_those_of_the_version(served: Served) -> None:
    version = tuple(map(int, _version(served)))
    assert served.runtime.abilities == Abilities(
        runtime=True, why="", cookies=version >= (3, 0), backends=version >= (3, 4)
    )


def _version(served: Served) -> list[str]:
    running = served.haproxy.running()
    assert running is not None
    return running.version.split("-")[0].split(".")[:2]


def test_a_socket_without_admin_rights_is_no_runtime_socket(served: Served) -> None:
    runtime = Runtime()
    abilities = runtime.connect([f"{served.haproxy.stats_socket}.operator", "/nowhere/socket"])
    assert not abilities.runtime
    assert "/nowhere/socket" in abilities.why
    assert "level admin" in runtime.connect([f"{served.haproxy.stats_socket}.operator"]).why
    with pytest.raises(NotConfirmed, match="level admin"):
        runtime.execute([SetWeight("be", "first", 5)])
    assert runtime.connect([f"{served.haproxy.stats_socket}.operator", served.haproxy.stats_socket]).runtime
    runtime.execute([SetWeight("be", "first", 5)])
    runtime.close()


def test_what_a_command_cannot_hold_is_not_cut_off(served: Served) -> None:
    words = ["weight", "1"] * (MAX_WORDS // 2)
    longest, longer = (
        servers_of(parse(f"backend be\n    server x 127.0.0.1:1 {' '.join(each)}\n")[0], Inherited())[0]
        for each in (words, [*words, "backup"])
    )
    assert why_not_addable(longest, cookies=False) == ""
    assert "more than 60" in why_not_addable(longer, cookies=False)
    with pytest.raises(NotConfirmed, match="nonsense"):
        served.execute(AddServer("be", "x", "127.0.0.1:1", (*words[1:], "nonsense")))


def test_each_word_that_add_server_does_not_take_is_named() -> None:
    line = "backend be\n    server x 127.0.0.1:1 non-stick cookie x namespace y\n"
    (server,) = servers_of(parse(line)[0], Inherited())
    assert why_not_addable(server, cookies=False) == "add server does not take cookie and namespace and non-stick"
    assert why_not_addable(server, cookies=True) == "add server does not take namespace and non-stick"
