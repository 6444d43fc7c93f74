"""Commands in words, each in one line; nothing of a key is ever in them."""

import typing
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.haproxy.runtime.operations import described, lines_of, reason_text, summarised, transcript
from pyconfd.model.plan import (
    AddBackend,
    AddCertificate,
    AddMapEntries,
    AddServer,
    ChangeMapEntries,
    Command,
    ReloadReason,
    RemoveBackend,
    RemoveCertificate,
    RemoveMapEntries,
    RemoveServer,
    ReplaceMap,
    ServerState,
    SetState,
    SetWeight,
    UpdateCertificate,
)

PEM = "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\na2V5\n"
ENTRIES = tuple((f"h{at}.example.com", "be-a") for at in range(7))
EACH: list[tuple[Command, str]] = [
    (AddBackend("be-a", "plain"), "add backend be-a from plain"),
    (AddBackend("be-a", "plain", "tcp"), "add backend be-a from plain, mode tcp"),
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
    (ReplaceMap("/m", ENTRIES), "load map /m anew: 7 entries, all at once"),
    (UpdateCertificate("/c/a.pem", PEM), "update certificate /c/a.pem"),
    (AddCertificate("/c", "/c/a.pem", PEM), "add certificate /c/a.pem to /c"),
    (RemoveCertificate("/c", "/c/a.pem"), "remove certificate /c/a.pem from /c"),
]
COMMANDS: list[Command] = [command for command, _ in EACH]


def test_every_command_is_here() -> None:
    assert {type(command) for command in COMMANDS} == set(typing.get_args(Command))


@pytest.mark.parametrize(("command", "text"), EACH)
def test_a_command_in_words(command: Command, text: str) -> None:
    assert described(command) == text


def test_a_key_is_never_shown() -> None:
    shown = [described(command) for command in COMMANDS] + list(transcript(COMMANDS)) + [summarised(COMMANDS[:])]
    assert not [line for line in shown if "c2VjcmV0" in line or "a2V5" in line or "BEGIN" in line]
    assert any("not shown" in line for line in shown)


def test_a_summary_counts_by_kind_in_the_order_of_the_plan() -> None:
    commands: list[Command] = [
        *(AddServer("b", name, "192.0.2.1:80") for name in ("x", "y")),
        SetWeight("b", "z", 0),
        AddMapEntries("/m", ENTRIES[:3]),
        RemoveServer("b", "w"),
    ]
    assert summarised(commands) == "2 servers added, 1 weight set, 3 map entries added, 1 server removed"
    assert summarised(()) == ""


def test_every_kind_has_a_summary() -> None:
    for command, _ in EACH:
        assert summarised([command])[0].isdigit()


def test_the_transcript_has_each_line_of_the_socket_and_publishes_before_a_map_points_there() -> None:
    commands: list[Command] = [AddBackend("b", "plain"), AddServer("b", "s", "192.0.2.1:80"), ReplaceMap("/m", ENTRIES)]
    lines = list(transcript(commands))
    assert lines[0] == lines_of(commands[0])[0].text
    assert lines[3:6] == ["publish backend b", "prepare map /m", "add map @VERSION /m <<"]
    assert lines[-1] == "commit map @VERSION /m"


def test_reasons_are_words() -> None:
    for reason in ReloadReason:
        assert reason_text(reason).replace(" ", "").isalpha()


plain = st.text("abcdefgh-._:/", min_size=1, max_size=12)


@given(st.lists(st.tuples(plain, plain), max_size=20))
def test_a_line_is_one_line(entries: list[tuple[str, str]]) -> None:
    for kind in (AddMapEntries, ChangeMapEntries, ReplaceMap):
        assert [field.name for field in fields(kind)] == ["path", "entries"]
        assert "\n" not in described(kind("/m", tuple(entries)))
