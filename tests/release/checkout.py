"""Copies of this checkout that artefacts are built from, and the tree of a Debian machine to install them in."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.matrix import apt_options, cache, mirror, output

ROOT = Path(__file__).parents[2]
EPOCH = "1760000000"
SOURCES = ("pyconfd", "release", "systemd", "docs", "packer")
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "requirements.lock")
DROP_IN = "/etc/systemd/system/haproxy.service.d/pyconfd.conf"
DEBIAN_PYTHON = Path("/usr/bin/python3.11")
LONG = bool(os.environ.get("PYCONFD_TEST_RELEASE"))
"""Whether ``make release-test`` asks for all that takes long."""


def checkout(target: Path, *, version: str = "") -> Path:
    """Copy the sources to ``target``; with ``version`` as those of that one, which its changelog has too."""
    target.mkdir(parents=True)
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copyfile(ROOT / name, target / name)
    (target / "keepalived").symlink_to("pyconfd/keepalived")
    if version:
        replace(target / "pyconfd/__init__.py", r'__version__ = ".*"', f'__version__ = "{version}"')
        replace(target / "CHANGELOG.md", r"## \[Unreleased\]\n", f"\\g<0>\n## [{version}] - 2026-01-01\n\n- All.\n")
    return target


def replace(path: Path, pattern: str, by: str) -> None:
    """Change the one place where ``pattern`` fits."""
    text, number = re.subn(pattern, by, path.read_text(encoding="utf-8"))
    assert number == 1, f"{pattern} in {path}"
    path.write_text(text, encoding="utf-8")


def build(sources: Path, what: str, *, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    """Run what ``make wheelhouse``, ``make deb`` and ``make release`` run."""
    return _run(sources, "-m", "release", what, umask=umask)


def build_wheel_of(sources: Path, *, umask: int) -> Path:
    """Build pyconfd's own wheel alone, as the whole release does; return its path."""
    target = sources / "dist"
    target.mkdir()
    program = (
        "import pathlib, release.wheelhouse; print(release.wheelhouse.build_wheel(pathlib.Path('dist').resolve()))"
    )
    done = _run(sources, "-c", program, umask=umask)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def _run(sources: Path, *arguments: str, umask: int) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=sources,
        env=environ | {"SOURCE_DATE_EPOCH": EPOCH} | ({} if LONG else {"DPKG_DEB_COMPRESSOR_TYPE": "none"}),
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )


def repacked(package: Path, target: Path, version: str, libraries: Path | None = None) -> Path:
    """Return the package as one of another version, with another drop-in of haproxy.

    What others wrote goes to the folder ``libraries`` where it is given.
    """
    tree = target / "tree"
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    replace(tree / "DEBIAN/control", r"Version: .*", f"Version: {version}")
    (module,) = tree.glob("opt/pyconfd/lib/*/site-packages/pyconfd/__init__.py")
    replace(module, r'__version__ = ".*"', f'__version__ = "{version}"')
    replace(tree / DROP_IN.lstrip("/"), r"\A", f"# As it was in {version}.\n")
    if libraries:
        for each in set(module.parents[1].iterdir()) - set(module.parents[1].glob("pyconfd*")):
            shutil.move(each, libraries if not (libraries / each.name).exists() else target)
        (module.parents[1] / "libraries.pth").write_text(f"{libraries}\n", encoding="utf-8")
    made = target / f"pyconfd_{version}.deb"
    subprocess.run(["dpkg-deb", "-Znone", "--build", tree, made], check=True, capture_output=True)
    return made


def built(sources: Path, what: str) -> Path:
    """Build it and give the directory where it is."""
    done = build(sources, what)
    assert done.returncode == 0, done.stderr
    return sources / "dist"


_MOUNT = """
set -e
mount -t tmpfs -o mode=755 tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=$3,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
for shared in /dev /proc /sys; do mount --rbind "$shared" "$1/root$shared"; done
mount -t tmpfs -o mode=755 tmpfs "$1/root/run" && mkdir -p "$1/root/run/systemd/system"
mkdir -p "$1/root$2" && mount --bind "$2" "$1/root$2"
echo ready
exec cat
"""

_SYSTEMCTL = """#!/bin/sh
echo "$*" >> /run/systemctl.log
"""

_SYSTEMD_RUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""


def trixie() -> Path:
    """Return a tree of Debian 13 with what a balancer has before pyconfd is installed; it is made where there is none.

    Raises:
        Unavailable: it cannot be made.
    """
    packages = "ca-certificates,haproxy,procps,python3,python3-pip,systemd"
    tree = cache() / "release" / f"trixie-{hashlib.sha256(packages.encode()).hexdigest()[:16]}"
    if not tree.exists():
        fresh = tree.with_suffix(f".{os.getpid()}")
        fresh.parent.mkdir(parents=True, exist_ok=True)
        options = [f"--aptopt={line}" for line in apt_options()]
        sources = f"deb {mirror()} trixie main"
        variant = ["--mode=root", "--variant=minbase", f"--include={packages}", "--dpkgopt=force-unsafe-io"]
        output(["mmdebstrap", "--quiet", *variant, *options, "trixie", str(fresh), sources])
        fresh.rename(tree)
    return tree


def why_no_tree() -> str:
    """Return why no tree can be had here; empty where it can."""
    if os.geteuid() != 0:
        return "needs root, to mount"
    if not DEBIAN_PYTHON.exists() or not shutil.which("dpkg"):
        return "needs Debian 12 (dpkg, /usr/bin/python3.11)"
    probe = 'd=$(mktemp -d) && mount -t tmpfs t "$d" && mkdir "$d/u" "$d/w" "$d/r" && mount -t overlay -o '
    probe += '"lowerdir=/,upperdir=$d/u,workdir=$d/w" o "$d/r"; found=$?; umount -R "$d"; rmdir "$d"; exit $found'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", probe], capture_output=True, text=True, check=False)
    return f"no overlay of / can be mounted: {done.stderr.strip()}" if done.returncode else ""


class Tree:
    """A machine in a mount namespace where changes go to memory, except in the directory of temporary files.

    It is this one, or the one in ``lower``.

    systemd cannot run there: ``systemctl`` notes what it is asked, ``systemd-run`` runs it, and the test does the rest.
    """

    def __init__(self, folder: Path, lower: Path = Path("/")) -> None:
        folder.mkdir()
        self._folder = folder
        self._process = subprocess.Popen(
            [
                *("unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNT),
                *("sh", folder, tempfile.gettempdir(), lower),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        self.write("/usr/local/bin/systemctl", _SYSTEMCTL, mode="755")
        self.write("/usr/local/bin/systemd-run", _SYSTEMD_RUN, mode="755")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    @property
    def enter(self) -> tuple[str, ...]:
        """What goes before a command line that is to run inside; it ends in ``exec``."""
        return ("nsenter", f"--target={self._process.pid}", "--mount", "chroot", str(self._folder / "root"))

    def run(self, *argv: str, given: str = "") -> subprocess.CompletedProcess[str]:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return subprocess.run(
            [*self.enter, "env", "-i", f"PATH={path}", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", *argv],
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )

    def dpkg(self, *arguments: str) -> str:
        """Run dpkg as apt does in an unattended upgrade; return what was said."""
        done = self.run("dpkg", "--force-confdef", "--force-confold", "--force-unsafe-io", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def write(self, path: str, text: str, *, mode: str = "644") -> None:
        self.run("install", "-D", "-m", mode, "/dev/stdin", path, given=text)

    def read(self, path: str) -> str | None:
        """Return a file's text; None where there is none."""
        done = self.run("cat", path)
        return None if done.returncode else done.stdout

    def asked_of_systemd(self) -> Sequence[str]:
        """Return what ``systemctl`` was asked to do since the last look; questions (``show``) change nothing."""
        lines = (self.read("/run/systemctl.log") or "").splitlines()
        self.run("rm", "-f", "/run/systemctl.log")
        return [line for line in lines if not line.startswith("show ")]
