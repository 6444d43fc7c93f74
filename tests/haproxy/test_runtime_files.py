"""Maps and certificates of a real HAProxy, changed while it runs."""

import base64
import ssl
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.haproxy.config.changes import MAX_CERTIFICATE_BYTES, changed_files, entries_of
from pyconfd.haproxy.config.index import index_of
from pyconfd.haproxy.runtime.sockets import RuntimeSocket
from pyconfd.model.operations import (
    AddCertificate,
    AddListLines,
    AddMapEntries,
    ChangeMapEntries,
    Command,
    RemoveCertificate,
    RemoveListLines,
    RemoveMapEntries,
    ReplaceMap,
    SetWeight,
    SocketLine,
    UpdateCertificate,
    fingerprint,
)
from pyconfd.model.rendering import FileKind, OutputFile
from tests.haproxy.serving import Served


def shown(served: Served, path: str) -> str:
    answer = served.ask(f"show ssl cert {path}")
    return answer.partition("SHA1 FingerPrint: ")[2].split("\n")[0]


def der(pem: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem[: pem.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----")])


def test_single_entries(served: Served) -> None:
    path = served.path("hosts.map")
    served.execute(SetWeight("other", "first", 0))
    served.execute(AddMapEntries(path, (("new", "other"), ("newer", "be"))))
    assert served.answers(4, host="new") == {"503"}
    served.execute(ChangeMapEntries(path, (("new", "be"), ("one", "other"))))
    assert served.answers(4, host="new") == {"first"}
    assert served.answers(4, host="one") == {"503"}
    served.execute(RemoveMapEntries(path, ("one", "newer")))
    assert served.answers(4, host="one") == {"first"}
    assert served.entries("hosts.map") == ["two other", "new be"]


def test_entries_of_a_map_of_networks(served: Served) -> None:
    path = served.path("nets.map")
    served.execute(AddMapEntries(path, (("10.1.0.0/16", "deep"), ("10.1.2.3", "deeper"))))
    served.execute(ChangeMapEntries(path, (("10.0.0.0/8", "other"),)))
    served.execute(RemoveMapEntries(path, ("10.1.0.0/16",)))
    assert served.entries("nets.map") == ["10.0.0.0/8 other", "10.1.2.3 deeper"]
    served.execute(ReplaceMap(path, (("2001:DB8::/32", "six"), ("10.0.0.0/8", "x"))))
    assert served.entries("nets.map") == ["2001:DB8::/32 six", "10.0.0.0/8 x"]


def test_what_get_map_does_not_find_is_planned_otherwise(served: Served) -> None:
    path = served.path("nets.map")
    index = index_of(served.haproxy.conf.read_text())
    old, new = ((OutputFile(FileKind.MAP, path, f"10.0.0.0/8 inside\n{more}"),) for more in ("", "2001:db8::/32 six\n"))
    found = changed_files(old, new, index)
    assert [type(command) for command in found.commands] == [ReplaceMap]
    served.execute(*found.commands)
    assert served.entries("nets.map") == ["10.0.0.0/8 inside", "2001:db8::/32 six"]


@pytest.mark.parametrize(
    "command",
    [
        ChangeMapEntries("hosts.map", (("absent", "x"),)),
        RemoveMapEntries("hosts.map", ("absent",)),
        AddMapEntries("hosts.map", (("key", "two words"),)),
        AddMapEntries("hosts.map", (("key", "value\nset maxconn global 7"),)),
        AddMapEntries("absent.map", (("key", "value"),)),
        ReplaceMap("absent.map", (("key", "value"),)),
        ReplaceMap("hosts.map", (("key", "value\n\nset maxconn global 7"),)),
    ],
    ids=str,
)
def test_what_cannot_be_done_to_a_map(
    served: Served, command: AddMapEntries | ChangeMapEntries | RemoveMapEntries | ReplaceMap
) -> None:
    limit = served.ask("show info").partition("\nMaxconn: ")[2].split()[0]
    served.refusal(replace(command, path=served.path(command.path)))
    assert f"\nMaxconn: {limit}\n" in served.ask("show info")
    served.execute(SetWeight("be", "first", 5))


def test_a_map_is_replaced_as_a_whole_in_its_order(served: Served) -> None:
    path = served.path("paths.map")
    entries = tuple((f"/{number * 7919 % 5000:04}/{'x' * (number % 90)}", f"v{number}") for number in range(5_000))
    served.execute(ReplaceMap(path, entries))
    assert served.entries("paths.map") == [" ".join(pair) for pair in entries]
    content = "/b  two   words \n\t/a ünï;code \\ \"quoted\" 'so' <<\n/b again\n# comment\n/c #1\n"
    wanted = entries_of(content)
    assert wanted is not None
    served.execute(ReplaceMap(path, wanted))
    live = served.entries("paths.map")
    served.execute(ReplaceMap(path, ()))
    assert served.entries("paths.map") == []
    # A reload reads the same from the file.
    served.file("paths.map", content)
    served.reload()
    assert served.entries("paths.map") == live == [" ".join(pair) for pair in wanted]


def test_somebody_elses_version_of_a_map_does_no_harm(served: Served) -> None:
    path = served.path("hosts.map")
    served.ask(f"prepare map {path}")
    served.ask(f"add map @1 {path} theirs x")
    served.execute(ReplaceMap(path, (("ours", "be"),)))
    assert served.entries("hosts.map") == ["ours be"]


def test_a_certificate_in_the_place_of_another(served: Served) -> None:
    path, fresh = served.certificate("a"), served.pem("a.example.com")
    served.execute(UpdateCertificate(path, fresh))
    assert shown(served, path) == fingerprint(fresh)
    assert served.presented("a.example.com", served.tls_port) == der(fresh)


@pytest.mark.parametrize("kind", ["directory", "list"])
def test_certificates_come_and_go(served: Served, kind: str) -> None:
    of, port = (served.certificates, served.tls_port) if kind == "directory" else (served.list, served.list_port)
    path, fresh = served.certificate("new"), served.pem("new.example.com")
    before = served.presented("new.example.com", port)
    served.execute(AddCertificate(path, fresh), AddListLines(of, (path,)))
    assert served.presented("new.example.com", port) == der(fresh)
    served.execute(RemoveListLines(of, (path,)), RemoveCertificate(path))
    assert served.presented("new.example.com", port) == before
    assert "Status:" not in served.ask(f"show ssl cert {path}")
    served.execute(AddCertificate(path, fresh), AddListLines(of, (path,)))
    assert served.presented("new.example.com", port) == der(fresh)


def test_one_certificate_has_several_lines_of_a_list(served: Served) -> None:
    path, fresh, port = served.certificate("new"), served.pem("any.example.com"), served.list_port
    lines = tuple(f"{path} {name}.example.com *.{name}.example.com" for name in "xyz")
    served.execute(AddCertificate(path, fresh), AddListLines(served.list, lines))
    served.execute(RemoveListLines(served.list, lines[:1]))
    assert served.presented("x.example.com", port) != der(fresh)
    assert served.presented("y.example.com", port) == served.presented("a.z.example.com", port) == der(fresh)
    served.refusal(RemoveListLines(served.list, lines[:1]))
    served.execute(RemoveListLines(served.list, lines[1:]), RemoveCertificate(path))
    assert served.presented("y.example.com", port) != der(fresh)


def test_blank_lines_of_a_pem_never_reach_the_socket(served: Served) -> None:
    limit = served.ask("show info").partition("\nMaxconn: ")[2].split()[0]
    path, fresh = served.certificate("a"), served.pem("a.example.com")
    certificate, key = fresh.split("-----BEGIN PRIVATE", 1)
    odd = f"\n\n{certificate}\n \t\n\r\nset maxconn global 7\r\n\n\n-----BEGIN PRIVATE{key}\n\nset maxconn global 8\n\n"
    served.execute(UpdateCertificate(path, odd))
    assert shown(served, path) == fingerprint(fresh)
    assert f"\nMaxconn: {limit}\n" in served.ask("show info")


def test_the_longest_certificate_that_is_planned_fits(served: Served) -> None:
    path, fresh = served.certificate("a"), served.pem("a.example.com")
    lines = ["#" * 63] * 400
    padded = fresh + "\n".join(lines)
    padded = padded[: MAX_CERTIFICATE_BYTES - 1] + "\n"
    served.execute(UpdateCertificate(path, padded))
    assert shown(served, path) == fingerprint(fresh)


@pytest.mark.parametrize(
    "pem", ["", "no certificate\n", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "x" * 40_000]
)
def test_what_is_no_certificate_changes_nothing(served: Served, pem: str) -> None:
    path = served.certificate("a")
    before = shown(served, path)
    served.refusal(UpdateCertificate(path, pem))
    assert shown(served, path) == before
    fresh = served.pem("a.example.com")
    served.execute(UpdateCertificate(path, fresh))
    assert shown(served, path) == fingerprint(fresh)


def test_a_key_of_another_certificate_changes_nothing(served: Served) -> None:
    path = served.certificate("a")
    before = shown(served, path)
    certificate = served.pem("a.example.com").partition("-----BEGIN PRIVATE")[0]
    key = served.pem("a.example.com").partition("-----BEGIN PRIVATE")[2]
    served.refusal(UpdateCertificate(path, f"{certificate}-----BEGIN PRIVATE{key}"))
    assert shown(served, path) == before


def test_a_transaction_of_somebody_else_takes_nothing_of_ours(served: Served) -> None:
    path, fresh = served.certificate("a"), served.pem("a.example.com")
    theirs, before = served.listed, shown(served, served.listed)
    with closing(RuntimeSocket(served.haproxy.stats_socket)) as other:
        other.ask([f"set ssl cert {theirs} <<\n{served.pem('listed.example.com')}"])
    assert f"*{theirs}" in served.ask("show ssl cert")
    served.execute(UpdateCertificate(path, fresh))
    assert (shown(served, path), shown(served, theirs)) == (fingerprint(fresh), before)
    assert f"*{theirs}" not in served.ask("show ssl cert")


def test_what_is_not_there_cannot_be_changed_or_removed(served: Served) -> None:
    absent = served.certificate("absent")
    assert "absent" in served.refusal(UpdateCertificate(absent, served.pem("x.example.com")))
    served.refusal(RemoveCertificate(absent))
    served.refusal(RemoveListLines(served.certificates, (absent,)))
    served.refusal(AddCertificate(served.certificate("a"), served.pem("x.example.com")))
    served.refusal(AddListLines(served.list, (absent,)))
    served.refusal(AddListLines("/nowhere", (served.certificate("a"),)))
    served.refusal(UpdateCertificate(f"{absent} x", served.pem("x.example.com")))


text = st.text(max_size=30)


@given(st.lists(st.tuples(text, text), max_size=5), text, text)
def test_whatever_is_sent_is_one_command_or_refused(pairs: list[tuple[str, str]], path: str, pem: str) -> None:
    commands: list[Command] = [
        AddMapEntries(path, tuple(pairs)),
        ChangeMapEntries(path, tuple(pairs)),
        RemoveMapEntries(path, tuple(key for key, _ in pairs)),
        UpdateCertificate(path, pem),
        AddCertificate(path, pem),
        RemoveCertificate(path),
        AddListLines(path, (pem, path)),
        RemoveListLines(path, (pem, path)),
    ]
    lines = [line for command in commands for line in command.socket_lines()]
    lines += ReplaceMap(path, tuple(pairs)).filled("New version created: 1\n")
    for line in lines:
        if line.safe:
            head, payload, content = line.text.partition(" <<\n")
            assert not set(head) & set("\n\r;\\\"'<> \t") - {" "}
            assert not payload or (content.endswith("\n") and "\n\n" not in f"\n{content}")


def test_a_map_file_of_every_shape_is_loaded_as_haproxy_loads_it(served: Served, tmp_path: Path) -> None:
    content = " a 1\n\tb\t2\nc   3  4  \n\n#x 1\n  # y 2\nd 5\r\ne 6 # no comment\n"
    entries = entries_of(content)
    assert entries is not None
    served.execute(ReplaceMap(served.path("paths.map"), entries))
    live = served.entries("paths.map")
    served.file("paths.map", content)
    served.reload()
    assert served.entries("paths.map") == live


@pytest.mark.parametrize("key", ["first.example\xa0x", "first.example\u2003x", "first.example\x85x"])
def test_only_blanks_and_tabs_separate_as_in_a_file(served: Served, key: str) -> None:
    content = f"first.example 1\n{key} 2\n"
    entries = entries_of(content)
    assert entries is not None
    served.execute(ReplaceMap(served.path("paths.map"), entries))
    live = served.entries("paths.map")
    served.file("paths.map", content)
    served.reload()
    assert served.entries("paths.map") == live


@pytest.mark.parametrize("value", ["a\0b", "a\rset maxconn global 7", "\x1b[2J"])
def test_control_characters_are_not_for_the_socket(value: str) -> None:
    assert entries_of(f"key {value}\n") is None


def test_a_carriage_return_alone_ends_no_payload() -> None:
    assert not SocketLine("add map @1 /m <<\na b\n\rset maxconn global 7\n").safe
    assert SocketLine("add map @1 /m <<\na b\n").safe


@pytest.mark.parametrize(("name", "at_runtime"), [(b"shop.example.com", True), (b"x\n> admin\n\n> ", False)])
def test_a_certificate_whose_name_is_a_prompt_is_a_planned_reload(name: bytes, at_runtime: bool) -> None:
    path = "/certs/a.pem"
    index = index_of("frontend f\n    bind :443 ssl crt /certs/z.pem crt /certs/\n")
    body = base64.b64encode(b"0\x82\x01" + name).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
    was, now = (OutputFile(FileKind.CERTIFICATE, path, content) for content in ("former\n", pem))
    found = changed_files((was,), (now,), index)
    assert (bool(found.commands), bool(found.reload_causes)) == (at_runtime, not at_runtime)
