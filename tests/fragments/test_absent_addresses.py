"""HAProxy starts, with the rights of its unit, while addresses of the pool are missing, and serves them later."""

import os
import subprocess
from pathlib import Path

import pytest

from pyconfd.fragments import directory
from pyconfd.model.context import PresetName
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.fragments.shipped import HAPROXY, write_rendering
from tests.presets.gateway.objects import CLASS, snapshot

NAMESPACES = os.geteuid() == 0 and subprocess.run(["unshare", "-n", "true"], check=False).returncode == 0

pytestmark = [
    pytest.mark.haproxy,
    pytest.mark.skipif(not HAPROXY, reason="there is no haproxy"),
    pytest.mark.skipif(not NAMESPACES, reason="needs root and network namespaces"),
]

OBJECTS = """
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: pyconfd
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: tcp, port: 81, protocol: TCP}
---
kind: Service
metadata: {name: balanced, creationTimestamp: "2026-02-01T00:00:00Z"}
spec:
  type: LoadBalancer
  loadBalancerClass: pyconfd.io/lb
  ports: [{name: web, port: 82}]
  ipFamilies: [IPv6]
"""
POOL = AddressOptions(("192.0.2.1", "2001:db8::1"))

SCRIPT = """
ip link set lo up
haproxy() {
    setpriv --inh-caps=-all,+net_bind_service --bounding-set=-all,+net_bind_service --no-new-privs "$@"
}
# With -D it returns once all is bound, and with the error where that failed.
haproxy @HAPROXY@ -D -p @DIR@/pid -f @DIR@/haproxy.cfg || exit 3
trap 'kill $(cat @DIR@/pid)' EXIT
connects() { bash -c "exec 3<>/dev/tcp/$1/$2" 2>/dev/null && echo "$1 $2"; }
connects 192.0.2.1 80 && exit 4
ip addr add 192.0.2.1/32 dev lo
ip addr add 2001:db8::1/128 dev lo nodad
# An address of IPv6 can be used a moment after it was added.
for listener in "192.0.2.1 80" "192.0.2.1 81" "2001:db8::1 82"; do
    until connects $listener; do sleep 0.05; done
done
"""


def started(folder: Path, *, word: str = " transparent") -> subprocess.CompletedProcess[str]:
    variables = {"http_bind": "", "https_bind": "", "runtime_socket": f"{folder}/socket"}
    options = PresetOptions(addresses=POOL)
    presets = (PresetName.GATEWAY, PresetName.LOADBALANCER)
    context = registry.translate(snapshot(CLASS, OBJECTS), presets, options)
    renderer = Renderer(read_fragments(directory()), RenderOptions(str(folder), variables=variables))
    write_rendering(renderer.render(context, curdate="").rendering, folder / "haproxy.cfg")
    text = (folder / "haproxy.cfg").read_text()
    (folder / "haproxy.cfg").write_text(text.replace(" transparent", word))
    script = SCRIPT.replace("@HAPROXY@", HAPROXY).replace("@DIR@", str(folder))
    return subprocess.run(
        ["unshare", "-n", "bash", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )


def test_haproxy_starts_without_the_addresses_and_serves_them_later(tmp_path: Path) -> None:
    found = started(tmp_path)
    assert (found.returncode, found.stdout.splitlines()) == (
        0,
        ["192.0.2.1 80", "192.0.2.1 81", "2001:db8::1 82"],
    ), found.stderr


def test_it_is_the_word_transparent_that_makes_it_start(tmp_path: Path) -> None:
    found = started(tmp_path, word="")
    assert found.returncode == 3
    assert "Cannot assign requested address" in found.stderr
