"""What `pyconfd move --write` makes of Ingresses: the round trip by a real HAProxy, and what it leaves."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from pyconfd.app.moving_objects import Left, Written, objects_of
from pyconfd.model.snapshot import Key
from pyconfd.presets.preset import PresetOptions
from tests.moving.oracle import Made
from tests.moving.stage import MovingStage, moving_stage
from tests.moving.written import results_of
from tests.presets.gateway.objects import snapshot

FREQUENT: tuple[tuple[Mapping[str, str], str, str], ...] = (
    ({"proxy-body-size": "1k", "proxy-read-timeout": "1"}, "/app", "Prefix"),
    ({}, "/", "ImplementationSpecific"),
    ({"rewrite-target": "/"}, "/app", "Prefix"),
    ({"use-regex": "true"}, "/App/[a-z]+", "ImplementationSpecific"),
    ({"ssl-redirect": "false", "enable-cors": "true"}, "/app", "Prefix"),
    ({"whitelist-source-range": "192.0.2.0/24", "affinity": "cookie"}, "/app", "Prefix"),
    ({"permanent-redirect": "https://new.example.com"}, "/app", "Prefix"),
    ({"app-root": "/start", "limit-rps": "2"}, "/app", "Prefix"),
)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MovingStage]:
    with moving_stage(tmp_path_factory.mktemp("moving")) as found:
        yield found


@pytest.mark.haproxy
def test_frequent_annotations_are_the_same_as_objects_of_the_gateway_api(stage: MovingStage) -> None:
    made = [
        Made(2 * number + has_tls, said, path, kind, has_tls)
        for number, (said, path, kind) in enumerate(FREQUENT)
        for has_tls in (False, True)
    ]
    results = list(results_of(stage, made))
    assert [(each.made, each.reasons) for each in results if each.verdict != "same"] == []
    assert sum(each.requests for each in results) > 100


def written(annotations: Mapping[str, str], *, port: Any = 80, path: str = "/app", **spec: Any) -> Written | Left:
    backend = {"service": {"name": "app", "port": {"name" if isinstance(port, str) else "number": port}}}
    paths = [{"path": path, "pathType": "ImplementationSpecific", "backend": backend}]
    document = {
        "kind": "Ingress",
        "metadata": {"name": "web", "annotations": dict(annotations)},
        "spec": {"rules": [{"host": "a.example.com", "http": {"paths": paths}}], **spec},
    }
    service = "kind: Service\nmetadata: {name: app}\nspec: {ports: [{name: http, port: 8080}]}"
    (found,) = objects_of(snapshot(yaml.safe_dump(document), service), PresetOptions(), [Key("shop", "web")]).values()
    return found


NGINX = "nginx.ingress.kubernetes.io/"


def test_objects_of_an_ingress() -> None:
    annotations = {f"{NGINX}proxy-body-size": "8m", "cert-manager.io/cluster-issuer": "le", "pyconfd.io/retries": "2"}
    tls = [{"hosts": ["a.example.com"], "secretName": "web-tls"}]
    found = written(annotations, port="http", path="/", tls=tls)
    assert isinstance(found, Written)
    assert found.differs == ()
    listeners, route, redirect = found.objects
    assert [each["kind"] for each in found.objects] == ["ListenerSet", "HTTPRoute", "HTTPRoute"]
    assert [each["metadata"]["name"] for each in found.objects] == ["web", "web", "web-2"]
    assert listeners["metadata"]["annotations"] == {"cert-manager.io/cluster-issuer": "le"}
    (listener,) = listeners["spec"]["listeners"]
    assert (listener["hostname"], listener["tls"]) == ("a.example.com", {"certificateRefs": [{"name": "web-tls"}]})
    assert redirect["spec"]["rules"][0]["filters"][0]["requestRedirect"] == {"scheme": "https", "statusCode": 308}
    assert redirect["spec"]["parentRefs"][0]["sectionName"] == "http"
    assert route["metadata"]["annotations"] == {"pyconfd.io/max-body-size": "8m", "pyconfd.io/retries": "2"}
    assert [each["kind"] for each in route["spec"]["parentRefs"]] == ["ListenerSet"]
    (rule,) = route["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": "app", "port": 8080}]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]


@pytest.mark.parametrize(
    ("path", "target", "expected", "filtered"),
    [
        ("/App(/|$)(.*)", "/$2", "PathPrefix /App", {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}),
        ("/app", "/100%25", "RegularExpression (?i)/app.*", {"type": "ReplaceFullPath", "replaceFullPath": "/100%25"}),
        ("/app", "/app", "PathPrefix /app", None),
    ],
)
def test_rewrites(path: str, target: str, expected: str, filtered: object) -> None:
    found = written({f"{NGINX}rewrite-target": target}, path=path)
    assert isinstance(found, Written)
    (rule,) = found.objects[0]["spec"]["rules"]
    assert " ".join(rule["matches"][0]["path"].values()) == expected
    assert [each["urlRewrite"]["path"] for each in rule.get("filters", ())] == ([filtered] if filtered else [])


@pytest.mark.parametrize(
    ("said", "more", "why"),
    [
        ({f"{NGINX}rewrite-target": "/x/$1"}, {"path": "/a/(.*)"}, "no filter of the Gateway API"),
        ({f"{NGINX}configuration-snippet": "deny all;"}, {}, "it is refused"),
        ({f"{NGINX}canary": "true"}, {}, "it is a canary"),
        ({f"{NGINX}use-regex": "true"}, {"path": "/" + "x" * 1020}, "it has no path that is served"),
        ({f"{NGINX}canary": "true", f"{NGINX}canary-weight": "5"}, {}, "it is a canary"),
        ({}, {"port": "metrics"}, "port metrics of Service app is not in the file"),
    ],
)
def test_what_has_no_objects_is_left(said: dict[str, str], more: dict[str, Any], why: str) -> None:
    found = written(said, **more)
    assert isinstance(found, Left)
    assert why in found.why


def test_what_stands_for_a_word_of_ingresses_is_said() -> None:
    found = written({f"{NGINX}backend-protocol": "HTTPS"}, path="/")
    assert isinstance(found, Written)
    assert "backend-protocol is no word of an HTTPRoute: write appProtocol" in " ".join(found.differs)


def test_the_usual_size_of_bodies_is_written() -> None:
    found = written({})
    assert isinstance(found, Written)
    assert found.objects[0]["metadata"]["annotations"] == {"pyconfd.io/max-body-size": "1048576"}
    assert found.differs == ("path /app is compared by whole elements: /appx is not served",)


def test_a_host_has_one_listener_and_a_namespace_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyconfd.app.moving_objects.MOST_LISTENERS", 1)
    documents = [
        f"""
kind: Ingress
metadata: {{name: {name}}}
spec:
  rules:
  - host: {host}
    http: {{paths: [{{path: /{name}, pathType: Prefix, backend: {{service: {{name: app, port: {{number: 80}}}}}}}}]}}
  tls: [{{hosts: [{host}], secretName: tls}}]
"""
        for name, host in (("a", "x.test"), ("b", "x.test"), ("c", "y.test"))
    ]
    found = objects_of(snapshot(*documents), PresetOptions(), [Key("shop", name) for name in "abc"])
    kinds = {key.name: [each["kind"] for each in one.objects] for key, one in found.items() if isinstance(one, Written)}
    assert kinds == {"a": ["ListenerSet", "HTTPRoute", "HTTPRoute"], "b": ["HTTPRoute", "HTTPRoute"]}
    assert isinstance(found[Key("shop", "c")], Left)


def test_routes_have_so_many_rules() -> None:
    paths = [
        {"path": f"/{n}", "pathType": "Prefix", "backend": {"service": {"name": "app", "port": {"number": 80}}}}
        for n in range(20)
    ]
    found = written({}, rules=[{"host": "a.example.com", "http": {"paths": paths}}])
    assert isinstance(found, Written)
    assert [len(each["spec"]["rules"]) for each in found.objects] == [16, 4]
