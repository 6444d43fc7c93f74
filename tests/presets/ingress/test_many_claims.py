"""One tenant's Ingresses, however many of them want the same, cost no more than their number."""

import pytest

from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.presets.ingress.objects import ADDRESSES, PRESETS, Obj, ingress, ingress_class, path, snapshot
from tests.presets.work import calls_of

OWNER = ingress("web", {"a.test": [path("/")]}, day=1, namespace="shop", annotations={"pyconfd.io/shared-with": "*"})
OWNER_OF_PATH = ingress("last", {"a.test": [path("/same")]}, day=30, namespace="shop")


def work_for(count: int, *beside: Obj) -> tuple[int, int]:
    """Return the work for so many that want one path, and for one more."""
    memo, options = Memo(), PresetOptions(addresses=ADDRESSES)
    same = [ingress(f"a{number}", {"a.test": [path("/same")]}, day=2, namespace="mob") for number in range(count)]
    first = snapshot(ingress_class(), *beside, *same)
    second = snapshot(ingress_class(), *beside, *same, ingress("z", {"a.test": [path("/same")]}, day=3))

    def translate_first() -> None:
        registry.translate(first, PRESETS, options, memo)

    return calls_of(translate_first), calls_of(lambda: registry.translate(second, PRESETS, options, memo))


@pytest.mark.parametrize(
    "beside",
    [(), (OWNER,), (OWNER, OWNER_OF_PATH)],
    ids=["of one namespace", "with a consent", "with a consent, and a younger path of the owner"],
)
def test_twice_as_many_that_want_one_path_are_twice_the_work(beside: tuple[Obj, ...]) -> None:
    for few, many in zip(work_for(100, *beside), work_for(200, *beside), strict=True):
        assert many < 2.5 * few


@pytest.mark.parametrize(("count", "more"), [(200, []), (201, ["1"]), (1_700, ["1,500"])])
def test_so_many_fields_of_one_ingress_are_told_by_themselves(count: int, more: list[str]) -> None:
    hosts = [f"h{number}.test" for number in range(count)]
    own = ingress("web", {"a.test": [path("/", "missing:80")]}, tls=[{"secretName": "own", "hosts": hosts}])
    found = registry.translate(snapshot(ingress_class(), own), PRESETS, PresetOptions(addresses=ADDRESSES), None)
    told = [each for each in found.refused if each.field == "spec.tls.hosts"]
    assert len(told) == min(count, 200)
    rest = [each.detail for each in found.refused if each.field == "spec"]
    assert rest == [f"{each} more of its fields are refused, and not told by themselves" for each in more]
