"""The right to read some of the cluster is missing: everything else is followed, and what was served stays."""

import base64
import ssl

import pytest

from tests.e2e.expect import undisturbed
from tests.presets.pods import certificate
from tests.world.appliance import NAMESPACE, Appliance

pytestmark = pytest.mark.haproxy

FRAGMENT = """
frontend tls
    mode http
    {% for each in cluster.certificates %}
    bind 127.0.0.1:{{ vars.tls_port }} ssl crt {{ certificate_file(each.name, each.pem) }}
    {% endfor %}
    http-request return status 200
"""


def put_certificate(appliance: Appliance, name: str) -> str:
    """Write a certificate into the Secret, and return it."""
    key, chain = certificate(name)
    data = {field: base64.b64encode(text.encode()).decode() for field, text in (("tls.key", key), ("tls.crt", chain))}
    meta = {"name": "cert", "namespace": NAMESPACE}
    appliance.cluster.put("secrets", {"metadata": meta, "type": "kubernetes.io/tls", "data": data})
    return chain


def served(appliance: Appliance) -> str:
    return ssl.get_server_certificate(("127.0.0.1", appliance.redis), timeout=10)


@pytest.mark.timeout(300)
def test_a_restart_without_the_right_to_read_secrets_follows_everything_else(appliance: Appliance) -> None:
    (appliance.own_fragments() / "50-tls.tmpl").write_text(FRAGMENT, encoding="utf-8")
    appliance.values["kubernetes"] |= {"secret_namespaces": [NAMESPACE]}
    appliance.values["templates.vars"] |= {"tls_port": str(appliance.redis)}
    appliance.cluster.add_namespace(NAMESPACE)
    chain = put_certificate(appliance, "first")
    appliance.serve("shop")
    appliance.start()
    appliance.until(appliance.settled, "it serves")
    assert served(appliance).split() == chain.split()

    appliance.stop()
    for server in appliance.servers:
        server.faults.deny("secrets")
    renewed = put_certificate(appliance, "renewed")
    with undisturbed(appliance):
        appliance.spawn()
        new = appliance.scale_up("shop")
        appliance.until(lambda: appliance.ask("shop") == new, "a pod that came meanwhile is served")
        appliance.until(lambda: appliance.phase == "serving", "it serves")
    assert served(appliance).split() == chain.split()
    first = appliance.status()["problems"][0]
    assert f"secrets of namespace {NAMESPACE}: ResolvedRefs=False: forbidden" in first
    assert "{apiGroups: [''], resources: [secrets], verbs: [list, watch]}" in first
    assert "ResolvedRefs=False: forbidden" in appliance.command("status").stdout
    assert [each["reason"] for each in appliance.status()["refused"]] == ["forbidden"]

    for server in appliance.servers:
        server.faults.clear()
    appliance.until(lambda: served(appliance).split() == renewed.split(), "the renewed certificate is served")
    appliance.until(lambda: not appliance.status()["problems"], "nothing is wrong any more")
