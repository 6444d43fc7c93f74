"""Who calls pyconfd how: as python-confd was called, by its environment, and through kubectl."""

import shutil
import subprocess

import pytest

from tests.e2e.expect import (
    beats,
    new_pod_answers,
    serving,
)
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.haproxy import BINARY

pytestmark = pytest.mark.haproxy


def _as_predecessor(appliance: Appliance) -> dict[str, str]:
    """What a user of python-confd has: an init script, and fragments that bind."""
    script = appliance.folder / "reload"
    script.write_text(f"#!/bin/sh\nkill -USR2 $(cat {appliance.haproxy.pid_file})\n")
    script.chmod(0o755)
    templates = appliance.folder / "templates"
    templates.mkdir()
    (templates / "01-defaults.conf").write_text(
        "defaults\n    mode http\n    timeout connect 5s\n    timeout client 50s\n    timeout server 50s\n"
    )
    (templates / "02-http.tmpl").write_text(
        f"""frontend http-in
    bind 127.0.0.1:{appliance.http}
{{% for domain, items in domains.items() %}}
    acl {{{{ domain|replace('.', '_') }}}} hdr(host) -i {{{{ domain }}}}
    use_backend be{{{{ domain }}}} if {{{{ domain|replace('.', '_') }}}}
{{% endfor %}}
{{% for domain, items in domains.items() %}}
# written {{{{ extra.curdate }}}}
backend be{{{{ domain }}}}
{{% for ip in items.ips %}}
    server {{{{ ip|replace('.', '_') }}}} {{{{ ip }}}}:{{{{ items.port }}}} check
{{% endfor %}}
{{% endfor %}}
"""
    )
    return {
        "PYCONFD_STATE_DIR": appliance.values[""]["state_dir"],
        "PYCONFD_RUNTIME_DIR": appliance.values[""]["runtime_dir"],
        "PYCONFD_STATUS_LISTEN": appliance.values["status"]["listen"],
        "PYCONFD_HAPROXY_MASTER_SOCKET": appliance.haproxy.master_socket,
        "PYCONFD_HAPROXY_UNIT": "",
        "PYCONFD_CLAIMS_ALLOW_ENDPOINTS": "127.0.0.0/8",
        "PYCONFD_LOG_FORMAT": "json",
        "reload": str(script),
        "templates": str(templates),
    }


def _annotated_endpoints(appliance: Appliance) -> None:
    """The predecessor's own way: the annotations stand on the Endpoints object, under bare names."""
    appliance.serve("shop", {})
    appliance.cluster.annotate("endpoints", NAMESPACE, "shop", {"domain": "shop.example.com", "proto": "http"})


def test_it_starts_as_python_confd_was_called_and_the_date_causes_no_reload(appliance: Appliance) -> None:
    modern = _as_predecessor(appliance)
    reload, templates = modern.pop("reload"), modern.pop("templates")
    _annotated_endpoints(appliance)
    (server,) = appliance.servers
    arguments = ["--api-servers", server.url, "--template-dir", templates]
    arguments += ["--haproxy-conf", str(appliance.haproxy.conf), "--haproxy-chk-cmd", f"{BINARY} -c -q -f"]
    arguments += ["--haproxy-reload-cmd", reload, "--interval", "1", "--ssl-ca", "False"]
    appliance.start(*arguments, **modern)
    appliance.until(lambda: appliance.ask("shop") == "shop-1", "it serves")
    appliance.until(appliance.settled, "it is verified")
    first = appliance.haproxy.conf.read_text()
    assert "# written 20" in first
    before = appliance.haproxy.running()
    beats(appliance)
    appliance.cluster.annotate("services", NAMESPACE, "shop", {"unrelated": "event"})
    beats(appliance)
    assert appliance.haproxy.conf.read_text() == first
    assert appliance.haproxy.running() == before
    new_pod_answers(appliance)
    written = [line for line in appliance.haproxy.conf.read_text().splitlines() if "# written" in line]
    assert written != [line for line in first.splitlines() if "# written" in line], "a new generation has a new date"


def test_it_takes_the_environment_of_python_confd(appliance: Appliance) -> None:
    modern = _as_predecessor(appliance)
    reload, templates = modern.pop("reload"), modern.pop("templates")
    _annotated_endpoints(appliance)
    bad = appliance.add_api_server()
    bad.refuse()
    old = {
        "APISERVERS": f"{bad.url}, {appliance.servers[0].url}",
        "LOGLEVEL": "debug",
        "SSL_CA_FILE": "False",
        "REFRESH_INTERVAL": "30",
        "TEMPLATE_DIR": templates,
        "HAPROXY_CONF": str(appliance.haproxy.conf),
        "HAPROXY_CHECK_CMD": f"{BINARY} -c -q -f",
        "HAPROXY_RELOAD_CMD": reload,
    }
    appliance.start("--log-format", "json", **old, **modern)
    appliance.until(lambda: appliance.ask("shop") == "shop-1", "it serves")
    new_pod_answers(appliance)


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_kubectl_annotate_makes_a_service_appear(appliance: Appliance) -> None:
    appliance.serve("quiet", {})
    serving(appliance)
    assert appliance.ask("quiet") == "404"
    (server,) = appliance.servers
    annotate = ["kubectl", "--server", server.url, "-n", NAMESPACE, "annotate", "service", "quiet"]
    done = subprocess.run(
        [*annotate, "pyconfd.io/domain=quiet.example.com", "pyconfd.io/proto=http"],
        env={"HOME": str(appliance.folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    appliance.until(lambda: appliance.ask("quiet") == "quiet-1", "it is served")
