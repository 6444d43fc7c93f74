import shutil
from pathlib import Path

import pytest

from tests.image.bake import wheelhouse
from tests.release.checkout import build, checkout, repacked


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheelhouse of these sources, of which no other test changes anything meanwhile."""
    target = tmp_path_factory.mktemp("wheels")
    for wheel in wheelhouse().iterdir():
        shutil.copyfile(wheel, target / wheel.name)
    return target


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Path:
    return release(tmp_path_factory.mktemp("released") / "sources", wheels)


@pytest.fixture(scope="session")
def newer(released: Path) -> str:
    (found,) = released.glob("*.deb")
    return str(found)


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory, newer: str) -> str:
    """The package as that of an older version."""
    return str(repacked(Path(newer), tmp_path_factory.mktemp("older"), "9.0.0"))


def release(sources: Path, wheels: Path, *, umask: int = 0o022) -> Path:
    """Build release 9.1.0 of these sources; return its ``dist``."""
    with_wheels(checkout(sources, version="9.1.0"), wheels)
    done = build(sources, "release", umask=umask)
    assert done.returncode == 0, done.stderr
    return sources / "dist"


def with_wheels(sources: Path, wheels: Path) -> None:
    """Link wheels where the build looks for those of an earlier time."""
    kept = sources / "dist/wheelhouse"
    kept.mkdir(parents=True)
    for wheel in wheels.glob("*.whl"):
        (kept / wheel.name).hardlink_to(wheel)
