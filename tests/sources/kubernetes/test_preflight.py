"""What each API server is asked before the start."""

import time

import pytest

from pyconfd.errors import ConfigurationError
from pyconfd.model.preflight import Level
from pyconfd.model.snapshot import Named, Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.preflight import look
from pyconfd.sources.kubernetes.resources import reads
from pyconfd.system.clock import SystemClock
from tests.world.apiserver import ApiServer
from tests.world.faults import Fault, FaultKind


class WrongClock(SystemClock):
    """A machine whose time of day is off."""

    def __init__(self, off_s: float) -> None:
        self._off_s = off_s

    def now(self) -> float:
        return time.time() + self._off_s


@pytest.mark.parametrize(
    ("off_s", "level", "words"),
    [(0.0, Level.OK, "same time"), (600.0, Level.WARNING, "ahead of"), (-600.0, Level.WARNING, "behind")],
)
def test_the_clock_is_compared_with_the_servers(off_s: float, level: Level, words: str) -> None:
    with ApiServer() as server:
        found, _ = look(KubernetesSettings(api_servers=(server.url,)), (), clock=WrongClock(off_s))
    (told,) = [each for each in found if each.topic == "clock"]
    assert (told.level, words in told.message) == (level, True)


def test_all_that_the_source_reads_is_asked_for_as_the_source_asks() -> None:
    named = {Named(Resource.CONFIGMAPS, "lb", "services")}
    settings = KubernetesSettings(secret_namespaces=("web",))
    wanted = reads(settings, {Resource.SERVICES, Resource.SECRETS}, named)
    assert [str(each) for each in wanted] == [
        "services",
        "secrets of namespace web",
        "configmaps lb/services",
    ]
    with ApiServer() as server:
        found, _ = look(KubernetesSettings(api_servers=(server.url,)), wanted)
        assert {each.level for each in found} == {Level.OK}
        for read in wanted:
            asked = [each for each in server.requests if each.path == read.path]
            assert [each.verb for each in asked] == ["list", "watch"]
            assert all(each.query.items() >= read.params.items() for each in asked)
        assert server.watches() == 0 or server.wait_until(lambda: server.watches() == 0, 30)
        assert {each.method for each in server.requests} == {"GET"}


def test_a_server_that_never_answers_is_given_up() -> None:
    with ApiServer() as server:
        server.faults.add(Fault(FaultKind.HANG))
        found, _ = look(KubernetesSettings(api_servers=(server.url,)), (), total_s=0.2)
    assert [each.level for each in found] == [Level.FAILURE]
    assert "not done within" in found[0].message or "no answer" in found[0].message


def test_without_any_server_there_is_nothing_to_ask() -> None:
    with pytest.raises(ConfigurationError):
        look(KubernetesSettings(kubeconfig="/nowhere"), ())
