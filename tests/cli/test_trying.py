"""``pyconfd try`` as a user starts it: a real haproxy, real kubectl output, and nothing left behind."""

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pyconfd.fragments import directory
from tests.cli.invoking import invoke
from tests.cli.trying import CLUSTER, Trying, transcripts
from tests.e2e.expect import edit
from tests.world.clients import ask
from tests.world.haproxy import free_port, wait_until

pytestmark = pytest.mark.haproxy


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(Path(CLUSTER).read_text())
    return path


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trying]:
    """One run with the shipped fragments, for the tests that only look."""
    with Trying(tmp_path_factory.mktemp("try"), "--snapshot", CLUSTER) as trying:
        trying.until("To look closer")
        yield trying


def test_every_url_of_the_table_reaches_its_service(shipped: Trying) -> None:
    trying = shipped
    http = trying.port_of("http://shop.example.com/")
    assert {ask(http, "shop.example.com") for _ in range(12)} == {"demo/shop-1", "demo/shop-2"}
    assert ask(http, "six.example.com") == "demo/six-1", "an IPv6 pod has its stand-in too"
    assert ask(http, "other.example.com") == "demo/any-1"
    assert "http://shop.example.com/" in trying.text
    for url, answer in (
        ("http://*.example.com/", "demo/any-1"),
        ("http://six.example.com/", "demo/six-1"),
        ("https://vault.example.com/", "demo/vault-1"),
    ):
        command = trying.command_of(url)
        done = subprocess.run(
            ["curl", "--silent", "--show-error", *command[1:]], capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{answer}\n"
    row = trying.until("->  demo/cache, 1 pod").split("  ->")[0].strip()
    with socket.create_connection(("127.0.0.1", trying.port_of(row)), 30) as redis:
        redis.sendall(b"PING\r\n")
        assert redis.recv(100) == b"+PONG\r\n"


def test_why_others_are_not_there(shipped: Trying) -> None:
    assert "Service other/thief annotation domain shop.example.com: Service demo/shop has this host" in (shipped.text)
    assert "empty.example.org: HAProxy answers 503" in shipped.text


def test_it_binds_on_loopback_only_and_asks_nobody_else(shipped: Trying) -> None:
    for process in (psutil.Process(shipped.process.pid), *shipped.family()):
        for connection in process.net_connections("inet"):
            assert connection.laddr.ip.startswith("127."), connection
            assert not connection.raddr or connection.raddr.ip.startswith("127."), connection


def test_status_and_server_list_find_it(shipped: Trying) -> None:
    config = shipped.until("pyconfd status --config").split()[-1]
    assert "SERVING" in invoke("status", "--config", config).stdout
    assert "be-shop.example.com" in invoke("server", "list", "--config", config).stdout


def test_two_at_a_time_do_not_meet(shipped: Trying, tmp_path: Path) -> None:
    with Trying(tmp_path, "--snapshot", CLUSTER) as other:
        other.until("To look closer")
        ports = {each.port_of("http://shop.example.com/") for each in (shipped, other)}
        assert len(ports) == 2
        assert all(ask(port, "shop.example.com").startswith("demo/shop-") for port in ports)


def test_edits_of_the_file_apply_while_it_runs(tmp_path: Path, snapshot: Path) -> None:
    whole = snapshot.read_text()
    with Trying(tmp_path, "--snapshot", str(snapshot)) as trying:
        trying.until("To look closer")
        http = trying.port_of("http://shop.example.com/")
        edit(snapshot, whole.replace("{ready: false, serving: true, terminating: true}", "{ready: true}"))
        trying.until("runtime update")
        wait_until(lambda: "demo/shop-3" in {ask(http, "shop.example.com") for _ in range(9)}, "the third pod answers")
        edit(snapshot, "kind: [")
        assert "mine.yaml line " in trying.until("problem: ")
        assert ask(http, "shop.example.com").startswith("demo/shop-"), "what served serves on"
        edit(snapshot, whole.replace("domain: shop.example.com", "domain: new.example.com", 1))
        trying.until("now http://new.example.com/")
        assert ask(http, "new.example.com").startswith("demo/shop-")
        with snapshot.open("a") as file:
            file.write("- {apiVersion: v1, kind: Service, metadata: {name: bad, namespace: demo}, spec: 3}\n")
        assert "demo/bad" in trying.until("not there Service")


OWN_GLOBAL = """\
global
    user nobody
    chroot /var/empty
    daemon
    maxconn 1000000
    log 192.0.2.9:514 local0
    stats socket /run/haproxy/own.sock user root level admin
defaults
    mode http
    timeout connect 2s
    timeout client 20s
    timeout server 20s
    option idle-close-on-response
"""
OWN_FRAGMENT = """\
frontend f
    bind 192.0.2.1:@PORT@ interface eth9 transparent
    bind :::443 v4v6 ssl crt /nonexistent/site.pem
    use_backend b if { hdr(host) -i own.example.com }
    use_backend ldap if { path_beg /ldap }
backend b
    option httpchk GET /healthz
    http-check expect status 204
{% for domain, items in domains.items() if domain == 'shop.example.com' %}
{% for server in items.endpoints | servers %}
    server {{ server.name }} {{ server.target }} id {{ server.id }} check source 192.0.2.1
{% endfor %}
{% endfor %}
backend ldap
    server a ldap.example.net:389 check resolvers none
    server b 192.0.2.7:636 ssl verify required ca-file /nonexistent/ca.pem
"""


def test_edits_of_ones_own_fragments_apply_while_it_runs(tmp_path: Path, snapshot: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    port = free_port()
    (own / "01.conf").write_text(OWN_GLOBAL)
    fragment = OWN_FRAGMENT.replace("@PORT@", str(port))
    (own / "02.tmpl").write_text(fragment)
    config = tmp_path / "pyconfd.toml"
    config.write_text(f'[templates]\ndir = "{own}"\n')
    with Trying(tmp_path, "--snapshot", str(snapshot), "--config", str(config)) as trying:
        trying.until("To look closer")
        assert trying.port_of("http://own.example.com/") == port, "a port that anybody may bind stays"
        assert ask(port, "own.example.com").startswith("demo/shop-")
        assert "the certificate /nonexistent/site.pem is not here" in trying.text
        assert "nothing is logged to 192.0.2.9:514" in trying.text
        assert "*:443 is 127.0.0.1:" in trying.until(":443 is")
        https = int(trying.until(":443 is").rpartition(":")[2].split()[0])
        done = subprocess.run(
            ["curl", "--silent", "-k", "-H", "Host: own.example.com", f"https://127.0.0.1:{https}/"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith("demo/shop-")
        answers = subprocess.run(
            [
                "curl",
                "--silent",
                f"http://127.0.0.1:{port}/ldap",
                "--next",
                "--silent",
                f"http://127.0.0.1:{port}/ldap",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        assert set(answers) == {"ldap.example.net:389", "192.0.2.7:636"}, "the operator's own servers are stand-ins too"
        edit(own / "02.tmpl", fragment.replace("own.example.com", "edited.example.com"))
        trying.until("now http://edited.example.com/")
        trying.until("gone http://own.example.com/")
        edit(own / "02.tmpl", fragment.replace("{% endfor %}", "", 1))
        wait_until(lambda: any("problem: " in one and "02.tmpl" in one for one in list(trying.lines)), "it says where")
        assert ask(port, "edited.example.com").startswith("demo/shop-")


def test_what_a_real_api_server_listed(tmp_path: Path) -> None:
    with Trying(tmp_path, *transcripts(tmp_path)) as trying:
        trying.until("To look closer")
        assert "->" in trying.text or "nothing answers" in trying.text


def test_a_snapshot_of_another_preset(tmp_path: Path) -> None:
    cluster = f"{directory()}/../examples/kube2lb/tests/cluster.yaml"
    templates = f"{directory()}/../examples/kube2lb/haproxy"
    with Trying(
        tmp_path,
        "--snapshot",
        cluster,
        "--preset",
        "kube2lb",
        "--kube2lb-domain",
        "example.com",
        "--template-dir",
        templates,
    ) as trying:
        trying.until("To look closer")
        port = trying.port_of("http://shop.example.com/")
        assert ask(port, "shop.example.com") in {"shop/web-1", "shop/web-2"}


HOSTS = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: web-a, namespace: default, labels: {app: web}, annotations: {kontrol.unity3d.com/master: lb}}
  spec: {}
  status:
    phase: Running
    podIP: 10.1.1.1
    conditions: [{type: Ready, status: "True"}]
    containerStatuses: [{name: main, ready: true}]
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: haproxy, namespace: default}
  spec:
    template:
      metadata:
        labels: {app: haproxy}
        annotations:
          kontrol.unity3d.com/master: lb
          haproxy.unity3d.com/config: |
            defaults
              timeout connect 5s
              timeout client 30s
              timeout server 30s
            frontend proxy
              bind *:80
              mode http
              default_backend http
            backend http
              mode http
              {%- for key in hosts %}
              {%- for ip in hosts[key] %}
              server {{key}}-{{loop.index}} {{ip}}:8080 check
              {%- endfor %}
              {%- endfor %}
"""


def test_a_configuration_that_comes_from_the_cluster(tmp_path: Path) -> None:
    snapshot = tmp_path / "hosts.yaml"
    snapshot.write_text(HOSTS)
    preset = ("--preset", "hosts", "--hosts-master", "lb", "--hosts-config", "deployment/default/haproxy")
    options = (*preset, "--cluster-templates-allow-configuration-from-cluster")
    with Trying(tmp_path, "--snapshot", str(snapshot), *options) as trying:
        trying.until("To look closer")
        port = int(trying.until("*:80 is").rpartition(":")[2].split()[0])
        assert ask(port, "anything") == "default/web-a"
        edit(snapshot, HOSTS.replace("default_backend http", "default_backend nobody"))
        trying.until("problem: ")
        assert ask(port, "anything") == "default/web-a", "the former text serves on, on the same port"
        edit(snapshot, HOSTS.replace("timeout connect 5s", "timeout connect 6s"))
        trying.until("generation 2")
        wait_until(lambda: ask(port, "anything") == "default/web-a", "and so does the mended one")


def test_an_object_that_spoils_the_configuration_is_left_out_by_name(tmp_path: Path, snapshot: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for source in Path(directory()).iterdir():
        if source.suffix in {".conf", ".tmpl", ".j2"}:
            (own / source.name).write_text(source.read_text())
    fragment = (own / "02-http.tmpl").read_text()
    (own / "02-http.tmpl").write_text(
        fragment.replace(
            "# {{ items.namespace }}/{{ items.name }}: {{ domain }}\nbackend",
            "# {{ items.namespace }}/{{ items.name }}: {{ domain }}\nbackend"
            "{{ ' two words' if items.name == 'six' else '' }}",
        )
    )
    with Trying(tmp_path, "--snapshot", str(snapshot), "--template-dir", str(own)) as trying:
        trying.until("To look closer")
        assert ask(trying.port_of("http://shop.example.com/"), "shop.example.com").startswith("demo/shop-")
        assert re.search(r"Service demo/six.*quarantin|demo/six.*refus|demo/six.*left out", trying.text), trying.text
