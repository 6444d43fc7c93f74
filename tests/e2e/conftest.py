from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.world.appliance import Appliance
from tests.world.haproxy import BINARY


@pytest.fixture
def appliance(tmp_path: Path) -> Iterator[Appliance]:
    """Return an appliance with one API server, nothing started; what failed is tried again at least each second."""
    if not Path(BINARY).exists():
        pytest.skip("no haproxy binary")
    with Appliance(tmp_path) as made:
        made.values["log"] = {"format": "json"}
        made.values["apply"] = {"retry_min_s": 0.2, "retry_max_s": 1.0}
        yield made
