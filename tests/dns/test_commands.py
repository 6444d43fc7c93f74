"""``pyconfd dns`` as processes, with real haproxy and a strict Route 53 behind a proxy that counts and fails."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from pyconfd.dns.records import record_set
from pyconfd.dns.route53 import ATTEMPTS
from pyconfd.status import document
from tests.dns.nodes import FieldNode, answers, until
from tests.dns.stage import NAME, ZONE, foreign
from tests.dns.strict import StrictRoute53
from tests.dns.wire import HANG, FaultProxy

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(300)]


def test_the_name_follows_the_nodes_that_can_serve(
    provider: StrictRoute53, new_node: Callable[[int], FieldNode]
) -> None:
    first, second = new_node(0), new_node(1)
    for node in (first, second):
        node.run()
    answers(provider, first, second)
    first.haproxy.stop()
    answers(provider, second)
    assert "haproxy does not answer on its socket" in first.log
    first.haproxy.start()
    answers(provider, first, second)
    assert set(foreign()) <= provider.everything()


def test_the_last_node_stays_whatever_its_haproxy_does(
    provider: StrictRoute53, new_node: Callable[[int], FieldNode]
) -> None:
    node = new_node(0)
    node.run()
    answers(provider, node)
    node.haproxy.stop()
    until(lambda: "node.withdrew" in node.log, "it noticed")
    until(lambda: node.report["active"] is False, "others can know it")
    kept = json.loads(node.pyconfd("plan", "--json").stdout)
    assert kept[0]["state"] == "kept"
    answers(provider, node)


def test_route_53_that_is_away_changes_nothing_and_is_told_once(
    provider: StrictRoute53, aws: FaultProxy, new_node: Callable[[int], FieldNode]
) -> None:
    aws.faults = ["ServiceUnavailable"] * 6
    node = new_node(0)
    node.run()
    answers(provider, node)
    assert node.log.count("dns.stuck") == 1
    until(lambda: "dns.recovered" in node.log, "it says so")
    node.stop()
    aws.faults = [HANG] * 3
    done = node.pyconfd("status", DNS_TIMEOUT_S="0.2")
    assert done.exit_code == 75, done.stderr


def test_plan_publish_status_and_withdraw(provider: StrictRoute53, new_node: Callable[[int], FieldNode]) -> None:
    node, other = new_node(0), new_node(1)
    assert node.pyconfd("plan").exit_code == 2
    assert provider.changing == 0
    assert node.pyconfd("publish").exit_code == 0
    assert node.pyconfd("plan").exit_code == 0
    alone = node.pyconfd("withdraw")
    assert alone.exit_code == 1
    assert "dns.min_records is 1" in alone.stdout
    assert other.pyconfd("publish").exit_code == 0
    shown = node.pyconfd("status")
    assert shown.exit_code == 3
    assert "192.0.2.2  n1" in shown.stdout
    assert "does not run: systemctl status pyconfd-dns" in shown.stdout
    done = node.pyconfd("withdraw", "--wait", "--until-boot", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)[0]["state"] == "changes"
    answers(provider, other)
    assert node.pyconfd("plan").exit_code == 0  # withdrawn by command: that is as it should be
    assert node.pyconfd("publish").exit_code == 0
    assert other.pyconfd("forget", "n0").exit_code == 0
    assert other.pyconfd("forget", "n0").exit_code == 1
    answers(provider, other)


def test_one_name_that_fails_keeps_no_other_from_its_turn_and_the_longest_answer_is_waited_for(
    provider: StrictRoute53, new_node: Callable[[int], FieldNode]
) -> None:
    """A name without a zone, which an annotation may ask for too, must not spoil a shutdown."""
    slow, lost = "slow.example.com", "lost.example.org"
    records = json.dumps([{"name": lost}, {"name": slow, "ttl_s": 3}])
    node, other = new_node(0), new_node(1)
    for each in (node, other):
        done = each.pyconfd("publish", DNS_RECORDS=records)
        assert done.exit_code == 78
        assert f"no public hosted zone has {lost}" in done.stderr
    answers(provider, node, other)
    assert provider.answer(slow, "A") == ("192.0.2.1", "192.0.2.2")
    shown = node.pyconfd("status", DNS_RECORDS=records)
    assert shown.exit_code == 78
    assert re.search(r"192\.0\.2\.2 +n1", shown.stdout)
    assert re.search(rf"{lost} +\(not known\)", shown.stdout)
    began = time.monotonic()
    done = node.pyconfd("withdraw", "--wait", "--json", DNS_RECORDS=records)
    assert time.monotonic() - began >= 3
    assert done.exit_code == 78
    states = {item["name"]: item["state"] for item in json.loads(done.stdout)}
    assert states == {NAME: "changes", lost: "failed", slow: "changes"}
    answers(provider, other)
    assert provider.answer(slow, "A") == ("192.0.2.2",)


def test_a_route_53_that_is_away_is_an_error_of_plan_and_is_not_asked_for_each_name(
    aws: FaultProxy, new_node: Callable[[int], FieldNode]
) -> None:
    records = json.dumps([{"name": f"n{number}.example.com"} for number in range(3)])
    node = new_node(0)
    for command, code in (("plan", 1), ("withdraw", 75)):
        aws.faults, aws.seen = ["ServiceUnavailable"] * 100, []
        assert node.pyconfd(command, DNS_RECORDS=records).exit_code == code
        assert len(aws.seen) == ATTEMPTS


def test_a_busy_account_is_asked_again_by_commands(
    provider: StrictRoute53, aws: FaultProxy, new_node: Callable[[int], FieldNode]
) -> None:
    """Where all nodes are stopped at once; what it asks for in vain is more than the SDK tries by itself."""
    node, other = new_node(0), new_node(1)
    for each in (node, other):
        assert each.pyconfd("publish").exit_code == 0
    aws.faults = ["", *["Throttling"] * (ATTEMPTS + 1)]
    assert node.pyconfd("withdraw").exit_code == 0
    answers(provider, other)


def test_names_of_the_annotation_that_no_setting_allows_are_shown(new_node: Callable[[int], FieldNode]) -> None:
    node = new_node(0)
    path = node.folder / "run" / "status.json"
    path.write_bytes(document.encode(replace(document.decode(path.read_bytes()), dns_names=("web.example.com",))))
    shown = node.pyconfd("status").stdout
    assert "asks for web.example.com: not taken, since dns.annotation_suffixes is empty" in shown
    assert "not taken" not in node.pyconfd("status", DNS_ANNOTATION_SUFFIXES="example.com").stdout


def test_what_withdrew_by_command_stays_out_while_the_service_runs(
    provider: StrictRoute53, new_node: Callable[[int], FieldNode]
) -> None:
    node, other = new_node(0), new_node(1)
    for each in (node, other):
        each.run()
    answers(provider, node, other)
    assert node.pyconfd("withdraw").exit_code == 0
    answers(provider, other)
    node.kill()
    node.run()
    until(lambda: node.report.get("active"), "it runs again, and could serve")
    said = json.loads(node.pyconfd("status", "--json").stdout)["service"]
    assert (said["running"], said["active"], said["withdrawn_by_command"]) == (True, True, True)
    answers(provider, other)
    shown = node.pyconfd("status")
    assert shown.exit_code == 0
    assert "withdrawn by command" in shown.stdout
    other.kill()
    assert other.pyconfd("status").exit_code == 3  # what a dead service said is not shown as fresh
    assert node.pyconfd("publish").exit_code == 0
    answers(provider, node, other)


def test_a_record_of_somebody_else_blocks_until_it_is_adopted(
    provider: StrictRoute53, new_node: Callable[[int], FieldNode]
) -> None:
    there = record_set(NAME, "A", 300, ["192.0.2.1", "198.51.100.7"])
    provider.put(ZONE.zone_id, there)
    node = new_node(0)
    blocked = node.pyconfd("plan")
    assert blocked.exit_code == 1
    assert f"pyconfd dns adopt {NAME}" in blocked.stdout
    assert node.pyconfd("publish").exit_code == 1
    assert there in provider.everything()
    assert node.pyconfd("adopt", NAME).exit_code == 0
    assert provider.answer(NAME, "A") == ("192.0.2.1", "198.51.100.7")
    assert node.pyconfd("publish").exit_code == 0
    assert node.pyconfd("forget", "adopted:198.51.100.7").exit_code == 0
    answers(provider, node)


def test_settings_that_would_answer_a_dead_node_for_ever_are_refused_at_start(
    aws: FaultProxy, new_node: Callable[[int], FieldNode]
) -> None:
    refused = new_node(0).pyconfd("run", DNS_ACCEPT_DEAD_NODES="no")
    assert refused.exit_code == 78
    assert "answer a crashed node for ever" in refused.stderr
    assert not aws.seen
