"""A name that goes from one Service to another with the same pods changes nothing but a comment."""

import pytest

from pyconfd.haproxy.config import diff
from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import differences
from pyconfd.model.changes import Action, change_of
from pyconfd.model.context import EndpointTotals
from pyconfd.model.outcome import Applied, Generation
from pyconfd.model.plan import RuntimeUpdate
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from tests.presets import objects

TEMPLATE = """global
frontend f
    bind :80
backend first
    server x 10.9.9.9:80
{% for domain, items in domains.items() %}

# {{ items.namespace }}/{{ items.name }}: {{ domain }}
backend be-{{ items.key }}
    balance roundrobin
{% for server in items.endpoints | servers %}
    server {{ server.name }} {{ server.target }} id {{ server.id }}
{% endfor %}
{% endfor %}
"""
SENTENCE = "shop.example.com moved from Service demo/blue to Service demo/green"


def rendered(owner: str, *addresses: str) -> Rendering:
    """Return what is rendered while this Service has the name; both have the same pods."""
    services = [
        objects.service(name, {"domain": "shop.example.com", "proto": "http"} if name == owner else {})
        for name in ("blue", "green")
    ]
    pods = [objects.endpoint(address, pod=f"pod-{address}") for address in addresses]
    seen = objects.snapshot(*services, *(objects.slice_(name, *pods) for name in ("blue", "green")))
    context = registry.translate(seen, ("domains",), PresetOptions())
    fragments = FragmentSet((Fragment("10.tmpl", TEMPLATE),))
    return Renderer(fragments, RenderOptions("/f")).render(context, curdate="").rendering


BLUE, GREEN = rendered("blue", "10.0.0.1"), rendered("green", "10.0.0.1")


def planned(desired: Rendering, applied: Rendering = BLUE) -> RuntimeUpdate:
    found = diff.plan(desired, applied, None, abilities=Abilities(runtime=True))
    assert isinstance(found, RuntimeUpdate), found
    return found


def test_a_move_is_no_comment_in_the_plan() -> None:
    assert planned(GREEN) == RuntimeUpdate((), (SENTENCE,), (SENTENCE,))


@pytest.mark.parametrize("addresses", [("10.0.0.1",), ("10.0.0.1", "10.0.0.2")], ids=["same pods", "another pod"])
def test_watch_tells_a_move(addresses: tuple[str, ...]) -> None:
    plan = planned(rendered("green", *addresses))
    applied = Applied(Generation(7, "", 1.0, "", (), EndpointTotals()), plan, verified=True)
    change = change_of(applied, at=1.0, serving=6, duration_s=0.1)
    assert change is not None
    if len(addresses) == 1:
        assert (change.action, change.details) == (Action.FILE, (SENTENCE,))
    else:
        assert (change.action, change.summary) == (Action.LIVE, f"{SENTENCE}; be-shop.example.com +1 server")


def test_a_move_is_told_and_no_other_backend() -> None:
    assert differences(BLUE, GREEN) == (SENTENCE,)
