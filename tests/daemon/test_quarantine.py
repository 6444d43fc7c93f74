"""When who is left out is tried again, in the loop: the clock is the test's."""

from pyconfd.daemon.offending import Offence, SearchResult
from pyconfd.daemon.quarantine import Quarantine
from pyconfd.errors import Problem
from pyconfd.model.context import RefusalReason
from pyconfd.model.outcome import Held, Rejected, Step
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.model.status import Phase
from pyconfd.presets.origins import ObjectOrigin
from pyconfd.presets.registry import claims_of
from tests.daemon.fakes import EPOCH, TEMPLATE, Bed
from tests.presets import objects

DIVIDING = TEMPLATE + "{% for domain, items in domains.items() %}\n# {{ 100 // items.ips | length }}\n{% endfor %}\n"
"""Fails for a service without endpoints."""

JUDGED = TEMPLATE + (
    "{% for domain, items in domains.items() %}\n# {{ items.service.annotations.lb | default('x') }}\n{% endfor %}\n"
)
"""The fake balancer refuses ``blance``, and names no line."""


def world(**services: tuple[str, ...] | str) -> Snapshot:
    """Return a cluster: each service with its addresses, or with one and an annotation ``lb``."""
    found: list[objects.Named] = []
    for number, (name, given) in enumerate(services.items(), start=1):
        notes = {"domain": f"{name}.example.com", "proto": "http"}
        addresses = given if isinstance(given, tuple) else (f"192.0.2.{number}",)
        found.append(objects.service(name, notes | ({} if isinstance(given, tuple) else {"lb": given})))
        found.append(objects.slice_(name, *map(objects.endpoint, addresses)))
    return objects.snapshot(*found)


def bed(template: str, found: Snapshot) -> Bed:
    made = Bed()
    made.templates = {"02-part.tmpl": template}
    made.source.show(found)
    made.settle()
    return made


def held(made: Bed) -> list[str]:
    return [one.ref.name for one in made.status.quarantine.now]


GOOD = ("192.0.2.9",)


def test_a_service_without_endpoints_comes_back_with_them() -> None:
    made = bed(DIVIDING, world(good=GOOD, bad=()))
    assert made.phase() is Phase.SERVING
    assert held(made) == ["bad"]
    (one,) = made.status.quarantine.now
    assert one.step == Step.RENDER
    assert "division by zero" in one.detail
    assert one.since >= EPOCH
    assert [each.reason for each in made.status.refused if each.ref.name == "bad"] == [RefusalReason.QUARANTINED]
    assert "backend bad" not in made.serves
    made.source.show(world(good=GOOD, bad=("192.0.2.2",)))
    made.run_for(12.0)
    assert held(made) == []
    assert "backend bad" in made.serves


def test_who_is_left_out_still_says_what_it_asks_for() -> None:
    made = bed(JUDGED, world(good="x", bad="blance"))
    for addresses in (GOOD, ("192.0.2.8",)):  # found in the first round, and known in the next
        seen = made.daemon.memory.seen
        assert seen is not None
        claims = {each.ref.name: each for each in claims_of(seen.context)}
        assert (claims["bad"].names, claims["bad"].backends) == (("bad.example.com",), ())
        assert [each.reason for each in claims["bad"].refused] == [RefusalReason.QUARANTINED]
        assert [each.name for each in claims["good"].backends] == ["good.example.com"]
        made.source.show(world(good=addresses, bad="blance"))
        made.run_for(0.4)
    made.source.show(world(good=GOOD, bad="x"))
    made.run_for(12.0)
    seen = made.daemon.memory.seen
    assert seen is not None
    assert [len(each.backends) for each in claims_of(seen.context)] == [1, 1]


def test_the_others_go_on_and_cost_no_search() -> None:
    made = bed(JUDGED, world(good="x", bad="blance"))
    assert held(made) == ["bad"]
    before = made.balancer.checks
    for number in range(5):
        made.source.show(world(good=(f"192.0.2.{100 + number}",), bad="blance"))
        made.run_for(0.4)
    made.settle()
    assert "192.0.2.104:80" in made.serves
    assert held(made) == ["bad"]
    assert made.balancer.checks - before <= 5 + 5, (
        "each change is checked, and the one in quarantine tried now and then"
    )


def test_who_stays_bad_is_tried_more_and_more_seldom() -> None:
    made = bed(JUDGED, world(good="x", bad="blance"))
    since = made.status.quarantine.now[0].since
    made.run_for(3600.0)
    before = made.balancer.checks
    made.run_for(3600.0)
    assert held(made) == ["bad"]
    assert made.status.quarantine.now[0].since == since
    assert made.balancer.checks - before <= 30
    assert made.status.quarantine.total_by_step == {"check": 1}


def test_new_fragments_are_tried_with_everybody() -> None:
    made = bed(JUDGED, world(good="x", bad="blance"))
    made.templates = {"02-part.tmpl": TEMPLATE}
    made.run_for(12.0)
    assert held(made) == []
    assert made.phase() is Phase.SERVING
    assert "backend bad" in made.serves


def test_new_fragments_may_leave_out_who_is_out_already_and_nobody_else() -> None:
    made = bed(JUDGED, world(good="x", bad="blance"))
    made.templates = {"02-part.tmpl": JUDGED + "# more\n"}
    made.settle()
    assert made.phase() is Phase.SERVING
    assert held(made) == ["bad"]
    assert "# more" in made.serves
    made.templates = {"02-part.tmpl": DIVIDING + JUDGED.removeprefix(TEMPLATE)}
    made.source.show(world(good=(), bad="blance", better=GOOD))
    made.settle()
    assert made.phase() is Phase.REJECTED
    assert "backend good" in made.serves
    assert held(made) == ["bad"]


def test_a_fault_behind_which_nobody_is_costs_no_search_for_each_event() -> None:
    made = bed(JUDGED + "blance\n", world(good="x"))
    assert made.phase() is Phase.REJECTED
    assert held(made) == []
    made.run_for(600.0)
    before = made.balancer.checks
    for number in range(10):
        made.source.show(world(good=(f"192.0.2.{100 + number}",)))
        made.run_for(3.0)
    assert made.balancer.checks - before <= 10 + 6


def test_fragments_that_served_before_come_back_without_those_who_spoil_them() -> None:
    made = bed(JUDGED, world(good="x", bad="blance"))
    made.templates = {"02-part.tmpl": TEMPLATE}
    made.settle()
    made.source.show(world(good="x", bad="blance", worse="blance"))
    made.settle()
    assert held(made) == []
    made.templates = {"02-part.tmpl": JUDGED + "# never served\n"}
    made.run_for(30.0)
    assert (held(made), "never served" in made.serves) == ([], False), "they take nobody away"
    made.templates = {"02-part.tmpl": JUDGED}
    made.run_for(30.0)
    assert held(made) == ["bad", "worse"]
    assert "backend good" in made.serves
    assert made.problems() == ()


def test_unproven_fragments_leave_nobody_due() -> None:
    quarantine, shown = Quarantine(retry_min_s=1.0, retry_max_s=10.0), world(bad="x")
    origin = ObjectOrigin(Resource.SERVICES, Key("demo", "bad"))
    found = SearchResult({origin: Offence(Problem("a.tmpl line 1", "division by zero"), Step.RENDER)})
    left_out = quarantine.left_out(shown, 0.0, may_release=True, were_applied=True)
    quarantine.concluded(left_out, Rejected(Step.RENDER, ()), found, now=0.0, wall=0.0)
    quarantine.retry_all(5.0)
    for now in (5.0, 6.0):
        left_out = quarantine.left_out(shown, now, may_release=True, were_applied=False)
        quarantine.concluded(left_out, Held("1", Problem("x", "held")), None, now=now, wall=now)
        assert quarantine.due_at == now + 1.0
