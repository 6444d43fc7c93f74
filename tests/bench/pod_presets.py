"""CPU of the presets that read pods, and of a template from the cluster, for 10,000 services of one pod each."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from pyconfd.haproxy.allowed import Boundaries, judge
from pyconfd.model.kubernetes import ConfigMap
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import registry
from pyconfd.presets.hosts import MASTER
from pyconfd.presets.reading import HostsOptions, PresetOptions
from pyconfd.render import cluster_templates
from tests.bench.figures import Figure, median
from tests.presets.pods import config_map, pod, snapshot

SERVICES = 10_000
ROUNDS = 5
OPTIONS = PresetOptions(hosts=HostsOptions(master="lb"))
TEMPLATE = """\
{% for service in services %}
backend {{ service.name }}
{% for pod in service.pods.itervalues() %}
    server {{ pod.metadata.name }} {{ pod.status.podIP }}:80
{% endfor %}
{% endfor %}
"""


def pod_presets() -> Iterator[Figure]:
    """All services, and one changed service."""
    pods = [
        pod(f"pod-{n}", f"10.0.{n >> 8}.{n & 255}", {"app": f"app-{n}"}, annotations={MASTER: "lb"})
        for n in range(SERVICES)
    ]
    whole = snapshot(_services(""), config_map("config", {"template": TEMPLATE}), *pods)
    changed = [replace(whole, config_maps={**whole.config_maps, **_keyed(_services(f"v{n}"))}) for n in range(ROUNDS)]
    for preset in ("configmap", "hosts"):
        began = time.process_time()
        registry.translate(whole, (preset,), OPTIONS)
        yield Figure(f"pod_presets_{preset}_first_cpu", (time.process_time() - began) * 1000, "ms")
        yield Figure(f"pod_presets_{preset}_one_changed_cpu", _each(_translation(preset, changed)), "ms")
    (template,) = registry.translate(whole, ("configmap",), OPTIONS).templates
    began = time.process_time()
    text = cluster_templates.render(template.text, template.names, template.required, 1 << 30)
    yield Figure("pod_presets_template_cpu", (time.process_time() - began) * 1000, "ms")
    assert isinstance(text, str)
    began = time.process_time()
    judge("configmap lb/config", text, Boundaries())
    yield Figure("pod_presets_judge_first_cpu", (time.process_time() - began) * 1000, "ms")
    judging: list[Callable[[], object]] = [lambda: judge("configmap lb/config", text, Boundaries())] * ROUNDS
    yield Figure("pod_presets_judge_again_cpu", _each(judging), "ms")


def _services(version: str) -> ConfigMap:
    entries = {
        f"s{n}": {"namespace": "demo", "selector": {"app": f"app-{n}"}, "hostnames": [f"s{n}.example.com"]}
        for n in range(SERVICES)
    }
    entries["s0"]["hostnames"] = [f"s0{version}.example.com"]
    return config_map("services", {name: json.dumps(entry) for name, entry in entries.items()})


def _keyed(record: ConfigMap) -> dict[Key, ConfigMap]:
    return dict(snapshot(record).config_maps)


def _translation(preset: str, snapshots: list[Snapshot]) -> list[Callable[[], object]]:
    return [lambda seen=seen: registry.translate(seen, (preset,), OPTIONS) for seen in snapshots]  # type: ignore[misc]


def _each(steps: list[Callable[[], object]]) -> float:
    times = []
    for step in steps:
        began = time.process_time()
        step()
        times.append(time.process_time() - began)
    return median(times) * 1000
