"""A bug of ours that one object triggers costs that object; one that concerns all leaves what runs as it is."""

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from pyconfd.daemon.translation import Translator
from pyconfd.derived import Read
from pyconfd.model.condition import condition_of_refusal
from pyconfd.model.context import RefusalReason
from pyconfd.model.snapshot import Snapshot
from pyconfd.model.status import Phase
from pyconfd.presets.cluster import ReadCluster
from pyconfd.presets.domains import DomainClaims
from pyconfd.presets.host_ownership import Hosts
from pyconfd.presets.registry import claims_of
from tests.daemon.fakes import Bed
from tests.presets import objects


def world(*names: str, bad: str = "", domain: str = "") -> Snapshot:
    found: list[objects.Named] = []
    for number, name in enumerate(names, start=1):
        notes = {"domain": domain or f"{name}.example.com", "proto": "http"}
        found.append(objects.service(name, notes | ({"trips": "yes"} if name == bad else {})))
        found.append(objects.slice_(name, objects.endpoint(f"192.0.2.{number}")))
    return objects.snapshot(*found)


@pytest.fixture
def tripping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser of domains raises for objects with an annotation ``trips``."""
    parse = DomainClaims._parsed

    def parsed(self: DomainClaims, read: Read, claimant: Any, asking: Any) -> Any:
        annotated = read(self._annotated, claimant)
        if annotated is not None and "trips" in (annotated.metadata.annotations or {}):
            raise KeyError("what the message has is for the log alone")
        return parse(self, read, claimant, asking)

    monkeypatch.setattr(DomainClaims, "_parsed", parsed)


class Reserving(Bed):
    reserve_s = 600.0


def faults(made: Bed) -> list[str]:
    return [str(each.ref) for each in made.status.refused if each.reason is RefusalReason.INTERNAL_ERROR]


@pytest.mark.usefixtures("tripping")
def test_the_others_are_served_from_the_start() -> None:
    made = Bed()
    made.source.show(world("good", "bad", bad="bad"))
    made.settle()
    assert made.phase() is Phase.SERVING
    assert "good" in made.serves
    assert "bad" not in made.serves
    assert faults(made) == ["Service demo/bad"]
    (refusal,) = (each for each in made.status.refused if each.reason is RefusalReason.INTERNAL_ERROR)
    assert "KeyError at test_faults.py:" in refusal.detail
    assert "for the log alone" not in refusal.detail
    assert condition_of_refusal(refusal).reason == "InternalError"


@pytest.mark.usefixtures("tripping")
def test_it_goes_and_comes_back_with_the_object() -> None:
    made = Bed()
    made.source.show(world("good", "bad"))
    made.settle()
    assert "bad" in made.serves
    made.source.show(world("good", "bad", bad="bad"))
    made.settle()
    assert faults(made) == ["Service demo/bad"]
    assert ("bad" in made.serves, "good" in made.serves) == (False, True)
    made.source.show(world("good", "bad"))
    made.settle()
    assert faults(made) == []
    assert "bad" in made.serves


@pytest.mark.usefixtures("tripping")
def test_nobody_gets_its_names_meanwhile() -> None:
    made = Reserving()
    made.source.show(world("good", "bad"))
    made.settle()
    taker = objects.service("taker", {"domain": "bad.example.com", "proto": "http"}, namespace="other")
    more = (taker, objects.slice_("taker", objects.endpoint("192.0.2.99"), namespace="other"))
    before = world("good", "bad", bad="bad")
    made.source.show(objects.snapshot(*before.services.values(), *before.endpointslices.values(), *more))
    made.run_for(2000.0, turns=30000)
    assert "192.0.2.99" not in made.serves


def test_a_bug_that_concerns_all_leaves_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Bed()
    made.source.show(world("good"))
    made.settle()
    with monkeypatch.context() as patched:

        def owners(self: Hosts) -> Any:
            raise ZeroDivisionError

        patched.setattr(Hosts, "owners", owners)
        made.source.show(world("good", "more"))
        made.run_for(5.0)
        assert made.phase() is Phase.REJECTED
        assert "good" in made.serves
        assert any("a bug of pyconfd (ZeroDivisionError)" in each for each in made.problems())
    made.run_for(60.0)
    assert made.phase() is Phase.SERVING
    assert "more" in made.serves


def test_claims_of_other_presets_are_made() -> None:
    context = Translator(("domains",)).translate(world("good"))

    def claims() -> Any:
        raise ZeroDivisionError

    with capture_logs() as logged:
        found = claims_of(replace(context, claims={"bad": claims, **context.claims}))
        assert {each.ref.name for each in found} == {"good"}
    assert [each["event"] for each in logged] == ["explanation.failed"]


def test_it_starts_with_what_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Bed()
    first.source.show(world("good"))
    first.settle()

    def see(self: ReadCluster, *_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(ReadCluster, "see", see)
    made = Bed(first.balancer.disk)
    made.source.show(world("good", "more"))
    made.run_for(30.0)
    assert "good" in made.serves
    assert any("a bug of pyconfd" in each for each in made.problems())
