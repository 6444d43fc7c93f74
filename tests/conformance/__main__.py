"""Run the suite: ``python -m tests.conformance [--only REGEX] [--keep]``, as root."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyconfd
from tests.conformance import report
from tests.conformance.cluster import CLASS, UNUSABLE, USABLE, RealCluster
from tests.conformance.controlplane import CACHE
from tests.conformance.namespaces import enter
from tests.world.appliance import Appliance

PROFILES = ("GATEWAY-HTTP", "GATEWAY-TLS", "GATEWAY-TCP", "GATEWAY-GRPC")
REPORTS = Path(__file__).resolve().parents[2] / "docs" / "conformance"
LIMIT = "60m"
TIMEOUTS = {"NamespacesMustBeReady": 60} | dict.fromkeys(
    (
        "GatewayMustHaveAddress",
        "GatewayMustHaveCondition",
        "GatewayStatusMustHaveListeners",
        "GatewayListenersMustHaveConditions",
        "ListenerSetMustHaveCondition",
        "ListenerSetListenersMustHaveConditions",
        "GWCMustBeAccepted",
        "HTTPRouteMustNotHaveParents",
        "HTTPRouteMustHaveCondition",
        "TLSRouteMustHaveCondition",
        "TCPRouteMustHaveCondition",
        "RouteMustHaveParents",
        "LatestObservedGenerationSet",
    ),
    30,
)
"""Seconds that the suite waits; by default up to five minutes, which only makes failures long."""


def main() -> int:
    """Start all, run the suite, and return its exit status."""
    enter("tests.conformance")
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("--only", default="", help="run the tests whose names match this regular expression")
    parser.add_argument("--keep", action="store_true", help="end with a shell beside all that runs")
    options = parser.parse_args()
    folder = CACHE / "run"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lb").mkdir(parents=True)
    with RealCluster(folder) as cluster, Appliance(folder / "lb", api_servers=0) as appliance:
        cluster.serve(appliance)
        code = run_suite(cluster, folder, options.only)
        if options.keep:
            environment = {**os.environ, "KUBECONFIG": str(cluster.plane.kubeconfig)}
            subprocess.run([os.environ.get("SHELL", "/bin/sh")], env=environment, check=False)
    return code


def run_suite(cluster: RealCluster, folder: Path, only: str) -> int:
    """Run it, print what came out, and keep the report of a whole run."""
    written = folder / "report.yaml"
    version = f"v{pyconfd.__version__}"
    argv = [
        str(CACHE / "suite.test"),
        "-test.v",
        f"-test.timeout={LIMIT}",
        f"-test.run=^TestConformance$/({only})",
        f"--timeout-config-overrides={';'.join(f'{name}:{seconds}' for name, seconds in TIMEOUTS.items())}",
        f"--gateway-class={CLASS}",
        f"--conformance-profiles={','.join(PROFILES)}",
        f"--usable-address={USABLE}",
        f"--unusable-address={UNUSABLE}",
        "--cleanup-base-resources=false",
        f"--report-output={written}",
        "--organization=pyconfd",
        "--project=pyconfd",
        "--url=https://example.com/pyconfd",
        f"--version={version}",
        "--contact=CONTRIBUTING.md",
    ]
    log = folder / "suite.log"
    with log.open("wb") as output:
        environment = {**os.environ, "KUBECONFIG": str(cluster.plane.kubeconfig)}
        done = subprocess.run(argv, stdout=output, stderr=output, env=environment, check=False)
    found = report.results(log.read_text(encoding="utf-8"))
    for name, (result, seconds) in sorted(found.items(), key=lambda item: (item[1][0], item[0])):
        if only or result == "FAIL":
            print(f"{result} {name} ({seconds:.0f} s)")
    if written.exists() and not only:
        print(report.table(written))
        REPORTS.mkdir(exist_ok=True)
        shutil.copyfile(written, REPORTS / f"standard-{version}-default-report.yaml")
    if not found:
        print(log.read_text(encoding="utf-8")[-3000:])
    print(f"logs: {folder}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
