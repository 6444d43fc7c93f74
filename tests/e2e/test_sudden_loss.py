"""Sudden losses of a whole appliance: what is held still answers, what lasts is believed, what is ordinary passes."""

import http
from pathlib import Path
from typing import Any

import pytest

from pyconfd.haproxy.runtime.servers_now import servers_now
from pyconfd.haproxy.runtime.sockets import ask as ask_socket
from tests.e2e.expect import all_is_well, complaints, undisturbed
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.log import json_lines
from tests.world.objects import EndpointSpec

pytestmark = pytest.mark.haproxy

LONG_S = 3600


def several(appliance: Appliance, *, persist_s: float = LONG_S, **pods: int) -> None:
    """Serve several services; a loss is believed after ``persist_s``."""
    appliance.values["removal_protection"] = {"persist_s": persist_s}
    for name, count in pods.items():
        appliance.serve(name, pods=count)
    appliance.start()
    appliance.until(appliance.settled, "the first configuration is applied and verified")
    for name in pods:
        appliance.until(lambda name=name: appliance.ask(name).startswith(f"{name}-"), f"{name} is served")  # type: ignore[misc]


def taking_traffic(appliance: Appliance) -> set[str]:
    state = ask_socket(appliance.haproxy.stats_socket, "show servers state")
    return {one.address for one in servers_now(state) if not (one.maint or one.drain or one.weight == 0)}


def addresses(appliance: Appliance, *names: str) -> set[str]:
    return {member.address for name in names for member in appliance.members(name)}


def hold_of(appliance: Appliance) -> dict[str, Any]:
    found: dict[str, Any] = appliance.status().get("hold") or {}
    return found


def unready(appliance: Appliance, name: str) -> None:
    appliance.cluster.set_endpoints(
        NAMESPACE,
        name,
        [EndpointSpec(each.address, pod=each.pod, node=each.node, ready=False) for each in appliance.members(name)],
    )


def test_a_partial_loss_still_answers_new_pods_go_live_and_an_operator_ends_it(appliance: Appliance) -> None:
    several(appliance, shop=3, web=6)
    with undisturbed(appliance, "web"), undisturbed(appliance, "shop"):
        appliance.cluster.set_endpoints(NAMESPACE, "web", [])
        appliance.until(lambda: hold_of(appliance).get("confirmed_at"), "the loss is held, and confirmed by lists")
        hold = hold_of(appliance)
        assert (hold["kind"], hold["lost"], hold["of"]) == ("share", 6, 9)
        new = appliance.scale_up("shop")
        appliance.until(lambda: appliance.ask("shop") == new, "a new pod is served all the same")
        shown = appliance.command("status").stdout
        assert "6 of 9 ready endpoints are gone at once (behind web.example.com)" in shown
        code, metrics = appliance.get("/metrics")
        assert code == http.HTTPStatus.OK
        assert "pyconfd_held 1.0" in metrics
        assert "pyconfd_held_endpoints 6.0" in metrics
        assert 'pyconfd_holds_total{step="begun"} 1.0' in metrics
    refused = appliance.command("allow", "00000000")
    assert refused.returncode == 1
    assert f"what is held is {hold['hold_id']}" in refused.stderr
    assert appliance.command("allow", hold["hold_id"]).returncode == 0
    appliance.until(lambda: appliance.ask("web") == "503", "the loss is applied")
    all_is_well(appliance)
    assert appliance.events("hold.allowed")


def test_everything_unready_waits_for_the_operator_and_still_answers(appliance: Appliance) -> None:
    several(appliance, shop=3, web=3, persist_s=0.5)
    before = addresses(appliance, "shop", "web")
    with undisturbed(appliance, "web"):
        assert appliance.command("pause").returncode == 0  # or three of six may be applied before the others go
        for name in ("shop", "web"):
            unready(appliance, name)
        assert appliance.command("resume").returncode == 0
        appliance.until(lambda: hold_of(appliance).get("kind") == "total", "the loss is held")
        appliance.until(lambda: hold_of(appliance).get("confirmed_at"), "lists have confirmed it")
        appliance.until(lambda: taking_traffic(appliance) == before, "all of them take traffic")
        lists = len(appliance.servers[0].seen("endpointslices", "list"))
        appliance.until(
            lambda: len(appliance.servers[0].seen("endpointslices", "list")) > lists + 1, "time passes, and lists"
        )
        assert hold_of(appliance)["kind"] == "total"
        assert appliance.ask("shop").startswith("shop-")
        # The first to come back ends the hold: what is missing then is too little to be held.
        for name in ("web", "shop"):
            appliance.cluster.set_endpoints(NAMESPACE, name, appliance.members(name))
        all_is_well(appliance)
    assert appliance.events("hold.returned")


def test_a_hold_survives_a_restart_and_a_kill(appliance: Appliance) -> None:
    several(appliance, shop=3, web=6)
    with undisturbed(appliance, "web"):
        assert appliance.command("pause").returncode == 0  # or shop's three may be applied before web goes
        appliance.cluster.set_endpoints(NAMESPACE, "web", [])
        appliance.cluster.set_endpoints(NAMESPACE, "shop", [])
        assert appliance.command("resume").returncode == 0
        appliance.until(lambda: hold_of(appliance).get("kind") == "total", "the loss is held")
        hold_id = hold_of(appliance)["hold_id"]
        for end in (appliance.stop, appliance.kill):
            end()
            appliance.spawn()
            appliance.until(lambda: appliance.status().get("generation"), "it runs again")
            appliance.until(lambda: hold_of(appliance).get("hold_id") == hold_id, "the same is held")
            assert appliance.ask("shop").startswith("shop-")
        appliance.serve("late")
        appliance.until(lambda: appliance.ask("late") == "late-1", "what is new is served")
        assert appliance.ask("web").startswith("web-")


def test_a_rolling_update_of_everything_and_a_scale_down_are_never_held(appliance: Appliance) -> None:
    several(appliance, shop=3, web=3)
    with undisturbed(appliance, "web"), undisturbed(appliance, "shop"):
        for number in range(3):
            for name in ("shop", "web"):
                old = appliance.members(name)[0]
                appliance.scale_up(name)
                appliance.terminate(name, old.pod)
                if number == 0:
                    appliance.until(lambda old=old: old.address not in taking_traffic(appliance), "it gets no more")  # type: ignore[misc]
                appliance.remove(name, old.pod)
        appliance.until(
            lambda: taking_traffic(appliance) == addresses(appliance, "shop", "web"), "the new pods have all traffic"
        )
        for name in ("shop", "web"):
            for member in appliance.members(name)[1:]:
                appliance.terminate(name, member.pod)
        for name in ("shop", "web"):
            for member in appliance.members(name)[1:]:
                appliance.remove(name, member.pod)
        appliance.until(
            lambda: taking_traffic(appliance) == addresses(appliance, "shop", "web"), "one pod of each is left"
        )
        all_is_well(appliance)
    assert complaints(appliance, "hold") == []
    assert appliance.status()["holds_by_step"] == {}


def test_explain_and_watch_tell_what_is_held_and_a_rollback_goes_through_meanwhile(appliance: Appliance) -> None:
    directory = appliance.own_fragments()
    several(appliance, shop=3, web=6)
    (directory / "90-more.conf").write_text("userlist more\n", encoding="utf-8")
    appliance.until(lambda: appliance.generation == 2, "the edit serves")
    appliance.cluster.set_endpoints(NAMESPACE, "web", [])
    appliance.until(lambda: hold_of(appliance).get("confirmed_at"), "the loss is held, and confirmed by lists")
    told = appliance.command("explain", "web.example.com").stdout
    assert "removals are held" in told
    assert "served by 6 servers, all of them held" in told
    assert told.count("held: not ready in the cluster any more") == 6
    assert f"pyconfd allow {hold_of(appliance)['hold_id']} lets it through" in told
    assert "of them held" not in appliance.command("explain", "shop.example.com").stdout
    back = appliance.command("rollback")
    assert (back.returncode, "generation 3 runs now" in back.stdout) == (0, True), back.stdout + back.stderr
    end = appliance.command("unpin")
    assert (end.returncode, "generation 4 runs now" in end.stdout) == (0, True), end.stdout + end.stderr
    assert appliance.ask("web").startswith("web-")
    assert appliance.command("pause").returncode == 0
    assert "all of them held" in appliance.command("explain", "web").stdout
    assert "when applying is resumed" in appliance.command("allow", hold_of(appliance)["hold_id"]).stdout
    assert appliance.command("resume").returncode == 0
    appliance.until(lambda: appliance.ask("web") == "503", "the loss is let through")
    changes = Path(appliance.values[""]["runtime_dir"]) / "changes.jsonl"

    def told_of_holds() -> list[str]:
        actions = [line["action"] for line in json_lines(changes)]
        return [action for action in actions if action in {"held", "released"}]

    appliance.until(lambda: told_of_holds() == ["held", "released"], "watch tells of it")
