"""The demo of the preset ``kubefigurator``: Services of haproxy-kubefigurator's users, with TLS and node ports."""

import ssl
from pathlib import Path

from tests.demo.stage import PAUSE_S, Play, Stage
from tests.demo.telling import good, line, paint, require, title
from tests.world.clients import Crowd, TlsCrowd, ask_tls, ping_redis
from tests.world.haproxy import free_port, wait_until
from tests.world.objects import PortSpec
from tests.world.pki import CertificateAuthority, KeyPair

README = Path(__file__).parent.parent / "golden" / "kubefigurator" / "readme" / "service.yaml"
PREFIX = "haproxy-kubefigurator."
DASHBOARD = "ny-dashboard.ds.stackexchange.com"


class KubefiguratorStage(Stage):
    """A cluster of three nodes on loopback; certificates for the balancer and for what runs behind node ports."""

    def __init__(self) -> None:
        super().__init__()
        self.tls, self.tcp = free_port(), free_port()
        self.ssl_dir = self.folder / "ssl"
        self.ssl_dir.mkdir()
        self.authority = CertificateAuthority(self.folder / "pki", "demo-ca")
        stranger = CertificateAuthority(self.folder / "stranger", "another-ca")
        block = free_port()
        self.nodes = {f"node-{at}": f"127.{block // 256 % 100 + 20}.{block % 256}.{at}" for at in (1, 2, 3)}
        self.trusted = _context(self.authority.server("nodes", list(self.nodes.values())))
        self.untrusted = _context(stranger.server("nodes", list(self.nodes.values())))
        self.fragments = self.own_fragments("kubefigurator")
        self.values |= {
            "templates.vars": {
                "stats_bind": f"127.0.0.1:{self.stats}",
                "runtime_socket": self.haproxy.stats_socket,
            },
            "presets": {"use": ["kubefigurator"]},
            "kubefigurator": {
                "cluster": "ny",
                "ssl_dir": str(self.ssl_dir),
                "ca_file": str(self.authority.cert),
                "listen_ports": ["1024-65535"],
            },
        }

    def certify(self, hostname: str) -> None:
        """Write the certificate of a host where haproxy-kubefigurator's users have it."""
        pair = self.authority.server(hostname, [hostname])
        written = self.ssl_dir / f".{hostname}"
        written.write_bytes(pair.cert.read_bytes() + pair.key.read_bytes())
        written.rename(self.ssl_dir / f"{hostname}.pem")

    def answer_on(
        self, service: str, node_port: int, *, tls: ssl.SSLContext | None = None, redis: bool = False
    ) -> None:
        """Answer on a node port of every node, as kube-proxy would."""
        for node, address in self.nodes.items():
            if redis:
                self.pods.add(f"{service}@{node}", address, node_port)
            else:
                self.pods.add(f"{service}@{node}", address, node_port, tls=tls)

    def labelled(self, name: str, options: dict[str, str], *, node_port: int) -> None:
        """Create a Service with the label, one port called web, and these options for it."""
        self.cluster.add_service(
            "demo",
            name,
            ports=[PortSpec("web", 443, 8443, node_port=node_port)],
            annotations={f"{PREFIX}web.{option}": value for option, value in options.items()},
            labels={f"{PREFIX}enabled": "yes"},
            type="NodePort",
        )

    def populate(self) -> None:
        """Create the readme's own example, two more of each kind, and some that cannot be had."""
        for node, address in self.nodes.items():
            self.cluster.add_node(node, address)
        here = {"listen-port": str(self.tls), "listen-ip": "127.0.0.1"}
        self.cluster.add_namespace("kube-system")
        self.cluster.load(README)
        # Only where it listens is changed: 443 on all addresses is not the demo's to take.
        changed: dict[str, str | None] = {f"{PREFIX}web-ui.{option}": value for option, value in here.items()}
        example = self.cluster.annotate("services", "kube-system", "kubernetes-dashboard", changed)
        self.answer_on("dashboard", example["spec"]["ports"][0]["nodePort"], tls=self.trusted)
        for name in ("shop", "verified", "pretender"):
            verify = {} if name == "shop" else {"backends-verify-ssl": "true"}
            port = free_port()
            self.labelled(name, here | verify | {"hostname": f"{name}.example.com"}, node_port=port)
            self.answer_on(name, port, tls=self.untrusted if name == "pretender" else self.trusted)
        tcp = {"haproxy-mode": "tcp", "listen-port": str(self.tcp), "listen-ip": "127.0.0.1"}
        port = free_port()
        self.labelled("cache", tcp, node_port=port)
        self.answer_on("cache", port, redis=True)
        self.labelled("late", tcp, node_port=free_port())
        self.labelled("thief", here | {"hostname": "shop.example.com"}, node_port=free_port())
        for hostname in (DASHBOARD, "shop.example.com", "verified.example.com", "pretender.example.com"):
            self.certify(hostname)

    def ask(self, hostname: str) -> str:
        """Ask over TLS, verifying the certificate of ``hostname``."""
        return ask_tls(self.tls, hostname, str(self.authority.cert))

    def refused(self) -> dict[str, str]:
        """Return the names of the Services that were refused, and why."""
        return {each["ref"]["name"]: each["detail"] for each in self.status().get("refused", ())}

    def clients(self) -> tuple[Crowd, ...]:
        """Start a client that keeps asking."""
        return (TlsCrowd(self.tls, "shop.example.com", str(self.authority.cert), 1, PAUSE_S, keep_alive=True),)

    def to_try(self) -> tuple[str, ...]:
        """Return commands to try while it stays up."""
        name = "shop.example.com"
        return (
            f"curl --cacert {self.authority.cert} --resolve {name}:{self.tls}:127.0.0.1 https://{name}:{self.tls}/",
            f"rm {self.ssl_dir}/{name}.pem",
        )


def _context(pair: KeyPair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    return context


def first_configuration(stage: KubefiguratorStage) -> None:
    """The readme's example serves."""
    title("1  The example of haproxy-kubefigurator's readme, and some more")
    stage.start()
    took_s = wait_until(lambda: stage.ask(DASHBOARD).startswith("dashboard@"), "the readme's example answers over TLS")
    line(f"https://{DASHBOARD}   {stage.ask(DASHBOARD)}")
    wait_until(lambda: ping_redis(stage.tcp) == "+PONG", "mode tcp answers")
    line(f"tcp port {stage.tcp}   +PONG")
    wait_until(lambda: {"late", "thief"} <= stage.refused().keys(), "those who came too late are refused")
    for name, detail in stage.refused().items():
        line(paint("33", f"refused: {name}: {detail}"))
    require(stage.refused().keys() == {"late", "thief"}, f"nobody else is refused, not {stage.refused().keys()}")
    good(f"CLUSTER replaced, TLS on both sides, {took_s:.1f} s; two TCP services on one port no longer end everything")


def several_certificates(stage: KubefiguratorStage) -> None:
    """One port, one certificate for each name."""
    title(f"2  Several certificates on one port by SNI   127.0.0.1:{stage.tls}")
    for hostname in (DASHBOARD, "shop.example.com", "verified.example.com"):
        wait_until(lambda name=hostname: "@" in stage.ask(name), f"{hostname} answers")  # type: ignore[misc]
        line(f"https://{hostname}   {stage.ask(hostname)}, its own certificate")
    good("each name is answered with its own certificate, by its own service")


def verification(stage: KubefiguratorStage) -> None:
    """backends-verify-ssl verifies."""
    title("3  backends-verify-ssl")
    wait_until(lambda: stage.ask("pretender.example.com") == "503", "servers with a certificate of others get nothing")
    trusted, pretender = stage.ask("verified.example.com"), stage.ask("pretender.example.com")
    line(f"verified.example.com    {trusted}")
    line(f"pretender.example.com   {pretender}, its servers' certificate comes from another authority")
    require(trusted.startswith("verified@"), f"the verified service answers, not {trusted}")
    good("verified against the authorities of the settings; what cannot be verified gets no request")


def missing_certificate(stage: KubefiguratorStage) -> None:
    """Costs one host, not everything."""
    title("4  A certificate is deleted, and put back")
    (stage.ssl_dir / "shop.example.com.pem").unlink()
    wait_until(lambda: "shop" in stage.refused(), "the host without its certificate is explained")
    line(paint("33", f"refused: shop: {stage.refused()['shop']}"))
    wait_until(lambda: "shop.example.com" not in stage.haproxy.conf.read_text(), "the host is left out")
    wait_until(lambda: not stage.ask("shop.example.com").startswith("shop@"), "the host is no longer served")
    others = [stage.ask(DASHBOARD), stage.ask("verified.example.com")]
    require(all("@" in other for other in others), f"the others go on, not {others}")
    require("thief" in stage.refused(), "nobody takes the name over meanwhile")
    stage.certify("shop.example.com")
    took_s = wait_until(lambda: stage.ask("shop.example.com").startswith("shop@"), "the host is back")
    wait_until(lambda: "shop" not in stage.refused(), "nothing is said against it any more")
    good(f"only that host was left out, nobody took its name, and it was back {took_s:.1f} s after its file")


def broken_certificate(stage: KubefiguratorStage) -> None:
    """A file that HAProxy could not load is the same."""
    title("5  A certificate is overwritten with something else")
    (stage.ssl_dir / "shop.example.com.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    )
    wait_until(lambda: "shop" in stage.refused(), "the broken file is explained")
    line(paint("33", f"refused: shop: {stage.refused()['shop']}"))
    wait_until(lambda: "shop.example.com" not in stage.haproxy.conf.read_text(), "the host is left out")
    wait_until(lambda: not stage.ask("shop.example.com").startswith("shop@"), "the host is no longer served")
    require("@" in stage.ask(DASHBOARD), "the others go on")
    stage.certify("shop.example.com")
    wait_until(lambda: stage.ask("shop.example.com").startswith("shop@"), "the host is back")
    wait_until(lambda: "shop" not in stage.refused(), "nothing is said against it any more")
    good("HAProxy would refuse the whole configuration for it; pyconfd leaves out one host")


def node_leaves(stage: KubefiguratorStage) -> None:
    """Nodes count, not only services."""
    title("6  A node is cordoned, another is not ready")
    stage.cluster.add_node("node-1", stage.nodes["node-1"], unschedulable=True)
    stage.cluster.add_node("node-2", stage.nodes["node-2"], ready=False)
    wait_until(lambda: {stage.ask(DASHBOARD) for _ in range(4)} == {"dashboard@node-3"}, "only node-3 is used")
    stage.cluster.add_node("node-2", stage.nodes["node-2"])
    wait_until(lambda: "dashboard@node-2" in {stage.ask(DASHBOARD) for _ in range(4)}, "node-2 is used again")
    good("no Service had to change for that")


def scenes() -> Play:
    """Return what is played."""
    return Play(
        KubefiguratorStage,
        (first_configuration, several_certificates, verification, missing_certificate, broken_certificate, node_leaves),
    )
