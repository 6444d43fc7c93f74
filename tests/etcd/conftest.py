from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.etcd.harness import EtcdHarness, Makers
from tests.world.etcd import BINARY, EtcdProcess
from tests.world.haproxy import BINARY as HAPROXY


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    if not Path(BINARY).exists():
        pytest.skip("no etcd binary")
    with EtcdProcess(tmp_path / "etcd") as process:
        yield process


@pytest.fixture
def harness(tmp_path: Path, etcd: EtcdProcess) -> Iterator[EtcdHarness]:
    if not Path(HAPROXY).exists():
        pytest.skip("no haproxy binary")
    with EtcdHarness(tmp_path / "harness", etcd) as harness:
        yield harness


@pytest.fixture
def makers(etcd: EtcdProcess, tmp_path: Path) -> Iterator[Makers]:
    with ExitStack() as stack:
        yield Makers(etcd, tmp_path, stack)
