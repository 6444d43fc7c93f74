import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from pyconfd.haproxy.history.generations import GenerationStore
from pyconfd.haproxy.process.haproxy_process import HaproxyProcess as Process
from pyconfd.haproxy.process.observation import OldWorker, Running
from pyconfd.haproxy.process.transaction import Known, Transaction
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.haproxy.runtime.sockets import NoAnswer, ask, processes, running_by_master
from pyconfd.model.rendering import Piece, Rendering
from tests.world.haproxy import BINARY, HaproxyProcess, configuration, free_port, wait_until

SHOW_PROC = """#<PID>          <type>          <reloads>       <uptime>        <version>      
29653           master          2 [failed: 1]   1d02h03m04s     {version}
# workers
29665           worker          0               0d00h00m02s     {version}
# old workers
29655           worker          1               0d00h07m04s     {version}
29656           worker          2               1d01h00m00s     {version}
# programs
29700           probe           0               9d00h00m00s     -

"""  # noqa: W291 - as HAProxy pads it


@pytest.mark.parametrize("version", ["2.6.12-1+deb12u4", "3.0.11-1+deb13u3", "3.2.26-1", "3.4.7-1"])
def test_the_oldest_of_the_old_workers(version: str, tmp_path: Path) -> None:
    path = tmp_path / "m"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        answering = threading.Thread(target=_answer, args=(server, SHOW_PROC.format(version=version)))
        answering.start()
        found = processes(str(path))
        answering.join(10)
    old = (OldWorker(29656, 25 * 3600.0, 424.0), OldWorker(29655, 424.0, 2.0))
    assert found == Running(None, 29665, version, 29653, old, 2, 1)
    assert [(each.age_s, each.replaced_s) for each in found.old_workers] == [(90000.0, 424.0), (424.0, 2.0)]


@pytest.mark.haproxy
def test_a_haproxy_with_a_relative_path_in_a_chroot_is_known_with_all_its_workers(tmp_path: Path) -> None:
    """Else a port that it has is taken by another program, and every Gateway on it is refused."""
    port, empty = free_port(), tmp_path / "empty"
    empty.mkdir()
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        text = configuration(port, global_lines=f"chroot {empty}" if os.geteuid() == 0 else "")
        haproxy.conf.write_text(text)
        argv = [BINARY, "-W", "-S", haproxy.master_socket, "-f", haproxy.conf.name]
        with subprocess.Popen(argv, cwd=haproxy.conf.parent, stdin=subprocess.DEVNULL) as started:
            try:
                wait_until(lambda: haproxy.running() is not None, "it answers")
                first = haproxy.worker()
                with socket.create_connection(("127.0.0.1", port)) as held:
                    held.sendall(b"GET / HTTP/1.1\r\n")
                    wait_until(lambda: _has_connection(haproxy), "the worker has taken the connection")
                    haproxy.reload()
                    process = Process(haproxy.settings(pid_file=""), UnitFacts())
                    assert process.pids() == {started.pid, first, haproxy.worker()}
                    binds = Rendering((Piece("01.tmpl", text.replace("bind 127.0.0.1:", "bind *:")),))
                    transaction = Transaction(haproxy.settings(), UnitFacts(), process, GenerationStore(str(empty), 1))
                    assert transaction.listener_conflicts(binds, Known()) == {}
            finally:
                started.terminate()


def _answer(server: socket.socket, text: str) -> None:
    connection, _ = server.accept()
    with connection:
        while connection.recv(4096):
            pass
        connection.sendall(text.encode())


@pytest.mark.haproxy
def test_an_old_worker_ages_while_a_connection_lasts(tmp_path: Path) -> None:
    port = free_port()
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        haproxy.conf.write_text(configuration(port))
        haproxy.start()
        before = haproxy.running()
        assert before is not None
        assert before.old_workers == ()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n")
            wait_until(lambda: _has_connection(haproxy), "the worker has taken the connection")
            haproxy.reload()
            wait_until(lambda: _age(haproxy) >= 1.0, "the old worker is a second old")
        wait_until(lambda: _age(haproxy) == 0.0, "the old worker goes with its connection")


def _has_connection(haproxy: HaproxyProcess) -> bool:
    return "CurrConns: 1" in ask(haproxy.master_socket, "@1 show info")


def _age(haproxy: HaproxyProcess) -> float:
    try:
        return max((each.age_s for each in running_by_master(haproxy.master_socket).old_workers), default=0.0)
    except NoAnswer:
        return -1.0
