"""What Prometheus can find: each metric that pyconfd, its programs and HAProxy export, with labels and their values."""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml
from prometheus_client.core import Sample
from prometheus_client.parser import text_string_to_metric_families

from pyconfd.dns import report as dns
from pyconfd.model.certificate import PresentedCertificate
from pyconfd.model.route_figures import BOUNDS_S, CLASSES, RouteFigures
from pyconfd.status.metrics import exposition, registry_of
from pyconfd.status.route_metrics import route_exposition
from pyconfd.vip import report as vip
from tests.dns.test_report import document
from tests.docs.examples import ROOT
from tests.status.conftest import SAMPLE
from tests.world.haproxy import HaproxyProcess, free_port

RULES = sorted((ROOT / "docs" / "alerts").glob("*.rules.yml"))

Exported = dict[str, dict[str, set[str]]]
"""Metric, label, values."""

OF_THE_TARGET = frozenset({"instance", "job"})
"""Labels that each series gets where it is scraped."""

_SELECTOR = re.compile(r"\b(?P<metric>(?:pyconfd|haproxy|process)_[\w:]+)(?:\{(?P<matchers>[^}]*)\})?")
_MATCHER = re.compile(r'(?P<label>\w+)\s*(?:=~|!~|!=|=)\s*"(?P<value>[^"]*)"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring) ?\(([^)]*)\)")
_EXPORTER = """
global
    stats socket {socket} mode 600 level admin
defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 5s
frontend stats
    bind 127.0.0.1:{port}
    http-request use-service prometheus-exporter if {{ path /metrics }}
backend be
    server s 127.0.0.1:9 disabled
"""
"""As in 05-stats.tmpl."""


def samples(folder: Path) -> list[Sample]:
    """Return a sample of everything that is exported; ``folder`` is for a HAProxy, whose own exporter is asked."""
    texts = (*_of_pyconfd(), _of_haproxy(folder))
    return [sample for text in texts for family in text_string_to_metric_families(text) for sample in family.samples]


def labels_of(found: Iterable[Sample]) -> Exported:
    """Return the labels and values of each metric, and those of what the rules record of it."""
    known: Exported = defaultdict(lambda: defaultdict(set))
    for sample in found:
        labels = known[sample.name]
        for label, value in sample.labels.items():
            labels[label].add(value)
    for rule in rules():
        if "record" in rule:
            of = [known[name] for each in _SELECTOR.finditer(rule["expr"]) if (name := each["metric"]) in known]
            known[rule["record"]] = {label: values for labels in of for label, values in labels.items()}
    return dict(known)


def rules() -> Iterator[dict[str, Any]]:
    """Return all rules of docs/alerts, each with the file that it is in."""
    for path in RULES:
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            yield from ({**rule, "file": path} for rule in group["rules"])


def _of_pyconfd() -> Iterator[str]:
    certificate = PresentedCertificate("web", "web-tls", "www.example.com", 1_700_000_000)
    status = replace(SAMPLE, certificates=(certificate,))
    yield exposition(registry_of(lambda: status)).decode()
    figures = RouteFigures((1,) * len(CLASSES), (1,) * (len(BOUNDS_S) + 1))
    yield route_exposition({"gw_http_demo_web_0": figures}, {"gw_http_demo_web_0": {"www.example.com"}}).decode()
    yield dns.metrics(document())
    router = {"id": 51, "hold": "able", "faults": [], "alarms": [], "holds": True}
    checks = {"haproxy alive": {"ok": True}}
    yield vip.metrics({"at": 1.0, "troubles": {}, "netlink_resyncs": 0, "checks": checks, "routers": [router]})


def _of_haproxy(folder: Path) -> str:
    port = free_port()
    with HaproxyProcess(folder) as haproxy:
        haproxy.conf.write_text(_EXPORTER.format(socket=haproxy.stats_socket, port=port))
        haproxy.start()
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return str(answer.read().decode())


def unknown(expression: str, known: Exported, *, values: bool = True) -> list[str]:
    """Return what an expression, or a series, names and nothing exports.

    ``values``: what a label is compared with has to be one of its values too.
    """
    wrong, labels = [], set(OF_THE_TARGET)
    for selector in _SELECTOR.finditer(expression):
        of = known.get(selector["metric"])
        if of is None:
            wrong.append(selector["metric"])
            continue
        labels |= of.keys()
        for label, value in _MATCHER.findall(selector["matchers"] or ""):
            is_known = label in OF_THE_TARGET or (label in of and (not values or set(value.split("|")) <= of[label]))
            wrong += [] if is_known else [f'{selector["metric"]}{{{label}="{value}"}}']
    grouped = {label for group in _GROUPING.findall(expression) for label in re.findall(r"\w+", group)}
    return [*wrong, *sorted(grouped - labels)]


def promtool(*arguments: str | Path) -> None:
    """Run promtool of Debian's package "prometheus"; what it complains of is the assertion."""
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
