"""How long rendering takes for 10,000 domains with 10 endpoints each, and again after one of them changed."""

import gc
import time
from collections.abc import Iterator
from typing import Any

from pyconfd.fragments import directory
from pyconfd.model.context import Context
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.presets.views import EndpointView
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.bench.figures import Figure, median

ENDPOINTS, ROUNDS = 10, 21
SHARE = 1 / 50
"""Of all services, what one changed service may cost at most."""

PREDECESSORS = """\
frontend http-in
    bind *:80
{%- for domain, items in domains.items() %}
{%- if items.proto == 'http' %}
{%- set var_name = domain|replace('.', '_') %}

    acl {{ var_name }} hdr(host) -i {{ domain }}
    use_backend be{{ domain }} if {{ var_name }}
{%- endif %}
{%- endfor %}

{% for domain, items in domains.items() %}
{% if items.proto == 'http' %}
backend be{{ domain }}
    mode http
{% for ip in items.ips %}
    server {{ ip|replace('.', '_') }} {{ ip }}:{{ items.port }} check
{% endfor %}
{% endif %}
{% endfor %}
"""
"""As python-confd's users wrote it."""


def _entry(number: int, generation: int = 0) -> dict[str, Any]:
    addresses = [f"10.{number >> 8}.{number & 255}.{index + 1 + generation}" for index in range(ENDPOINTS)]
    domain = f"s{number:05}.example.com"
    return {
        "proto": "http",
        "port": 8080,
        "ips": addresses,
        "domain": domain,
        "key": domain,
        "namespace": "demo",
        "name": f"s{number}",
        "listen_port": None,
        "endpoints": [EndpointView(address, 8080, "ready", "ipv4", pod=f"pod-{address}") for address in addresses],
    }


def _measured(fragments: FragmentSet, services: int) -> tuple[float, float, float]:
    """Give milliseconds for everything, for one changed service, and for comparing the two renderings."""
    domains = {entry["domain"]: entry for entry in map(_entry, range(services))}
    first, again, comparing = [], [], []
    gc.collect()
    gc.freeze()
    for _ in range(3):
        renderer = Renderer(fragments, RenderOptions("/etc/haproxy/generated/files"))
        began = time.process_time()
        rendering = renderer.render(Context({"domains": domains}), curdate="").rendering
        first.append(time.process_time() - began)
    for generation in range(1, ROUNDS + 1):
        changed = _entry(generation * 37, generation)
        domains = {**domains, changed["domain"]: changed}
        began = time.process_time()
        new = renderer.render(Context({"domains": domains}), curdate="").rendering
        middle = time.process_time()
        assert not rendering.same_as(new)
        comparing.append(time.process_time() - middle)
        again.append(middle - began)
        assert changed["ips"][-1] in new.text
        rendering = new
    gc.unfreeze()
    return median(first) * 1000, median(again) * 1000, median(comparing) * 1000


def rendering_in_proportion() -> Iterator[Figure]:
    """Render the shipped fragments, and one template of python-confd's kind."""
    python_confd = FragmentSet((Fragment("02-http.tmpl", PREDECESSORS),))
    for kind, fragments in (("shipped", read_fragments(directory())), ("python_confd", python_confd)):
        for services in (1_000, 10_000):
            everything, one, comparing = _measured(fragments, services)
            name = f"render_{kind}_{services}_services"
            yield Figure(f"{name}_all_cpu", everything, "ms")
            yield Figure(f"{name}_one_changed_cpu", one, "ms")
            yield Figure(f"{name}_compared_cpu", comparing, "ms")
            # Plain loops are rendered as a whole.
            goal = SHARE if services == 10_000 and kind == "shipped" else None
            yield Figure(f"{name}_one_changed_of_all", one / everything, "ratio", goal)
