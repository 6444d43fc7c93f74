"""After any change the result is that of a first reading, and what did not change is the same object."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.model.context import Context
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import registry
from pyconfd.presets.policy import ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.presets.ingress.objects import ADDRESSES, PRESETS, Obj, ingress, ingress_class, path, service, snapshot


def _name(each: Obj) -> tuple[str, str]:
    return each["metadata"]["namespace"], each["metadata"]["name"]


HOSTS = ("a.example.com", "*.example.com", "b.example.com", "")
PLACES = ("/", "/x", "/x/y")
CHOSEN = st.builds(
    path,
    st.sampled_from(PLACES),
    st.sampled_from(["web:80", "web:admin", "new:80"]),
    st.sampled_from(["Exact", "Prefix"]),
)
INGRESS = st.builds(
    ingress,
    st.sampled_from(["i1", "i2", "i3"]),
    st.dictionaries(st.sampled_from(HOSTS), st.lists(CHOSEN, max_size=3), max_size=3),
    default=st.sampled_from(["", "", "web:81"]),
    class_name=st.sampled_from(["pyconfd", "pyconfd", None, "other"]),
    namespace=st.sampled_from(["demo", "team"]),
    day=st.integers(1, 3),
)
SERVICES = st.builds(
    lambda name, pods, namespace, domain: service(
        name, *[f"10.0.0.{pod}" for pod in sorted(pods)], namespace=namespace, day=2,
        annotations={"domain": domain, "proto": "http"} if domain else {},
    ),
    st.sampled_from(["web", "new"]),
    st.sets(st.integers(1, 3), max_size=2),
    st.sampled_from(["demo", "team"]),
    st.sampled_from(["", "", "a.example.com", "*.example.com"]),
)  # fmt: skip
CLUSTERS = st.builds(
    lambda ingresses, services, default: [
        ingress_class(default=default), *ingresses, *(each for found in services for each in found)
    ],
    st.lists(INGRESS, max_size=4, unique_by=_name),
    st.lists(SERVICES, max_size=3, unique_by=lambda each: _name(each[0])),
    st.booleans(),
)  # fmt: skip
OPTIONS = st.builds(
    PresetOptions,
    node_ports=st.booleans(),
    addresses=st.sampled_from([ADDRESSES, PresetOptions().addresses]),
    claims=st.sampled_from(
        [ClaimOptions(), ClaimOptions((Rule(("demo",)), Rule(("team",), domains=("example.com",))))]
    ),
)


def _told(context: Context) -> Mapping[str, Any]:
    given = context.names["ingress"]
    return {
        "backends": list(given["backends"].items()),
        "sites": list(given["sites"].items()),
        "refused": context.refused,
        "owners": context.owners,
        "totals": context.totals,
        "statuses": context.statuses,
    }


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(CLUSTERS, OPTIONS), min_size=2, max_size=4))
def test_what_is_remembered_changes_nothing(steps: list[tuple[list[Obj], PresetOptions]]) -> None:
    memo = Memo()
    for objects, options in steps:
        seen = snapshot(*objects)
        context = registry.translate(seen, PRESETS, options, memo)
        assert _told(context) == _told(registry.translate(seen, PRESETS, options))


def _with(seen: Snapshot, former: Snapshot) -> Snapshot:
    """Return ``seen`` with the records of ``former`` where they are equal, as caches keep them."""
    parts: dict[str, Any] = {}
    for name in ("services", "endpointslices", "ingresses", "ingressclasses"):
        old, new = getattr(former, name), getattr(seen, name)
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
    assert given[0]["sites"] is given[1]["sites"]
    assert pod.statuses[1] is first.statuses[1]
    assert pod.owners["ingress"] is first.owners["ingress"]
    for each in given:
        assert each["backends"]["ing_demo_web_80"] is given[0]["backends"]["ing_demo_web_80"]
    assert given[2]["backends"].changed_since(given[1]["backends"]) == {"ing_demo_new_80": None}.keys()
    assert places.statuses[1] is first.statuses[1]
