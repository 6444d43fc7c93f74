"""Which objects something came of, and a Snapshot without some of them."""

from types import SimpleNamespace
from typing import Any

import pytest

from pyconfd.model.claim import Claim, ClaimedBackend
from pyconfd.model.kubernetes import ConfigMap, ObjectRef, Pod
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.presets.gateway.frontends import FrontendKind, GatewayFrontend
from pyconfd.presets.origins import (
    Filter,
    ObjectOrigin,
    ObjectOrigins,
    everything,
    exists,
    owners_among,
    ref_of,
    version_of,
)
from pyconfd.presets.routing.types import RouteBackend
from pyconfd.presets.views import CertificateView, NodeText, NodeView
from tests.presets import objects

WEB, API, APP, MAP = Key("demo", "web"), Key("demo", "api"), Key("demo", "app"), Key("lb", "services")
SEEN = Snapshot(
    services={WEB: objects.service("web"), API: objects.service("api")},
    endpoints={APP: objects.endpoints("app", None)},
    pods={Key("demo", "web-1"): Pod(ObjectMeta("web-1", "demo"))},
    nodes={Key("", "n1"): objects.node("n1", "192.0.2.1")},
    config_maps={MAP: ConfigMap(ObjectMeta("services", "lb"), {"shop": "{}", "blog": "{}"})},
    cluster="east",
)
SERVICE_WEB = ObjectOrigin(Resource.SERVICES, WEB)
SERVICE_API = ObjectOrigin(Resource.SERVICES, API)
SHOP = ObjectOrigin(Resource.CONFIGMAPS, MAP, "shop")
POD = ObjectOrigin(Resource.PODS, Key("demo", "web-1"))
NODE = ObjectOrigin(Resource.NODES, Key("", "n1"))


def claim(kind: str, key: Key, *names: str, section: str = "", item: str = "") -> Claim:
    backends = (ClaimedBackend(section, section, f"key:{section}", ()),) if section else ()
    return Claim(ObjectRef(kind, *key), "p", "because", names, backends, item=item)


def node(name: str) -> NodeView:
    return NodeView(name, "", (), ready=True, schedulable=True, eligible=True)


CLAIMS = (
    claim("Service", WEB, "shop.example.com", section="be_web"),
    claim("Endpoints", API, "api.example.com"),
    claim("ConfigMap", MAP, section="shop_backend", item="shop"),
    claim("Service", Key("demo", "gone"), "gone.example.com"),
)


def test_what_is_left_out_owns_its_names_a_pod_those_of_its_app() -> None:
    key = Key("prod", "pod-1")
    origins = [ObjectOrigin(Resource.PODS, key), ObjectOrigin(Resource.SERVICES, Key("prod", "web"))]
    labelled = Pod(metadata=ObjectMeta(name="pod-1", namespace="prod", labels={"app": "shop"}))
    assert owners_among(Snapshot(pods={key: labelled}), origins) == {Key("prod", "shop"), Key("prod", "web")}
    assert owners_among(Snapshot(), origins) == {key, Key("prod", "web")}
    assert owners_among(Snapshot(), ()) == frozenset()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("nothing", []),
        ("web", [SERVICE_WEB]),
        ("[web]", [SERVICE_WEB]),
        # A part of a word is none, and what is no letter or digit ends one.
        ("webs", []),
        ("2web", []),
        ("a-web_b", [SERVICE_WEB]),
        ("be_web", [SERVICE_WEB]),
        ("line 3: host shop.example.com of n1", [SERVICE_WEB, SHOP, NODE]),
        # The longest mention first: a name of a claim is one.
        ("api web-1 shop.example.com", [SERVICE_WEB, POD, SHOP, SERVICE_API]),
        ("api.example.com shop", [SERVICE_API, SHOP]),
        ("shop_backend", [SHOP]),
        ("key:shop_backend", [SHOP]),
        ("gone.example.com", [ObjectOrigin(Resource.SERVICES, Key("demo", "gone"))]),
    ],
)
def test_what_a_text_mentions(text: str, found: list[ObjectOrigin]) -> None:
    assert ObjectOrigins(SEEN, CLAIMS).mentioned(text) == found


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (node("n1"), {NODE}),
        (NodeText("n1"), {NODE}),
        (node("n2"), set()),
        (CertificateView("demo", "tls", "PEM"), set()),
        ("be_web", {SERVICE_WEB}),
        ("key:be_web", {SERVICE_WEB}),
        ("shop.example.com", {SERVICE_WEB}),
        ("shop", set()),
        ("other", set()),
        ("gone.example.com", set()),
        (RouteBackend("be_web", "owner", "demo", "other", (), ()), {SERVICE_WEB}),
        ({"metadata": {"namespace": "demo", "name": "web-1"}}, {POD}),
        ({"metadata": {"namespace": "demo", "name": "web-2"}}, set()),
        ({"name": "shop_backend", "pods": {}}, {SHOP}),
        ({"name": "none", "pods": {}}, set()),
        ({"namespace": "demo", "name": "web"}, {SERVICE_WEB}),
        ({"namespace": "demo", "service": "api", "name": "web"}, {SERVICE_API}),
        (SimpleNamespace(namespace="demo", name="app"), {ObjectOrigin(Resource.SERVICES, APP)}),
        (SimpleNamespace(namespace="demo", name=7), set()),
        (SimpleNamespace(backend="be_web", default_backend="api.example.com"), {SERVICE_WEB, SERVICE_API}),
        (SimpleNamespace(routes=[{"backend": "be_web"}, {"backend": "none"}]), {SERVICE_WEB}),
        (7, set()),
        (None, set()),
    ],
)
def test_what_a_value_was_made_of(value: Any, found: set[ObjectOrigin]) -> None:
    origins = ObjectOrigins(SEEN, CLAIMS)
    assert origins.of(value) == found
    assert origins.of_element(value) == found
    assert origins.of_element(("none", [value, "be_web"])) == {*found, SERVICE_WEB}


def test_a_frontend_was_made_of_its_gateway() -> None:
    front = GatewayFrontend("gw", "Gateway shop/web", FrontendKind.HTTP, ("192.0.2.1",), 80)
    gateway = ObjectOrigin(Resource.GATEWAYS, Key("shop", "web"))
    there: Any = {Key("shop", "web"): object()}
    assert ObjectOrigins(Snapshot(gateways=there), ()).of(front) == {gateway}
    assert ObjectOrigins(Snapshot(), ()).of(front) == frozenset()


def test_a_frontend_was_made_of_its_listener_sets_before_its_gateway() -> None:
    front = GatewayFrontend("gw", "Gateway shop/web", FrontendKind.HTTP, ("192.0.2.1",), 80, added=(Key("a", "more"),))
    there: Any = {Key("shop", "web"): object()}
    added: Any = {Key("a", "more"): object()}
    snapshot = Snapshot(gateways=there, listenersets=added)
    assert ObjectOrigins(snapshot, ()).of(front) == {ObjectOrigin(Resource.LISTENERSETS, Key("a", "more"))}


def test_all_that_can_be_left_out() -> None:
    assert everything(SEEN, CLAIMS) == {
        SERVICE_WEB,
        SERVICE_API,
        ObjectOrigin(Resource.SERVICES, APP),
        POD,
        NODE,
        SHOP,
    }


def test_a_service_stands_for_the_endpoints_of_its_name() -> None:
    both = ObjectOrigin(Resource.SERVICES, APP)
    assert ref_of(SEEN, both) == ObjectRef("Endpoints", "demo", "app", "east")
    assert ref_of(SEEN, SERVICE_WEB) == ObjectRef("Service", "demo", "web", "east")
    assert ref_of(SEEN, NODE) == ObjectRef("Node", "", "n1", "east")
    assert ObjectOrigin.at(ObjectRef("Endpoints", "demo", "app")) == both
    assert ObjectOrigin.at(ObjectRef("ConfigMap", *MAP), "shop") == SHOP
    assert version_of(SEEN, both) == (None, SEEN.endpoints[APP])
    assert version_of(SEEN, SERVICE_WEB) == (SEEN.services[WEB], None)
    assert version_of(SEEN, NODE) == (SEEN.nodes[NODE.key],)
    assert version_of(SEEN, SHOP) == ("{}",)
    assert version_of(SEEN, SHOP._replace(entry="none")) == version_of(Snapshot(), SHOP) == (None,)
    assert [exists(SEEN, each) for each in (both, SHOP, SHOP._replace(entry="none"))] == [True, True, False]


def test_what_is_left_out_is_gone_and_all_else_is_the_same_object() -> None:
    filtered = Filter()
    assert filtered.without(SEEN, ()) is SEEN
    left = filtered.without(SEEN, [SERVICE_WEB, ObjectOrigin(Resource.SERVICES, APP), SHOP, NODE])
    assert dict(left.services) == {API: SEEN.services[API]}
    assert dict(left.endpoints) == {}
    assert dict(left.nodes) == {}
    assert left.pods is SEEN.pods
    assert left.config_maps[MAP].data == {"blog": "{}"}
    assert filtered.without(SEEN, [ObjectOrigin(Resource.PODS, Key("demo", "none"))]).pods is SEEN.pods
    again = filtered.without(SEEN, [SERVICE_WEB, ObjectOrigin(Resource.SERVICES, APP), SHOP, NODE])
    assert again.services is left.services
    assert again.config_maps[MAP] is left.config_maps[MAP]
    assert filtered.without(SEEN, [SHOP._replace(key=Key("lb", "none"))]).config_maps == SEEN.config_maps
