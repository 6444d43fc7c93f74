"""After a change what did not change is the same object in what the registry returns."""

from dataclasses import replace
from typing import Any

from pyconfd.model.context import Context
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.presets.ingress.objects import ADDRESSES, PRESETS, Obj, ingress, ingress_class, path, service, snapshot


def _with(seen: Snapshot, previous: Snapshot) -> Snapshot:
    """Return ``seen`` with the records of ``previous`` where they are equal, as caches keep them."""
    parts: dict[str, Any] = {}
    for name in ("services", "endpointslices", "ingresses", "ingressclasses"):
        old, new = getattr(previous, name), getattr(seen, name)
        parts[name] = {key: old[key] if old.get(key) == value else value for key, value in new.items()}
    return replace(seen, **parts)


def test_an_endpoint_a_path_and_a_status_touch_nothing_else() -> None:
    memo, options = Memo(), PresetOptions(addresses=ADDRESSES)
    fixed = [ingress_class(), *service("web", "10.0.0.1"), ingress("web", {"b.example.com": [path("/")]})]
    seen = snapshot(*fixed, *service("new", "10.0.0.2"), ingress("new", {"a.example.com": [path("/", "new:80")]}))
    first = registry.translate(seen, PRESETS, options, memo)

    def after(*objects: Obj) -> Context:
        nonlocal seen
        seen = _with(snapshot(*fixed, *objects), seen)
        return registry.translate(seen, PRESETS, options, memo)

    pod = after(*service("new", "10.0.0.3"), ingress("new", {"a.example.com": [path("/", "new:80")]}))
    places = after(*service("new", "10.0.0.3"), ingress("new", {"a.example.com": [path("/x", "new:80")]}))
    given = [each.names["ingress"] for each in (first, pod, places)]
    assert given[0]["virtual_hosts"] is given[1]["virtual_hosts"]
    assert pod.statuses[1] is first.statuses[1]
    assert pod.owners["ingress"] is first.owners["ingress"]
    for each in given:
        assert each["backends"]["ing_demo_web_80"] is given[0]["backends"]["ing_demo_web_80"]
    assert [*given[2]["backends"].changed_since(given[1]["backends"])] == ["ing_demo_new_80"]
    assert places.statuses[1] is first.statuses[1]
