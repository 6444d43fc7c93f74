# ruff: noqa: E501 - a table of lines of haproxy.cfg reads best with a line each
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.errors import Problem
from pyconfd.haproxy.process.check import explain_check_output
from pyconfd.model.rendering import Piece, Rendering
from tests.world.haproxy import BINARY

DEFAULTS = Piece(
    "01-defaults.conf",
    "defaults\n    mode http\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\n",
)
FRONT = "\nfrontend web\n    bind 127.0.0.1:1\n    {line}\n"
BACK = "\nfrontend web\n    bind 127.0.0.1:1\n    default_backend shop\nbackend shop\n    {line}\n    server one 127.0.0.1:1\n"

# Where, line, place, part of the message, part of the remedy.
CASES: list[tuple[str, str, str, str, str]] = [
    (FRONT, "reqadd X:\\ y", "line 4", "'reqadd'", "write: http-request add-header X y"),
    (FRONT, "moed http", "line 4", "unknown keyword 'moed' in 'frontend' section", "did you mean 'mode'?"),
    (FRONT, "errorfile 503 {tmp}/bare.html", "line 4", "unable to parse headers", "write: http-error status 503 content-type text/html file {tmp}/bare.html"),
    (FRONT, "errorfile 503 {tmp}/gone.html", "line 4", "{tmp}/gone.html", "{tmp}/gone.html exist"),
    (FRONT, "bind 127.0.0.1:2 ssl crt {tmp}/gone.pem", "line 4", "No such file", "{tmp}/gone.pem exist"),
    (FRONT, "bind 127.0.0.1:2 ssl crt {tmp}/bare.html", "line 4", "unable to load certificate", "private key"),
    (FRONT, "use_backend %[req.hdr(host),map({tmp}/gone.map)]", "line 4", "{tmp}/gone.map", "{tmp}/gone.map exist"),
    (FRONT, "use_backend shpo if TRUE", "line 4", "'shpo'", "add: backend shpo"),
    (BACK, "use-server two if TRUE", "line 6", "unable to find server 'two'", "correct the name"),
    (BACK, "stick match src table nope", "line 6", "'nope'", "stick-table"),
    (BACK, "server two 127.0.0.1:1 resolvers nope", "line 6", "'nope'", "resolvers"),
    (FRONT, "http-request deny if locl", "line 4", "no such ACL : 'locl'", "acl locl"),
    (BACK, "mode tcp", "line 2", "02-http.tmpl rendered line 5", "the same mode"),
    (FRONT, "acl a hdr(host) 'a", "line 4", "unmatched quote at position", "filter quote"),
    (BACK, "server one 127.0.0.1:2", "line 7", "already defined at 02-http.tmpl rendered line 6", "server_name"),
    (BACK, "server a 127.0.0.1:2 id 5\n    server b 127.0.0.1:3 id 5", "line 7", "already used at 02-http.tmpl rendered line 6", "server_ids"),
    (FRONT, "frontend web", "line 4", "declared at 02-http.tmpl rendered line 2", "prefix"),
    (BACK, "server a/b 127.0.0.1:2", "line 6", "'/' is not permitted", "identifier"),
    (BACK, "server a nohost.invalid:80", "line 6", "could not resolve", "IP address"),
    (BACK, "server a 127.0.0.1:2 ssl", "line 6", "verify is enabled", "ca-file"),
    (BACK, "server a 127.0.0.1:2 chekc", "line 6", "unknown keyword 'chekc'", "did you mean 'check'?"),
]  # fmt: skip


def rendering(text: str) -> Rendering:
    return Rendering((DEFAULTS, Piece("02-http.tmpl", text)))


def run(given_rendering: Rendering, folder: Path, *flags: str) -> tuple[int, str, str]:
    path = folder / "haproxy.cfg"
    path.write_text(given_rendering.text)
    command = [BINARY, *(flags or ("-c",)), "-f", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, timeout=60)
    return done.returncode, done.stdout, str(path)


def explained(given_rendering: Rendering, folder: Path, *flags: str) -> tuple[Problem, ...]:
    _code, output, path = run(given_rendering, folder, *flags)
    return explain_check_output(output, given_rendering, path)


@pytest.mark.haproxy
@pytest.mark.parametrize(("template", "line", "place", "message", "remedy"), CASES)
def test_what_haproxy_refuses(template: str, line: str, place: str, message: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "bare.html").write_text("<html>sorry</html>\n")

    def fill(text: str) -> str:
        return text.replace("{tmp}", str(tmp_path))

    given_rendering = rendering(template.replace("{line}", fill(line)))
    code, output, path = run(given_rendering, tmp_path)
    found = explain_check_output(output, given_rendering, path, warnings=False)[0]
    assert code == 1
    assert found.place == f"02-http.tmpl rendered {place}"
    assert fill(message) in found.message
    assert fill(remedy) in found.remedy
    assert path not in str(found)


@pytest.mark.haproxy
def test_a_misspelt_backend_or_acl_is_suggested(tmp_path: Path) -> None:
    (found,) = explained(
        rendering(BACK.replace("{line}", "mode http").replace("default_backend shop", "default_backend shpo")), tmp_path
    )
    assert found.place == "02-http.tmpl rendered line 4"
    assert found.remedy == "did you mean 'shop'? add: backend shpo"
    (found,) = explained(
        rendering(FRONT.replace("{line}", "acl local src 127.0.0.1\n    http-request deny if locl")), tmp_path
    )
    assert found.remedy.startswith("did you mean 'local'?")


@pytest.mark.haproxy
def test_the_line_is_shown_and_plain_fragments_have_their_own_lines(tmp_path: Path) -> None:
    broken = Rendering((Piece("01-defaults.conf", "global\n    maxcon 5 # typo\n"), *rendering(FRONT).pieces))
    found = explained(broken, tmp_path)[0]
    assert found.place == "01-defaults.conf line 2"
    assert found.message.endswith(": maxcon 5 # typo")


@pytest.mark.haproxy
def test_all_alerts_are_given_without_the_final_noise(tmp_path: Path) -> None:
    found = explained(rendering(FRONT.replace("{line}", "foo\n    bar\n    redispatch")), tmp_path)
    assert [one.place for one in found] == [f"02-http.tmpl rendered line {line}" for line in (4, 5, 6)]
    assert found[2].remedy == "write: option redispatch"


@pytest.mark.haproxy
def test_alerts_come_before_warnings_which_can_be_left_out(tmp_path: Path) -> None:
    text = BACK.replace("{line}", "option httplog\n    foo")
    code, output, path = run(rendering(text), tmp_path)
    found = explain_check_output(output, rendering(text), path)
    assert code == 1
    assert [one.place for one in found] == ["02-http.tmpl rendered line 7", "02-http.tmpl rendered line 6"]
    assert len(explain_check_output(output, rendering(text), path, warnings=False)) == 1


@pytest.mark.haproxy
def test_messages_of_several_lines_are_joined(tmp_path: Path) -> None:
    bare = Rendering((Piece("a.conf", "frontend web\n    mode http\n    bind 127.0.0.1:1\n"),))
    (found,) = explained(bare, tmp_path)
    assert found.place == "a.conf line 1"
    assert "set to a non-zero value: 'client'" in found.message
    assert "timeout client" in found.remedy


@pytest.mark.haproxy
def test_a_good_configuration_has_no_problem(tmp_path: Path) -> None:
    code, output, path = run(rendering(BACK.replace("{line}", "mode http")), tmp_path)
    assert code == 0
    assert explain_check_output(output, rendering(BACK), path) == ()


@pytest.mark.haproxy
def test_a_configuration_that_listens_nowhere(tmp_path: Path) -> None:
    (found,) = explained(Rendering((DEFAULTS,)), tmp_path)
    assert "bind" in found.message


@pytest.mark.haproxy
def test_a_port_that_is_taken_and_an_address_that_is_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        text = f"\nfrontend web\n    bind 127.0.0.1:{port}\n    bind 192.0.2.1:{port}\n"
        found = explained(rendering(text), tmp_path, "-db")
    assert [one.place for one in found] == ["02-http.tmpl rendered line 3", "02-http.tmpl rendered line 4"]
    assert found[0].remedy == f"see who has the port: ss -ltnp 'sport = :{port}'"
    assert "ip address" in found[1].remedy


@pytest.mark.parametrize(
    "line",
    [
        "[ALERT]    (7065) : config : parsing [/x/haproxy.cfg:8] : unknown keyword 'a'",
        "[ALERT]    (7065) : parsing [/x/haproxy.cfg:8] : unknown keyword 'a'",
        "[ALERT] 324/033000 (7065) : parsing [/x/haproxy.cfg:8] : unknown keyword 'a'",
        "[ALERT]    (7065) : config : Parsing [/x/haproxy.cfg:8]: unknown keyword 'a'.",
        "[ALERT]    (7065) : config : [/x/haproxy.cfg:8] : unknown keyword 'a'",
    ],
)
def test_the_forms_of_several_versions(line: str) -> None:
    noise = "[NOTICE]   (1) : haproxy version is 2.6.12\n{}\n[ALERT]    (1) : config : Fatal errors found in configuration.\n"
    (found,) = explain_check_output(noise.format(line), rendering("\n  a\n  b\n"), "/x/haproxy.cfg")
    assert found.place == "02-http.tmpl rendered line 3"
    assert found.message == "unknown keyword 'a': b"


def test_messages_without_a_place_are_kept() -> None:
    output = "[ALERT]    (1) : [haproxy.main()] Cannot raise FD limit to 200017, limit is 100.\n"
    (found,) = explain_check_output(output * 2, rendering(""), "/x")
    assert found.place == "haproxy.cfg"
    assert "200017" in found.message
    assert "LimitNOFILE" in found.remedy


@given(st.text() | st.text("[ALERT]():/x 1'\n|"), st.text("frontend a\n"))
def test_any_output_is_survived(output: str, text: str) -> None:
    for problem in explain_check_output(f"[ALERT] (1) : {output}", rendering(text), "/x"):
        assert problem.message


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        pytest.param(
            [Piece("02-a.tmpl", "backend one\nbackend shop\n"), Piece("03-b.tmpl", "backend shop\n")],
            [("03-b.tmpl", 1), ("02-a.tmpl", 2)],
            id="a name that two sections have: the later one, then the one beside it",
        ),
        pytest.param(
            [Piece("02-a.tmpl", "backend one\n    server a 127.0.0.1:1 id 7\n    server b 127.0.0.1:2 id 7\n")],
            [("02-a.tmpl", 3), ("02-a.tmpl", 2)],
            id="an id",
        ),
        pytest.param(
            [Piece("02-a.tmpl", "backend one\n    server a 127.0.0.1:1\n    use-server nobody if TRUE\n")],
            [("02-a.tmpl", 3)],
            id="no line, but the name of a proxy and a word",
        ),
    ],
)
def test_clues_lead_to_the_lines_the_likeliest_first(
    pieces: list[Piece], lines: list[tuple[str, int]], tmp_path: Path
) -> None:
    rendering = Rendering((DEFAULTS, Piece("01-front.conf", FRONT.format(line="default_backend one")), *pieces))
    path = tmp_path / "haproxy.cfg"
    path.write_text(rendering.text)
    done = subprocess.run([BINARY, "-c", "-f", str(path)], capture_output=True, text=True, check=False)
    problems = explain_check_output(done.stderr + done.stdout, rendering, str(path), warnings=False)
    assert list(problems[0].clues.lines) == lines
