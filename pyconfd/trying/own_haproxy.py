"""A haproxy in master-worker mode that belongs to this process: started by it, and ended with everything it began."""

import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import psutil

from pyconfd.haproxy.process.observation import Running
from pyconfd.haproxy.runtime.sockets import NoAnswer, running_by_master
from pyconfd.settings import HaproxySettings, ReloadMethod

_PATIENCE_S = 10.0


_MOST_BYTES = 80
"""The longest directory for sockets: HAProxy leaves 97 bytes for their paths."""


def short_folder(prefix: str) -> Path:
    """Create a temporary directory that is short enough for UNIX sockets."""
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix=prefix, dir=usual if len(usual.encode()) <= _MOST_BYTES else "/tmp"))  # noqa: S108 - mkdtemp makes it safe


class OwnHaproxy:
    """``haproxy -W -S <socket> -p <pid file> -f <conf>``.

    ``directory`` holds ``haproxy.cfg`` (written by the caller), the log and the pid file; the sockets are in a
    short directory of their own, since the path of a UNIX socket may have 107 bytes.
    """

    def __init__(self, directory: Path, binary: str, *, conf: Path | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.binary = binary
        self.conf = conf or directory / "haproxy.cfg"
        self.log = directory / "haproxy.log"
        self.pid_file = directory / "haproxy.pid"
        self.sockets = short_folder("hap-")
        self.master_socket = str(self.sockets / "m")
        self.stats_socket = str(self.sockets / "s")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def settings(self, **changes: Any) -> HaproxySettings:
        """Return the settings by which pyconfd controls this process."""
        return replace(
            HaproxySettings(
                conf=str(self.conf),
                binary=self.binary,
                master_socket=self.master_socket,
                pid_file=str(self.pid_file),
                reload_method=ReloadMethod.MASTER,
                reload_timeout_s=15.0,
                unit="",
            ),
            **changes,
        )

    def launch(self) -> None:
        """Start with what ``conf`` holds and do not wait; in a session of its own, so that Ctrl-C is not for it."""
        argv = [self.binary, "-W", "-S", self.master_socket, "-p", str(self.pid_file), "-f", str(self.conf)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def launched(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._process is not None

    def ended(self) -> int | None:
        """Return the exit status of one that ended by itself, None while it runs or was never started."""
        return None if self._process is None else self._process.poll()

    def running(self) -> Running | None:
        """Return what the newest worker says, None while it does not answer."""
        try:
            return running_by_master(self.master_socket)
        except NoAnswer:
            return None

    def stop(self) -> None:
        """End the master, every worker, and wait for them."""
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(self._process.pid).children(recursive=True)
            self._process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(_PATIENCE_S)
        self._process = None

    def close(self) -> None:
        """Stop, and remove the sockets."""
        self.stop()
        shutil.rmtree(self.sockets, ignore_errors=True)
