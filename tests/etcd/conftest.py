from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.etcd.stage import Stage
from tests.world.etcd import BINARY, EtcdProcess
from tests.world.haproxy import BINARY as HAPROXY


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    if not Path(BINARY).exists():
        pytest.skip("no etcd binary")
    with EtcdProcess(tmp_path / "etcd") as process:
        yield process


@pytest.fixture
def stage(tmp_path: Path, etcd: EtcdProcess) -> Iterator[Stage]:
    if not Path(HAPROXY).exists():
        pytest.skip("no haproxy binary")
    with Stage(tmp_path / "stage", etcd) as stage:
        yield stage
