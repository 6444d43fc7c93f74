"""CPU of the presets that read pods, and of a template from the cluster, for 10,000 services of one pod each."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from pyconfd.model.kubernetes import ConfigMap, Pod
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.predecessors.allowed import Boundaries, judge
from pyconfd.predecessors.hosts import MASTER, HostsOptions
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.render import cluster_templates
from tests.bench.figures import Figure, median
from tests.bench.presets import Change, figures
from tests.presets.pods import config_map, pod, snapshot

SERVICES = 10_000
ROUNDS = 5
OPTIONS = PresetOptions(own=own_options(HostsOptions(master="lb")), cluster_templates=True)
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
    pods = [_pod(n, f"10.0.{n >> 8}.{n & 255}") for n in range(SERVICES)]
    whole = snapshot(_services(""), config_map("config", {"template": TEMPLATE}), *pods)
    for preset, changes in CHANGES.items():
        yield from figures(preset, whole, changes, OPTIONS)
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


def _pod(number: int, address: str) -> Pod:
    return pod(f"pod-{number}", address, {"app": f"app-{number}"}, annotations={MASTER: "lb"})


def _with_entry(seen: Snapshot, version: int) -> Snapshot:
    """Return the same with another host name for one service: the whole ConfigMap is another object then."""
    return replace(seen, config_maps={**seen.config_maps, Key("lb", "services"): _services(f"v{version}")})


def _with_pod(seen: Snapshot, version: int) -> Snapshot:
    """Return the same with another address of one pod."""
    return replace(seen, pods={**seen.pods, Key("demo", "pod-1"): _pod(1, f"10.255.0.{version}")})


def _without_pod(seen: Snapshot, version: int) -> Snapshot:
    """Return the same without one pod."""
    gone = Key("demo", f"pod-{version + 1}")
    return replace(seen, pods={key: each for key, each in seen.pods.items() if key != gone})


PODS: Mapping[str, Change] = MappingProxyType({"changed_endpoint": _with_pod, "deleted_endpoint": _without_pod})
CHANGES: Mapping[str, Mapping[str, Change]] = MappingProxyType(
    {"configmap": {**PODS, "rewritten_configmap": _with_entry}, "hosts": PODS}
)


def _each(steps: list[Callable[[], object]]) -> float:
    times = []
    for step in steps:
        began = time.process_time()
        step()
        times.append(time.process_time() - began)
    return median(times) * 1000
