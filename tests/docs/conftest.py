import pytest
from prometheus_client.core import Sample

from tests.docs.exported import Exported, labels_of, samples


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    """A sample of everything that Prometheus can find."""
    return samples(tmp_path_factory.mktemp("haproxy"))


@pytest.fixture(scope="session")
def known(exported: list[Sample]) -> Exported:
    """The metrics and labels that Prometheus can find."""
    return labels_of(exported)
