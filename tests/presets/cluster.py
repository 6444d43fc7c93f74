"""What is read of a cluster, from nothing."""

from pyconfd.derived import Graph
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.cluster import Cluster, ReadCluster
from pyconfd.presets.policy import ANYTHING, ClaimOptions


def read(snapshot: Snapshot, claims: ClaimOptions = ANYTHING) -> Cluster:
    graph = Graph()
    found = ReadCluster(graph, snapshot.cluster)
    found.see(snapshot, claims)
    graph.settle()
    return found.cluster()
