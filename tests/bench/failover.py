"""What clients see of a pod that dies, and what looking at idle pods costs, with the shipped words for checks.

``python -m tests.bench.failover [DEFAULTS]`` runs it with another file in the place of 01-defaults.conf; needs root.
All of it is in a network namespace of its own, where packets to the dead pod are dropped.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pyconfd.fragments import directory
from pyconfd.haproxy.runtime.sockets import ask
from tests.bench.figures import Figure
from tests.world.haproxy import HaproxyProcess, wait_until

CLIENTS, PAUSE_S, SLOW_S = 32, 0.05, 1.5
PODS, POD_PORT, PORT = ("127.29.0.1", "127.29.0.2", "127.29.0.3"), 8080, 8081
SECONDS = {"silent": 80, "refused": 20, "answers_500": 15}
"""How long the clients go on after the fault; a request on a connection to a silent pod ends with timeout server."""
IDLE_SERVERS, IDLE_S = 5_000, 60.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request of one client, in seconds since the fault."""

    began: float
    took: float
    failed: bool


async def _pod(address: str) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    broken = False

    def fails() -> None:
        nonlocal broken
        broken = True

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(answer.replace(b"200 OK", b"500 Fault") if broken else answer)
                await writer.drain()
        writer.close()

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, fails)
    async with await asyncio.start_server(serve, address, POD_PORT, backlog=1024) as server:
        await server.serve_forever()


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, close: bool) -> bool:
    """Ask once over the connection; return whether a 200 came, all of it."""
    writer.write(b"GET / HTTP/1.1\r\nHost: test\r\n" + (b"Connection: close\r\n" if close else b"") + b"\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return False
    await reader.readexactly(2)
    return True


async def _client(place: int, found: list[Request], fault_at: float, until: float, *, keep: bool) -> None:
    await asyncio.sleep(PAUSE_S * place / CLIENTS)  # not all at once
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while (began := time.monotonic()) < until:
        good = False
        with suppress(OSError, asyncio.IncompleteReadError):
            connection = connection or await asyncio.open_connection("127.0.0.1", PORT)
            good = await _answered(*connection, close=not keep)
        found.append(Request(began - fault_at, time.monotonic() - began, not good))
        if connection and not (keep and good):
            connection[1].close()
            connection = None
        await asyncio.sleep(PAUSE_S)
    if connection:
        connection[1].close()


@asynccontextmanager
async def _pods() -> AsyncIterator[list[subprocess.Popen[bytes]]]:
    pods = [subprocess.Popen([sys.executable, "-m", __spec__.name, "pod", each]) for each in PODS]  # noqa: ASYNC220
    try:
        yield pods
    finally:
        for pod in pods:
            pod.kill()
            pod.wait()


def _strike(fault: str, pod: subprocess.Popen[bytes]) -> None:
    if fault == "refused":
        pod.kill()
    elif fault == "answers_500":
        pod.send_signal(signal.SIGUSR1)
    else:
        drop = f"type filter hook input priority 0; ip daddr {PODS[0]} tcp dport {POD_PORT} drop;"
        rule = f"table ip dead {{ chain in {{ {drop} }}; }}"
        subprocess.run(["nft", rule], check=True)


def _column(haproxy: HaproxyProcess, name: str) -> list[str]:
    rows = [row.lstrip("# ").split(",") for row in ask(haproxy.stats_socket, "show stat").splitlines() if row]
    place = rows[0].index(name)
    return [row[place] for row in rows[1:] if row[1].startswith("pod-")]


async def _fail_over(haproxy: HaproxyProcess, fault: str, *, keep: bool) -> tuple[list[Request], float | None]:
    """Return the requests, and when HAProxy took the pod out, None for never."""
    async with _pods() as pods:
        await asyncio.to_thread(wait_until, lambda: set(_column(haproxy, "check_status")) == {"L4OK"}, "checks pass")
        await asyncio.to_thread(wait_until, lambda: set(_column(haproxy, "status")) == {"UP"}, "the pods are up")
        fault_at = time.monotonic() + 5
        found: list[Request] = []
        down: float | None = None
        until = fault_at + SECONDS[fault]
        clients = [asyncio.create_task(_client(place, found, fault_at, until, keep=keep)) for place in range(CLIENTS)]
        await asyncio.sleep(fault_at - time.monotonic())
        _strike(fault, pods[0])
        while time.monotonic() < until and down is None:
            await asyncio.sleep(0.1)
            if (await asyncio.to_thread(_column, haproxy, "status"))[0].startswith("DOWN"):
                down = time.monotonic() - fault_at
        await asyncio.gather(*clients)
    return found, down


def _start(folder: str, defaults: str, servers: Iterator[str]) -> HaproxyProcess:
    haproxy = HaproxyProcess(Path(folder) / "etc")
    own = f"""
global
    stats socket {haproxy.stats_socket} mode 600 level admin
frontend fe
    bind 127.0.0.1:{PORT}
    default_backend be
backend be from http-service
"""
    text = Path(defaults).read_text(encoding="utf-8") + own + "".join(servers)
    haproxy.conf.write_text(text, encoding="utf-8")
    haproxy.start()
    return haproxy


def _after_a_fault(defaults: str, fault: str, *, keep: bool) -> Iterator[Figure]:
    servers = (f"    server pod-{number} {each}:{POD_PORT}\n" for number, each in enumerate(PODS, 1))
    with tempfile.TemporaryDirectory(prefix="failover-") as folder, _start(folder, defaults, servers) as haproxy:
        found, down = asyncio.run(_fail_over(haproxy, fault, keep=keep))
    after = [each for each in found if each.began >= 0]
    hit = [each for each in after if each.failed or each.took > SLOW_S]
    soon = sorted(each.took for each in after if each.began < 15)
    name = f"failover_{fault}_{'kept' if keep else 'new'}"
    yield Figure(f"{name}_failed", sum(each.failed for each in after), f"of {len(after)} requests of {CLIENTS} clients")
    yield Figure(f"{name}_slow", sum(each.took > SLOW_S for each in after), f"requests that took over {SLOW_S:g} s")
    yield Figure(f"{name}_p99_s", soon[len(soon) * 99 // 100], "s, in the 15 s after the fault")
    yield Figure(f"{name}_longest_s", max(each.took for each in after), "s")
    yield Figure(
        f"{name}_last_s", max((each.began for each in hit), default=0.0), "s until the last request that met it"
    )
    yield Figure(f"{name}_down_s", -1 if down is None else down, "s until HAProxy takes it out, -1 for never")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _idle(defaults: str) -> Iterator[Figure]:
    """Measure HAProxy's processor time while it only looks at its servers."""
    addresses = [f"127.30.{number // 250}.{number % 250 + 1}" for number in range(IDLE_SERVERS)]
    pod = subprocess.Popen([sys.executable, "-m", __spec__.name, "pod", "0.0.0.0"])
    try:
        servers = (f"    server pod-{number} {each}:{POD_PORT}\n" for number, each in enumerate(addresses))
        with tempfile.TemporaryDirectory(prefix="idle-") as folder, _start(folder, defaults, servers) as haproxy:
            worker = haproxy.worker()
            time.sleep(25)  # until each was looked at, and is at its usual pace
            assert all(each == "UP" for each in _column(haproxy, "status"))
            began, before = time.monotonic(), _cpu_s(worker)
            time.sleep(IDLE_S)
            used = (_cpu_s(worker) - before) / (time.monotonic() - began)
    finally:
        pod.kill()
        pod.wait()
    yield Figure("idle_checks_cpu", used * 100, f"% of a processor, {IDLE_SERVERS} servers that nobody asks", 2)


def failover(defaults: str = str(Path(directory()) / "01-defaults.conf")) -> Iterator[Figure]:
    """Count what clients see when one of three pods dies, and measure idle checks."""
    if os.geteuid() or not (shutil.which("nft") and shutil.which("unshare")):
        sys.stderr.write("failover needs root, nft and unshare: left out\n")
        return
    inside = f'ip link set lo up && exec {sys.executable} -m tests.bench.failover "$@"'
    for part in ("idle", *(f"{fault} {kind}" for fault in SECONDS for kind in ("kept", "new"))):
        command = ["unshare", "--net", "--", "sh", "-c", inside, "failover", "inside", defaults, *part.split()]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        for line in lines:
            figure = json.loads(line)
            yield Figure(figure["name"], figure["value"], figure["unit"], figure["goal"])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["pod", address]:
            asyncio.run(_pod(address))
        case ["inside", defaults, "idle"]:
            for figure in _idle(defaults):
                figure.show()
        case ["inside", defaults, fault, kind]:
            for figure in _after_a_fault(defaults, fault, keep=kind == "kept"):
                figure.show()
        case given:
            for figure in failover(*given):
                figure.show()
