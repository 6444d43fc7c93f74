import json
from pathlib import Path

from pyconfd.haproxy.history.generations import OwnersStore, decoded, encoded
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
    assert decoded(b"[[1]]") == decoded(b"") == {}


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
