"""The sample cluster of the presets that are in use by default."""

import sys
from pathlib import Path

from tests.demo.stage import PAUSE_S, Stage
from tests.world.clients import Crowd, TlsCrowd
from tests.world.issuer import Issuer
from tests.world.ports import service_port

GATEWAY = "127.0.0.72"
"""The address of the pool, for a Gateway."""


class SampleStage(Stage):
    """Services, an issuer of certificates, and an address for a Gateway."""

    def __init__(self) -> None:
        super().__init__()
        self.issuer = Issuer(self)
        self.gateway = service_port(GATEWAY)
        self.values["addresses"] = {"shared": ["127.0.0.1"], "pool": [GATEWAY]}

    def populate(self) -> None:
        """Create the sample cluster: two web services, a redis, and one that asks for a name already taken."""
        for number in (1, 2):
            self.cluster.add_node(f"node-{number}", f"192.0.2.{number}")
        self.serve("shop", pods=2)
        self.serve("blog")
        self.serve("thief", {"domain": "shop.example.com", "proto": "http"})
        listen = {"domain": "cache.example.com", "proto": "redis", "pyconfd.io/listen-port": str(self.redis)}
        self.serve("cache", listen)

    def clients(self) -> tuple[Crowd, ...]:
        """Start clients of a domain, of HTTPS, of a path of an Ingress, and of a Gateway."""
        return (
            Crowd(self.http, "shop.example.com", 1, PAUSE_S),
            TlsCrowd(self.https, "docs.example.com", self.issuer.ca, 1, PAUSE_S, keep_alive=True),
            Crowd(self.http, "www.example.com", 1, PAUSE_S, path="/news"),
            Crowd(self.gateway, "app.example.com", 1, PAUSE_S, address=GATEWAY),
        )

    def to_try(self) -> tuple[str, ...]:
        """Return commands to play with."""
        api = self.servers[0].url
        pyconfd = Path(sys.executable).with_name("pyconfd")
        at = f"--resolve docs.example.com:{self.https}:127.0.0.1"
        return (
            f"curl -H 'Host: shop.example.com' http://127.0.0.1:{self.http}/",
            f"curl --cacert {self.issuer.ca} {at} https://docs.example.com:{self.https}/",
            f"curl -H 'Host: www.example.com' http://127.0.0.1:{self.http}/news",
            f"curl -H 'Host: app.example.com' http://{GATEWAY}:{self.gateway}/",
            f"{pyconfd} logs -f --config {self.config}     # each request as it ends",
            f"kubectl --server {api} get ingresses,gateways,httproutes -n demo -o yaml",
            f"kubectl --server {api} annotate service thief -n demo domain=mine.example.com --overwrite",
        )
