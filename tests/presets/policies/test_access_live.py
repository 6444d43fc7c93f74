"""Who may ask, by what clients show of themselves: a real HAProxy."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from pyconfd.explain.conditions import secret_report
from pyconfd.explain.decision import RoutingDecisions
from pyconfd.explain.replay import EffectKind, TrafficReplay
from pyconfd.haproxy.config.text import without_passwords
from pyconfd.haproxy.runtime.sockets import ask
from pyconfd.model.logged import asked_for
from pyconfd.model.snapshot import Key
from pyconfd.presets.certificates import TlsOptions
from tests.presets.policies.logins import basic, hashed, secret, users
from tests.presets.policies.stage import (
    HOST,
    WAYS,
    PolicyStage,
    of_ingress,
    of_route,
    policy_stage,
    refused_of,
    said_in,
)

pytestmark = pytest.mark.haproxy
ways = pytest.mark.parametrize("way", WAYS)


PROTECTED = {"basic-auth-secret": "staff"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path, runtime_socket=str(tmp_path / "run.sock")) as found:
        yield found


@ways
def test_users_of_a_secret(stage: PolicyStage, way: str) -> None:
    context = stage.serving(WAYS[way](PROTECTED), users(ada="one", bob="two"))
    assert not context.refused
    nobody = stage.request(way)
    assert (nobody.status, nobody.headers["www-authenticate"]) == (401, ['Basic realm="Restricted"'])
    answer = stage.request(way, headers=basic("ada", "one"))
    # Pods get the header, as from ingress-nginx.
    assert answer.echo["headers"]["authorization"] == [basic("ada", "one")["Authorization"]]
    assert [
        stage.request(way, headers=basic(*each), client=f"198.51.100.{number}").status
        for number, each in enumerate([("bob", "two"), ("ada", "two"), ("eve", "one"), ("ada", ""), ("", "one")])
    ] == [200, 401, 401, 401, 401]
    assert stage.request(way, headers={"Authorization": "Bearer abc"}).status == 401


@ways
def test_each_key_of_a_secret_may_be_a_user(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way](PROTECTED), secret({"ada": hashed("one"), "auth": hashed("two", "$6$abcdefgh$")}))
    assert [stage.request(way, headers=basic(*each)).status for each in (("ada", "one"), ("auth", "two"))] == [200] * 2


@ways
def test_another_header_is_not_believed_beside_the_verified_one(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way](PROTECTED), users(ada="one"))
    mine, others = basic("ada", "one")["Authorization"], basic("root", "x")["Authorization"]
    for values in ((mine, others), (others, mine), (f"{mine}, {others}",)):
        assert stage.request(way, headers=[("Authorization", each) for each in values]).status == 401


@ways
def test_a_password_is_verified_once(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way](PROTECTED), secret({"auth": f"ada:{hashed('one', '$2y$10$abcdefghijklmnopqrstuu')}"}))
    assert [stage.request(way, headers=basic("ada", "one")).status for _ in range(4)] == [200] * 4
    answer = ask(stage.variables["runtime_socket"], "show table logins")
    (line,) = (each.split() for each in answer.splitlines() if "key=" in each)
    assert {"gpc2=1", "gpc3=0"} < {*line}


@ways
def test_a_new_password_ends_the_old_one(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way](PROTECTED), users(ada="one"))
    assert stage.request(way, headers=basic("ada", "one")).status == 200
    stage.serving(WAYS[way](PROTECTED), users(ada="two"))
    assert [stage.request(way, headers=basic("ada", each)).status for each in ("one", "two")] == [401, 200]


@ways
def test_wrong_passwords_are_verified_seldom(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way](PROTECTED), users(ada="one"))
    assert stage.request(way, headers=basic("ada", "one")).status == 200
    found = [stage.request(way, headers=basic("ada", f"no-{number}")).status for number in range(15)]
    assert found == [401] * 10 + [429] * 5
    # Who is remembered goes on, also from that address, and others may log in.
    assert stage.request(way, headers=basic("ada", "one")).status == 200
    assert stage.request(way, headers=basic("ada", "no"), client="203.0.113.9").status == 401


@ways
def test_logins_of_a_namespace_have_a_rate(stage: PolicyStage, way: str) -> None:
    line = f"ada:{hashed('one', '$2y$10$abcdefghijklmnopqrstuu')}"
    stage.serving(WAYS[way](PROTECTED), secret({"auth": line}))
    found = [
        stage.request(way, headers=basic("ada", "no"), client=f"203.0.113.{number}").status for number in range(12)
    ]
    assert found[0] == 401
    assert 429 in found


@ways
def test_a_realm(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({**PROTECTED, "basic-auth-realm": "Staff %[src] only"}), users(ada="one"))
    assert stage.request(way).headers["www-authenticate"] == ['Basic realm="Staff %[src] only"']


@ways
@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "", "x" * 101])
def test_a_realm_that_is_none_has_no_effect(stage: PolicyStage, way: str, text: str) -> None:
    context = stage.serving(WAYS[way]({**PROTECTED, "basic-auth-realm": text}), users(ada="one"))
    assert stage.request(way).headers["www-authenticate"] == ['Basic realm="Restricted"']
    assert ["realm" in each.field.lower() for each in refused_of(context)] == [True]


@ways
@pytest.mark.parametrize(
    ("found", "why"),
    [
        ("", "there is no Secret shop/staff of type Opaque"),
        (secret({"password": "hunter2"}), "line 1: no hash"),
        (secret({}), "no lines"),
        (secret({"auth": "ada:$apr1$abcdefgh$aaaaaaaaaaaaaaaaaaaaaa"}), "make it with htpasswd -B"),
        (secret({"auth": "ada:{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc="}), "cannot verify {SHA}: make it"),
        (secret({"auth": "ada:hunter2"}), "line 1: no hash"),
        (secret({"auth": f"ada:{hashed('one').replace('$04$', '$12$')}"}), "a cost of more than 10"),
        (users(ada="one").replace("Opaque", "kubernetes.io/basic-auth"), "of type Opaque"),
    ],
)
def test_without_users_nobody_is_let_in(stage: PolicyStage, way: str, found: str, why: str) -> None:
    context = stage.serving(*filter(None, [WAYS[way](PROTECTED, path="/admin"), WAYS[way]({}, name="open"), found]))
    assert stage.request(way, "/admin", headers=basic("ada", "one")).status == 403
    assert stage.request(way).status == 200
    (refused,) = refused_of(context)
    assert said_in(way, "basic-auth-secret") in refused.field
    assert why in refused.detail
    assert "nobody is let in" in refused.detail
    assert "hunter2" not in repr(context.refused)


@ways
def test_secrets_that_are_not_read(stage: PolicyStage, way: str) -> None:
    for tls, setting in (
        (TlsOptions(), "kubernetes.secret_namespaces"),
        (TlsOptions(namespaces=("shop",)), "kubernetes.password_secrets"),
        (TlsOptions(namespaces=("*",)), "kubernetes.password_secrets"),
    ):
        stage.tls = tls
        context = stage.serving(WAYS[way](PROTECTED))
        assert stage.request(way, headers=basic("ada", "one")).status == 403
        assert [setting in each.detail for each in refused_of(context)] == [True]


@ways
def test_lines_that_are_wrong_are_left_out(stage: PolicyStage, way: str) -> None:
    lines = ["# staff", f"ada:{hashed('one')}", "bob:hunter2", f"a b:{hashed('x')}", f"eve:{hashed('x')}:note", ""]
    context = stage.serving(WAYS[way](PROTECTED), secret({"auth": "\n".join(lines)}))
    assert [stage.request(way, headers=basic(*each)).status for each in (("ada", "one"), ("eve", "x"))] == [200] * 2
    assert stage.request(way, headers=basic("bob", "hunter2")).status == 401
    (noted,) = refused_of(context)
    assert "line 3: " in noted.detail
    assert "line 4: " in noted.detail
    assert "hunter2" not in noted.detail


@ways
def test_what_browsers_ask_before_a_request_needs_no_user(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({**PROTECTED, "cors-allow-origins": "https://a.example"}), users(ada="one"))
    asks = {"Origin": "https://a.example", "Access-Control-Request-Method": "GET"}
    assert stage.request(way, method="OPTIONS", headers=asks).status == 204
    assert stage.request(way, method="OPTIONS", headers={"Origin": "https://a.example"}).status == 401
    assert stage.request(way, method="GET", headers=asks).status == 401


@ways
def test_limits_count_users(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way]({**PROTECTED, "limit-rpm": "2", "limit-rps": "2"}), users(ada="one"))
    found = [stage.request(way, headers=basic("ada", "one")).status for _ in range(4)]
    # The one that was verified does not count.
    assert found == [200, 200, 200, 429]


@ways
def test_hashes_are_hidden(stage: PolicyStage, way: str) -> None:
    rendering, context = stage.rendered(WAYS[way](PROTECTED), users(ada="one"))
    assert hashed("one") in rendering.text
    assert hashed("one") not in without_passwords(rendering.text)
    assert hashed("one") not in repr(context.refused)
    (list_name,) = {line.split()[1] for line in rendering.text.splitlines() if line.startswith("userlist ")}
    assert list_name.startswith("users-")


def test_a_secret_of_another_namespace_closes(stage: PolicyStage) -> None:
    other = users(ada="one").replace('"name": "staff"', '"name": "staff", "namespace": "other"')
    stage.serving(of_ingress({"basic-auth-secret": "other/staff"}), other)
    assert stage.request("ingress", headers=basic("ada", "one")).status == 403
    stage.serving(of_ingress({"basic-auth-secret": "shop/staff"}), users(ada="one"))
    assert stage.request("ingress", headers=basic("ada", "one")).status == 200


def test_users_of_a_namespace_have_room_for_the_oldest(stage: PolicyStage) -> None:
    dear = hashed("one", "$2y$10$abcdefghijklmnopqrstuu")
    many = [secret({f"u{number}": dear for number in range(10)}, name) for name in ("a", "b")]
    stage.serving(
        of_ingress({"basic-auth-secret": "a"}, path="/a", name="a"),
        of_ingress({"basic-auth-secret": "b"}, path="/b", name="b"),
        *many,
    )
    assert [stage.request("ingress", path, headers=basic("u1", "one")).status for path in ("/a", "/b")] == [200, 403]


def test_both_ways_share_the_users_of_a_secret(stage: PolicyStage) -> None:
    stage.serving(of_ingress(PROTECTED), of_route(PROTECTED), users(ada="one"))
    assert [stage.request(way, headers=basic("ada", "one")).status for way in ("ingress", "httproute")] == [200, 200]


def test_annotations_of_ingress_nginx(stage: PolicyStage) -> None:
    stage.nginx_classes = ("nginx",)
    said = {"auth-type": "basic", "auth-secret": "staff", "auth-realm": "Staff - only", "auth-secret-type": "auth-map"}
    ingress = of_ingress(said, prefix="nginx.ingress.kubernetes.io/", class_name="nginx")
    context = stage.serving(ingress, secret({"ada": hashed("one")}))
    assert not context.refused
    assert stage.request("ingress").headers["www-authenticate"] == ['Basic realm="Staff - only"']
    assert stage.request("ingress", headers=basic("ada", "one")).status == 200
    said["auth-type"] = "digest"
    stage.serving(of_ingress(said, prefix="nginx.ingress.kubernetes.io/", class_name="nginx"))
    assert stage.request("ingress", headers=basic("ada", "one")).status == 403


def test_of_an_ingress_that_is_closed_status_has_no_address(stage: PolicyStage) -> None:
    document = yaml.safe_load(of_ingress(PROTECTED))
    assert document["spec"]["rules"][0]["host"] == HOST
    context = stage.context(of_ingress(PROTECTED))
    (status,) = (each for mapping in context.statuses for key, each in mapping.items() if key.resource == "ingresses")
    assert status.body == {"loadBalancer": {}}


@ways
def test_explain_says_who_may_ask(stage: PolicyStage, way: str) -> None:
    stage.serving(WAYS[way](PROTECTED), users(ada="one"))
    answer = stage.explained(way, "/")
    assert (answer.status, answer.steps[-1].field.endswith(said_in(way, "basic-auth-secret"))) == (401, True)
    said = stage.explained(way, "/", headers=[*basic("ada", "no").items()])
    assert said.status == 0
    assert any("Secret shop/staff" in each for each in said.uncovered)


def test_other_passwords_are_no_change_of_requests(stage: PolicyStage) -> None:
    line = json.dumps({"listener": "http-in", "method": "GET", "host": HOST, "path": "/", "client": "198.51.100.7"})
    sets = [(of_ingress({}),), (of_ingress(PROTECTED), users(ada="one")), (of_ingress(PROTECTED), users(ada="two"))]
    decided = [RoutingDecisions(stage.evidence_of(*stage.rendered(*each), *each)) for each in sets]
    kinds = [TrafficReplay(*both).effect_of(asked_for(line.encode())).effect.kind for both in pairwise(decided)]
    assert kinds == [EffectKind.CHANGED, EffectKind.SAME]


def test_explain_says_of_a_secret_who_uses_it(stage: PolicyStage) -> None:
    def report(*objects: str) -> tuple[list[str], str]:
        rendering, context = stage.rendered(*objects)
        found = secret_report(Key("shop", "staff"), stage.evidence_of(rendering, context, *objects))
        assert hashed("one") not in repr(found)
        return [each.reason for each in found.conditions], found.because

    with_note = secret({"auth": f"ada:{hashed('one')}\nbob:hunter2"})
    used = report(of_ingress(PROTECTED), with_note)
    assert "Programmed" in used[0]
    assert used[1].startswith("type Opaque, 1 users (line 2: ")
    assert report(of_ingress({}), users(ada="one"))[0][0] == "NotClaimed"
