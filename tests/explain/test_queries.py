"""Questions and their answers, without a cluster."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pyconfd.explain.evidence import Age, Evidence
from pyconfd.explain.queries import explain, explain_refused
from pyconfd.explain.text import render
from pyconfd.haproxy.runtime.readback import ServerNow
from pyconfd.model.changes import Action, Change
from pyconfd.model.context import Context, Refusal, RefusalReason
from pyconfd.model.explanation import Ambiguous, Explanation, LineOrigin, Objects, Refusals, Servers, Standing, Unknown
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.rendering import Rendering
from pyconfd.model.reservation import Name, NameRegister, Reservation
from pyconfd.model.snapshot import Key, Snapshot
from tests.explain.test_fates import annotated, slice_of
from tests.explain.world import evidence_of

SHOP = Key("shop", "web")


def world(**more: Any) -> Evidence:
    services = {SHOP: annotated(), Key("shop", "web2"): annotated("web2")}
    slices = {Key("shop", "web-1"): slice_of(), Key("shop", "web2-1"): slice_of("web2")}
    return evidence_of(Snapshot(services=services, endpointslices=slices), **more)


def asked(query: str, **more: Any) -> Explanation:
    return explain(query, world(**more))


def test_an_explanation_comes_back_as_it_was_sent() -> None:
    for query in ("web", "a.example.com", "p", "line 1", "nothing", "10.0.0.1"):
        told = asked(query)
        assert msgspec.json.decode(msgspec.json.encode(told), type=Explanation) == told
    told = explain_refused(world())
    assert msgspec.json.decode(msgspec.json.encode(told), type=Explanation) == told


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("web", Objects),
        ("shop/web", Objects),
        ("service web", Objects),
        ("a.example.com", Objects),
        ("A.EXAMPLE.COM", Objects),
        ("domain a.example.com", Objects),
        ("p", Servers),
        ("pod shop/p", Servers),
        ("10.0.0.1:8080", Servers),
        ("be-a.example.com", Servers),
        ("line 2", LineOrigin),
        ("haproxy.cfg:2", LineOrigin),
        ("/etc/haproxy/generated/haproxy.cfg:2", LineOrigin),
        ("line 0", Unknown),
        ("pod web", Unknown),
        ("prod/web", Unknown),
        ("", Unknown),
        ("x" * 5000, Unknown),
    ],
)
def test_each_kind_of_question(query: str, kind: type) -> None:
    assert type(asked(query).answer) is kind, asked(query).answer


def test_the_holder_of_a_name_is_told_before_those_who_lost_it() -> None:
    answer = asked("a.example.com").answer
    assert isinstance(answer, Objects)
    told = [(each.object, type(each.fate).__name__) for each in answer.objects]
    assert [fate for _, fate in told] == ["Served", "TurnedAway"]


def test_one_name_for_a_service_and_a_pod_is_ambiguous_and_each_candidate_is_a_question() -> None:
    services = {SHOP: annotated(), Key("shop", "p"): annotated("p", domain="p.example.com")}
    evidence = evidence_of(Snapshot(services=services, endpointslices={Key("shop", "web-1"): slice_of()}))
    answer = explain("p", evidence).answer
    assert answer == Ambiguous(("service shop/p", "pod shop/p"))
    assert [type(explain(each, evidence).answer) for each in answer.candidates] == [Objects, Servers]


def test_what_haproxy_says_of_the_servers() -> None:
    evidence = world()
    (line,) = evidence.configuration.at("10.0.0.1", 8080)
    now = ServerNow(line.backend, line.name, "10.0.0.1", 8080, 1, maint=False, drain=False, operating=0, changed_s=240)
    for live, words in (
        ({(line.backend, line.name): now}, "down for 4 m"),
        ({}, "absent"),
        (None, "not asked"),
    ):
        text = render(asked("web", live=live))
        assert words in text, text
    assert "none of them up" in render(asked("web", live={(line.backend, line.name): now}))


def test_since_when_something_is_refused_and_that_it_may_be_older() -> None:
    (refusal,) = world().refused
    for age, words in ((Age(400.0), ", for 10 m"), (Age(400.0, at_least=True), ", for at least 10 m")):
        assert words in render(explain("web2", world(ages={refusal: age})))
    told = explain_refused(world(ages={refusal: Age(400.0)})).answer
    assert isinstance(told, Refusals)
    assert [each.since for each in told.refused] == [400.0]


def test_kinds_of_refusal_that_nobody_knew_are_told_in_their_own_words() -> None:
    ref = ObjectRef("Service", "shop", "web")
    evidence = world()
    for reason in RefusalReason:
        refusal = Refusal(ref, "annotation domain", "a", reason, "because")
        made = replace(evidence, context=Context({}), desired=None, serving=None, refused=(refusal,))
        text = render(explain("web", made))
        assert "because" in text
        assert "refused (" in text, text
        assert "to do" in text


def test_an_object_that_is_refused_as_a_whole() -> None:
    refusal = Refusal(ObjectRef("Service", "shop", "web"), "", "", RefusalReason.BAD_TEMPLATE, "because")
    made = replace(world(), context=Context({}), desired=None, serving=None, refused=(refusal,))
    assert "refused     the whole object [bad_template]" in render(explain("web", made))
    assert "refused     Service shop/web as a whole [bad_template]" in render(explain_refused(made))


def test_the_last_change_of_its_backends() -> None:
    changes = (
        Change(100.0, 1, Action.RELOAD, details=("backend be-a.example.com added",), reasons=("section_added",)),
        Change(760.0, 2, Action.LIVE, "be-a.example.com +1 server", duration_s=0.001),
        Change(900.0, 3, Action.LIVE, "be-aa.example.com +1 server; be-a.example.community -1 server"),
        Change(950.0, 4, Action.REJECTED, details=("be-a.example.com is bad",)),
    )
    text = render(asked("web", changes=changes))
    assert "changed     4 m ago: be-a.example.com +1 server, live" in text


def test_a_configuration_that_does_not_serve_is_told_first() -> None:
    standing = Standing("held", 7, 900.0, 400.0, "3f9c", ("protection: all would go\n    -> pyconfd allow 3f9c",))
    text = render(asked("web", standing=standing))
    assert text.startswith("pyconfd is held, for 10 m: generation 7 goes on serving\n  protection: all would go\n")
    assert "pyconfd allow 3f9c" in text


def test_a_part_that_is_held_while_the_rest_serves_is_told_too() -> None:
    problems = ("protection: 3 of 4 would go\n    -> pyconfd allow 3f9c",)
    standing = Standing("held", 7, 900.0, 990.0, "3f9c", problems, held_since=400.0)
    text = render(asked("web", standing=standing))
    assert text.startswith("removals are held, for 10 m; everything else goes on\n  protection: 3 of 4 would go\n")
    rejected = render(asked("web", standing=msgspec.structs.replace(standing, phase="rejected")))
    assert "pyconfd is rejected, for 10 s: generation 7 goes on serving" in rejected
    assert "removals are held, for 10 m" in rejected


def test_servers_whose_removal_is_held_are_told_apart() -> None:
    standing = Standing("held", 7, 900.0, 990.0, "3f9c", held_since=400.0)
    text = render(asked("web", standing=standing, kept={("domains", "a.example.com"): frozenset({"10.0.0.1"})}))
    assert "held: not ready in the cluster any more" in text
    assert "of them held" in text
    assert "if the loss is meant, pyconfd allow 3f9c lets it through" in text
    other = render(asked("web", standing=standing, kept={("domains", "other"): frozenset({"10.0.0.1"})}))
    assert "of them held" not in other
    assert "allow" not in other


def test_what_waits_for_a_reload_is_not_called_held_because_removals_are() -> None:
    waiting = Rendering(())
    for held_since, headline in ((0.0, "held: the change"), (400.0, "not applied: the configuration")):
        standing = Standing("held", 7, 900.0, 990.0, "3f9c", held_since=held_since)
        assert headline in render(asked("web", standing=standing, serving=waiting))


def test_a_line_of_a_frontend_is_about_whom_it_names() -> None:
    text = (
        "frontend a\n    bind :80\n    acl h hdr(host) -i a.example.com\n    acl other hdr(host) -i aa.example.com\n"
        "    use_backend be-a.example.com if h\n    default_backend none\n"
    )
    objects = {}
    for number in range(1, 7):
        answer = asked(f"line {number}", templates={"1.conf": text}).answer
        assert isinstance(answer, LineOrigin)
        objects[number] = {each.object for each in answer.objects}
    both = {"Service shop/web", "Service shop/web2"}
    assert objects == {1: set(), 2: set(), 3: both, 4: set(), 5: {"Service shop/web"}, 6: set()}


def test_passwords_of_the_configuration_are_not_shown() -> None:
    templates = {
        "1.conf": "listen stats\n    stats auth admin:topsecret\n    http-request deny if { hdr(x) hunter2 }\n"
    }
    more = {"templates": templates, "secrets": ("hunter2",)}
    for number in (2, 3):
        told = asked(f"line {number}", **more)
        assert "topsecret" not in repr(told)
        assert "hunter2" not in repr(told)
        assert "[hidden]" in render(told)


def test_nothing_that_a_stranger_wrote_moves_the_terminal() -> None:
    service = annotated(domain="\x1b[2Ja.example.com", proto="h\nttp")
    evidence = evidence_of(Snapshot(services={SHOP: service}))
    for told in (explain("web", evidence), explain_refused(evidence), explain("\x1b[2J", evidence)):
        assert "\x1b" not in render(told)


def test_unknown_names_say_where_it_was_looked_and_what_is_close() -> None:
    answer = asked("a.exmaple.com").answer
    assert isinstance(answer, Unknown)
    assert "a.example.com" in answer.close
    assert "2 Service objects" in answer.looked_in


def test_a_name_that_is_kept_for_a_gone_owner_says_for_whom() -> None:
    register = NameRegister(
        reservations={"domains": {Name("http", "gone.example.com"): Reservation("demo", "2026-01-01", 600.0)}}
    )
    evidence = world()
    evidence = replace(evidence, context=replace(evidence.context, register=register))
    for query in ("gone.example.com", "domain GONE.example.com"):
        text = render(explain(query, evidence))
        assert "this was the namespace demo's" in text, text
        assert "until 1970-01-01T00:10:00Z" in text
    assert "demo" not in render(explain("other.example.com", evidence))


def test_what_is_not_ready_is_told_with_the_command_to_look_with() -> None:
    key = Key("shop", "web")
    asking = evidence_of(Snapshot(services={key: annotated()}, endpointslices={key: slice_of(ready=False)}))
    text = render(explain("service web", asking))
    assert "kubectl get endpointslices -n shop -l kubernetes.io/service-name=web -o wide" in text


def test_a_slip_of_the_pen_is_told_where_half_of_what_asks_is_there() -> None:
    service = annotated(domian="a.example.com", domain="")
    text = render(explain("service web", evidence_of(Snapshot(services={Key("shop", "web"): service}))))
    assert "annotation domain is missing" in text
    assert "its annotation domian has no effect: did you mean domain?" in text


def test_a_port_that_no_setting_allows_is_not_blamed_on_the_rules_of_namespaces() -> None:
    text = render(explain("service web", evidence_of(Snapshot(services={Key("shop", "web"): annotated(proto="tcp")}))))
    assert "presets.listen_ports" in text
    assert "the setting changed that is named above" in text
