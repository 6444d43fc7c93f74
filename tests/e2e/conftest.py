from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import mirror
from tests.conformance.controlplane import ControlPlane
from tests.world.appliance import Appliance
from tests.world.haproxy import BINARY


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane | None]:
    """Return the real control plane where REAL_API is set."""
    if not mirror.WANTED:
        yield None
        return
    with mirror.control_plane(tmp_path_factory.mktemp("plane")) as started:
        yield started


@pytest.fixture
def appliance(tmp_path: Path, plane: ControlPlane | None) -> Iterator[Appliance]:
    """Return an appliance with one API server, nothing started; what failed is tried again at least each second."""
    if not Path(BINARY).exists():
        pytest.skip("no haproxy binary")
    with mirror.RealAppliance(tmp_path, plane) if plane else Appliance(tmp_path) as made:
        made.values["log"] = {"format": "json"}
        made.values["apply"] = {"retry_min_s": 0.2, "retry_max_s": 1.0}
        yield made


@pytest.fixture
def second(appliance: Appliance, tmp_path: Path) -> Iterator[Appliance]:
    """Return another balancer of the same cluster."""
    folder = tmp_path / "second"
    folder.mkdir()
    with Appliance(folder, api_servers=0) as made:
        made.cluster, made.servers = appliance.cluster, appliance.servers
        made.values["log"] = {"format": "json"}
        made.values["apply"] = appliance.values["apply"]
        made.values["kubernetes"] = appliance.values["kubernetes"]
        yield made
