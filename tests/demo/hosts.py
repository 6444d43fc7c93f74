"""The demo of the preset ``hosts``: pods by their label ``app``, the configuration in a Deployment's annotation."""

import base64
import csv
import http.client

from pyconfd.predecessors.hosts import CONFIG, MASTER, ROUTE53
from tests.demo.pods import PodStage
from tests.demo.stage import PAUSE_S, Play
from tests.demo.telling import good, line, paint, require, title
from tests.world.clients import Crowd, ask
from tests.world.haproxy import wait_until

ANNOTATION = """\
# Written as the README of ads-infra-haproxy has it; timeouts and addresses are the demo's.
defaults
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  option idle-close-on-response

frontend proxy
  bind                127.0.0.1:@HTTP@
  mode                http
  acl                 quoted hdr(x-quoted) -m str "two \\"words\\""
  http-request        return status 200 content-type text/plain string "quotes\\ and\\ backslashes" if quoted
  default_backend     http

listen stats
  bind                127.0.0.1:@STATS@
  mode                http
  stats               enable
  stats               hide-version
  stats uri           /haproxy

backend http
  mode                http
  retries             3
  option              redispatch
  option              forwardfor
  balance             leastconn
  default-server      inter 5s fall 1 rise 1
  {%- for key in hosts %}
  {%- for ip in hosts[key] %}
  server {{key}}-{{loop.index}} {{ip}}:@POD@ check on-error mark-down observe layer7 error-limit 1
  {%- endfor %}
  {%- endfor %}
"""
MINE = {MASTER: "haproxy.default.svc"}


class HostsStage(PodStage):
    """A Deployment of balancers that no longer has to run, and pods that name it."""

    def __init__(self) -> None:
        super().__init__()
        own = {"master": "haproxy.default.svc", "config": "deployment/default/haproxy", "damper_s": 0.3}
        self.values |= {"presets": {"use": ["hosts"]}, "hosts": own}
        self.values["cluster_templates"] = {"allow_configuration_from_cluster": True}

    def populate(self) -> None:
        """Create targets, a pod that names another balancer, and one that joins an app from another namespace."""
        self.annotate(ANNOTATION)
        for name in ("web-a", "web-b"):
            self.run_pod(name, {"app": "web", "role": "web"}, namespace="default", annotations=MINE)
        self.run_pod("haproxy-0", {"app": "haproxy"}, namespace="default", annotations=MINE, answers=False)
        other = {MASTER: "another.default.svc"}
        self.run_pod("other", {"app": "web"}, namespace="default", annotations=other, answers=False)
        self.run_pod("thief", {"app": "web"}, namespace="elsewhere", annotations=MINE)

    def annotate(self, config: str) -> None:
        """Write the Deployment with this configuration."""
        for name, port in (("HTTP", self.http), ("STATS", self.stats), ("POD", self.pods.port)):
            config = config.replace(f"@{name}@", str(port))
        annotations = MINE | {CONFIG: config, ROUTE53: "foo.bar.com,baz.bar.com"}
        template = {"metadata": {"labels": {"app": "haproxy"}, "annotations": annotations}}
        metadata = {"name": "haproxy", "namespace": "default"}
        self.cluster.add_namespace("default")
        self.cluster.put("deployments", {"metadata": metadata, "spec": {"template": template}})

    def statistics(self) -> list[dict[str, str]]:
        """Fetch the statistics as telegraf's inputs.haproxy does: CSV, ``/;csv`` behind the address."""
        connection = http.client.HTTPConnection("127.0.0.1", self.stats, timeout=10)
        try:
            credentials = base64.b64encode(b"telegraf:unused").decode()
            connection.request("GET", "/haproxy/;csv", headers={"Authorization": f"Basic {credentials}"})
            return list(csv.DictReader(connection.getresponse().read().decode().removeprefix("# ").splitlines()))
        finally:
            connection.close()

    @property
    def statistics_page(self) -> str:
        """The address of HAProxy's statistics."""
        return f"http://127.0.0.1:{self.stats}/haproxy"

    def clients(self) -> tuple[Crowd, ...]:
        """Start a client that keeps asking."""
        return (Crowd(self.http, "x", 1, PAUSE_S),)

    def to_try(self) -> tuple[str, ...]:
        """Return commands to try while it stays up."""
        return (f"curl http://127.0.0.1:{self.http}/", f"curl '{self.statistics_page};csv'")


def first_configuration(stage: HostsStage) -> None:
    """From the annotation of a Deployment to a serving balancer."""
    title("1  The configuration of a Deployment's annotation, targets by kontrol.unity3d.com/master")
    stage.start()
    took_s = wait_until(lambda: ask(stage.http, "x").startswith("web-"), "the first request is answered")
    targets = {"web-a", "web-b"}  # one may be down for a moment: a single check decides, by the annotation
    wait_until(lambda: {ask(stage.http, "x") for _ in range(8)} == targets, "the two targets answer")
    line("  ".join(sorted(targets)))
    wait_until(lambda: "thief label app" in stage.refused(), "a pod of another namespace is refused")
    line(paint("33", f"refused: thief: {stage.refused()['thief label app']}"))
    good(f"{took_s:.1f} s; no iptables, no dropped SYN, no restart: HAProxy is reloaded without losing a connection")


def quoting(stage: HostsStage) -> None:
    """Quotes and backslashes arrive as they were written."""
    title("2  Quotes, backslashes and tabs of the annotation")
    connection = http.client.HTTPConnection("127.0.0.1", stage.http, timeout=10)
    connection.request("GET", "/", headers={"x-quoted": 'two "words"'})
    answer = connection.getresponse().read().decode()
    connection.close()
    line(answer)
    require(answer == "quotes and backslashes", f"the condition with quotes works, not {answer!r}")
    good("read as JSON, not with jq, sed and awk")


def pods_come_and_go(stage: HostsStage) -> None:
    """Reloads lose nothing."""
    title("3  A target joins, another leaves, under load")
    crowd = Crowd(stage.http, "x")
    stage.run_pod("web-c", {"app": "web"}, namespace="default", annotations=MINE)
    wait_until(lambda: crowd.seen()["web-c"] > 3, "the new one answers")
    stage.remove_pod("web-a", namespace="default")
    wait_until(lambda: stage.address("web-a") not in stage.haproxy.conf.read_text(), "the one that left is gone")
    wait_until(lambda: "web-a" not in {ask(stage.http, "x") for _ in range(6)}, "and gets no request")
    answers = crowd.stop()
    line("  ".join(f"{name} x{count}" for name, count in sorted(answers.items())))
    require(all(answer.startswith("web-") for answer in answers), f"no request fails, not {dict(answers)}")
    good(f"{answers.total()} requests, none failed")


def hostile_annotation(stage: HostsStage) -> None:
    """The same list of allowed directives."""
    title("4  The annotation asks for more than it may")
    for bad in ("program x\n  command /bin/sh\n", "global\n  stats socket /tmp/x level admin\n  lua-load /x\n"):
        stage.annotate(ANNOTATION + bad)
        wait_until(lambda: "not allowed in text from the cluster" in stage.problems(), "it is refused")
        line(paint("33", stage.problems().splitlines()[0][:110]))
        require(ask(stage.http, "x").startswith("web-"), "what served before serves still")
        stage.annotate(ANNOTATION)
        wait_until(lambda: not stage.problems(), "the former annotation is good again")
    good("explained, and the last good configuration served on")


def statistics(stage: HostsStage) -> None:
    """What telegraf reads."""
    title("5  Statistics as telegraf's inputs.haproxy fetches them")
    rows = stage.statistics()
    servers = {row["svname"]: row["status"] for row in rows if row["pxname"] == "http" and row["type"] == "2"}
    line("  ".join(f"{name} {status}" for name, status in sorted(servers.items())))
    require(set(servers) == {"web-1", "web-2"}, f"each target has a row, not {servers}")
    good("docs/telegraf.md has the input and the output to OpenTSDB")


def scenes() -> Play:
    """Return what is played."""
    return Play(HostsStage, (first_configuration, quoting, pods_come_and_go, hostile_annotation, statistics))
