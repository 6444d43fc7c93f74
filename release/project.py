"""What every artefact shares: the version, the date that is written into it, and how programs are run."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = f"python{VERSION}"
"""The interpreter that builds, for which wheels with compiled code are chosen: the one of the Debian release."""


MOST_LINES = 30
"""Of what a failed program said, the end."""


class ReleaseError(Exception):
    """Something stands in the way of an artefact; the text says what to do about it."""


def version() -> str:
    """Return the version; ``pyconfd/__init__.py`` is the only place that has it.

    Raises:
        ReleaseError: when it is not there.
    """
    text = (ROOT / "pyconfd/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([0-9]+\.[0-9]+\.[0-9]+(?:(?:a|b|rc)[0-9]+)?)"$', text, re.MULTILINE)
    if not found:
        raise ReleaseError('pyconfd/__init__.py has no line such as __version__ = "1.2.3" (or 1.2.3rc1)')
    return found[1]


def wheel_tags(python: str = VERSION) -> list[str]:
    """Return the options by which pip chooses wheels for the interpreter ``python`` ("3.13"), whichever runs pip."""
    own = f"--abi=cp{python.replace('.', '')}"
    return ["--only-binary=:all:", "--implementation=cp", own, "--abi=abi3", "--abi=none", f"--python-version={python}"]


def python_bounds() -> str:
    """Return what of ``python3`` the package depends on: its libraries are compiled for this minor version."""
    major, minor = (int(part) for part in VERSION.split("."))
    return f"python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1})"


def source_date_epoch() -> int:
    """Return the "now" of every artefact in seconds since 1970: SOURCE_DATE_EPOCH, else the last commit.

    Raises:
        ReleaseError: when there is neither, or the variable is no such number.
    """
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not given:
        git = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        given = git.stdout.strip()
    if not re.fullmatch(r"[0-9]{1,12}", given):
        raise ReleaseError("not a git checkout: set SOURCE_DATE_EPOCH to the seconds since 1970 of these sources")
    # A zip archive, and so a wheel, knows no earlier date.
    return max(int(given), 315_532_800)


def run(argv: Sequence[str | Path], *, cwd: Path = ROOT) -> None:
    """Run a program with the date of the sources in its environment.

    Raises:
        ReleaseError: with what it said, when it failed.
    """
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(source_date_epoch()), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    done = subprocess.run(argv, cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        command = " ".join(str(word) for word in argv)
        said = "\n".join((done.stdout + done.stderr).splitlines()[-MOST_LINES:])
        raise ReleaseError(f"{command} ended with {done.returncode}:\n{said}")
