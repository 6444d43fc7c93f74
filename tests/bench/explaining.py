"""How long an explanation takes in a cluster of 10,000 services and 100,000 endpoints, as one CPU counts it."""

import time
from collections.abc import Iterator
from dataclasses import replace

from pyconfd import fragments
from pyconfd.explain.conditions import Evidence
from pyconfd.explain.queries import explain
from pyconfd.explain.request import request_of
from pyconfd.explain.request_answer import explain_request
from pyconfd.model.explanation import InstanceState
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.bench.figures import Figure, median
from tests.bench.presets import snapshot_of
from tests.bench.routing import ROUTES, gateway_objects, ingress_objects
from tests.fragments.shipped import OPTIONS
from tests.presets.ingress.objects import snapshot as snapshot_of_objects

SERVICES, ROUNDS = 10_000, 5
GOAL_S, URL_GOAL_S = 1.0, 0.2
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


def url_explanations() -> Iterator[Figure]:
    """Return how long the answer for a URL takes, with 5,000 Ingresses and with 5,000 HTTPRoutes."""
    options = replace(OPTIONS, addresses=AddressOptions(("10.255.0.1",)))
    found = read_fragments(fragments.directory())
    for preset, objects in (("ingress", ingress_objects(ROUTES)), ("gateway", gateway_objects(ROUTES))):
        snapshot = snapshot_of_objects(*objects)
        context = registry.translate(snapshot, ("domains", preset), options)
        rendering = Renderer(found, RenderOptions("/etc/haproxy/generated/files")).render(context, curdate="").rendering
        evidence = Evidence(
            now=1000.0,
            snapshot=snapshot,
            context=context,
            presets=("domains", preset),
            options=options,
            desired=rendering,
            running=rendering,
            refused=context.refused,
            instance=InstanceState(phase="serving", generation=7),
            fragments={each.name: each.text for each in found.fragments},
        )
        took = []
        for number in range(ROUNDS * 4):
            asked = {"url": [f"http://s{number * 200 + 1}.example.com/api/v0/things"]}
            began = time.perf_counter()
            answer = explain_request(request_of(asked), evidence).request
            took.append(time.perf_counter() - began)
            assert answer is not None
            assert answer.backends, answer
        yield Figure(f"observability_explain_url_of_{ROUTES}_{preset}_s", median(took), "s", URL_GOAL_S)
        yield Figure(f"observability_explain_url_of_{ROUTES}_{preset}_most_s", max(took), "s", URL_GOAL_S)
