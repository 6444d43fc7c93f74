"""Domains that come and go with the shipped fragments, on a real haproxy: what the plan says is what happens."""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pyconfd.haproxy.config.diff import plan
from pyconfd.haproxy.runtime.runtime import Runtime
from pyconfd.haproxy.runtime.sockets import NoAnswer, ask
from pyconfd.model.plan import Reload, ReloadReason, RemoveBackend, RuntimeUpdate
from pyconfd.model.rendering import Rendering
from pyconfd.render.filters import identifier
from tests.fragments.shipped import Endpoint, render_shipped, write_rendering
from tests.world.backends import Backend, Backends
from tests.world.clients import ask as ask_http
from tests.world.clients import ask_tls
from tests.world.haproxy import BINARY, HaproxyProcess, free_port, wait_until
from tests.world.pki import CertificateAuthority

NAMES = {"shop.example.com": "http", "blog.example.com": "http", "*.wild.test": "http", "dash.example.com": "https"}
FIRST = "shop.example.com"
LATER = tuple(name for name in NAMES if name != FIRST)


class Balancer:
    """A haproxy with the shipped fragments and a pod for each name; ``applied`` is what it runs."""

    def __init__(self, directory: Path, haproxy: HaproxyProcess, pods: Backends) -> None:
        self.directory, self.haproxy = directory, haproxy
        self.authority = CertificateAuthority(directory / "ca")
        pair = self.authority.server("dash", ("dash.example.com",))
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(pair.cert, pair.key)
        self.pods = {
            name: pods.add(name, "127.0.0.1", 0, tls=tls if proto == "https" else None) for name, proto in NAMES.items()
        }
        self.http, self.https = free_port(), free_port()
        self.variables: dict[str, Any] = {
            "http_bind": f"127.0.0.1:{self.http}",
            "https_bind": f"127.0.0.1:{self.https}",
            "stats_bind": f"127.0.0.1:{free_port()}",
            "runtime_socket": haproxy.stats_socket,
        }
        self.runtime = Runtime()
        self.applied = self.rendering(FIRST)
        self.write()
        haproxy.start()
        self.connect()

    def rendering(self, *names: str) -> Rendering:
        domains = {name: _service(name, self.pods[name]) for name in names}
        return render_shipped(domains, self.variables, str(self.directory / "files"))

    def write(self) -> None:
        write_rendering(self.applied, self.haproxy.conf)

    def connect(self) -> None:
        assert self.runtime.connect([self.haproxy.stats_socket]).runtime, self.runtime.abilities.why

    def reload(self) -> None:
        """Reload with what is applied."""
        self.write()
        former = self.haproxy.running()
        assert former is not None
        with suppress(NoAnswer):
            ask(self.haproxy.master_socket, "reload")
        wait_until(lambda: self._replaced(former.worker_pid), "another worker serves")
        self.runtime.forget()
        self.connect()

    def _replaced(self, former: int) -> bool:
        now = self.haproxy.running()
        return now is not None and now.worker_pid != former

    def plan(self, desired: Rendering) -> Any:
        return plan(desired, self.applied, None, abilities=self.runtime.abilities)

    def go(self, desired: Rendering) -> RuntimeUpdate:
        """Carry out a plan that needs no reload."""
        made = self.plan(desired)
        assert isinstance(made, RuntimeUpdate), made
        self.runtime.execute(made.commands)
        self.applied = desired
        return made

    def answers(self) -> dict[str, str]:
        """Give who answers for each name; those of TLS that nobody answers are "failed"."""
        found = {}
        for name, proto in NAMES.items():
            if proto == "https":
                found[name] = ask_tls(self.https, name, str(self.authority.cert)).partition(":")[0]
            else:
                found[name] = ask_http(self.http, name.replace("*", "any"))
        return found

    def expected(self, *names: str) -> dict[str, str]:
        nobody = {"http": "503", "https": "failed"}
        return {name: name if name in names else nobody[proto] for name, proto in NAMES.items()}

    def servers(self) -> set[tuple[str, ...]]:
        """Give what the process knows of each server that outlives the process."""
        shown: set[tuple[str, ...]] = {
            (one.backend, one.name, one.target, str(one.id), str(one.weight)) for one in self.runtime.servers()
        }
        assert not any(one.drain or one.maint for one in self.runtime.servers())
        return shown

    def entries(self) -> dict[str, set[str]]:
        found = {}
        for file in self.applied.files:
            rows = ask(self.haproxy.stats_socket, f"show map {file.path}").splitlines()
            found[Path(file.path).name] = {row.split(" ", 1)[1] for row in rows if row}
        return found

    def backends(self) -> set[str]:
        rows = ask(self.haproxy.stats_socket, "show backend").splitlines()
        return {row for row in rows if row.startswith("be-")}


def _service(name: str, pod: Backend) -> Mapping[str, Any]:
    return {
        "proto": NAMES[name],
        "port": pod.port,
        "ips": [pod.address],
        "name": "name",
        "namespace": "demo",
        "domain": name,
        "ports": [],
        "listen_port": None,
        "endpoints": [Endpoint("pod", "", "", pod.address, pod.port, "ipv4", "ready")],
        "key": identifier(name),
    }


@pytest.fixture
def balancer(tmp_path: Path) -> Iterator[Balancer]:
    if not Path(BINARY).exists():
        pytest.skip("no haproxy binary")
    with Backends() as pods, HaproxyProcess(tmp_path / "etc") as haproxy:
        made = Balancer(tmp_path, haproxy, pods)
        yield made
        made.runtime.close()


def test_domains_come_and_go_without_a_reload_where_haproxy_can(balancer: Balancer) -> None:
    desired = balancer.rendering(*NAMES)
    assert balancer.answers() == balancer.expected(FIRST)
    if not balancer.runtime.abilities.backends:
        made = balancer.plan(desired)
        assert isinstance(made, Reload)
        assert made.reasons == (ReloadReason.SECTION_ADDED,)
        assert made.advice == ("HAProxy 3.4 and later take new backends without a reload",)
        return
    balancer.go(desired)
    assert balancer.answers() == balancer.expected(*NAMES)
    assert balancer.servers() == _after_a_reload(balancer)

    balancer.reload()
    gone = balancer.go(balancer.rendering(FIRST)).commands
    assert [one.backend for one in gone if isinstance(one, RemoveBackend)] == [
        f"be-{identifier(name)}" for name in LATER
    ]
    assert balancer.answers() == balancer.expected(FIRST)
    wait_until(lambda: _reaped(balancer), "nothing of them is left")
    assert balancer.servers() == _after_a_reload(balancer)
    assert balancer.answers() == balancer.expected(FIRST)


def test_a_domain_that_was_added_live_goes_again_and_comes_back(balancer: Balancer) -> None:
    if not balancer.runtime.abilities.backends:
        assert isinstance(balancer.plan(balancer.rendering(*NAMES)), Reload)
        return
    for _ in range(2):
        balancer.go(balancer.rendering(*NAMES))
        assert balancer.answers() == balancer.expected(*NAMES)
        balancer.go(balancer.rendering(FIRST))
        wait_until(lambda: _reaped(balancer), "nothing of them is left")
        assert balancer.answers() == balancer.expected(FIRST)


def _reaped(balancer: Balancer) -> bool:
    balancer.runtime.reap(60)
    return balancer.backends() == {f"be-{identifier(FIRST)}"} and not balancer.runtime.leaving


def _after_a_reload(balancer: Balancer) -> set[tuple[str, ...]]:
    """Reload; see that maps and answers stay what they were, and give the servers of the new worker."""
    entries, answers, backends = balancer.entries(), balancer.answers(), balancer.backends()
    balancer.reload()
    assert (balancer.entries(), balancer.answers(), balancer.backends()) == (entries, answers, backends)
    return balancer.servers()
