"""What is held, what passes, and what ends a hold."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pyconfd.admission.endpoint_counts import EndpointCounts
from pyconfd.admission.kept_objects import KeptObjects, addresses_of, with_missing
from pyconfd.admission.removal_protection import Moment, RemovalProtection, RemovalRules, SavedHold
from pyconfd.model.context import Claimed
from pyconfd.model.hold import Hold, HoldKind, HoldStep
from pyconfd.model.kubernetes import EndpointPort, PodStatus, ServicePort
from pyconfd.model.kubernetes import Pod as KubernetesPod
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import RECORD_OF, ROUTING_RESOURCES, Key, Resource, Snapshot, Terminating
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.preset import PresetOptions
from tests.admission.cluster import Cluster, Pod
from tests.presets import objects
from tests.presets.gateway import objects as gateways
from tests.presets.ingress import objects as ingresses

TOTAL, SHARE = HoldKind.TOTAL, HoldKind.SHARE
BEGUN, CONFIRMED, EXPIRED, ALLOWED, RETURNED = HoldStep


@pytest.mark.parametrize(
    ("counts", "script", "kind", "served"),
    [
        # Everything, however it goes, and without limit.
        ((3, 4), "all hide; all lose-slices", TOTAL, "3 4"),
        ((3, 4), "all lose-slices; all hide", TOTAL, "3 4"),
        ((3, 4), "all lose-slices; restart; all hide; restart", TOTAL, "3 4"),
        ((3,), "s0 gone; list; wait 9999; wait 9999", TOTAL, "3"),
        ((1, 1), "s0 unready; s1 unready", TOTAL, "0 1"),  # the first was applied
        ((3,), "s0 gone; allow", None, "0"),
        ((3,), "s0 terminate; s0 gone", TOTAL, "3"),
        ((3,), "s0 terminate", None, "3"),  # what terminates still serves where nothing else does
        ((10,), "s0 gone; s0 back 10", None, "10"),
        ((10,), "s0 gone; s0 new 10", None, "10"),
        # More than the share.
        ((4, 6), "s1 gone", SHARE, "4 6"),
        ((4, 6), "s1 gone; wait 9999", SHARE, "4 6"),  # no list confirmed it
        ((4, 6), "s1 gone; list; wait 55", SHARE, "4 6"),
        ((4, 6), "s1 gone; list; wait 61", None, "4 0"),
        ((4, 6), "s1 gone; wait 61; list; list", None, "4 0"),
        ((4, 6), "s1 gone; restart; list; wait 55", SHARE, "4 6"),
        ((4, 6), "s1 gone; restart; list; wait 61", None, "4 0"),
        ((4, 6), "s1 gone; allow", None, "4 0"),
        ((4, 6), "s1 hide; s1 back 6", None, "4 6"),
        ((4, 6), "s1 gone; s1 back 4", None, "4 4"),  # what is missing still is too little
        ((4, 6), "s1 gone; s0 new 1; s7 new 1", SHARE, "5 6 1"),  # newcomers elsewhere
        ((4, 8), "s1 gone; s1 new 1", SHARE, "4 9"),  # beside the kept ones
        # Less than that, or not at once.
        ((6, 4), "s1 gone", None, "6 0"),
        ((5, 5), "s1 gone", None, "5 0"),
        ((2, 4), "s1 gone", None, "2 0"),
        ((100, 20), "s1 gone", None, "100 0"),
        ((4, 3, 3), "s1 gone; wait 10; s2 gone", SHARE, "4 0 3"),
        ((4, 3, 3), "s1 gone; wait 61; s2 gone", None, "4 0 0"),
        ((4, 3, 3), "fail; s1 gone; wait 10; s2 gone", SHARE, "4 3 3"),  # the first was never applied
        # What is announced, or replaced.
        ((10,), "s0 terminate 8; s0 gone 8", None, "2"),
        ((10, 10), "all new 10; all gone 10", None, "10 10"),
        ((10, 10), "all terminate 9; all gone 9; all new 9", None, "10 10"),
        ((10, 10), "all new 10; all terminate 10; all gone 10; wait 1; s0 gone; s1 gone 5", SHARE, "0 10"),
        # A Service that is deleted by name, before its endpoints or after them.
        ((4, 6), "s1 delete", None, "4"),
        ((4, 6), "all delete", None, ""),
        ((4, 6), "s1 delete; s1 lose-slices", None, "4"),
        ((4, 6), "s1 lose-slices; s1 delete", None, "4"),
        ((4, 6), "all lose-slices; all delete", None, ""),
        ((4, 6), "all lose-slices; s0 delete", TOTAL, "6"),
        ((4, 6), "s1 lose-slices; restart; s1 delete", None, "4"),
        ((2, 8, 3), "s1 gone; s2 gone; s2 delete", SHARE, "2 8"),  # the other loss is held
        ((4, 6), "s1 delete; s0 hide", TOTAL, "4"),
        ((4, 6), "fail; s1 delete; all lose-slices", TOTAL, "4"),
        ((4, 6), "all delete; s1 back 6; wait 61; s1 hide", SHARE, "4 6"),  # another one of that name vanishes
        # A hold that changes.
        ((4, 6), "s1 gone; s0 gone; list; wait 9999", TOTAL, "4 6"),
        ((10,), "s0 gone; list; wait 9999; s0 back 1; wait 55", SHARE, "10"),
        ((10,), "s0 gone; list; wait 9999; s0 back 1; wait 61; wait 1", None, "1"),
        ((4, 6), "s1 unready; s1 terminate 1", SHARE, "4 5"),
        ((4, 6), "s1 unready; s1 terminate 1; s1 gone 1; restart", SHARE, "4 5"),
        ((4, 8, 3), "s1 gone; s1 hide; s2 gone", SHARE, "4 8 3"),  # what goes meanwhile is held as well
    ],
)
def test_removal_protection(counts: tuple[int, ...], script: str, kind: HoldKind | None, served: str) -> None:
    cluster = Cluster(*counts)
    cluster.do(script)
    assert (cluster.kind, cluster.counts) == (kind, served)
    assert kind is not None or cluster.served is cluster.raw


@pytest.mark.parametrize(
    ("rules", "script", "kind"),
    [
        (RemovalRules(total=False, least=11), "all gone", None),
        (RemovalRules(total=False), "all gone", SHARE),
        (RemovalRules(share=1.0), "s1 gone", None),
        (RemovalRules(share=1.0), "s1 gone; s0 gone", TOTAL),
        (RemovalRules(least=7), "s1 gone", None),
    ],
)
def test_removal_rules(rules: RemovalRules, script: str, kind: HoldKind | None) -> None:
    cluster = Cluster(4, 6, rules=rules)
    cluster.do(script)
    assert cluster.kind is kind


@pytest.mark.parametrize(
    ("script", "steps"),
    [
        ("s1 gone; list; wait 61", [BEGUN, CONFIRMED, EXPIRED]),
        ("s1 gone; s1 back 6", [BEGUN, RETURNED]),
        ("all gone; list; allow", [BEGUN, CONFIRMED, ALLOWED]),
        ("s1 gone; s0 gone", [BEGUN, BEGUN]),
    ],
)
def test_removal_protection_tells_each_step(script: str, steps: list[HoldStep]) -> None:
    cluster = Cluster(4, 6)
    cluster.do(script)
    assert cluster.steps == steps


def test_removal_protection_says_what_is_held() -> None:
    cluster = Cluster(4, 3, 3)
    cluster.do("s1 gone; s2 gone")
    hold = cluster.protection.hold
    assert hold is not None
    assert (hold.lost, hold.already_applied, hold.of, hold.applies_at) == (3, 3, 10, hold.since + 60.0)
    cluster.do("s0 gone 2; restart")
    assert cluster.protection.hold is not None
    assert (cluster.protection.hold.hold_id, cluster.protection.hold.lost) == (hold.hold_id, 5)
    cluster.do("s0 gone")
    total = cluster.protection.hold
    assert (total.kind, total.applies_at, total.hold_id != hold.hold_id) == (TOTAL, 0.0, True)


def test_permission_for_partial_loss_allows_no_total_loss() -> None:
    cluster = Cluster(4, 6)
    cluster.do("s1 gone")
    assert cluster.protection.hold is not None
    cluster.allowed = {cluster.protection.hold.hold_id}
    cluster.do("s0 gone")
    assert (cluster.kind, cluster.counts) == (TOTAL, "4 6")


@pytest.mark.parametrize("restart", ["", "; restart"])
def test_removal_protection_yields_an_address_to_its_new_pod(restart: str) -> None:
    cluster = Cluster(1, 9)
    cluster.do("s1 gone")
    cluster.add("s0", "s0-other", "10.1.0.3")
    cluster.do(f"wait 1{restart}")
    served = cluster.addresses()
    assert "10.1.0.3" in served["s0"]
    assert served["s1"] == {f"10.1.0.{number}" for number in range(9) if number != 3}


def test_removal_protection_never_undoes_what_was_applied() -> None:
    """Of 453 endpoints beside 323 others 200 announce that they leave, 250 vanish later: each time under half."""
    cluster = Cluster(453, 323)
    cluster.do("s0 terminate 200; s0 gone 200; wait 20; s0 gone 250")
    assert (cluster.kind, cluster.counts) == (None, "3 323")
    cluster.do("wait 30; s1 new 1")
    assert (cluster.kind, cluster.counts) == (None, "3 324")


@pytest.mark.parametrize("restart", ["wait 1", "restart"])
def test_service_that_is_edited_during_a_hold_is_served_as_edited(restart: str) -> None:
    cluster = Cluster(4, 6)
    cluster.do("s1 lose-slices")
    cluster.pods.domains["s1"] = "other"
    cluster.do(f"wait 1; s1 hide; {restart}")
    assert (cluster.kind, {name: len(each) for name, each in cluster.addresses().items()}) == (
        SHARE,
        {"s0": 4, "other": 6},
    )


@pytest.mark.parametrize(
    ("script", "kept"),
    [
        ("s2 new 3; all lose-slices", {"s0": 4, "s1": 6, "s2": 3}),
        ("s1 new 2; all lose-slices", {"s0": 4, "s1": 8}),
        ("s1 gone 2; s1 new 1; all gone", {"s0": 4, "s1": 7}),
        ("s1 terminate 1; s1 gone 1; s0 new 1; all lose-slices", {"s0": 5, "s1": 5}),
    ],
    ids=["service", "pods", "pods after a loss", "pods after an announced end"],
)
def test_what_came_and_is_not_applied_yet_is_kept(script: str, kept: dict[str, int]) -> None:
    """It may be running: a reload that failed left it there, and it was gone for a moment only."""
    cluster = Cluster(4, 6)
    cluster.do("fail; wait 1")
    cluster.do(script)
    assert cluster.kind is TOTAL
    assert {name: len(each) for name, each in cluster.addresses().items()} == kept


def test_edit_that_is_not_applied_yet_is_kept() -> None:
    """What a hold keeps of a Service is how it was last, and not how it was when something was applied."""
    cluster = Cluster(4, 6)
    cluster.pods.domains["s1"] = "two words"
    cluster.do("wait 61; list; wait 61")
    assert "s1" not in cluster.addresses()
    cluster.pods.domains["s1"] = "s1"
    cluster.do("fail; wait 1")
    cluster.do("all lose-slices")
    assert cluster.kind is TOTAL
    assert {name: len(each) for name, each in cluster.addresses().items()} == {"s0": 4, "s1": 6}


@pytest.mark.parametrize(("terminating", "kind"), [(False, TOTAL), (True, None)])
def test_ipv6_address_is_known_in_any_spelling(*, terminating: bool, kind: HoldKind | None) -> None:
    cluster = Cluster(1)
    cluster.pods.services = {"s0": {f"s0-{number}": Pod(f"2001:DB8::0{number}") for number in range(6)}}
    cluster.look()
    cluster.pods.services["s1"] = {"s1-0": Pod("192.0.2.1")} if terminating else {}
    if terminating:
        cluster.do("s0 terminate")
    cluster.do("s0 gone")
    assert (cluster.kind, len(cluster.addresses()["s0"])) == (kind, 0 if terminating else 6)


def test_address_that_two_pods_share_stays_served() -> None:
    cluster = Cluster(2, 8)
    pods = cluster.pods.services["s1"]
    pods["twin"] = Pod(pods["s1-0"].address, ready=False)
    for number in range(1, 8):
        del pods[f"s1-{number}"]
    cluster.look()
    assert (cluster.kind, cluster.counts) == (SHARE, "2 8")


def test_service_under_another_domain_is_not_lost() -> None:
    cluster = Cluster(10, 1)
    cluster.pods.domains = {"s0": "new-s0", "s1": "new-s1"}
    cluster.look()
    assert (cluster.kind, set(cluster.addresses())) == (None, {"new-s0", "new-s1"})


def test_annotations_of_all_services_gone_is_a_total_loss() -> None:
    cluster = Cluster(3, 2)
    bare = {key: objects.service(key.name) for key in cluster.raw.services}
    cluster.show(Snapshot(services=bare, endpointslices=cluster.raw.endpointslices))
    assert (cluster.kind, cluster.counts) == (TOTAL, "3 2")


def test_all_that_one_of_two_presets_serves_is_held_for_a_time() -> None:
    cluster = Cluster(presets=("domains", "kube2lb"))
    cluster.pods.fill("s0", 8)
    base = cluster.pods.snapshot()
    other = objects.snapshot(
        objects.service("other", type_="NodePort", ports=(ServicePort("web", 80, "web", 30080),)),
        objects.slice_("other", objects.endpoint("10.7.0.1", pod="other-0")),
    )
    cluster.show(
        Snapshot(
            services={**base.services, **other.services},
            endpointslices={**base.endpointslices, **other.endpointslices},
        )
    )
    cluster.show(base)
    hold = cluster.protection.hold
    assert hold is not None
    assert (hold.kind, hold.preset, "10.7.0.1" in cluster.all_served) == (HoldKind.PRESET, "kube2lb", True)
    cluster.do("list; wait 61")
    assert (cluster.kind, "10.7.0.1" in cluster.all_served) == (None, False)


def test_cluster_without_claims_counts_as_a_whole() -> None:
    cluster = Cluster(presets=())
    snapshot = objects.snapshot(objects.service("a"), objects.slice_("a", objects.endpoint("10.0.0.1", pod="a-0")))
    cluster.show(snapshot)
    cluster.show(Snapshot())
    hold = cluster.protection.hold
    assert hold is not None
    assert (hold.kind, hold.names) == (TOTAL, ("demo/a",))
    assert (cluster.served.services, cluster.served.endpointslices) == (snapshot.services, snapshot.endpointslices)


def test_other_settings_lose_nothing() -> None:
    cluster = Cluster(10)
    nothing = cluster.translate(Snapshot())
    cluster.protection.rebase(cluster.protection.snapshot, nothing)
    served = cluster.protection.admit(Moment(0.0, 0.0), cluster.raw, nothing, confirmed=True, allowed=())
    assert (served is cluster.raw, cluster.kind) == (True, None)


def test_hold_is_saved_once_for_each_change() -> None:
    cluster = Cluster(10)
    for script in ("s0 gone", "s0 back 10"):
        cluster.do(script)
        assert not cluster.protection.is_saved
        cluster.protection.is_saved = True
        cluster.do("wait 1")
        assert cluster.protection.is_saved
    assert cluster.protection.saved() == SavedHold()


def test_objects_that_lost_nothing_are_those_of_the_cluster() -> None:
    cluster = Cluster(4, 6)
    cluster.do("s1 gone")
    former = cluster.served
    cluster.show(cluster.raw)
    assert cluster.served is former
    assert cluster.served.services is cluster.raw.services
    untouched = Key("demo", "s0-a")
    assert cluster.served.endpointslices[untouched] is cluster.raw.endpointslices[untouched]


def test_only_what_the_deleted_service_alone_had_is_let_go() -> None:
    cluster = Cluster(2, 8)
    for number in range(2):
        cluster.add("s2", f"s1-{number}", f"10.1.0.{number}")  # pods of s1
    cluster.add("s2", "s2-own", "10.2.0.1")
    cluster.do("wait 61; s1 lose-slices; s2 lose-slices")
    saved = cluster.protection.saved()
    assert len(saved.missing) == 9
    cluster.do("s2 delete; wait 1")
    assert (cluster.kind, cluster.counts) == (SHARE, "2 8")
    after = cluster.protection.saved()
    assert set(saved.missing) - set(after.missing) == {"10.2.0.1"}
    assert [each.metadata.name for each in after.endpointslices] == ["s1-a"]
    assert Key("demo", "s2-a") not in cluster.served.endpointslices


def test_losses_of_a_name_that_stays_are_forgiven_by_number() -> None:
    def claimed(**by_name: tuple[str, ...]) -> tuple[Claimed, ...]:
        return (Claimed("gateway", by_name, tuple),)

    untouched = ("10.0.0.1",)
    counts = EndpointCounts(claimed(rule=(), other=untouched), 60.0)
    for name in ("rule", "other", "gone"):
        counts.lose(1.0, ("gateway", name), 3)
    read_again = (*untouched,)  # as by a translation that remembers nothing of former ones
    counts.forgive(claimed(rule=("10.0.0.2",), other=untouched, gone=()), claimed(rule=(), other=read_again), 2)
    assert {name: len(lost) for (_, name), lost in counts.lost.items()} == {"rule": 1, "other": 3}
    assert (counts.lost_total, counts.unapplied) == (4, 4)


@pytest.mark.parametrize(
    ("new", "deleted", "left"),
    [
        ({"gatewayclasses": ("lb",)}, ("web",), ("blog",)),
        (
            {"gatewayclasses": ("lb",), "httproutes": ("blog", "web")},
            ("web",),
            ("blog", "web"),
        ),  # deleted and created again
        ({"gatewayclasses": ("lb",)}, (), ("blog", "web")),  # a list lacked it
        ({}, ("web",), ("blog", "web")),  # the class is missing too
    ],
)
def test_deletion_is_believed_while_the_class_is_there(
    new: dict[str, tuple[str, ...]], deleted: tuple[str, ...], left: tuple[str, ...]
) -> None:
    def shown(**names: tuple[str, ...]) -> Snapshot:
        made: dict[str, Any] = {
            field: {Key("", name): RECORD_OF[Resource(field)](ObjectMeta(name, uid=name)) for name in each}
            for field, each in names.items()
        }
        return Snapshot(**made, terminating=(terminating,))

    terminating, protection = Terminating(), RemovalProtection(RemovalRules())
    former = shown(gatewayclasses=("lb",), httproutes=("blog", "web"))
    protection.start(former, Cluster().translate(former))
    for uid in deleted:
        terminating.deleted(uid)
    newest = shown(**{"httproutes": ("blog",), **new})
    assert tuple(sorted(key.name for key in protection.without_deleted(newest).httproutes)) == left


def test_deletion_is_not_believed_while_a_hold_keeps_the_class() -> None:
    record: Any = RECORD_OF[Resource.GATEWAYCLASSES](ObjectMeta("lb"))
    cluster = Cluster(4, 6)
    cluster.show(replace(cluster.pods.snapshot(), gatewayclasses={Key("", "lb"): record}))
    cluster.do("all lose-slices")
    cluster.do("s1 delete")
    assert (cluster.kind, cluster.counts) == (TOTAL, "4 6")


@pytest.mark.parametrize("resource", ROUTING_RESOURCES)
def test_what_routes_depend_on_is_kept_over_a_restart(resource: Resource) -> None:
    record: Any = RECORD_OF[resource](ObjectMeta(name="web", namespace="shop"))
    key, field = Key("shop", "web"), resource.field
    kept = KeptObjects()
    parts: dict[str, Any] = {field: {key: record}}
    kept.keep_lost(Snapshot(**parts), Snapshot(), {"10.0.0.1"}, name_vanished=True)
    assert getattr(kept.merged(Snapshot(), {"10.0.0.1"}), field) == {key: record}

    lists: dict[str, Any] = {name: list(objects.values()) for name, objects in kept.objects.items()}
    saved = msgspec.json.decode(msgspec.json.encode(SavedHold(**lists)), type=SavedHold)
    again = KeptObjects()
    again.restore({name: getattr(saved, name) for name in again.objects}, Snapshot())
    assert getattr(again.merged(Snapshot(), {"10.0.0.1"}), field) == {key: record}


def pod_at(address: str, name: str, **more: Any) -> Any:
    return objects.endpoint(address, pod=name, **more)


OLD = objects.snapshot(
    objects.service("web"),
    objects.slice_("web", pod_at("10.0.0.1", "a"), pod_at("10.0.0.2", "b")),
    objects.node("node-1", "192.0.2.1"),
)
SLICE, WEB = Key("demo", "web-a"), Key("demo", "web")


def kept_of(*missing: str, new: Snapshot | None = None, name_vanished: bool = False) -> KeptObjects:
    kept = KeptObjects()
    kept.keep_lost(OLD, new if new is not None else Snapshot(), missing, name_vanished=name_vanished)
    return kept


def there(kept: KeptObjects) -> dict[str, list[str]]:
    """Return the names of what is kept; of a slice its addresses."""
    return {
        field: sorted(key.name for key in found) if field != "endpointslices" else addresses(found[SLICE])
        for field, found in kept.objects.items()
        if found
    }


def addresses(record: Any) -> list[str]:
    return [each.addresses[0] for each in record.endpoints]


@pytest.mark.parametrize(
    ("missing", "new", "name_vanished", "expected"),
    [
        ((), OLD, False, {}),
        ((), Snapshot(), False, {"services": ["web"]}),
        (("10.0.0.2",), Snapshot(), False, {"endpointslices": ["10.0.0.2"], "services": ["web"]}),
        (
            ("10.0.0.1", "10.0.0.2", "192.0.2.1"),
            Snapshot(),
            False,
            {"endpointslices": ["10.0.0.1", "10.0.0.2"], "nodes": ["node-1"], "services": ["web"]},
        ),
        # The Service is kept with its endpoints: it may be deleted next.
        (
            ("10.0.0.2",),
            replace(OLD, endpointslices={}),
            False,
            {"endpointslices": ["10.0.0.2"], "services": ["web"]},
        ),
        # An edit is intended, unless it withdrew a name.
        ((), replace(OLD, services={WEB: objects.service("web", {"a": "b"})}), False, {}),
        ((), replace(OLD, services={WEB: objects.service("web", {"a": "b"})}), True, {"services": ["web"]}),
    ],
)
def test_what_is_kept_of_a_loss(
    missing: tuple[str, ...], new: Snapshot, name_vanished: bool, expected: dict[str, list[str]]
) -> None:
    assert there(kept_of(*missing, new=new, name_vanished=name_vanished)) == expected


def test_of_what_is_edited_during_a_hold_the_new_version_is_kept_once() -> None:
    kept, edited = kept_of("10.0.0.1"), replace(OLD, services={WEB: objects.service("web", {"a": "b"})})
    kept.changed = False
    kept.keep_lost(Snapshot(), edited, {"10.0.0.1"}, name_vanished=False)
    assert (kept.objects["services"][WEB], kept.changed) == (edited.services[WEB], True)
    kept.changed = False
    kept.keep_lost(Snapshot(), edited, {"10.0.0.1"}, name_vanished=False)
    assert (kept.objects["services"][WEB], kept.changed) == (edited.services[WEB], False)


@pytest.mark.parametrize(
    ("missing", "shown", "reused"),
    [
        # Another pod has the address of one that is kept.
        (("10.0.0.1",), objects.snapshot(objects.slice_("api", pod_at("10.0.0.1", "c"))), {"10.0.0.1"}),
        (("10.0.0.1",), objects.snapshot(objects.slice_("api", pod_at("10.0.0.1", "a"))), set()),
        (("10.0.0.1",), objects.snapshot(objects.slice_("api", pod_at("10.0.0.2", "c"))), set()),
        (
            ("10.0.0.1",),
            objects.snapshot(objects.slice_("api", pod_at("10.0.0.1", "c")), objects.node("n", "10.0.0.1")),
            set(),
        ),
        # A pod in the network of its node has the address of the node.
        (("192.0.2.1",), objects.snapshot(objects.slice_("api", pod_at("192.0.2.1", "c"))), set()),
    ],
)
def test_kept_addresses_that_another_pod_has(missing: tuple[str, ...], shown: Snapshot, reused: set[str]) -> None:
    assert kept_of(*missing).reused_addresses(Snapshot(), shown) == reused


@pytest.mark.parametrize(
    ("shown", "served"),
    [
        ((), ["10.0.0.1"]),
        ((pod_at("10.0.0.3", "c"),), ["10.0.0.3", "10.0.0.1"]),
        # What is shown with the address is not served twice, and counts where it is ready.
        ((pod_at("10.0.0.1", "c"),), ["10.0.0.1"]),
        ((pod_at("10.0.0.1", "c", ready=False), pod_at("10.0.0.3", "d")), ["10.0.0.3", "10.0.0.1"]),
    ],
)
def test_kept_endpoints_are_served_beside_those_that_are_shown(shown: tuple[Any, ...], served: list[str]) -> None:
    now = objects.snapshot(objects.slice_("web", *shown)) if shown else Snapshot()
    kept = kept_of("10.0.0.1")
    found = kept.merged(now, {"10.0.0.1"})
    assert addresses(found.endpointslices[SLICE]) == served
    assert found.services == OLD.services
    assert kept.merged(now, {"10.0.0.1"}) is found
    # Once it is not missing any more, there is nothing to add.
    kept.merge_all_again()
    again = kept.merged(now, ()).endpointslices.get(SLICE)
    assert (addresses(again) if again is not None else []) == [each.addresses[0] for each in shown]


def pod_with(name: str, address: str | None) -> KubernetesPod:
    return KubernetesPod(ObjectMeta(name, "demo"), status=PodStatus("Running", address))


@pytest.mark.parametrize(
    ("kept", "present", "missing", "expected"),
    [
        (pod_with("a", "10.0.0.1"), None, {"10.0.0.1"}, pod_with("a", "10.0.0.1")),
        (pod_with("a", "10.0.0.1"), None, {"10.0.0.2"}, None),
        (
            pod_with("a", "10.0.0.1"),
            pod_with("a", None),
            {"10.0.0.1"},
            pod_with("a", None),  # a pod of the same name, and another one
        ),
        (objects.node("n", "192.0.2.1"), None, {"192.0.2.1"}, objects.node("n", "192.0.2.1")),
        (
            objects.node("n", "192.0.2.1"),
            objects.node("n", "192.0.2.1", ready=False),
            {"192.0.2.1"},
            objects.node("n", "192.0.2.1"),
        ),
        (
            objects.node("n", "192.0.2.1"),
            objects.node("n", "192.0.2.1", ready=False),
            {"192.0.2.2"},
            objects.node("n", "192.0.2.1", ready=False),
        ),
        (None, objects.node("n", "192.0.2.1"), {"192.0.2.1"}, objects.node("n", "192.0.2.1")),
        (None, None, {"192.0.2.1"}, None),
        # What asks for something is kept whatever is missing.
        (objects.service("web"), None, set(), objects.service("web")),
        (
            objects.slice_("web", pod_at("10.0.0.1", "a"), pod_at("10.0.0.2", "b")),
            objects.slice_("web", pod_at("10.0.0.3", "c"), ports=()),
            {"10.0.0.2"},
            objects.slice_("web", pod_at("10.0.0.3", "c"), pod_at("10.0.0.2", "b")),
        ),
        (
            objects.slice_("web", pod_at("10.0.0.1", "a")),
            objects.slice_("web", ports=[EndpointPort("web", 9090, "TCP")]),
            {"10.0.0.1"},
            objects.slice_("web", pod_at("10.0.0.1", "a"), ports=[EndpointPort("web", 9090, "TCP")]),
        ),
        (
            objects.slice_("web", pod_at("10.0.0.1", "a")),
            None,
            {"10.0.0.2"},
            objects.slice_("web"),
        ),
        # It ends, so that it is not one that is back.
        (
            objects.slice_("web", pod_at("10.0.0.1", "a")),
            objects.slice_("web", pod_at("10.0.0.1", "a", terminating=True)),
            {"10.0.0.1"},
            objects.slice_("web", pod_at("10.0.0.1", "a")),
        ),
    ],
)
def test_an_object_as_it_is_shown_with_what_is_missing(
    kept: Any, present: Any, missing: set[str], expected: Any
) -> None:
    assert with_missing(kept, present, missing) == expected


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (objects.slice_("web", pod_at("2001:DB8::1", "a"), pod_at("10.0.0.1", "b")), ["2001:db8::1", "10.0.0.1"]),
        (
            objects.endpoints("web", None, objects.subset("10.0.0.1"), objects.subset("10.0.0.2")),
            ["10.0.0.1", "10.0.0.2"],
        ),
        (objects.endpoints("web", None, objects.subset(not_ready=["10.0.0.1"])), []),
        (pod_with("a", "2001:DB8::1"), ["2001:db8::1"]),
        (pod_with("a", None), []),
        (objects.node("n", "192.0.2.1"), ["192.0.2.1"]),
        (objects.service("web"), []),
        (None, []),
    ],
)
def test_addresses_that_traffic_is_sent_to(record: Any, found: list[str]) -> None:
    assert [address for address, _ in addresses_of(record)] == found


def test_a_pod_that_is_kept_yields_its_address_to_another_one() -> None:
    """The same pod in a slice and by itself is one; another name is another pod."""
    kept = kept_of("10.0.0.1")
    same = Snapshot(pods={Key("demo", "a"): pod_with("a", "10.0.0.1")})
    assert kept.reused_addresses(Snapshot(), same) == set()
    other = Snapshot(pods={Key("demo", "b"): pod_with("b", "10.0.0.1")})
    assert kept.reused_addresses(Snapshot(), other) == {"10.0.0.1"}


def test_a_service_that_is_edited_while_its_endpoints_go_is_not_kept_anew_for_that() -> None:
    edited = replace(OLD, services={WEB: objects.service("web", {"a": "b"})}, endpointslices={})
    kept = kept_of("10.0.0.1", new=edited)
    assert kept.objects["services"] == {WEB: OLD.services[WEB]}
    kept.changed = False
    kept.keep_lost(OLD, edited, {"10.0.0.1"}, name_vanished=False)
    assert (kept.objects["services"], kept.changed) == ({WEB: OLD.services[WEB]}, False)


def test_lost_endpoints_without_a_service_are_kept_alone() -> None:
    kept = KeptObjects()
    kept.keep_lost(replace(OLD, services={}), Snapshot(), {"10.0.0.1"}, name_vanished=False)
    assert there(kept) == {"endpointslices": ["10.0.0.1"]}


def test_a_service_that_is_deleted_by_name_takes_its_endpoints_along() -> None:
    kept = kept_of("10.0.0.1", "192.0.2.1")
    assert kept.forget([("services", WEB)]) == ({"10.0.0.1"}, {"10.0.0.1"})
    assert {field: list(found) for field, found in kept.objects.items() if found} == {"nodes": [Key("", "node-1")]}
    assert kept.forget([("nodes", Key("", "node-1"))]) == (set(), set())
    assert not any(kept.objects.values())


def test_after_a_restart_without_a_hold_a_loss_is_held_as_before() -> None:
    full = objects.snapshot(
        objects.service("web"), objects.slice_("web", *(pod_at(f"10.0.0.{number}", "") for number in range(6)))
    )
    protection, context = RemovalProtection(RemovalRules()), registry.translate(full, (), PresetOptions())
    assert protection.restore(SavedHold(), Moment(1.0, 1.0), full, context) is full
    assert protection.hold is None
    assert protection.saved() == SavedHold()
    empty = replace(full, endpointslices={})
    served = protection.admit(
        Moment(2.0, 2.0), empty, registry.translate(empty, (), PresetOptions()), confirmed=False, allowed=()
    )
    assert protection.hold is not None
    assert (protection.hold.lost, served.endpointslices) == (6, full.endpointslices)


def test_a_gateway_class_that_is_gone_is_named() -> None:
    other = gateways.CLASS.replace("name: pyconfd, uid: class", "name: other, uid: other").replace(
        "pyconfd.io/gateway", "example.com/other"
    )
    slices = "".join(f"- {{addresses: [10.0.0.{number}]}}\n" for number in range(6))
    full = gateways.snapshot(
        gateways.CLASS,
        other,
        """
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: pyconfd, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
kind: HTTPRoute
metadata: {name: web}
spec: {parentRefs: [{name: web}], rules: [{backendRefs: [{name: web, port: 80}]}]}
---
kind: Service
metadata: {name: web}
spec: {ports: [{name: web, port: 80}]}
""",
        f"""
kind: EndpointSlice
metadata: {{name: web-a, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{name: web, port: 8080, protocol: TCP}}]
endpoints:
{slices}
""",
    )
    options = PresetOptions(addresses=AddressOptions(("192.0.2.1",)))
    protection = RemovalProtection(RemovalRules())
    protection.start(full, registry.translate(full, ("gateway",), options))
    now = replace(full, gatewayclasses={})
    context = registry.translate(now, ("gateway",), options)
    protection.admit(Moment(1.0, 1.0), now, context, confirmed=False, allowed=())
    assert protection.hold is not None
    assert protection.hold.missing_classes == ("GatewayClass pyconfd",)


def test_a_class_that_is_gone_is_named_first() -> None:
    full = ingresses.snapshot(
        ingresses.ingress_class(),
        ingresses.ingress_class("other", "example.com/other"),
        ingresses.ingress("web", {"a.example.com": [ingresses.path("/")]}),
        *ingresses.service("web", *(f"10.0.0.{number}" for number in range(6))),
    )
    protection = RemovalProtection(RemovalRules())
    protection.start(full, registry.translate(full, ingresses.PRESETS, PresetOptions()))

    def look(**seen: Any) -> Hold:
        now = replace(full, **seen)
        context = registry.translate(now, ingresses.PRESETS, PresetOptions())
        protection.admit(Moment(1.0, 1.0), now, context, confirmed=False, allowed=())
        assert protection.hold is not None
        return protection.hold

    hold = look(ingressclasses={})
    assert hold.missing_classes == ("IngressClass pyconfd",)
    assert hold.problem.message.startswith("IngressClass pyconfd is gone, so all 6 ready endpoints are")
    assert "create it again" in hold.problem.remedy
    assert protection.saved().hold == hold
    hold = look(endpointslices={})
    assert hold.missing_classes == (), "the class is back, and the pods are gone now"
    assert hold.problem.message.startswith("all 6 ready endpoints are gone")
    assert "permissions" in hold.problem.remedy
    assert look(endpointslices={}, ingressclasses={}).missing_classes == ("IngressClass pyconfd",)


def test_the_problem_counts_only_the_endpoints_that_are_held() -> None:
    hold = Hold("h", HoldKind.TOTAL, 1.0, lost=11, of=13, affected=0, already_applied=2)
    assert hold.problem.message.startswith("all 13 ready endpoints are gone, 2 of them applied before; ")
    assert "the other 11 stay, " in hold.problem.message
