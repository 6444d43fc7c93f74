"""What HAProxy says of its spares, and the names that go over the socket."""

import pytest

from pyconfd.haproxy.config.spares import NO_SPARES, Spares, map_path, spares_of
from pyconfd.model.spares import is_spare_section, spare_kind, spare_section

PATH = "/etc/haproxy/maps/spare-backends.map"
MAPS = f"""# id (file) description
0 (/etc/haproxy/maps/hosts.map) pattern loaded from file '/etc/haproxy/maps/hosts.map' used by map. entry_cnt=0
1 ({PATH}) pattern loaded from file '{PATH}' used by map at file 'x' line 17. entry_cnt=1

"""
BACKENDS = "# name\nbe-a\nspare-http-service-1\nspare-http-service-2\nspare-parts\n\n"
ENTRIES = "0x7f85e804eea0 be-b spare-http-service-2\n\n"
SERVERS = """1
# be_id be_name srv_id srv_name
4 be-a 7 s
5 spare-http-service-2 7 s
"""
SPARES = spares_of(PATH, BACKENDS, ENTRIES, SERVERS)


def test_a_worker_says_which_spares_it_has_and_what_they_serve() -> None:
    assert map_path([BACKENDS, MAPS]) == PATH
    assert SPARES.names == {"spare-http-service-1", "spare-http-service-2"}
    assert SPARES.serving == {"be-b": "spare-http-service-2"}
    assert SPARES.free == {"spare-http-service-1"}
    filled = spares_of(PATH, BACKENDS, "\n", SERVERS)
    assert filled.free == {"spare-http-service-1"}, "it has servers, though nothing leads there"
    assert map_path([BACKENDS, "# id (file) description\n0 (/x/other-spare-backends.map) pattern\n"]) == ""


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("add server be-b/s 10.0.0.1:80 check", "add server spare-http-service-2/s 10.0.0.1:80 check"),
        ("set server be-b/s state drain", "set server spare-http-service-2/s state drain"),
        ("del server be-b/s", "del server spare-http-service-2/s"),
        ("enable health be-b/s", "enable health spare-http-service-2/s"),
        ("disable agent be-b/s", "disable agent spare-http-service-2/s"),
        ("shutdown sessions server be-b/s", "shutdown sessions server spare-http-service-2/s"),
        ("show servers state be-b", "show servers state spare-http-service-2"),
        ("show stat be-b 4 -1", "show stat spare-http-service-2 4 -1"),
        ("add server be-bb/s 10.0.0.1:80", "add server be-bb/s 10.0.0.1:80"),
        ("add server be-a/be-b 10.0.0.1:80", "add server be-a/be-b 10.0.0.1:80"),
        ("show servers state", "show servers state"),
        ("add map /m.map be-b be-b", "add map /m.map be-b be-b"),
        ("show stat -1 4 -1", "show stat -1 4 -1"),
    ],
)
def test_commands_name_the_spare(line: str, sent: str) -> None:
    assert SPARES.sent(line) == sent
    assert NO_SPARES.sent(line) == line


def test_answers_name_the_backend() -> None:
    rows = "4 spare-http-service-2 7 s\n5 spare-http-service-1 7 s\n6 spare-http-service-22 7 s\n"
    named = "4 be-b 7 s\n5 spare-http-service-1 7 s\n6 spare-http-service-22 7 s\n"
    assert SPARES.understood("show servers state", rows) == named
    pod = "4 spare-http-service-2 7 spare-http-service-2 10.0.0.1\n"
    assert SPARES.understood("show servers state be-b", pod) == "4 be-b 7 spare-http-service-2 10.0.0.1\n"
    assert SPARES.understood("show stat -1 4 -1", "be-a,spare-http-service-2,0\n") == "be-a,spare-http-service-2,0\n"
    assert SPARES.understood("show stat -1 4 -1", "spare-http-service-2,s,0\n") == "be-b,s,0\n"
    own = "3 be-b 7 s\n4 spare-http-service-2 7 s\n5 spare-http-service-1 7 old\n"
    again = (
        spares_of(PATH, BACKENDS, "\n", "").using("be-b", "spare-http-service-1").using("be-b", "spare-http-service-2")
    )
    assert again.understood("show servers state", own) == "4 be-b 7 s\n", "what it was served by before is left out"
    frontend = "be-b,FRONTEND,1\nbe-b,BACKEND,1\nspare-http-service-2,BACKEND,2"
    assert again.understood("show stat -1 -1 -1", frontend) == "be-b,FRONTEND,1\nbe-b,BACKEND,2"
    assert SPARES.understood(f"get map {PATH} be-b", 'value="spare-http-service-2"') == 'value="spare-http-service-2"'


def test_what_is_used_or_removed_waits_for_a_reload() -> None:
    fresh = Spares(PATH, SPARES.names)
    assert not fresh
    assert fresh.details == ()
    used = fresh.using("be-c", "spare-http-service-1").without("be-a")
    assert used
    assert used.free == {"spare-http-service-2"}
    assert used.details == ("backend be-c is served by spare-http-service-1", "backend be-a was removed")
    assert used.using("be-a", "spare-http-service-2").details == (
        "backend be-a is served by spare-http-service-2",
        "backend be-c is served by spare-http-service-1",
    ), "it is there again"
    gone = used.without("be-c")
    assert not gone.served
    assert gone.free == {"spare-http-service-2"}, "it is empty only after a reload"
    assert gone.details == ("backend be-a was removed", "backend be-c was removed")
    many = fresh
    for number in range(8):
        many = many.without(f"be-{number}")
    assert many.details[-1] == "and 3 more"


def test_they_are_scarce_where_less_than_a_quarter_of_one_kind_is_free() -> None:
    names = [*(f"spare-a-{number}" for number in range(1, 9)), *(f"spare-b-{number}" for number in range(1, 101))]
    spares = Spares(PATH, frozenset(names))
    assert not spares.are_scarce
    for number in range(1, 7):
        spares = spares.using(f"be-{number}", f"spare-a-{number}")
    assert not spares.are_scarce, "two of eight are a quarter"
    assert spares.using("be-7", "spare-a-7").are_scarce, "though there are many of another kind"


@pytest.mark.parametrize(
    ("text", "is_spare"),
    [
        (spare_section("http-service", 3), True),
        (spare_section("http-service", 3) + "\n\n", True),
        (spare_section("http-service", 3) + "\n# what follows\n", True),
        (spare_section("http-service", 3) + "    server s 10.0.0.1:80\n", False),
        ("backend spare-pool-1\n", False),
        ("backend spare-pool-1 from other\n", False),
        ("backend spare-pool from pool\n", False),
        ("frontend spare-pool-1 from pool\n", False),
        ("", False),
    ],
)
def test_a_spare_is_a_header_of_its_own_form_and_nothing_else(text: str, *, is_spare: bool) -> None:
    assert is_spare_section(text) is is_spare


def test_the_name_says_what_a_spare_is_from() -> None:
    assert spare_kind("spare-a-b.c_d-12") == "a-b.c_d"
    assert spare_kind("spare-12") == ""
    assert spare_kind("my-spare-a-12") == ""


def test_spares_of_a_kind_are_taken_by_their_numbers_and_once() -> None:
    names = frozenset({*(f"spare-http-service-{number}" for number in (10, 2, 1, 9)), "spare-plain-1"})
    spares = Spares("/maps/spare-backends.map", names, used=frozenset({"spare-http-service-2"}))
    assert [*spares.free_of("http-service")] == [f"spare-http-service-{number}" for number in (1, 9, 10)]
    assert [*spares.free_of("plain")] == ["spare-plain-1"]
    assert [*spares.free_of("other")] == []
