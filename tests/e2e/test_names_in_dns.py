"""Names in Route 53 beside the daemon: what the annotation asks for, and what neither outages nor deaths take away."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyconfd.predecessors.hosts import CONFIG, ROUTE53
from tests.dns.stage import NAME, foreign, zone_with
from tests.dns.strict import StrictRoute53
from tests.dns.strict_http import StrictServer
from tests.dns.wire import CREDENTIALS, FaultProxy
from tests.world.appliance import Appliance
from tests.world.haproxy import free_port, wait_until

pytestmark = pytest.mark.timeout(300)
WEB, OUTSIDE = "web.example.com", "web.example.org"
ADDRESS = "192.0.2.1"
LOOKS = 4
LIMIT_S = 90.0
ENVIRON = {**CREDENTIALS, "AWS_EC2_METADATA_DISABLED": "true"}
FRONTEND = "frontend own\n  mode http\n  timeout client 5s\n  bind 127.0.0.1:{port}\n"


class Stage:
    """The appliance with the names of its annotation, and a Route 53 that counts."""

    def __init__(self, appliance: Appliance, provider: StrictRoute53, aws: FaultProxy) -> None:
        self.appliance, self.provider, self.aws = appliance, provider, aws
        self.port = free_port()
        appliance.cluster.add_namespace("default")
        appliance.values["presets"] |= {"use": ["domains", "hosts"]}
        appliance.values["hosts"] = {"master": "haproxy", "config": "deployment/default/haproxy"}
        appliance.values["cluster_templates"] = {"allow_configuration_from_cluster": True}
        appliance.values["dns"] = {
            "in_daemon": True,
            "names": [NAME],
            "owner": "prod",
            "node": "n0",
            "address": ADDRESS,
            "accept_dead_nodes": True,
            "annotation_suffixes": ["example.com"],
            "endpoint_url": aws.url,
            "look_s": 0.1,
            "hold_s": 0,
            "interval_s": 1,
            "nodes": 1,
        }

    def until(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what, limit_s=LIMIT_S, pause_s=0.05)

    def start(self) -> None:
        """Start pyconfd, and haproxy as soon as there is a configuration."""
        self.appliance.spawn(**ENVIRON)
        self.until(self.appliance.haproxy.conf.exists, "pyconfd writes the first configuration")
        self.appliance.haproxy.start()

    def annotate(self, names: str) -> None:
        annotations = {CONFIG: FRONTEND.format(port=self.port), ROUTE53: names}
        metadata = {"name": "haproxy", "namespace": "default", "annotations": annotations}
        self.appliance.cluster.put("deployments", {"metadata": metadata, "spec": {"template": {"metadata": {}}}})

    def report(self) -> dict[str, Any]:
        """What the process says that keeps the names."""
        try:
            found: dict[str, Any] = json.loads((self.appliance.folder / "run" / "dns-status.json").read_text())
        except (OSError, ValueError):
            return {}
        return found

    def answers(self, name: str, *addresses: str) -> None:
        self.until(lambda: self.provider.answer(name, "A") == addresses, f"{name} is {addresses}")

    def looked(self) -> None:
        """Wait until every name was read some times more, by a process that has come to believe something."""
        begun = self.report().get("pid")
        self.aws.seen.clear()
        self.until(
            lambda: len(self.aws.seen) >= 2 * LOOKS and self.report().get("active") is not None,
            f"the names are read again (by {begun})",
        )


@pytest.fixture
def stage(appliance: Appliance) -> Iterator[Stage]:
    provider = zone_with()
    with StrictServer(provider) as server, FaultProxy(server.port) as aws:
        yield Stage(appliance, provider, aws)
        appliance.stop()


def test_names_of_the_annotation_come_stay_and_go(stage: Stage) -> None:
    appliance = stage.appliance
    appliance.serve("shop")
    stage.annotate(f"{WEB},{OUTSIDE},not a name")
    stage.start()
    for name in (NAME, WEB):
        stage.answers(name, ADDRESS)
    assert stage.provider.answer(OUTSIDE, "A") == ()
    refused = {item["value"]: item["detail"] for item in appliance.status()["refused"]}
    assert "dns.annotation_suffixes" in refused[OUTSIDE]
    assert "not a host name" in refused["not a name"]

    # The object that asked is gone: nobody says that the name is asked for no more.
    sent = stage.provider.changing
    appliance.cluster.delete("deployments", "default", "haproxy")
    stage.until(lambda: "does not exist" in appliance.get("/status.json")[1], "it is gone")
    stage.looked()
    assert {item["name"] for item in stage.report()["names"]} == {NAME, WEB}

    # Neither does an outage, whatever restarts meanwhile; and there is nothing to be changed either.
    appliance.servers[0].refuse()
    child = stage.report()["pid"]
    appliance.kill()
    appliance.spawn(**ENVIRON)
    stage.until(lambda: stage.report().get("pid", child) != child, "another process keeps the names")
    stage.looked()
    assert {item["name"] for item in stage.report()["names"]} == {NAME, WEB}
    assert stage.provider.changing == sent

    # Somebody takes it out of the annotation, and all is well.
    appliance.servers[0].listen()
    stage.annotate("other.example.com")
    appliance.values["dns"]["annotation_grace_s"] = 0
    appliance.write_settings()
    appliance.hang_up()
    stage.answers("other.example.com", ADDRESS)
    stage.until(lambda: any(item["dropped"] and item["kept"] for item in stage.report()["names"]), "it is dropped")
    stage.answers(WEB, ADDRESS)  # the last record stays until somebody says so
    assert (
        appliance.run("dns", "drop", "other.example.com", "--config", str(appliance.config), **ENVIRON).returncode == 1
    )
    done = appliance.run("dns", "drop", WEB, "--config", str(appliance.config), **ENVIRON)
    assert done.returncode == 0, done.stderr
    stage.answers(WEB)
    stage.until(lambda: WEB not in {item["name"] for item in stage.report()["names"]}, "it is forgotten")
    stage.looked()
    stage.answers(WEB)
    assert {record for record in stage.provider.everything() if "pyconfd" not in record.identifier} == set(foreign())


def test_a_crash_of_what_keeps_the_names_never_touches_the_daemon(stage: Stage) -> None:
    appliance = stage.appliance
    appliance.serve("shop")
    stage.annotate(WEB)
    stage.start()
    for name in (NAME, WEB):
        stage.answers(name, ADDRESS)
    daemon = appliance.status()["pid"]
    sent = stage.provider.changing
    for number in (signal.SIGKILL, signal.SIGSEGV):
        child = stage.report()["pid"]
        os.kill(child, number)
        stage.until(lambda: stage.report().get("pid", child) != child, "it is started again")  # noqa: B023
        stage.looked()
        appliance.scale_up("shop")
        stage.until(appliance.settled, "the daemon goes on")
    assert appliance.status()["pid"] == daemon
    assert stage.provider.changing == sent
    # It ends with the daemon, be that killed.
    child = stage.report()["pid"]
    appliance.kill()
    stage.until(lambda: not _runs(child), "it ends too")
    assert stage.provider.answer(NAME, "A") == (ADDRESS,)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_that_cannot_run_is_told_and_the_daemon_serves(stage: Stage) -> None:
    appliance = stage.appliance
    appliance.serve("shop")
    appliance.values["dns"]["names"] = []
    appliance.values["dns"]["annotation_suffixes"] = []
    stage.start()
    stage.until(lambda: appliance.ask("shop") == "shop-1", "the daemon serves")
    stage.until(lambda: "the process that keeps the names ended with 78" in appliance.get("/status.json")[1], "why")
    assert appliance.events("dns.ended")


def test_the_daemon_itself_loads_neither_the_sdk_nor_what_decides_about_names() -> None:
    code = "import sys, pyconfd.cli.commands.run\nassert not {'boto3', 'botocore', 'pyconfd.dns'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_a_consumer_keeps_names_too_and_they_end_with_it(stage: Stage) -> None:
    appliance = stage.appliance
    appliance.values["etcd"] = {"endpoints": ["http://127.0.0.1:1"]}
    appliance.spawn("consume", "--config", str(appliance.config), **ENVIRON)
    stage.until(lambda: stage.report().get("reasons"), "a process keeps the names")
    child = stage.report()["pid"]
    assert "no configuration was applied yet" in stage.report()["reasons"]
    assert appliance.stop() == 0
    stage.until(lambda: not _runs(child), "it ends too")
    assert stage.provider.changing == 0
