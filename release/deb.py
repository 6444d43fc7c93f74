"""``dist/pyconfd_VERSION_ARCH.deb``: units, configuration files, and ``/opt/pyconfd`` made of the wheelhouse.

Built by ``dpkg-deb`` alone. Where files lie differs from other packages in two ways, both so that removal interrupts
nothing: the drop-ins of haproxy and keepalived, and the scripts in ``libexec`` that these two run, are configuration
files (conffiles), which dpkg leaves in place until the package is purged.
"""

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from email.utils import formatdate
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent

from release.project import PYTHON, ROOT, ReleaseError, python_bounds, run, source_date_epoch, version, wheel_tags

OPT = "opt/pyconfd"
UNITS = "lib/systemd/system"
DROP_INS = "etc/systemd/system"
LIBEXEC = ("systemd/pyconfd-*", "keepalived/pyconfd-*", "keepalived/*.sh")
"""What haproxy, keepalived and the units run, among other files."""
PROGRAMS = {"pyconfd": "pyconfd", "pyconfd-vip": "pyconfd.vip.hook"}
LAUNCHER = """#!/bin/sh
# With the libraries beside it, also where the package was only unpacked: before an upgrade its plan is asked there.
exec "$(dirname "$(readlink -f "$0")")/python3" -P -m {module} "$@"
"""
MAINTAINER = "pyconfd <pyconfd@localhost>"
SCRIPTS = ("postinst", "prerm", "postrm")


def build_deb(wheelhouse: Path, target: Path) -> Path:
    """Build the package from what is in ``wheelhouse`` into the directory ``target``; give its path.

    Raises:
        ReleaseError: when a part cannot be had.
    """
    if shutil.which("dpkg-deb") is None:
        raise ReleaseError("dpkg-deb is missing: build on Debian, or apt-get install dpkg")
    package = target / f"pyconfd_{debian_version(version())}_{architecture()}.deb"
    with TemporaryDirectory(prefix=".deb-", dir=target) as scratch:
        tree = Path(scratch) / "tree"
        tree.mkdir()
        _python(tree, wheelhouse)
        _system(tree)
        _documents(tree)
        _control(tree)
        _level(tree)
        # What dpkg-deb reads counts as always: who tries something need not wait for xz, half of the time.
        compression = [] if "DPKG_DEB_COMPRESSOR_TYPE" in os.environ else ["-Zxz", "-z2"]
        run(["dpkg-deb", "--root-owner-group", "--threads-max=1", *compression, "--build", tree, package])
    return package


def debian_version(number: str) -> str:
    """Return the version as dpkg orders it: a release candidate comes before its release."""
    for word in ("a", "b", "rc"):
        number = number.replace(word, f"~{word}")
    return number


def architecture() -> str:
    """Return Debian's name for this kind of machine, for which the wheelhouse is."""
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()


def _python(tree: Path, wheelhouse: Path) -> None:
    """Lay out a virtual environment of Debian's interpreter of the version that runs this."""
    site = tree / OPT / "lib" / PYTHON / "site-packages"
    programs = tree / OPT / "bin"
    programs.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    command += ["--no-index", f"--find-links={wheelhouse}", "--require-hashes", f"--target={site}", "--no-deps"]
    # pip would judge by the glibc of this machine.
    command += [*wheel_tags(), *_platforms(wheelhouse)]
    run([*command, "--requirement", str(wheelhouse / "requirements.txt")])
    shutil.rmtree(site / "bin", ignore_errors=True)
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        record.write_text("".join(sorted(line for line in lines if "../" not in line)), encoding="utf-8")
    (tree / OPT / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n", encoding="utf-8")
    (programs / "python3").symlink_to(f"/usr/bin/{PYTHON}")
    (programs / "python").symlink_to("python3")
    for name, module in PROGRAMS.items():
        text = LAUNCHER.format(module=module)
        (programs / name).write_text(text, encoding="utf-8")
        (programs / name).chmod(0o755)


def _platforms(wheelhouse: Path) -> Iterable[str]:
    """Return for pip every platform that a wheel in the wheelhouse is for."""
    tags = {tag for wheel in wheelhouse.glob("*.whl") for tag in wheel.stem.split("-")[-1].split(".")}
    return (f"--platform={tag}" for tag in sorted(tags - {"any"}))


def _system(tree: Path) -> None:
    """Put the units, what systemd makes users and directories of, and the scripts that other programs run."""
    for unit in sorted((ROOT / "systemd").glob("*.service")):
        _install(unit, tree / UNITS / unit.name)
    for drop_in in sorted((ROOT / "systemd").glob("*.service.d/*.conf")):
        _install(drop_in, tree / DROP_INS / drop_in.parent.name / drop_in.name)
    for kind in ("sysusers", "tmpfiles"):
        _install(ROOT / f"systemd/pyconfd.{kind}", tree / f"usr/lib/{kind}.d/pyconfd.conf")
    _install(ROOT / "systemd/pyconfd.sysctl", tree / "usr/lib/sysctl.d/60-pyconfd.conf")
    for script in sorted(path for pattern in LIBEXEC for path in ROOT.glob(pattern)):
        if script.suffix != ".service":
            _install(script, tree / OPT / "libexec" / script.name, mode=0o755)
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/pyconfd").symlink_to(f"/{OPT}/bin/pyconfd")


def _documents(tree: Path) -> None:
    """Put what somebody reads at night, when there is no network: the README and all that it leads to."""
    target = tree / "usr/share/doc/pyconfd"
    shutil.copytree(ROOT / "docs", target / "docs")
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "systemd/README.md",
        "packer/README.md",
        "pyconfd/keepalived/README.md",
    ):
        _install(ROOT / name, target / name)
    # The module for Terraform is for machines with this package too; what Terraform itself leaves behind is not ours.
    shutil.copytree(
        ROOT / "packer/terraform", target / "packer/terraform", ignore=shutil.ignore_patterns(".terraform*")
    )
    _install(ROOT / "release/debian/copyright", target / "copyright")
    _install(ROOT / "CHANGELOG.md", target / "CHANGELOG.md")
    date = formatdate(source_date_epoch())
    head = f"pyconfd ({debian_version(version())}) stable; urgency=medium"
    entry = f"{head}\n\n  * See CHANGELOG.md.\n\n -- {MAINTAINER}  {date}\n"
    (target / "changelog.gz").write_bytes(gzip.compress(entry.encode(), mtime=0))
    _install(ROOT / "release/debian/lintian-overrides", tree / "usr/share/lintian/overrides/pyconfd")


def _control(tree: Path) -> None:
    """Write what dpkg reads."""
    control = tree / "DEBIAN"
    control.mkdir()
    for name in SCRIPTS:
        _install(ROOT / "release/debian" / name, control / name, mode=0o755)
    conffiles = [path for top in ("etc", f"{OPT}/libexec") for path in (tree / top).rglob("*") if path.is_file()]
    (control / "conffiles").write_text(
        "".join(f"/{path.relative_to(tree)}\n" for path in sorted(conffiles)), encoding="utf-8"
    )
    sizes = sum(-(-path.lstat().st_size // 1024) for path in tree.rglob("*") if not path.is_dir())
    text = dedent(f"""\
        Package: pyconfd
        Version: {debian_version(version())}
        Architecture: {architecture()}
        Maintainer: {MAINTAINER}
        Installed-Size: {sizes}
        Depends: haproxy (>= 2.6), {python_bounds()}, libc6 (>= 2.36), systemd
        Suggests: keepalived (>= 1:2.2.7), nftables
        Section: net
        Priority: optional
        Description: keeps HAProxy in step with a Kubernetes cluster
         Watches the API servers from outside the cluster, renders ordered
         fragments into haproxy.cfg, checks, and applies live or by a reload that
         loses no connection. What cannot be rendered, checked or loaded never
         replaces what serves.
        """)
    (control / "control").write_text(text, encoding="utf-8")
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    sums = (path for path in files if control not in path.parents)
    run_sums = subprocess.run(
        ["md5sum", *(str(path.relative_to(tree)) for path in sums)],
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    (control / "md5sums").write_text(run_sums.stdout, encoding="utf-8")


def _install(source: Path, target: Path, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _level(tree: Path) -> None:
    """Remove from the files whatever depends on when and by whom this was run: dates, and the umask."""
    epoch = source_date_epoch()
    for path in sorted(tree.rglob("*"), reverse=True):
        if not path.is_symlink():
            programs = path.parent.name in {"bin", "libexec", "DEBIAN"} and path.stat().st_mode & 0o100
            executable = path.is_dir() or programs
            path.chmod(0o755 if executable else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)
    tree.chmod(0o755)
