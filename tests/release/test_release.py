"""``make release``: the same sources give the same bytes, and what is lacking is told before anything is made."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest

from release.changelog import problem
from release.wheelhouse import without_build_tools
from tests.release.checkout import DEBIAN_PYTHON, LONG, ROOT, build, build_wheel_of, checkout, replace
from tests.release.conftest import release

pytestmark = pytest.mark.timeout(1500)
needs_dpkg = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="dpkg-deb is not installed")

COMPLETE = """\
# Changelog

## [Unreleased]

## [1.1.0] - 2026-11-22

### Added

- Something.

## [1.0.0] - 2026-01-01

- All.
"""


@pytest.mark.parametrize(
    ("pattern", "by", "expected"),
    [
        ("", "", ""),
        (r"1\.1\.0", "1.0.9", "its newest is 1.0.9"),
        (r" - 2026-11-22", "", "needs its date"),
        (r"- Something\.\n", "", "is empty"),
        (r"\[Unreleased\]\n", "[Unreleased]\n\n- More.\n", "1 lines stand under Unreleased"),
        (r"## \[1(.|\n)*", "", "it has none"),
    ],
)
def test_what_the_changelog_lacks_is_told(pattern: str, by: str, expected: str) -> None:
    text = re.sub(pattern, by, COMPLETE, count=1) if pattern else COMPLETE
    said = problem(text, "1.1.0")
    assert expected in said
    assert bool(said) == bool(expected)


def test_a_version_that_the_changelog_does_not_know_makes_nothing(tmp_path: Path) -> None:
    sources = checkout(tmp_path / "sources", version="9.1.0")
    replace(sources / "pyconfd/__init__.py", r'"9.1.0"', '"9.2.0"')
    done = build(sources, "release")
    assert done.returncode == 1
    assert "## [9.2.0] - YYYY-MM-DD" in done.stderr
    assert list((sources / "dist").iterdir()) == []


def test_only_what_builds_is_left_out_of_the_lock() -> None:
    lock = dedent("""\
        abc==1 \\
            --hash=sha256:00
            # via flit-core==3
        flit-core==3.12.0 \\
            --hash=sha256:11
            # via pyconfd
        ghi==2 \\
            --hash=sha256:22
        """)
    assert without_build_tools(lock) == lock.replace(
        "flit-core==3.12.0 \\\n    --hash=sha256:11\n    # via pyconfd\n", ""
    )


@needs_dpkg
def test_two_builds_of_the_wheel_give_the_same_bytes_and_the_checksums_are_those_of_all_files(
    tmp_path: Path, released: Path
) -> None:
    """The wheel in another directory, and by somebody with another umask; its dates are given."""
    sources = checkout(tmp_path / "somewhere-else" / "sources", version="9.1.0")
    again = build_wheel_of(sources, umask=0o077)
    assert again.read_bytes() == (released / again.name).read_bytes()
    listed = checked(released)
    assert {Path(name).suffix for name in listed if "/" not in name} == {".whl", ".deb", ".json", ".lock"}


def test_the_wheel_has_the_files_of_the_status_page_and_the_licence_of_the_plots(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel_of(checkout(tmp_path / "sources"), umask=0o022)) as wheel:
        names = set(wheel.namelist())
    static = ROOT / "pyconfd/status/static"
    assert {f"pyconfd/status/static/{path.name}" for path in static.iterdir()} <= names
    assert any(name.endswith("licenses/pyconfd/status/static/uPlot.LICENSE") for name in names)


def checked(released: Path) -> set[str]:
    """See that the list of checksums fits, and has every file; return their names."""
    listed = set()
    for line in (released / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((released / name).read_bytes()).hexdigest() == digest
        listed.add(name)
    made = {str(path.relative_to(released)) for path in released.rglob("*") if path.is_file()}
    assert made - listed == {"SHA256SUMS"}
    return listed


@needs_dpkg
@pytest.mark.skipif(not LONG, reason="a second release is built: make release-test")
def test_two_builds_give_the_same_bytes(tmp_path: Path, wheels: Path, released: Path) -> None:
    """In another directory, later, and by somebody with another umask."""
    time.sleep(2.1)  # the coarsest clock in an archive
    again = release(tmp_path / "somewhere-else" / "sources", wheels, umask=0o077)
    assert (again / "SHA256SUMS").read_text() == (released / "SHA256SUMS").read_text()
    assert checked(again) == checked(released)


@needs_dpkg
def test_the_bill_of_materials_names_each_wheel_with_its_hash(released: Path) -> None:
    document = json.loads((released / "pyconfd-9.1.0.cdx.json").read_text())
    own = document["metadata"]["component"]
    assert (own["name"], own["version"]) == ("pyconfd", "9.1.0")
    hashes = {part["hashes"][0]["content"] for part in (own, *document["components"])}
    assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", (released / "pyconfd-9.1.0.lock").read_text()))
    direct = next(link for link in document["dependencies"] if link["ref"] == own["bom-ref"])["dependsOn"]
    assert {re.sub(r"^pkg:pypi/|@.*", "", ref) for ref in direct} >= {"kubernetes", "jinja2", "boto3", "structlog"}
    known = {part["bom-ref"] for part in (own, *document["components"])}
    assert {ref for link in document["dependencies"] for ref in (link["ref"], *link["dependsOn"])} <= known
    assert all(part["licenses"] for part in document["components"])


@pytest.mark.skipif(not DEBIAN_PYTHON.exists(), reason="needs Debian 12 (/usr/bin/python3.11)")
def test_the_wheelhouse_installs_without_a_network(tmp_path: Path, wheels: Path) -> None:
    """As docs/releasing.md says, with every other index out of reach."""
    python = tmp_path / "opt/bin/python"
    subprocess.run([DEBIAN_PYTHON, "-m", "venv", "--without-pip", tmp_path / "opt"], check=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    environ["PIP_CONFIG_FILE"] = os.devnull
    command = [sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--no-index", "--no-compile"]
    command += [f"--find-links={wheels}", "--require-hashes", f"--requirement={wheels}/requirements.txt"]
    subprocess.run(command, check=True, env=environ)
    shown = subprocess.run([tmp_path / "opt/bin/pyconfd", "--version"], check=True, capture_output=True, text=True)
    assert shown.stdout.startswith("pyconfd, version ")
    installed = subprocess.run([python, "-c", "import flit_core"], check=False, capture_output=True)
    assert installed.returncode == 1
