"""Run the tests: ``python -m tests.bench.gateway``, as root; one JSON object a line.

Variables: ``ONLY`` (names, with commas between), ``ROUTES`` (300), ``BUSY=1`` (a spinning process for each processor),
``PEER`` (a checkout of haproxy-ingress with its ``bin/controller``, which does the tests with Ingresses afterwards).
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from pyconfd.model.plan import ReloadReason
from tests.bench.gateway.further import FURTHER, OF_INGRESSES
from tests.bench.gateway.harness import Api, Harness
from tests.bench.gateway.measures import line
from tests.bench.gateway.peer import FORMS, Peer
from tests.bench.gateway.published import PUBLISHED, prepare
from tests.conformance.cluster import RealCluster
from tests.conformance.controlplane import CACHE
from tests.conformance.namespaces import enter
from tests.world.appliance import Appliance

SCENARIOS = {**PUBLISHED, **FURTHER}
_SPIN = "while True: pass"


def main() -> int:
    """Start all, run the chosen tests, and print what each measured; return 1 where an operation was refused."""
    enter("tests.bench.gateway")
    chosen = [name for name in os.environ.get("ONLY", "").split(",") if name] or list(SCENARIOS)
    if unknown := [name for name in chosen if name not in SCENARIOS]:
        print(f"no test is named {unknown[0]}; there are: {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    routes, busy = int(os.environ.get("ROUTES") or 300), bool(os.environ.get("BUSY"))
    folder = CACHE / "bench"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lb").mkdir(parents=True)
    code = 0
    with ExitStack() as stack:
        cluster = stack.enter_context(RealCluster(folder))
        appliance = stack.enter_context(Appliance(folder / "lb", api_servers=0))
        cluster.serve(appliance)
        harness = Harness(Api(cluster.plane), appliance)
        prepare(harness)
        if busy:
            for _ in range(os.cpu_count() or 1):
                spinning = subprocess.Popen([sys.executable, "-c", _SPIN])
                stack.callback(spinning.wait)
                stack.callback(spinning.kill)
        about = {"haproxy": harness.processes().version, "form": "busy" if busy else "quiet", "routes": routes}
        for name in chosen:
            began = time.monotonic()
            for figures in SCENARIOS[name](harness, routes):
                print(line(name, about | figures), flush=True)
            if refused := harness.reload_reasons()[ReloadReason.NOT_LIVE]:
                print(f"{name}: HAProxy was reloaded {refused} times for operations that were refused", file=sys.stderr)
                code = 1
            print(f"{name} took {time.monotonic() - began:.0f} s; the logs are in {folder}", file=sys.stderr)
        if checkout := os.environ.get("PEER"):
            appliance.stop()  # each has the machine for itself
            for form in FORMS:
                peer = Peer(cluster.plane, appliance, Path(checkout), form)
                _run_peer(peer, chosen, routes, about | {"by": f"haproxy-ingress, {form}"})
    return code


def _run_peer(peer: Peer, chosen: list[str], routes: int, about: Mapping[str, object]) -> None:
    with peer.running():
        for name in chosen:
            for figures in OF_INGRESSES[name](peer, routes) if name in OF_INGRESSES else ():
                print(line(name, {**about, **figures}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
