"""How long an explanation takes in a cluster of 10,000 services and 100,000 endpoints, as one CPU counts it."""

import time
from collections.abc import Iterator

from pyconfd import fragments
from pyconfd.explain.conditions import Evidence
from pyconfd.explain.queries import explain
from pyconfd.model.explanation import InstanceState
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.bench.figures import Figure, median
from tests.bench.presets import snapshot_of

SERVICES, ROUNDS = 10_000, 5
GOAL_S = 1.0
QUERIES = {
    "service": "team-005/service-00005",
    "domain": "s5.example.com",
    "line": "line 300",
    "address": "10.0.5.1:8080",
    "unknown": "nothing-like-it",
}


def explanations() -> Iterator[Figure]:
    """Return the seconds for each kind of question."""
    snapshot, options = snapshot_of(SERVICES), PresetOptions()
    context = registry.translate(snapshot, ("domains",), options)
    found = read_fragments(fragments.directory())
    rendering = Renderer(found, RenderOptions("/etc/haproxy/generated/files")).render(context, curdate="").rendering
    texts = {each.name: each.text for each in found.fragments}
    for name, query in QUERIES.items():
        took = []
        for _ in range(ROUNDS):
            evidence = Evidence(
                now=1000.0,
                snapshot=snapshot,
                context=context,
                presets=("domains",),
                options=options,
                desired=rendering,
                running=rendering,
                refused=context.refused,
                instance=InstanceState(phase="serving", generation=7),
                fragments=texts,
            )
            began = time.process_time()
            explain(query, evidence)
            took.append(time.process_time() - began)
        yield Figure(f"explain_{name}_s", median(took), "s", GOAL_S)
