"""Clients of the API server and of HAProxy, and counters of reloads and processor time."""

import http.client
import json
import os
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import psutil

from pyconfd.haproxy.process.observation import Running
from pyconfd.haproxy.runtime.sockets import NoAnswer, processes
from tests.bench.gateway.measures import Answer, Outcome, judge, parsed, reload_reasons
from tests.bench.gateway.objects import NAMESPACE, Obj
from tests.conformance.cluster import CLASS
from tests.conformance.controlplane import ControlPlane
from tests.world.appliance import Appliance
from tests.world.haproxy import wait_until

PAUSE_S = 0.002
"""Between two probes; gateway-api-bench waits 5 ms, which is as long as what is measured here."""
PATIENCE_S, IDLE_S = 120.0, 60.0
CONFIRMATIONS = 5
"""Requests after the first right answer, each on a connection of its own."""
_PLURALS = {"Ingress": "ingresses", "IngressClass": "ingressclasses"}
_WRITERS = 4


class Api:
    """The API server, as its administrator; one connection for each thread."""

    def __init__(self, plane: ControlPlane) -> None:
        self._address = plane.url.removeprefix("https://")
        self._context = ssl.create_default_context(cafile=str(plane.ca))
        self._headers = {"Authorization": f"Bearer {plane.token}"}
        self._own = threading.local()

    def create(self, obj: Obj) -> float:
        """Create an object; return when the call returned, on the monotonic clock."""
        self.ask("POST", self._path(obj), obj)
        return time.monotonic()

    def replace(self, obj: Obj) -> float:
        """Write an object by server-side apply, whoever had it; return when the call returned."""
        path = f"{self._path(obj)}/{obj['metadata']['name']}?fieldManager=bench&force=true"
        self.ask("PATCH", path, obj, "application/apply-patch+yaml")
        return time.monotonic()

    def delete(self, obj: Obj) -> float:
        """Delete an object; return when the call returned."""
        self.ask("DELETE", f"{self._path(obj)}/{obj['metadata']['name']}")
        return time.monotonic()

    def get(self, obj: Obj) -> Obj:
        """Read an object as it is now."""
        return self.ask("GET", f"{self._path(obj)}/{obj['metadata']['name']}")

    def pods(self) -> dict[str, str]:
        """Return the address of each ready pod by its name."""
        items = self.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return {each["metadata"]["name"]: each["status"]["podIP"] for each in items if each["status"].get("podIP")}

    def create_all(self, objects: Iterable[Obj]) -> float:
        """Create many objects at once; return when the last call returned."""
        return self._all(self.create, objects)

    def delete_all(self, objects: Iterable[Obj]) -> float:
        """Delete many objects at once; return when the last call returned."""
        return self._all(self.delete, objects)

    def watch(self, obj: Obj, ended: threading.Event) -> Iterator[Obj]:
        """Yield each state of one object until ``ended``, with watches of a second each."""
        version = ""
        while not ended.is_set():
            query = f"watch=1&timeoutSeconds=1&fieldSelector=metadata.name={obj['metadata']['name']}{version}"
            connection = http.client.HTTPSConnection(self._address, context=self._context, timeout=PATIENCE_S)
            connection.request("GET", f"{self._path(obj)}?{query}", headers=self._headers)
            for line in connection.getresponse():
                event = json.loads(line)
                if event["type"] == "ERROR":  # the version was compacted: from what is there now on
                    version = ""
                    break
                state = event["object"]
                version = f"&resourceVersion={state['metadata']['resourceVersion']}"
                yield state
            connection.close()

    def ask(self, method: str, path: str, body: Obj | None = None, content: str = "application/json") -> Obj:
        """Send a request. Raises: AssertionError."""
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPSConnection(self._address, context=self._context, timeout=PATIENCE_S)
            self._own.used = time.monotonic()
        connection: http.client.HTTPSConnection = self._own.connection
        if time.monotonic() - self._own.used > IDLE_S:
            connection.close()  # the API server closes what was idle for 90 s; the next request connects again
        connection.request(method, path, json.dumps(body) if body else None, {**self._headers, "Content-Type": content})
        answer = connection.getresponse()
        read = answer.read()
        self._own.used = time.monotonic()
        assert answer.status < 300, f"{method} {path}: {read[:500]!r}"
        found: Obj = json.loads(read)
        return found

    def _all(self, write: Callable[[Obj], float], objects: Iterable[Obj]) -> float:
        with ThreadPoolExecutor(_WRITERS) as writers:
            return max(writers.map(write, objects), default=time.monotonic())

    @staticmethod
    def _path(obj: Obj) -> str:
        api, kind = obj["apiVersion"], obj["kind"]
        scope = f"/namespaces/{obj['metadata']['namespace']}" if "namespace" in obj["metadata"] else ""
        return f"/{'apis' if '/' in api else 'api'}/{api}{scope}/{_PLURALS.get(kind, kind.lower() + 's')}"


class Client:
    """Asks HAProxy over one connection as long as that lasts, as the client of gateway-api-bench does."""

    def __init__(self, address: str, port: int, context: ssl.SSLContext | None = None) -> None:
        self._target = (address, port)
        self._context = context
        self._socket: socket.socket | None = None

    def ask(self, host: str, path: str = "/") -> Answer:
        """Send a request; the status is 0 where no whole answer came."""
        for fresh in (self._socket is None, True):
            try:
                return self._asked(host, path)
            except (OSError, ValueError) as error:
                self.close()
                if fresh or not isinstance(error, ConnectionError):
                    return Answer(0, body=str(error))
        raise AssertionError("a fresh connection always answers or fails")

    def close(self) -> None:
        """Close the connection; the next request makes another one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _asked(self, host: str, path: str) -> Answer:
        if self._socket is None:
            plain = socket.create_connection(self._target, timeout=10.0)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = self._context.wrap_socket(plain, server_hostname=host) if self._context else plain
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._more()
        head, _, body = received.partition(b"\r\n\r\n")
        answer = parsed(head)
        while len(body) < int(answer.headers.get("content-length", "0")):
            body += self._more()
        if answer.headers.get("connection", "").lower() == "close" or "content-length" not in answer.headers:
            self.close()
        return Answer(answer.status, answer.headers, body.decode(errors="replace"))

    def _more(self) -> bytes:
        assert self._socket is not None
        chunk = self._socket.recv(65536)
        if not chunk:
            raise ConnectionResetError("closed before the answer was whole")
        return chunk


@dataclass(slots=True)
class Seen:
    """What the probes of one test saw."""

    seconds: list[float] = field(default_factory=list)
    requests: int = 0
    wrong: Counter[int] = field(default_factory=Counter)

    def figures(self) -> dict[str, object]:
        """Return the counts."""
        by_status = {str(status): count for status, count in sorted(self.wrong.items())}
        return {"requests": self.requests, "wrong": self.wrong.total()} | (
            {"wrong_by_status": by_status} if by_status else {}
        )


class Harness:
    """One control plane with pyconfd and HAProxy."""

    def __init__(self, api: Api, appliance: Appliance) -> None:
        self.api = api
        self.appliance = appliance
        self.class_name = CLASS
        self.gateway = ("", 80)
        """The address and port of the Gateway."""

    @property
    def ingresses(self) -> tuple[str, int]:
        """Where Ingresses are served."""
        return "127.0.0.1", self.appliance.http

    def probe(
        self,
        seen: Seen,
        since: float,
        at: tuple[str, int],
        host: str,
        path: str = "/",
        *,
        headers: Mapping[str, str] | None = None,
        client: Client | None = None,
    ) -> None:
        """Ask until the answer is right, then confirm it on other connections."""
        asking = client or Client(*at)
        ends = time.monotonic() + PATIENCE_S
        while True:
            outcome = self._look(seen, asking, host, path, served=False, headers=headers or {})
            if outcome is Outcome.RIGHT:
                break
            assert time.monotonic() < ends, f"{host}{path} is not served\n{self.tail()}"
            time.sleep(PAUSE_S)
        seen.seconds.append(time.monotonic() - since)
        for _ in range(CONFIRMATIONS):
            other = Client(*at)
            self._look(seen, other, host, path, served=True, headers=headers or {})
            other.close()
        if client is None:
            asking.close()

    @staticmethod
    def _look(seen: Seen, client: Client, host: str, path: str, *, served: bool, headers: Mapping[str, str]) -> Outcome:
        answer = client.ask(host, path)
        seen.requests += 1
        outcome = judge(answer, served=served, headers=headers)
        if outcome is Outcome.WRONG:
            seen.wrong[answer.status] += 1
        return outcome

    def tail(self) -> str:
        """Return what was logged last."""
        return self.appliance.tail()

    def settled(self) -> bool:
        """Whether all that was written is served and verified."""
        return self.appliance.settled()

    def until(self, condition: Callable[[], object], what: str, *, pause_s: float = 0.02) -> float:
        """Wait; return when it was so, on the monotonic clock."""
        wait_until(condition, f"{what}\n{self.tail()}", limit_s=PATIENCE_S, pause_s=pause_s)
        return time.monotonic()

    @contextmanager
    def counted(self, figures: dict[str, object]) -> Iterator[None]:
        """Add to ``figures`` what a test took: reloads by HAProxy's own count, processor time, memory."""
        before, reasons, began = self._counters(), self.reload_reasons(), time.monotonic()
        yield
        seconds, after = time.monotonic() - began, self._counters()
        for name, value in after.items():
            figures[name] = round(value - before[name], 2)
        figures["reload_reasons"] = dict(self.reload_reasons() - reasons)
        figures["seconds"] = round(seconds, 1)
        figures["pyconfd_mb"] = round(self._pyconfd().memory_info().rss / 1e6)
        figures["haproxy_mb"] = round(sum(each.memory_info().rss for each in self._haproxy()) / 1e6)
        figures["load_average"] = round(os.getloadavg()[0], 1)

    def processes(self) -> Running:
        """Return HAProxy's processes; the master does not answer while it executes itself again."""
        seen: list[Running] = []

        def answers() -> bool:
            with suppress(NoAnswer):
                seen.append(processes(self.appliance.haproxy.master_socket))
            return bool(seen)

        self.until(answers, "the master of haproxy answers")
        return seen[0]

    def reload_reasons(self) -> Counter[str]:
        """Return pyconfd's own count of reloads by their reason, since it was started."""
        return reload_reasons(self.appliance.get("/metrics")[1])

    def haproxy_cpu_s(self) -> float:
        """Return the processor time of all of HAProxy's processes, those that ended included."""
        master, *workers = self._haproxy()
        return float(sum(master.cpu_times()[:4]) + sum(sum(each.cpu_times()[:2]) for each in workers))

    def _counters(self) -> dict[str, float]:
        return {
            "reloads": self.processes().reloads,
            "pyconfd_cpu_s": sum(self._pyconfd().cpu_times()[:4]),
            "haproxy_cpu_s": self.haproxy_cpu_s(),
        }

    def _pyconfd(self) -> psutil.Process:
        assert self.appliance.daemon is not None
        return psutil.Process(self.appliance.daemon.pid)

    def _haproxy(self) -> list[psutil.Process]:
        master = psutil.Process(self.processes().master_pid)
        return [master, *master.children()]


class Background:
    """Repeat an action at a pace until the ``with`` ends; what it raises is raised there."""

    def __init__(self, action: Callable[[int], Any], every_s: float) -> None:
        self._action = action
        self._every_s = every_s
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.turns = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        began = time.monotonic()
        try:
            while not self._ended.wait(max(0.0, began + self.turns * self._every_s - time.monotonic())):
                self._action(self.turns)
                self.turns += 1
        except Exception as error:  # noqa: BLE001 - raised in the other thread
            self._error = error
