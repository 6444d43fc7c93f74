"""The status page for other machines: a whole daemon with a token and a certificate, and the commands that ask it."""

import http.client
import ssl
from pathlib import Path

import pytest

from tests.world.appliance import Appliance
from tests.world.pki import CertificateAuthority

pytestmark = pytest.mark.haproxy

TOKEN = "an-appliance-0123456789"


def scraped(appliance: Appliance, authority: CertificateAuthority, token: str) -> tuple[int, str]:
    """Ask as Prometheus does: with the token, trusting the authority."""
    context = ssl.create_default_context(cafile=str(authority.cert))
    connection = http.client.HTTPSConnection("127.0.0.1", appliance.page, timeout=30, context=context)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def is_live(appliance: Appliance) -> bool:
    """Return whether ``pyconfd status`` is answered by the daemon, and does not read its file."""
    shown = appliance.command("status")
    return shown.returncode == 0 and "from its file" not in shown.stdout


def test_the_page_of_all_addresses_is_for_who_has_the_token(appliance: Appliance, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "pki")
    pair, token, certificate = authority.server("page"), tmp_path / "token", tmp_path / "page.pem"
    token.write_text(TOKEN)
    certificate.write_text(pair.cert.read_text() + pair.key.read_text())
    for path in (token, certificate):
        path.chmod(0o640)
    listen = f"0.0.0.0:{appliance.page}"
    appliance.values["status"] = {"listen": listen}
    appliance.write_settings()
    shown = appliance.command("status")
    assert shown.returncode in {1, 78}  # 1 where another pyconfd of this machine answers at the default address
    assert "status.token_file" in shown.stderr or "--status-token-file" in shown.stderr

    own = {"listen": listen, "token_file": str(token), "tls_certificate": str(certificate)}
    appliance.values["status"] = own
    appliance.serve("shop")
    appliance.start()
    appliance.until(lambda: is_live(appliance), "the command reads the page")
    explained = appliance.command("explain", "shop.example.com")
    assert (explained.returncode, "shop.example.com" in explained.stdout) == (0, True), explained.stderr
    assert scraped(appliance, authority, "wrong")[0] == 401
    code, text = scraped(appliance, authority, TOKEN)
    assert (code, "pyconfd_haproxy_up 1.0" in text) == (200, True)
    assert TOKEN not in appliance.log.read_text()

    token.write_text(f"{TOKEN}-new")
    assert scraped(appliance, authority, TOKEN)[0] == 401
    assert is_live(appliance)
    token.chmod(0o644)
    shown = appliance.command("status")
    assert f"chmod o-rwx {token}" in shown.stdout + shown.stderr
    assert (shown.returncode, (shown.stdout + shown.stderr).count("chmod")) == (1, 1)
    appliance.until(lambda: "chmod" in (appliance.folder / "run/status.json").read_text(), "the daemon names it, too")
    shown = appliance.command("status")
    assert (shown.returncode, (shown.stdout + shown.stderr).count("chmod")) == (1, 1)
    token.chmod(0o640)
    appliance.until(lambda: is_live(appliance), "the token can be used again")

    expired = authority.server("old", expired=True)
    certificate.write_text(expired.cert.read_text() + expired.key.read_text())
    appliance.until(lambda: "expired on" in appliance.command("status").stdout, "an expired certificate is a problem")
    shown = appliance.command("status")
    assert (shown.returncode, f"! {certificate}: expired on" in shown.stdout) == (1, True)
    assert "status.tls_certificate  EXPIRED" in shown.stdout
