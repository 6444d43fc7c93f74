"""The policy and the settings of docs/route53.md are those that the program needs."""

import json
import tomllib

from pyconfd.dns.planner import DnsNode, Wish, plan
from pyconfd.dns.records import marker_name
from pyconfd.settings import NameSettings, names_of, resolve
from tests.docs.examples import ROOT, blocks_of

PAGE = ROOT / "docs" / "route53.md"


def blocks(language: str) -> list[str]:
    return [item.body for item in blocks_of(PAGE) if item.language == language]


def block(language: str) -> str:
    return blocks(language)[0]


def test_the_settings_are_accepted_one_by_one_and_all_together() -> None:
    first, names, annotation = blocks("toml")
    assert tomllib.loads(first)["dns"]["names"] == ["lb.example.com"]
    whole = "\n".join((first, annotation.removeprefix("[dns]\n"), names))
    dns = resolve({"config": "/page"}, {}, lambda _: whole).settings.dns
    assert dns.reaper
    assert [(each.name, each.private, each.mode) for each in names_of(dns)] == [
        ("lb.example.com", False, "multivalue"),
        ("lb.example.com", True, "multivalue"),
        ("vip.example.com", False, "vip"),
    ]
    assert dns.annotation_suffixes == ("apps.example.com",)


def test_the_policy_allows_what_is_sent_and_no_more() -> None:
    statement = json.loads(block("json"))["Statement"][-1]
    allowed = next(iter(statement["Condition"].values()))
    name = "lb.example.com"
    assert set(allowed["route53:ChangeResourceRecordSetsNormalizedRecordNames"]) == {name, marker_name(name)}
    spec = NameSettings(name=name, owner="prod")
    first = plan(spec, DnsNode("n0", "192.0.2.1", "2001:db8::1"), Wish.PUBLISH, ())
    assert first.changes
    second = plan(spec, DnsNode("n0", "192.0.2.2"), Wish.PUBLISH, [change.record for change in first.changes])
    assert second.changes
    sent = (*first.changes, *second.changes)
    assert {change.action.value for change in sent} == set(allowed["route53:ChangeResourceRecordSetsActions"])
    assert {change.record.type for change in sent} == set(allowed["route53:ChangeResourceRecordSetsRecordTypes"])
    assert {change.record.name.rstrip(".") for change in sent} == {name, marker_name(name)}
