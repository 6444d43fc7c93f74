"""The Debian package, with dpkg itself, real haproxy, and the pyconfd that was packed."""

import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path

import pytest

from release.project import python_bounds, wheel_tags
from tests.docs.test_links import links
from tests.matrix import Unavailable
from tests.release.checkout import DROP_IN, EPOCH, LONG, ROOT, Tree, checkout, repacked, trixie, why_no_tree
from tests.release.conftest import with_wheels
from tests.world.appliance import Appliance
from tests.world.load import Load

NO_TREE = why_no_tree()
needs_tree = pytest.mark.skipif(bool(NO_TREE), reason=NO_TREE or "there is one")
pytestmark = [pytest.mark.timeout(1500), pytest.mark.haproxy]

SETTINGS = '[kubernetes]\napi_servers = ["https://192.0.2.1:6443"]\n'
KEPT = (
    "/etc/pyconfd/pyconfd.toml",
    "/etc/haproxy/generated/haproxy.cfg",
    DROP_IN,
    "/etc/systemd/system/keepalived.service.d/pyconfd.conf",
    "/opt/pyconfd/libexec/pyconfd-haproxy-prestart",
    "/opt/pyconfd/libexec/pyconfd-vip-backstop",
    "/var/lib/pyconfd/generations/1/haproxy.cfg",
    "/opt/pyconfd/libexec/pyconfd-haproxy-reload",
)
"""What haproxy and keepalived need, and what operators wrote."""


OWN_DROP_IN = "# The operator's own.\n"
HAPROXY_CFG = """defaults
  timeout client 9s
  timeout server 9s
  timeout connect 9s
frontend former
  bind 127.0.0.1:1
"""
RESTARTS = ["daemon-reload", "try-restart pyconfd.service pyconfd-dns.service pyconfd-vip.service"]


@needs_tree
def test_a_life_of_the_package_and_no_request_fails(tmp_path: Path, versions: tuple[str, str]) -> None:
    with Tree(tmp_path / "tree") as tree:
        a_life(tree, tmp_path, *versions)


@needs_tree
@pytest.mark.skipif(not LONG, reason="the long form (make release-test) makes a tree of Debian 13")
def test_a_life_of_the_package_on_debian_13(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built, installed and upgraded there, beside its own HAProxy."""
    try:
        lower = trixie()
    except Unavailable as error:
        pytest.skip(f"no tree of Debian 13 can be made: {error}")
    with Tree(tmp_path / "tree", lower) as tree:
        newer = built_in(tree, tmp_path / "sources", wheels)
        depends = subprocess.run(
            ["dpkg-deb", "--field", newer, "Depends"], capture_output=True, text=True, check=True
        ).stdout
        assert "python3 (>= 3.13), python3 (<< 3.14)," in depends
        (tmp_path / "older").mkdir()
        older = repacked(newer, tmp_path / "older", "9.0.0")
        haproxy = tmp_path / "haproxy"
        haproxy.write_text(f'#!/bin/sh\nexec {shlex.join(tree.enter)} /usr/sbin/haproxy "$@"\n')
        haproxy.chmod(0o755)
        assert "version 3.0." in subprocess.run([haproxy, "-v"], capture_output=True, text=True, check=True).stdout
        monkeypatch.setattr("tests.world.haproxy.BINARY", str(haproxy))
        a_life(tree, tmp_path, str(older), str(newer))


def built_in(tree: Tree, sources: Path, wheels: Path) -> Path:
    """Build the package as ``make deb`` does in a tree; the wheels for its interpreter are fetched outside of it."""
    with_wheels(checkout(sources, version="9.1.0"), wheels)
    python = tree.run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.strip()
    fetch = "import pathlib, sys; from release.wheelhouse import build_wheelhouse as build; "
    fetch += f"build(pathlib.Path('dist/wheelhouse').resolve(), python={python!r})"
    subprocess.run(
        [sys.executable, "-c", fetch], cwd=sources, env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH}, check=True
    )
    found = importlib.util.find_spec("flit_core")
    assert found is not None
    assert found.origin is not None
    shutil.copytree(Path(found.origin).parent, sources / "flit_core")
    command = f"cd {sources} && SOURCE_DATE_EPOCH={EPOCH} python3 -m release deb"
    done = tree.run("sh", "-c", command)
    assert done.returncode == 0, done.stderr
    (package,) = (sources / "dist").glob("*.deb")
    return package


def a_life(tree: Tree, tmp_path: Path, older: str, newer: str) -> None:
    """One story, since each installation compiles all libraries."""
    shared = tmp_path / "lb"
    shared.mkdir()
    with Appliance(shared) as lb:
        lb.launcher = (*tree.enter, "sh", "-c", 'shift 3; exec /opt/pyconfd/bin/pyconfd "$@"', "sh")
        lb.own_fragments()
        lb.serve("web", pods=3)
        tree.write("/etc/haproxy/haproxy.cfg", HAPROXY_CFG)
        first_installation(tree, older)
        as_the_page_says(tree, lb)
        lb.start()
        lb.until(lambda: lb.settled() and lb.ask("web").startswith("web-"), "the older version serves")
        assert lb.status()["version"] == "9.0.0"
        tree.write("/etc/pyconfd/pyconfd.toml", SETTINGS)
        tree.write(DROP_IN, OWN_DROP_IN)
        check_before(tree, lb, newer)
        with Load(lb.http, "web.example.com", clients=4, pause_s=0.02) as load:
            tree.dpkg("--install", newer)
            assert tree.asked_of_systemd() == RESTARTS
            restart(lb, "9.1.0")
            # The way back, with settings that this version does not take: what runs is left alone.
            tree.write("/etc/pyconfd/pyconfd.toml", "[kubernetes]\napi_server = 3\n")
            said = tree.dpkg("--install", older)
            assert tree.asked_of_systemd() == RESTARTS[:1]
            assert "does not take the settings" in said
            assert "did you mean api_servers?" in said
            tree.write("/etc/pyconfd/pyconfd.toml", SETTINGS)
            restart(lb, "9.0.0")
            assert tree.read(DROP_IN) == OWN_DROP_IN
            assert lb.stop() == 0
            removal(tree)
            assert lb.ask("web").startswith("web-")
            requests = load.stop()
        assert len(requests) > 100
        assert [request for request in requests if request.failure] == []


def first_installation(tree: Tree, package: str) -> None:
    said = tree.dpkg("--install", package)
    assert tree.asked_of_systemd() == ["daemon-reload"]
    assert "WARNING" not in said
    # haproxy will load this file when it starts next: it has what serves now.
    assert tree.read("/etc/haproxy/generated/haproxy.cfg") == HAPROXY_CFG
    owner = tree.run("stat", "-c", "%U:%G %a", "/etc/haproxy/generated/haproxy.cfg").stdout
    assert owner == "pyconfd:haproxy 640\n"
    version = tree.run("pyconfd", "--version")
    assert version.stdout == "pyconfd, version 9.0.0\n", version.stderr
    compiled = tree.run("find", "/opt/pyconfd/lib", "-path", "*/pyconfd/__pycache__/errors.cpython-3*.pyc")
    assert compiled.stdout


ELSEWHERE = ("make", "packer", "pyconfd status", "pyconfd preflight", "ip route", "kubectl", "curl")
"""What begins so is not run: it is for another machine, or judges one that boots."""


def as_the_page_says(tree: Tree, lb: Appliance) -> None:
    """Every command of docs/install.md between the package and the first traffic, word for word, without systemd."""
    text = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    section = text[text.index("\n## On a load balancer") : text.index("\n## Beside a haproxy")]
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```", section, re.MULTILINE | re.DOTALL)
    blocks = [(language, textwrap.dedent(body)) for language, body in found if "<<'EOF'" not in body]
    (toml,) = (body for language, body in blocks if language == "toml")
    shell = "".join(body for language, body in blocks if language != "toml")
    commands = [line.partition("  #")[0].strip() for line in shell.splitlines() if line.strip()]
    assert commands[0] == "make deb"
    assert commands[1] == "apt-get install ./dist/pyconfd_*.deb"
    # The cluster of this test speaks without TLS, and the network is not the tree's own: its pool is on loopback.
    own = re.sub(r"^api_servers = .*", f'api_servers = ["{lb.servers[0].url}"]', toml, flags=re.MULTILINE)
    own = own.replace("10.31.12.", "127.31.12.")
    tree.write("/etc/pyconfd/pyconfd.toml", re.sub(r"^ssl_ca = .*\n", "", own, flags=re.MULTILINE))
    tree.write("/etc/pyconfd/token", "t")
    codes = {}
    for command in commands[2:]:
        if not command.startswith(ELSEWHERE):
            done = tree.run("sh", "-c", command)
            codes[command] = done.returncode
            assert done.returncode == (2 if command.endswith("pyconfd plan") else 0), (
                command,
                done.stdout,
                done.stderr,
            )
    assert "runuser -u pyconfd -- pyconfd plan" in codes
    assert "pyconfd fragments --copy-to /etc/pyconfd" in codes
    assert tree.asked_of_systemd() == ["restart haproxy", "enable --now pyconfd"]
    tree.run("rm", "/etc/pyconfd/pyconfd.toml")


def check_before(tree: Tree, lb: Appliance, newer: str) -> None:
    """What docs/releasing.md says to do before an upgrade: the new package, only unpacked."""
    assert tree.run("dpkg-deb", "-x", newer, "/root/new").returncode == 0
    new = "/root/new/opt/pyconfd/bin/pyconfd"
    assert "version 9.1.0" in tree.run(new, "--version").stdout
    for command in ("history", "plan"):
        done = tree.run(new, command, "--config", str(lb.config))
        assert done.returncode == 0, done.stdout + done.stderr
    tree.run("rm", "-rf", "/root/new")


def restart(lb: Appliance, version: str) -> None:
    """Do what systemd is asked; what changed meanwhile is served then, and nothing else is touched."""
    served = lb.generation
    assert lb.stop() == 0
    pod = lb.scale_up("web")
    lb.spawn()
    lb.until(lambda: lb.status().get("version") == version, f"{version} runs")
    lb.until(lb.settled, f"{version} has applied what came meanwhile")
    assert lb.generation == served + 1
    lb.until(lambda: lb.ask("web") == pod, f"{pod} serves")


def removal(tree: Tree) -> None:
    tree.write("/var/lib/pyconfd/generations/1/haproxy.cfg", "# served\n")
    before = {path: tree.read(path) for path in KEPT}
    assert None not in before.values()
    tree.dpkg("--remove", "pyconfd")
    assert tree.asked_of_systemd() == ["stop pyconfd.service pyconfd-dns.service pyconfd-vip.service", "daemon-reload"]
    assert {path: tree.read(path) for path in KEPT} == before
    assert tree.read("/opt/pyconfd/bin/pyconfd") is None
    assert tree.read("/lib/systemd/system/pyconfd.service") is None
    assert tree.run("find", "/opt/pyconfd/lib").stdout == ""

    tree.dpkg("--purge", "pyconfd")
    assert {path: tree.read(path) for path in KEPT} == dict.fromkeys(KEPT)
    assert tree.run("find", "/opt/pyconfd", "/etc/pyconfd", "/var/lib/pyconfd").stdout == ""


@pytest.mark.parametrize(
    ("version", "bounds", "abi"),
    [
        ("3.11", "python3 (>= 3.11), python3 (<< 3.12)", "--abi=cp311"),
        ("3.13", "python3 (>= 3.13), python3 (<< 3.14)", "--abi=cp313"),
    ],
)
def test_the_package_wants_the_interpreter_that_built_it(
    monkeypatch: pytest.MonkeyPatch, version: str, bounds: str, abi: str
) -> None:
    monkeypatch.setattr("release.project.VERSION", version)
    assert python_bounds() == bounds
    assert {abi, f"--python-version={version}"} < set(wheel_tags(version))


def test_the_package_says_which_interpreter_it_wants(newer: str) -> None:
    shown = subprocess.run(["dpkg-deb", "--field", newer, "Depends"], capture_output=True, text=True, check=True)
    assert python_bounds() in shown.stdout


def test_the_package_is_as_debian_wants_it(newer: str) -> None:
    if not LONG or not shutil.which("lintian"):
        pytest.skip("the long form (make release-test) with lintian installed")
    done = subprocess.run(["lintian", "--fail-on=error,warning", newer], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_unit_and_every_file_that_a_unit_runs_is_in_the_package(newer: str) -> None:
    listed = subprocess.run(["dpkg-deb", "-c", newer], capture_output=True, text=True, check=True).stdout
    for path in (
        "./lib/systemd/system/pyconfd.service",
        "./opt/pyconfd/bin/pyconfd-vip",
        *(f".{p}" for p in KEPT[2:6]),
    ):
        assert f" {path}\n" in listed
    # The units wait for one of these: with it the package would start what nobody has configured.
    assert " ./etc/pyconfd" not in listed
    assert " ./etc/default/pyconfd" not in listed


def test_what_its_documents_lead_to_is_in_it_too(newer: str, tmp_path: Path) -> None:
    files = subprocess.run(["dpkg-deb", "--fsys-tarfile", newer], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(files)) as packed:
        documents = [member for member in packed if member.name.startswith("./usr/share/doc/")]
        packed.extractall(tmp_path, documents, filter="data")
    found = links((tmp_path / "usr/share/doc/pyconfd").rglob("*.md"))
    assert len(found) > 50
    dead = [(page.name, target) for page, target in found if not (page.parent / target.partition("#")[0]).exists()]
    assert dead == []
