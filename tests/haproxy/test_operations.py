"""Commands in words, each in one line; nothing of a key is ever in them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.runtime.batch import batches, transcript, unfulfilled
from pyconfd.haproxy.runtime.servers_now import ServerNow, checks_now, find_servers, servers_now, wrong_address
from pyconfd.model.operations import (
    AddBackend,
    AddCertificate,
    AddListLines,
    AddMapEntries,
    AddServer,
    ChangeMapEntries,
    Command,
    EmptyBackend,
    FillSpare,
    LeadToSpare,
    RemoveBackend,
    RemoveCertificate,
    RemoveListLines,
    RemoveMapEntries,
    RemoveServer,
    ReplaceMap,
    ServerState,
    SetState,
    SetWeight,
    ShrinkMap,
    SocketLine,
    UpdateCertificate,
)

PEM = "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\na2V5\n"
ENTRIES = tuple((f"h{at}.example.com", "be-a") for at in range(7))
SPARE = FillSpare("be-a", "plain", "spare-plain-1")
LEAD = LeadToSpare("be-a", "spare-plain-1", "/s")
EACH: list[tuple[Command, str]] = [
    (AddBackend("be-a", "plain"), "add backend be-a from plain"),
    (AddBackend("be-a", "plain", "tcp"), "add backend be-a from plain, mode tcp"),
    (SPARE, "add backend be-a from plain: served by spare-plain-1 until the next reload"),
    (replace(SPARE, changed=True), "change backend be-a from plain: served by spare-plain-1 until the next reload"),
    (LEAD, "lead from be-a to spare-plain-1 in map /s"),
    (
        EmptyBackend("be-a", (RemoveServer("be-a", "s1"),)),
        "remove backend be-a with 1 server: drained, it goes with the next reload",
    ),
    (
        RemoveBackend("be-a", (RemoveServer("be-a", "s1"),)),
        "remove backend be-a with 1 server: deleted when its last session has ended",
    ),
    (
        AddServer("be-a", "s1", "192.0.2.1:80", ("check", "weight", "5")),
        "add server be-a/s1 192.0.2.1:80 check weight 5",
    ),
    (
        RemoveServer("be-a", "s1", "192.0.2.1:80"),
        "remove server be-a/s1 (192.0.2.1:80): drained, deleted when its last session has ended",
    ),
    (SetWeight("be-a", "s1", 20), "set server be-a/s1 weight 20"),
    (SetWeight("be-a", "s1", 0), "set server be-a/s1 weight 0 (keeps its sessions, gets no new ones)"),
    (SetState("be-a", "s1", ServerState.MAINT), "set server be-a/s1 state maint"),
    (AddMapEntries("/m", ENTRIES[:1]), "add to map /m: h0.example.com be-a"),
    (ChangeMapEntries("/m", ENTRIES[:2]), "change in map /m: h0.example.com be-a, h1.example.com be-a"),
    (
        RemoveMapEntries("/m", ("a", "b", "c", "d", "e", "f", "g")),
        "remove from map /m: a, b, c, d, e, and 2 more",
    ),
    (ReplaceMap("/m", ENTRIES), "replace map /m: 7 entries, all at once"),
    (ShrinkMap("/m", ENTRIES, 2), "remove 2 entries from map /m, all at once"),
    (UpdateCertificate("/c/a.pem", PEM), "update certificate /c/a.pem"),
    (AddCertificate("/c/a.pem", PEM), "add certificate /c/a.pem"),
    (RemoveCertificate("/c/a.pem"), "remove certificate /c/a.pem"),
    (AddListLines("/c", ("/c/a.pem",)), "add to list /c: /c/a.pem"),
    (RemoveListLines("/l", ("/c/a.pem a.b", "/c/a.pem c.d")), "remove from list /l: /c/a.pem a.b, /c/a.pem c.d"),
]
COMMANDS: list[Command] = [command for command, _ in EACH]


def test_every_command_is_here() -> None:
    assert {type(command).__name__ for command in COMMANDS} == set(counting(Command))


def counting(kind: type) -> Iterator[str]:
    """Return the names of the operations: a dataclass with slots replaces its class, and the former one may be left."""
    below: type
    for below in kind.__subclasses__():
        yield from [below.__name__] if "counted" in vars(below) else []
        yield from counting(below)


MAP = "get map /m h0.example.com"
READ_BACK: list[tuple[Command, int, str, dict[str, str], str]] = [
    (AddBackend("be-a", "plain", "tcp"), 0, "add backend be-a from plain mode tcp", {}, ""),
    (RemoveBackend("be-a"), 4, "unpublish backend be-a", {}, ""),
    (EmptyBackend("be-a", (RemoveServer("be-a", "s1"),)), 4, "set server be-a/s1 state drain", {}, ""),
    (AddServer("be-a", "s1", "192.0.2.1:80"), 1, "add server be-a/s1 192.0.2.1:80", {}, ""),
    (RemoveServer("be-a", "s1"), 3, "set server be-a/s1 state drain", {}, ""),
    (SetWeight("be-a", "s1", 20), 2, "set server be-a/s1 weight 20", {}, ""),
    (SetWeight("be-a", "s1", 0), 3, "set server be-a/s1 weight 0", {}, ""),
    (SetState("be-a", "s1", ServerState.READY), 1, "set server be-a/s1 state ready", {}, ""),
    (SetState("be-a", "s1", ServerState.MAINT), 3, "set server be-a/s1 state maint", {}, ""),
    (AddMapEntries("/m", ENTRIES[:1]), 2, "add map /m h0.example.com be-a", {MAP: 'value="be-a"'}, ""),
    (
        AddMapEntries("/m", ENTRIES[:1]),
        2,
        "add map /m h0.example.com be-a",
        {MAP: 'value="be-b"'},
        "does not give be-a",
    ),
    (ChangeMapEntries("/m", ENTRIES[:1]), 2, "set map /m h0.example.com be-a", {MAP: ""}, "does not give be-a"),
    (RemoveMapEntries("/m", ("h0.example.com",)), 3, "del map /m h0.example.com", {MAP: "found=no"}, ""),
    (
        RemoveMapEntries("/m", ("h0.example.com",)),
        3,
        "del map /m h0.example.com",
        {MAP: 'key="h0.example.com"'},
        "map /m still has h0.example.com",
    ),
    (ReplaceMap("/m", ENTRIES[:1]), 2, "prepare map /m", {"show map /m": "0x1f h0.example.com be-a\n"}, ""),
    (ReplaceMap("/m", ENTRIES[:1]), 2, "prepare map /m", {"show map /m": "0x1f a b\n"}, "has 1 entries, or others"),
    (ShrinkMap("/m", ENTRIES[:1], 1), 3, "prepare map /m", {"show map /m": "0x1f h0.example.com be-a\n"}, ""),
    (UpdateCertificate("/c", PEM), 2, "set ssl cert /c", {"show ssl cert /c": "B4:0F"}, "certificate /c is another"),
    (AddCertificate("/c", PEM), 1, "new ssl cert /c", {"show ssl cert /c": ""}, "certificate /c is another one"),
    (RemoveCertificate("/c"), 4, "del ssl cert /c", {"show ssl cert /c": "Status: Unused"}, "/c is still there"),
    (RemoveCertificate("/c"), 4, "del ssl cert /c", {"show ssl cert /c": "not found"}, ""),
    (AddListLines("/l", ("/c a.b",)), 2, "add ssl crt-list /l", {"show ssl crt-list /l": "/c [] a.b\n"}, ""),
    (AddListLines("/l", ("/c",)), 2, "add ssl crt-list /l /c", {"show ssl crt-list /l": "/d"}, "/l does not have /c"),
    (RemoveListLines("/l", ("/c",)), 3, "del ssl crt-list /l /c", {"show ssl crt-list /l": "/c"}, "/l still has /c"),
    (RemoveListLines("/l", ("/c",)), 3, "del ssl crt-list /l /c", {"show ssl crt-list /l": "/d"}, ""),
]


@pytest.mark.parametrize(("command", "rank", "line", "answers", "why"), READ_BACK)
def test_the_place_the_line_and_the_reading_back_of_a_command(
    command: Command, rank: int, line: str, answers: dict[str, str], why: str
) -> None:
    assert (command.rank, command.socket_lines()[0].shown) == (rank, line)
    assert command.questions() == list(answers)
    assert why in command.unfulfilled(answers)
    assert bool(why) is bool(command.unfulfilled(answers))


@pytest.mark.parametrize(("command", "text"), EACH)
def test_a_command_in_words(command: Command, text: str) -> None:
    assert command.description() == text


CERTIFICATE = PEM.removesuffix("\n")
LINES: list[tuple[Command, list[SocketLine], tuple[str, str, int]]] = [
    (
        AddBackend("be-a", "plain", "tcp"),
        [SocketLine("add backend be-a from plain mode tcp", ("New backend registered",))],
        ("be-a", "added", 0),
    ),
    (SPARE, [], ("be-a", "added", 0)),
    (replace(SPARE, changed=True), [], ("be-a", "changed", 0)),
    (LEAD, [SocketLine("add map /s be-a spare-plain-1")], ("be-a", "", 0)),
    (
        EmptyBackend("be-a", (RemoveServer("be-a", "s1"), RemoveServer("be-a", "s2"))),
        [SocketLine("set server be-a/s1 state drain"), SocketLine("set server be-a/s2 state drain")],
        ("be-a", "removed", 0),
    ),
    (
        RemoveBackend("be-a", (RemoveServer("be-a", "s1"),)),
        [
            SocketLine("unpublish backend be-a", ("Backend unpublished",)),
            SocketLine("set server be-a/s1 state drain"),
        ],
        ("be-a", "removed", 0),
    ),
    (
        AddServer("be-a", "s1", "192.0.2.1:80", ("no-check", "check", "agent-check", "weight", "5")),
        [
            SocketLine(
                "add server be-a/s1 192.0.2.1:80 no-check check agent-check weight 5", ("New server registered",)
            ),
            SocketLine("set server be-a/s1 state ready"),
            SocketLine("enable health be-a/s1"),
            SocketLine("enable agent be-a/s1"),
        ],
        ("be-a", "+ server", 1),
    ),
    (
        AddServer("be-a", "s1", "192.0.2.1:80", ("check", "no-check", "agent-check", "no-agent-check", "disabled")),
        [
            SocketLine(
                "add server be-a/s1 192.0.2.1:80 check no-check agent-check no-agent-check disabled",
                ("New server registered",),
            )
        ],
        ("be-a", "+ server", 1),
    ),
    (RemoveServer("be-a", "s1"), [SocketLine("set server be-a/s1 state drain")], ("be-a", "- server", 1)),
    (SetWeight("be-a", "s1", 20), [SocketLine("set server be-a/s1 weight 20")], ("be-a", " weight", 1)),
    (
        SetState("be-a", "s1", ServerState.MAINT),
        [SocketLine("set server be-a/s1 state maint")],
        ("be-a", " server maint", 1),
    ),
    (
        AddMapEntries("/m/x.map", ENTRIES[:2]),
        [
            SocketLine("add map /m/x.map h0.example.com be-a"),
            SocketLine("add map /m/x.map h1.example.com be-a"),
        ],
        ("x.map", "+ entry", 2),
    ),
    (
        ChangeMapEntries("/m", ENTRIES[:1]),
        [SocketLine("set map /m h0.example.com be-a")],
        ("m", " changed entry", 1),
    ),
    (RemoveMapEntries("/m", ("a", "b")), [SocketLine("del map /m a"), SocketLine("del map /m b")], ("m", "- entry", 2)),
    (
        ReplaceMap("/m", ENTRIES[:2]),
        [
            SocketLine("prepare map /m", ("New version created: ",)),
            SocketLine("add map @VERSION /m <<\nh0.example.com be-a\nh1.example.com be-a\n"),
            SocketLine("commit map @VERSION /m"),
        ],
        ("m", " reloaded entry", 2),
    ),
    (
        UpdateCertificate("/c/a.pem", PEM),
        [
            SocketLine(f"set ssl cert /c/a.pem <<\n{CERTIFICATE}\n", ("Transaction created", "Transaction updated")),
            SocketLine("commit ssl cert /c/a.pem", ("Success!",)),
        ],
        ("a.pem", "renewed", 0),
    ),
    (
        AddCertificate("/c/a.pem", PEM.replace("\n", "\n \n")),
        [
            SocketLine("new ssl cert /c/a.pem", ("New empty certificate store",)),
            SocketLine(f"set ssl cert /c/a.pem <<\n{CERTIFICATE}\n", ("Transaction created", "Transaction updated")),
            SocketLine("commit ssl cert /c/a.pem", ("Success!",)),
        ],
        ("a.pem", "added", 0),
    ),
    (RemoveCertificate("/c/a.pem"), [SocketLine("del ssl cert /c/a.pem", ("deleted!",))], ("a.pem", "removed", 0)),
    (
        AddListLines("/c/l", ("/c/a.pem", "/c/b.pem a.b")),
        [
            SocketLine("add ssl crt-list /c/l /c/a.pem", ("Success!",)),
            SocketLine("add ssl crt-list /c/l <<\n/c/b.pem a.b\n", ("Success!",)),
        ],
        ("l", "+ line", 2),
    ),
    (
        RemoveListLines("/l", ("/c/a.pem a.b",)),
        [SocketLine("del ssl crt-list /l /c/a.pem", ("deleted in crtlist",))],
        ("l", "- line", 1),
    ),
]


@pytest.mark.parametrize(("command", "lines", "counted"), LINES)
def test_all_that_a_command_sends_and_what_has_to_be_answered(
    command: Command, lines: list[SocketLine], counted: tuple[str, str, int]
) -> None:
    assert command.socket_lines() == lines
    assert (command.group(), command.counted, command.number()) == counted


def test_a_backend_takes_traffic_once_it_is_published() -> None:
    assert AddBackend("be-a", "plain").published() == SocketLine("publish backend be-a", ("Backend published",))


@pytest.mark.parametrize(
    ("expected", "answer", "is_refused"),
    [
        (("",), "", False),
        (("",), " \n", False),
        (("",), "No such server.\n", True),
        (("Success!",), "Success!\n", False),
        (("Success!",), "", True),
        (("Transaction created", "Transaction updated"), "Transaction updated for certificate /c!\n", False),
        (("Transaction created", "Transaction updated"), "unable\n", True),
        (("", "Done"), "Done\n", False),
        (("", "Done"), "\n", False),
        (("", "Done"), "else\n", True),
    ],
)
def test_an_answer_has_to_hold_what_is_expected(expected: tuple[str, ...], answer: str, is_refused: bool) -> None:
    assert SocketLine("x", expected).refused(answer) is is_refused


@pytest.mark.parametrize(
    ("sizes", "chunks"),
    [
        ([], []),
        ([8_000], [1]),
        # One entry that is too long by itself goes alone.
        ([8_001], [1]),
        ([8_001, 10], [1, 1]),
        ([4_000, 4_000], [2]),
        ([4_000, 4_001], [1, 1]),
        ([4_000, 4_000, 10], [2, 1]),
        ([10, 8_000, 7_990, 10], [1, 1, 2]),
    ],
)
def test_a_map_is_filled_in_as_few_lines_as_a_buffer_takes(sizes: list[int], chunks: list[int]) -> None:
    # Key, blank, value and line break.
    entries = tuple((f"{number}", "v" * (size - 3)) for number, size in enumerate(sizes))
    *filled, last = ReplaceMap("/m", entries).filled("New version created: 7\n\n")
    assert last == SocketLine("commit map @7 /m")
    heads = [line.text.partition("\n")[0] for line in filled]
    assert heads == ["add map @7 /m <<"] * len(chunks)
    rows = [line.text.split("\n")[1:-1] for line in filled]
    assert [len(each) for each in rows] == chunks
    assert [row for each in rows for row in each] == [f"{key} {value}" for key, value in entries]


@pytest.mark.parametrize(
    ("line", "number"),
    [("/c/a.pem a.b", ":1"), ("/c/a.pem c.d", ":12"), ("/c/a.pem e.f", ":0"), ("/c/b.pem", ""), ("/c/z.pem", "")],
)
def test_of_several_lines_of_a_certificate_each_goes_by_its_number(line: str, number: str) -> None:
    command = RemoveListLines("/l", (line,))
    assert command.first_question() == "show ssl crt-list -n /l"
    answer = "# /l\n/c/a.pem:1 [] a.b\n/c/b.pem:2 []\n/c/a.pem:12 c.d\n"
    path = line.partition(" ")[0]
    assert command.socket_lines(answer) == [SocketLine(f"del ssl crt-list /l {path}{number}", ("deleted in crtlist",))]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("show map /m", True),
        ("add map @1 /m <<\na b\n", True),
        ("add map @1 /m <<\na b\n\nc d\n", False),
        ("add map @1 /m <<\na b", False),
        ("add map @1 /m <<\na\rb\n", False),
        ("a;b", False),
        ("a\nb", False),
        ("", False),
    ],
)
def test_one_command_and_nothing_else_is_safe(text: str, safe: bool) -> None:
    assert SocketLine(text).safe is safe
    assert SocketLine(text).shown == text.partition(" <<\n")[0]


def test_a_key_is_never_shown() -> None:
    shown = [command.description() for command in COMMANDS] + list(transcript(COMMANDS))
    assert not [line for line in shown if "c2VjcmV0" in line or "a2V5" in line or "BEGIN" in line]
    assert any("not shown" in line for line in shown)


def test_the_transcript_has_each_line_of_the_socket_and_publishes_before_a_map_points_there() -> None:
    commands: list[Command] = [AddBackend("b", "plain"), AddServer("b", "s", "192.0.2.1:80"), ReplaceMap("/m", ENTRIES)]
    lines = list(transcript(commands))
    assert lines[0] == commands[0].socket_lines()[0].text
    assert lines[3:6] == ["publish backend b", "prepare map /m", "add map @VERSION /m <<"]
    assert lines[-1] == "commit map @VERSION /m"


def test_a_spare_is_led_to_once_its_servers_are_there() -> None:
    lines = list(transcript([SPARE, AddServer("be-a", "s", "192.0.2.1:80"), LEAD, AddMapEntries("/m", ENTRIES[:1])]))
    assert lines[0] == "add server be-a/s 192.0.2.1:80"
    assert lines[-2:] == ["add map /s be-a spare-plain-1", "add map /m h0.example.com be-a"]
    assert replace(LEAD, is_set=True).socket_lines()[0].text == "set map /s be-a spare-plain-1"
    asked = "get map /s be-a"
    assert LEAD.questions() == [asked]
    assert LEAD.unfulfilled({asked: 'value="spare-plain-1"'}) == ""
    assert "does not lead from be-a to spare-plain-1" in LEAD.unfulfilled({asked: 'value="spare-plain-11"'})
    assert (SPARE.rank, LEAD.rank, replace(LEAD, changed=True).rank) == (0, 2, 3)


def test_requests_for_a_backend_that_serves_are_led_to_a_spare_after_its_servers_were_seen() -> None:
    added, lead = AddServer("be-a", "s", "192.0.2.1:80"), replace(LEAD, changed=True)
    entries = AddMapEntries("/m", ENTRIES[:1])
    assert [*batches([SPARE, added, LEAD, entries])] == [[SPARE, added, LEAD, entries]]
    assert [*batches([SPARE, added, entries, lead, lead])] == [[SPARE, added, entries], [lead, lead]]


def server(backend: str, name: str, address: str = "10.0.0.1", port: int = 80) -> ServerNow:
    return ServerNow(backend, name, address, port, 1, maint=False, drain=False)


@pytest.mark.parametrize(
    ("words", "state", "weight"),
    [
        ((), "ready", 1),
        (("check", "weight", "7"), "ready", 7),
        (("disabled",), "maint", 1),
        (("weight", "0", "disabled"), "maint", 0),
        (("disabled", "enabled"), "ready", 1),
    ],
)
def test_a_server_that_comes_back_is_in_the_state_of_its_line(words: tuple[str, ...], state: str, weight: int) -> None:
    command = AddServer("be", "s", "192.0.2.1:80", words)
    assert [line.text for line in command.revival()] == [
        f"set server be/s state {state}",
        f"set server be/s weight {weight}",
    ]
    assert ("set server be/s state ready" in [line.text for line in command.socket_lines()]) is (state == "ready")


READY, FORCED_MAINT, FORCED_DRAIN = 0, 1, 8
ADDED = AddServer("be", "s", "192.0.2.1:80", ("weight", "5"))
DISABLED = AddServer("be", "s", "192.0.2.1:80", ("weight", "5", "disabled"))


@pytest.mark.parametrize(
    ("commands", "admin_state", "weight", "why"),
    [
        ((ADDED,), READY, 5, ""),
        ((ADDED,), FORCED_MAINT, 5, "server be/s is in the state maint"),
        ((ADDED,), READY, 6, "server be/s has the weight 6"),
        ((DISABLED,), FORCED_MAINT, 5, ""),
        ((DISABLED,), READY, 5, "server be/s is in the state ready"),
        # What comes after the addition counts.
        ((ADDED, SetState("be", "s", ServerState.DRAIN)), FORCED_DRAIN, 5, ""),
        ((ADDED, SetState("be", "s", ServerState.DRAIN)), READY, 5, "server be/s is in the state ready"),
        ((ADDED, SetState("be", "s", ServerState.DRAIN)), FORCED_DRAIN, 6, "server be/s has the weight 6"),
        ((ADDED, SetWeight("be", "s", 0)), READY, 5, "server be/s has the weight 5"),
        ((ADDED, SetWeight("be", "s", 9)), READY, 9, ""),
        ((ADDED, SetWeight("be", "s", 9)), READY, 5, "server be/s has the weight 5"),
        ((RemoveServer("be", "s"),), FORCED_DRAIN, 5, ""),
        ((RemoveServer("be", "s"),), FORCED_MAINT, 5, ""),
        ((RemoveServer("be", "s"),), READY, 5, "server be/s still takes traffic"),
        ((RemoveBackend("be", (RemoveServer("be", "s"),)),), READY, 5, "server be/s still takes traffic"),
        ((RemoveServer("be", "gone"),), READY, 5, ""),
        ((SetWeight("be", "gone", 1),), READY, 5, "server be/gone is not there"),
    ],
)
def test_what_a_server_is_afterwards(commands: tuple[Command, ...], admin_state: int, weight: int, why: str) -> None:
    state = "srv_op_state srv_admin_state srv_uweight srv_time_since_last_change"
    header = f"# be_id be_name srv_id srv_name srv_addr {state} srv_port"
    answer = f"1\n{header}\n3 be 1 s 192.0.2.1 2 {admin_state} {weight} 7 80\n"
    assert unfulfilled(commands, {"show servers state be": answer}) == why


SERVERS = [
    server("shop", "web-1"),
    server("shop", "web-2", "10.0.0.2"),
    server("blog", "web-2", "10.0.0.3"),
    server("blog", "six", "2001:db8::1"),
    server("api", "shop/web-9", "10.0.0.2", 81),
]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("shop/web-2", 1),
        ("web-1", 0),
        ("10.0.0.1", 0),
        ("10.0.0.1:80", 0),
        ("10.0.0.2:81", 4),
        ("2001:db8::1", 3),
        ("[2001:db8::1]:80", 3),
        ("[2001:db8::1]", 3),
    ],
)
def test_a_server_is_found_by_name_or_address(name: str, found: int) -> None:
    assert find_servers(name, SERVERS) == [SERVERS[found]]


@pytest.mark.parametrize("name", ["web-2", "10.0.0.2"])
def test_what_stands_for_several_is_refused_with_the_candidates(name: str) -> None:
    with pytest.raises(RejectedInput, match=r"stands for 2 servers: .*shop/web-2 \(10\.0\.0\.2:80\)") as caught:
        find_servers(name, SERVERS)
    assert "--all" in caught.value.problems[0].remedy
    assert len(find_servers(name, SERVERS, several=True)) == 2


@pytest.mark.parametrize("names", [[], ["s3"], [f"s{number}" for number in range(1, 40, 2)], [*"ab", "s7"] * 20])
def test_servers_of_some_names_are_those_of_all(names: list[str]) -> None:
    columns = "be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight"
    header = f"1\n# {columns} srv_time_since_last_change srv_port\n"
    rows = (f"4 s3 {number} s{number} 10.0.0.{number} 2 0 1 9 80\n" for number in range(1, 60))
    answer = f"{header}{''.join(rows)}cut short\n\n"
    found = [one.name for one in servers_now(answer, names)]
    assert found == [one.name for one in servers_now(answer) if not names or one.name in names]
    assert len(found) == (len({*names} - {"a", "b"}) or 59)


def test_what_health_checks_said() -> None:
    answer = """# pxname,svname,status,check_status,check_code,check_desc,last_chk,
b,a,DOWN,L4CON,,Layer4 connection problem,Connection refused,
b,"t,1",DOWN,L4TOUT,,Layer4 timeout,,
b,n,no check,,,,,

"""
    assert dict(checks_now(answer)) == {("b", "a"): "L4CON Connection refused", ("b", "t,1"): "L4TOUT Layer4 timeout"}
    assert dict(checks_now("No such proxy.\n\n")) == {}
    with pytest.raises(ValueError, match="Unknown command"):
        dict(checks_now("Unknown command: ..."))


def test_many_candidates_are_cut_short() -> None:
    many = [server(f"b{number}", "a") for number in range(30)]
    with pytest.raises(RejectedInput, match=r"stands for 30 servers: .*b9/a .*, and 20 more"):
        find_servers("a", many)


def test_what_does_not_exist_is_refused_with_what_is_like_it() -> None:
    with pytest.raises(RejectedInput, match="no server 'shop/web-3'") as caught:
        find_servers("shop/web-3", SERVERS)
    assert "shop/web-1" in caught.value.problems[0].remedy
    with pytest.raises(RejectedInput, match="no server ''"):
        find_servers("", SERVERS, several=True)


def test_a_pod_is_found_by_its_name() -> None:
    pods = [
        ServerNow("shop", "web-1:10.0.0.1:80", "10.0.0.1", 80, 1, maint=False, drain=False),
        ServerNow("api", "web-1:10.0.0.1:90", "10.0.0.1", 90, 1, maint=False, drain=False),
        ServerNow("api", "web-10:10.0.0.2:90", "10.0.0.2", 90, 1, maint=False, drain=False),
    ]
    assert find_servers("web-10", pods) == [pods[2]]
    assert find_servers("api/web-1", pods) == [pods[1]]
    with pytest.raises(RejectedInput, match="2 servers"):
        find_servers("web-1", pods)


def test_an_address_is_compared_in_any_spelling() -> None:
    now = ServerNow("b", "s", "2001:db8::1", 80, 1, maint=False, drain=False)
    assert [wrong_address(now, target) for target in ("[2001:DB8:0::1]:80", "ipv6@[2001:db8::1]:80")] == ["", ""]
    assert wrong_address(now, "[2001:db8::2]:80") == "has the address 2001:db8::1:80"
