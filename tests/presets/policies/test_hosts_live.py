"""More hosts of an Ingress than its rules name, by a real HAProxy."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pyconfd.presets.policies.hosts import aliases
from pyconfd.presets.policies.nginx import PREFIX
from pyconfd.presets.policy import ClaimOptions, Rule, network
from tests.presets.policies.stage import HOST, PolicyStage, of_ingress, policy_stage

pytestmark = pytest.mark.haproxy
WWW = f"www.{HOST}"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        found.nginx_classes = ("nginx",)
        yield found


def at_host(text: str, host: str, namespace: str = "shop") -> str:
    document = yaml.safe_load(text)
    document["metadata"]["namespace"] = namespace
    document["spec"]["rules"][0]["host"] = host
    return yaml.safe_dump(document)


@pytest.mark.parametrize("class_name", ["pyconfd", "nginx"])
def test_aliases_have_all_rules_and_words(stage: PolicyStage, class_name: str) -> None:
    prefix = PREFIX if class_name == "nginx" else "pyconfd.io/"
    word = "whitelist-source-range" if class_name == "nginx" else "allow-networks"
    words = {"server-alias": "one.example.org, *.two.example.org", word: "198.51.100.0/24"}
    context = stage.serving(of_ingress(words, path="/shop", prefix=prefix, class_name=class_name))
    assert not context.refused
    for host in (HOST, "one.example.org", "a.two.example.org"):
        found = [stage.request("ingress", path, host=host).status for path in ("/shop/a", "/")]
        assert found == [200, 404], host
        assert stage.request("ingress", "/shop", host=host, client="192.0.2.1").status == 403
    assert stage.request("ingress", "/shop", host="two.example.org").status == 404


def test_an_alias_is_claimed_as_any_host(stage: PolicyStage) -> None:
    other = at_host(of_ingress({}, name="other"), "one.example.org", "a-other")
    context = stage.serving(other, of_ingress({"server-alias": "one.example.org"}))
    assert stage.request("ingress", host="one.example.org").status == 503, "that of the other namespace"
    assert {(each.ref.name, each.reason.value) for each in context.refused} >= {("web", "name_taken")}
    rules = (Rule(("*",), addresses=(network("0.0.0.0/0"),), domains=(WWW,)),)
    stage.claims = ClaimOptions(rules)
    words = {"server-alias": "one.example.org", "from-to-www-redirect": "true"}
    context = stage.serving(at_host(of_ingress(words), WWW))
    assert [stage.request("ingress", host=host).status for host in (WWW, "one.example.org", HOST)] == [200, 404, 404]
    assert [each.reason for each in context.refused] == ["not_allowed", "not_allowed"]


@pytest.mark.parametrize(("mine", "other"), [(HOST, WWW), (WWW, HOST)])
def test_the_other_one_of_www_is_redirected(stage: PolicyStage, mine: str, other: str) -> None:
    main = at_host(of_ingress({"from-to-www-redirect": "true"}, path="/shop"), mine)
    assert not stage.serving(main).refused
    answer = stage.request("ingress", "/shop/a?b=c", host=other)
    assert (answer.status, answer.headers["location"]) == (308, [f"http://{mine}/shop/a?b=c"])
    assert stage.request("ingress", "/shop", host=mine).status == 200
    assert stage.request("ingress", "/", host=mine).status == 404


def test_a_host_that_another_ingress_has_is_not_redirected(stage: PolicyStage) -> None:
    main = of_ingress({"from-to-www-redirect": "true"})
    context = stage.serving(main, at_host(of_ingress({}, name="zz", path="/own"), WWW))
    assert [stage.request("ingress", path, host=WWW).status for path in ("/own", "/")] == [200, 404]
    (noted,) = context.refused
    assert (noted.ref.name, noted.reason.is_note) == ("web", True)
    context = stage.serving(main, at_host(of_ingress({}, name="other"), WWW, "a-other"))
    assert stage.request("ingress", host=WWW).status == 503
    assert ("web", "name_taken") in {(each.ref.name, each.reason.value) for each in context.refused}


def test_two_ingresses_of_a_host_redirect_once(stage: PolicyStage) -> None:
    both = [of_ingress({"from-to-www-redirect": "true"}, name=name, path=f"/{name}") for name in ("a", "b")]
    stage.serving(*both)
    assert stage.request("ingress", "/a", host=WWW).headers["location"] == [f"http://{HOST}/a"]


@pytest.mark.parametrize(
    "text", ["", "~^a.*$", "a b/c", "192.0.2.1", "x" * 300, ",".join(f"h{n}.org" for n in range(65))]
)
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|address|taken|condition"):
        aliases(text)
