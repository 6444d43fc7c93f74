"""All spellings of a path are one: a restriction of a path is one of each of them, and `explain` knows it."""

import http.client
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from pyconfd.presets.routing.paths import routed_path
from tests.presets.policies.stage import WAYS, PolicyStage, of_route, policy_stage
from tests.world.haproxy import HaproxyProcess, free_port

pytestmark = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        yield found


@ways
def test_a_restricted_path_has_all_its_spellings(stage: PolicyStage, way: str) -> None:
    restricted = WAYS[way]({"allow-networks": "192.0.2.0/24"}, path="/admin", name="admin")
    stage.serving(WAYS[way]({}), restricted)
    closed = (
        "/admin",
        "//admin",
        "/%61dmin",
        "/x/../admin",
        "/./admin",
        "/%2E/admin/",
        "/x/%2e%2E/admin/y",
        "/admin//",
    )
    opened = ("/x", "/admins", "/admin/../x", "/admin%2Fx", "/%2561dmin", "/.admin", "/x..", "/x/...")
    refused = ("/../admin", "/x/../..", "/\\admin", "/x\\..\\admin")
    expected = dict.fromkeys(closed, 403) | dict.fromkeys(opened, 200) | dict.fromkeys(refused, 400)
    assert {path: stage.request(way, path).status for path in expected} == expected


@ways
def test_no_long_spelling_of_a_restricted_path_is_open(stage: PolicyStage, way: str) -> None:
    # PCRE has a stack, and HAProxy a buffer: what they have no room for is not compared as it was written.
    restricted = WAYS[way]({"allow-networks": "192.0.2.0/24"}, path="/admin", name="admin")
    stage.serving(WAYS[way]({}), restricted)
    paths = [
        f"{before * number}/{name}{after * number}"
        for number in (100, 1_000, 2_000, 5_000, 7_000)
        for before, name, after in (
            ("/.", "admin", ""),
            ("/", "admin", ""),
            ("/%2e", "admin", ""),
            ("", "%61dmin/", "%"),
            ("", "%61dmin/", "%%"),
            ("", "admin", "/."),
        )
        if len(before + after) * number < 14_500
    ]
    answers = {path: stage.request(way, path, is_explained=len(path) < 7_000).status for path in paths}
    assert {path[:30]: status for path, status in answers.items() if status not in {400, 403}} == {}
    assert stage.request(way, "/./" * 1_000 + "admin").status == 403
    assert stage.request(way, "/x" * 3_000).status == 200


def test_no_long_path_goes_around_an_expression_that_restricts(stage: PolicyStage) -> None:
    restricted = yaml.safe_load(of_route({"allow-networks": "192.0.2.0/24"}, name="admin"))
    restricted["spec"]["rules"][0]["matches"] = [{"path": {"type": "RegularExpression", "value": "/admin(/.*)?"}}]
    stage.serving(of_route({}), of_route({}, path="/public", name="public"), yaml.safe_dump(restricted))
    expected = {"/admin/" + "a" * 1_000: 403, "/admin/" + "a" * 1_100: 414, "/b": 200, "/public/" + "a" * 1_100: 200}
    assert {path: stage.request("httproute", path).status for path in expected} == expected
    stage.serving(of_route({}))
    assert stage.request("httproute", "/" + "a" * 1_100).status == 200


@ways
def test_the_pod_gets_the_path_as_it_was_written(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({}, path="/a"))
    assert stage.request(way, "/x/..//%61/b%2Fc?d=/../").echo["path"] == "/x/..//%61/b%2Fc?d=/../"


@ways
def test_an_object_may_write_an_escape(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({}, path="/%7Euser"))
    assert [stage.request(way, path).status for path in ("/~user", "/%7euser", "/user")] == [200, 200, 404]


def test_the_root_is_the_root_in_all_spellings(stage: PolicyStage) -> None:
    stage.serving(WAYS["ingress"]({"app-root": "/app"}))
    assert [stage.request("ingress", path).status for path in ("/", "//", "/a/..", "/a")] == [302, 302, 302, 200]


def test_any_path_is_read_as_by_haproxy(stage: PolicyStage, tmp_path: Path) -> None:
    rendering, _ = stage.rendered(WAYS["ingress"]({}))
    frontend = re.split(r"(?m)^(?=\S)", rendering.text.partition("frontend http-in\n")[2])[0]
    lines = [each for each in frontend.splitlines() if "routed_path)" in each and "txn.route)" not in each]
    lines = [each for each in lines if "https-redirects" not in each]
    assert len(lines) == 4
    random_ = random.Random(1)
    parts = ["/", "//", "/.", "/..", "a", ".", "b.c", "%61", "%2e", "%2F", "%25", "%", "%4", "~", "%7e", "%5F", "/x"]
    paths = ["/" + "".join(random_.choices(parts, k=random_.randint(0, 9))) for _ in range(1_500)]
    # About the bound, in depth and in number.
    paths += ["/" + "a/../" * 102, "/" + "a/../" * 103, "/" + "a/" * 600, "/" + "a/./" * 600 + "..", "/" + "%2e/" * 900]
    paths += ["/x" * 102 + "/.." * 102, "/x" * 103 + "/.." * 103, "/x" * 9 + "/.." * 10, "/%61" * 254 + "/.."]
    paths += ["/a\\b", "/x%41" * 819, "/x%41" * 820, "/" + "%" * 4_095, "/" + "/." * 2_047, "/a" * 5_000]
    found = dict(zip(paths, _read(paths, lines, tmp_path), strict=True))
    assert {path: each for path, each in found.items() if each != routed_path(path)} == {}
    assert None in found.values()


def _read(paths: Sequence[str], lines: Sequence[str], folder: Path) -> Iterator[str | None]:
    """Return the paths as HAProxy compares them, None for 400."""
    port = free_port()
    answer = 'http-request return status 200 content-type text/plain lf-string "%[var(txn.routed_path)]"'
    with HaproxyProcess(folder / "own") as process:
        process.conf.write_text(
            "\n".join(
                [
                    "defaults",
                    "    mode http",
                    "    timeout client 1m",
                    "frontend paths",
                    f"    bind 127.0.0.1:{port}",
                    "    http-request set-var(txn.path) path",
                    *lines,
                    f"    {answer}",
                    "",
                ]
            )
        )
        process.start()
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            for path in paths:
                connection.request("GET", path)
                response = connection.getresponse()
                body = response.read().decode()
                yield body if response.status == 200 else None
