import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.haproxy.config.certificates import stub_pem
from pyconfd.haproxy.config.text import binds, parse
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.trying.loopback import Loopback
from pyconfd.trying.relocate import Relocation
from tests.world.haproxy import BINARY


class Numbered(Loopback):
    """Assigns 127.0.0.1 with ports from 20001 on for listeners, 127.9.9.9 for servers, and remembers what was asked."""

    def __init__(self, stub: str = "/stub.pem") -> None:
        self.listeners: dict[tuple[str, int], int] = {}
        self.servers: dict[tuple[str, int], int] = {}
        self.stub = stub

    def listener(self, host: str, port: int) -> tuple[str, int]:
        return "127.0.0.1", 20001 + self.listeners.setdefault((host, port), len(self.listeners))

    def server(self, host: str, port: int) -> tuple[str, int]:
        return "127.9.9.9", 30001 + self.servers.setdefault((host, port), len(self.servers))

    def socket(self, path: str) -> str:
        return f"/tmp/s/{path.rpartition('/')[2]}"

    def certificate(self, path: str) -> str:
        return path if path == "/here.pem" else self.stub


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADDRESS", "192.0.2.3")
    monkeypatch.setenv("PORT", "8443")


def moved(text: str, places: Numbered | None = None) -> tuple[str, tuple[str, ...]]:
    relocation = Relocation(places or Numbered())
    return relocation.move(Rendering((Piece("a.tmpl", text),))).text, tuple(relocation.notes)


@pytest.mark.parametrize(
    ("section", "line", "expected"),
    [
        ("frontend f", "bind *:80", "bind 127.0.0.1:20001"),
        ("frontend f", "bind :80 name x", "bind 127.0.0.1:20001 name x"),
        ("frontend f", "bind :::80 v4v6", "bind 127.0.0.1:20001"),
        ("frontend f", "bind [2001:db8::1]:80 interface eth0", "bind 127.0.0.1:20001"),
        ("frontend f", "bind ipv6@:443 transparent", "bind 127.0.0.1:20001"),
        ("frontend f", "bind 192.0.2.1:80,192.0.2.2:80 accept-proxy", "bind 127.0.0.1:20001,127.0.0.1:20002"),
        ("frontend f", "bind :8000-8002", "bind 127.0.0.1:20001,127.0.0.1:20002,127.0.0.1:20003"),
        ("frontend f", 'bind "$ADDRESS:${PORT}"', "bind 127.0.0.1:20001"),
        ("frontend f", "bind unix@/run/x.sock mode 660 user nobody", "bind /tmp/s/x.sock"),
        ("frontend f", "bind quic4@:443 ssl crt /a.pem", "# try: bind quic4@:443 ssl crt /a.pem"),
        ("frontend f", "bind fd@3", "# try: bind fd@3"),
        (
            "listen l",
            "bind :443 ssl crt /here.pem crt /gone.pem",
            "bind 127.0.0.1:20001 ssl crt /here.pem crt /stub.pem",
        ),
        ("listen l", "bind :443 ssl crt-list /gone.list alpn h2", "bind 127.0.0.1:20001 ssl crt /stub.pem alpn h2"),
        ("backend b", "server a 10.0.0.1:80 check", "server a 127.9.9.9:30001 check"),
        ("backend b", "server a [fd00::1]:80 weight 0", "server a 127.9.9.9:30001 weight 0"),
        ("backend b", "server a db.example.net:5432 resolvers r init-addr none", "server a 127.9.9.9:30001"),
        ("backend b", "server a 10.0.0.1", "server a 127.9.9.9:30001"),
        ("backend b", "server a /run/app.sock send-proxy", "server a 127.9.9.9:30001"),
        (
            "backend b",
            "server a 10.0.0.1:443 ssl verify required ca-file /ca.pem sni str(x)",
            "server a 127.9.9.9:30001 ssl sni str(x) verify none",
        ),
        ("backend b", "server a 10.0.0.1:80 source 192.0.2.1 usesrc clientip id 7", "server a 127.9.9.9:30001 id 7"),
        (
            "backend b",
            "server-template web 5 _http._tcp.example.net check",
            "server-template web 5 127.9.9.9:30001 check",
        ),
        ("backend b", "default-server inter 3s resolvers r check", "default-server inter 3s check"),
        ("backend b", "source 192.0.2.1", "# try: source 192.0.2.1"),
        ("backend b", "email-alert mailers m", "# try: email-alert mailers m"),
        ("mailers m", "mailer a 192.0.2.1:25", "mailer a 127.9.9.9:30001"),
        ("resolvers r", "nameserver a 192.0.2.1:53", "nameserver a 127.9.9.9:30001"),
        ("resolvers r", "parse-resolv-conf", "# try: parse-resolv-conf"),
        ("peers p", "peer a 192.0.2.1:1024", "peer a 127.0.0.1:20001"),
        ("global", "chroot /var/lib/haproxy", "# try: chroot /var/lib/haproxy"),
        ("global", "maxconn 1000000", "# try: maxconn 1000000"),
        ("global", "maxconnrate 10", "maxconnrate 10"),
        ("global", "log /dev/log local0", "# try: log /dev/log local0"),
        ("global", "log stdout format raw local0", "log stdout format raw local0"),
        ("global", "stats socket /run/h.sock user a level admin", "stats socket /tmp/s/h.sock level admin"),
        ("global", "stats socket ipv4@192.0.2.1:9999 level admin", "stats socket 127.0.0.1:20001 level admin"),
        ("defaults", "log global", "log global"),
        ("frontend f", "log 192.0.2.9:514 local0", "# try: log 192.0.2.9:514 local0"),
        ("backend b", "option mysql-check user x", "# try: option mysql-check user x"),
        ("defaults", "option ldap-check", "# try: option ldap-check"),
        ("backend b", "http-check expect status 204", "# try: http-check expect status 204"),
        ("backend b", "tcp-check expect string HELLO", "# try: tcp-check expect string HELLO"),
        ("backend b", "tcp-check expect string +PONG", "tcp-check expect string +PONG"),
        ("backend b", "option httpchk", "option httpchk"),
        ("program p", "command /bin/sh", "# try: command /bin/sh"),
        ("frontend f", "acl user hdr(user) -m found", "acl user hdr(user) -m found"),
        ("frontend f", "  # a comment", "  # a comment"),
    ],
)
def test_lines(section: str, line: str, expected: str) -> None:
    text, _ = moved(f"{section}\n    {line}\n")
    assert text.splitlines()[1].strip() == expected.strip()


def test_certificates_below_a_base_are_found_with_it() -> None:
    text, notes = moved("global\n    crt-base /certs\nfrontend f\n    bind :443 ssl crt a.pem\n")
    assert "crt /stub.pem" in text
    assert notes == ("the certificate a.pem is not here: a self-signed one stands in for it",)


def test_the_same_address_is_the_same_place_and_lines_stay_where_they_are() -> None:
    source = "frontend a\n    bind :80\n\nprogram p\n    command x\nbackend b\n"
    source += "    server a 10.0.0.1:80\n    server b 10.0.0.1:80\n"
    places = Numbered()
    text, _ = moved(source, places)
    assert text.count("\n") == source.count("\n")
    assert text.count("127.9.9.9:30001") == 2
    assert moved(source, places)[0] == text


def test_what_was_moved_is_not_moved_again() -> None:
    relocation = Relocation(Numbered())
    rendering = relocation.move(Rendering((Piece("a.tmpl", "frontend a\n    bind :80\n"),)))
    assert relocation.move(rendering) == rendering


lines = st.sampled_from(
    [
        "global", "defaults", "frontend f", "backend b", "listen l", "peers p", "program x",
        "bind", "server", "log", "stats socket", "mailer m", "server-template t 3", "dispatch", "nameserver n",
        "maxconn",
    ]
)  # fmt: skip
words = st.lists(st.text(alphabet=st.sampled_from("*:.@/[]$-,\"'\\ a1{}"), max_size=8), max_size=4).map(" ".join)


@given(st.lists(st.builds("{} {}".format, lines, words), max_size=12).map("\n".join))
def test_any_text_is_moved_without_an_error_and_binds_nothing_elsewhere(text: str) -> None:
    result, _ = moved(text)
    assert result.count("\n") == text.count("\n")
    for bind in binds(result):
        if bind.judged:
            assert bind.address == "127.0.0.1", (text, result)
    for section in parse(result):
        for line in section.lines:
            if line.words[0] == "server" and len(line.words) > 2:
                assert line.words[2].startswith("127.9.9.9:"), (text, result)


@pytest.mark.haproxy
def test_haproxy_takes_what_needs_another_machine(tmp_path: Path) -> None:
    stub = tmp_path / "stub.pem"
    stub.write_text(stub_pem())
    text, _ = moved(
        """\
global
    user somebody-who-is-not-here
    chroot /nowhere
    daemon
    maxconn 5000000
    log 192.0.2.9 local0
    stats socket /run/haproxy/admin.sock user haproxy group haproxy mode 660 level admin
defaults
    mode http
    log global
    timeout connect 1s
    timeout client 1s
    timeout server 1s
peers mine
    peer other-node 192.0.2.2:1024
resolvers cluster
    nameserver a 192.0.2.3:53
frontend f
    bind 192.0.2.1:443 ssl crt /etc/haproxy/ssl/ interface eth9
    bind :::80 v4v6
    default_backend b
backend b
    source 192.0.2.1
    option mysql-check user x
    server a db.example.net:3306 check resolvers cluster
    server b 192.0.2.4:443 ssl verify required ca-file /etc/ssl/nowhere.pem check
    server-template c 3 web.example.net:80 check
""",
        Numbered(str(stub)),
    )
    path = tmp_path / "haproxy.cfg"
    # An unprivileged user may bind what is checked, and the socket has a folder.
    path.write_text(text.replace("/tmp/s/", f"{tmp_path}/"))
    done = subprocess.run([BINARY, "-c", "-f", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + text


def test_a_socket_of_the_configuration_itself_has_one_place_for_both_ends() -> None:
    text = "frontend f\n    bind unix@/run/own accept-proxy\nbackend b\n    server a unix@/run/own send-proxy-v2\n"
    found, _ = moved(text)
    assert found == "frontend f\n    bind /tmp/s/own\nbackend b\n    server a /tmp/s/own\n"


def test_a_declared_list_of_certificates_stays() -> None:
    text = "frontend f\n    bind :443 ssl crt-list /f/list\n"
    files = (OutputFile(FileKind.MAP, "/f/list", "/f/a.pem x\n"),)
    relocation = Relocation(Numbered())
    found = relocation.move(Rendering((Piece("a.tmpl", text),), files)).text
    assert found == "frontend f\n    bind 127.0.0.1:20001 ssl crt-list /f/list\n"
    assert not relocation.notes
