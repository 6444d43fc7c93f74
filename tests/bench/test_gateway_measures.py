"""What ``make bench-gateway`` counts as right, its percentiles, and how it reads answers and the output of wrk."""

import json

import pytest

from tests.bench.gateway.measures import (
    Answer,
    Outcome,
    judge,
    line,
    parsed,
    percentile,
    reload_reasons,
    times,
    wrk_figures,
)
from tests.bench.gateway.objects import ADDED, probed_host, probed_route

WRK = """Running 5s test @ http://192.0.2.1:80/
  2 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   720.13us    1.09ms  22.31ms   92.61%
    Req/Sec     14.20k     1.51k   17.72k    70.00%
  Latency Distribution
     50%  450.00us
     75%  820.00us
     90%    1.61ms
     99%    1.20s
  141315 requests in 5.01s, 61.19MB read
  Socket errors: connect 1, read 2, write 0, timeout 4
  Non-2xx or 3xx responses: 3
Requests/sec:  28204.60
Transfer/sec:     12.21MB
"""


@pytest.mark.parametrize(
    ("answer", "served", "expected"),
    [
        (Answer(200, ADDED), False, Outcome.RIGHT),
        (Answer(200, ADDED), True, Outcome.RIGHT),
        (Answer(200), False, Outcome.WRONG),
        (Answer(404), False, Outcome.WAITING),
        (Answer(404), True, Outcome.WRONG),
        (Answer(503, ADDED), False, Outcome.WRONG),
        (Answer(500), False, Outcome.WRONG),
        (Answer(0), False, Outcome.WRONG),
    ],
)
def test_an_answer_is_judged(answer: Answer, served: bool, expected: Outcome) -> None:
    assert judge(answer, served=served, headers=ADDED) is expected


def test_all_headers_count_and_none_is_asked_for_by_default() -> None:
    assert judge(Answer(200, ADDED), served=False, headers={**ADDED, "more": "1"}) is Outcome.WRONG
    assert judge(Answer(200), served=False, headers={}) is Outcome.RIGHT


@pytest.mark.parametrize(
    ("count", "part", "expected"), [(1, 0.99, 1), (2, 0.5, 1), (3, 0.5, 2), (100, 0.5, 50), (100, 0.99, 99)]
)
def test_a_percentile_is_the_nearest_rank(count: int, part: float, expected: int) -> None:
    assert percentile(list(range(count, 0, -1)), part) == expected


def test_no_value_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        percentile([], 0.5)


def test_a_test_is_one_line_of_json() -> None:
    printed = line("route_probe", times([0.0104, 0.02, 0.3]))
    assert "\n" not in printed
    assert json.loads(printed) == {
        "test": "route_probe",
        "p50_ms": 20.0,
        "p99_ms": 300.0,
        "max_ms": 300.0,
        "measured": 3,
    }


def test_the_head_of_an_answer_is_parsed() -> None:
    answer = parsed(b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nAdded-Resp-Header: added-resp-value")
    assert answer == Answer(404, {"content-length": "3", **ADDED})
    with pytest.raises(ValueError, match="not an HTTP answer"):
        parsed(b"ICY 200 OK")


def test_reloads_are_counted_by_reason() -> None:
    metrics = """# TYPE pyconfd_reloads_total counter
pyconfd_reloads_total{reason="not_live"} 1
pyconfd_reloads_total{reason="section_added"} 2.0
pyconfd_reloads_failed_total 3
"""
    assert reload_reasons(metrics) == {"not_live": 1, "section_added": 2}


def test_the_output_of_wrk_is_read() -> None:
    assert wrk_figures(WRK) == {
        "errors": 10,
        "p50_ms": 0.45,
        "p90_ms": 1.61,
        "p99_ms": 1200.0,
        "requests": 141315,
        "requests_per_s": 28204.6,
    }
    with pytest.raises(ValueError, match="wrk printed no figures"):
        wrk_figures("unable to connect")


def test_the_probed_route_is_the_one_of_the_published_test() -> None:
    spec = probed_route(7)["spec"]
    first, second = spec["rules"]
    assert spec["hostnames"] == [probed_host(7)]
    assert [first["matches"][0]["path"]["value"], second["matches"][0]["path"]["value"]] == ["/7", "/"]
    assert [rule["backendRefs"][0]["name"] for rule in (first, second)] == ["backend", "invalid-backend"]
    for rule in (first, second):
        assert [each["type"] for each in rule["filters"]] == ["RequestHeaderModifier", "ResponseHeaderModifier"]
