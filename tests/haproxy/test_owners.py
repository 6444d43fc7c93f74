import json
from pathlib import Path

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.owners import OwnersStore, decoded, encoded
from pyconfd.haproxy.pin import CLAIMS_FILE, PinFile
from pyconfd.model.pin import Pin
from pyconfd.model.tenure import Name, Owner, Owners

ONE: Owners = {
    Name("", "a.example.com"): Owner("Service", "x", "a", "2024"),
    Name("80/tcp", ""): Owner("S", "y", "b", ""),
}
TWO: Owners = {Name("", "b.example.com"): Owner("Service", "x", "b", "2025")}


def test_what_is_kept_is_given_back() -> None:
    owners = {"domains": ONE, "kube2lb": TWO}
    assert decoded(encoded(owners)) == owners
    assert encoded({"kube2lb": TWO, "domains": ONE}) == encoded(owners)
    with pytest.raises(RejectedInput):
        decoded(b"[[1]]")


def test_what_a_newer_version_adds_to_a_row_is_ignored() -> None:
    rows = [[*row, "of a newer version", 2] for row in json.loads(encoded({"domains": ONE}))]
    assert decoded(json.dumps(rows).encode()) == {"domains": ONE}


def test_each_is_kept_once_and_goes_when_nothing_needs_it(tmp_path: Path) -> None:
    store, folder = OwnersStore(str(tmp_path)), tmp_path / "claims"
    assert store.keep({}) == ""
    first = store.keep({"domains": ONE})
    assert store.keep({"domains": ONE}) == first
    assert store.keep({"domains": dict(ONE)}) == first
    assert decoded(store.read(first)) == {"domains": ONE}
    second = store.keep({"domains": TWO})
    assert {path.stem for path in folder.iterdir()} == {first, second}
    store.prune([])
    assert {path.stem for path in folder.iterdir()} == {second}
    assert store.read(first) == b""
    (folder / f"{second}.json").write_bytes(b"[]")
    assert store.read(second) == b""
    assert store.read("") == b""


def test_a_pin_has_claims_of_its_own(tmp_path: Path) -> None:
    pins, data = PinFile(str(tmp_path)), encoded({"domains": ONE})
    digest = OwnersStore(str(tmp_path)).keep({"domains": ONE})
    pin = Pin("a", 1, "b", 1.0, claims=digest)
    pins.begin(pin, data)
    assert pins.owners(pin) == {"domains": ONE}
    assert pins.owners(Pin("a", 1, "b", 1.0)) == {}
    (tmp_path / CLAIMS_FILE).write_bytes(b"[]")
    with pytest.raises(RejectedInput, match="missing or damaged"):
        pins.owners(pin)
    pins.end()
    assert not (tmp_path / CLAIMS_FILE).exists()
