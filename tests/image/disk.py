"""A disk image by Packer's qemu source, and a virtual machine that boots from it: without hardware, so anywhere."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.image.bake import PACKER, Baked, bundle, packer
from tests.image.trees import base, digest

_CPU = (("-machine", "type=q35,accel=tcg"), ("-cpu", "max"), ("-smp", "2"))
_SIZE = "3G"
_NETWORK = "[Match]\nName=e*\n[Network]\nDHCP=ipv4\n"
PROGRAMS = ("qemu-system-x86_64", "qemu-img", "mke2fs")


def missing() -> str:
    """Return what a virtual machine lacks here; "" for nothing."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path="/usr/bin:/usr/sbin:/sbin")]
    return f"{', '.join(absent)} not installed" if absent else ""


def boot_files(tree: Path) -> tuple[Path, Path]:
    """Return kernel and initial ramdisk. The disk has no boot loader: that needs more than a file system to install."""
    return next((tree / "boot").glob("vmlinuz-*")), next((tree / "boot").glob("initrd.img-*"))


def _arguments(tree: Path, serial: Path) -> list[tuple[str, str]]:
    kernel, ramdisk = boot_files(tree)
    return [
        ("-kernel", str(kernel)),
        ("-initrd", str(ramdisk)),
        ("-append", "root=/dev/vda rw console=ttyS0 quiet"),
        ("-serial", f"file:{serial}"),
        *_CPU,
    ]


def base_disk() -> Path:
    """Return a disk of Debian 12 that lets nobody in, as a cloud's; in the cache as long as the tree is the same."""
    tree = base(kernel=True)
    disk = tree.parent / f"disk-{digest(tree.name, _NETWORK, _SIZE)}.qcow2"
    if disk.exists():
        return disk
    for old in disk.parent.glob("disk-*"):
        old.unlink()
    for path, text, mode in (
        ("etc/systemd/network/80-dhcp.network", _NETWORK, 0o644),
        ("etc/fstab", "/dev/vda / ext4 defaults 0 1\n", 0o644),
    ):
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)
    subprocess.run(["systemctl", f"--root={tree}", "--quiet", "enable", "systemd-networkd"], check=True)
    raw = disk.with_suffix(".raw")
    mke2fs = shutil.which("mke2fs", path="/usr/sbin:/sbin") or "mke2fs"
    subprocess.run([mke2fs, "-q", "-F", "-t", "ext4", "-L", "root", "-d", tree, raw, _SIZE], check=True)
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, disk], check=True)
    raw.unlink()
    return disk


def bake_disk(folder: Path) -> Baked:
    """Run Packer's qemu source; the disk is in its output folder."""
    disk, bake = base_disk(), folder / "bake"
    subprocess.run([PACKER / "seed.sh", bake], check=True)
    output = folder / "output"
    output.mkdir(parents=True)
    values = {
        "bundle": str(bundle(folder)),
        "output": str(output),
        "base_image": str(disk),
        "base_checksum": "none",
        "accelerator": "tcg",
        "seed": str(bake / "seed"),
        "ssh_private_key_file": str(bake / "key"),
        "qemuargs": json.dumps(_arguments(base(kernel=True), folder / "bake.log")),
    }
    packer("build", "-color=false", "-only=qemu.lb", *(f"-var={k}={v}" for k, v in values.items()), ".")
    return Baked((), output)


@contextmanager
def booted(image: Path, folder: Path, seed: str, ports: dict[int, int]) -> Iterator[Path]:
    """Boot an image and change nothing in it; ``seed`` is the URL of cloud-init's data, ``ports`` lead from this
    machine's loopback to the image's. Give the file with what its console says."""
    console = folder / "console.log"
    arguments = [word for pair in _arguments(base(kernel=True), console) for word in pair]
    forwards = "".join(f",hostfwd=tcp:127.0.0.1:{here}-:{there}" for here, there in ports.items())
    command = ["qemu-system-x86_64", *arguments, "-m", "1024", "-display", "none", "-monitor", "none", "-no-reboot"]
    command += ["-drive", f"file={image},if=virtio,snapshot=on", "-netdev", f"user,id=n0{forwards}"]
    command += ["-device", "virtio-net,netdev=n0", "-smbios", f"type=1,serial=ds=nocloud-net;s={seed}"]
    with (folder / "qemu.log").open("wb") as log:
        qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield console
    finally:
        qemu.kill()
        qemu.wait()


__all__ = ["bake_disk", "booted", "missing"]
