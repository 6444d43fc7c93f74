"""Whole files: templates, manifests, keepalived; what is written, what is named."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from jinja2.exceptions import TemplateError

from pyconfd.predecessors.migrate.migration import migrate
from pyconfd.predecessors.migrate.report import Effect, InputFile, Migration, System
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.settings import resolve
from pyconfd.sources.fragments import read_fragments
from pyconfd.vip.topology import topology
from tests.migrate.kube2lb_values import kube2lb_context, kube2lb_names
from tests.migrate.settings_files import settings_of
from tests.migrate.test_go_corpus import TEMPLATES, rendered


def migrated(system: System, text: str, name: str) -> Migration:
    return migrate(system, [InputFile(name, text)])


def the_text(migration: Migration, name: str) -> str:
    return {output.name: output.text for output in migration.outputs}[name]


def test_the_snippets_of_kube2lbs_readme_render() -> None:
    migration = migrated(System.KUBE2LB, TEMPLATES["readme"], "haproxy.tpl")
    assert migration.is_complete
    result = rendered(the_text(migration, "haproxy.tmpl"), kube2lb_names())
    assert list(filter(None, result.splitlines()))[-4:] == [
        "acl svc_web_shop_80_tcp_http hdr_dom(host) -i web.shop.svc.cluster.local",
        "acl svc_web_shop_80_tcp_http hdr_dom(host) -i shop.example.com",
        "acl svc_web_shop_80_tcp_http hdr_reg(host) ^(a|b)\\.example\\.(com|net)$",
        "timeout server 20000",
    ]


@pytest.mark.haproxy
def test_a_kube2lb_template_for_haproxy_goes_all_the_way_to_haproxy(tmp_path: Path) -> None:
    source = TEMPLATES["haproxy"]
    source = source.replace(
        "    stats socket /run/haproxy/admin.sock", f"    nbproc 1\n    stats socket {tmp_path}/a.sock"
    )
    migration = migrated(System.KUBE2LB, source, "haproxy.tpl")
    assert migration.is_complete
    text = _through_the_preset(the_text(migration, "haproxy.tmpl"), tmp_path)
    assert "backend be_web_shop_80_tcp_http\n    mode http\n    balance leastconn\n    timeout server 20000\n" in text
    _accepted_by_haproxy(text, tmp_path)


@pytest.mark.haproxy
@pytest.mark.parametrize(("case", "by_hand"), [("nodes-haproxy", 0), ("wrapper-haproxy", 2)])
def test_templates_in_the_manner_of_kube2lbs_examples_work(case: str, by_hand: int, tmp_path: Path) -> None:
    """Node ports of all nodes, and ``nbproc`` with a socket and processors for each: what its examples/ do."""
    source = TEMPLATES[case].replace("/run/haproxy/", f"{tmp_path}/")
    migration = migrated(System.KUBE2LB, source, "haproxy.tpl")
    assert len(migration.of(Effect.LEFT)) == by_hand, migration.of(Effect.LEFT)
    template = re.sub(r"\n\tnbproc.*| process .*(?= mode)", "", the_text(migration, "haproxy.tmpl"))
    text = _through_the_preset(template, tmp_path)
    assert "\tuse_backend to_" in text
    _accepted_by_haproxy(text, tmp_path)


def _through_the_preset(template: str, tmp_path: Path) -> str:
    """Render a template as the only fragment of a directory, with what the preset gives."""
    directory = tmp_path / "fragments"
    directory.mkdir()
    (directory / "haproxy.tmpl").write_text(template)
    renderer = Renderer(read_fragments(str(directory)), RenderOptions(str(tmp_path)))
    return renderer.render(kube2lb_context(), curdate="").rendering.text


def _accepted_by_haproxy(text: str, tmp_path: Path) -> None:
    config = tmp_path / "haproxy.cfg"
    config.write_text(text)
    command = ["/usr/sbin/haproxy", "-c", "-f", str(config)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stderr


def test_a_go_template_with_cr_lf_renders() -> None:
    text = "global\n{{ range .Services }}\n# {{ .Name }}\n{{ end }}\n"
    found = [the_text(migrated(System.KUBE2LB, each, "a.tpl"), "a.tmpl") for each in (text, text.replace("\n", "\r\n"))]
    assert found[0] == found[1]
    assert "\\r" not in found[1]


def test_what_the_containers_start_script_replaces_is_named_once() -> None:
    source = "global\n\tmaxconn __MAX_CONN__\n{{ $n := __NBPROC__ }}\n\tnbthread __NBPROC__\n"
    left = migrated(System.KUBE2LB, source, "haproxy.tpl").of(Effect.LEFT)
    named = [(one.line, one.message.partition(":")[0]) for one in left if "start script" in one.message]
    assert named == [(2, "__MAX_CONN__"), (3, "__NBPROC__")]


def _rendered_file(case: str, directory: Path) -> Path:
    migration = migrated(System.KUBE2LB, TEMPLATES[case], f"{case}.tpl")
    assert migration.is_complete
    path = directory / case
    path.write_text(rendered(the_text(migration, f"{case}.tmpl"), kube2lb_names()))
    return path


@pytest.mark.skipif(not shutil.which("caddy"), reason="caddy is not installed")
def test_a_caddyfile_from_a_go_template_is_accepted_by_caddy(tmp_path: Path) -> None:
    path = _rendered_file("caddyfile", tmp_path)
    assert "reverse_proxy  10.1.0.1:8080 10.1.0.2:8080 {" in path.read_text()
    command = ["caddy", "validate", "--adapter", "caddyfile", "--config", str(path)]
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environ)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
def test_an_nginx_configuration_from_a_go_template_is_accepted_by_nginx(tmp_path: Path) -> None:
    path = _rendered_file("nginx", tmp_path)
    assert "server 10.1.0.2:8080;" in path.read_text()
    options = f"pid {tmp_path}/pid; error_log stderr;"
    command = ["nginx", "-t", "-p", str(tmp_path), "-c", str(path), "-g", options]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stderr


def test_a_template_that_cannot_be_read_is_kept_as_a_comment_and_fails() -> None:
    migration = migrated(System.KUBE2LB, "a\n{{ if .X }}\n{# b #}", "x.tpl")
    [left] = migration.of(Effect.LEFT)
    assert left.line == 2
    text = the_text(migration, "x.tmpl")
    assert "{{ if .X }}" in text
    with pytest.raises(TemplateError, match="not_translated"):
        rendered(text, {})


def test_the_caddyfile_is_not_taken_for_haproxy() -> None:
    migration = migrated(System.KUBE2LB, "{\n\tdebug\n}\n{{ .Domain }} {\n\tbind 1.2.3.4\n}\n", "Caddyfile.tpl")
    assert "\tdebug\n" in the_text(migration, "Caddyfile.tmpl")
    assert not migration.of(Effect.CHANGED)


def test_python_confds_templates_stay_jinja_with_notes() -> None:
    loop = "{% for domain, items in domains.items() %}\n    # {{ extra.curdate }}\n{% endfor %}\n"
    text = f"frontend a\n{loop}    reqadd A:\\ b"
    migration = migrated(System.PYTHON_CONFD, text, "02-http.tmpl")
    assert the_text(migration, "02-http.tmpl") == text.replace("reqadd A:\\ b", "http-request add-header A b")
    notes = " ".join(finding.message for finding in migration.of(Effect.NOTED))
    assert "glued" in notes
    assert "curdate" in notes
    broken = migrated(System.PYTHON_CONFD, "a\n{% if %}\n", "x.tmpl")
    assert [left.line for left in broken.of(Effect.LEFT)] == [2]


KUBEFIGURATOR_SERVICE = """---

kind: Service
apiVersion: v1
metadata:
  annotations:
    haproxy-kubefigurator.web-ui.hostname: CLUSTER-dashboard.ds.stackexchange.com
  labels:
    haproxy-kubefigurator.enabled: "yes"
  name: kubernetes-dashboard
"""
UNITY_POD = """kind: Pod
metadata:
  annotations:
    kontrol.unity3d.com/opentsdb: kairosdb.example.com
    haproxy.unity3d.com/config: |

      frontend proxy
        bind            *:2181
        reqadd          X-A:\\ b

      backend zookeeper
        {%- for key in hosts %}
        {%- for ip in hosts[key] %}
        server {{key}}-{{loop.index}} {{ip}}:2181
        {%- endfor %}
        {%- endfor %}
    kontrol.unity3d.com/master: haproxy.front.svc
  name: proxy
  namespace: front
spec:
  containers:
   - env:
      - name: KONTROL_DAMPER
        value: "10"
"""


def test_the_manifests_of_kubefigurator_keep_their_annotations() -> None:
    migration = migrated(System.KUBEFIGURATOR, KUBEFIGURATOR_SERVICE, "dashboard.yaml")
    assert migration.is_complete
    lines = {finding.line for finding in migration.of(Effect.TRANSLATED)}
    assert lines == {7, 9}


def test_the_manifest_of_a_unity_pod_gives_template_settings_and_lines() -> None:
    migration = migrated(System.ADS_INFRA_HAPROXY, UNITY_POD, "pod.yaml")
    assert migration.is_complete
    text = the_text(migration, "pod-config.tmpl")
    assert "http-request add-header X-A b" in text
    changed = {finding.line: finding.message for finding in migration.of(Effect.CHANGED)}
    assert changed[9].startswith("reqadd")
    assert "telegraf" in changed[4]
    settings = the_text(migration, "pyconfd.toml")
    hosts = settings_of(settings).hosts
    assert (hosts.damper_s, hosts.master, hosts.config) == (10, "haproxy.front.svc", "pod/front/proxy")
    assert "back into the cluster" in " ".join(finding.message for finding in migration.of(Effect.NOTED))


def test_an_annotation_that_cannot_be_a_setting_is_named() -> None:
    text = UNITY_POD.replace("kind: Pod", "kind: DaemonSet").replace("haproxy.front.svc", "a, b")
    left = [finding.message for finding in migrated(System.ADS_INFRA_HAPROXY, text, "pod.yaml").of(Effect.LEFT)]
    assert any("hosts.config" in message and "deployment" in message for message in left)
    assert any(message.startswith("hosts.master") for message in left)


def test_a_manifest_that_is_no_yaml_is_named_by_its_line() -> None:
    [left] = migrated(System.KUBE2LB, "a: b\n  - : [\n", "x.yaml").of(Effect.LEFT)
    assert left.line == 2


KEEPALIVED = """vrrp_instance VI_1 {
    state MASTER
    interface ens3
    virtual_router_id 178
    priority 201
    advert_int 1
    unicast_src_ip 10.0.0.1
    unicast_peer {
        10.0.0.2
        10.0.0.3
    }
    authentication {
        auth_type PASS
        auth_pass secret
    }
    virtual_ipaddress {
        10.0.0.5/24 dev ens3
    }
    notify /usr/local/bin/keepalived-failover.sh
}
"""


def test_keepalived_becomes_a_commented_proposal() -> None:
    migration = migrated(System.PYTHON_CONFD, KEEPALIVED, "keepalived.conf")
    assert migration.is_complete
    text = the_text(migration, "pyconfd.toml")
    for line in (
        'interface = "ens3"',
        "virtual_router_id = 178",
        'addresses = ["10.0.0.5/24"]',
    ):
        assert f"# {line}\n" in text
    proposed = "\n".join(line.removeprefix("# ") for line in text[text.index("# [vip]") :].splitlines())
    settings = resolve({"vip.node": "node-1"}, {"PYCONFD_CONFIG": "/c.toml"}, lambda _: proposed).settings
    router = topology(settings.vip, "anywhere").routers[0]
    assert (router.source, [peer.address for peer in router.peers]) == ("10.0.0.1", ["10.0.0.2", "10.0.0.3"])
    assert "secret" not in text
    changed = {finding.line: finding.message for finding in migration.of(Effect.CHANGED)}
    assert changed.keys() == {1, 2, 5, 12, 19}
    assert "track_script" in changed[1]
    assert "MASTER" in changed[2]
    assert "version 3" in changed[12]


def test_placeholders_of_keepalived_are_left_to_a_person() -> None:
    text = KEEPALIVED.replace("ens3", "<your_interface>", 1).replace("10.0.0.5/24", "<your_ip>")
    left = migrated(System.PYTHON_CONFD, text, "keepalived.conf").of(Effect.LEFT)
    assert [finding.line for finding in left] == [3, 16]
    assert migrated(System.PYTHON_CONFD, "global_defs {\n}\n", "keepalived.conf").of(Effect.LEFT)


def test_outputs_of_one_name_do_not_overwrite_each_other() -> None:
    files = [InputFile("a.tmpl", "x\n\n"), InputFile("a.tmpl", "y\n\n")]
    assert [output.name for output in migrate(System.PYTHON_CONFD, files).outputs] == ["a.tmpl", "a-2.tmpl"]


def test_a_file_without_anything_known_is_named() -> None:
    assert not migrated(System.KUBE2LB, "hello\n", "notes.txt").is_complete
