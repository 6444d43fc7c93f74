"""What records of the model say of themselves."""

from dataclasses import replace

import pytest

from pyconfd.model.kubernetes import NO_ROOM, TOO_LARGE, ObjectRef, WholeObject, why_left_out
from pyconfd.model.listener import Listener
from pyconfd.model.operations import AddServer
from pyconfd.model.snapshot import HostFacts, ListeningSocket, Named, Resource, Snapshot


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        (ObjectRef("Service", "shop", "web"), "Service shop/web"),
        (ObjectRef("Node", "", "one"), "Node one"),
        (ObjectRef("Service", "shop", "web", "east"), "Service shop/web (cluster east)"),
        (ObjectRef("Service", "shop", "a\nb"), "Service shop/a\\nb"),
    ],
)
def test_the_name_of_an_object(ref: ObjectRef, text: str) -> None:
    assert str(ref) == text


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", ""),
        ("x", ""),
        (TOO_LARGE, "tls.crt is larger than 256 KiB"),
        (
            NO_ROOM,
            "tls.crt is not read: its namespace has more than 32 MiB of them; delete some, then change this one",
        ),
    ],
)
def test_why_a_value_was_not_kept(value: str, why: str) -> None:
    assert why_left_out("tls.crt", value) == why


def test_a_whole_object_is_read_once_and_never_shown() -> None:
    one, asked = WholeObject(b'{"a": 1}'), []

    def make(json: bytes) -> bytes:
        asked.append(json)
        return json[:3]

    assert (one.made(make), one.made(make), asked) == (b'{"a', b'{"a', [b'{"a": 1}'])
    assert one == WholeObject(b'{"a": 1}')
    assert hash(one) == hash(WholeObject(b'{"a": 1}'))
    assert one != WholeObject(b"{}")
    assert one != b'{"a": 1}'
    assert repr(one) == "WholeObject(8 bytes)"


@pytest.mark.parametrize(
    ("words", "weight", "disabled", "checked", "agent_checked"),
    [
        ("", 1, False, False, False),
        ("weight 0", 0, False, False, False),
        ("weight 10 weight 20", 20, False, False, False),
        ("weight x", 1, False, False, False),
        ("weight", 1, False, False, False),
        ("disabled", 1, True, False, False),
        ("disabled enabled", 1, False, False, False),
        ("enabled disabled", 1, True, False, False),
        ("check", 1, False, True, False),
        ("check no-check", 1, False, False, False),
        ("no-check check", 1, False, True, False),
        ("agent-check", 1, False, False, True),
        ("agent-check no-agent-check", 1, False, False, False),
    ],
)
def test_the_words_of_a_server(words: str, weight: int, disabled: bool, checked: bool, agent_checked: bool) -> None:
    server = AddServer("be", "s", "192.0.2.1:80", tuple(words.split()))
    assert (server.weight, server.disabled, server.checked, server.agent_checked) == (
        weight,
        disabled,
        checked,
        agent_checked,
    )


def test_facts_of_the_host() -> None:
    known = HostFacts(frozenset({"192.0.2.1"}), nonlocal_bind_v6=True, ephemeral_ports=(50000, 60000))
    assert (HostFacts().known, known.known) == (False, True)
    assert replace(known, hour=1, certificates={}, nonlocal_bind_v4=True).addressing == replace(
        known, nonlocal_bind_v4=True
    )
    socket = ListeningSocket("::", 80, v6only=True)
    assert socket.listener == Listener("::", 80, v6only=True)


@pytest.mark.parametrize(
    ("denied", "expected"),
    [
        ((), False),
        ((Named(Resource.SECRETS, "shop", ""),), True),
        ((Named(Resource.SECRETS, "", ""),), True),
        ((Named(Resource.SECRETS, "bank", ""),), False),
        ((Named(Resource.SECRETS, "shop", "one"),), False),
        ((Named(Resource.PODS, "shop", ""),), False),
    ],
)
def test_whether_secrets_may_be_listed(denied: tuple[Named, ...], expected: bool) -> None:
    assert Snapshot(denied=denied).denies_secrets_of("shop") is expected


def test_each_resource_has_its_mapping() -> None:
    assert all(getattr(Snapshot(), each.field) == {} for each in Resource)
    assert Resource.CONFIGMAPS.field == "config_maps"
