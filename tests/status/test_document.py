from collections.abc import Callable
from types import MappingProxyType

import msgspec
import pytest

from pyconfd.errors import RejectedInput
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.status import Status
from pyconfd.status.document import decode, encode


def test_a_status_survives_the_way_there_and_back(make_status: Callable[..., Status]) -> None:
    status = make_status(reloads_by_reason=MappingProxyType({"maps_changed": 3}), problems=("é\n    -> ü",))
    assert decode(encode(status)) == status


def test_the_emptiest_status_survives_too() -> None:
    status = Status(now=1.0, version="1", pid=1, started_at=1.0, heartbeat_at=0.0)
    assert decode(encode(status)) == status


def test_fields_of_a_newer_version_are_passed_over(make_status: Callable[..., Status]) -> None:
    document = msgspec.json.decode(encode(make_status()))
    document["brand_new"] = {"x": 1}
    assert decode(msgspec.json.encode(document)) == make_status()


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"<html>", b"{}", b"\xff", b'{"refused": [1]}', b'{"refused": [{"ref": {}}]}', b'{"refused": 1}'],
)
def test_anything_else_is_rejected_input(data: bytes) -> None:
    with pytest.raises(RejectedInput, match="not a status of pyconfd"):
        decode(data)


def test_thousands_of_refused_objects_are_encoded_once(
    make_status: Callable[..., Status], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = tuple(
        Refusal(ObjectRef("Service", "demo", f"s{number}"), "f", "", RefusalReason.INVALID_VALUE, "wrong")
        for number in range(10_001)
    )
    status = make_status(refused=refused)
    encode(status)
    monkeypatch.setattr("pyconfd.status.document.ObjectRef", None)  # nothing can be made without it
    assert encode(status).count(b'"wrong"') == len(refused)
