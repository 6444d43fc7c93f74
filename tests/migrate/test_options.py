"""Command lines, environment files and units of the predecessors become settings that pyconfd reads."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd import fragments
from pyconfd.predecessors.migrate.migration import migrate
from pyconfd.predecessors.migrate.report import Effect, InputFile, System
from tests.migrate.settings_files import settings_of


def toml_of(system: System, text: str, name: str = "run.sh") -> dict[str, object]:
    migration = migrate(system, [InputFile(name, text)])
    assert migration.is_complete, migration.findings
    [output] = migration.outputs
    settings_of(output.text)
    return tomllib.loads(output.text)


README_COMMAND = r"""./pyconfd.py \
   --ssl-key /etc/pyconfd/admin-key.pem \
   --ssl-cert /etc/pyconfd/admin.pem \
   --ssl-ca /etc/pyconfd/ca.pem \
   --api-servers https://10.31.12.49:6443,https://10.31.12.51:6443,https://10.31.12.59:6443 \
   --log-level debug
"""
README_DOCKER = r"""docker run \
  -d \
  -e "APISERVERS=https://10.31.12.49:6443" \
  -e "SSL_CA_FILE=/etc/pyconfd/ca.pem" \
  -e "SSL_KEY_FILE=/etc/pyconfd/admin-key.pem" \
  -e "SSL_CERT_FILE=/etc/pyconfd/admin.pem" \
  -e "LOGLEVEL=debug" \
  -e "HAPROXY_RELOAD_CMD=/etc/init.d/haproxy  reload" \
  -p 80:80 \
  -p 443:443 \
  haproxy/pyconfd
"""


def test_the_command_of_python_confds_readme() -> None:
    found = toml_of(System.PYTHON_CONFD, README_COMMAND)
    servers = [f"https://10.31.12.{number}:6443" for number in (49, 51, 59)]
    assert found["kubernetes"] == {
        "ssl_key": "/etc/pyconfd/admin-key.pem",
        "ssl_cert": "/etc/pyconfd/admin.pem",
        "ssl_ca": "/etc/pyconfd/ca.pem",
        "api_servers": servers,
    }
    assert found["log"] == {"level": "debug"}


def test_the_container_of_python_confds_readme_and_pyconfd_reads_the_file() -> None:
    migration = migrate(System.PYTHON_CONFD, [InputFile("run.sh", README_DOCKER)])
    text = migration.outputs[0].text
    found = tomllib.loads(text)
    assert found["haproxy"] == {"reload_cmd": ["/etc/init.d/haproxy", "reload"]}

    settings = settings_of(text)
    assert settings.kubernetes.api_servers == ("https://10.31.12.49:6443",)
    assert settings.haproxy.reload_cmd == ("/etc/init.d/haproxy", "reload")


def test_a_command_in_an_environment_file_needs_no_quotes() -> None:
    text = """# for docker run --env-file
HAPROXY_CHECK_CMD=/usr/sbin/haproxy -c -q -f
HAPROXY_RELOAD_CMD=/etc/init.d/haproxy reload
TEMPLATE_DIR=/etc/pyconfd
"""
    found = toml_of(System.PYTHON_CONFD, text)
    assert found["haproxy"] == {
        "chk_cmd": ["/usr/sbin/haproxy", "-c", "-q", "-f"],
        "reload_cmd": ["/etc/init.d/haproxy", "reload"],
    }
    before_a_program = "HAPROXY_RELOAD_CMD=/bin/true ./pyconfd.py --log-level debug\n"
    assert toml_of(System.PYTHON_CONFD, before_a_program)["log"] == {"level": "debug"}


def test_kube2lbs_readme() -> None:
    text = r"""kube2lb -kubecfg=~/.kube/config \
        -template=examples/caddy/Caddyfile.tpl \
        -config=Caddyfile \
        -domain=cluster.local \
        -notify=pidfile:SIGUSR1:caddy.pid
kube2lb ... -server-name-templates "{{ .Service.Name }}.example.com,{{ .Service.Name }}.svc.{{ .Domain }}"
"""
    found = toml_of(System.KUBE2LB, text)
    assert found == {
        "presets": {"use": ["kube2lb"]},
        "kubernetes": {"kubeconfig": "~/.kube/config"},
        "kube2lb": {
            "domain": "cluster.local",
            "server_name_templates": ["{{ .Service.Name }}.example.com", "{{ .Service.Name }}.svc.{{ .Domain }}"],
        },
        "target": {
            "template": "examples/caddy/Caddyfile.tmpl",
            "output": "Caddyfile",
            "notify": "pidfile:SIGUSR1:caddy.pid",
        },
    }


def test_kubefigurators_readme() -> None:
    text = r"""while true
do
    etcdctl --endpoints https://etcd1:2379 watch -r /registry/services/specs > /dev/null \
        && echo "$(date): Kubernetes service updated" \
        && /usr/local/bin/haproxy-kubefigurator \
            --etcd-host https://etcd1:2379 \
            --etcd-host https://etcd2:2379 \
            --etcd-path /service-router/haproxy-config \
            --etcd-ca-file /path/ca.crt \
            --etcd-client-cert-file /path/client.crt \
            --etcd-client-key-file /path/client.key \
            -vv --cluster ny apply
done
"""
    found = toml_of(System.KUBEFIGURATOR, text)
    assert found == {
        "presets": {"use": ["kubefigurator"]},
        "etcd": {
            "endpoints": ["https://etcd1:2379", "https://etcd2:2379"],
            "path": "/service-router/haproxy-config",
            "ca": "/path/ca.crt",
            "cert": "/path/client.crt",
            "key": "/path/client.key",
        },
        "kubefigurator": {"cluster": "ny"},
        "log": {"level": "INFO"},
    }


def test_a_unit_of_systemd_and_a_dockerfile() -> None:
    unit = '[Service]\nEnvironment="LOGLEVEL=debug" REFRESH_INTERVAL=15\nExecStart=-/usr/local/bin/pyconfd.py --api https://a\n'
    found = toml_of(System.PYTHON_CONFD, unit, "pyconfd.service")
    own = "[Unit]\nDescription=a\n" + unit + "Restart=always\n"
    told = migrate(System.PYTHON_CONFD, [InputFile("pyconfd.service", own)]).findings
    assert not [each for each in told if "Description" in each.message or "Restart" in each.message]
    assert found["log"] == {"level": "debug"}
    assert found["kubernetes"] == {"interval_s": 15, "api_servers": ["https://a"]}
    docker = "FROM debian\nENV APISERVERS https://a:6443\nENV LOGLEVEL=info\n"
    assert toml_of(System.PYTHON_CONFD, docker, "Dockerfile")["kubernetes"] == {"api_servers": ["https://a:6443"]}


def test_the_variables_of_the_other_two() -> None:
    found = toml_of(System.KUBERNETES_HAPROXY, "K8SBASE=http://127.0.0.1:8080\nSTATISTICS_PASSWORD=hush\n", "lb.env")
    assert found == {
        "presets": {"use": ["configmap"]},
        "kubernetes": {"api_servers": ["http://127.0.0.1:8080"]},
        "cluster_templates": {"allow_configuration_from_cluster": True},
    }
    text = "KONTROL_DAMPER=10\nKONTROL_TTL=25\nNAMESPACE=front\n"
    migration = migrate(System.ADS_INFRA_HAPROXY, [InputFile("pod.env", text)])
    [output] = migration.outputs
    assert tomllib.loads(output.text) == {"presets": {"use": ["hosts"]}, "hosts": {"damper_s": 10}}
    [left] = migration.of(Effect.LEFT)
    assert left.file == "pyconfd.toml"
    assert "which pods are its targets; set hosts.master" in left.message


def test_a_script_of_the_shell_is_read_as_the_shell_reads_it() -> None:
    text = """CONF=/etc/haproxy/haproxy.cfg
export PIDFILE=/run/haproxy.pid
kube2lb -template=/t.tpl -config=$CONF -notify=command:"haproxy -f ${CONF} -p $PIDFILE -sf \\$(cat $PIDFILE) '\\$1'" &
"""
    found = toml_of(System.KUBE2LB, text)
    assert found["target"] == {
        "template": "/t.tmpl",
        "output": "/etc/haproxy/haproxy.cfg",
        "notify": "command:haproxy -f /etc/haproxy/haproxy.cfg -p /run/haproxy.pid -sf $(cat /run/haproxy.pid) '$1'",
    }


def test_what_stands_in_single_quotes_stays() -> None:
    found = toml_of(System.KUBE2LB, "A=1\nkube2lb -template=/t.tpl -config=/c -notify 'command:kill $A $(cat /p)'\n")
    assert found["target"] == {"template": "/t.tmpl", "output": "/c", "notify": "command:kill $A $(cat /p)"}


def test_a_default_of_the_shell_counts_where_nothing_else_is_said() -> None:
    flags = "-domain=$DOMAIN -default-port-mode ${MODE-tcp} -template=/t -config=/c -notify=debug:"
    script = f"DOMAIN=${{DOMAIN:-a.local}}\nkube2lb {flags}\n"
    assert toml_of(System.KUBE2LB, script)["kube2lb"] == {"domain": "a.local", "default_port_mode": "tcp"}
    files = [InputFile("a.env", "MODE=http\n"), InputFile("run.sh", script)]
    assert 'default_port_mode = "http"' in migrate(System.KUBE2LB, files).outputs[-1].text


def test_a_variable_that_is_set_elsewhere_is_named_and_may_come_from_another_file() -> None:
    script = InputFile("run.sh", "x\nkube2lb -template=/t.tpl -config=$CONF -notify=debug:\n")
    migration = migrate(System.KUBE2LB, [script])
    left, incomplete = migration.of(Effect.LEFT)
    assert (left.line, left.message.startswith("-config=$CONF: nothing here says what CONF is")) == (2, True)
    assert "target.output: is needed where target.template is given" in incomplete.message
    whole = migrate(System.KUBE2LB, [InputFile("a.env", "CONF=/c\n"), script])
    assert whole.is_complete
    assert settings_of(whole.outputs[-1].text).target.output == "/c"


@pytest.mark.parametrize(
    ("system", "text", "message"),
    [
        (System.PYTHON_CONFD, "x\npyconfd.py --frobnicate 3\n", "--frobnicate is no option"),
        (System.PYTHON_CONFD, "x\nLOGLEVEL=loud\n", "LOGLEVEL=loud"),
        (System.KUBE2LB, "x\nkube2lb -notify 'open\n", "cannot be read as words"),
        (System.ADS_INFRA_HAPROXY, "x\nKONTROL_NEW=1\n", "KONTROL_NEW"),
    ],
)
def test_what_cannot_be_translated_is_named_by_its_line(system: System, text: str, message: str) -> None:
    migration = migrate(system, [InputFile("run.sh", text)])
    [left] = migration.of(Effect.LEFT)
    assert (left.file, left.line) == ("run.sh", 2)
    assert message in left.message


def test_files_that_disagree_are_named() -> None:
    files = [InputFile("a.env", "LOGLEVEL=info\n"), InputFile("b.env", "LOGLEVEL=debug\n")]
    [left] = migrate(System.PYTHON_CONFD, files).of(Effect.LEFT)
    assert (left.file, left.line) == ("b.env", 1)


@given(
    st.sampled_from(list(System)),
    st.text(alphabet=st.sampled_from(list("-=e'\"\\\n {}kube2lbpyconfd[]:&")) | st.characters()),
)
def test_any_text_of_any_name_is_migrated_without_failing(system: System, text: str) -> None:
    for name in ("run.sh", "a.tmpl", "a.yaml", "a.cfg", "keepalived.conf"):
        migration = migrate(system, [InputFile(name, text), InputFile("x", f"vrrp_instance a {{{text}")])
        for output in migration.outputs:
            if output.name == "pyconfd.toml":
                tomllib.loads(output.text)
                if migration.is_complete:
                    settings_of(output.text)


def test_the_variables_that_a_template_of_the_cluster_looks_at_are_let_through() -> None:
    text = """kind: ConfigMap
metadata: {name: config, namespace: lb}
data:
  template: |
    global
    backend VARNISH
      server VARNISH {{env.ADDRESS}}:80 {% if env['PLAIN'] %}{{ env.get("TLS") }}{% endif %} {{ env.items() }}
  varnishtemplate: |
    backend default { .host = "{{env.HAPROXY}}"; }
"""
    migration = migrate(System.KUBERNETES_HAPROXY, [InputFile("config.yaml", text)])
    assert [output.name for output in migration.outputs] == ["config-template.tmpl", "pyconfd.toml"]
    assert tomllib.loads(migration.outputs[-1].text)["configmap"] == {"env": ["ADDRESS", "PLAIN", "TLS"]}
    assert "config.yaml line 7" in migration.outputs[-1].text
    told = {(each.line, each.message) for each in migration.findings}
    assert (8, "the key varnishtemplate is left as it is: pyconfd reads template, as kubernetes-haproxy did") in told


def test_a_variable_of_a_manifest_whose_value_stands_elsewhere_is_named() -> None:
    text = """kind: Pod
spec:
  containers:
  - env:
    - name: K8SBASE
      valueFrom: {configMapKeyRef: {name: config, key: k8sbase}}
    - name: STATISTICS_PASSWORD
      valueFrom: {secretKeyRef: {name: stats, key: password}}
    envFrom:
    - configMapRef: {name: lb-env}
"""
    migration = migrate(System.KUBERNETES_HAPROXY, [InputFile("pod.yaml", text)])
    base, many = migration.of(Effect.LEFT)
    assert (base.line, many.line) == (5, 10)
    assert base.message.endswith("comes from configMapKeyRef config k8sbase; write it into kubernetes.api_servers")
    assert "configMapRef lb-env" in many.message
    [password] = migration.of(Effect.NOTED)
    assert "stats.password" in password.message


def test_the_loop_of_a_consumer_becomes_a_command() -> None:
    text = """#!/bin/bash
while true
do
    etcdctl --endpoints https://etcd1:2379,https://etcd2:2379 watch /lb/config > /dev/null \\
        && etcdctl --endpoints https://etcd1:2379,https://etcd2:2379 get /lb/config > /etc/haproxy/dynamic.cfg \\
        && systemctl restart haproxy
done
"""
    migration = migrate(System.KUBEFIGURATOR, [InputFile("consumer.sh", text)])
    assert migration.is_complete
    assert any("pyconfd consume" in each.message and each.line == 4 for each in migration.findings)
    found = tomllib.loads(migration.outputs[-1].text)["etcd"]
    assert found == {"endpoints": ["https://etcd1:2379", "https://etcd2:2379"], "path": "/lb/config"}


def test_the_static_part_of_a_configuration_sorts_before_what_inherits_its_defaults() -> None:
    migration = migrate(System.KUBEFIGURATOR, [InputFile("haproxy.cfg", "defaults\n    mode http\n")])
    [output] = migration.outputs
    assert output.name == "01-haproxy.conf"
    shipped = fragments.of_presets(["kubefigurator"])
    assert sorted([output.name, *shipped])[:3] == ["00-runtime.tmpl", "01-defaults.conf", "01-haproxy.conf"]
    assert "10-kubefigurator.tmpl" in shipped


def test_an_object_that_hosts_config_cannot_name_and_a_namespace_that_is_not_said() -> None:
    text = "kind: {}\nmetadata:\n  name: lb\n  annotations:\n    haproxy.unity3d.com/config: |\n      global\n"
    [left] = migrate(System.ADS_INFRA_HAPROXY, [InputFile("a.yaml", text.format("DaemonSet"))]).of(Effect.LEFT)
    assert "put its annotations on a Service or Deployment" in left.message
    migration = migrate(System.ADS_INFRA_HAPROXY, [InputFile("a.yaml", text.format("Deployment"))])
    assert 'config = "deployment/default/lb"' in migration.outputs[-1].text
    risk = "# the author of that template is trusted as much as one of fragments (docs/security.md)"
    assert f"allow_configuration_from_cluster = true  {risk}\n" in migration.outputs[-1].text
    assert any("names no namespace" in each.message for each in migration.of(Effect.NOTED))
