from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.haproxy.bench import Bench, Live
from tests.haproxy.serving import Served
from tests.world.backends import Backends
from tests.world.haproxy import BINARY, HaproxyProcess


@pytest.fixture(autouse=True)
def _needs_haproxy(request: pytest.FixtureRequest) -> None:
    starts_it = {"bench", "served", "stage"} & {*request.fixturenames}
    if (starts_it or request.node.get_closest_marker("haproxy")) and not Path(BINARY).exists():
        pytest.skip("no haproxy binary")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr("pyconfd.haproxy.process.file_writer.SHARE", 1.0)  # the file is written without pauses
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        bench = Bench(tmp_path, haproxy)
        yield bench
        bench.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Backends() as pods, HaproxyProcess(tmp_path / "etc") as haproxy:
        made = Served(tmp_path, haproxy, pods)
        yield made
        made.runtime.close()


@pytest.fixture
def live(bench: Bench) -> Live:
    return Live(bench)
