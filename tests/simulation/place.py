"""Where a simulation takes place: a real haproxy, pods that answer, and a pyconfd that can be killed and restarted."""

import os
import resource
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from cryptography import x509

from pyconfd import fragments
from pyconfd.admission.removal_protection import RemovalRules
from pyconfd.daemon import name_register
from pyconfd.daemon.installed_certificates import InstalledCertificates
from pyconfd.daemon.protection import hold_file
from pyconfd.haproxy.process import adoption
from pyconfd.haproxy.process.file_writer import FileWriter
from pyconfd.model.context import Refusal
from pyconfd.model.snapshot import Resource, Snapshot
from pyconfd.model.status import SourceHealth
from pyconfd.settings import (
    ApplySettings,
    ClaimSettings,
    HistorySettings,
    KubernetesSettings,
    ReloadMethod,
    Settings,
    TemplateSettings,
)
from pyconfd.settings.sections import AddressSettings
from pyconfd.sources.fragments import read_fragments
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.decode import Unreadable, Upserted, decode_event
from tests.daemon.fakes import FakeClock, SettingsBed
from tests.e2e.test_quarantine import RAW
from tests.haproxy.crashing import arm
from tests.simulation.cluster import (
    HTTP_SERVICES,
    RENEWALS,
    WITH_TLS,
    Objects,
    Pair,
    Pairs,
    Ports,
    all_addresses,
    host,
    line,
    pod_address,
)
from tests.simulation.writing import ClusterWriters, WrittenApi
from tests.world.haproxy import BINARY, HaproxyProcess, configuration, free_port, wait_until
from tests.world.pki import CertificateAuthority, KeyPair

RLIM_INFINITY = resource.RLIM_INFINITY
LONG_S = 15.0
"""How long a loss is held and a name is kept: short, since each second costs a turn of the loop."""
_RESOURCES = (
    Resource.SERVICES,
    Resource.ENDPOINTSLICES,
    Resource.NODES,
    Resource.INGRESSCLASSES,
    Resource.INGRESSES,
    Resource.GATEWAYCLASSES,
    Resource.GATEWAYS,
    Resource.HTTPROUTES,
    Resource.SECRETS,
)

CHECK = """#!/bin/sh
# HAProxy's own judgement, and a note of what it let pass.
ulimit -S -f unlimited
{binary} -c -q -f "$1" || exit $?
: > {checked}/$(sed -n 's/.*pyconfd:\\([0-9a-f]*\\).*/\\1/p' "$1" | tail -n 1)
"""

RELOAD = """#!/bin/sh
# 1: fails; 2: does it and says that it failed, once: what then runs is waited for in real time.
ulimit -S -f unlimited
read mode < {mode}
[ "$mode" = 1 ] && {{ echo "no reload today"; exit 1; }}
kill -USR2 $(cat {pid_file}) || exit 1
[ "$mode" = 2 ] && {{ echo 0 > {mode}; echo "reloaded, and lying about it"; exit 1; }}
exit 0
"""


def own_address(network: int = 64) -> str:
    """Return an address of this process' own: HAProxy shares a port with whoever else asks for it."""
    pid = os.getpid()
    return f"127.{network + (pid >> 16)}.{pid >> 8 & 255}.{pid & 255}"


def _pairs(folder: Path) -> Pairs:
    authority = CertificateAuthority(folder)

    def pair(files: KeyPair) -> Pair:
        text = files.cert.read_bytes()
        return Pair(x509.load_pem_x509_certificate(text).serial_number, text, files.key.read_bytes())

    own = [pair(authority.server(f"own-{number}", [host(WITH_TLS)])) for number in range(RENEWALS)]
    return Pairs(own, pair(authority.server("thief", [host(at) for at in range(HTTP_SERVICES)])))


class Seen:
    """A source whose API servers answer what a simulation has them answer; what they say is decoded as it is."""

    def __init__(self, state_dir: str) -> None:
        self._restored = InstalledCertificates(state_dir, hold_file(state_dir)).restored
        self._caches: dict[Resource, Cache] | None = None
        self._shown: Objects = {}
        self._asked = False
        self._notify: Callable[[], None] = lambda: None

    def show(self, objects: Objects, *, listed: bool) -> None:
        """Return whole lists, or the events of a watch since the last time."""
        if self._caches is None or listed:
            self._list(objects)
        else:
            for kind_of, cache in self._caches.items():
                for key in self._shown.keys() | objects.keys():
                    if key[0] is kind_of and self._shown.get(key) != objects.get(key):
                        kind = "MODIFIED" if key in objects else "DELETED"
                        cache.apply(decode_event(kind_of, line(kind, objects.get(key) or self._shown[key])))
        self._shown, self._asked = objects, False
        self._notify()

    def _list(self, objects: Objects) -> None:
        self._caches = self._caches or {each: Cache() for each in _RESOURCES}
        for kind_of, cache in self._caches.items():
            events = [decode_event(kind_of, line("ADDED", item)) for key, item in objects.items() if key[0] is kind_of]
            records = [each.record for each in events if isinstance(each, Upserted)]
            cache.replace(records, [each.refusal for each in events if isinstance(each, Unreadable)])

    def start(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        if self._caches is not None:
            notify()

    def snapshot(self) -> Snapshot | None:
        if self._caches is None:
            return None
        views: dict[str, Any] = {kind_of.field: cache.view() for kind_of, cache in self._caches.items()}
        terminating = tuple(cache.terminating for cache in self._caches.values())
        return self._restored(Snapshot(**views, terminating=terminating))

    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(each for cache in (self._caches or {}).values() for each in cache.refusals())

    def health(self) -> SourceHealth:
        return SourceHealth(synced=self._caches is not None)

    def relist(self) -> None:
        self._asked = True

    @property
    def is_asked(self) -> bool:
        """Whether full lists are wanted."""
        return self._asked

    def relisted(self) -> bool:
        return not self._asked

    def stop(self) -> None:
        """Do nothing: there are no threads."""


class _Bed(SettingsBed):
    """The daemon of a place, whose API servers answer and whose disk may be full."""

    def __init__(self, place: "Place") -> None:
        self._place = place
        writers = place.writers
        rules = RemovalRules(window_s=LONG_S, persist_s=LONG_S)
        super().__init__(place.settings, place.source, place.clock, rules, writers.statuses, writers.names)

    def turn(self) -> None:
        place = self._place
        if place.source.is_asked and (objects := place.answers()) is not None:
            place.source.show(objects, listed=True)
        with place.full_disk():
            super().turn()
            self.real._file.settle()
        written = place.api.writes
        place.writers.turn(self.daemon.mailbox.post)
        if place.api.writes != written and (objects := place.answers()) is not None:
            place.source.show(objects, listed=False)


class Place:
    """Everything in one folder; ``clock`` is the only one that pyconfd's loop sees."""

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self.folder, self.clock = folder, FakeClock()
        self._foreigner: socket.socket | None = None
        self.front = own_address()
        self.http = free_port(self.front)
        self.https = free_port(self.front)
        self.pairs = _pairs(folder / "pki")
        pool = own_address(96), own_address(128), own_address(160), own_address(192)
        pods, tcp = free_port(pod_address(0, 0)), free_port(self.front)
        self.ports = Ports(pods, tcp, free_port(pool[0]), free_port(pool[1]), pool)
        self.haproxy = self._stack.enter_context(HaproxyProcess(folder / "etc"))
        self._stack.callback(self.close_foreigner)
        self._start_pods()
        self.checked, self.mode = folder / "checked", folder / "reload-mode"
        self.checked.mkdir()
        self.templates = self._fragments()
        self.settings = self._settings()
        self.reload_mode(0)
        self.most_bytes = RLIM_INFINITY
        self.answers: Callable[[], Objects | None] = lambda: None
        self.api = WrittenApi()
        self.haproxy.conf.write_text(configuration(free_port()), encoding="utf-8")
        self.haproxy.start()
        adoption.adopt(self.settings.state_dir)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_pods(self) -> None:
        argv = [sys.executable, "-m", "tests.world.backends", "--port", str(self.ports.pods), *all_addresses()]
        pods = subprocess.Popen(argv, stdout=subprocess.PIPE)

        def end() -> None:
            pods.terminate()
            pods.wait(30)

        self._stack.callback(end)
        assert pods.stdout is not None
        with pods.stdout:
            for _ in all_addresses():
                pods.stdout.readline()

    def _fragments(self) -> Path:
        templates = self.folder / "templates"
        templates.mkdir()
        shipped = read_fragments(fragments.directory())
        for each in (*shipped.fragments, *(each for each in shipped.includable if each.name.endswith(".j2"))):
            # Checks by HAProxy run on its own clock.
            (templates / each.name).write_text(each.text.replace("default-server check", "default-server"))
        (templates / "06-raw.tmpl").write_text(RAW)
        return templates

    def _settings(self) -> Settings:
        check, reload = self.folder / "check", self.folder / "reload"
        check.write_text(CHECK.format(binary=BINARY, checked=self.checked))
        reload.write_text(RELOAD.format(mode=self.mode, pid_file=self.haproxy.pid_file))
        for script in (check, reload):
            script.chmod(0o755)
        variables = {
            "http_bind": f"{self.front}:{self.http}",
            "https_bind": f"{self.front}:{self.https}",
            "stats_bind": "",
            "tcp_address": self.front,
            "runtime_socket": self.haproxy.stats_socket,
        }
        return Settings(
            haproxy=self.haproxy.settings(
                reload_method=ReloadMethod.COMMAND,
                reload_cmd=(str(reload),),
                chk_cmd=(str(check),),
                reload_timeout_s=60.0,
            ),
            apply=ApplySettings(
                keep_generations=5, retry_min_s=0.5, retry_max_s=2.0, spare_backends=3, rename_interval_s=0.3
            ),
            history=HistorySettings(ran_well_s=3.0, rollout_monitor_s=0.0),
            templates=TemplateSettings(dir=str(self.templates), vars=variables),
            kubernetes=KubernetesSettings(secret_namespaces=("*",)),
            addresses=AddressSettings(pool=self.ports.pool, shared=(self.front,)),
            claims=ClaimSettings(reserve_s=LONG_S, allow_endpoints=("127.0.0.0/8",)),
            state_dir=str(self.folder / "state"),
        )

    # pyconfd

    def begin(self) -> None:
        """Start a pyconfd that knows what is on disk and nothing else."""
        self.source = Seen(self.settings.state_dir)
        if (objects := self.answers()) is not None:
            self.source.show(objects, listed=True)
        self.writers = ClusterWriters(self.api, self.source, self.clock, (*self.ports.pool, self.front))
        self.bed = _Bed(self)
        self.daemon, self.balancer = self.bed.daemon, self.bed.real
        self.balancer._file._stopping.set()  # it waits as long after each write as that took, in real time

    def run_for(self, seconds: float) -> None:
        """Step the loop for so long."""
        self.bed.run_for(seconds, turns=50 + int(seconds * 20))

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Limit files to ``most_bytes``, as the kernel would on a disk that is full."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.most_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    def kill(self, die_before: int) -> bool:
        """Go on until an effect with this number, and die before it; then restart. Tell whether it came so far.

        It is a fork that goes on and dies, as by `kill -9`; what this process knows of the former is thrown away.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there is no thread that holds anything
            child = os.fork()
        if child == 0:
            self._go_on_and_die(die_before)
        _, status = os.waitpid(child, 0)
        self.end()
        self.begin()
        return os.waitstatus_to_exitcode(status) == 99

    def _go_on_and_die(self, die_before: int) -> None:
        try:
            self.balancer._file = FileWriter(self.balancer._write_file)  # the thread did not come along
            arm(die_before)
            self.run_for(3.0)
        finally:
            os._exit(0)

    def names(self) -> dict[tuple[str, str, str], str]:
        """Return the namespace that has each name that is asked for, by what pyconfd remembers."""
        register = self.daemon._world.name_register.at(self.clock.now()).register
        return {
            (scope, *name): each.namespace
            for scope, mine in register.reservations.items()
            for name, each in mine.items()
            if not each.until
        }

    def lose_names(self) -> None:
        """Kill pyconfd while nothing goes on, and restart without what its file says of names."""
        self.end()
        (Path(self.settings.state_dir) / name_register.FILE_NAME).unlink(missing_ok=True)
        self.begin()

    def end(self) -> None:
        """Release what a dead process had; nothing is written."""
        self.bed.end()

    # Faults

    def reload_mode(self, mode: int) -> None:
        """0: works; 1: fails; 2: works and says that it failed, once."""
        self.mode.write_text(f"{mode}\n")

    def take_port(self) -> bool:
        """Listen where ``tcp`` wants to; return whether that was possible."""
        self.close_foreigner()
        foreigner = socket.socket()
        try:
            foreigner.bind((self.front, self.ports.tcp))
            foreigner.listen()
        except OSError:
            foreigner.close()
            return False
        self._foreigner = foreigner
        return True

    @property
    def has_foreigner(self) -> bool:
        """Whether somebody else listens where ``tcp`` wants to."""
        return self._foreigner is not None

    def close_foreigner(self) -> None:
        """Free the port again."""
        if self._foreigner is not None:
            self._foreigner.close()
            self._foreigner = None

    def restart_haproxy(self) -> None:
        """Kill HAProxy, and start it as a service manager would: with the file as it lies there."""
        # Whoever was killed may have asked for a reload, and its master is silent for a moment.
        pids: list[int] = []

        def found() -> bool:
            running = self.haproxy.running()
            pids.extend((running.worker_pid, running.master_pid) if running else ())
            return bool(pids)

        wait_until(found, "haproxy answers")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.haproxy.stop()
        self.haproxy.start(wait=False)
        wait_until(lambda: self.haproxy.running() is not None, "haproxy comes up with what lies on disk")

    def edit(self, text: str) -> None:
        """Write the operator's own fragment, or remove it."""
        path = self.templates / "07-own.tmpl"
        if text:
            path.write_text(text)
        else:
            path.unlink(missing_ok=True)
