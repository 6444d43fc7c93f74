"""Trees of Debian 12 for machines, kept in a cache under a name that is the hash of all that made them.

What a cloud's image has, and an archive of the appliance's packages on its own disk, so that apt works without a
network.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.matrix import apt_options, cache, mirror, output

ROOT = Path(__file__).parents[2]
SUITE = "bookworm"
CLOUD = (
    "ca-certificates",
    "cloud-init",
    "dbus",
    "iproute2",
    "kmod",
    "netbase",
    "openssh-server",
    "procps",
    "python3",
    "sudo",
    "systemd",
    "systemd-sysv",
    "udev",
)
"""Packages of a cloud's image, as far as they matter here."""

KERNEL = ("linux-image-cloud-amd64", "initramfs-tools", "e2fsprogs")
"""What a disk has more than a container."""

LEFT_OUT = ("man", "doc", "locale")
"""Below ``/usr/share``."""

ARCHIVE = "/var/lib/archive"
"""Where the packages of the appliance lie in a base tree."""

_INDEX = """
cd "$1{archive}"
for deb in *.deb; do
    dpkg-deb --field "$deb"
    printf 'Filename: ./%s\\nSize: %s\\nSHA256: %s\\n\\n' "$deb" "$(stat -c %s "$deb")" "$(sha256sum "$deb" | cut -c -64)"
done > Packages
echo 'deb [trusted=yes] file:{archive} ./' > "$1/etc/apt/sources.list"
rm -rf "$1"/etc/apt/sources.list.d/* "$1"/var/lib/apt/lists/*
"""  # noqa: E501


_HELD = threading.local()


@contextmanager
def alone() -> Iterator[None]:
    """Lock out other processes of the cache; it may be entered again by who is in."""
    if getattr(_HELD, "depth", 0):
        yield
        return
    (cache() / "image").mkdir(parents=True, exist_ok=True)
    with (cache() / "image" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _HELD.depth = 1
        try:
            yield
        finally:
            _HELD.depth = 0


def digest(*parts: str | Path) -> str:
    """Return the hash of texts and files (a folder: all files in it)."""
    found = hashlib.sha256()
    for part in parts:
        for path in _files(part) if isinstance(part, Path) else ():
            found.update(f"{path.relative_to(ROOT)} {path.stat().st_mode:o}\0".encode() + path.read_bytes())
        if isinstance(part, str):
            found.update(part.encode() + b"\0")
    return found.hexdigest()[:16]


def _files(path: Path) -> Iterable[Path]:
    return [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())


def appliance_packages() -> list[str]:
    """Return the packages that the provisioning asks for, out of its own script."""
    text = (ROOT / "packer/scripts/10-packages.sh").read_text()
    line = next(line for line in text.splitlines() if line.startswith('wanted="'))
    return [*line.removeprefix('wanted="').rstrip('"').split(), "systemd-timesyncd"]


def base(*, kernel: bool = False) -> Path:
    """Return the base tree, with a kernel where it shall boot by itself; it is made where it is not there yet.

    Raises:
        Unavailable: it cannot be made.
    """
    cloud, wanted = (*CLOUD, *(KERNEL if kernel else ())), appliance_packages()
    name = "bootable" if kernel else "base"
    tree = cache() / "image" / f"{name}-{digest(SUITE, *cloud, *LEFT_OUT, ARCHIVE, _INDEX, *wanted)}"
    with alone():
        if not tree.exists():
            forget(tree.parent, f"{name}-")
            fresh = tree.with_suffix(f".{os.getpid()}")
            _make(fresh, cloud, wanted)
            fresh.rename(tree)
    return tree


def _make(tree: Path, cloud: Iterable[str], wanted: Iterable[str]) -> None:
    tree.parent.mkdir(parents=True, exist_ok=True)
    options = [f"--aptopt={line}" for line in apt_options()]
    excludes = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
    download = (
        "APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get install --download-only -y --no-install-recommends "
        f'-o Dir::Cache::Archives="$1{ARCHIVE}" {" ".join(wanted)}'
    )
    hooks = [f'mkdir -p "$1{ARCHIVE}/partial"', download, _INDEX.format(archive=ARCHIVE)]
    output(
        [
            "mmdebstrap",
            "--quiet",
            "--mode=root",
            "--variant=minbase",
            f"--include={','.join(cloud)}",
            "--dpkgopt=force-unsafe-io",
            *excludes,
            *options,
            *(f"--customize-hook={hook}" for hook in hooks),
            SUITE,
            str(tree),
            f"deb {mirror()} {SUITE} main",
        ]
    )


def forget(folder: Path, prefix: str) -> None:
    """Remove trees that were made of something else."""
    for old in folder.glob(f"{prefix}*"):
        shutil.rmtree(old, ignore_errors=True)


def missing() -> str:
    """Return why there can be no machine here; "" if there can."""
    absent = [
        name
        for name in ("mmdebstrap", "systemd-nspawn", "nsenter", "unshare", "packer", "ssh-keygen")
        if not shutil.which(name)
    ]
    if absent:
        return f"{', '.join(absent)} not installed"
    if os.geteuid() != 0 or subprocess.run(["unshare", "-mn", "true"], check=False, capture_output=True).returncode:
        return "needs root and namespaces"
    return ""
