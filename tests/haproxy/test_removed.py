# ruff: noqa: E501 - a table of lines of haproxy.cfg reads best with a line each
import re
import subprocess
from pathlib import Path

import pytest

from pyconfd.haproxy.config.removed import REMOVED, Removed, find_in_lines
from tests.world.haproxy import BINARY

PROXIES = """\
defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
"""
FRONTEND = "frontend f\n    bind 127.0.0.1:{port}\n"

# Section, line, what means exactly the same ([]: remove the line; None: nothing does, and a word of the suggestion).
CASES: list[tuple[str, str, list[str] | str]] = [
    ("frontend", r"reqadd X-Forwarded-Proto:\ http", ["http-request add-header X-Forwarded-Proto http"]),
    ("frontend", r"reqadd X-Forwarded-Proto:\ https if { ssl_fc }", ["http-request add-header X-Forwarded-Proto https if { ssl_fc }"]),
    ("frontend", r"reqadd X-Note:\ 100%\ sure\ it's", "http-request set-header"),
    ("frontend", r"reqadd X-Note:\ 100%\ sure\ it\'s", ['''http-request add-header X-Note "100%% sure it's"''']),
    ("frontend", 'reqadd "X-A: ${HOME}"', "http-request set-header"),
    ("frontend", 'reqadd "X-A: b"', ["http-request add-header X-A b"]),
    ("frontend", r"reqadd Cookie:\ a=b", ["http-request add-header Cookie a=b"]),
    ("frontend", r"reqadd Connection:\ close", "http-request set-header"),
    ("frontend", r"reqadd X-A:\ b\r\nX-C:\ d", "http-request set-header"),
    ("frontend", "reqadd nonsense", "http-request set-header"),
    ("frontend", "reqadd X-A:", "http-request set-header"),
    ("frontend", r"rspadd Strict-Transport-Security:\ max-age=31536000;\ preload", ["http-response add-header Strict-Transport-Security 'max-age=31536000; preload'"]),
    ("backend", r"rspadd Set-Cookie:\ a=b unless { res.hdr(X) y }", ["http-response add-header Set-Cookie a=b unless { res.hdr(X) y }"]),
    ("frontend", r"reqdel ^X-Forwarded-For:.*", "http-request del-header"),
    ("frontend", r"reqidel ^X-Forwarded-For:", ["http-request del-header X-Forwarded-For"]),
    ("frontend", r"reqidel ^X-Forwarded-For:.*$", ["http-request del-header X-Forwarded-For"]),
    ("frontend", r"reqidel ^X-Forwarded-For:\ .*", "http-request del-header"),
    ("frontend", r"reqidel ^X-Forwarded-.*:.*", "http-request del-header"),
    ("frontend", r"reqidel X-Forwarded-For:.*", "http-request del-header"),
    ("frontend", r"rspdel ^Server:.* if { always_true }", "http-response del-header"),
    ("frontend", r"rspidel ^Server:.*", ["http-response del-header Server"]),
    ("frontend", r"reqrep ^Host:\ (.*)\.old$ Host:\ \1.new", "http-request replace-header"),
    ("frontend", r"reqirep ^Host:\ old Host:\ new", "http-request replace-header"),
    ("backend", r"reqrep ^([^\ :]*)\ /static/(.*) \1\ /\2", "http-request replace-pathq"),
    ("frontend", r"rsprep ^Location:\ http://(.*) Location:\ https://\1", "http-response replace-header"),
    ("frontend", r"rspirep ^Server:.* Server:\ none", "http-response replace-header"),
    ("frontend", r"reqdeny ^User-Agent:\ bad", "req.fhdr(NAME)"),
    ("frontend", r"reqideny ^User-Agent:\ bad if { path_beg / } or { path_end x }", "req.fhdr(NAME)"),
    ("frontend", r"reqallow ^Host:\ a$", "http-request allow"),
    ("frontend", r"reqiallow ^Host:\ a", "http-request allow"),
    ("frontend", r"reqtarpit ^Host:\ a", "http-request tarpit"),
    ("frontend", r"reqitarpit ^Host:\ a", "http-request tarpit"),
    ("frontend", "reqpass ^Host", "remove the line"),
    ("frontend", "reqipass ^Host", "remove the line"),
    ("frontend", "reqsetbe ^Host f", "use_backend"),
    ("frontend", "reqisetbe ^Host f", "use_backend"),
    ("frontend", r"rspdeny ^Content-Type:\ x", "res.fhdr(NAME)"),
    ("frontend", r"rspideny ^Content-Type:\ x", "res.fhdr(NAME)"),
    ("frontend", "block if { path /x } || { path /y }", ["http-request deny if { path /x } || { path /y }"]),
    ("backend", "redispatch", ["option redispatch"]),
    ("frontend", "clitimeout 50000", ["timeout client 50000"]),
    ("backend", "srvtimeout 50s", ["timeout server 50s"]),
    ("backend", "contimeout 5000", ["timeout connect 5000"]),
    ("frontend", "timeout clitimeout 3s", ["timeout client 3s"]),
    ("backend", "timeout srvtimeout 3s", ["timeout server 3s"]),
    ("backend", "timeout contimeout 3s", ["timeout connect 3s"]),
    ("frontend", "cliexp a b", "http-request replace-header"),
    ("frontend", "srvexp a b", "http-response replace-header"),
    ("frontend", "option forceclose", "option httpclose"),
    ("frontend", "option http-tunnel", "remove the line"),
    ("defaults", "option http-use-htx", []),
    ("defaults", "no option http-use-htx", "nothing else"),
    ("backend", "option http_proxy", "set-dst"),
    ("backend", "option independant-streams", ["option independent-streams"]),
    ("backend", "no option independant-streams", ["no option independent-streams"]),
    ("frontend", "monitor-net 127.0.0.0/8", "http-request return"),
    ("frontend", "mode health", "http-request return"),
    ("frontend", "grace 0", "remove the line"),
    ("backend", "appsession JSESSIONID len 52 timeout 3h", "stick on"),
    ("global", "nbproc 1", []),
    ("global", "nbproc 4", "maxconn"),
    ("global", "tune.chksize 16384", "tune.bufsize"),
    ("global", "debug", "-d"),
    ("global", "nosepoll", "noepoll"),
]  # fmt: skip

LATER: list[tuple[str, str, tuple[int, int], list[str] | str]] = [
    ("frontend", "bind-process all", (2, 7), []),
    ("frontend", "bind-process even", (2, 7), "remove the line"),
    ("global", "stats bind-process 1", (2, 7), []),
    ("frontend", "bind 127.0.0.1:{port} process 1 name x", (2, 7), "thread"),
    ("global", "stats socket {tmp}/s mode 600 process 1", (2, 7), "process"),
    ("backend", r"option httpchk GET /up HTTP/1.1\r\nHost:\ a.b", (3, 0), ["option httpchk", "http-check send meth GET uri /up ver HTTP/1.1 hdr Host a.b"]),
    ("backend", r"option httpchk GET /up HTTP/1.1\r\nX-A:\ Xb%X\t\r\nB:c", (3, 0), ["option httpchk", "http-check send meth GET uri /up ver HTTP/1.1 hdr X-A 'Xb%%X' hdr B c"]),
    ("backend", r"option httpchk GET /up HTTP/1.1\r\nHost", (3, 0), "http-check send"),
]  # fmt: skip


def configuration(section: str, lines: list[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    frontend = FRONTEND.format(port=1)
    match section:
        case "global":
            return f"global\n{body}{PROXIES}{frontend}"
        case "defaults":
            return f"{PROXIES}{body}{frontend}"
        case "frontend":
            return f"{PROXIES}{frontend}{body}"
        case _:
            return f"{PROXIES}{frontend}    default_backend b\nbackend b\n{body}    server s 127.0.0.1:1\n"


def check(text: str, folder: Path) -> tuple[int, str]:
    (folder / "t.cfg").write_text(text)
    command = [BINARY, "-c", "-f", str(folder / "t.cfg")]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    return done.returncode, "".join(line for line in done.stderr.splitlines(keepends=True) if "[NOTICE]" not in line)


def found_in(text: str) -> list[Removed]:
    return list(find_in_lines(text.split("\n")))


@pytest.mark.parametrize(("section", "line", "expected"), CASES)
def test_only_what_is_exact_is_a_replacement(section: str, line: str, expected: list[str] | str) -> None:
    (found,) = found_in(configuration(section, [line]))
    assert line == found.text
    says(str(found.replacement), expected)


def says(remedy: str, expected: list[str] | str) -> None:
    if isinstance(expected, str):
        assert remedy.startswith("no line means exactly the same; ")
        assert expected in remedy
    elif expected:
        assert remedy.removeprefix("write: ").split("  and  ") == expected
    else:
        assert remedy.startswith("remove the line")


@pytest.mark.haproxy
@pytest.mark.parametrize(("section", "line", "expected"), CASES)
def test_haproxy_refuses_the_line_and_takes_its_replacement(
    section: str, line: str, expected: list[str] | str, tmp_path: Path
) -> None:
    code, output = check(configuration(section, [line]), tmp_path)
    assert code == 1
    assert "[ALERT]" in output
    if not isinstance(expected, str):
        assert check(configuration(section, expected), tmp_path) == (0, "")


@pytest.mark.parametrize(("section", "line", "since", "expected"), LATER)
def test_what_later_versions_removed_is_found_with_their_number(
    section: str, line: str, since: tuple[int, int], expected: list[str] | str
) -> None:
    (found,) = found_in(configuration(section, [line]))
    assert found.since == since
    says(str(found.replacement), expected)


@pytest.mark.haproxy
@pytest.mark.parametrize(("section", "line", "since", "expected"), LATER)
def test_haproxy_takes_the_replacement_of_what_later_versions_removed(
    section: str, line: str, since: tuple[int, int], expected: list[str] | str, tmp_path: Path
) -> None:
    if not isinstance(expected, str):
        lines = [one.format(port=2, tmp=tmp_path) for one in expected]
        assert check(configuration(section, lines), tmp_path) == (0, "")
    code, output = check(configuration(section, [line.format(port=2, tmp=tmp_path)]), tmp_path)
    installed = re.search(r"version (\d+)\.(\d+)", subprocess.check_output([BINARY, "-v"], text=True))
    assert installed
    if (int(installed[1]), int(installed[2])) >= since:
        assert code == 1
        assert "[ALERT]" in output


A, D, R = r"reqadd X:\ y", r"reqidel ^X:", "http-request set-header X y"


@pytest.mark.parametrize(
    ("lines", "exact"),
    [
        ([R, D, A, A], [D, A, A]),
        (["block", R, D, A], ["block", D, A]),
        ([A, R], []),
        ([A, D], []),
        ([D, R], []),
        ([R, "block"], []),
        ([A, "block"], []),
        ([r"reqrep a b", A], [A]),
        ([A, r"reqrep a b"], []),
        (["http-request allow", A], []),
        (['"http-request" allow', A], []),
        ([A, "http-response allow"], [A]),
        (["http-response allow", r"rspadd X:\ y"], []),
        ([A, "backend b", R], [A]),
    ],
)
def test_a_replacement_keeps_the_order_of_the_rules(lines: list[str], exact: list[str]) -> None:
    found = find_in_lines(["frontend f", *lines])
    assert [each.text for each in found if each.replacement.is_exact] == exact


def test_in_a_loop_the_last_rule_comes_before_the_first() -> None:
    assert [each.replacement.is_exact for each in find_in_lines(["frontend f", R, A], repeated=True)] == [False]
    assert [each.replacement.is_exact for each in find_in_lines(["frontend f", A, A], repeated=True)] == [True, True]


def test_every_entry_of_the_table_is_tried() -> None:
    tried = {
        " ".join(entry.words)
        for entry in REMOVED
        for line in [case[1] for case in CASES] + [case[1] for case in LATER]
        if line.removeprefix("no ").split()[: len(entry.words)] == list(entry.words)
    }
    assert tried == {" ".join(entry.words) for entry in REMOVED}


@pytest.mark.parametrize(
    "line",
    [
        "# reqadd X:\\ y",
        "http-request set-header reqadd x",
        "option httpclose",
        "option redispatch",
        "timeout client 5s",
        "reqadd-like thing",
        "bind 127.0.0.1:1 name process",
        "option httpchk GET /up",
        "stats socket /s",
        "description nbproc",
        "server debug 127.0.0.1:1",
        "acl block path /x",
    ],
)
def test_what_is_still_valid_is_left_alone(line: str) -> None:
    assert found_in(f"frontend f\n    {line}\n") == []


def test_the_section_counts() -> None:
    assert found_in("global\n    grace 5s") == []
    assert len(found_in("global\ndefaults\n    grace 5s")) == 1
