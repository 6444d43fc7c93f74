"""The demo of the preset ``configmap``: services, certificates and the template in ConfigMaps of ``lb``."""

import base64
import json
from pathlib import Path

import yaml

from pyconfd.settings import Settings
from tests.demo.pods import PodStage
from tests.demo.stage import PAUSE_S, Play
from tests.demo.telling import good, line, paint, require, title
from tests.world.clients import Crowd, ask, ask_tls
from tests.world.haproxy import wait_until
from tests.world.pki import CertificateAuthority

TEMPLATE = """\
global
    maxconn 1000
    user haproxy
    daemon
    stats socket /var/run/haproxy.stats level admin
defaults
    mode http
    timeout connect 5000
    timeout client 50000
    timeout server 50000
    option idle-close-on-response
listen stats
    bind 127.0.0.1:@STATS@
    stats enable
    stats uri /
    stats auth {{ stats.username }}:{{ stats.password }}
frontend http
    bind 127.0.0.1:@HTTP@
{%- if certificates %}
    bind 127.0.0.1:@HTTPS@ ssl{% for name in certificates %} crt {{ ssldir }}/{{ name }}.pem{% endfor %}
    reqadd X-Balanced-By:\\ kubernetes-haproxy
{%- endif %}
{%- for service in services %}
{%- for hostname in service.hostnames %}
    use_backend {{ service.name }} if { hdr_reg(host) -i {{ hostname }} }
{%- endfor %}
{%- endfor %}
{%- for service in services %}
backend {{ service.name }}
{%- for pod in service.pods.itervalues() %}
{%- for port in service.ports %}
    server {{ pod.metadata.name }} {{ pod.status.podIP }}:{{ port }}
{%- endfor %}
{%- endfor %}
{%- endfor %}
"""
PASSWORD = "demo-password"
SHOP, BLOG = "shop.example.com", "blog.example.com"


class ConfigmapStage(PodStage):
    """ConfigMaps and a Secret in ``lb``, pods in ``demo``."""

    def __init__(self) -> None:
        super().__init__()
        self.template = TEMPLATE
        for name, port in (("HTTP", self.http), ("HTTPS", self.https), ("STATS", self.stats)):
            self.template = self.template.replace(f"@{name}@", str(port))
        self.authority = CertificateAuthority(self.folder / "pki", "demo-ca")
        self.values |= {
            "presets": {"use": ["configmap"]},
            "cluster_templates": {"allow_configuration_from_cluster": True, "timeout_s": 2.0},
        }

    def populate(self) -> None:
        """Create the objects, among them an entry that is no JSON and one that tries to break out."""
        self.cluster.add_namespace("lb")
        for name in ("shop-1", "shop-2"):
            self.run_pod(name, {"app": "shop"})
        self.run_pod("blog-1", {"app": "blog"})
        self.set_data("config", {"template": self.template})
        self.set_data("services", self.services())
        pair = self.authority.server(SHOP, [SHOP])
        self.set_data("certificates", {"shop": pair.cert.read_text()})
        key = base64.b64encode(pair.key.read_bytes()).decode()
        metadata = {"name": "keys", "namespace": "lb"}
        self.cluster.put("secrets", {"metadata": metadata, "type": "Opaque", "data": {"shop": key}})

    def services(self) -> dict[str, str]:
        """Return the entries of the ConfigMap ``services``."""
        ports = [self.pods.port]
        shop = {"namespace": "demo", "selector": {"app": "shop"}, "hostnames": [SHOP], "ports": ports}
        blog = shop | {"selector": {"app": "blog"}, "hostnames": [r"^blog\.[a-z]+\.com"]}
        thief = shop | {"hostnames": ["x } || { always_true"]}
        return {name: json.dumps(each) for name, each in {"shop": shop, "blog": blog, "thief": thief}.items()} | {
            "typo": '{"namespace": '
        }

    def set_data(self, name: str, data: dict[str, str]) -> None:
        """Write a ConfigMap."""
        self.cluster.put("configmaps", {"metadata": {"name": name, "namespace": "lb"}, "data": data})

    def over_tls(self) -> str:
        """Ask over TLS, verifying the certificate; return the pod."""
        return ask_tls(self.https, SHOP, str(self.authority.cert))

    @property
    def statistics_page(self) -> str:
        """The address of HAProxy's statistics, with the credentials that it asks for."""
        return f"http://stats:{PASSWORD}@127.0.0.1:{self.stats}/"

    def clients(self) -> tuple[Crowd, ...]:
        """Start a client that keeps asking."""
        return (Crowd(self.http, SHOP, 1, PAUSE_S),)

    def to_try(self) -> tuple[str, ...]:
        """Return commands to try while it stays up."""
        return (
            f"curl -H 'Host: {SHOP}' http://127.0.0.1:{self.http}/",
            f"kubectl --server {self.servers[0].url} -n lb edit configmap services",
        )

    @property
    def certificate(self) -> Path:
        """Where the certificate goes."""
        return self.haproxy.conf.parent / "files" / "certs" / "shop.pem"


def first_configuration(stage: ConfigmapStage) -> None:
    """From three ConfigMaps and a Secret to a serving balancer."""
    title("1  ConfigMaps services, certificates and config, Secret keys, namespace lb")
    stage.start(STATISTICS_PASSWORD=PASSWORD)  # where kubernetes-haproxy had it
    took_s = wait_until(lambda: ask(stage.http, SHOP).startswith("shop-"), "the first request is answered")
    wait_until(lambda: ask(stage.http, BLOG) == "blog-1", "a host name that is a regular expression is answered")
    wait_until(lambda: stage.over_tls().startswith("shop-"), "the certificate of the ConfigMap is shown")
    mode = stage.certificate.stat().st_mode & 0o777
    line(f"{SHOP}   2 pods, TLS with {stage.certificate.name} (mode {mode:o})")
    line("^blog\\.[a-z]+\\.com   1 pod, a regular expression")
    wait_until(lambda: len(stage.refused()) == 2, "two entries are refused")
    for what, why in stage.refused().items():
        line(paint("33", f"refused: {what}: {why[:100]}"))
    text = stage.haproxy.conf.read_text()
    require("level admin" not in text and "left out by pyconfd" in text, "directives of the process are left out")
    require("http-request add-header X-Balanced-By" in text, "reqadd is written again")
    require(mode == 0o600 and Settings().configmap.namespace == "lb", "the key is for pyconfd alone")
    good(f"{took_s:.1f} s; an entry that is no JSON and one that breaks out stop nobody; reqadd is as it is today")


def pods_come_and_go(stage: ConfigmapStage) -> None:
    """Pods of any namespace, by selector; requests are never lost."""
    title("2  Pods come, are not ready, and go")
    crowd = Crowd(stage.http, SHOP)
    stage.run_pod("shop-3", {"app": "shop"})
    wait_until(lambda: crowd.seen()["shop-3"] > 3, "the new pod answers")
    stage.set_ready("shop-1", ready=False)
    wait_until(lambda: "server shop-1 " not in stage.haproxy.conf.read_text(), "a pod that is not ready is left out")
    stage.remove_pod("shop-2")
    wait_until(lambda: "server shop-2 " not in stage.haproxy.conf.read_text(), "a deleted pod is gone")
    wait_until(lambda: {ask(stage.http, SHOP) for _ in range(4)} == {"shop-3"}, "the third pod answers alone")
    answers = crowd.stop()
    line("  ".join(f"{name} x{count}" for name, count in sorted(answers.items())))
    require(all(answer.startswith("shop-") for answer in answers), f"no request fails, not {dict(answers)}")
    good(f"{answers.total()} requests, none failed")


def hostile_template(stage: ConfigmapStage) -> None:
    """Text from the cluster is never trusted as configuration."""
    title("3  Somebody who may edit ConfigMaps tries to run a program")
    wait_until(stage.settled, "the changes before are applied, and the status says so")
    number = stage.status()["generation"]["number"]
    for bad, told in (
        (stage.template.replace("maxconn 1000", "lua-load /tmp/x.lua"), "'lua-load' is not allowed"),
        (stage.template + "\n{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "2 s"),
        (stage.template + "\n{{ ''.__class__ }}", "unsafe"),
    ):
        stage.set_data("config", {"template": bad})
        wait_until(lambda told=told: told in stage.problems(), f"the status says: {told}")  # type: ignore[misc]
        line(paint("33", stage.problems().splitlines()[0][:110]))
        require(ask(stage.http, SHOP) == "shop-3", "what served before serves still")
    require(stage.status()["generation"]["number"] == number, "nothing was applied")
    stage.set_data("config", {"template": stage.template.replace("maxconn 1000", "maxconn 2000")})
    wait_until(lambda: stage.status()["generation"]["number"] > number, "a good template is applied")
    require("maxconn 2000" in stage.haproxy.conf.read_text(), "with what was changed")
    good("never seen by haproxy, not even by its check; explained, and the last good configuration served on")


def certificate_removed(stage: ConfigmapStage) -> None:
    """Deletions count."""
    title("4  The Secret is deleted")
    number = stage.status()["generation"]["number"]
    stage.cluster.delete("secrets", "lb", "keys")
    wait_until(lambda: stage.status()["generation"]["number"] > number, "the change is applied")
    wait_until(lambda: not stage.certificate.exists(), "the file with the key is gone")
    wait_until(lambda: stage.over_tls().startswith("failed"), "nothing is shown on the TLS port any more")
    wait_until(lambda: ask(stage.http, SHOP) == "shop-3", "the rest goes on")
    line(paint("33", f"refused: certificates shop: {stage.refused().get('certificates shop', '')}"))
    good("the key is no longer on disk, and plain HTTP never stopped")


def rights(stage: ConfigmapStage) -> None:
    """Only what is read may be read."""
    title("5  What it may read")
    # Beside that: Events on what is refused, who has which name, and what balancers say of themselves.
    own = ("/leases", "/configmaps/pyconfd-owners", "/configmaps/pyconfd-nodes")
    reads = [r for s in stage.servers for r in s.requests if r.method == "GET" and not any(o in r.path for o in own)]
    paths = {r.path for r in reads if r.path.startswith("/api")}
    line("  ".join(sorted(paths)))
    base = "/api/v1/namespaces/lb"
    require(paths == {"/api/v1/pods", f"{base}/configmaps", f"{base}/secrets"}, f"nothing else is read, not {paths}")
    named = {r.query.get("fieldSelector") for r in reads if "/namespaces/" in r.path}
    require(named == {f"metadata.name={name}" for name in ("services", "certificates", "config", "keys")}, str(named))
    manifest = [each for each in yaml.safe_load_all(stage.command("rbac").stdout) if each]
    roles = [(d["kind"], rule) for d in manifest for rule in d.get("rules", ()) if "list" in rule["verbs"]]
    wide = [rule for kind, rule in roles if kind == "ClusterRole"]
    require(wide == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}], str(roles))
    names = {name for kind, rule in roles if kind == "Role" for name in rule["resourceNames"]}
    require(names == {"services", "certificates", "config", "keys"}, f"by name only, not {names}")
    good("pods, and four objects by their names; pyconfd rbac prints just that")


def scenes() -> Play:
    """Return what is played."""
    return Play(ConfigmapStage, (first_configuration, pods_come_and_go, hostile_template, certificate_removed, rights))
