"""What is held, what passes, and what ends a hold."""

import pytest

from pyconfd.admission.removal_protection import Moment, RemovalRules, SavedHold
from pyconfd.model.hold import HoldKind, HoldStep
from pyconfd.model.kubernetes import ServicePort
from pyconfd.model.snapshot import Key, Snapshot
from tests.admission.stage import Pod, Stage, staged
from tests.presets import objects


def _vanish(stage: Stage, *services: str) -> None:
    for service in services:
        stage.pods.services[service].clear()


SERVICES, SLICES = "hidden", "hidden_slices"


@pytest.mark.parametrize("orders", [[[SERVICES], [SLICES]], [[SLICES], [SERVICES]], [[SERVICES, SLICES]]])
def test_lists_that_turn_empty_are_held_and_everything_stays_served(orders: list[list[str]]) -> None:
    stage = staged(3, 4)
    before = stage.all_served
    for lists in orders:
        for one in lists:
            getattr(stage.pods, one).update({"s0", "s1"})
        stage.look()
        assert stage.kind is HoldKind.TOTAL
        assert stage.all_served == before
    assert stage.protection.hold is not None
    assert (stage.protection.hold.lost, stage.protection.hold.of, stage.protection.hold.names) == (
        7,
        7,
        ("s0.example.com", "s1.example.com"),
    )


@pytest.mark.parametrize("count", [1, 10])
def test_everything_unready_is_held_without_limit_even_if_it_comes_one_by_one(count: int) -> None:
    stage = staged(count, count)
    before = {f"10.1.0.{number}" for number in range(count)}  # half of all had been applied when the hold began
    for service in stage.pods.services.values():
        for pod in service.values():
            pod.ready = False
            stage.look()
    assert stage.kind is HoldKind.TOTAL
    assert stage.all_served == before
    stage.confirmed = True
    for _ in range(10):
        stage.again(3600.0)
    assert stage.kind is HoldKind.TOTAL
    assert stage.protection.hold is not None
    assert stage.protection.hold.applies_at == 0.0
    stage.allowed = {stage.protection.hold.hold_id}
    stage.again()
    assert stage.kind is None
    assert stage.all_served == set()
    assert stage.steps[-1] is HoldStep.ALLOWED


def test_a_loss_above_the_share_is_believed_when_it_lasts_and_a_second_list_confirmed_it() -> None:
    stage = staged(4, 6)
    before = stage.all_served
    _vanish(stage, "s1")
    stage.look()
    assert stage.kind is HoldKind.SHARE
    assert stage.all_served == before
    stage.again(1000.0)
    assert stage.kind is HoldKind.SHARE, "no list has confirmed it"
    stage.confirmed = True
    stage.again()
    stage.again()
    assert stage.kind is None
    assert stage.all_served == {f"10.0.0.{number}" for number in range(4)}
    assert stage.steps == [HoldStep.BEGUN, HoldStep.CONFIRMED, HoldStep.EXPIRED]


def test_a_confirmed_loss_waits_until_it_has_lasted() -> None:
    stage = staged(4, 6)
    _vanish(stage, "s1")
    stage.look()
    stage.confirmed = True
    stage.again(1.0)
    stage.again(58.0)
    assert stage.kind is HoldKind.SHARE
    assert stage.protection.hold is not None
    assert stage.protection.hold.applies_at == pytest.approx(stage.protection.hold.since + 60.0)
    stage.again(2.0)
    assert stage.kind is None


def test_what_comes_meanwhile_is_served_at_once() -> None:
    stage = staged(4, 6)
    _vanish(stage, "s1")
    stage.look()
    stage.pods.add("s0", "s0-new", "10.9.9.1")
    stage.pods.services["s7"] = {}
    stage.pods.fill("s7", 1)
    stage.look()
    assert stage.kind is HoldKind.SHARE
    assert {"10.9.9.1", "10.2.0.0", "10.1.0.5"} <= stage.all_served


@pytest.mark.parametrize("is_total", [True, False])
def test_a_hold_ends_when_the_endpoints_return(is_total: bool) -> None:
    stage = staged(4, 6)
    stage.pods.hidden = stage.pods.hidden_slices = {"s0", "s1"} if is_total else {"s1"}
    stage.look()
    assert stage.kind is not None
    stage.pods.hidden = stage.pods.hidden_slices = set()
    stage.look()
    assert stage.kind is None
    assert stage.served is stage.raw
    assert stage.steps == [HoldStep.BEGUN, HoldStep.RETURNED]


def test_a_hold_ends_when_others_took_the_places() -> None:
    stage = staged(10)
    _vanish(stage, "s0")
    stage.look()
    for number in range(10):
        stage.pods.add("s0", f"new-{number}", f"10.8.0.{number}")
    stage.look()
    assert stage.kind is None
    assert stage.all_served == {f"10.8.0.{number}" for number in range(10)}


def test_an_address_that_another_pod_has_now_is_not_served_for_the_former() -> None:
    stage = staged(1, 9)
    _vanish(stage, "s1")
    stage.look()
    assert len(stage.addresses()["s1"]) == 9
    stage.pods.add("s0", "s0-other", "10.1.0.3")
    stage.look()
    served = stage.addresses()
    assert "10.1.0.3" in served["s0"]
    assert served["s1"] == {f"10.1.0.{number}" for number in range(9) if number != 3}


def test_a_total_loss_that_becomes_a_partial_one_begins_to_wait_then_and_under_another_id() -> None:
    stage = staged(10)
    _vanish(stage, "s0")
    stage.look()
    stage.confirmed = True
    stage.again(3600.0)
    former = stage.protection.hold
    assert former is not None
    assert former.kind is HoldKind.TOTAL
    stage.pods.add("s0", "s0-0", "10.0.0.0")
    stage.look()
    assert stage.kind is HoldKind.SHARE
    assert stage.protection.hold is not None
    assert stage.protection.hold.hold_id != former.hold_id
    assert len(stage.all_served) == 10
    stage.again(59.0)
    assert stage.kind is HoldKind.SHARE
    stage.again(2.0)
    assert stage.kind is None
    assert stage.all_served == {"10.0.0.0"}


def test_a_partial_loss_that_becomes_total_is_not_let_through_by_the_former_id() -> None:
    stage = staged(4, 6)
    _vanish(stage, "s1")
    stage.look()
    assert stage.protection.hold is not None
    stage.allowed = {stage.protection.hold.hold_id}
    _vanish(stage, "s0")
    stage.look()
    assert stage.kind is HoldKind.TOTAL
    assert len(stage.all_served) == 10


@pytest.mark.parametrize("remaining", [1, 2, 5])
def test_an_orderly_scale_down_passes_whatever_its_size(remaining: int) -> None:
    stage = staged(10)
    pods = stage.pods.services["s0"]
    for pod in list(pods)[remaining:]:
        pods[pod].terminating = True
    stage.look()
    assert stage.kind is None
    for pod in list(pods)[remaining:]:
        del pods[pod]
    stage.look()
    assert stage.kind is None
    assert len(stage.all_served) == remaining


def test_a_scale_down_to_nothing_waits_for_the_operator_if_nothing_else_is_served() -> None:
    stage = staged(3)
    pods = stage.pods.services["s0"]
    for pod in pods.values():
        pod.terminating = True
    stage.look()
    assert stage.kind is None, "what terminates still serves where nothing else does"
    pods.clear()
    stage.look()
    assert stage.kind is HoldKind.TOTAL
    assert len(stage.all_served) == 3


@pytest.mark.parametrize(("counts", "gone"), [((6, 4), "s1"), ((5, 5), "s1"), ((2, 4), "s1"), ((100, 20), "s1")])
def test_a_loss_within_the_share_or_below_the_least_passes(counts: tuple[int, ...], gone: str) -> None:
    stage = staged(*counts)
    _vanish(stage, gone)
    stage.look()
    assert stage.kind is None
    assert len(stage.all_served) == counts[0]


def test_losses_count_together_within_the_window_and_not_beyond_it() -> None:
    for pause_s, kind in ((10.0, HoldKind.SHARE), (61.0, None)):
        stage = staged(4, 3, 3)
        _vanish(stage, "s1")
        stage.look()
        assert stage.kind is None
        _vanish(stage, "s2")
        stage.look(pause_s)
        assert stage.kind is kind
        hold = stage.protection.hold
        assert hold is None or (hold.lost, hold.let_go, hold.of) == (3, 3, 10)
        addresses = stage.addresses()
        assert (len(addresses["s0"]), len(addresses["s1"]), len(addresses["s2"])) == (4, 0, 3 if kind else 0)


def test_a_service_under_another_domain_is_not_lost() -> None:
    stage = staged(10, 1)
    snapshot = stage.raw
    renamed = {
        key: objects.service(key.name, {"domain": f"new-{key.name}.example.com", "proto": "http"})
        for key in snapshot.services
    }
    stage.show(Snapshot(services=renamed, endpointslices=snapshot.endpointslices))
    assert stage.kind is None
    assert set(stage.addresses()) == {"new-s0", "new-s1"}


def test_the_annotations_of_all_services_gone_at_once_is_a_total_loss() -> None:
    stage = staged(3, 2)
    before = stage.all_served
    bare = {key: objects.service(key.name) for key in stage.raw.services}
    stage.show(Snapshot(services=bare, endpointslices=stage.raw.endpointslices))
    assert stage.kind is HoldKind.TOTAL
    assert stage.all_served == before


def test_all_that_one_of_two_presets_serves_is_held_for_a_time() -> None:
    stage = Stage(presets=("domains", "kube2lb"))
    stage.pods.services["s0"] = {}
    stage.pods.fill("s0", 8)
    other = (
        objects.service("other", type_="NodePort", ports=(ServicePort("web", 80, "web", 30080),)),
        objects.slice_("other", objects.endpoint("10.7.0.1", pod="other-0")),
    )

    def shown(*, both: bool) -> Snapshot:
        base = stage.pods.snapshot()
        more = objects.snapshot(*other) if both else Snapshot()
        return Snapshot(
            services={**base.services, **more.services},
            endpointslices={**base.endpointslices, **more.endpointslices},
        )

    stage.show(shown(both=True))
    assert "10.7.0.1" in stage.all_served
    stage.show(shown(both=False))
    assert stage.kind is HoldKind.PRESET
    assert stage.protection.hold is not None
    assert stage.protection.hold.preset == "kube2lb"
    assert "10.7.0.1" in stage.all_served
    stage.confirmed = True
    stage.again()
    stage.again(61.0)
    assert stage.kind is None
    assert "10.7.0.1" not in stage.all_served


def test_a_cluster_that_serves_by_no_preset_counts_as_a_whole() -> None:
    stage = Stage(presets=())
    snapshot = objects.snapshot(objects.service("a"), objects.slice_("a", objects.endpoint("10.0.0.1", pod="a-0")))
    stage.show(snapshot)
    stage.show(Snapshot())
    assert stage.kind is HoldKind.TOTAL
    assert stage.served.services.keys() == snapshot.services.keys()
    assert stage.served.endpointslices == snapshot.endpointslices


def test_other_settings_lose_nothing() -> None:
    stage = staged(10)
    nothing = stage.translate(Snapshot())
    stage.protection.rebase(nothing)
    served = stage.protection.look(Moment(0.0, 0.0), stage.raw, nothing, confirmed=True, allowed=())
    assert served is stage.raw
    assert stage.kind is None


def test_total_losses_are_like_others_where_the_setting_says_so() -> None:
    for count, kind in ((4, None), (10, HoldKind.SHARE)):
        stage = staged(count, rules=RemovalRules(total=False))
        _vanish(stage, "s0")
        stage.look()
        assert stage.kind is kind


def test_with_a_share_of_all_only_a_total_loss_is_held() -> None:
    stage = staged(1, 99, rules=RemovalRules(share=1.0))
    _vanish(stage, "s1")
    stage.look()
    assert stage.kind is None
    _vanish(stage, "s0")
    stage.look()
    assert stage.kind is HoldKind.TOTAL


def test_saved_once_for_each_change() -> None:
    stage = staged(10)
    assert stage.protection.is_saved
    for count in (0, 10):
        _vanish(stage, "s0")
        stage.pods.fill("s0", count)
        stage.look()
        assert not stage.protection.is_saved
        stage.protection.is_saved = True
        stage.again()
        assert stage.protection.is_saved
    assert stage.protection.saved() == SavedHold()


def test_the_same_snapshot_is_given_again_while_nothing_changes() -> None:
    stage = staged(4, 6)
    _vanish(stage, "s1")
    stage.look()
    former = stage.served
    stage.again()
    assert stage.served is former
    assert stage.served.services is stage.raw.services
    untouched = Key("demo", "s0-a")
    assert stage.served.endpointslices[untouched] is stage.raw.endpointslices[untouched]


def test_an_applied_removal_is_never_undone() -> None:
    """Of 453 endpoints beside 323 others 200 announce that they leave, 250 vanish later: each time under half."""
    stage = Stage()
    web = {f"web-{number}": Pod(f"10.1.{number // 250}.{number % 250}") for number in range(453)}
    other = {f"other-{number}": Pod(f"10.2.{number // 250}.{number % 250}") for number in range(323)}
    stage.pods.services = {"web": web, "other": other}
    stage.look()
    leaving, dying = list(web)[253:], list(web)[3:253]

    for pod in leaving:
        web[pod].terminating = True
    stage.look()
    for pod in leaving:
        del web[pod]
    stage.look()
    dead = {web[pod].address for pod in dying}
    for pod in dying:
        web.pop(pod)
    stage.look(20.0)
    assert stage.kind is None
    assert stage.addresses()["web"] == {"10.1.0.0", "10.1.0.1", "10.1.0.2"}

    other["unrelated"] = Pod("10.9.0.1")
    stage.look(44.0)
    assert stage.kind is None
    assert stage.addresses()["web"].isdisjoint(dead)


def test_a_removal_that_was_never_applied_is_kept_back_with_the_next() -> None:
    stage = staged(4, 3, 3)
    before = stage.all_served
    stage.applies = False
    _vanish(stage, "s1")
    stage.look()
    _vanish(stage, "s2")
    stage.look(10.0)
    assert stage.kind is HoldKind.SHARE
    assert stage.all_served == before


def test_a_pod_that_says_goodbye_during_a_hold_stays_gone() -> None:
    stage = staged(4, 6)
    pods = stage.pods.services["s1"]
    for pod in pods.values():
        pod.ready = False
    stage.look()
    assert stage.kind is HoldKind.SHARE
    pods["s1-0"].terminating = True
    stage.look()
    assert "10.1.0.0" not in stage.all_served
    del pods["s1-0"]
    stage.look()
    assert stage.kind is HoldKind.SHARE
    assert "10.1.0.0" not in stage.all_served
