"""Paths of Ingresses that were written for ingress-nginx, by a real HAProxy."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from pyconfd.explain.request_answer import edited
from pyconfd.explain.routing import PathCandidate, PathTable
from pyconfd.presets.ingress import serving
from pyconfd.presets.policies import nginx
from pyconfd.presets.policies.nginx_paths import NginxPaths, fault_of_path
from pyconfd.presets.routing.rules import PathEdit
from pyconfd.presets.routing.types import PATH_EXPRESSIONS, PATH_PREFIXES
from tests.presets.policies.stage import HOST, PolicyStage, policy_stage, service


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        found.nginx_classes = ("nginx",)
        yield found


def ingress(
    name: str,
    paths: Mapping[str, str],
    *,
    namespace: str = "shop",
    class_name: str = "nginx",
    since: str = "2026-01-01T00:00:00Z",
    own: Mapping[str, str] | None = None,
    **annotations: str,
) -> str:
    """Return an Ingress with paths and their types; names of annotations of ingress-nginx have ``_`` for ``-``."""
    named = {f"{nginx.PREFIX}{key.replace('_', '-')}": text for key, text in annotations.items()}
    backend = {"service": {"name": "app", "port": {"number": 80}}}
    rule = {
        "host": HOST,
        "http": {"paths": [{"path": path, "pathType": kind, "backend": backend} for path, kind in paths.items()]},
    }
    meta = {
        "name": name,
        "namespace": namespace,
        "creationTimestamp": since,
        "annotations": {**named, **(own or {})},
    }
    return yaml.safe_dump(
        {"kind": "Ingress", "metadata": meta, "spec": {"ingressClassName": class_name, "rules": [rule]}}
    )


def statuses(stage: PolicyStage, *paths: str) -> dict[str, int]:
    return {path: stage.request("ingress", path).status for path in paths}


def targets(stage: PolicyStage, *paths: str) -> list[str]:
    return [stage.request("ingress", path).echo["path"] for path in paths]


@pytest.mark.haproxy
def test_expressions_are_of_the_beginning_in_any_case(stage: PolicyStage) -> None:
    context = stage.serving(ingress("web", {"/[A-Z]{3}": "ImplementationSpecific"}, use_regex="true"))
    assert not context.refused
    found = statuses(stage, "/ABC", "/uuid", "/abc/more?q=1", "/ab", "/12x", "/x/abc")
    assert found == {"/ABC": 200, "/uuid": 200, "/abc/more?q=1": 200, "/ab": 404, "/12x": 404, "/x/abc": 404}


@pytest.mark.haproxy
def test_use_regex_is_for_all_ingresses_of_the_host(stage: PolicyStage) -> None:
    exact = ingress("exact", {"/Header.s": "Exact"})
    stage.serving(exact)
    assert statuses(stage, "/Header.s", "/headerxs-more") == {"/Header.s": 200, "/headerxs-more": 404}
    stage.serving(exact, ingress("web", {"/x/[a-z]": "ImplementationSpecific"}, use_regex="true"))
    assert statuses(stage, "/Header.s", "/headerxs-more") == {"/Header.s": 200, "/headerxs-more": 200}


@pytest.mark.haproxy
def test_the_longest_expression_comes_first(stage: PolicyStage) -> None:
    stage.serving(
        ingress("one", {"/foo/bar/bar": "Prefix", "/foo/bar/[A-Z0-9]{3}": "ImplementationSpecific"}, use_regex="true"),
        ingress("two", {"/foo/(.*)": "ImplementationSpecific"}, rewrite_target="/two/$1"),
        ingress("three", {"/": "Prefix"}, rewrite_target="/"),
    )
    assert targets(stage, "/foo/bar/bar", "/foo/x", "/Foo/bar/1", "/else") == [
        "/foo/bar/bar",
        "/two/x",
        "/two/bar/1",
        "/else",
    ]


@pytest.mark.haproxy
def test_rewrites_by_captures(stage: PolicyStage) -> None:
    context = stage.serving(
        ingress(
            "web",
            {"/something(/|$)(.*)": "ImplementationSpecific", "/v[0-9]+/(a|b)-(x%y)?z": "ImplementationSpecific"},
            rewrite_target="/$2",
        ),
        ingress("whole", {"/old": "Prefix"}, rewrite_target="/new%20place"),
    )
    assert [each.field for each in context.refused] == ["spec.rules.http.paths.path"]
    assert targets(stage, "/something", "/something/", "/SOMETHING/new?a=b", "/old/x", "/something/%41") == [
        "/",
        "/",
        "/new?a=b",
        "/new%20place",
        "/%41",
    ]


@pytest.mark.haproxy
def test_without_expressions_a_path_is_the_beginning(stage: PolicyStage) -> None:
    stage.serving(ingress("web", {"/foo": "ImplementationSpecific", "/bar": "Prefix"}))
    found = statuses(stage, "/foo", "/foobar", "/foo/x", "/FOO", "/bar/x", "/barx")
    assert found == {"/foo": 200, "/foobar": 200, "/foo/x": 200, "/FOO": 404, "/bar/x": 200, "/barx": 404}


@pytest.mark.haproxy
def test_another_namespace_changes_no_path_of_the_host(stage: PolicyStage) -> None:
    shared = {"pyconfd.io/shared-with": "guest"}
    owner = ingress("web", {"/Only": "Exact"}, own=shared, since="2020-01-01T00:00:00Z")
    guest = ingress("web", {"/.*": "ImplementationSpecific"}, namespace="guest", use_regex="true")
    context = stage.serving(owner, guest)
    assert statuses(stage, "/Only", "/only", "/other") == {"/Only": 200, "/only": 404, "/other": 404}
    assert {each.ref.namespace for each in context.refused} == {"guest"}


@pytest.mark.parametrize(
    "path",
    ["/a|/b", "/(a+)+b", "/(?=x)", "/a b", "/" + "x" * 1100, "a", "/[[:alpha:]]", "/(.*)(.*)(.*)(.*)x", "/(", "/%"],
)
def test_what_is_no_expression(path: str) -> None:
    assert fault_of_path(path)


@pytest.mark.parametrize(
    "target",
    ["$1", "https://x.example.com/", "/$uri", "/a b", "/x?y=1", '/"', "/\\1", "/x\ny", "/" + "x" * 1100],
)
def test_what_is_no_target(target: str) -> None:
    paths = NginxPaths({f"{nginx.PREFIX}rewrite-target": target})
    with pytest.raises(ValueError, match="expected a path"):
        paths.edit("/a")


def test_a_target_is_text_beside_its_captures() -> None:
    paths = NginxPaths({f"{nginx.PREFIX}rewrite-target": "/%[src]/$1".replace("[", "").replace("]", "")})
    assert paths.edit("/(.*)") == PathEdit("(?i)^/(.*)", "/%%src/\\1")
    assert paths.edit(paths.target) is None


def test_a_namespace_has_so_many_expressions_at_all_of_its_hosts(
    stage: PolicyStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A request is compared with those of all hosts, also of other namespaces.
    monkeypatch.setattr(serving, "_MOST_EXPRESSIONS", 2)
    hosts = {
        name: ingress(name, {"/a[0-9]": "ImplementationSpecific"}, namespace="many", use_regex="true", since=since)
        .replace(HOST, f"{name}.example.com")
        for name, since in (("a", "2026-01-03T00:00:00Z"), ("b", "2026-01-01T00:00:00Z"), ("c", "2026-01-02T00:00:00Z"))
    }  # fmt: skip
    other = ingress("web", {"/a[0-9]": "ImplementationSpecific"}, use_regex="true")
    context = stage.context(*hosts.values(), other)
    assert set(context.names["ingress"]["virtual_hosts"]) == {"b.example.com", "c.example.com", HOST}
    assert {each.ref.name for each in context.refused if "more than 2 paths of this namespace" in each.detail} == {"a"}


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("path", "target", "asked"),
    [
        ("/a(/|$)(.*)", "/$2", "/A/b"),
        ("/b", "/new/$1", "/b/more"),
        ("/d/(x)", "/y/$1", "/d/x/rest"),
        ("/e/(.*)", "/$1%41$0", "/e/z"),
        ("/f(x)?(y)", "/$1-$2", "/fy"),
    ],
)
def test_explain_says_the_path_that_pods_are_asked_for(stage: PolicyStage, path: str, target: str, asked: str) -> None:
    stage.serving(ingress("web", {path: "ImplementationSpecific"}, rewrite_target=target))
    edit = NginxPaths({f"{nginx.PREFIX}rewrite-target": target}).edit(path)
    assert edit is not None
    assert targets(stage, asked) == [edited(asked, edit)]


@pytest.mark.haproxy
@pytest.mark.parametrize("path", ["/", "/api"])
def test_a_path_that_another_namespace_adds_comes_after_expressions(stage: PolicyStage, path: str) -> None:
    assert stage.pod is not None
    of_guest = service(stage.pod.port).replace("metadata: {", "metadata: {namespace: guest, ")
    shared = {"pyconfd.io/shared-with": "guest"}
    paths = {"/api/[a-z]+": "ImplementationSpecific", "/x[0-9]": "ImplementationSpecific"}
    owner = ingress("web", paths, own=shared, since="2020-01-01T00:00:00Z", use_regex="true")
    marked = {"pyconfd.io/response-headers": "X-Guest: yes"}
    guest = ingress("web", {path: "Prefix"}, namespace="guest", own=marked)
    context = stage.serving(owner, of_guest, guest)
    assert not context.refused
    assert ["x-guest" in stage.request("ingress", each).headers for each in ("/api/login", "/x1")] == [False, False]
    assert "x-guest" in stage.request("ingress", f"{path.removesuffix('/')}/0").headers


@pytest.mark.parametrize(
    ("asked", "found"),
    [("/foobar", "a/foo"), ("/foo", "a/foo"), ("/foo/x/1", "a/foo/x/"), ("/bar", "a/"), ("/y1", "(?i)^a/y[0-9]")],
)
def test_explain_finds_the_entry_that_haproxy_finds(asked: str, found: str) -> None:
    table = PathTable()
    for map_, key in (
        (PATH_PREFIXES, "a/"), (PATH_PREFIXES, "a/foo"), (PATH_PREFIXES, "a/foo/x/"),
        (PATH_EXPRESSIONS, "(?i)^a/y[0-9]"),
    ):  # fmt: skip
        table.add(PathCandidate(map_, key, key))
    candidate = table.find("a", asked)
    assert candidate is not None
    assert candidate.key == found


@pytest.mark.haproxy
def test_app_root_is_for_the_root_of_the_host(stage: PolicyStage) -> None:
    def root(*others: str, path: str = "/app", target: str = "") -> tuple[int, str, int]:
        web = ingress("web", {path: "ImplementationSpecific"}, app_root="/start", rewrite_target=target)
        stage.serving(web, *others)
        answer = stage.request("ingress", "/")
        return answer.status, answer.headers.get("location", [""])[0], stage.request("ingress", "/else").status

    redirected = (302, "/start", 404)
    assert root() == redirected
    assert root(path="/App(/|$)(.*)", target="/$2") == redirected
    assert root(ingress("beside", {"/x/[a-z]+": "ImplementationSpecific"}, use_regex="true")) == redirected
    assert root(ingress("beside", {"/": "Prefix"})) == (302, "/start", 200)
    assert root(path="/")[:2] == redirected[:2]
