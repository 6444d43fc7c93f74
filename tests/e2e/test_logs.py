"""The access log: which object decided on a request, and ``pyconfd logs`` that reads it out of HAProxy's memory."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from select import select
from typing import Any

import pytest
import yaml

from tests.e2e.expect import serving
from tests.e2e.test_canary import ADDRESS, OBJECTS
from tests.e2e.test_gateway_hosts import write_route
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask
from tests.world.ports import service_port

pytestmark = pytest.mark.haproxy

INGRESS = """
kind: IngressClass
apiVersion: networking.k8s.io/v1
metadata: {{name: pyconfd}}
spec: {{controller: pyconfd.io/ingress}}
---
kind: Ingress
apiVersion: networking.k8s.io/v1
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  ingressClassName: pyconfd
  rules:
  - host: ingress.example.com
    http: {{paths: [{{path: /{name}, pathType: Prefix, backend: {{service: {{name: shop, port: {{number: 80}}}}}}}}]}}
"""


def logged(appliance: Appliance, *options: str) -> list[dict[str, Any]]:
    """Return the lines that ``pyconfd logs --json`` prints."""
    shown = appliance.run("logs", "--json", *options, "--config", str(appliance.config))
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def decided(lines: list[dict[str, Any]], host: str) -> list[str]:
    return [line["object"] for line in lines if line["host"] == host]


@contextmanager
def following(appliance: Appliance, *options: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "pyconfd", "logs", "-f", *options, "--config", str(appliance.config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_each_line_names_the_object_that_decided_and_the_pod_that_answered(appliance: Appliance) -> None:
    port = service_port(ADDRESS)
    appliance.values["addresses"] = {"pool": [ADDRESS]}
    serving(appliance)
    appliance.serve("web", {}, pods=1)
    for name in ("first", "second"):
        for document in yaml.safe_load_all(INGRESS.format(name=name, namespace=NAMESPACE)):
            appliance.cluster.load_object(document)
    for document in yaml.safe_load_all(OBJECTS.format(namespace=NAMESPACE, port=port)):
        appliance.cluster.load_object(document)
    write_route(appliance, ["route.example.com"], [("PathPrefix", "/a")])
    http = appliance.http
    appliance.until(lambda: ask(http, "ingress.example.com", path="/second").startswith("shop-"), "Ingress is served")
    appliance.until(lambda: ask(port, "route.example.com", address=ADDRESS, path="/a").startswith("web-"), "route too")
    appliance.until(lambda: appliance.ask("shop") == "shop-1", "the domain too")
    ask(http, "nobody.example.com", path='/"quoted\\')

    lines = logged(appliance)
    assert decided(lines, "shop.example.com")[-1] == f"Service/{NAMESPACE}/shop"
    assert decided(lines, "ingress.example.com")[-1] == f"Ingress/{NAMESPACE}/first,second"
    (nobody,) = (line for line in lines if line["host"] == "nobody.example.com")
    assert (nobody["object"], nobody["status"], nobody["path"]) == ("", 404, '/"quoted\\')
    served = [line for line in lines if line["host"] == "route.example.com" and line["status"] == 200][-1]
    assert (served["backend"], served["method"], served["path"]) == (f"gw_http_{NAMESPACE}_web_0", "GET", "/a")
    assert served["server"].startswith("web-1:")
    assert served["client"].startswith("127.")
    assert served["total_ms"] >= 0
    assert len(served["id"]) == 36

    only = logged(appliance, "--route", f"httproute/{NAMESPACE}/web", "--status", "2xx")
    assert {line["host"] for line in only} == {"route.example.com"}
    assert logged(appliance, "--slower-than", "1h") == []
    text = appliance.run("logs", "--host", "nobody.example.com", "--config", str(appliance.config)).stdout
    assert "404" in text
    assert "no object has it" in text
    assert "(HAProxy answered it itself)" in text


def test_who_follows_sees_each_request_once_over_a_reload(appliance: Appliance) -> None:
    serving(appliance)
    with following(appliance, "--json", "--host", "shop.example.com") as process:
        assert process.stdout is not None
        output, seen = process.stdout, list[str]()

        def ask_for(path: str) -> str:
            return ask(appliance.http, "shop.example.com", path=path)

        # Whether it follows yet shows in the first line only.
        appliance.until(lambda: ask_for("/begin") and select([output], [], [], 0)[0], "it follows")
        for number in range(3):
            ask_for(f"/{number}")
        worker = appliance.haproxy.worker()
        appliance.haproxy.reload()
        appliance.until(lambda: appliance.haproxy.worker() != worker, "the reload is there")
        for number in range(3, 6):
            ask_for(f"/{number}")
        while "/5" not in seen:
            seen.append(json.loads(output.readline())["path"])
    assert [path for path in seen if path != "/begin"] == [f"/{number}" for number in range(6)]


def test_what_is_missing_is_named(appliance: Appliance) -> None:
    serving(appliance)
    appliance.haproxy.stop()
    shown = appliance.run("logs", "--config", str(appliance.config))
    assert shown.returncode == 75
    assert "does haproxy run?" in shown.stderr
    for wrong in (("--route", "shop"), ("--status", "9xx"), ("--status", "20"), ("--slower-than", "soon")):
        assert appliance.run("logs", *wrong, "--config", str(appliance.config)).returncode == 64
