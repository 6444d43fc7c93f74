"""``/metrics/routes``: names, labels and values."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from pyconfd.model.route_figures import RouteFigures
from pyconfd.status.route_metrics import HostsByBackend, route_exposition

NOTHING = RouteFigures()


def samples(backend: str, figures: RouteFigures = NOTHING) -> list[str]:
    return [line for line in route_exposition({backend: figures}).decode().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("backend", "labels"),
    [
        ("gw_http_demo_web_2", 'kind="HTTPRoute",namespace="demo",name="web",rule="2"'),
        ("gw_grpc_demo_web_0", 'kind="GRPCRoute",namespace="demo",name="web",rule="0"'),
        ("ing_demo_shop_80", 'kind="Service",namespace="demo",name="shop",rule="80"'),
        ("ing_demo_shop_80_web", 'kind="Ingress",namespace="demo",name="web",rule="shop:80"'),
        ("ing_demo_shop_80_web_0123456789abcdef", 'kind="Ingress",namespace="demo",name="web",rule="shop:80"'),
        ("ing_demo_cut-off_80_0123456789abcdef", 'kind="",namespace="",name="",rule=""'),
        ("lb-demo:db:5432", 'kind="Service",namespace="demo",name="db",rule="5432"'),
        ("lb-demo", 'kind="",namespace="",name="",rule=""'),
        ("be-shop.example.com", 'kind="",namespace="",name="",rule=""'),
    ],
)
def test_labels_say_the_object_where_the_name_of_the_backend_does(backend: str, labels: str) -> None:
    assert samples(backend)[0] == f'pyconfd_route_connections_total{{backend="{backend}",{labels}}} 0'


def test_each_family_is_there_once_with_its_type() -> None:
    figures = RouteFigures((0, 7, 1, 1, 1), (4, 3, 0, 0, 0, 0, 0, 0, 0, 1, 2), 10, 100, 1000, 3, 1, 2, 5)
    text = route_exposition({"be-a": figures, "be-b": NOTHING}).decode()
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# TYPE pyconfd_route_requests_total counter",
        "# TYPE pyconfd_route_first_byte_seconds histogram",
        "# TYPE pyconfd_route_connections_total counter",
        "# TYPE pyconfd_route_bytes_in_total counter",
        "# TYPE pyconfd_route_bytes_out_total counter",
        "# TYPE pyconfd_route_retries_total counter",
        "# TYPE pyconfd_route_connect_errors_total counter",
        "# TYPE pyconfd_route_response_errors_total counter",
        "# TYPE pyconfd_route_sessions gauge",
    ]
    found = {
        line.split("{")[0].removeprefix("pyconfd_route_") + line.rpartition('rule=""')[2]
        for line in samples("be-a", figures)
    }
    assert found == {
        'requests_total,code="1xx"} 0',
        'requests_total,code="2xx"} 7',
        'requests_total,code="3xx"} 1',
        'requests_total,code="4xx"} 1',
        'requests_total,code="5xx"} 1',
        'first_byte_seconds_bucket,le="0.005"} 4',
        *(
            f'first_byte_seconds_bucket,le="{bound}"}} 7'
            for bound in ("0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5")
        ),
        'first_byte_seconds_bucket,le="5.0"} 8',
        'first_byte_seconds_bucket,le="+Inf"} 10',
        "connections_total} 10",
        "bytes_in_total} 100",
        "bytes_out_total} 1000",
        "retries_total} 3",
        "connect_errors_total} 1",
        "response_errors_total} 2",
        "sessions} 5",
    }


def test_the_list_of_them_is_complete() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    figures = RouteFigures((0,) * 5, (0,) * 11)
    text = route_exposition({"be-a": figures}, {"be-a": {"a.test"}}).decode()
    written = {re.split("[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}
    rows = re.findall(r"^\| (`pyconfd_route[^|]*) \|", page, re.MULTILINE)
    assert set(re.findall(r"pyconfd_route_\w+", " ".join(rows))) == written


def hosts(backends: Iterable[str], found: HostsByBackend) -> list[str]:
    text = route_exposition(dict.fromkeys(backends, NOTHING), found).decode()
    return [line for line in text.splitlines() if line.startswith("pyconfd_route_host")]


def test_hosts_are_shown_where_they_are_asked_for() -> None:
    found = {"be-a": {"b.test", "*.a.test"}, "be-gone": {"gone.test"}}
    assert hosts(["be-a", "be-b"], found) == [
        'pyconfd_route_host_info{backend="be-a",host="*.a.test"} 1',
        'pyconfd_route_host_info{backend="be-a",host="b.test"} 1',
        "pyconfd_route_hosts_left_out 0",
    ]
    assert not [line for line in samples("be-a") if "host" in line.partition("{")[0]]


def test_hosts_beyond_the_bound_are_counted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyconfd.status.route_metrics.HOSTS_SHOWN", 2)
    found = {f"be-{name}": {f"{name}.test", f"www.{name}.test"} for name in "ab"}
    assert hosts(found, found)[1:] == [
        'pyconfd_route_host_info{backend="be-a",host="www.a.test"} 1',
        "pyconfd_route_hosts_left_out 2",
    ]


def test_no_host_ends_its_label() -> None:
    (line, _) = hosts(["be-a"], {"be-a": {'x"} 1\n\\'}})
    assert line == r'pyconfd_route_host_info{backend="be-a",host="x\"} 1\\n\\"} 1'


def test_prometheus_client_parses_it() -> None:
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - of this test only

    figures = RouteFigures((0, 7, 1, 1, 1), (4, 3, 0, 0, 0, 0, 0, 0, 0, 1, 2))
    families = {
        each.name: each.type for each in text_string_to_metric_families(route_exposition({"a": figures}).decode())
    }
    assert families["pyconfd_route_requests"] == "counter"
    assert families["pyconfd_route_first_byte_seconds"] == "histogram"
