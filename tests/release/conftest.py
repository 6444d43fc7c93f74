import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.image.bake import wheelhouse
from tests.release.checkout import LONG, build, checkout, repacked


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
def libraries() -> Iterator[Path | None]:
    """Where the short form has what others wrote: each installation would compile all of it."""
    with TemporaryDirectory(prefix="libraries-") as folder:
        Path(folder).chmod(0o755)  # the user pyconfd reads it too
        yield None if LONG else Path(folder)


@pytest.fixture(scope="session")
def versions(tmp_path_factory: pytest.TempPathFactory, newer: str, libraries: Path | None) -> tuple[str, str]:
    """The package as that of an older version, and of a newer one."""
    older, same = (
        str(repacked(Path(newer), tmp_path_factory.mktemp("repacked"), version, libraries))
        for version in ("9.0.0", "9.1.0")
    )
    return older, same if libraries else newer


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
