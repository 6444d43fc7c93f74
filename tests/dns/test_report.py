import re
from pathlib import Path
from typing import Any

from pyconfd.dns.report import line, metrics

DOCS = Path(__file__).parents[2] / "docs"


def document(**more: Any) -> dict[str, Any]:
    name = {
        "name": "lb.example.com",
        "private": False,
        "active": True,
        "in_step": True,
        "kept": [],
        "problem": "",
        "read_at": 1_800_000_000.0,
        "changed_at": 0.0,
        "changes_total": 2,
        "failures_total": 3,
        "forgotten_total": 1,
    }
    private = name | {"private": True, "active": None, "in_step": False, "problem": "blocked", "kept": ["A stays"]}
    return {
        "at": 1_800_000_001.5,
        "active": True,
        "withdrawn_by_command": False,
        "reasons": [],
        "problem": "",
        "names": [name, private],
        "refused": {"x": "no name"},
        "requests_total": 7,
    } | more


def test_the_metrics_of_a_node_and_of_each_name() -> None:
    lines = metrics(document()).splitlines()
    assert "pyconfd_dns_report_timestamp_seconds 1800000001.500" in lines
    assert "pyconfd_dns_requests_total 7" in lines
    assert "pyconfd_dns_refused_names 1" in lines
    assert 'pyconfd_dns_name_active{name="lb.example.com",zone="public"} 1' in lines
    assert 'pyconfd_dns_name_active{name="lb.example.com",zone="private"} 0' in lines
    assert 'pyconfd_dns_name_stuck{name="lb.example.com",zone="private"} 1' in lines
    assert 'pyconfd_dns_name_kept{name="lb.example.com",zone="private"} 1' in lines
    kinds = {each.split()[2]: each.split()[3] for each in lines if each.startswith("#")}
    assert all((kind == "counter") == name.endswith("_total") for name, kind in kinds.items())


def test_the_list_of_metrics_is_complete() -> None:
    listed = set(re.findall(r"^\| `(pyconfd_dns_[a-z_]+)", (DOCS / "metrics.md").read_text(), re.MULTILINE))
    assert listed == set(re.findall(r"^pyconfd_dns_[a-z_]+", metrics(document()), re.MULTILINE))


def test_the_line_for_systemd() -> None:
    assert line(document()) == "in; 1 of 2 names in step; lb.example.com: blocked"
    out = document(active=False, reasons=["haproxy is away"], names=[])
    assert line(out) == "out; haproxy is away; 0 of 0 names in step"
    assert line(document(withdrawn_by_command=True, names=[])).startswith("withdrawn by command;")
