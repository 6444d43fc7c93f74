"""Snapshots and what is made of them, without a cluster and without haproxy."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyconfd.explain.conditions import Evidence, report_of
from pyconfd.haproxy.runtime.servers_now import ServerNow
from pyconfd.model.condition import Age
from pyconfd.model.context import Context, PresetName, Refusal
from pyconfd.model.explanation import ClaimReport, InstanceState
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions

TEMPLATES = {
    "10-domains.tmpl": """{% for domain, items in domains.items() %}
backend be-{{ items.key }}
{% for server in items.endpoints | servers %}
    server {{ server.name }} {{ server.target }}
{% endfor %}
{% endfor %}
""",
    "20-kubefigurator.tmpl": """{% for backend in kubefigurator.backends %}
backend {{ backend.name }}
{% for server in backend.endpoints | servers %}
    server {{ server.name }} {{ server.target }}
{% endfor %}
{% endfor %}
""",
    "30-kube2lb.tmpl": """{% for service in kube2lb.services %}
backend kube2lb-{{ service }}
{% for endpoint in (service.endpoints + service.draining) %}
    server s{{ loop.index }} {{ endpoint }}
{% endfor %}
{% endfor %}
""",
    "40-configmap.tmpl": """{% for service in configmap.services %}
backend configmap-{{ service.name }}
{% for name, pod in service.pods.items() %}
    server {{ name }} {{ pod.status.podIP }}:80
{% endfor %}
{% endfor %}
""",
    "50-hosts.tmpl": """{% for app, addresses in hosts.items() %}
backend hosts-{{ app }}
{% for address in addresses %}
    server s{{ loop.index }} {{ '[%s]' % address if ':' in address else address }}:80
{% endfor %}
{% endfor %}
""",
}
"""Each makes a server of everything that its preset gives."""


def rendered(context: Context, templates: Mapping[str, str] = TEMPLATES) -> Rendering:
    """Render a context."""
    fragments = FragmentSet(tuple(Fragment(name, text) for name, text in templates.items()))
    pure = Context(context.names, context.refused, context.totals)
    return Renderer(fragments, RenderOptions("/etc/haproxy/generated/files")).render(pure, curdate="").rendering


def evidence_of(
    snapshot: Snapshot,
    presets: Sequence[str] = (PresetName.DOMAINS,),
    options: PresetOptions | None = None,
    *,
    templates: Mapping[str, str] | None = None,
    running: Rendering | None = None,
    live: Mapping[tuple[str, str], ServerNow] | None = None,
    ages: Mapping[Refusal, Age] | None = None,
    **more: Any,
) -> Evidence:
    """Return the evidence for a Snapshot that was translated, rendered and applied."""
    options = options or PresetOptions()
    context = registry.translate(snapshot, presets, options)
    own = {name: text for name, text in TEMPLATES.items() if name[3:].removesuffix(".tmpl") in presets}
    templates = own if templates is None else templates
    desired = rendered(context, templates)
    return Evidence(
        now=1000.0,
        snapshot=snapshot,
        context=context,
        presets=presets,
        options=options,
        desired=desired,
        running=desired if running is None else running,
        refused=context.refused,
        ages=ages or {},
        instance=more.pop("instance", InstanceState(phase="serving", generation=7)),
        live=lambda backend: None if live is None else {name: now for (at, name), now in live.items() if at == backend},
        fragments=templates,
        **more,
    )


def reports_of(evidence: Evidence) -> dict[str, ClaimReport]:
    """Return what became of each claim, by the name of its object and the key of a ConfigMap."""
    return {f"{claim.ref.name} {claim.item}".rstrip(): report_of(claim, evidence) for claim in evidence.claims}


def reasons_of(report: ClaimReport) -> list[str]:
    """Return the reasons that say something: neither those of stages on the way nor of those never reached."""
    silent = {"Accepted", "ResolvedRefs", "Rendered", "Blocked"}
    return [condition.reason for condition in report.conditions if condition.reason not in silent]


def reasons(evidence: Evidence) -> dict[str, list[str]]:
    """Return the reasons that say something, by claim."""
    return {name: reasons_of(report) for name, report in reports_of(evidence).items()}
