import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pyconfd.haproxy.process import host
from pyconfd.haproxy.process.unit import UnitFacts, environment_file, gather, parse, problems
from pyconfd.model.snapshot import ListeningSocket
from pyconfd.settings import HaproxySettings


def listening_on(port: int, sockets: tuple[ListeningSocket, ...], address: str = "127.0.0.1") -> list[ListeningSocket]:
    # At another address another process may have the same port.
    return [found for found in sockets if (found.address, found.port) == (address, port)]


def test_addresses_include_what_can_be_bound_and_nothing_else() -> None:
    facts = host.gather(probe=["127.0.0.77", "203.0.113.77", "2001:db8::77"])
    assert {"127.0.0.1", "127.0.0.77"} <= facts.addresses
    assert not {"203.0.113.77", "2001:db8::77"} & facts.addresses
    assert 0 < facts.ephemeral_ports[0] < facts.ephemeral_ports[1]


def test_a_listening_socket_is_found_with_its_owner_and_a_bound_one_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port, silent = server.getsockname()[1], bound.getsockname()[1]
        (found,) = listening_on(port, host.gather(ports=frozenset({port})).listening)
        assert f"pid {os.getpid()}" in found.owner
        assert listening_on(silent, host.gather().listening) == []
        assert (
            listening_on(port, host.gather(ports=frozenset({port}), ignore_pids=frozenset({os.getpid()})).listening)
            == []
        )


def test_ipv6_sockets_tell_whether_they_take_ipv4() -> None:
    for v6only in (True, False):
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=not v6only) as server:
            (found,) = listening_on(server.getsockname()[1], host.gather().listening, "::")
            assert found.v6only is v6only


def test_without_inet_diag_the_tables_of_proc_give_the_same() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
    ):
        found = [entry for entry, _ in host._from_proc()]
        assert ListeningSocket("127.0.0.1", four.getsockname()[1]) in found
        assert ListeningSocket("::1", six.getsockname()[1]) in found


def test_capabilities_of_a_process() -> None:
    assert host.may_bind_low_ports(os.getpid()) is not None
    assert host.may_bind_low_ports(2**22 + 1) is None


def test_only_processes_that_load_the_file_are_found(tmp_path: Path) -> None:
    (tmp_path / "haproxy").symlink_to(sys.executable)
    script = "import sys; print('up', flush=True); sys.stdin.read()"
    for argument, expected in (
        (str(tmp_path / "a.cfg"), True),
        (str(tmp_path / "b.cfg"), False),
        (str(tmp_path), True),
        (f"{tmp_path}/", True),
        ("a.cfg", True),
        ("./b.cfg", False),
        (".", True),
    ):
        argv = [str(tmp_path / "haproxy"), "-c", script, "-f", argument]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            found = host.haproxy_pids(str(tmp_path / "a.cfg"), "/usr/sbin/haproxy")
            process.stdin.close()
        assert (process.pid in found) is expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces")
def test_processes_of_containers_are_not_found(tmp_path: Path) -> None:
    (tmp_path / "haproxy").symlink_to(sys.executable)
    script = "import sys; print('up', flush=True); sys.stdin.read()"
    argv = [str(tmp_path / "haproxy"), "-c", script, "-f", str(tmp_path / "a.cfg")]
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        [child] = psutil.Process(process.pid).children()
        found = host.haproxy_pids(str(tmp_path / "a.cfg"), "/usr/sbin/haproxy")
        process.stdin.close()
    assert child.pid not in found


DEBIAN = """LoadState=loaded
User=
Group=
Environment=CONFIG=/etc/haproxy/haproxy.cfg PIDFILE=/run/haproxy.pid "EXTRAOPTS=-S /run/haproxy-master.sock"
EnvironmentFiles=/etc/default/haproxy (ignore_errors=yes)
EnvironmentFiles=/etc/sysconfig/haproxy (ignore_errors=yes)
ExecStart={ path=/usr/sbin/haproxy ; argv[]=/usr/sbin/haproxy -Ws -f $CONFIG -p $PIDFILE $EXTRAOPTS ; ignore_errors=no }
AmbientCapabilities=
"""


def nothing(path: str) -> str:
    return ""


def test_the_unit_of_debian() -> None:
    facts = parse("haproxy.service", DEBIAN, nothing)
    assert facts.found
    assert facts.user == ""
    assert facts.low_ports
    assert facts.configurations == ("/etc/haproxy/haproxy.cfg",)
    assert facts.master_worker_flag == "-Ws"
    assert facts.master_socket == "/run/haproxy-master.sock"
    assert facts.pid_file == "/run/haproxy.pid"
    assert facts.environment["CONFIG"] == "/etc/haproxy/haproxy.cfg"


def test_an_environment_file_wins_and_is_read_as_systemd_does() -> None:
    files = {
        "/etc/default/haproxy": '# c\nCONFIG="/etc/haproxy/generated/haproxy.cfg"\n'
        'EXTRAOPTS="-S /run/m.sock,mode,660,group,pyconfd -f /etc/more.cfg"\nNAME=a\\\n b\n'
    }
    facts = parse("haproxy.service", DEBIAN, lambda path: files.get(path, ""))
    assert facts.configurations == ("/etc/haproxy/generated/haproxy.cfg", "/etc/more.cfg")
    assert facts.master_socket == "/run/m.sock"
    assert environment_file("; c\nA='x y'\nnonsense\nB=\n") == {"A": "x y", "B": ""}


def test_an_unprivileged_unit() -> None:
    shown = DEBIAN.replace("User=", "User=haproxy").replace("Group=", "Group=proxies")
    facts = parse("haproxy.service", shown, nothing)
    assert (facts.user, facts.group, facts.low_ports) == ("haproxy", "proxies", False)
    with_capability = shown.replace("AmbientCapabilities=", "AmbientCapabilities=cap_net_bind_service")
    assert parse("haproxy.service", with_capability, nothing).low_ports


def test_a_unit_that_is_not_there() -> None:
    assert parse("x.service", DEBIAN.replace("=loaded", "=not-found"), nothing) == UnitFacts("x.service")
    assert gather("") == UnitFacts("")


def test_a_unit_that_loads_another_file_is_told_with_the_remedy(tmp_path: Path) -> None:
    facts = parse("haproxy.service", DEBIAN, nothing)
    (problem,) = problems(HaproxySettings(conf="/srv/haproxy.cfg"), facts)
    assert "loads /etc/haproxy/haproxy.cfg but pyconfd writes /srv/haproxy.cfg" in problem.message
    assert "put CONFIG=/srv/haproxy.cfg in /etc/default/haproxy" in problem.remedy
    assert problems(HaproxySettings(conf="/etc/haproxy/haproxy.cfg"), facts) == ()
    assert problems(HaproxySettings(conf="/srv/haproxy.cfg"), UnitFacts()) == ()

    whole_directory = parse("haproxy.service", DEBIAN.replace("/etc/haproxy/haproxy.cfg", str(tmp_path)), nothing)
    assert problems(HaproxySettings(conf=str(tmp_path / "50-pyconfd.cfg")), whole_directory) == ()
