"""In a network namespace of its own: the API server in use stops to answer any packet. Prints after how many seconds
another one is used, and after how many an event of that one is seen."""

import subprocess
import sys
import time

from pyconfd.model.snapshot import Resource
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.source import KubernetesSource
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster

LIMIT_S = 120.0


def main() -> None:
    """Measure."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    cluster = Cluster()
    with ApiServer(cluster) as first, ApiServer(cluster) as second:
        settings = KubernetesSettings(api_servers=(first.url, second.url))
        source = KubernetesSource(settings, [Resource.SERVICES, Resource.ENDPOINTSLICES])
        source.start(lambda: None)
        first.wait_for_watches("services", "endpointslices")
        rules = f"add rule ip t o tcp dport {first.port} drop; add rule ip t o tcp sport {first.port} drop"
        chain = "add chain ip t o { type filter hook output priority 0; }"
        subprocess.run(["nft", f"add table ip t; {chain}; {rules}"], check=True)
        began_s = time.monotonic()
        cluster.add_service("demo", "new")
        while not ((snapshot := source.snapshot()) and snapshot.services):
            if time.monotonic() - began_s > LIMIT_S:
                break
            time.sleep(0.05)
        print(time.monotonic() - began_s, file=sys.stderr)  # the log is on the standard output
        source.stop()


if __name__ == "__main__":
    main()
