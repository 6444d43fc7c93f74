"""Ways around the list of what text from the cluster may say; HAProxy itself says that each of them is one."""

import subprocess
import time
from pathlib import Path

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.config.allowed import Boundaries, judge
from tests.world.haproxy import BINARY

INSIDE = Boundaries(certificates=("/f/certs",), contents=("/f/maps",))

DEFAULTS = "defaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n"


def refusal(text: str) -> str:
    with pytest.raises(RejectedInput) as caught:
        judge("configmap lb/config", text, INSIDE)
    return str(caught.value)


ADDRESSES = ["${NAME}", "${NAME}:80", "stream+{path}", "dgram+{path}", "stream+unix@{path}", "ipv4@${NAME}", "a$b:80"]
LINES_WITH_ADDRESSES = [
    "listen l\n bind {address}",
    "listen l\n bind :80,{address}",
    "backend b\n server x {address}",
    "backend b\n server-template x 3 {address}",
    "backend b\n server x 10.0.0.1:80 check addr {address}",
    "backend b\n tcp-check connect addr {address}",
    "backend b\n http-check connect addr {address}",
    "backend b\n log {address} local0",
    "global\n log {address} local0",
    "resolvers r\n nameserver x {address}",
]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("line", LINES_WITH_ADDRESSES)
def test_an_address_is_one_of_the_network(line: str, address: str) -> None:
    told = refusal(line.replace("{address}", address.replace("{path}", "/run/haproxy-master.sock")) + "\n")
    assert "is none of the network" in told


@pytest.mark.haproxy
@pytest.mark.parametrize("written", ["${SMUGGLED}", "stream+{path}"])
def test_haproxy_takes_them_for_sockets(tmp_path: Path, written: str) -> None:
    """The reason: HAProxy fills in the environment without quotes too, and its workers know HAPROXY_MASTER_CLI."""
    path = tmp_path / "socket"
    config = tmp_path / "haproxy.cfg"
    config.write_text(f"{DEFAULTS}listen l\n bind {written.replace('{path}', str(path))}\n")
    process = subprocess.Popen([BINARY, "-db", "-f", str(config)], env={"SMUGGLED": f"unix@{path}"})
    try:
        give_up_at = time.monotonic() + 20
        while not path.is_socket() and process.poll() is None and time.monotonic() < give_up_at:
            time.sleep(0.01)
        assert path.is_socket()
    finally:
        process.kill()
        process.wait()
    refusal(config.read_text())


@pytest.mark.parametrize(
    "address",
    [
        "*:80",
        ":80",
        ":::80",
        "[::]:80",
        "[2001:db8::1]:80",
        "10.0.0.1",
        "10.0.0.1:80-90",
        "ipv6@:80",
        "ipv4@10.0.0.1:80",
        "shop.example.com:80",
        "_x._tcp.example.com",
        "fe80::1%eth0:80",
        "0.0.0.0:+10",
        "0.0.0.0:-10",
    ],
)
def test_addresses_of_the_network_pass(address: str) -> None:
    judge("x", f"listen l\n bind {address}\n server x {address} check addr {address}\n log {address} local0\n", INSIDE)


HIDDEN = "lua.mine"
EXPRESSIONS = [
    "http-request set-header X %{+Q}[SAMPLE]",
    "http-request set-header X %(name)[SAMPLE]",
    "http-request set-header X %(name){+Q}[SAMPLE]",
    "http-request set-header X a%[path]b%{+Q}[path,SAMPLE]",
    "log-format %{+X,+Q}[SAMPLE]",
    "unique-id-format %{+X}o%ci:%{+Q}[SAMPLE]",
    "use_backend %{+Q}[SAMPLE]",
    "http-request capture SAMPLE len 10",
    "http-response capture SAMPLE id 0",
    "tcp-request content capture SAMPLE len 10",
    "http-request do-resolve(txn.a,r,ipv4) SAMPLE",
    "http-request sc-set-gpt0(0) SAMPLE",
    "http-request sc-add-gpc(0,1) SAMPLE",
    "http-request set-priority-class SAMPLE",
    "http-request set-mark SAMPLE",
    "http-request set-timeout server SAMPLE",
    "http-request set-bandwidth-limit x limit SAMPLE",
    "http-request set-bandwidth-limit x period SAMPLE",
    "http-request track-sc0 src,SAMPLE",
    "http-request track-sc2 SAMPLE table t",
    "http-request set-var(txn.a) path SAMPLE",
    "http-request set-var(txn.a) path lower SAMPLE if TRUE",
    "http-check set-var(check.a) SAMPLE",
    "tcp-check set-var(check.a) SAMPLE",
    "http-check expect status 200 status-code SAMPLE",
    "stick on SAMPLE",
    "stick on src SAMPLE table t",
    "stick match SAMPLE",
    "stick store-request SAMPLE",
    "stick store-response SAMPLE table t",
    "balance hash SAMPLE",
    "balance hash path SAMPLE",
    "filter bwlim-in x key SAMPLE table t limit 1m",
    "acl a SAMPLE x",
    "use_backend a if { path,SAMPLE x }",
]


@pytest.mark.parametrize("sample", [HIDDEN, "ssl_fc_session_key", "internal.htx.data"])
@pytest.mark.parametrize("line", EXPRESSIONS)
def test_expressions_are_judged_wherever_they_stand(line: str, sample: str) -> None:
    told = refusal(f"backend b\n {line.replace('SAMPLE', sample)}\n")
    assert f'cluster_templates.allow = ["sample {sample}"]' in told


@pytest.mark.parametrize(
    "line",
    [
        "http-request capture req.hdr(host) len 20",
        "http-request capture req.hdr(host) len 20 if { path /a }",
        "tcp-request content capture req.ssl_sni len 20",
        "http-request set-var(txn.a) path,lower",
        "http-request set-var(txn.a) path lower if TRUE",
        "http-request set-var(txn.a) str(a b)".replace(" b)", "\\ b)"),
        "http-request track-sc1 src table t unless { path /a }",
        "http-request sc-set-gpt0(0) 1337",
        "http-request set-timeout server 5s",
        "http-request set-tos 0x10",
        "http-request set-bandwidth-limit x limit int(5) period 5s",
        "http-request do-resolve(txn.a,r,ipv4) req.hdr(host),field(1,:)",
        "stick on src",
        "stick store-response res.cook(a) table t",
        "stick match req.cook(a) if { path /a }",
        "balance hash req.hdr(host),lower",
        "balance roundrobin",
        "balance url_param a",
        "http-check set-var(check.a) int(5)",
        "http-check expect ! rstatus ^5",
        "http-request set-header X %{+Q}[path]",
        "http-request set-header X %{+Q}o\\ %[src]",
        "http-request replace-path ^/a(.*)[0-9]$ /b\\1",
        "filter bwlim-in x key src table t limit 1m",
    ],
)
def test_usual_expressions_pass(line: str) -> None:
    judge("x", f"backend b\n {line}\n", INSIDE)


def test_a_directory_of_certificates_may_end_in_a_slash() -> None:
    judge("x", "listen l\n bind :443 ssl crt /f/certs/\n", INSIDE)
    for path in ("/f/certs//", "/f/certs/../", "/etc/", "/"):
        assert "outside the allowed directories" in refusal(f"listen l\n bind :443 ssl crt {path}\n")


NEWLINES = [
    "reqadd X\\ y\\nprogram\\ evil\\n\\ command\\ id:\\ z",
    "reqadd X:\\ y\\nprogram\\ evil\\n\\ command\\ id",
    "rspadd X:\\ y\\r\\nprogram\\ evil",
    "appsession a\\nprogram\\ evil len 5 timeout 3h\\nprogram\\ evil",
    "option httpchk GET / HTTP/1.1\\r\\nHost:\\ a\\nprogram\\ evil",
    "option httpchk GET / HTTP/1.1\\nprogram\\ evil\\r\\nHost:\\ a",
    "block if { path /x\\nprogram\\ evil }",
    "clitimeout 5\\nprogram\\ evil",
    "http-request set-header X a\\r\\nEvil:\\ b",
    "http-request set-header X a\\rb",
]


@pytest.mark.parametrize("line", NEWLINES)
@pytest.mark.parametrize("quoted", [False, True])
def test_no_word_has_a_line_break(line: str, *, quoted: bool) -> None:
    first, rest = line.split(" ", 1)
    told = refusal(
        f"listen l\n {line}\n" if not quoted else f'listen l\n {first} "{rest.replace(chr(92) + " ", " ")}"\n'
    )
    assert "rendered line 2: " in told


def test_protocols_of_checks_have_line_breaks() -> None:
    judge("x", "backend b\n tcp-check send PING\\r\\n\n", INSIDE)


def test_a_tab_behind_a_backslash_ends_a_word() -> None:
    assert "'user' of bind" in refusal("listen l\n bind :443 ssl alpn h2\\\tuser ssl\n")


@pytest.mark.parametrize(
    "line",
    [
        "http-request set-header X %{a{b}[ssl_fc_session_key,hex]",
        "http-request set-header X %({)[ssl_fc_session_key,hex]",
        "http-request set-header X %{+Q}[str((),debug()]",
        "http-request set-header X %[str((),debug()]",
        "http-request set-header X '%[str(\")\"),debug()]'",
        "http-request set-header X '%[str(a\\),debug,lower(a)]'",
        "http-request set-var(txn.x) str((),debug()",
        "http-request set-var(txn.x) str(x) lower debug",
        "http-request set-bandwidth-limit x period ssl_fc_session_key",
        "http-request set-bandwidth-limit x limit 1m period ssl_fc_session_key",
        "http-request pause ssl_fc_session_key",
        "http-request set-retries ssl_fc_session_key",
        "http-check connect port ssl_fc_session_key",
        "tcp-check connect port ssl_fc_session_key",
        "balance log-hash debug",
        "acl a str(x) debug y",
        "http-request deny if { str(x) lower debug y }",
        "server s 10.0.0.1:80 sni str((),debug()",
    ],
)
def test_samples_are_found_where_haproxy_looks_for_them(line: str) -> None:
    assert "rendered line 2: " in refusal(f"backend b\n {line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "http-request set-header X '%[str(\"(\"),lower]'",
        "http-request set-header X 100%%[x]",
        "acl a hdr(x-mode) debug",
        "acl a path_end debug when",
        "http-request set-bandwidth-limit x limit 1m period 10s",
        "http-request track-sc0 src table lua.x",
    ],
)
def test_words_that_are_no_samples_pass(line: str) -> None:
    judge("x", f"backend b\n {line}\n", INSIDE)
