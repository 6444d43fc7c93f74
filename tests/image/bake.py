"""The null bake: Packer makes an appliance of a machine, over SSH, with the very scripts of the other sources."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from tests.image.machine import Machine
from tests.image.trees import ROOT, alone, base, digest, forget
from tests.matrix import cache

PACKER = ROOT / "packer"
_NETWORKD = "/etc/systemd/system/multi-user.target.wants/systemd-networkd.service"


@dataclass(frozen=True, slots=True)
class Baked:
    """Layers of an appliance, newest first, and the folder with what Packer gave beside it."""

    layers: tuple[Path, ...]
    output: Path


def shelf() -> Path:
    """Return the folder whose ``dist/wheelhouse`` is used here: other tests may read the checkout's own meanwhile."""
    return cache() / "image"


def prepare() -> None:
    """Fetch all that comes from outside; a network of machines has no way there.

    Raises:
        Unavailable: the tree cannot be made.
    """
    base()
    wheelhouse()


def wheelhouse() -> Path:
    """Return the wheels of this checkout; those of others are fetched once for all runs."""
    command = [sys.executable, "-m", "release", "wheelhouse", "--dist", str(shelf() / "dist")]
    with alone():
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return shelf() / "dist/wheelhouse"


def bundle(folder: Path) -> Path:
    """Build the bundle of this checkout; return its path. Wheels that are there are not fetched again."""
    target = folder / "pyconfd-appliance.tar"
    with alone():
        wheelhouse()
        subprocess.run([PACKER / "bundle.sh", target, shelf()], check=True)
    return target


def bake(name: str, layers: tuple[Path, ...], folder: Path, *options: str) -> Baked:
    """Boot ``layers`` and let Packer's null source make an appliance of it; what it adds is in ``folder``."""
    output, key = folder / "output", folder / "key"
    output.mkdir(parents=True)
    # Packer 1.6.6 signs with SHA-1 where the key is an RSA one, and sshd refuses that.
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    machine = Machine(name, 99, layers, folder)
    machine.prepare("/root/.ssh/authorized_keys", key.with_suffix(".pub").read_text(), 0o600)
    wanted = machine.upper / _NETWORKD.lstrip("/")
    wanted.parent.mkdir(parents=True, exist_ok=True)
    wanted.symlink_to("/lib/systemd/system/systemd-networkd.service")
    values = {
        "bundle": str(bundle(folder)),
        "output": str(output),
        "ssh_host": machine.address,
        "ssh_username": "root",
        "ssh_private_key_file": str(key),
        "base_checksum": "none",
    }
    with machine:
        packer(
            "build", "-color=false", "-only=null.machine", *(f"-var={k}={v}" for k, v in values.items()), *options, "."
        )
        machine.shut_down()
    return Baked((machine.upper, *layers), output)


def packer(*arguments: str, **environ: str) -> str:
    """Run Packer in its folder; return what it printed. Raises: AssertionError: with that, where it failed."""
    environment = {**os.environ, "CHECKPOINT_DISABLE": "1", "PACKER_CACHE_DIR": str(cache() / "packer"), **environ}
    done = subprocess.run(
        ["packer", *arguments], cwd=PACKER, env=environment, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, (
        f"packer {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def first() -> tuple[Path, ...]:
    """Return the layers of a machine that was baked once: from the cache, unless its inputs have changed.

    pyconfd itself is no input: what the machine has of it may be old.
    """
    with alone():
        return _first(base())


def _first(tree: Path) -> tuple[Path, ...]:
    inputs = [PACKER / name for name in ("build.pkr.hcl", "sources.pkr.hcl", "scripts", "files", "manifest.py")]
    layer = tree.parent / f"first-{digest(tree.name, *inputs, ROOT / 'requirements.lock')}"
    if not layer.exists():
        forget(layer.parent, "first-")
        scratch = Path(mkdtemp(prefix="new-first-", dir=layer.parent))
        try:
            bake("first", (tree,), scratch)
            (scratch / "upper").rename(layer)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return (layer, tree)


def appliance(folder: Path) -> Baked:
    """Return an appliance of this checkout, made ready to be copied."""
    return bake("bake", first(), folder, "-var=generalize=always")


__all__ = ["Baked", "appliance", "bake", "bundle", "first", "packer", "prepare", "wheelhouse"]
