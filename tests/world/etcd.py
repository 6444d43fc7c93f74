"""A real etcd on ports of its own, started, killed, restarted and emptied by a test."""

import json
import os
import shutil
import signal
import subprocess
import time
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyconfd.settings import EtcdSettings
from tests.world.haproxy import free_port
from tests.world.pki import CertificateAuthority, KeyPair

BINARY = shutil.which("etcd") or "/usr/bin/etcd"
CTL = shutil.which("etcdctl") or "/usr/bin/etcdctl"
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Tls:
    """What an etcd needs to speak TLS and to ask for client certificates; ``other_ca`` signed none of it.

    ``client`` has no common name, ``named_client`` has one.
    """

    ca: Path
    server: KeyPair
    client: KeyPair
    named_client: KeyPair
    other_ca: Path

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Create all files below ``folder``."""
        authority = CertificateAuthority(folder / "pki", "etcd-ca")
        # etcd's gateway dials itself with the server's certificate: it has to be one for clients too.
        other = CertificateAuthority(folder / "pki", "other-ca")
        return cls(
            authority.cert, authority.both("etcd"), authority.nameless_client(), authority.client("pyconfd"), other.cert
        )


class EtcdProcess:
    """One etcd of one member; ``folder`` holds its data and its log."""

    def __init__(self, folder: Path, *, tls: Tls | None = None, arguments: tuple[str, ...] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data = folder / "data"
        self.log = folder / "etcd.log"
        self._tls = tls
        self._arguments = arguments
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{free_port()}"
        self._peer = f"http://127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        self._login: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def settings(self, **changes: Any) -> EtcdSettings:
        """Return the settings by which pyconfd reaches it; a machine without a processor to spare is no failure."""
        values: dict[str, Any] = {"endpoints": (self.url,), "lease_s": 2.0, "poll_s": 2.0, "timeout_s": 30.0}
        if self._tls:
            values |= {"ca": str(self._tls.ca), "cert": str(self._tls.client.cert), "key": str(self._tls.client.key)}
        return EtcdSettings(**{**values, **changes})

    def start(self) -> None:
        """Start, and wait until it answers."""
        argv = [
            BINARY, "--name", "one", "--data-dir", str(self.data),
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--listen-peer-urls", self._peer, "--initial-advertise-peer-urls", self._peer,
            "--initial-cluster", f"one={self._peer}", *self._arguments,
        ]  # fmt: skip
        if self._tls:
            argv += ["--cert-file", str(self._tls.server.cert), "--key-file", str(self._tls.server.key)]
            argv += ["--trusted-ca-file", str(self._tls.ca), "--client-cert-auth"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while self.ctl("endpoint", "health", check=False).returncode:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise AssertionError(f"etcd does not answer:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power failure would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop its process: it holds its connections and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # The signal arrives when it arrives: until every thread has stopped, a request may still be answered.
        tasks = Path(f"/proc/{self._process.pid}/task")
        deadline = time.monotonic() + PATIENCE_S
        while any((task / "stat").read_text().rpartition(")")[2].split()[0] != "T" for task in tasks.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def thaw(self) -> None:
        """Continue its process."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def lose_data(self) -> None:
        """Forget everything; only while it is down."""
        shutil.rmtree(self.data)

    def ctl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run etcdctl; by default etcd is there, however long it takes."""
        dial = "20s" if check else "2s"
        argv = [CTL, "--endpoints", self.url, "--dial-timeout", dial, "--command-timeout", "25s", *self._login]
        if self._tls:
            argv += ["--cacert", str(self._tls.ca)]
            argv += ["--cert", str(self._tls.client.cert), "--key", str(self._tls.client.key)]
        environment = {"ETCDCTL_API": "3", "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [*argv, *arguments], capture_output=True, text=True, check=False, env=environment, timeout=30
        )
        if check and done.returncode:
            raise AssertionError(f"etcdctl {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done

    def dump(self) -> bytes:
        """Return every key and value there is, as bytes one after another."""
        document = json.loads(self.ctl("get", "", "--prefix", "-w", "json").stdout)
        return b"\n".join(b64decode(item[part]) for item in document.get("kvs", ()) for part in ("key", "value"))

    def revision(self) -> int:
        """Return the current revision."""
        return int(json.loads(self.ctl("endpoint", "status", "-w", "json").stdout)[0]["Status"]["header"]["revision"])

    def compact(self) -> None:
        """Forget all history."""
        self.ctl("compact", str(self.revision()))

    def demand_login(self, user: str, password: str, prefix: str) -> None:
        """Switch authentication on; ``user`` may do everything below ``prefix``."""
        self.ctl("user", "add", "root:rootpassword")
        self.ctl("user", "grant-role", "root", "root")
        self.ctl("role", "add", user)
        self.ctl("role", "grant-permission", user, "readwrite", prefix, "--prefix=true")
        self.ctl("user", "add", f"{user}:{password}")
        self.ctl("user", "grant-role", user, user)
        self.ctl("auth", "enable")
        self._login = ("--user", "root:rootpassword")
