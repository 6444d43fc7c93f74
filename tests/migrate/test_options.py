"""Every flag and variable of the predecessors is known to ``migrate``: the lists are those of their sources."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.migrate.migration import migrate
from pyconfd.migrate.options import ANNOTATIONS, COMMANDS, OPTIONS, option_for_flag, option_for_variable
from pyconfd.migrate.report import Effect, InputFile, System
from pyconfd.settings import resolve
from pyconfd.settings.table import TABLE

FLAGS = {
    System.PYTHON_CONFD: """--api-servers --log-level --ignore-proxy-env --ssl-key --ssl-cert --ssl-ca --interval
        --template-dir --haproxy-conf --haproxy-chk-cmd --haproxy-reload-cmd""",
    System.KUBE2LB: """-apiserver -kubecfg -domain -config -template -notify -server-name-templates -default-lb-ip
        -default-port-mode -reconnect-timeout -update-timeout -version""",
    System.KUBEFIGURATOR: """--cluster --kubeconfig -v --verbosity --haproxy-config --exec --etcd-host --etcd-path
        --etcd-ca-file --etcd-client-cert-file --etcd-client-key-file""",
}
VARIABLES = {
    System.PYTHON_CONFD: """APISERVERS LOGLEVEL IGNORE_PROXY_ENV SSL_KEY_FILE SSL_CERT_FILE SSL_CA_FILE
        REFRESH_INTERVAL TEMPLATE_DIR HAPROXY_CONF HAPROXY_CHECK_CMD HAPROXY_RELOAD_CMD""",
    System.KUBERNETES_HAPROXY: "K8SBASE ETCD2BASE STATISTICS_PASSWORD",
    System.ADS_INFRA_HAPROXY: """KONTROL_DAMPER KONTROL_TTL KONTROL_FOVER KONTROL_PORT KONTROL_MODE KONTROL_CALLBACK
        KONTROL_PAYLOAD KONTROL_ETCD KONTROL_EIP NAMESPACE""",
}
NEW_SECTIONS = {"kube2lb", "targets", "kubefigurator", "etcd", "configmap", "hosts"}


@pytest.mark.parametrize(("system", "flags"), FLAGS.items())
def test_every_flag_has_its_successor(system: System, flags: str) -> None:
    for flag in flags.split():
        option = option_for_flag(system, flag)
        assert option, flag
        assert option.path or option.note, flag


@pytest.mark.parametrize(("system", "variables"), VARIABLES.items())
def test_every_variable_has_its_successor(system: System, variables: str) -> None:
    for variable in variables.split():
        option = option_for_variable(system, variable)
        assert option, variable
        assert option.path or option.note, variable


def test_nothing_else_is_claimed() -> None:
    listed = {system: set((FLAGS.get(system, "") + " " + VARIABLES.get(system, "")).split()) for system in System}
    for system, options in OPTIONS.items():
        assert {name for option in options for name in (*option.flags, *option.variables)} == listed[system]


def test_every_successor_is_a_setting_or_belongs_to_a_section_to_come() -> None:
    for options in OPTIONS.values():
        for option in options:
            if option.path:
                assert option.path in TABLE or option.path.partition(".")[0] in NEW_SECTIONS, option.path


def test_the_flags_and_variables_of_python_confd_still_work_by_themselves() -> None:
    for option in OPTIONS[System.PYTHON_CONFD]:
        row = TABLE[option.path]
        assert set(option.flags) <= set(row.flags)
        assert option.variables == (row.old_env,)


def test_every_annotation_and_command_has_its_fate() -> None:
    assert {"domain", "proto"} <= ANNOTATIONS[System.PYTHON_CONFD].keys()
    names = ("kube2lb/external-domains", "kube2lb/port-mode", "kube2lb/backend-timeout")
    assert set(names) == ANNOTATIONS[System.KUBE2LB].keys()
    assert COMMANDS[System.KUBEFIGURATOR].keys() == {"view", "apply", "watch"}


def toml_of(system: System, text: str, name: str = "run.sh") -> dict[str, object]:
    migration = migrate(system, [InputFile(name, text)])
    assert migration.is_complete, migration.findings
    [output] = migration.outputs
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

    def read(path: str) -> str:
        if path == "/c.toml":
            return text
        raise FileNotFoundError(2, "none", path)

    # The files of the keys are not here, so only what the text itself gives is looked at.
    without_files = "\n".join(line for line in text.splitlines() if not line.startswith("ssl_"))
    text = without_files
    settings = resolve({"config": "/c.toml"}, {}, read).settings
    assert settings.kubernetes.api_servers == ("https://10.31.12.49:6443",)
    assert settings.haproxy.reload_cmd == ("/etc/init.d/haproxy", "reload")


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
        "targets": [
            {
                "template": "examples/caddy/Caddyfile.tmpl",
                "output": "Caddyfile",
                "notify": "pidfile:SIGUSR1:caddy.pid",
            }
        ],
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
    assert found["log"] == {"level": "debug"}
    assert found["kubernetes"] == {"interval_s": 15, "api_servers": ["https://a"]}
    docker = "FROM debian\nENV APISERVERS https://a:6443\nENV LOGLEVEL=info\n"
    assert toml_of(System.PYTHON_CONFD, docker, "Dockerfile")["kubernetes"] == {"api_servers": ["https://a:6443"]}


def test_the_variables_of_the_other_two() -> None:
    found = toml_of(System.KUBERNETES_HAPROXY, "K8SBASE=http://127.0.0.1:8080\nSTATISTICS_PASSWORD=hush\n", "lb.env")
    assert found == {"presets": {"use": ["configmap"]}, "kubernetes": {"api_servers": ["http://127.0.0.1:8080"]}}
    found = toml_of(System.ADS_INFRA_HAPROXY, "KONTROL_DAMPER=10\nKONTROL_TTL=25\nNAMESPACE=front\n", "pod.env")
    assert found["apply"] == {"quiet_s": 10, "cap_s": 30.0}
    assert found["hosts"] == {"namespace": "front"}


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
        for output in migrate(system, [InputFile(name, text), InputFile("x", f"vrrp_instance a {{{text}")]).outputs:
            if output.name == "pyconfd.toml":
                tomllib.loads(output.text)
