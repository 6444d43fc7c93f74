"""Templates as python-confd's users wrote them: Host ACLs, names made with replace(), reqadd, a bare HTML errorfile."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from pyconfd.haproxy.process.check import explain_check_output
from pyconfd.model.context import Context
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.render.engine import Renderer, RenderOptions
from tests.fragments.python_confd import fragments
from tests.fragments.shipped import HAPROXY, write_rendering

DOMAINS = {
    "grafana.k8s.cluster.com": {"proto": "http", "port": 3000, "ips": ["10.244.0.77", "10.244.1.12"]},
    "dashboard.k8s.cluster.com": {"proto": "https", "port": 8443, "ips": ["10.244.5.164"]},
    "cache.k8s.cluster.com": {"proto": "redis", "port": 6379, "ips": ["10.244.2.9"]},
}
HTTP = "02-http.tmpl"
REMOVED = "reqadd X-Forwarded-Proto:\\ http"


def render(landing: Path, changes: Mapping[str, str] | None = None) -> Rendering:
    """Render the shared fragments with lines of ``02-http.tmpl`` replaced."""
    found = []
    for fragment in fragments(landing=str(landing)):
        text = fragment.text
        if fragment.name == HTTP:
            for line, instead in (changes or {}).items():
                assert line in text
                text = text.replace(line, instead)
        found.append(Fragment(fragment.name, text))
    renderer = Renderer(FragmentSet(tuple(found)), RenderOptions("/files"))
    return renderer.render(Context({"domains": DOMAINS}), curdate="").rendering


def check(rendering: Rendering, folder: Path) -> tuple[int, str, str]:
    conf = folder / "haproxy.cfg"
    write_rendering(rendering, conf)
    command = [HAPROXY, "-c", "-f", str(conf)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    return done.returncode, done.stderr, str(conf)


def test_they_render_as_before_and_never_glue(tmp_path: Path) -> None:
    text = render(tmp_path / "503.html").text
    assert "    acl grafana_k8s_cluster_com hdr(host) -i grafana.k8s.cluster.com\n" in text
    assert "    use_backend begrafana.k8s.cluster.com if grafana_k8s_cluster_com\n" in text
    assert "    server 10_244_0_77 10.244.0.77:3000 check\n    server 10_244_1_12 10.244.1.12:3000 check\n" in text
    assert "\nfrontend cache.k8s.cluster.com\n" in text
    assert "timeout server 50000\nfrontend http-in\n" in text


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
def test_following_the_advice_gives_a_configuration_that_haproxy_takes(tmp_path: Path) -> None:
    landing = tmp_path / "503.html"
    landing.write_text("<html><body>sorry</body></html>\n")
    rendering = render(landing)
    code, output, conf = check(rendering, tmp_path)
    assert code == 1
    removed, errorfile = explain_check_output(output, rendering, conf)
    assert removed.place == "02-http.tmpl rendered line 7"
    assert "since HAProxy 2.1" in removed.message
    assert REMOVED in removed.message
    assert removed.remedy == "write: http-request add-header X-Forwarded-Proto http"
    assert "unable to parse headers" in errorfile.message

    advice = errorfile.remedy.removeprefix("write: ").split("  ", 1)[0]
    changes = {REMOVED: removed.remedy.removeprefix("write: "), f"errorfile 503 {landing}": advice}
    assert check(render(landing, changes), tmp_path)[:2] == (0, "")
