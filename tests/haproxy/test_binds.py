from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pyconfd.errors import Problem
from pyconfd.haproxy.config.binds import addresses_and_ports, judge
from pyconfd.haproxy.config.text import Bind, binds
from pyconfd.model.listener import Listener
from pyconfd.model.snapshot import HostFacts, ListeningSocket

HERE = frozenset({"10.0.0.1", "127.0.0.1", "::1", "2001:db8::1"})


def wanted(*written: str) -> tuple[Bind, ...]:
    return binds("".join(f"frontend f{number}\n    bind {one}\n" for number, one in enumerate(written)))


def judged(new: Sequence[Bind], current: Sequence[Bind], host: HostFacts, **more: Any) -> tuple[Problem, ...]:
    return tuple(fault.problem for fault in judge(new, current, host, **more))


def contested(new: Sequence[Bind], current: Sequence[Bind], host: HostFacts) -> Mapping[Listener, str]:
    return {key: owner for fault in reversed(judge(new, current, host)) for key, owner in fault.unavailable.items()}


def facts(*listening: ListeningSocket, **changes: Any) -> HostFacts:
    return replace(HostFacts(addresses=HERE, listening=listening), **changes)


AT_RANDOM = "connections would go to either at random"


@pytest.mark.parametrize(
    ("written", "host", "may_bind_low_ports", "message"),
    [
        (("10.0.0.9:80",), {}, True, "bind 10.0.0.9:80 of frontend f0: the address 10.0.0.9 is not on this host"),
        (
            ("*:80",),
            {"listening": (ListeningSocket("0.0.0.0", 80),)},
            True,
            "bind *:80 of frontend f0: port 80 is taken by another process on 0.0.0.0",
        ),
        (("*:80",), {}, False, "bind *:80 of frontend f0: haproxy may not bind ports below 1024"),
        (
            ("*:8080", "*:8080"),
            {},
            True,
            f"bind *:8080 of frontend f1: also bound by frontend f0 (x.conf line 102): {AT_RANDOM}",
        ),
    ],
)
def test_each_problem_names_fragment_and_line(
    written: Sequence[str], host: dict[str, Any], may_bind_low_ports: bool, message: str
) -> None:
    def place_of(line: int) -> tuple[str, int]:
        return "x.conf", line + 100

    new = wanted(*written)
    [found] = judged(new, (), facts(**host), place_of=place_of, may_bind_low_ports=may_bind_low_ports)
    line = new[-1].number + 100
    assert (found.place, found.message, found.piece) == (f"x.conf line {line}", message, "x.conf")
    assert found.clues.lines == (("x.conf", line),)
    [without] = judged(new, (), facts(**host), may_bind_low_ports=may_bind_low_ports)
    assert (without.place, without.piece, without.clues.lines) == (f"line {new[-1].number}", "", ())


@pytest.mark.parametrize(
    ("written", "taken", "conflict"),
    [
        ("*:80", "0.0.0.0", True),
        ("*:80", "10.0.0.1", True),
        ("10.0.0.1:80", "0.0.0.0", True),
        ("10.0.0.1:80", "10.0.0.1", True),
        ("10.0.0.1:80", "127.0.0.1", False),
        ("*:80", "::", True),
        ("*:80", "::1", False),
        ("10.0.0.1:80", "::", True),
        ("[::]:80", "0.0.0.0", True),
        ("[::]:80", "127.0.0.1", True),
        ("[::]:80 v6only", "0.0.0.0", False),
        ("[::1]:80", "0.0.0.0", False),
        ("[::1]:80", "::", True),
        ("[::]:80 v6only", "2001:db8::1", True),
        ("10.0.0.1:70-90", "10.0.0.1", True),
        ("10.0.0.1:80-90", "10.0.0.1", True),
        ("10.0.0.1:70-80", "10.0.0.1", True),
        ("10.0.0.1:81-90", "10.0.0.1", False),
        ("10.0.0.1:70-79", "10.0.0.1", False),
    ],
)
def test_a_port_that_somebody_has(written: str, taken: str, conflict: bool) -> None:
    problems = judged(wanted(written), (), facts(ListeningSocket(taken, 80, "nginx (pid 7)")))
    assert bool(problems) is conflict
    if problems:
        assert f"port 80 is taken by nginx (pid 7) on {taken}" in problems[0].message
        assert "ss -ltnp" in problems[0].remedy


def test_a_socket_for_ipv6_only_leaves_ipv4_alone() -> None:
    assert judged(wanted("*:80"), (), facts(ListeningSocket("::", 80, "nginx", v6only=True))) == ()


def test_what_the_running_configuration_holds_is_not_judged_again() -> None:
    listening = ListeningSocket("0.0.0.0", 80)
    assert judged(wanted("*:80"), wanted("*:80"), facts(listening)) == ()
    assert judged(wanted("192.0.2.1:80"), wanted("192.0.2.1:80"), facts()) == ()
    assert addresses_and_ports(wanted("*:80", "10.0.0.1:81-82"), wanted("*:80")) == (
        frozenset({"10.0.0.1"}),
        frozenset({81, 82}),
    )


@pytest.mark.parametrize(
    ("written", "held", "is_held"),
    [
        ("10.0.0.1:80", "10.0.0.1:80-81", True),
        ("10.0.0.1:81", "10.0.0.1:80-81", True),
        ("10.0.0.1:80-81", "10.0.0.1:80-81", True),
        ("10.0.0.1:79-81", "10.0.0.1:80-81", False),
        ("10.0.0.1:80-82", "10.0.0.1:80-81", False),
        ("10.0.0.1:80", "10.0.0.2:80-81", False),
        ("10.0.0.1:80", "10.0.0.1:80-81 interface eth0", False),
        ("10.0.0.1:80", "10.0.0.1:80 interface eth0", False),
        ("10.0.0.1:80", "10.0.0.1:81", False),
    ],
)
def test_a_range_that_is_held_holds_what_is_within_it(written: str, held: str, is_held: bool) -> None:
    addresses, ports = addresses_and_ports(wanted(written), wanted(held))
    (bind,) = wanted(written)
    asked = frozenset(range(bind.first_port, bind.last_port + 1))
    assert (addresses, ports) == ((frozenset(), frozenset()) if is_held else ({"10.0.0.1"}, asked))


@pytest.mark.parametrize(
    ("socket", "held", "is_ours"),
    [
        (ListeningSocket("10.0.0.1", 80), "10.0.0.1:80", True),
        (ListeningSocket("10.0.0.1", 80), "10.0.0.1:80-90", True),
        (ListeningSocket("10.0.0.1", 80), "10.0.0.1:70-80", True),
        (ListeningSocket("10.0.0.1", 80), "10.0.0.1:70-79", False),
        (ListeningSocket("10.0.0.1", 80), "10.0.0.1:81-90", False),
        (ListeningSocket("10.0.0.1", 80), "10.0.0.2:70-90", False),
        # That it is of somebody else is known.
        (ListeningSocket("10.0.0.1", 80, "nginx"), "10.0.0.1:80", False),
    ],
)
def test_a_socket_of_our_own_takes_nothing(socket: ListeningSocket, held: str, is_ours: bool) -> None:
    assert (judged(wanted("*:80"), wanted(held), facts(socket)) == ()) is is_ours


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("*:80-82", "*:82-84", [82]),
        ("*:80-82", "*:83-84", []),
        ("*:82-84", "*:80-82", [82]),
        ("*:80-90", "*:84-85", [84, 85]),
        ("*:84", "*:80-84", [84]),
        ("10.0.0.1:80", "*:80", []),
    ],
)
def test_ports_that_two_proxies_share(first: str, second: str, shared: list[int]) -> None:
    found = judge(wanted(first, second), (), facts())
    why = "frontend f0 and frontend f1 of the rendered text both listen on 0.0.0.0"
    assert [dict(fault.unavailable) for fault in found] == (
        [{Listener("0.0.0.0", port): f"{why}:{port}" for port in shared}] if shared else []
    )


def test_the_first_port_that_haproxy_may_bind() -> None:
    for port, is_low in ((1023, True), (1024, False)):
        (fault,) = judge(wanted(f"10.0.0.1:{port}"), (), facts(), may_bind_low_ports=False) or (None,)
        assert (fault is not None) is is_low
    (fault,) = judge(wanted("10.0.0.1:79"), (), facts(unprivileged_port_start=80), may_bind_low_ports=False)
    message = "haproxy may not bind ports below 80"
    remedy = "give its unit AmbientCapabilities=CAP_NET_BIND_SERVICE, or use a higher port"
    assert fault.problem == Problem("line 2", f"bind 10.0.0.1:79 of frontend f0: {message}", remedy)
    assert fault.unavailable == {Listener("10.0.0.1", 79): message}


def test_a_wider_bind_beside_our_own_is_no_conflict_with_ourselves() -> None:
    """Whose socket it is may not be visible to an unprivileged pyconfd."""
    assert judged(wanted("*:80"), wanted("10.0.0.1:80"), facts(ListeningSocket("10.0.0.1", 80))) == ()
    assert judged(wanted("*:80"), wanted("10.0.0.1:80"), facts(ListeningSocket("127.0.0.1", 80))) != ()


@pytest.mark.parametrize(
    ("written", "changes", "absent"),
    [
        ("10.0.0.1:80", {}, False),
        ("10.0.0.2:80", {}, True),
        ("10.0.0.2:80 transparent", {}, False),
        ("10.0.0.2:80", {"nonlocal_bind_v4": True}, False),
        ("10.0.0.2:80", {"nonlocal_bind_v6": True}, True),
        ("[2001:db8::2]:80", {}, True),
        ("[2001:db8::2]:80", {"nonlocal_bind_v6": True}, False),
        ("*:80", {}, False),
        ("[::]:80", {}, False),
        ("some.host:80", {}, False),
        ("${HERE}:80", {}, False),
    ],
)
def test_an_address_that_is_not_here(written: str, changes: dict[str, bool], absent: bool) -> None:
    problems = judged(wanted(written), (), facts(**changes))
    assert bool(problems) is absent
    if problems:
        assert "not on this host" in problems[0].message
        assert "ip_nonlocal_bind" in problems[0].remedy


def test_what_this_host_cannot_bind_is_named_by_listener() -> None:
    found = contested(wanted("10.0.0.2:80-81", "10.0.0.1:90"), (), facts())
    assert set(found) == {Listener("10.0.0.2", 80), Listener("10.0.0.2", 81)}
    assert {each for each in found.values() if "not on this host" in each} == set(found.values())
    low = {
        key: why
        for fault in judge(wanted("10.0.0.1:90", "10.0.0.1:9000"), (), facts(), may_bind_low_ports=False)
        for key, why in fault.unavailable.items()
    }
    assert list(low) == [Listener("10.0.0.1", 90)]


def test_two_proxies_on_one_socket_are_told_with_their_fragments() -> None:
    problems = judged(wanted("*:6379", "0.0.0.0:6379"), (), facts(), place_of=lambda line: ("04-redis.tmpl", line))
    assert len(problems) == 1
    assert problems[0].place == "04-redis.tmpl line 4"
    assert "frontend f1: also bound by frontend f0 (04-redis.tmpl line 2)" in problems[0].message


def test_two_proxies_on_one_socket_are_told_even_if_it_runs_that_way_already() -> None:
    same = wanted("*:80", "*:80")
    assert judged(same, same, facts()) != ()


@pytest.mark.parametrize(
    "written",
    [
        ("*:80", "10.0.0.1:80"),
        ("*:80", "[::]:80"),
        ("*:80", "*:81"),
        ("*:80 interface eth0", "*:80 interface eth1"),
    ],
)
def test_binds_that_the_kernel_tells_apart_are_fine(written: tuple[str, str]) -> None:
    assert judged(wanted(*written), (), facts()) == ()


def test_overlapping_ranges_of_two_proxies() -> None:
    assert len(judged(wanted("*:80-90", "*:85"), (), facts())) == 1


def test_what_lies_between_hides_no_socket_that_two_proxies_share() -> None:
    own = binds("frontend a\n bind *:80-90\n bind *:81\nfrontend b\n bind *:85\n")
    assert len(judged(own, (), facts())) == 1
    found = judge(wanted("*:80-90", "*:81", "*:85"), (), facts())
    assert [[each.port for each in fault.unavailable] for fault in found] == [[81], [85]]


def test_one_proxy_may_repeat_itself() -> None:
    assert judged(binds("frontend f\n bind :80\n bind :80\n"), (), facts()) == ()


def test_ports_that_haproxy_may_not_bind() -> None:
    assert judged(wanted("*:80"), (), facts(), may_bind_low_ports=True) == ()
    (problem,) = judged(wanted("*:80"), (), facts(), may_bind_low_ports=False)
    assert "may not bind ports below 1024" in problem.message
    assert judged(wanted("*:8080"), (), facts(), may_bind_low_ports=False) == ()


NGINX = ListeningSocket("10.0.0.1", 80, "nginx (pid 7)")


def test_who_has_what_is_asked_for_is_told_for_each_address_and_port() -> None:
    found = contested(wanted("*:80", "127.0.0.1:80", "10.0.0.1:79-81", "*:82"), (), facts(NGINX))
    owner = "nginx (pid 7) of this machine listens on 10.0.0.1:80"
    assert found == {Listener("0.0.0.0", 80): owner, Listener("10.0.0.1", 80): owner}


def test_what_is_held_already_is_not_contested() -> None:
    assert contested(wanted("10.0.0.1:80"), wanted("10.0.0.1:80"), facts(NGINX)) == {}
    assert contested(wanted("10.0.0.1:80"), wanted("10.0.0.1:70-90"), facts(NGINX)) == {}
    assert contested(wanted("10.0.0.1:80 interface eth0"), wanted("10.0.0.1:80"), facts(NGINX)) != {}


def test_what_two_proxies_ask_for_is_contested() -> None:
    found = contested(wanted("*:80-82", "*:82-83", "10.0.0.1:80"), (), facts())
    assert list(found) == [Listener("0.0.0.0", 82)]
    assert "frontend f0 and frontend f1" in found[Listener("0.0.0.0", 82)]


def test_what_cannot_be_told_is_contested_by_nobody() -> None:
    assert contested(wanted("some.host:80", "${HERE}:80"), (), facts(NGINX)) == {}
