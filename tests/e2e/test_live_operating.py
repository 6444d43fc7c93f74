"""Live changes of the whole appliance: two clocks, workers of the past, pauses, and what is set by hand."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pyconfd.haproxy.runtime.servers_now import servers_now
from pyconfd.haproxy.runtime.sockets import ask as ask_socket
from tests.e2e.expect import all_is_well, beats, new_pod_answers, serving, undisturbed
from tests.world.appliance import Appliance
from tests.world.clients import ping_redis

pytestmark = pytest.mark.haproxy


def live(appliance: Appliance, name: str = "shop", **options: Any) -> None:
    """Serve, and see that a change has gone live without a reload."""
    serving(appliance, name, **options)
    worker = appliance.haproxy.worker()
    for _ in range(20):
        new_pod_answers(appliance, name)
        appliance.until(lambda: level(appliance), "the file follows")
        if appliance.haproxy.worker() == worker:
            return
        worker = appliance.haproxy.worker()
    raise AssertionError("no change went live")


def level(appliance: Appliance) -> bool:
    """Return whether all that came in is applied, in the process and in the file (of which the status tells later)."""
    text = appliance.haproxy.conf.read_text()
    return appliance.settled() and all(f" {each}:" in text for each in servers(appliance))


def reload_times(appliance: Appliance) -> list[str]:
    """Return when the daemon reloaded since it started."""
    return [line["timestamp"] for line in appliance.events("generation.applied") if line["action"] == "reload"]


def servers(appliance: Appliance) -> set[str]:
    """Return the addresses of HAProxy's servers that take traffic."""
    state = ask_socket(appliance.haproxy.stats_socket, "show servers state")
    return {one.address for one in servers_now(state) if not (one.maint or one.drain or one.weight == 0)}


def wanted(appliance: Appliance, *names: str) -> set[str]:
    return {one.address for name in names for one in appliance.members(name) if not one.terminating}


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """Hold a connection to the redis service."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        yield connection


def drain(appliance: Appliance, name: str, how_long: str) -> None:
    said = appliance.run("server", "drain", "--config", str(appliance.config), name, "--for", how_long)
    assert said.returncode == 0, said.stderr


def ping(connection: socket.socket) -> str:
    connection.sendall(b"PING\r\n")
    return connection.recv(64).decode().strip()


def test_endpoint_changes_are_live_while_a_reload_waits_for_its_turn(appliance: Appliance) -> None:
    appliance.values["apply"] |= {"reload_interval_s": 3600.0, "spare_backends": 0}
    appliance.serve("second")
    live(appliance, pods=2)
    with undisturbed(appliance):
        before, worker = len(reload_times(appliance)), appliance.haproxy.worker()
        appliance.serve("third")  # needs a reload, for which it is too early
        for _ in range(25):
            appliance.scale_up("shop")
            appliance.remove("shop", appliance.members("shop")[0].pod)
        appliance.until(lambda: servers(appliance) == wanted(appliance, "shop", "second"), "the burst is live")
        appliance.until(lambda: appliance.events("reload.deferred"), "it says that a reload waits")
        assert (appliance.haproxy.worker(), len(reload_times(appliance))) == (worker, before)
        appliance.values["apply"]["reload_interval_s"] = 0.2
        appliance.write_settings()
        appliance.reload_settings()
        appliance.until(lambda: appliance.ask("third") == "third-1", "the reload has its turn")
    all_is_well(appliance)
    assert servers(appliance) == wanted(appliance, "shop", "second", "third")
    assert len(reload_times(appliance)) == before + 1


def test_reloads_wait_for_workers_of_the_past_whose_sessions_nobody_kills(appliance: Appliance) -> None:
    appliance.values["haproxy"]["max_old_workers"] = 1
    appliance.values["apply"] |= {"reload_interval_s": 0.2, "spare_backends": 0}
    redis = {"domain": "cache.example.com", "proto": "redis", "pyconfd.io/listen-port": str(appliance.redis)}
    appliance.serve("cache", redis)
    live(appliance)
    appliance.until(lambda: ping_redis(appliance.redis) == "+PONG", "redis answers")
    with undisturbed(appliance), connected(appliance.redis) as kept:
        assert ping(kept) == "+PONG"
        appliance.serve("second")
        appliance.until(lambda: appliance.ask("second") == "second-1", "a reload brings the second service")
        appliance.until(lambda: appliance.status()["applying"]["former"]["count"] == 1, "the former worker is counted")
        worker = appliance.haproxy.worker()
        appliance.serve("third")
        new_pod_answers(appliance)
        beats(appliance, 3.0)
        assert (appliance.haproxy.worker(), appliance.ask("third")) == (worker, "404")
        assert "1 former worker" in appliance.command("status").stdout
        assert "pyconfd_old_workers 1" in appliance.get("/metrics")[1]
        assert appliance.status()["pending_since"] > 0
        assert ping(kept) == "+PONG"
        kept.close()
        # Not by asking: requests that fail just before a reload would count against what it brings.
        appliance.until(lambda: appliance.haproxy.worker() != worker, "the reload happens")
        appliance.until(lambda: appliance.ask("third") == "third-1", "the third service is there")
    all_is_well(appliance)
    assert appliance.haproxy.worker() != worker
    assert servers(appliance) == wanted(appliance, "cache", "shop", "second", "third")


def test_a_pause_freezes_everything_and_its_end_applies_everything(appliance: Appliance) -> None:
    live(appliance)
    worker, text, before = appliance.haproxy.worker(), appliance.haproxy.conf.read_text(), servers(appliance)
    assert appliance.command("pause", "--reason", "racks move").returncode == 0
    appliance.until(lambda: appliance.status()["live"]["paused"], "the daemon knows")
    appliance.scale_up("shop")
    appliance.serve("second")
    appliance.stop()
    appliance.spawn()
    appliance.until(lambda: appliance.status().get("live", {}).get("paused"), "it outlives a restart")
    gone = appliance.members("shop")[0].pod
    appliance.remove("shop", gone)
    beats(appliance, 6.0)  # longer than it takes to look for drift
    assert (appliance.haproxy.worker(), appliance.haproxy.conf.read_text()) == (worker, text)
    assert servers(appliance) == before
    assert "racks move" in appliance.command("status").stdout
    assert appliance.command("resume").returncode == 0
    appliance.until(lambda: appliance.ask("second") == "second-1", "what came meanwhile is applied")
    all_is_well(appliance)
    assert servers(appliance) == wanted(appliance, "shop", "second")


def test_a_server_that_was_drained_by_hand_stays_so_through_a_reload_until_its_time_is_over(
    appliance: Appliance,
) -> None:
    live(appliance)
    (drained, *_), everything = appliance.members("shop"), wanted(appliance, "shop")
    drain(appliance, drained.pod, "10m")
    assert servers(appliance) == everything - {drained.address}
    appliance.until(lambda: appliance.status()["live"]["overrides"], "the daemon knows")
    with undisturbed(appliance):
        worker = appliance.haproxy.worker()
        appliance.serve("second")
        appliance.until(lambda: appliance.ask("second") == "second-1", "a reload brings the second service")
        # The new worker serves before the master has told of it.
        appliance.until(lambda: appliance.haproxy.worker() != worker, "it is another worker")
        appliance.until(
            lambda: servers(appliance) == wanted(appliance, "shop", "second") - {drained.address}, "drained"
        )
        new_pod_answers(appliance)
        assert servers(appliance) == wanted(appliance, "shop", "second") - {drained.address}
        drain(appliance, drained.pod, "2s")
        appliance.until(lambda: servers(appliance) == wanted(appliance, "shop", "second"), "its time is over")
    appliance.until(lambda: not appliance.status()["live"]["overrides"], "and forgotten")
    all_is_well(appliance)
