"""Two presets and another program that ask for one address and port, with a real haproxy."""

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from pyconfd.examples import __file__ as examples
from pyconfd.fragments import of_presets
from tests.world import objects
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask
from tests.world.objects import EndpointSpec, PortSpec
from tests.world.ports import service_port

HERE, BESIDE = "127.0.0.1", "127.0.0.2"
KUBE2LB_FRAGMENT = Path(examples).parent / "kube2lb" / "haproxy" / "haproxy.cfg.tmpl"


class Stage:
    """An appliance whose users come from kube2lb and from haproxy-kubefigurator."""

    def __init__(self, appliance: Appliance, *presets: str) -> None:
        self.appliance = appliance
        self.started = 0
        self.created: dict[str, str] = {}
        """When a Service was created, by its name, where that is not now."""
        folder = appliance.folder / "templates"
        folder.mkdir()
        shutil.copy(KUBE2LB_FRAGMENT, folder / "01-kube2lb.tmpl")
        for name, path in of_presets(["kubefigurator"]).items():
            if name.endswith("kubefigurator.tmpl"):
                shutil.copy(path, folder / name)
        appliance.values["templates"]["dir"] = str(folder)
        appliance.values["presets"] = {"use": list(presets)}
        appliance.values["kube2lb"] = {"default_lb_ip": HERE}
        appliance.values["kubefigurator"] = {"backend_target": "pod", "listen_ports": ["1024-65535"]}

    def balanced(self, name: str, port: int, address: str = HERE) -> None:
        """Create a Service of kube2lb's users: ``<name>.demo.svc.local`` on ``address`` and ``port``."""
        self._serve(name, port, type="LoadBalancer", spec={"loadBalancerIP": address})

    def labelled(self, name: str, port: int, address: str = HERE) -> None:
        """Create a Service of haproxy-kubefigurator's users: ``<name>.example.com`` on ``address`` and ``port``."""
        options = {"hostname": f"{name}.example.com", "use-ssl": "false", "backends-use-ssl": "false"}
        options |= {"listen-ip": address, "listen-port": str(port)}
        prefix = "haproxy-kubefigurator."
        annotations = {f"{prefix}web.{option}": value for option, value in options.items()}
        # Any NodePort Service is one of kube2lb's too, on a port of its own.
        own = service_port(HERE)
        self._serve(name, own, type="NodePort", annotations=annotations, labels={f"{prefix}enabled": "yes"})

    def _serve(self, name: str, port: int, **more: Any) -> None:
        self.started += 1
        address, cluster = f"127.18.99.{self.started}", self.appliance.cluster
        spec = PortSpec("web", port, self.appliance.pods.port, node_port=30000 + self.started)
        made = objects.service(NAMESPACE, name, [spec], **more)
        if name in self.created:
            made["metadata"]["creationTimestamp"] = self.created[name]
        cluster.add_namespace(NAMESPACE)
        cluster.create("services", made)
        self.appliance.pods.add(name, address)
        cluster.set_endpoints(NAMESPACE, name, [EndpointSpec(address, pod=name, node="node-1")])

    def refused(self) -> dict[str, dict[str, Any]]:
        """Return what was refused by the name of its object."""
        return {each["ref"]["name"]: each for each in self.appliance.status().get("refused", ())}


@pytest.mark.parametrize(
    ("presets", "winner", "loser"),
    [(("kube2lb", "kubefigurator"), "blog", "shop"), (("kubefigurator", "kube2lb"), "shop", "blog")],
)
def test_of_two_presets_the_older_object_has_the_port(
    appliance: Appliance, presets: tuple[str, str], winner: str, loser: str
) -> None:
    stage = Stage(appliance, *presets)
    port, free = service_port(HERE, BESIDE), service_port(HERE)
    stage.created[winner] = "2020-01-01T00:00:00Z"
    stage.balanced("shop", port)
    stage.labelled("blog", port)
    stage.labelled("news", port, BESIDE)
    stage.labelled("wiki", free)
    appliance.start()
    appliance.until(appliance.settled, "all is applied")

    hosts = {"shop": "shop.demo.svc.local", "blog": "blog.example.com"}
    assert ask(port, hosts[winner]) == winner
    assert ask(port, hosts[loser]) == "503"
    assert ask(port, "news.example.com", address=BESIDE) == "news"
    assert ask(free, "wiki.example.com") == "wiki"
    assert list(stage.refused()) == [loser]
    refusal = stage.refused()[loser]
    assert (refusal["value"], refusal["reason"]) == (str(port), "port_taken")
    preset = "kube2lb" if winner == "shop" else "kubefigurator"
    assert f"Service {NAMESPACE}/{winner} of preset {preset} listens on {HERE}:{port}" in refusal["detail"]

    # What the winner gives up, the other gets.
    appliance.cluster.delete_service(NAMESPACE, winner)
    appliance.until(lambda: ask(port, hosts[loser]) == loser, "the other one serves")
    assert ask(port, "news.example.com", address=BESIDE) == "news"


def test_an_address_of_its_own_is_served_beside_all_addresses(appliance: Appliance) -> None:
    """Linux gives a connection to the listener that names its address; so it was with kube2lb."""
    stage = Stage(appliance, "kube2lb", "kubefigurator")
    port = service_port("0.0.0.0")
    stage.balanced("everywhere", port, "0.0.0.0")
    stage.balanced("beside", port, BESIDE)
    appliance.start()
    appliance.until(appliance.settled, "all is applied")

    for _ in range(20):
        assert ask(port, "everywhere.demo.svc.local", address=HERE) == "everywhere"
        assert ask(port, "beside.demo.svc.local", address=BESIDE) == "beside"
        # All addresses are each address: what is served on them stays served where another one listens too.
        assert ask(port, "everywhere.demo.svc.local", address=BESIDE) == "everywhere"
    assert stage.refused() == {}


def test_the_operators_own_listener_is_nobody_elses(appliance: Appliance) -> None:
    stage = Stage(appliance, "kube2lb", "kubefigurator")
    appliance.stats = service_port(HERE, BESIDE)
    appliance.values["templates.vars"]["stats_bind"] = f"{HERE}:{appliance.stats}"
    stage.balanced("thief", appliance.stats)
    stage.balanced("beside", appliance.stats, BESIDE)
    stage.balanced("page", appliance.page, "0.0.0.0")
    appliance.start()
    appliance.until(appliance.settled, "all is applied")

    assert ask(appliance.stats, "beside.demo.svc.local", address=BESIDE) == "beside"
    details = {name: refusal["detail"] for name, refusal in stage.refused().items()}
    assert sorted(details) == ["page", "thief"]
    assert details["thief"].startswith(f"frontend stats of the fragments listens on {HERE}:{appliance.stats};")


def test_another_programs_listener_costs_one_address_only_and_plan_says_so(appliance: Appliance) -> None:
    stage = Stage(appliance, "kube2lb", "kubefigurator")
    port = service_port(HERE, BESIDE)
    stage.balanced("shop", port)
    stage.labelled("news", port, BESIDE)
    with socket.create_server((HERE, port)):
        appliance.write_settings()
        planned = appliance.command("plan")
        assert f"listens on {HERE}:{port}" in planned.stdout + planned.stderr
        assert "backend_shop" not in planned.stdout
        appliance.start()
        appliance.until(appliance.settled, "all is applied")
        assert ask(port, "news.example.com", address=BESIDE) == "news"
        assert list(stage.refused()) == ["shop"]
        checked = appliance.command("check")
        assert f"listens on {HERE}:{port}" in checked.stdout + checked.stderr
    appliance.until(lambda: ask(port, "shop.demo.svc.local") == "shop", "it serves once the port is free")
    appliance.until(lambda: not stage.refused(), "nothing is refused any more")
