import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.haproxy.master_socket import NoAnswer, ask
from pyconfd.haproxy.needs import AUTOMATIC_MAXCONN, at_most, needs
from tests.world.haproxy import BINARY, HaproxyProcess, free_port, wait_until

GLOBAL = "maxconn 1000\nnbthread 2"
DEFAULTS = "defaults\n mode tcp\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n"
CHECKED_BY_DEFAULT = DEFAULTS + " default-server check\n"
AGENTS_BY_DEFAULT = DEFAULTS + " default-server check agent-check agent-port 9\n"
HOST = socket.gethostname()

HERE = "PORT"
"""Is replaced by a free port, a new one each time."""


def frontend(address: str = f"127.0.0.1:{HERE}", rest: str = "", name: str = "fe") -> str:
    return f"frontend {name}\n bind {address} {rest}\n default_backend be\n"


def backend(servers: int = 10, words: str = "", lines: str = "") -> str:
    return f"backend be\n{lines}" + "".join(f" server s{number} 127.0.0.1:9 {words}\n" for number in range(servers))


SHAPES = {
    "plain": (GLOBAL, DEFAULTS + frontend() + backend()),
    "four threads": ("maxconn 1000\nnbthread 4", DEFAULTS + frontend() + backend()),
    "three frontends": (GLOBAL, DEFAULTS + frontend() + frontend(name="b") + frontend(name="c") + backend()),
    "two addresses": (GLOBAL, DEFAULTS + frontend(f"127.0.0.1:{HERE},127.0.0.1:{HERE}") + backend()),
    "shards": (GLOBAL, DEFAULTS + frontend(rest="shards 3") + backend()),
    "shards by thread": (GLOBAL, DEFAULTS + frontend(rest="shards by-thread") + backend()),
    "checks": (GLOBAL, DEFAULTS + frontend() + backend(words="check inter 2s")),
    "checks taken back": (GLOBAL, DEFAULTS + frontend() + backend(words="check no-check")),
    "checks in maintenance": (GLOBAL, DEFAULTS + frontend() + backend(words="check disabled")),
    "checks by default": (
        GLOBAL,
        CHECKED_BY_DEFAULT + frontend() + backend(words="") + " server x 127.0.0.1:9 no-check",
    ),
    "checks by the backend": (GLOBAL, DEFAULTS + frontend() + backend(lines=" default-server check\n")),
    "a disabled backend": (
        GLOBAL,
        DEFAULTS + frontend().replace(" default_backend be", "") + backend(words="check", lines=" disabled\n"),
    ),
    "agents": (GLOBAL, DEFAULTS + frontend() + backend(words="check agent-check agent-port 9")),
    "agents by default": (GLOBAL, AGENTS_BY_DEFAULT + frontend() + backend()),
    "a server template": (GLOBAL, DEFAULTS + frontend() + backend() + " server-template t 5-16 127.0.0.1:9 check\n"),
    "peers": (
        GLOBAL,
        DEFAULTS + f"peers p\n peer {HOST} 127.0.0.1:{HERE}\n peer o 127.0.0.1:9\n" + frontend() + backend(),
    ),
    "maxpipes": (f"{GLOBAL}\nmaxpipes 50", DEFAULTS + frontend() + backend()),
    "splicing": (GLOBAL, DEFAULTS + " option splice-auto\n" + frontend() + backend()),
    "stats maxconn": (f"{GLOBAL}\nstats maxconn 77", DEFAULTS + frontend() + backend()),
    "logs received": (
        GLOBAL,
        DEFAULTS
        + frontend()
        + backend()
        + f"log-forward l\n bind 127.0.0.1:{HERE}\n dgram-bind 127.0.0.1:{HERE}\n log 127.0.0.1:9 local0\n",
    ),
    "quotes and comments": (
        GLOBAL,
        DEFAULTS + frontend() + backend() + " server 'q' 127.0.0.1:9 'check' # check\n #server c 127.0.0.1:9 check\n",
    ),
}


def configuration(shape: tuple[str, str], stats_socket: str) -> str:
    text = f"global\nstats socket {stats_socket} level admin\n{shape[0]}\n{shape[1]}\n"
    while HERE in text:
        text = text.replace(HERE, str(free_port()), 1)
    return text


@contextmanager
def started(text: str, directory: Path) -> Iterator[HaproxyProcess]:
    with HaproxyProcess(directory) as haproxy:
        haproxy.conf.write_text(text.replace("STATS", haproxy.stats_socket))
        haproxy.start()
        yield haproxy


def asked(path: str, command: str = "show info") -> dict[str, str]:
    pairs = (line.partition(": ") for line in ask(path, command).splitlines())
    return {key: value for key, _, value in pairs}


@pytest.mark.haproxy
@pytest.mark.parametrize("name", SHAPES)
def test_it_is_what_haproxy_computes(name: str, tmp_path: Path) -> None:
    text = configuration(SHAPES[name], "STATS")
    with started(text, tmp_path) as haproxy:
        info = asked(haproxy.stats_socket)
    found = needs(text, threads=1, version=info["Version"])
    assert found.descriptors == int(info["Maxsock"])
    assert found.maxconn == int(info["Maxconn"])
    assert at_most(text, threads=1, version=info["Version"]).descriptors >= found.descriptors


@pytest.mark.haproxy
def test_without_a_master_it_is_what_haproxy_computes(tmp_path: Path) -> None:
    text = configuration(SHAPES["checks"], str(tmp_path / "s"))
    (tmp_path / "haproxy.cfg").write_text(text)
    process = subprocess.Popen([BINARY, "-db", "-f", str(tmp_path / "haproxy.cfg")], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(str(tmp_path / "s")), "haproxy is up")
        # It has no socket to a master, which every worker has.
        assert needs(text, threads=1).descriptors == int(asked(str(tmp_path / "s"))["Maxsock"]) + 1
    finally:
        process.kill()
        process.wait()


def answers(path: str) -> bool:
    try:
        return bool(ask(path, "show info"))
    except NoAnswer:
        return False


def test_without_maxconn_it_is_the_least_that_starts() -> None:
    text = f"global\n nbthread 2\n{DEFAULTS}{frontend()}{backend(words='check')}"
    found = needs(text, threads=8)
    assert found.maxconn == 0
    assert (
        found.descriptors == needs(f"global\n nbthread 2\n maxconn {AUTOMATIC_MAXCONN}\n{text}", threads=8).descriptors
    )


def test_what_a_hundred_thousand_checked_servers_need() -> None:
    text = f"global\n maxconn 4000\n nbthread 2\n{DEFAULTS}{frontend()}{backend(100_000, 'check')}"
    assert needs(text, threads=2, version="2.6.12").descriptors == 108_039
    found = needs(text, threads=2)
    assert 500_000_000 < found.memory_bytes < 1_000_000_000
    assert found.reload_memory_bytes == 2 * found.memory_bytes
    assert needs(text, threads=8).memory_bytes == found.memory_bytes, "the text sets its threads"


def test_what_cannot_be_told_counts_as_absent() -> None:
    known = needs("global\n nbthread 1\n", threads=1)
    for line in ('maxconn "${MAXCONN}"', ".if defined(BIG)\n maxconn 900000\n.endif", "#maxconn 900000"):
        assert needs(f"global\n nbthread 1\n {line}\n", threads=1).descriptors == known.descriptors
    conditional = f"{DEFAULTS}backend be\n.if defined(X)\n server a 10.0.0.1:1 check\n.endif\n"
    assert needs(f"global\n nbthread 1\n{conditional}", threads=1).checks == 0


def test_the_lines_that_ask_for_a_limit() -> None:
    found = needs("global\n maxconn 100\n ulimit-n 7000\n fd-hard-limit 9000\n no strict-limits\n", threads=1)
    assert (found.descriptors, found.asked, found.line) == (7000, True, 3)
    assert (found.ceiling, found.strict) == (9000, False)


LINES = st.sampled_from(
    [
        "global",
        " maxconn 5000",
        " maxpipes 30",
        " nbthread 7",
        " ulimit-n 900",
        " stats maxconn 90",
        " stats socket /run/s",
        ".if defined(X)",
        ".endif",
        "defaults",
        "defaults named",
        " option splice-auto",
        " default-server check agent-check agent-port 3",
        " default-server check",
        " disabled",
        "frontend fe",
        "  frontend global from named",
        " bind :80",
        " bind :80-90,:100 ssl",
        " bind :80 shards 9",
        " dgram-bind :80-90",
        "backend be from named",
        "listen global",
        " server a 1.1.1.1:1",
        " server a 1.1.1.1:1 agent-check agent-check check",
        " server-template t 1-90 a:1 check",
        "peers p",
        " peer a 1.1.1.1:1",
        "log-forward l",
    ]
)


@given(lines=st.lists(LINES, max_size=25), threads=st.integers(1, 64))
def test_the_quick_bound_is_never_too_small(lines: list[str], threads: int) -> None:
    text = "\n".join(lines)
    exact, bound = needs(text, threads=threads), at_most(text, threads=threads)
    assert bound.descriptors >= exact.descriptors
    assert bound.memory_bytes >= exact.memory_bytes
    assert (bound.ceiling, bound.strict, bound.line) == (exact.ceiling, exact.strict, exact.line)
