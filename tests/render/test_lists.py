from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment

from pyconfd.render import filters
from pyconfd.render.filters import port_named
from pyconfd.render.invalid import InvalidValueError

natsort: Any = partial(filters.natsort, Environment())
unique_by: Any = partial(filters.unique_by, Environment())
group_by: Any = partial(filters.group_by, Environment())


@dataclass(frozen=True)
class Endpoint:
    pod: str
    zone: str | None


ENDPOINTS = [Endpoint("a-10", None), Endpoint("a-9", "west"), Endpoint("b", "east"), Endpoint("c", None)]
PORTS = [{"name": "http", "port": 8080}, {"name": "metrics", "port": 9100}]
values = st.lists(st.none() | st.integers() | st.text(max_size=4))


def test_natsort_by_attribute_takes_none_first() -> None:
    assert [one.pod for one in natsort(ENDPOINTS, "pod")] == ["a-9", "a-10", "b", "c"]
    assert [one.zone for one in natsort(ENDPOINTS, "zone")] == [None, None, "east", "west"]
    assert [one.pod for one in natsort(ENDPOINTS, "zone", reverse=True)] == ["a-9", "b", "a-10", "c"]


def test_attributes_may_be_dotted_and_of_mappings() -> None:
    assert natsort([{"meta": {"n": 2}}, {"meta": {"n": 1}}], "meta.n") == [{"meta": {"n": 1}}, {"meta": {"n": 2}}]


@given(values, st.randoms(use_true_random=False))
def test_natsort_never_fails_and_does_not_depend_on_the_order(items: list[Any], random: Any) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)
    assert natsort(shuffled) == natsort(items)


@given(values)
def test_groups_hold_every_item_once(items: list[Any]) -> None:
    groups = group_by([{"k": item} for item in items], "k")
    assert sorted(str(item) for group in groups for item in group.list) == sorted(str({"k": item}) for item in items)
    assert all({"k": group.grouper} == group.list[0] for group in groups)
    assert len(groups) == len(unique_by(items))


def test_groups_are_sorted_and_stable() -> None:
    assert [(zone, [one.pod for one in items]) for zone, items in group_by(ENDPOINTS, "zone")] == [
        (None, ["a-10", "c"]),
        ("east", ["b"]),
        ("west", ["a-9"]),
    ]


def test_unique_keeps_the_first() -> None:
    assert [one.pod for one in unique_by(ENDPOINTS, "zone")] == ["a-10", "a-9", "b"]
    assert unique_by(["1", 1, "1", None, None]) == ["1", 1, None]


def test_a_misspelt_attribute_is_named() -> None:
    with pytest.raises(InvalidValueError, match="has no 'zome'") as caught:
        natsort(ENDPOINTS, "zome")
    assert "'zone'" in caught.value.remedy


@pytest.mark.parametrize("name", ["http", "8080", 8080])
def test_port_by_name_or_number(name: object) -> None:
    assert port_named(PORTS, name) == 8080


@pytest.mark.parametrize(
    ("ports", "name", "remedy"),
    [
        (PORTS, "htpp", "did you mean 'http'? there is: http=8080, metrics=9100"),
        (PORTS, "80", "there is: http=8080, metrics=9100"),
        ([{"name": "", "port": 80}], "http", "there is: (unnamed)=80"),
        ([], "http", "there is no port at all"),
    ],
)
def test_a_port_that_is_not_there_lists_what_is(ports: list[Any], name: str, remedy: str) -> None:
    with pytest.raises(InvalidValueError, match="no port is called") as caught:
        port_named(ports, name)
    assert caught.value.remedy == remedy


def test_a_name_for_two_ports_is_ambiguous() -> None:
    with pytest.raises(InvalidValueError, match="several"):
        port_named([{"name": "a", "port": 1}, {"name": "a", "port": 2}], "a")
