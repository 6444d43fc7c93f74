from pathlib import Path

from tests.conformance import report

OUTPUT = """=== RUN   TestConformance/HTTPRouteWeight
--- FAIL: TestConformance (9.90s)
    --- PASS: TestConformance/HTTPRouteWeight (1.52s)
        --- PASS: TestConformance/HTTPRouteWeight/shares (0.02s)
    --- FAIL: TestConformance/HTTPRouteCORS (3.00s)
    --- SKIP: TestConformance/UDPRoute (0.00s)
"""
REPORT = """
profiles:
- name: GATEWAY-HTTP
  core: {result: success, statistics: {Passed: 37, Failed: 0, Skipped: 0}}
  extended:
    result: failure
    statistics: {Passed: 20, Failed: 1, Skipped: 0}
    supportedFeatures: [HTTPRouteCORS, GatewayPort8080]
- name: GATEWAY-TCP
  core: {result: partial, statistics: {Passed: 18, Failed: 0, Skipped: 1}}
  extended:
    result: success
    statistics: {Passed: 1, Failed: 0, Skipped: 0}
    supportedFeatures: [GatewayPort8080]
"""


def test_tests_are_told_from_their_parts() -> None:
    found = report.results(OUTPUT)
    assert found == {"HTTPRouteWeight": ("PASS", 1.52), "HTTPRouteCORS": ("FAIL", 3.0), "UDPRoute": ("SKIP", 0.0)}


def test_a_table_has_a_row_for_each_level_and_counts_features_once(tmp_path: Path) -> None:
    path = tmp_path / "report.yaml"
    path.write_text(REPORT)
    rows = report.table(path).splitlines()
    assert [row.split() for row in rows[1:5]] == [
        ["GATEWAY-HTTP", "core", "37", "0", "0", "success"],
        ["GATEWAY-HTTP", "extended", "20", "1", "0", "failure"],
        ["GATEWAY-TCP", "core", "18", "0", "1", "partial"],
        ["GATEWAY-TCP", "extended", "1", "0", "0", "success"],
    ]
    assert rows[5] == "extended features: 2: GatewayPort8080, HTTPRouteCORS"
