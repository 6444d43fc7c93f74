"""A worker's ``stats socket`` that answers as it is told to: well, or broken in one of several ways."""

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from enum import StrEnum, auto
from pathlib import Path
from typing import Self


class Fault(StrEnum):
    """What is wrong with the answer to a command (``GOOD``: nothing)."""

    GOOD = auto()
    HALF = auto()
    """Half of the answer, then the connection is closed."""
    HALF_AND_HANG = auto()
    ERROR_TEXT = auto()
    CLOSED = auto()
    """Closed instead of an answer."""
    HANG = auto()
    GARBAGE = auto()
    NO_PROMPT = auto()
    """The answer without the prompt behind it: all that follow are off by one."""
    TWO_PROMPTS = auto()
    """A prompt too many."""
    ENDLESS = auto()


class BrokenSocket:
    """Answers ``state`` of its one backend; ``fault`` holds for the next command that contains ``when``, once."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="sock-"))
        self.path = str(self._directory / "s")
        self.fault, self.when = Fault.GOOD, ""
        self.pid, self.stopping = 4711, 0
        self.weight = 1
        self.commands: list[str] = []
        self.connections = 0
        self._ending = threading.Event()
        self._open: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.disconnect()
        for thread in self._threads:
            thread.join(30)
        shutil.rmtree(self._directory)

    def break_next(self, fault: Fault, when: str) -> None:
        self.fault, self.when = fault, when

    def disconnect(self) -> None:
        """Close every connection, as a worker that ends does."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._ending.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        unread = b""
        with connection, contextlib.suppress(OSError):
            while chunk := connection.recv(65536):
                unread += chunk
                while b"\n" in unread:
                    line, _, unread = unread.partition(b"\n")
                    if not self._say(connection, line.decode()):
                        return
        self._open.discard(connection)

    def _say(self, connection: socket.socket, command: str) -> bool:
        self.commands.append(command)
        good = self._answer(command).encode() + b"\n> "
        fault = self.fault if self.when in command else Fault.GOOD
        if fault is not Fault.GOOD:
            self.fault = Fault.GOOD
        broken = _BROKEN.get(fault)
        if fault in {Fault.HANG, Fault.HALF_AND_HANG, Fault.ENDLESS}:
            connection.sendall(good[: len(good) // 2] if fault is Fault.HALF_AND_HANG else b"")
            while fault is Fault.ENDLESS and not self._ending.is_set():
                connection.sendall(b"x" * 65536)
            connection.recv(1 << 20)  # until the other side gives up
            return False
        connection.sendall(broken(good) if broken else good)
        return fault not in {Fault.HALF, Fault.CLOSED}

    def _answer(self, command: str) -> str:
        if command == "show info":
            return f"Name: HAProxy\nPid: {self.pid}\nStopping: {self.stopping}\n"
        if command == "show cli level":
            return "admin\n"
        if command == "help":
            return "  add server <bk>/<srv> : create a new server\n"
        if command.startswith("show servers state"):
            columns = "be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight"
            rest = "srv_time_since_last_change srv_port"
            return f"1\n# {columns} {rest}\n3 be 1 one 127.0.0.1 2 0 {self.weight} 7 80\n"
        if command.startswith("show stat"):
            return "# pxname,svname,qcur,qmax,scur,\nbe,one,0,0,0,\n"
        if command.startswith("set server be/one weight "):
            self.weight = int(command.rpartition(" ")[2])
            return ""
        if command.startswith("get map "):
            return f'found=yes, key="{command.split()[3]}", value="v-{command.split()[3]}"\n'
        if command.startswith("del server"):
            return "Server deleted.\n"
        return ""


_BROKEN: dict[Fault, Callable[[bytes], bytes]] = {
    Fault.HALF: lambda good: good[: len(good) // 2],
    Fault.ERROR_TEXT: lambda _: b"Permission denied\n\n> ",
    Fault.CLOSED: lambda _: b"",
    Fault.GARBAGE: lambda _: b"\x00\xff\xfe> garbage >>\r\n\x1b[0m\n\n> ",
    Fault.NO_PROMPT: lambda good: good.removesuffix(b"\n> "),
    Fault.TWO_PROMPTS: lambda good: good + b"\n> ",
}
