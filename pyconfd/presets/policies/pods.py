"""Words that say how HAProxy speaks with pods: what becomes words of their server lines.

A tenant decides so for connections to his own pods. A certificate of a pod that cannot be verified, as a CA is missing,
closes: requests would else go to whoever has the pod's address.
"""

import re
from typing import NamedTuple

from pyconfd.model.snapshot import Key
from pyconfd.presets import values
from pyconfd.presets.gateway.servers import BackendTls, server_options

_PROTOCOLS = {"http": "http", "https": "https", "h2c": "h2c", "grpc": "h2c", "grpcs": "grpcs"}
_MOST_CONNECTIONS = 100_000
_PATH = re.compile(r"/[A-Za-z0-9._~:@?=&,/+-]{0,255}", re.ASCII)
_REMEDIES = {
    "fcgi": "HAProxy speaks FastCGI for one application by its configuration only: put a web server into the pod",
    "auto_http": "write http or https, which pods are asked by whatever clients use",
}


class PodConnection(NamedTuple):
    """How HAProxy speaks with the pods of a backend; "" and None: as the Service says.

    ``protocol`` is one of http, https, h2c and grpcs. Certificates are verified with the CAs that the ConfigMap ``ca``
    has, and for ``server_name``, which is asked for in any case. ``most`` connections go to each pod, a new one has its
    share only after ``slow_start_ms``, and ``health`` is how HAProxy looks after them: tcp, off, or a path to ask for.
    """

    protocol: str = ""
    ca: Key | None = None
    server_name: str = ""
    most: int | None = None
    slow_start_ms: int | None = None
    health: str = ""

    @property
    def is_tls(self) -> bool:
        """Return whether it says that pods have TLS."""
        return self.protocol in {"https", "grpcs"} or self.ca is not None

    @property
    def lines(self) -> "PodConnection":
        """Itself without what stands in the options of servers."""
        return PodConnection(health=self.health if self.health.startswith("/") else "")

    @property
    def words(self) -> str:
        """What it says of all servers, whatever they speak."""
        found = [f"maxconn {self.most}"] if self.most is not None else []
        found += [f"slowstart {self.slow_start_ms}ms"] if self.slow_start_ms is not None else []
        return " ".join([*found, *(["no-check"] if self.health == "off" else [])])

    def options(self, usual: str, ca_file: str, service: Key) -> str:
        """Return the words of server lines; ``usual`` are those that the Service asks for."""
        return with_words(self._spoken(usual, ca_file, service), self)

    def _spoken(self, usual: str, ca_file: str, service: Key) -> str:
        if not (self.protocol or self.ca or self.server_name):
            return usual
        h2 = self.protocol in {"h2c", "grpcs"}
        if not (self.is_tls or (not self.protocol and usual.startswith("ssl "))):
            return server_options(None, h2=h2) if self.protocol else usual
        # As authorities of clusters name the certificates of a Service.
        name = self.server_name or f"{service.name}.{service.namespace}.svc"
        if self.ca is not None:
            return server_options(BackendTls(ca_file, name), h2=h2)
        words = ["ssl verify none", *([f"sni str({name})"] if self.server_name else []), *(["alpn h2"] if h2 else [])]
        return " ".join(words)


AS_THE_SERVICE = PodConnection()


def with_words(options: str, pods: PodConnection) -> str:
    """Return words of server lines, and those of a policy behind them."""
    # A check that agreed on HTTP/2 (ALPN) would speak HTTP/1.1 all the same.
    check = "check-alpn h2" if pods.lines.health and "alpn h2" in options else ""
    return " ".join(filter(None, (options, check, pods.words)))


def connections(text: str) -> int:
    """Parse how many connections a pod takes; raise ValueError."""
    return values.number(text, 1, _MOST_CONNECTIONS)


def health(text: str) -> str:
    """Parse how HAProxy looks after pods; raise ValueError."""
    said = text.strip()
    if said in {"tcp", "off"}:
        return said
    path = said.removeprefix("http:")
    if path == said or not _PATH.fullmatch(path):
        raise ValueError("expected tcp, off, or http:PATH, such as http:/healthz; of gRPC say tcp")
    return path


def protocol(text: str) -> str:
    """Parse how pods are spoken to; raise ValueError."""
    said = text.strip().lower()
    if said in _REMEDIES:
        raise ValueError(_REMEDIES[said])
    if said not in _PROTOCOLS:
        raise ValueError(f"expected one of {', '.join(_PROTOCOLS)}")
    return _PROTOCOLS[said]


def config_map(text: str) -> str:
    """Parse the name of a ConfigMap; raise ValueError."""
    return values.object_name(text, "a ConfigMap of the same namespace, with CA certificates in ca.crt")


def server_name(text: str) -> str:
    """Parse the name that certificates of pods are verified for; raise ValueError."""
    name = values.host_name(text.strip())
    if name.startswith("*") or values.address(name) is not None:
        raise ValueError("expected the name of one host")
    return name
