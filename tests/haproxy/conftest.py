from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.haproxy.bench import Bench
from tests.world.haproxy import BINARY, HaproxyProcess


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    if not Path(BINARY).exists():
        pytest.skip("no haproxy binary")
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        bench = Bench(tmp_path, haproxy)
        yield bench
        bench.close()
