import os
import socket
import subprocess
import sys
from pathlib import Path

from pyconfd.haproxy.process import host
from pyconfd.model.host import ListeningSocket


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
    ):
        argv = [str(tmp_path / "haproxy"), "-c", script, "-f", argument]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            found = host.haproxy_pids(str(tmp_path / "a.cfg"), "/usr/sbin/haproxy")
            process.stdin.close()
        assert (process.pid in found) is expected
