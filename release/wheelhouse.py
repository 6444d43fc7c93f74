"""``dist/wheelhouse``: every wheel that an installation needs, and the list with the hash of each.

The wheels come from the index as ``requirements.lock`` has them, so each has one of the lock's hashes; pyconfd's own is
built here. ``requirements.txt`` beside them has exactly one hash for each: what pip installs from it, offline, is what
was put here.
"""

import hashlib
import platform
import re
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from release.project import ROOT, VERSION, ReleaseError, run, version, wheel_tags

BUILD_ONLY = ("flit-core==",)
"""In the lock for installations from a checkout; what is built already does not need it."""

GLIBC = (36, 35, 34, 31, 28, 17, 12, 5)
"""Debian 12 has glibc 2.36; wheels for these older ones run there too."""


def build_wheelhouse(target: Path, cache: Path | None = None, *, python: str = VERSION) -> Path:
    """Put the wheels and their list into ``target``, whole or not at all; gives pyconfd's own wheel.

    ``python`` is the version of the interpreter that they are for. ``cache`` is a directory with wheels from an earlier
    time; those that have the lock's hashes are taken from there.

    Raises:
        ReleaseError: when a wheel cannot be had.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".wheelhouse-", dir=target.parent) as scratch:
        fresh = Path(scratch) / "wheels"
        fresh.mkdir()
        _locked_wheels(fresh, cache if cache is not None else target, python)
        own = build_wheel(fresh)
        (fresh / "requirements.txt").write_text(requirements(fresh), encoding="utf-8")
        fresh.chmod(0o755)
        for path in fresh.iterdir():
            path.chmod(0o644)
        if target.exists():
            shutil.rmtree(target)
        fresh.rename(target)
    return target / own.name


def build_wheel(target: Path) -> Path:
    """Build pyconfd's own wheel into ``target``.

    Raises:
        ReleaseError: when it cannot be built.
    """
    run([sys.executable, "-m", "flit_core.wheel", "--outdir", target])
    return target / f"pyconfd-{version()}-py3-none-any.whl"


def _locked_wheels(target: Path, cache: Path, python: str) -> None:
    """Get what the lock names, as wheels for Debian 12 and later on this kind of machine."""
    machine = platform.machine()
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in GLIBC]
    platforms += [f"--platform=manylinux2014_{machine}", f"--platform=manylinux1_{machine}"]
    lock = target.parent / "requirements.lock"
    lock.write_text(without_build_tools((ROOT / "requirements.lock").read_text(encoding="utf-8")), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--require-hashes", *wheel_tags(python), *platforms]
    command += ["--dest", str(target), "--requirement", str(lock)]
    try:
        run([*command, "--no-index", f"--find-links={cache}"])
    except ReleaseError:
        run(command)


def without_build_tools(lock: str) -> str:
    """Return the lock without what only builds: a requirement begins in the first column, its hashes are indented."""
    return "".join(item for item in re.split(r"^(?=\S)", lock, flags=re.MULTILINE) if not item.startswith(BUILD_ONLY))


def requirements(wheels: Path) -> str:
    """Return the list for ``pip install --no-index --find-links WHEELS --require-hashes``: a line and hash a wheel."""
    lines = []
    for wheel in sorted(wheels.glob("*.whl"), key=lambda path: path.name.lower()):
        name, number = wheel.name.split("-")[:2]
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines.append(f"{normalised(name)}=={number} \\\n    --hash=sha256:{digest}\n")
    return "".join(lines)


def normalised(name: str) -> str:
    """Return a distribution's name as indexes write it.

    Source: PyPA specifications, "Names and normalization".
    """
    return re.sub(r"[-_.]+", "-", name).lower()
