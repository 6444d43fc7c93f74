"""Reading the cluster once, and the Secrets of some namespaces."""

import pytest

from pyconfd.errors import TransientError
from pyconfd.model.snapshot import Key
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.source import read_once
from tests.sources.kubernetes.conftest import ALL, addresses
from tests.world.apiserver import ApiServer

SHOP = Key("demo", "shop")


def test_read_once(server: ApiServer) -> None:
    snapshot, refusals = read_once(KubernetesSettings(api_servers=(server.url,)), ALL, 20)
    assert addresses(snapshot) == {"10.0.0.1", "10.0.0.2"}
    assert refusals == ()
    assert server.seen("", "watch") == []


def test_read_once_names_each_servers_error(servers: list[ApiServer]) -> None:
    servers[0].refuse()
    servers[1].faults.answer(500)
    servers[2].faults.html()
    with pytest.raises(TransientError) as caught:
        read_once(KubernetesSettings(api_servers=tuple(server.url for server in servers)), ALL, 20)
    text = str(caught.value)
    assert all(server.url in text for server in servers)
    assert "refused" in text
    assert "HTTP 500" in text
    assert "instead of JSON" in text


def test_read_once_does_not_wait_for_what_a_person_must_mend(server: ApiServer) -> None:
    server.faults.deny("services")
    with pytest.raises(TransientError, match="HTTP 403"):
        read_once(KubernetesSettings(api_servers=(server.url,)), ALL, 3600)


def test_read_once_has_a_limit(server: ApiServer) -> None:
    server.faults.hang("nodes")
    with pytest.raises(TransientError, match="no whole answer within"):
        read_once(KubernetesSettings(api_servers=(server.url,)), ALL, 0.3)
