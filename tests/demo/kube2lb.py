"""The demo of preset kube2lb: its annotations, HAProxy and nginx from one process."""

import json
from contextlib import ExitStack
from types import TracebackType

from pyconfd.haproxy.process.host import gather_addresses
from tests.demo.stage import PAUSE_S, Play, Stage
from tests.demo.telling import good, line, require, title
from tests.world import nginx
from tests.world.clients import Crowd, ask
from tests.world.haproxy import wait_until
from tests.world.nginx import NginxProcess
from tests.world.objects import EndpointSpec, PortSpec
from tests.world.ports import service_port

NGINX_ADDRESS = "127.0.0.2"


class Kube2lbStage(Stage):
    """NodePort and LoadBalancer services, and nginx beside haproxy where it is installed."""

    def __init__(self) -> None:
        super().__init__()
        self._more = ExitStack()
        self.web = service_port("127.0.0.1", NGINX_ADDRESS)
        self.mysql = service_port("127.0.0.1", NGINX_ADDRESS)
        self.values["presets"] = {"use": ["kube2lb"]}
        self.values["kube2lb"] = {"domain": "cluster.local", "default_lb_ip": "127.0.0.1"}
        self.values["templates"]["dir"] = str(nginx.TEMPLATES / "haproxy")
        self.nginx: NginxProcess | None = None
        if nginx.BINARY:
            self.nginx = self._more.enter_context(NginxProcess(self.folder / "nginx", NGINX_ADDRESS))
            self.values["templates.vars"] |= self.nginx.variables
        self.addresses: dict[str, list[EndpointSpec]] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._more.close()
        super().__exit__(kind, error, trace)

    def launch(self) -> None:
        """Start pyconfd, haproxy, and nginx."""
        targets = [self.nginx.target] if self.nginx else []
        self.start(PYCONFD_TARGETS=json.dumps(targets))
        if self.nginx:
            self.until(self.nginx.conf.exists, "pyconfd writes nginx.conf")
            self.nginx.start()

    def clients(self) -> tuple[Crowd, ...]:
        """Start a client that keeps asking."""
        return (Crowd(self.web, "shop7.example.com", 1, PAUSE_S),)

    def to_try(self) -> tuple[str, ...]:
        """Return commands to play with."""
        asked = [f"curl -H 'Host: shop7.example.com' http://127.0.0.1:{self.web}/"]
        if self.nginx:
            asked.append(f"curl -H 'Host: shop7.example.com' http://{NGINX_ADDRESS}:{self.web}/    # nginx")
        return tuple(asked)

    def populate(self) -> None:
        """Create the sample cluster."""
        for number in (1, 2):
            self.cluster.add_node(f"node-{number}", f"192.0.2.{number}")
        names = {"kube2lb/external-domains": r"shop.example.com,~^shop[0-9]{1,2}\.example\.(com|net)(:[0-9]+)?$"}
        self.node_port("shop", 30, names | {"kube2lb/backend-timeout": '{"web": 20000}'}, pods=2)
        self.node_port("thief", 31, {"kube2lb/external-domains": "shop.example.com"})
        self.node_port("db", 32, {"kube2lb/port-mode": '{"web": "tcp"}'}, port=self.mysql)
        self.node_port("ephemeral", 33, {}, port=gather_addresses().ephemeral_ports[0])

    def node_port(self, name: str, block: int, annotations: dict[str, str], *, port: int = 0, pods: int = 1) -> None:
        """Create a NodePort service; its pods are on 127.18.BLOCK.x."""
        ports = [PortSpec("web", port or self.web, self.pods.port, node_port=30000 + block)]
        self.cluster.add_service("demo", name, ports=ports, annotations=annotations, type="NodePort")
        self.addresses[name] = []
        for _ in range(pods):
            self.add_pod(name, block)

    def add_pod(self, name: str, block: int) -> str:
        """Start one more pod; return its name."""
        number = len(self.addresses[name]) + 1
        pod, address = f"{name}-{number}", f"127.18.{block}.{number}"
        self.pods.add(pod, address)
        self.addresses[name].append(EndpointSpec(address, pod=pod, node=f"node-{number % 2 + 1}"))
        self.cluster.set_endpoints("demo", name, self.addresses[name])
        return pod


def first_configuration(stage: Kube2lbStage) -> None:
    """From annotations to two balancers."""
    title("1  kube2lb's annotations, from an empty directory to a serving balancer")
    stage.launch()
    wait_until(lambda: ask(stage.web, "shop.example.com").startswith("shop-"), "the first request is answered")
    stage.until(stage.settled, "pyconfd says that it serves")
    for text in stage.haproxy.conf.read_text().splitlines():
        if text.startswith(("frontend frontend_", "backend backend_")):
            line(text)
    refused = {refusal["ref"]["name"]: refusal["detail"] for refusal in stage.status()["refused"]}
    for name, detail in refused.items():
        line(f"refused: demo/{name}: {detail}")
    require(set(refused) == {"thief", "ephemeral"}, "a taken name and a port of the kernel's are refused and explained")
    good("one entry for each service port, labels as kube2lb had them")


def names(stage: Kube2lbStage) -> None:
    """Names, expressions and a port in mode tcp."""
    title(f"2  Names, regular expressions, mode tcp   http://127.0.0.1:{stage.web}")
    found = {
        host: ask(stage.web, host)
        for host in ("shop.example.com", "shop.demo.svc.cluster.local", "shop42.example.net", "shop123.example.net")
    }
    for host, answer in found.items():
        line(f"{host:<30} {answer}")
    database = ask(stage.mysql, "whatever")
    line(f"{'port ' + str(stage.mysql) + ' in mode tcp':<30} {database}")
    answers = list(found.values())
    require(all(answer.startswith("shop-") for answer in answers[:3]), "names and the expression reach shop")
    require(answers[3] == "503" and database == "db-1", "another name does not, and mode tcp needs no name")
    good("~^shop[0-9]{1,2}\\.example\\.(com|net): its comma belongs to it")


def second_balancer(stage: Kube2lbStage) -> None:
    """A service is scaled up under load, for two balancers."""
    title(f"3  A service is scaled up under load, behind HAProxy and nginx ({NGINX_ADDRESS}:{stage.web})")
    crowds = [Crowd(stage.web, "shop.example.com")]
    if stage.nginx is None:
        line("nginx is not installed, so HAProxy is alone here (make packages-test installs it)")
    else:
        wait_until(
            lambda: ask(stage.web, "shop.example.com", address=NGINX_ADDRESS).startswith("shop-"), "nginx answers"
        )
        stage.until(lambda: stage.status()["targets"][0]["phase"] == "serving", "the target serves")
        crowds.append(Crowd(stage.web, "shop.example.com", address=NGINX_ADDRESS))
    pod = stage.add_pod("shop", 30)
    for crowd in crowds:
        wait_until(lambda crowd=crowd: crowd.seen()[pod] > 3, f"{pod} answers")  # type: ignore[misc]
    for name, crowd in zip(("HAProxy", "nginx"), crowds, strict=False):
        answers = crowd.stop()
        line(f"{name:<8} {'  '.join(f'{who} x{count}' for who, count in sorted(answers.items()))}")
        require(all(who.startswith("shop-") for who in answers), f"no request fails, not {dict(answers)}")
    good(f"{pod} answers through every balancer; no request failed")


def scenes() -> Play:
    """Return the scenes of preset kube2lb."""
    return Play(Kube2lbStage, (first_configuration, names, second_balancer))
