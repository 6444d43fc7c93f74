"""What each API server is asked before the start."""

import time
from dataclasses import replace
from typing import Any

import pytest

from pyconfd.errors import ConfigurationError
from pyconfd.model.finding import Level
from pyconfd.model.snapshot import Named, Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.access import review
from pyconfd.sources.kubernetes.resources import Rights, manifest, reads
from pyconfd.system.clock import SystemClock
from tests.world.apiserver import ApiServer
from tests.world.faults import Fault, FaultKind
from tests.world.rbac import Rules


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
        found, _ = review(KubernetesSettings(api_servers=(server.url,)), Rights(), clock=WrongClock(off_s))
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
        found, _ = review(KubernetesSettings(api_servers=(server.url,)), Rights(wanted))
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
        found, _ = review(KubernetesSettings(api_servers=(server.url,)), Rights(), total_s=0.2)
    assert [each.level for each in found] == [Level.FAILURE]
    assert "not done within" in found[0].message or "no answer" in found[0].message


def test_without_any_server_there_is_nothing_to_ask() -> None:
    with pytest.raises(ConfigurationError):
        review(KubernetesSettings(kubeconfig="/nowhere"), Rights())


RIGHTS = Rights(
    reads(KubernetesSettings(), {Resource.SERVICES, Resource.GATEWAYS, Resource.GATEWAYCLASSES}, ()),
    {Resource.GATEWAYS, Resource.GATEWAYCLASSES, Resource.SERVICES},
    ("pyconfd", "lb"),
    events=True,
    owners=True,
    services=True,
)


def judged(server: ApiServer, *, applied: Rights = RIGHTS) -> tuple[list[str], list[str]]:
    """Return what is in order, and message and remedy of the rest; ``applied`` are the rights that were given."""
    server.rules = Rules(manifest(applied))
    found, _ = review(KubernetesSettings(api_servers=(server.url,)), RIGHTS)
    rights = [each for each in found if each.topic == "permissions"]
    good = [each.what.partition(" ")[2] for each in rights if each.level is Level.OK]
    return good, [f"{each.message} -> {each.remedy}" for each in rights if each.level is not Level.OK]


ALL_IN_ORDER = [
    *("services", "gatewayclasses", "gateways"),
    *("status of services", "status of gatewayclasses", "status of gateways"),
    *(
        "lease pyconfd/lb",
        "configmap pyconfd/lb-owners",
        "configmap pyconfd/lb-nodes",
        "events",
        "services of Gateways",
    ),
]


@pytest.mark.parametrize("installed", [True, False])
def test_what_rbac_prints_is_all_that_preflight_wants(installed: bool) -> None:
    with ApiServer() as server:
        server.cluster.add_namespace("pyconfd")
        if not installed:
            server.cluster.uninstall("gateway.networking.k8s.io")
        assert judged(server) == (ALL_IN_ORDER, [])
        before = server.cluster.rv
        judged(server)
        assert server.cluster.rv == before


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ({"statuses": {Resource.GATEWAYS, Resource.SERVICES}}, "may not patch gatewayclasses/status"),
        ({"lease": ("pyconfd", "other")}, "may not get and update the Lease pyconfd/lb"),
        ({"lease": ("elsewhere", "lb")}, "may not get and create and update the Lease"),
        ({"owners": False}, "may not get and create and update ConfigMaps lb-owners*"),
        ({"events": False}, "may not create events"),
        ({"services": False}, "may not create or patch services"),
        ({"reads": RIGHTS.reads[:2]}, "may not list and watch gateways"),
    ],
)
def test_a_right_that_is_missing_is_named(missing: dict[str, Any], words: str) -> None:
    with ApiServer() as server:
        server.cluster.add_namespace("pyconfd")
        problems = judged(server, applied=replace(RIGHTS, **missing))[1]
    assert [words in each for each in problems].count(True) == 1
    # Where the Lease is elsewhere, so are the record of names and that of the nodes, which are one right.
    assert len(problems) == (3 if "lease" in missing else 2 if "owners" in missing else 1)
    assert all("pyconfd rbac prints all" in each for each in problems)


def test_without_the_namespace_of_the_lease_nobody_can_hold_it() -> None:
    with ApiServer() as server:
        problems = judged(server)[1]
    assert ["there is no namespace pyconfd" in each for each in problems] == [True] * 3  # nor are there the records
