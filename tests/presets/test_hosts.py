"""Preset hosts: the contract of ads-infra-haproxy; its README's two configurations are golden cases, unmodified."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pyconfd.model.context import Context, RefusalReason
from pyconfd.model.kubernetes import Deployment, DeploymentSpec, ObjectRef, PodTemplate, Service
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import Name, Owner, Reservation
from pyconfd.model.snapshot import Named, Resource
from pyconfd.predecessors.allowed import Boundaries, judge
from pyconfd.predecessors.hosts import CONFIG, MASTER, ROUTE53, HostsOptions
from pyconfd.presets import registry
from pyconfd.presets.conflicts import reserved_until
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.presets.registry import Memo
from pyconfd.render import cluster_templates
from tests.presets.asking import claims, counted
from tests.presets.pods import Record, pod, read, refusals, snapshot
from tests.world.haproxy import BINARY

GOLDEN = Path(__file__).parents[1] / "golden" / "hosts"
BALANCER = ObjectRef("Deployment", "default", "haproxy")
MINE = {MASTER: "haproxy.default.svc"}
OPTIONS = PresetOptions(own=own_options(HostsOptions(master="haproxy.default.svc", config=BALANCER)))


def deployment(config: str = "x", app: str = "haproxy", **annotations: str) -> Deployment:
    given = {CONFIG: config, MASTER: "haproxy.default.svc"} | annotations
    template = PodTemplate(ObjectMeta(labels={"app": app}, annotations=given))
    return Deployment(ObjectMeta("haproxy", "default"), DeploymentSpec(template))


def target(name: str, address: str | None, app: str, **fields: object) -> Record:
    return pod(name, address, {"app": app, "role": "x"}, **({"namespace": "default", "annotations": MINE} | fields))


def translated(*records: Record, options: PresetOptions = OPTIONS) -> Context:
    return read("hosts", *records, options=options)


def test_addresses_by_app_sorted_without_the_balancers_own() -> None:
    context = translated(
        deployment(),
        target("z", "10.0.0.10", "web"),
        target("a", "10.0.0.9", "web"),
        target("six", "fd00::1", "web"),
        target("db", "10.0.0.3", "db"),
        target("proxy", "10.0.0.4", "haproxy"),
        pod("stranger", "10.0.0.5", {"app": "web"}, namespace="default"),
        target("others", "10.0.0.6", "web", annotations={MASTER: "another.default.svc"}),
    )
    assert context.names["hosts"] == {"db": ["10.0.0.3"], "web": ["10.0.0.9", "10.0.0.10", "fd00::1"]}
    assert list(context.names["hosts"]) == ["db", "web"]
    assert context.totals.claimed == 4
    assert context.refused == ()


def test_another_app_of_the_balancers_leaves_no_stale_servers() -> None:
    web, memo = target("a", "10.0.0.9", "web"), Memo()
    before, after = snapshot(deployment(), web), snapshot(deployment(app="web"), web)
    assert registry.translate(before, ("hosts",), OPTIONS, memo).names["hosts"] == {"web": ["10.0.0.9"]}
    assert registry.translate(after, ("hosts",), OPTIONS, memo).names["hosts"] == {}


def test_pods_that_are_not_ready_are_left_out_and_their_app_stays() -> None:
    context = translated(
        deployment(), target("a", "10.0.0.1", "web", ready=False), target("b", "10.0.0.2", "web", deleted=True)
    )
    assert context.names["hosts"] == {"web": []}


def test_several_masters_in_one_annotation() -> None:
    context = translated(deployment(), target("a", "10.0.0.1", "web", annotations={MASTER: "x, haproxy.default.svc"}))
    assert context.names["hosts"] == {"web": ["10.0.0.1"]}


def test_a_selector_instead_of_the_annotation() -> None:
    options = PresetOptions(own=own_options(HostsOptions(selector={"tier": "web"}, own_app="proxy")))
    context = translated(
        pod("a", "10.0.0.1", {"app": "web", "tier": "web"}),
        pod("b", "10.0.0.2", {"app": "proxy", "tier": "web"}),
        pod("c", "10.0.0.3", {"app": "web"}),
        options=options,
    )
    assert context.names["hosts"] == {"web": ["10.0.0.1"]}
    assert context.templates == ()


def test_nobody_joins_an_app_of_another_namespace() -> None:
    context = translated(
        deployment(),
        target("mine", "10.0.0.1", "web"),
        target("thief", "10.0.0.2", "web", namespace="other", created="2020-01-01T00:00:00Z"),
        target("young", "10.0.0.3", "cache", namespace="b", created="2026-02-01T00:00:00Z"),
        target("old", "10.0.0.4", "cache", namespace="c", created="2026-01-01T00:00:00Z"),
    )
    assert context.names["hosts"] == {"cache": ["10.0.0.4"], "web": ["10.0.0.1"]}
    assert {refusal.reason for refusal in context.refused} == {RefusalReason.NAME_TAKEN}
    assert "belongs to the namespace default" in refusals(context)["Pod thief label app"]


BANK = Reservation(Owner("Pod", "bank", "web", "2026-01-20"), 99.0)


@pytest.mark.parametrize(
    ("namespaces", "served", "refused"),
    [
        # What is reserved for a namespace that has no pod now is nobody's.
        (("evil",), [], {"evil": RefusalReason.NAME_RESERVED}),
        (("evil", "team"), [], {"evil": RefusalReason.NAME_RESERVED, "team": RefusalReason.NAME_RESERVED}),
        (("bank", "evil"), ["bank"], {"evil": RefusalReason.NAME_TAKEN}),
        # The namespace of the balancer comes first in any case.
        (("default", "bank"), ["default"], {"bank": RefusalReason.NAME_TAKEN}),
    ],
)
def test_an_app_that_is_reserved_for_a_namespace(
    namespaces: tuple[str, ...], served: list[str], refused: dict[str, RefusalReason]
) -> None:
    addresses = {name: f"10.0.0.{number}" for number, name in enumerate(("bank", "default", "evil", "team"), 1)}
    options = replace(OPTIONS, reservations={"hosts": {Name("", "web"): BANK}})
    context = translated(
        deployment(),
        *(target(f"p-{each}", addresses[each], "web", namespace=each) for each in namespaces),
        options=options,
    )
    assert context.names["hosts"].get("web", []) == [addresses[each] for each in served]
    assert {each.ref.namespace: each.reason for each in context.refused} == refused
    for each in context.refused:
        kept = each.reason is RefusalReason.NAME_RESERVED
        owner = served[0] if served else ""
        why = reserved_until(BANK) if kept else f"the app web belongs to the namespace {owner}; name it differently"
        assert (each.field, each.value, each.detail) == ("label app", "web", why)


@pytest.mark.parametrize("app", ["", "a b", "web\n lua-load x", "${X}", "-f"])
def test_an_app_is_one_plain_word(app: str) -> None:
    context = translated(deployment(), target("a", "10.0.0.1", app))
    assert context.names["hosts"] == {}
    assert "Pod a label app" in refusals(context)


def test_quotes_backslashes_and_tabs_of_the_annotation_are_intact() -> None:
    config = 'acl a path_reg "x\\\\.y"\t# é\n'
    given = json.loads(
        json.dumps({"metadata": {"name": "lb", "namespace": "default", "annotations": {CONFIG: config}}})
    )
    service = Service(ObjectMeta("lb", "default", annotations=given["metadata"]["annotations"]))
    options = PresetOptions(own=own_options(HostsOptions(master="m", config=ObjectRef("Service", "default", "lb"))))
    (template,) = translated(service, options=options).templates
    assert (template.name, template.text) == ("service default/lb", config)
    assert (template.ref, template.field) == (ObjectRef("Service", "default", "lb"), f"annotation {CONFIG}")


def test_configuration_of_a_pod_and_of_nothing() -> None:
    options = PresetOptions(own=own_options(HostsOptions(master="m", config=ObjectRef("Pod", "default", "lb"))))
    carrier = pod("lb", "10.0.0.1", {"app": "haproxy"}, namespace="default", annotations={CONFIG: "x"})
    assert translated(carrier, options=options).templates[0].name == "pod default/lb"
    assert "does not exist" in refusals(translated(options=options))["Pod lb"]
    bare = pod("lb", "10.0.0.1", {"app": "haproxy"}, namespace="default")
    assert "no annotation" in refusals(translated(bare, options=options))[f"Pod lb annotation {CONFIG}"]


def test_names_for_dns_are_handed_on() -> None:
    context = translated(deployment(**{ROUTE53: "foo.bar.com, Baz.Bar.com,,a b,10.0.0.1,foo.bar.com"}))
    assert context.dns_names == ("baz.bar.com", "foo.bar.com")
    assert len(context.refused) == 2


@pytest.mark.parametrize(
    ("suffixes", "names"),
    [
        ((), ("a.bar.com", "bar.com", "foobar.com")),
        (("bar.com",), ("a.bar.com", "bar.com")),
        (("example.com", "a.bar.com"), ("a.bar.com",)),
        (("example.com",), ()),
    ],
)
def test_names_for_dns_are_those_below_the_suffixes(suffixes: tuple[str, ...], names: tuple[str, ...]) -> None:
    options = replace(OPTIONS, own=own_options(HostsOptions(config=BALANCER, dns_suffixes=suffixes)))
    context = translated(deployment(**{ROUTE53: "a.bar.com,bar.com,foobar.com"}), options=options)
    assert context.dns_names == names
    assert {each.reason for each in context.refused} <= {RefusalReason.NOT_ALLOWED}
    assert len(context.refused) == 3 - len(names)
    for each in context.refused:
        assert (each.ref, each.field) == (BALANCER, f"annotation {ROUTE53}")


def test_each_pod_that_is_a_target_claims_its_app() -> None:
    pods = (
        target("a", "10.0.0.1", "web"),
        target("down", None, "web"),
        target("bare", "10.0.0.2", ""),
        target("proxy", "10.0.0.3", "haproxy"),
        pod("stranger", "10.0.0.4", {"app": "web"}, namespace="default"),
    )
    found = snapshot(deployment(), *pods)
    context = registry.translate(found, ("hosts",), OPTIONS)
    claims = {
        each.ref.name: (each.ref.kind, each.names, [backend.name for backend in each.backends], each.because)
        for each in registry.claims_of(context)
    }
    assert claims == {
        "a": ("Pod", ("web",), ["web"], "label app web"),
        "down": ("Pod", ("web",), [], "label app web"),
        "bare": ("Pod", (), [], "label app (missing)"),
    }


def test_what_is_read_by_name() -> None:
    assert registry.named_of(("hosts",), OPTIONS) == {Named(Resource.DEPLOYMENTS, "default", "haproxy")}
    of_pod = PresetOptions(own=own_options(HostsOptions(config=ObjectRef("Pod", "a", "b"))))
    assert registry.named_of(("hosts",), of_pod) == frozenset()
    assert registry.resources_of(("hosts",), secrets=False) == {Resource.PODS}


def test_a_template_of_the_cluster_is_refused_by_default() -> None:
    context = registry.translate(snapshot(deployment()), ("hosts",), OPTIONS)
    assert context.templates == ()
    [refusal] = context.refused
    assert (refusal.ref, refusal.field) == (BALANCER, "annotation haproxy.unity3d.com/config")
    assert refusal.reason is RefusalReason.NOT_ALLOWED
    assert registry.SWITCH in refusal.detail
    [template] = translated(deployment()).templates
    assert template.ref == BALANCER


def test_two_presets_share_the_plain_names_and_keep_their_own() -> None:
    seen = snapshot(deployment(), target("a", "10.0.0.1", "web"))
    context = registry.translate(seen, ("configmap", "hosts", "domains"), OPTIONS)
    assert context.names["hosts"] == {"web": ["10.0.0.1"]}
    assert context.names["domains"] == {}
    assert set(context.names["configmap"]) == {"services", "certificates", "ssldir", "stats", "env"}


@pytest.mark.haproxy
@pytest.mark.parametrize("case", ["readme-http", "readme-zookeeper"])
@pytest.mark.parametrize("hosts", [0, 3])
def test_the_readmes_examples_unmodified(case: str, hosts: int, tmp_path: Path) -> None:
    pods = [target(f"p{n}", f"10.0.0.{n}", "web") for n in range(hosts)]
    context = translated(deployment((GOLDEN / f"{case}.j2").read_text()), *pods, target("six", "fd00::1", "db"))
    (template,) = context.templates
    text = cluster_templates.render(template.text, template.names, template.required, 1_000_000)
    assert isinstance(text, str), text
    judged = judge(template.name, text, Boundaries())
    assert (judged.text, judged.notes) == (text, ())
    assert text.count("\n  server web-") == hosts
    assert "server db-1 fd00::1:" in text
    (tmp_path / "haproxy.cfg").write_text(text + "\n")
    done = subprocess.run(
        [BINARY, "-c", "-f", str(tmp_path / "haproxy.cfg")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_is_claimed_and_served() -> None:
    seen = snapshot(
        deployment(),
        target("a", "10.0.0.1", "web"),
        target("down", None, "web"),
        target("bare", "10.0.0.2", ""),
        target("proxy", "10.0.0.3", "haproxy"),
        pod("stranger", "10.0.0.4", {"app": "web"}, namespace="default"),
    )
    assert claims(seen, "hosts", OPTIONS) == {
        "Pod default/a": (
            "label app web",
            ("web",),
            {"web": ("web", "web", ["10.0.0.1"], ["web"], False)},
            ["10.0.0.1:0 ready"],
        ),
        "Pod default/bare": ("label app (missing)", (), {}, ["10.0.0.2:0 ready"]),
        "Pod default/down": ("label app web", ("web",), {}, [":0 down"]),
    }
    assert counted(seen, "hosts", OPTIONS) == {"web": ["10.0.0.1"]}
