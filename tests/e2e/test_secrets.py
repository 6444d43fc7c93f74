"""Secrets that were planted everywhere, and everything that pyconfd wrote and said on good and bad paths."""

import base64
from contextlib import suppress

import pytest

from tests.e2e.expect import texts_in
from tests.presets.pods import certificate
from tests.world.appliance import NAMESPACE, Appliance

pytestmark = pytest.mark.haproxy

TOKEN = "planted-kubernetes-token-0001"
PASSWORD = "planted-userlist-password-0002"
VARIABLE = "planted-variable-0003"
ENVIRONMENT = "planted-environment-0004"
STATS = "planted-stats-password-0005"

FRAGMENT = f"""
userlist operators
    user admin insecure-password {PASSWORD}

frontend planted
    mode http
    bind 127.0.0.1:{{{{ vars.planted_port }}}}
    stats enable
    stats auth admin:{STATS}
    http-request set-header X-Probe {{{{ vars.db_password }}}}
    http-request deny if {{ path /never }} {{ http_auth(operators) }}
    # {{% for each in cluster.certificates %}}{{{{ certificate_file(each.name, each.pem) }}}}{{% endfor %}}
"""


def key_lines() -> tuple[str, str]:
    """Return key and chain, and a line of the key that is in nothing else."""
    key, chain = certificate("planted")
    return key, chain


SAYING = (
    ("status",),
    ("plan",),
    ("plan", "--json"),
    ("settings",),
    ("check",),
    ("history",),
    ("diff",),
    ("diff", "--json"),
    ("explain", "--all-refused"),
    ("explain", "service", f"{NAMESPACE}/secure"),
    ("explain", "secret", f"{NAMESPACE}/cert"),
)


def said(appliance: Appliance) -> dict[str, str]:
    """Return all that pyconfd says and writes for people, and its history without the configurations and
    fragments themselves."""
    found = {path: appliance.get(path)[1] for path in ("/", "/status.json", "/metrics", "/healthz")}
    found |= {" ".join(command): (done := appliance.command(*command)).stdout + done.stderr for command in SAYING}
    found["log"] = appliance.log.read_text(encoding="utf-8")
    for path, text in texts_in(appliance.folder / "state", appliance.folder / "run"):
        if path.parent.name == "inputs":
            with suppress(FileNotFoundError):
                assert path.stat().st_mode & 0o777 == 0o600, "fragments as they are, for nobody else"
        elif path.name != "haproxy.cfg":
            found[str(path)] = text
    return found


def nothing_leaks(appliance: Appliance, key: str) -> None:
    private = key.splitlines()[1]
    for place, text in said(appliance).items():
        for secret in (TOKEN, PASSWORD, VARIABLE, ENVIRONMENT, STATS, private):
            assert secret not in text, f"{secret} in {place}"
    for path, content in texts_in(appliance.folder / "state"):
        assert private not in content, f"the key is in {path}"
        for secret in (TOKEN, ENVIRONMENT):
            assert secret not in content


@pytest.mark.timeout(400)
def test_nothing_that_is_said_or_kept_holds_a_secret(appliance: Appliance) -> None:
    key, chain = key_lines()
    templates = appliance.own_fragments()
    token = templates / "token"
    token.write_text(TOKEN, encoding="utf-8")
    appliance.servers[0].token = TOKEN
    (templates / "50-planted.tmpl").write_text(FRAGMENT, encoding="utf-8")
    appliance.values["kubernetes"] |= {"token_file": str(token), "secret_namespaces": [NAMESPACE]}
    appliance.values["templates.vars"] |= {"db_password": VARIABLE, "planted_port": str(appliance.redis)}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in (("tls.key", key), ("tls.crt", chain))}
    secret = {"metadata": {"name": "cert", "namespace": NAMESPACE}, "type": "kubernetes.io/tls"}
    appliance.cluster.add_namespace(NAMESPACE)
    appliance.cluster.put("secrets", secret | {"data": data})
    appliance.serve("shop")
    tls = {"pyconfd.io/tls-secret": "cert"}
    appliance.serve("secure", {"domain": "planted", "proto": "http"} | tls)
    appliance.start(PLANTED=ENVIRONMENT)
    appliance.until(appliance.settled, "it serves")
    installed = sorted((appliance.folder / "generated").rglob("*.pem"))
    assert [path.parent.name for path in installed] == ["certs", "secrets"]
    for path in installed:
        assert key.splitlines()[1] in path.read_text(encoding="utf-8")
        assert path.stat().st_mode & 0o137 == 0, "nobody else may read the key"
        assert path.parent.stat().st_mode & 0o027 == 0, "nobody else may list the directory"
    nothing_leaks(appliance, key)
    rendered = appliance.command("render", "--files").stdout
    assert "/secrets/" in rendered
    assert key.splitlines()[1] not in rendered

    # HAProxy refuses lines with passwords in them; the messages show those lines.
    bad = f"""
userlist broken
    user admin insecure-password {PASSWORD} groups nosuch whatever
backend broken
    mode http
    stats auth admin:{STATS} too many words
    http-request set-header X-Probe "{{{{ vars.db_password }}}}" nonsense {{{{ vars.db_password }}}}
"""
    (templates / "60-broken.tmpl").write_text(bad, encoding="utf-8")
    appliance.until(lambda: appliance.phase == "rejected", "the fragment is refused")
    assert "[hidden]" in appliance.command("status").stdout
    nothing_leaks(appliance, key)

    # A template that fails at run time is shown with its values.
    (templates / "60-broken.tmpl").write_text("{{ vars.db_password.nothing.at_all }}\n", encoding="utf-8")
    appliance.until(lambda: "60-broken.tmpl" in str(appliance.status()["problems"]), "the template is refused")
    nothing_leaks(appliance, key)
    (templates / "60-broken.tmpl").unlink()

    # The certificate is damaged, the API server turns the token away.
    appliance.cluster.put("secrets", secret | {"data": data | {"tls.crt": data["tls.key"]}})
    appliance.until(lambda: appliance.status()["refused"], "the certificate is refused")
    appliance.servers[0].token = "another"
    appliance.servers[0].faults.clear()
    nothing_leaks(appliance, key)

    # Killed in the midst of it, and started again.
    appliance.kill()
    appliance.servers[0].token = TOKEN
    appliance.spawn(PLANTED=ENVIRONMENT)
    appliance.until(lambda: appliance.phase == "serving", "it serves again")
    nothing_leaks(appliance, key)


def test_templates_see_no_variable_of_the_environment_that_is_not_listed(appliance: Appliance) -> None:
    templates = appliance.own_fragments()
    probe = "# {{ env is defined }} {{ environ is defined }} {{ vars.get('PLANTED', 'none') }}\n"
    (templates / "50-probe.tmpl").write_text(probe, encoding="utf-8")
    appliance.serve("shop")
    appliance.start(PLANTED=ENVIRONMENT)
    appliance.until(appliance.settled, "it serves")
    assert "# False False none" in appliance.haproxy.conf.read_text(encoding="utf-8")
