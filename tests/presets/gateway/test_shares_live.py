"""How requests are divided, and what happens where servers are missing, slow or failing, in a real haproxy."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyconfd.presets.gateway.servers import Reference
from tests.fragments.shipped import HAPROXY
from tests.presets.gateway import stage
from tests.presets.gateway.stage import Routes, ask, gateway, parsed, pods, running, shares
from tests.world.haproxy import free_port

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")]

NAME = "gw_demo_web_80"
TIMES = 400


@contextmanager
def served(folder: Path, *rules: tuple[dict[str, Any], Sequence[Reference]]) -> Iterator[int]:
    """Serve rules; each has as many references as it is given."""
    port = free_port()
    routes = Routes(NAME)
    for rule, references in rules:
        refs = [{"name": "web", "port": 80} for _ in references]
        routes.add(parsed({"backendRefs": refs, **rule}), *references)
    front, backends = gateway(NAME, [routes], port=port)
    with running([front], backends, folder):
        yield port


def header(value: str) -> list[dict[str, Any]]:
    edits = {"set": [{"name": "X-Backend", "value": value}]}
    return [{"type": "RequestHeaderModifier", "requestHeaderModifier": edits}]


def near(found: Counter[str], **percent: int) -> None:
    """Compare shares; four standard deviations of a random choice are allowed where it is one."""
    total = sum(found.values())
    assert set(found) == {name.replace("_", "") for name, share in percent.items() if share}, found
    for name, share in percent.items():
        assert abs(found[name.replace("_", "")] / total * 100 - share) < 10, found


@pytest.mark.parametrize(("old", "new"), [(100, 0), (80, 20), (60, 40), (0, 100), (1, 0)])
def test_one_backend_divides_by_weights_of_servers(tmp_path: Path, old: int, new: int) -> None:
    with pods("old", "old", "new") as (old_1, old_2, new_1):
        references = [stage.reference(old, (old_1.endpoint, old_2.endpoint)), stage.reference(new, (new_1.endpoint,))]
        with served(tmp_path, ({}, references)) as port:
            total = old + new
            near(shares(port, "/", TIMES), old=100 * old // total, new=100 * new // total)


def test_the_share_of_a_reference_without_endpoints_is_503(tmp_path: Path) -> None:
    with pods("new") as (new,):
        references = [stage.reference(40), stage.reference(60, (new.endpoint,))]
        with served(tmp_path, ({}, references)) as port:
            near(shares(port, "/", TIMES), new=60, _503=40)


def test_both_shares_of_what_leads_nowhere_and_what_is_empty(tmp_path: Path) -> None:
    with pods("web") as (web,):
        references = [stage.reference(2, (web.endpoint,)), stage.reference(1), stage.reference(1, resolved=False)]
        with served(tmp_path, ({}, references)) as port:
            near(shares(port, "/", TIMES), web=50, _503=25, _500=25)


def test_a_reference_without_weight_and_endpoints_costs_nothing(tmp_path: Path) -> None:
    with (
        pods("web") as (web,),
        served(tmp_path, ({}, [stage.reference(1, (web.endpoint,)), stage.reference(0)])) as port,
    ):
        near(shares(port, "/", 60), web=100)


def test_without_any_endpoint_it_is_503(tmp_path: Path) -> None:
    with served(tmp_path, ({}, [stage.reference(1), stage.reference(2)])) as port:
        assert ask(port, "/").status == 503


def test_the_share_of_an_invalid_reference_is_500(tmp_path: Path) -> None:
    with pods("web") as (web,):
        references = [stage.reference(3, (web.endpoint,)), stage.reference(1, resolved=False)]
        with served(tmp_path, ({}, references)) as port:
            near(shares(port, "/", TIMES), web=75, _500=25)


def test_references_with_filters_are_divided_at_random(tmp_path: Path) -> None:
    with pods("one", "two") as (one, two):
        refs = [{"name": each, "port": 80, "filters": header(each)} for each in ("one", "two", "none", "gone")]
        references = [stage.reference(20, (one.endpoint,)), stage.reference(60, (two.endpoint,)), stage.reference(50)]
        references.append(stage.reference(20, resolved=False))
        with served(tmp_path, ({"backendRefs": refs}, references)) as port:
            found: Counter[str] = Counter()
            for _ in range(TIMES):
                answer = ask(port, "/")
                name = answer.echo["pod"] if answer.status == 200 else str(answer.status)
                assert answer.status != 200 or answer.echo["headers"]["x-backend"] == [name]
                found[name] += 1
            # 20 of 150 lead nowhere, and 50 to what has no endpoints.
            near(found, one=13, two=40, _500=13, _503=33)


def test_references_with_filters_and_no_server_are_503(tmp_path: Path) -> None:
    refs = [{"name": each, "port": 80, "filters": header(each)} for each in ("one", "two")]
    with served(tmp_path, ({"backendRefs": refs}, [stage.reference(1), stage.reference(0)])) as port:
        assert ask(port, "/").status == 503


def test_a_slow_server_is_504_and_no_timeout_waits(tmp_path: Path) -> None:
    def slow(path: str) -> int:
        if "delay" in path:
            time.sleep(1.5)
        return 200

    with pods("web", script=slow) as (web,):
        rules = [
            {"matches": [{"path": {"value": path}}], "timeouts": timeouts}
            for path, timeouts in {
                "/short": {"request": "500ms"},
                "/none": {"request": "0s"},
                "/both": {"request": "10s", "backendRequest": "200ms"},
            }.items()
        ]
        with served(tmp_path, *((rule, [stage.reference(1, (web.endpoint,))]) for rule in rules)) as port:
            found = {path: ask(port, path).status for path in ("/short", "/short?delay", "/none?delay", "/both?delay")}
    assert found == {"/short": 200, "/short?delay": 504, "/none?delay": 200, "/both?delay": 504}


def test_a_request_is_tried_again_as_often_as_asked(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()

    def failing(path: str) -> int:
        asked[path] += 1
        time.sleep(0.3 if path.startswith("/slow") else 0)
        status, _, times = path.rpartition("?")[2].partition("-")
        return int(status) if asked[path] <= int(times) else 200

    with pods("web", script=failing) as (web,):
        rules = [
            {"matches": [{"path": {"value": "/three"}}], "retry": {"codes": [500], "attempts": 3}},
            {"matches": [{"path": {"value": "/none"}}], "retry": {"codes": [500, 503], "attempts": 0}},
            {
                "matches": [{"path": {"value": "/slow"}}],
                "retry": {"codes": [500], "attempts": 5},
                "timeouts": {"request": "800ms"},
            },
        ]
        with served(tmp_path, *((rule, [stage.reference(1, (web.endpoint,))]) for rule in rules)) as port:
            paths = ("/three?500-2", "/three?500-4", "/three?503-1", "/none?500-1", "/slow?500-1", "/slow?500-3")
            found = {path: ask(port, path).status for path in paths}
    assert found == {
        "/three?500-2": 200,
        "/three?500-4": 500,
        "/three?503-1": 503,
        "/none?500-1": 500,
        "/slow?500-1": 200,
        "/slow?500-3": 504,
    }
    assert asked["/three?500-4"] == 4


CORS = [
    {
        "allowOrigins": ["https://www.foo.com", "https://*.bar.com"],
        "allowMethods": ["GET", "OPTIONS"],
        "allowHeaders": ["x-header-1", "x-header-2"],
        "exposeHeaders": ["x-header-3", "x-header-4"],
        "allowCredentials": True,
        "maxAge": 3600,
    },
    {"allowOrigins": ["*"], "allowMethods": ["*"], "allowHeaders": ["*"]},
]
PREFLIGHT = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-header-1, x-header-2"}


@pytest.fixture(scope="module")
def cors_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    rules = [
        {"matches": [{"path": {"value": f"/{place}"}}], "filters": [{"type": "CORS", "cors": each}]}
        for place, each in enumerate(CORS)
    ]
    with pods("web") as (web,):
        given = [(rule, [stage.reference(1, (web.endpoint,))]) for rule in rules]
        with served(tmp_path_factory.mktemp("haproxy"), *given) as port:
            yield port


@pytest.mark.parametrize(
    ("path", "origin", "allowed"),
    [
        ("/0", "https://www.foo.com", True),
        ("/0", "https://www.bar.com", True),
        ("/0", "https://a.b.bar.com", True),
        ("/0", "https://bar.com", False),
        ("/0", "https://www.bar.com.evil.org", False),
        ("/0", "http://www.foo.com", False),
        ("/0", "https://wwwxfoo.com", False),
        ("/1", "https://foobar.com:12345", True),
    ],
)
def test_cross_origin_requests_are_answered_by_rules(cors_port: int, path: str, origin: str, allowed: bool) -> None:
    plain = ask(cors_port, path, headers={"Origin": origin})
    first = ask(cors_port, path, method="OPTIONS", headers={"Origin": origin, **PREFLIGHT})
    assert (plain.status, first.status) == (200, 204)
    for answer in (plain, first):
        assert answer.headers.get("access-control-allow-origin") == ([origin] if allowed else None)
        credentials = ["true"] if allowed and path == "/0" else None
        assert answer.headers.get("access-control-allow-credentials") == credentials
    methods, headers = (first.headers.get(f"access-control-allow-{each}") for each in ("methods", "headers"))
    if not allowed:
        assert methods is None
    elif path == "/0":
        assert (methods, headers) == (["GET, OPTIONS"], ["x-header-1, x-header-2"])
        assert first.headers["access-control-max-age"] == ["3600"]
        assert plain.headers["access-control-expose-headers"] == ["x-header-3, x-header-4"]
    else:
        assert (methods, headers) == (["PUT"], ["x-header-1, x-header-2"])


def test_options_without_an_origin_reach_the_server(cors_port: int) -> None:
    assert ask(cors_port, "/0", method="OPTIONS").echo["method"] == "OPTIONS"
