"""A younger namespace names an own address of the balancer, with a real haproxy: it takes nobody's name, port or TLS.

Linux hands a connection to the listener that names its address, so each request here goes to one that the stranger
asked for as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pyconfd.examples import __path__ as examples
from pyconfd.fragments import of_presets
from pyconfd.model.context import Context
from pyconfd.model.kubernetes import EndpointPort, Service, ServicePort
from pyconfd.model.rendering import Fragment, FragmentSet, Piece, Rendering, natural_order
from pyconfd.model.snapshot import HostFacts
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.presets import registry
from pyconfd.presets.policy import ClaimOptions, Rule, network
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.render.engine import Renderer, RenderOptions
from tests.fragments.shipped import write_rendering
from tests.presets import kube2lb, kubefigurator
from tests.presets.objects import Named, endpoint, slice_, snapshot
from tests.world.backends import Backends
from tests.world.clients import ask, ask_tls
from tests.world.haproxy import HaproxyProcess, free_port
from tests.world.pki import CertificateAuthority

pytestmark = pytest.mark.haproxy

OWN = "127.0.0.1"
"""Stands for an address of the balancer, beside all of them."""
SHOP = "shop.example.com"
YOUNGER = "2026-02-01T00:00:00Z"

DOMAINS = ("example.com", "svc.local")
RULES = {
    "no rules": (),
    "rules": (Rule(("*",), DOMAINS),),
    "rules with addresses": (Rule(("*",), DOMAINS, addresses=(network("127.0.0.0/8"),)),),
}
any_rules = pytest.mark.parametrize("rules", RULES.values(), ids=RULES)


@dataclass
class Balancer:
    """What serves ``port``, the authority of the victim's certificates, and why the stranger was refused."""

    port: int
    authority: CertificateAuthority
    context: Context

    def ask(self, name: str = SHOP, address: str = OWN) -> set[str]:
        return {ask(self.port, name, address=address) for _ in range(5)}

    def ask_tls(self, name: str = SHOP) -> set[str]:
        return {ask_tls(self.port, name, str(self.authority.cert)) for _ in range(5)}

    @property
    def refused(self) -> list[tuple[str, str]]:
        return [(refusal.ref.name, str(refusal.reason)) for refusal in self.context.refused]


def lost(rules: Sequence[Rule], reason: str) -> list[tuple[str, str]]:
    """Return what the stranger is told: by rules without addresses he may name none."""
    return [("intruder", "not_allowed" if rules == RULES["rules"] else reason)]


@dataclass
class World:
    """The place of a test: pods, and the certificates that the operator put there."""

    folder: Path
    pods: Backends
    rules: Sequence[Rule] = ()

    def __post_init__(self) -> None:
        self.port = free_port()
        self.authority = CertificateAuthority(self.folder / "pki")
        self.ssl_dir = self.folder / "ssl"
        self.ssl_dir.mkdir()

    def put_certificate(self, file: str, *names: str, authority: CertificateAuthority | None = None) -> None:
        pair = (authority or self.authority).server(file, names)
        (self.ssl_dir / f"{file}.pem").write_bytes(pair.cert.read_bytes() + pair.key.read_bytes())

    def behind(self, name: str) -> Named:
        address = f"127.18.7.{len(self.pods.pods) + 1}"
        pod = self.pods.add(name, address)
        ports = [EndpointPort("web", pod.port, "TCP"), EndpointPort("http", pod.port, "TCP")]
        return slice_(name, endpoint(address, pod=name), ports=ports)

    def labelled(self, name: str, options: Mapping[str, str], *, created: str = "2026-01-01T00:00:00Z") -> list[Named]:
        """Return a Service of haproxy-kubefigurator's users with its pod."""
        given = {f"web.{option}": value for option, value in options.items()}
        given = {"web.listen-port": str(self.port), "web.backends-use-ssl": "false"} | given
        return [kubefigurator.labelled(name, given, created=created), self.behind(name)]

    def balanced(self, name: str, annotations: Mapping[str, str], **more: str) -> list[Named]:
        """Return a Service of kube2lb's users with its pod."""
        ports = (ServicePort("http", self.port, "web", 30080),)
        kind = "LoadBalancer" if "address" in more else "NodePort"
        made: Service = kube2lb.service(name, annotations, ports=ports, type_=kind, **more)
        return [made, self.behind(name)]

    @contextmanager
    def serving(self, *presets: str, objects: Sequence[Named]) -> Iterator[Balancer]:
        certificates = {str(path): "" for path in self.ssl_dir.iterdir()}
        options = PresetOptions(
            own=own_options(
                Kube2lbOptions(domain="local", listen_ports=((1, 65535),)),
                KubefiguratorOptions(ssl_dir=str(self.ssl_dir), node_ports=False, listen_ports=((1024, 65535),)),
            ),
            claims=ClaimOptions(tuple(self.rules), (network("127.0.0.0/8"),)),
        )
        seen = snapshot(*objects)
        host = HostFacts(addresses=frozenset({OWN}), certificates=certificates)
        context = registry.translate(replace(seen, host=host), presets, options)
        files = self.folder / "files"
        rendered = Renderer(fragments(presets), RenderOptions(str(files))).render(context, curdate="").rendering
        with HaproxyProcess(self.folder) as haproxy:
            text = rendered.text.replace("bind 127.0.0.1:8404", f"bind 127.0.0.1:{free_port()}")
            text = text.replace("/run/haproxy/pyconfd.sock", haproxy.stats_socket)
            write_rendering(Rendering((Piece("all", text),), rendered.files), haproxy.conf)
            haproxy.start()
            yield Balancer(self.port, self.authority, context)


def fragments(presets: Sequence[str]) -> FragmentSet:
    """Return the shipped ones; kube2lb's example is a whole file of its own."""
    if tuple(presets) == ("kube2lb",):
        text = (Path(examples[0]) / "kube2lb" / "haproxy" / "haproxy.cfg.tmpl").read_text()
        return FragmentSet((Fragment("haproxy.tmpl", text),))
    paths = of_presets(["kubefigurator"])
    return FragmentSet(tuple(Fragment(name, paths[name].read_text()) for name in natural_order(paths)))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Backends() as pods:
        yield World(tmp_path, pods)


@any_rules
def test_kubefigurator_name_on_an_own_address(world: World, rules: Sequence[Rule]) -> None:
    world.rules = rules
    world.put_certificate(SHOP, SHOP)
    shop = world.labelled("victim", {"hostname": SHOP})
    asked = {"hostname": SHOP, "listen-ip": OWN, "ssl-certificate": f"{SHOP}.pem"}
    stranger = world.labelled("intruder", asked, created=YOUNGER)
    with world.serving("kubefigurator", objects=[*shop, *stranger]) as balancer:
        assert balancer.ask_tls() == {"victim"}
        assert balancer.refused == lost(rules, "name_taken")


@any_rules
@pytest.mark.parametrize("tls", ["true", "false"])
def test_kubefigurator_whole_port_of_an_own_address(world: World, rules: Sequence[Rule], tls: str) -> None:
    world.rules = rules
    world.put_certificate(SHOP, SHOP)
    shop = world.labelled("victim", {"hostname": SHOP})
    asked = {"haproxy-mode": "tcp", "listen-ip": OWN, "use-ssl": tls, "ssl-certificate": f"{SHOP}.pem"}
    stranger = world.labelled("intruder", asked, created=YOUNGER)
    with world.serving("kubefigurator", objects=[*shop, *stranger]) as balancer:
        assert balancer.ask_tls() == {"victim"}
        assert balancer.refused == lost(rules, "port_taken")


def test_kubefigurator_address_of_a_neighbour_serves_the_names_of_all(world: World) -> None:
    """To listen there for a name of one's own must not silence the names that are served on all addresses."""
    world.put_certificate(SHOP, SHOP)
    world.put_certificate("blog.example.com", "blog.example.com")
    shop = world.labelled("victim", {"hostname": SHOP})
    blog = world.labelled("neighbour", {"hostname": "blog.example.com", "listen-ip": OWN}, created=YOUNGER)
    with world.serving("kubefigurator", objects=[*shop, *blog]) as balancer:
        assert balancer.ask_tls() == {"victim"}
        assert balancer.ask_tls("blog.example.com") == {"neighbour"}
        assert balancer.refused == []


@pytest.mark.parametrize("listen", ["*", OWN])
def test_kubefigurator_certificate_answers_only_for_the_names_of_its_claim(world: World, listen: str) -> None:
    """Two files are good for the shop; the stranger's sorts first, and would be presented for it."""
    world.put_certificate(SHOP, SHOP)
    world.put_certificate("another", SHOP, "evil.example.com", authority=CertificateAuthority(world.folder / "other"))
    shop = world.labelled("victim", {"hostname": SHOP})
    asked = {"hostname": "evil.example.com", "ssl-certificate": "another.pem", "listen-ip": listen}
    stranger = world.labelled("intruder", asked, created=YOUNGER)
    with world.serving("kubefigurator", objects=[*shop, *stranger]) as balancer:
        assert balancer.ask_tls() == {"victim"}
        assert balancer.ask_tls("evil.example.com") == {"failed: SSLCertVerificationError"}
        assert balancer.refused == []


@any_rules
def test_kube2lb_name_on_an_own_address(world: World, rules: Sequence[Rule]) -> None:
    world.rules = rules
    wants = {"kube2lb/external-domains": SHOP}
    shop = world.balanced("victim", wants)
    stranger = world.balanced("intruder", wants, created=YOUNGER, address=OWN)
    with world.serving("kube2lb", objects=[*shop, *stranger]) as balancer:
        assert balancer.ask() == {"victim"}
        assert balancer.refused == lost(rules, "name_taken")


@any_rules
def test_kube2lb_whole_port_of_an_own_address(world: World, rules: Sequence[Rule]) -> None:
    world.rules = rules
    shop = world.balanced("victim", {"kube2lb/external-domains": SHOP})
    stranger = world.balanced("intruder", {"kube2lb/port-mode": '{"http": "tcp"}'}, created=YOUNGER, address=OWN)
    with world.serving("kube2lb", objects=[*shop, *stranger]) as balancer:
        assert balancer.ask() == {"victim"}
        assert balancer.refused == lost(rules, "port_taken")


def test_kube2lb_address_of_a_neighbour_serves_the_names_of_all(world: World) -> None:
    shop = world.balanced("victim", {"kube2lb/external-domains": SHOP})
    blog = world.balanced("neighbour", {"kube2lb/external-domains": "blog.example.com"}, created=YOUNGER, address=OWN)
    with world.serving("kube2lb", objects=[*shop, *blog]) as balancer:
        assert balancer.ask() == {"victim"}
        assert balancer.ask("blog.example.com") == {"neighbour"}
        assert balancer.ask("blog.example.com", "127.0.0.2") == {"503"}


def test_kube2lb_expression_of_a_younger_one_takes_nothing(world: World) -> None:
    """Its namespace and name sort first."""
    shop = world.balanced("victim", {"kube2lb/external-domains": r"~^shop[.]example[.]com$"})
    stranger = world.balanced("a-intruder", {"kube2lb/external-domains": r"~^.*[.]example[.]com$"}, created=YOUNGER)
    with world.serving("kube2lb", objects=[*shop, *stranger]) as balancer:
        assert balancer.ask() == {"victim"}
        assert balancer.ask("blog.example.com") == {"a-intruder"}
