"""What needs no reload goes live at once, what does waits its turn; nothing is dropped."""

import gc
from collections.abc import Collection
from itertools import pairwise

import pytest

from pyconfd.errors import ApplyError, Problem
from pyconfd.haproxy.config import diff
from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import Comparison
from pyconfd.haproxy.config.slices import SLICE
from pyconfd.haproxy.process.observation import OldWorker
from pyconfd.haproxy.process.old_workers import LEFT_ALONE_S, OldWorkers
from pyconfd.model.changes import Action, EndedWorker, FormerWorkers, RoomForReload
from pyconfd.model.context import EndpointTotals
from pyconfd.model.outcome import Applied, Deferred, Generation, Step, Stored
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import Rendering
from pyconfd.model.reservation import namespaces_of_changes
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.model.status import BalancerStatus, Paused, Phase
from pyconfd.status.document import Freshness, StatusReport
from pyconfd.status.text import render_text
from tests.daemon.fakes import DISRUPTIVE, Bed, FakeBalancer, FakeClock, FakeDisk, cluster
from tests.presets import objects

NAMED = """frontend fe
    bind :8000
{% if domains | length > 1 %}
    bind :8001
{% endif %}
backend be
{% for domain, items in domains.items() %}
{% for ip in items.ips %}
    server s-{{ ip }} {{ ip }}:80
{% endfor %}
{% endfor %}
"""
"""Servers go live; a second domain changes a bind."""


class LiveBalancer(FakeBalancer):
    """A HAProxy in memory that can be changed while it runs; ``refuses`` makes it answer otherwise than it should."""

    def __init__(self, clock: FakeClock, disk: FakeDisk | None) -> None:
        super().__init__(clock, disk)
        self.live: list[tuple[float, int]] = []
        self.live_takes_s = 0.002
        self.over_share: frozenset[str] = frozenset()
        self.texts: list[str] = []
        """What it ran after each of them."""
        self.refuses = False
        self.edited = False
        self.unwritten = False
        self.old_workers = 0
        self.order_at: float | None = None
        """When a reload is due that puts spares in order."""
        self.ended: EndedWorker | None = None
        self._comparison = Comparison()
        self._suspect = False

    def plan(self, rendering: Rendering) -> Plan:
        last = self.last_good()
        if last is None:
            return super().plan(rendering)
        can = Abilities(runtime=True)
        found = diff.plan(rendering, last.rendering, None, comparison=self._comparison, abilities=can)
        if self.edited:
            return Reload((ReloadReason.FILE_EDITED,), ("edited by hand",))
        if isinstance(found, Noop) and self.order_due_s() == 0.0:
            return Reload((ReloadReason.SPARES_IN_USE,), ("backend b is served by spare-a-1",))
        if self._suspect and not isinstance(found, Reload):
            return Reload((ReloadReason.NOT_LIVE,))
        return found

    @property
    def file_behind(self) -> bool:
        return self.unwritten

    def updates_at_runtime(self) -> bool:
        return self.last_good() is not None

    def may_reload_for(self, namespaces: Collection[str]) -> bool:
        return not self.over_share.issuperset(namespaces)

    def order_due_s(self) -> float | None:
        return None if self.order_at is None else max(0.0, self.order_at - self.clock.monotonic())

    def make_room(self) -> RoomForReload:
        return RoomForReload(free=self.old_workers <= 2, ended=self.ended)

    def sync(self, *, may_repair: bool = True) -> BalancerStatus:
        del may_repair
        return BalancerStatus(former=FormerWorkers(self.old_workers))

    def change(
        self,
        rendering: Rendering,
        plan: RuntimeUpdate,
        *,
        curdate: str,
        totals: EndpointTotals,
        now: float,
        in_slices: bool = False,
    ) -> Applied | Deferred | Reload:
        if self.refuses:
            self._suspect = True
            return Reload((ReloadReason.NOT_LIVE,), plan.details)
        last = self.last_good()
        assert last is not None
        if in_slices and (first := self._comparison.first_slice(last.rendering)):
            update = RuntimeUpdate(first.commands)
            self.change(first.rendering, update, curdate=curdate, totals=totals, now=now)
            return Deferred(plan, self._last.generation if self._last else None, update, more=True)
        self.live.append((self.clock.monotonic(), len(plan.commands)))
        self.unwritten = True
        self.texts.append(rendering.text)
        self.progress()
        self.clock.advance(self.live_takes_s)
        self._last = Stored(Generation(last.generation.number + 1, "", now, curdate, (), totals), rendering)
        return Applied(self._last.generation, plan, verified=True)

    def defer(self, plan: Reload, *, now: float, in_slices: bool = False) -> Deferred:
        last = self.last_good()
        assert last is not None
        if plan.live is not None:
            generation = last.generation
            self.change(
                self._comparison.partial(last.rendering).rendering,
                plan.live,
                curdate=generation.curdate,
                totals=generation.totals,
                now=now,
            )
        return Deferred(plan, generation=self._last.generation if self._last else None, live=plan.live)

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, totals: EndpointTotals, now: float) -> Applied:
        done = super().apply(rendering, plan, curdate=curdate, totals=totals, now=now)
        self._suspect = False
        return done

    def _transact(self, rendering: Rendering) -> None:
        super()._transact(rendering)
        self.edited, self.order_at = False, None

    @property
    def text(self) -> str:
        last = self.last_good()
        return last.rendering.text if last else ""

    @property
    def reloads(self) -> list[float]:
        return [at for at, _ in self.attempts]


class LiveBed(Bed):
    """A daemon whose balancer goes live and has served once."""

    def __init__(self, **apply: float) -> None:
        super().__init__(None, **{"reload_interval_s": 5.0, **apply})

    def make_balancer(self, disk: FakeDisk | None) -> LiveBalancer:
        return LiveBalancer(self.clock, disk)


def live_bed(**apply: float) -> tuple[LiveBed, LiveBalancer]:
    bed = LiveBed(**apply)
    assert isinstance(bed.balancer, LiveBalancer)
    bed.templates = {"02-part.tmpl": NAMED}
    bed.source.show(cluster("192.0.2.1"))
    bed.settle()
    assert bed.phase() is Phase.SERVING
    assert len(bed.balancer.reloads) == 1
    bed.run_for(10.0)
    return bed, bed.balancer


def test_who_reads_that_a_change_is_done_reads_that_the_file_has_to_follow() -> None:
    bed, balancer = live_bed()
    assert bed.status.applying.file_behind_since == 0.0
    bed.source.show(cluster("192.0.2.1", "192.0.2.2"))
    bed.turn()
    assert len(balancer.live) == 1
    assert bed.status.applying.file_behind_since == pytest.approx(bed.clock.now(), abs=1.0)
    balancer.unwritten = False
    bed.run_for(2.0)
    assert bed.status.applying.file_behind_since == 0.0


def test_garbage_is_collected_after_a_runtime_update() -> None:
    bed, balancer = live_bed()
    seen: list[bool] = []
    balancer.progress = lambda: seen.append(gc.isenabled())
    bed.source.show(cluster("192.0.2.1", "192.0.2.2"))
    bed.turn()
    assert seen == [False]
    assert gc.isenabled()


def test_the_first_change_goes_live_at_once() -> None:
    bed, balancer = live_bed()
    began = bed.clock.monotonic()
    bed.source.show(cluster("192.0.2.1", "192.0.2.2"))
    bed.turn()
    assert [at for at, _ in balancer.live] == [began]
    assert len(balancer.reloads) == 1
    bed.run_for(20.0)
    assert len(balancer.live) == 1  # and nothing more comes of it
    assert bed.status.generation is not None
    assert bed.status.applying.plans_by_action["live"] == 1


def test_the_reload_that_orders_spares_comes_when_it_is_due_though_nothing_changes() -> None:
    bed, balancer = live_bed()
    began = bed.clock.monotonic()
    balancer.order_at = began + 30.0
    bed.run_for(28.0)
    assert len(balancer.reloads) == 1
    expected = bed.status.next_attempt
    assert expected is not None
    assert expected.task == "give backends that spares serve their own names"
    bed.run_for(4.0)
    assert began + 30.0 <= balancer.reloads[-1] < began + 31.5
    assert bed.status.reloads_by_reason["spares_in_use"] == 1
    bed.run_for(60.0)
    assert len(balancer.reloads) == 2


def test_spares_that_are_used_up_are_ordered_at_once_and_not_with_the_next_look() -> None:
    bed, balancer = live_bed()
    balancer.order_at = bed.clock.monotonic() + 3600.0
    bed.source.show(cluster("192.0.2.1", "192.0.2.2"))
    balancer.order_at = bed.clock.monotonic()
    bed.turn()
    began = bed.clock.monotonic()
    bed.turn()
    assert len(balancer.live) == 1
    assert balancer.reloads[1:] == [pytest.approx(began, abs=0.3)]


def test_a_reload_for_something_else_orders_spares_too() -> None:
    bed, balancer = live_bed()
    balancer.order_at = bed.clock.monotonic() + 30.0
    bed.run_for(2.0)
    bed.source.show(two("192.0.2.1"))
    bed.run_for(60.0)
    assert len(balancer.reloads) == 2
    assert "spares_in_use" not in bed.status.reloads_by_reason


def test_what_comes_while_a_send_is_under_way_is_collected() -> None:
    bed, balancer = live_bed()
    for count in range(2, 30):
        bed.source.show(cluster(*(f"192.0.2.{number}" for number in range(1, count + 1))))
        bed.turn()
    bed.run_for(1.0)
    assert balancer.last_good() is not None
    assert "192.0.2.29:80" in balancer.text
    assert sum(count for _, count in balancer.live) == 28
    assert len(balancer.reloads) == 1


def test_a_reload_waits_and_holds_nothing_back() -> None:
    bed, balancer = live_bed()
    bed.source.show(two("192.0.2.1"))
    bed.run_for(1.0)
    second = balancer.reloads[-1]
    assert len(balancer.reloads) == 2  # after the quiet time, since there was none for long
    bed.source.show(cluster("192.0.2.1", "192.0.2.7"))  # the bind goes again: too early for a reload
    bed.turn()
    bed.run_for(1.0)
    assert len(balancer.reloads) == 2
    assert "192.0.2.7:80" in balancer.text  # but the server serves
    assert "bind :8001" in balancer.text
    for last in (8, 9):
        bed.source.show(cluster("192.0.2.1", f"192.0.2.{last}"))
        bed.run_for(0.5)
        assert f"192.0.2.{last}:80" in balancer.text
    bed.run_for(10.0)
    assert len(balancer.reloads) == 3  # one for all of it
    assert balancer.reloads[-1] - second >= 5.0
    assert "bind :8001" not in balancer.text


@pytest.mark.parametrize("takes_s", [0.002, 0.2])
def test_runtime_updates_leave_a_third_of_the_time(takes_s: float) -> None:
    bed, balancer = live_bed()
    balancer.live_takes_s = takes_s
    for last in range(2, 12):  # more often than it may change
        bed.source.show(cluster("192.0.2.1", f"192.0.2.{last}"))
        bed.run_for(takes_s / 4)
    gaps = [later - sooner for (sooner, _), (later, _) in pairwise(balancer.live)]
    assert gaps == pytest.approx([takes_s * 1.5] * len(gaps))


@pytest.mark.parametrize(("takes_s", "reload_interval_s", "pause_s"), [(0.25, 0, 0.75), (2, 0, 6), (0.25, 5, 5)])
def test_a_reload_waits_three_times_as_long_as_the_last_one_took(
    takes_s: float, reload_interval_s: float, pause_s: float
) -> None:
    bed, balancer = live_bed(reload_interval_s=reload_interval_s)
    balancer.takes_s = takes_s
    began = bed.clock.monotonic()
    bed.source.show(two("192.0.2.1"))
    bed.run_for(0.3)
    assert balancer.reloads[1:] == pytest.approx([began + 0.2 + takes_s / 2])  # the quiet time, and half of the reload
    bed.source.show(cluster("192.0.2.1"))
    bed.run_for(20.0)
    assert len(balancer.reloads) == 3
    assert balancer.reloads[2] - balancer.reloads[1] == pytest.approx(takes_s + pause_s)
    began = bed.clock.monotonic()
    bed.source.show(two("192.0.2.1"))
    bed.run_for(20.0)
    assert balancer.reloads[3:] == pytest.approx([began + 0.2 + takes_s / 2]), "a quiet time forgets the last one"


def test_an_edit_that_waits_for_its_turn_is_not_forgotten_over_what_goes_live_meanwhile() -> None:
    bed, balancer = live_bed()
    bed.source.show(two("192.0.2.1"))
    bed.run_for(1.0)
    bed.templates = {"02-part.tmpl": NAMED.replace("bind :8000", "bind :8000\n    maxconn 7")}
    bed.run_for(1.5)
    assert len(balancer.reloads) == 2, "it is too early for another one"
    for last in (8, 9):
        bed.source.show(two("192.0.2.1", f"192.0.2.{last}"))
        bed.run_for(0.1)
        assert f"192.0.2.{last}:80" in balancer.text
        assert "maxconn 7" not in balancer.text
        assert bed.status.pending_since > 0, "the edit does not serve yet"
    bed.run_for(10.0)
    assert "maxconn 7" in balancer.text
    assert len(balancer.reloads) == 3
    assert bed.status.pending_since == 0.0


def test_a_repair_that_waits_for_its_turn_is_not_made_out_of_turn() -> None:
    bed, balancer = live_bed()
    bed.source.show(two("192.0.2.1"))
    bed.run_for(1.0)
    assert len(balancer.reloads) == 2, "so that whatever takes a reload has to wait"
    balancer.edited = True
    bed.source.show(two("192.0.2.1", "192.0.2.2"))
    bed.run_for(3.0)
    assert len(balancer.reloads) == 2
    bed.run_for(10.0)
    _, second, third = balancer.reloads
    assert third - second >= 5.0
    assert bed.status.reloads_by_reason["file_edited"] == 1
    assert "192.0.2.2:80" in balancer.text


def test_what_is_put_back_counts_as_a_reload_and_takes_its_turn() -> None:
    bed, balancer = live_bed(retry_min_s=3.0, retry_max_s=3.0, reload_interval_s=0.0)
    balancer.broken = ApplyError(Step.INSTALL, Problem("/etc/haproxy", "the disk was full", "free some space"))
    bed.source.show(two("192.0.2.1"))
    bed.run_for(1.0)
    assert bed.phase() is Phase.FAILED
    balancer.broken, balancer.edited, balancer.takes_s = None, True, 2.0
    bed.run_for(2.0)
    assert bed.status.reloads_by_reason["file_edited"] == 1
    put_back = balancer.reloads[-1]
    bed.run_for(20.0)
    assert bed.phase() is Phase.SERVING
    assert balancer.reloads[-1] - put_back >= 4 * 2.0


def test_too_many_workers_of_the_past_make_reloads_wait() -> None:
    bed, balancer = live_bed()
    balancer.old_workers = 3
    bed.source.show(two("192.0.2.1", "192.0.2.2"))
    bed.run_for(30.0)
    assert len(balancer.reloads) == 1
    assert "192.0.2.2:80" in balancer.text
    assert bed.status.applying.former.count == 3
    balancer.ended = EndedWorker(4711, 14, 95.0, 3, ("shop",))
    bed.run_for(1.0)
    balancer.ended, balancer.old_workers = None, 2
    bed.run_for(5.0)
    assert len(balancer.reloads) == 2
    applying = bed.status.applying
    told = [change for change in bed.changes.told if change.action is Action.ENDED]
    assert (applying.workers_ended_total, applying.last_ended) == (len(told), EndedWorker(4711, 14, 95.0, 3, ("shop",)))
    assert told[0].summary == (
        "former worker 4711, which a change of shop had replaced 1 minute ago, was ended with 14 connections: "
        "3 is haproxy.max_old_workers"
    )
    text = render_text(StatusReport(Freshness.LIVE, bed.status.now, bed.status))
    assert "1 former worker was ended to make room for a reload, the last one" in text
    assert told[0].summary in text


def test_what_failed_is_not_tried_again_while_there_are_too_many_workers_of_the_past() -> None:
    bed, balancer = live_bed(retry_min_s=1.0, retry_max_s=2.0)
    balancer.broken = ApplyError(Step.INSTALL, Problem("/etc/haproxy", "the disk was full", "free some space"))
    bed.source.show(two("192.0.2.1"))
    bed.run_for(1.0)
    failed = len(balancer.reloads)
    assert bed.phase() is Phase.FAILED
    balancer.broken, balancer.old_workers = None, 3
    bed.run_for(30.0)
    assert len(balancer.reloads) == failed
    assert bed.phase() is Phase.FAILED
    balancer.old_workers = 0
    bed.run_for(5.0)
    assert len(balancer.reloads) == failed + 1
    assert bed.phase() is Phase.SERVING


def test_a_change_that_did_not_go_live_is_a_reload() -> None:
    bed, balancer = live_bed()
    balancer.refuses = True
    bed.source.show(cluster("192.0.2.1", "192.0.2.2"))
    bed.run_for(5.0)
    assert len(balancer.reloads) == 2
    assert "192.0.2.2:80" in balancer.text
    assert bed.status.reloads_by_reason["not_live"] == 1


def test_a_failed_reload_does_not_hold_back_what_needs_none() -> None:
    bed, balancer = live_bed(retry_max_s=1000.0)
    balancer.broken = DISRUPTIVE
    bed.source.show(two("192.0.2.1"))
    bed.run_for(5.0)
    failed = len(balancer.reloads)
    assert bed.phase() is Phase.FAILED
    bed.source.show(two("192.0.2.1", "192.0.2.3"))
    bed.run_for(5.0)
    assert "192.0.2.3:80" in balancer.text
    assert len(balancer.reloads) == failed
    assert bed.phase() is Phase.FAILED


def test_what_comes_in_the_moment_of_a_retry_that_fails_goes_live_all_the_same() -> None:
    bed, balancer = live_bed(retry_min_s=3.0, retry_max_s=1000.0)
    balancer.broken = ApplyError(Step.INSTALL, Problem("/etc/haproxy", "the disk was full", "free some space"))
    bed.source.show(two("192.0.2.1"))
    bed.run_for(1.0)
    failed = len(balancer.reloads)
    bed.clock.advance(10.0)
    bed.source.show(two("192.0.2.1", "192.0.2.3"))
    bed.turn()
    assert len(balancer.reloads) == failed + 1, "it was time to try again"
    assert "192.0.2.3:80" in balancer.text
    assert bed.phase() is Phase.FAILED


def test_what_newer_fragments_change_does_not_go_live_without_them() -> None:
    bed, balancer = live_bed(retry_max_s=1000.0)
    balancer.broken = ApplyError(Step.INSTALL, Problem("/etc/haproxy", "the disk was full", "free some space"))
    bed.templates = {"02-part.tmpl": NAMED.replace("bind :8000", "bind :9000").replace("s-{{ ip }}", "t-{{ ip }}")}
    bed.run_for(5.0)
    assert len(balancer.reloads) > 1, "they were tried"
    assert "t-192.0.2.1" not in balancer.text
    assert not balancer.live


def test_nothing_is_applied_from_the_moment_of_a_pause() -> None:
    bed, balancer = live_bed()
    bed.run_for(2.5)
    before = balancer.text
    bed.paused = Paused(bed.clock.now())
    bed.source.show(cluster("192.0.2.1", "192.0.2.2"))
    bed.run_for(0.3)  # before the next tick
    assert balancer.text == before
    bed.run_for(60.0)
    assert balancer.text == before


def two(*addresses: str) -> Snapshot:
    """Return a cluster with a second Service, for which the template binds another port."""
    members = {"shop": addresses, "more": ("192.0.2.100",)}
    services = [objects.service(name, {"domain": f"{name}.example.com", "proto": "http"}) for name in members]
    slices = [objects.slice_(name, *map(objects.endpoint, its)) for name, its in members.items()]
    return objects.snapshot(*services, *slices)


MANY = """frontend fe
    bind :8000
{% for domain, items in domains.items() %}
backend {{ domain }}
{% for ip in items.ips %}
    server s-{{ ip }} {{ ip }}:80
{% endfor %}
{% endfor %}
"""


def two_tenants(many: int, one: int) -> Snapshot:
    """Return a Service with 300 endpoints, and a neighbour with one."""
    endpoints = [objects.endpoint(f"10.{many}.{number // 200}.{number % 200 + 1}") for number in range(300)]
    return objects.snapshot(
        objects.service("many", {"domain": "many.example.com", "proto": "http"}),
        objects.slice_("many", *endpoints),
        objects.service("one", {"domain": "one.example.com", "proto": "http"}),
        objects.slice_("one", objects.endpoint(f"10.9.9.{one}")),
    )


def test_neighbour_waits_for_one_slice_at_most() -> None:
    bed, balancer = live_bed()
    bed.templates = {"02-part.tmpl": MANY}
    bed.source.show(two_tenants(many=1, one=1))
    bed.run_for(30.0)
    reloads = len(balancer.reloads)
    del balancer.live[:], balancer.texts[:]
    bed.source.show(two_tenants(many=2, one=1))
    bed.turn()
    assert [count for _, count in balancer.live] == [SLICE]
    bed.source.show(two_tenants(many=2, one=2))
    bed.turn()
    (_, first), (_, second) = balancer.live
    assert (first, second) == (SLICE, 2), "no pause, and nothing of the other one"
    assert "10.9.9.2" in balancer.texts[1]
    assert "10.1.1.1:" in balancer.texts[1]
    bed.run_for(10.0)
    assert sum(count for _, count in balancer.live) == 602
    assert "10.1." not in balancer.text
    assert not bed.status.pending_since
    assert len(balancer.reloads) == reloads


def tenants(evil: int, shop: int) -> Snapshot:
    """Return so many Services of two namespaces; each is a backend of its own, and so a reload."""
    numbers = {"evil": evil, "shop": shop}
    return objects.snapshot(
        *(
            objects.service(
                f"s{number}", {"domain": f"s{number}.{namespace}.example.com", "proto": "http"}, namespace=namespace
            )
            for namespace, count in numbers.items()
            for number in range(count)
        )
    )


def test_namespace_over_its_share_of_reloads_waits_and_no_other() -> None:
    bed, balancer = live_bed()
    bed.templates = {"02-part.tmpl": MANY}
    bed.source.show(tenants(evil=1, shop=1))
    bed.run_for(30.0)
    reloads = len(balancer.reloads)
    balancer.over_share = frozenset({"evil"})
    bed.source.show(tenants(evil=2, shop=1))
    bed.run_for(60.0)
    assert len(balancer.reloads) == reloads
    assert bed.status.pending_since
    spent = bed.status.spent_share
    assert spent is not None
    assert (spent.namespaces, bed.status.now - spent.since > 50.0) == (("evil",), True)
    text = render_text(StatusReport(Freshness.LIVE, bed.status.now, bed.status))
    assert "new names of evil wait for up to 30 s: half of haproxy.max_old_workers were replaced" in text
    complete = bed.daemon.memory.complete
    assert complete is not None
    assert Key("evil", "s0") in complete.services
    assert Key("evil", "s1") not in complete.services
    bed.source.show(tenants(evil=3, shop=2))  # another one's change takes his along
    bed.run_for(10.0)
    assert len(balancer.reloads) == reloads + 1
    assert "s2.evil" in balancer.text
    assert "s1.shop" in balancer.text
    assert bed.status.spent_share is None
    bed.source.show(tenants(evil=4, shop=2))
    bed.run_for(60.0)
    assert len(balancer.reloads) == reloads + 1
    balancer.over_share = frozenset()  # one of the workers that he left behind has ended
    bed.run_for(2.0)
    assert len(balancer.reloads) == reloads + 2
    assert "s3.evil" in balancer.text


class SharedBalancer(LiveBalancer):
    """Its former workers have the sessions of a tenant, which end after ``hold_s`` or with their worker."""

    hold_s = 0.0
    most = 0

    def __init__(self, clock: FakeClock, disk: FakeDisk | None) -> None:
        super().__init__(clock, disk)
        self.old = OldWorkers(10)
        self.former: dict[int, float] = {}

    def _see(self) -> None:
        now = self.clock.monotonic()
        self.former = {pid: at for pid, at in self.former.items() if now - at < self.hold_s}
        self.old.see(tuple(OldWorker(pid, now - at, now - at) for pid, at in self.former.items()))

    def apply(self, rendering: Rendering, plan: Reload, *, curdate: str, totals: EndpointTotals, now: float) -> Applied:
        before, pid = self.last_good(), self.disk.worker
        done = super().apply(rendering, plan, curdate=curdate, totals=totals, now=now)
        former = before.rendering.owners if before else {}
        self.former[pid] = self.clock.monotonic()
        self.old.replaced(pid, namespaces_of_changes(former, rendering.owners), self.clock.monotonic())
        self._see()
        self.most = max(self.most, len(self.old.known))
        return done

    def may_reload_for(self, namespaces: Collection[str]) -> bool:
        self._see()
        return self.old.has_share(namespaces, self.clock.monotonic())

    def make_room(self) -> RoomForReload:
        self._see()
        if not self.old.at_bound:
            return RoomForReload(free=True)
        if (chosen := self.old.next_to_end()) is not None:
            self.old.ended(chosen)
            del self.former[chosen.pid]
        return RoomForReload(free=False)


class SharedBed(LiveBed):
    def make_balancer(self, disk: FakeDisk | None) -> LiveBalancer:
        return SharedBalancer(self.clock, disk)


@pytest.mark.parametrize(
    ("hold_s", "most_reloads", "most_former", "most_s"),
    [(0.0, 140, 1, 0.5), (3.0, 140, 6, 0.5), (36000.0, 24, 10, LEFT_ALONE_S)],
)
def test_thousand_changes_of_a_tenant_take_a_bounded_number_of_reloads(
    hold_s: float, most_reloads: int, most_former: int, most_s: float
) -> None:
    """A change each 250 ms, just longer than the quiet time, for more than four minutes."""
    bed = SharedBed(reload_interval_s=0.0)
    balancer = bed.balancer
    assert isinstance(balancer, SharedBalancer)
    balancer.takes_s, balancer.hold_s = 0.05, hold_s
    bed.templates = {"02-part.tmpl": MANY}
    bed.source.show(tenants(evil=0, shop=1))
    bed.run_for(60.0)
    bed.clock.advance(36000.0)
    bed.settle()
    before, balancer.most = len(balancer.reloads), 0
    waited: list[float] = []
    shop = 1
    for change in range(1000):
        if change % 100 == 50:
            shop += 1
            asked = bed.clock.monotonic()
        bed.source.show(tenants(evil=1 + change % 2, shop=shop))
        bed.run_for(0.25)
        if len(waited) < shop - 1 and f"s{shop - 1}.shop" in balancer.text:
            waited.append(bed.clock.monotonic() - asked)
    assert len(balancer.reloads) - before <= most_reloads
    assert balancer.most <= most_former
    assert len(waited) == 10
    assert max(waited) <= most_s
