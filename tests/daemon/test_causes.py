"""Which objects a change is said to come from."""

from dataclasses import replace
from typing import Any

from pyconfd.daemon.causes import MOST, Causes, changed_objects, namespaces_that_changed
from pyconfd.model.snapshot import Key, Snapshot
from tests.presets import objects


def of(*names: str) -> Snapshot:
    return objects.snapshot(*(objects.service(name) for name in names), *(objects.slice_(name) for name in names))


def changed(snapshot: Snapshot, field: str, **records: Any) -> Snapshot:
    known = {Key("demo", name): record for name, record in records.items()}
    return replace(snapshot, **{field: {**getattr(snapshot, field), **known}})  # type: ignore[arg-type]


def test_objects_that_changed_since_something_was_applied_are_named() -> None:
    causes, first = Causes(), of("web", "shop")
    assert causes.of(first, applied=True) == ()
    assert causes.of(first, applied=True) == ()
    second = changed(first, "endpointslices", **{"web-a": objects.slice_("web", objects.endpoint("10.0.0.1"))})
    assert causes.of(second, applied=False) == ("EndpointSlice demo/web-a",)
    third = changed(second, "services", new=objects.service("new"))
    assert causes.of(third, applied=False) == ("EndpointSlice demo/web-a", "Service demo/new")
    assert causes.of(third, applied=True) == ("EndpointSlice demo/web-a", "Service demo/new")
    assert causes.of(third, applied=True) == ()
    assert causes.of(replace(third, nodes={Key("", "n"): objects.node("n", "192.0.2.1")}), applied=True) == ("Node n",)


def test_what_somebody_wrote_comes_first_and_endpoints_once() -> None:
    causes, first = Causes(), of("web")
    causes.of(first, applied=True)
    second = changed(first, "endpointslices", **{"web-a": objects.slice_("web", objects.endpoint("10.0.0.1"))})
    second = changed(second, "endpoints", web=objects.endpoints("web", None))
    second = changed(second, "services", web=objects.service("web", {"domain": "a.example.com"}))
    assert causes.of(second, applied=True) == ("Service demo/web", "EndpointSlice demo/web-a")
    third = changed(second, "endpoints", web=objects.endpoints("web", {}))
    assert causes.of(third, applied=True) == ("Endpoints demo/web",)
    assert causes.of(Snapshot(), applied=True)[0] == "Service demo/web"


def test_objects_of_a_kind_are_named_in_order() -> None:
    causes, names = Causes(), [f"s{number:02}" for number in range(12)]
    causes.of(Snapshot(), applied=True)
    found = causes.of(of(*reversed(names)), applied=True)
    assert list(found[:12]) == [f"Service demo/{name}" for name in names]


def test_so_many_are_named_and_no_more() -> None:
    causes = Causes()
    causes.of(Snapshot(), applied=True)
    assert len(causes.of(of(*(f"s{number}" for number in range(MOST))), applied=True)) == MOST


def test_objects_of_a_namespace_that_somebody_wrote() -> None:
    before = of("web")
    after = changed(before, "services", **{f"s{number}": objects.service(f"s{number}") for number in range(MOST + 1)})
    after = changed(after, "endpointslices", **{"web-a": objects.slice_("web", objects.endpoint("10.0.0.1"))})
    after = changed(after, "secrets", tls=object())
    assert namespaces_that_changed(before, after) == {"demo"}
    assert changed_objects(before, after, ("other",)) == ()
    found = changed_objects(before, after, ("demo", "other"))
    assert {each.kind for each in found} == {"Service"}, "no Secret, and nothing that changes by itself"
    assert len(found) == MOST
    assert changed_objects(after, before, ("demo",)) == (), "those that are gone have no Events"
