"""What stands where a password does is known as one, and no message of HAProxy's repeats it."""

import pytest

from pyconfd.haproxy.config.text import passwords_in, without_passwords
from pyconfd.haproxy.process.check import explain_check_output
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.system.secrecy import HIDDEN

SECRET = "hunter2-of-7"


@pytest.mark.parametrize(
    "line",
    [
        f"user admin insecure-password {SECRET}",
        f"user admin password {SECRET} groups a,b",
        f'user admin insecure-password "{SECRET}"',
        f"stats auth admin:{SECRET}",
        f"tcp-check send AUTH\\ {SECRET}\\r\\n",
        f'tcp-check send "AUTH default {SECRET}\\r\\n"',
        f'http-request set-header Authorization "Basic {SECRET}"',
        f"http-request set-header Authorization Bearer\\ {SECRET}",
        f"http-check send meth GET uri / hdr X-Api-Key {SECRET}",
        f"setenv DB_PASSWORD {SECRET}",
    ],
)
def test_a_password_is_known_wherever_it_stands(line: str) -> None:
    assert any(SECRET in each for each in passwords_in(f"global\n    {line}\n"))
    rendering = Rendering((Piece("a.conf", f"userlist u\n    {line} more\n"),))
    for said in (f"unknown keyword '{SECRET}'", "out of memory", f"error near '{line}'"):
        output = f"[ALERT]    (12) : config : parsing [/x/haproxy.cfg:2] : {said}"
        (problem,) = explain_check_output(output, rendering, "/x/haproxy.cfg")
        assert SECRET not in str(problem)
        assert "[hidden]" in str(problem)


@pytest.mark.parametrize(
    "line", ["option httpchk", "server a 10.0.0.1:80 check", "auth-server x", "acl a http_auth(u)"]
)
def test_what_is_no_password_is_shown(line: str) -> None:
    assert not passwords_in(f"backend b\n    {line}\n")


def test_a_long_line_is_cut_behind_what_is_hidden() -> None:
    line = f"    user admin insecure-password {'s3cret' * 40}"
    rendering = Rendering((Piece("a.conf", f"userlist u\n{line} more\n"),))
    output = "[ALERT]    (12) : config : parsing [/x/haproxy.cfg:2] : too many words"
    (problem,) = explain_check_output(output, rendering, "/x/haproxy.cfg")
    assert "s3cret" not in str(problem)


@pytest.mark.parametrize(
    "line",
    [
        "    user admin password hunter2 groups a",
        "    user admin insecure-password hunter2",
        "    user admin insecure-password 'hunter2'",
        '    user admin insecure-password "hunter2"',
        "    stats auth admin:hunter2",
        "    http-request set-header Authorization hunter2",
        '    http-request set-header Authorization "Token hunter2"',
        "    http-check send meth GET uri / hdr authorization hunter2",
        "    tcp-check send AUTH\\ hunter2\\r\\n",
        "    http-request set-header X-Key hunter2",
        "    log syslog://me:hunter2@10.0.0.1",
    ],
)
def test_a_configuration_is_shown_without_its_passwords(line: str) -> None:
    shown = without_passwords(f"global\n{line}\n    maxconn 5\n", ["hunter2"] if "X-Key" in line else [])
    assert "hunter2" not in shown
    assert HIDDEN in shown
    assert shown.startswith("global\n")
    assert shown.endswith("\n    maxconn 5\n")


def test_an_ordinary_configuration_is_shown_as_it_is() -> None:
    text = "frontend f\n    bind :80\n    acl p path_beg /password\nbackend b\n    server a 10.0.0.1:80 check\n"
    assert without_passwords(text, [""]) == text
