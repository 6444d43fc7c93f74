"""Preset configmap: the contract of kubernetes-haproxy, and its faults that are none any more."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pyconfd.model.context import Context, RefusalReason
from pyconfd.model.kubernetes import ConfigMap, ObjectRef, Pod, Secret
from pyconfd.model.rendering import FileKind
from pyconfd.model.snapshot import Named, Resource
from pyconfd.predecessors.allowed import Boundaries, judge
from pyconfd.predecessors.configmap import KNOWN_PASSWORD, ConfigmapOptions
from pyconfd.presets import registry
from pyconfd.presets.policy import ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.presets.registry import Memo
from pyconfd.render import cluster_templates
from tests.presets.asking import claims, counted
from tests.presets.pods import Record, certificate, config_map, pod, read, refusals, secret, snapshot
from tests.world.haproxy import BINARY

GOLDEN = Path(__file__).parents[1] / "golden" / "configmap"
OPTIONS = PresetOptions(own=own_options(ConfigmapOptions(ssldir="/f/certs", ignored_fields=frozenset({"description"}))))
SHOP = {"namespace": "demo", "selector": {"app": "shop"}, "hostnames": ["shop.example.com"], "ports": [8080]}
WEB = {"app": "shop"}


def services(**entries: Any) -> ConfigMap:
    return config_map("services", {n: e if isinstance(e, str) else json.dumps(e) for n, e in entries.items()})


def translated(*records: Record, options: PresetOptions = OPTIONS) -> Context:
    return read("configmap", config_map("config", {"template": "x"}), *records, options=options)


def entries(*records: Record, options: PresetOptions = OPTIONS) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in translated(*records, options=options).names["services"]}


class TestServices:
    def test_the_whole_entry_with_its_name_and_pods_sorted(self) -> None:
        extra = {**SHOP, "weight": 3, "nested": {"a": ["b", True, None]}}
        context = translated(
            services(zebra=SHOP | {"hostnames": ["z.example.com"]}, apple=extra), pod("p", "10.0.0.1", WEB)
        )
        assert [entry["name"] for entry in context.names["services"]] == ["apple", "zebra"]
        apple = context.names["services"][0]
        assert {key: apple[key] for key in extra} == extra
        assert apple["pods"]["p"]["status"]["podIP"] == "10.0.0.1"
        assert apple["pods"]["p"]["spec"]["nodeName"] == "node-1"
        assert context.names["configmap"]["services"] == context.names["services"]
        assert context.totals.claimed == 2

    def test_pods_by_every_label_in_the_namespace_only(self) -> None:
        entry = SHOP | {"selector": {"app": "shop", "tier": "web"}}
        found = entries(
            services(shop=entry),
            pod("b", "10.0.0.2", {"app": "shop", "tier": "web", "more": "x"}),
            pod("a", "10.0.0.1", {"app": "shop", "tier": "web"}),
            pod("no-tier", "10.0.0.3", {"app": "shop"}),
            pod("elsewhere", "10.0.0.4", {"app": "shop", "tier": "web"}, namespace="other"),
        )
        assert list(found["shop"]["pods"]) == ["a", "b"]

    def test_each_service_finds_its_pods_in_the_order_of_their_names(self) -> None:
        selectors = {
            "all": {},
            "web": {"app": "shop"},
            "both": {"tier": "front", "app": "shop"},
            "front": {"tier": "front"},
            "none": {"app": "db", "tier": "front"},
        }
        found = entries(
            services(**{name: {"namespace": "demo", "selector": each} for name, each in selectors.items()}),
            pod("b", "10.0.0.2", {"app": "shop", "tier": "front"}),
            pod("a", "10.0.0.1", WEB),
            pod("c", "10.0.0.3", {"app": "db"}),
            pod("no name", "10.0.0.4", WEB),
            pod("bare", "10.0.0.5"),
            pod("z", "10.0.0.6", WEB, namespace="other"),
        )
        assert {name: list(each["pods"]) for name, each in found.items()} == {
            "all": ["a", "b", "bare", "c"],
            "both": ["b"],
            "front": ["b"],
            "none": [],
            "web": ["a", "b"],
        }

    def test_a_pod_where_none_may_be_is_refused_where_a_service_selects_it(self) -> None:
        rules = replace(OPTIONS, claims=ClaimOptions(own_addresses=frozenset({"10.0.0.2"})))
        context = translated(
            services(shop=SHOP),
            pod("a", "10.0.0.1", WEB),
            pod("b", "10.0.0.2", WEB),
            pod("c", "10.0.0.2"),
            options=rules,
        )
        assert list(context.names["services"][0]["pods"]) == ["a"]
        assert [each for each in refusals(context) if each.startswith("Pod ")] == ["Pod b status.podIP"]

    def test_values_that_are_equal_and_printed_differently_are_told_apart(self) -> None:
        memo = Memo()
        for value in (1, True, 1.0):
            seen = snapshot(services(shop=SHOP | {"weight": value}))
            (entry,) = registry.translate(seen, ("configmap",), OPTIONS, memo).names["services"]
            assert repr(entry["weight"]) == repr(value)

    @pytest.mark.parametrize(
        ("unready", "why"),
        [
            (pod("x", None, WEB), "no address"),
            (pod("x", "10.0.0.1", WEB, containers=()), "no container"),
            (pod("x", "10.0.0.1", WEB, containers=(True, False)), "a container is not ready"),
            (pod("x", "10.0.0.1", WEB, deleted=True), "it is being deleted"),
            (pod("x", "10.0.0.1", WEB, phase="Failed"), "it has ended"),
            (pod("x", "10.0.0.1", WEB, gates={"lb": "False"}), "a readiness gate is closed"),
            (pod("x", "10.0.0.1", WEB, gates={"lb": ""}), "a readiness gate has not been seen"),
            (pod("x", "10.0.0.1\n lua-load", WEB), "no address either"),
        ],
    )
    def test_pods_that_are_not_ready_are_left_out(self, unready: Pod, why: str) -> None:
        found = entries(services(shop=SHOP), unready, pod("good", "10.0.0.2", WEB, gates={"lb": "True"}))
        assert list(found["shop"]["pods"]) == ["good"], why

    def test_all_ports_and_families_are_given(self) -> None:
        found = entries(services(shop=SHOP | {"ports": [80, "8080"]}), pod("six", "fd00::1", WEB))
        assert found["shop"]["ports"] == [80, 8080]
        assert found["shop"]["pods"]["six"]["status"]["podIP"] == "fd00::1"

    def test_one_bad_entry_never_stops_the_others(self) -> None:
        context = translated(
            services(
                shop=SHOP,
                broken="{",
                number="5",
                nothing="{}",
                selectorless='{"namespace": "demo"}',
                odd='{"namespace": "demo", "selector": {"app": 5}}',
                deep="[" * 5000,
            )
        )
        assert [entry["name"] for entry in context.names["services"]] == ["shop"]
        assert len(context.refused) == 6
        assert "not JSON" in refusals(context)["ConfigMap services broken"]
        assert "namespace" in refusals(context)["ConfigMap services nothing namespace"]

    @pytest.mark.parametrize(
        "field",
        [
            {"hostnames": ["a b"]},
            {"hostnames": ["a } || { always_true"]},
            {"hostnames": ["${X}"]},
            {"hostnames": ["if"]},
            {"hostnames": ["-f"]},
            {"hostnames": ["^"]},
            {"hostnames": ["^-f"]},
            {"hostnames": ["^a b"]},
            {"hostnames": ["^(a"]},
            {"hostnames": ["^a#b"]},
            {"hostnames": ["^%[env(X)]"]},
            {"hostnames": ["^a\\"]},
            {"hostnames": ["^or"]},
            {"hostnames": [5]},
            {"hostnames": {"a": "b"}},
            {"path": "no-slash"},
            {"path": "/a b"},
            {"path": "/a\n lua-load x"},
            {"path": "/a'"},
            {"path": "/("},
            {"ports": [0]},
            {"ports": ["http"]},
            {"ports": [True]},
            {"mode": "cli"},
            {"ssl": "yes please"},
            {"extra": "two words"},
            {"extra": {"deep": ["x", "${X}"]}},
            {"extra": {"a b": 1}},
            {"extra": "-f"},
            {"extra": "unless"},
            {"extra": ""},
            {"a b": 1},
        ],
    )
    def test_no_value_adds_a_word_a_condition_or_a_line(self, field: dict[str, Any]) -> None:
        context = translated(services(shop=SHOP | field, other=SHOP | {"hostnames": ["other.example.com"]}))
        assert [entry["name"] for entry in context.names["services"]] == ["other"]
        assert any(refusal.field.startswith("shop") for refusal in context.refused)
        assert all("\n" not in str(refusal) for refusal in context.refused)

    def test_one_bad_host_name_leaves_the_good_ones(self) -> None:
        context = translated(
            services(shop=SHOP | {"hostnames": ["a b", "Shop.Example.COM.", r"^[a-z]{2,3}\.example\.com$"]})
        )
        assert context.names["services"][0]["hostnames"] == ["shop.example.com", r"^[a-z]{2,3}\.example\.com$"]
        assert "left out" in refusals(context)["ConfigMap services shop hostnames"]

    def test_text_for_people_is_left_out_by_name(self) -> None:
        found = entries(services(shop=SHOP | {"description": "My shop!", "nested": {"description": "a b", "x": 1}}))
        assert "description" not in found["shop"]
        assert found["shop"]["nested"] == {"x": 1}

    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ({"hostnames": "shop.example.com"}, {"hostnames": ["shop.example.com"]}),
            ({"hostnames": ["a.example.com", "A.example.com"]}, {"hostnames": ["a.example.com"]}),
            ({"hostnames": []}, {"hostnames": []}),
            ({"path": "/shop"}, {"path": "/shop"}),
            ({"path": ["/shop", "^/x[0-9]"]}, {"path": ["/shop", "^/x[0-9]"]}),
            ({"path": ""}, {}),
            ({"path": None}, {}),
            ({"ports": 80}, {"ports": [80]}),
            ({"ports": [1, "65535"]}, {"ports": [1, 65535]}),
            ({"ssl": None}, {}),
            ({"ssl": False}, {"ssl": False}),
            ({"ssl": "True"}, {"ssl": True}),
            ({"ssl": "FALSE"}, {"ssl": False}),
            ({"ssl": "passthrough"}, {"ssl": "passthrough"}),
            ({"mode": "HTTP"}, {"mode": "http"}),
            ({"mode": "tcp"}, {"mode": "tcp"}),
            # They are those of the entry itself.
            ({"name": "other", "pods": "none"}, {}),
            ({"more": {"b": 1, "a": [None, 1.5, "x"]}}, {"more": {"a": [None, 1.5, "x"], "b": 1}}),
        ],
    )
    def test_fields_as_templates_get_them(self, given: dict[str, Any], kept: dict[str, Any]) -> None:
        bare = {"namespace": "demo", "selector": {"tier": "web", "app": "shop"}}
        (entry,) = translated(services(shop=bare | given)).names["services"]
        always = {"namespace": "demo", "selector": {"app": "shop", "tier": "web"}, "name": "shop", "pods": {}}
        assert {key: each for key, each in entry.items() if key not in always} == kept
        assert {key: entry[key] for key in always} == always
        assert list(entry["selector"]) == ["app", "tier"]

    def test_how_deep_a_field_may_be(self) -> None:
        def nested(levels: int) -> Any:
            return {"a": nested(levels - 1)} if levels else 1

        fits, too_deep = SHOP | {"extra": nested(24)}, SHOP | {"hostnames": [], "extra": nested(25)}
        of_lists = SHOP | {"hostnames": [], "extra": [[nested(23)]]}
        context = translated(services(fits=fits, deep=too_deep, lists=of_lists))
        assert [entry["name"] for entry in context.names["services"]] == ["fits"]
        assert [(each.field, each.value) for each in context.refused] == [
            ("deep extra" + 25 * ".a", ""),
            ("lists extra" + 23 * ".a", ""),
        ]

    @pytest.mark.parametrize(
        ("name", "entry", "field", "value"),
        [
            ("-x", SHOP, "", "-x"),
            ("unless", SHOP, "", "unless"),
            ("shop", "[1]", "", "[1]"),
            ("shop", "{", "", "{"),
            ("shop", {"selector": WEB}, "namespace", ""),
            ("shop", SHOP | {"namespace": "Demo"}, "namespace", "Demo"),
            ("shop", SHOP | {"namespace": "or"}, "namespace", "or"),
            ("shop", SHOP | {"namespace": 5}, "namespace", ""),
            ("shop", {"namespace": "demo"}, "selector", ""),
            ("shop", SHOP | {"selector": ["app"]}, "selector", ""),
            ("shop", SHOP | {"selector": {"app": 5}}, "selector", ""),
            ("shop", SHOP | {"selector": {"-app": "x"}}, "selector", ""),
            ("shop", SHOP | {"selector": {"app": "x y"}}, "selector", ""),
            ("shop", SHOP | {"selector": {"if": "x"}}, "selector", ""),
            ("shop", SHOP | {"selector": {"app": "if"}}, "selector", ""),
            ("shop", SHOP | {"a b": 1}, "a b", "a b"),
            ("shop", SHOP | {"hostnames": {"a": "b"}}, "hostnames", ""),
            ("shop", SHOP | {"path": "x"}, "path", "x"),
            ("shop", SHOP | {"path": 5}, "path", ""),
            ("shop", SHOP | {"path": ["/a", "/("]}, "path", "/("),
            ("shop", SHOP | {"ports": [80, 0]}, "ports", "0"),
            ("shop", SHOP | {"ports": [True]}, "ports", "True"),
            ("shop", SHOP | {"ports": [1.5]}, "ports", "1.5"),
            ("shop", SHOP | {"ssl": "yes please"}, "ssl", "yes please"),
            ("shop", SHOP | {"ssl": 1}, "ssl", ""),
            ("shop", SHOP | {"mode": "cli"}, "mode", "cli"),
            ("shop", SHOP | {"mode": 1}, "mode", ""),
            ("shop", SHOP | {"extra": {"a": ["x", "b c"]}}, "extra.a", "b c"),
            ("shop", SHOP | {"extra": {"a b": 1}}, "extra.a b", "a b"),
        ],
    )
    def test_where_an_entry_is_wrong(self, name: str, entry: Any, field: str, value: str) -> None:
        (refusal,) = translated(services(**{name: entry})).refused
        assert (refusal.ref.kind, refusal.ref.namespace, refusal.ref.name) == ("ConfigMap", "lb", "services")
        assert refusal.reason is RefusalReason.INVALID_VALUE
        assert (refusal.field, refusal.value) == (f"{name} {field}".strip(), value)

    def test_why_a_name_is_left_out(self) -> None:
        rules = ClaimOptions((Rule(("demo",), ("example.com",)),))
        hosts = {"hostnames": ["shop.example.com", "b.example.com", "shop.other.org"]}
        context = translated(services(a=SHOP, b=SHOP | hosts), options=replace(OPTIONS, claims=rules))
        assert {(each.field, each.value, each.reason) for each in context.refused} == {
            ("b hostnames", "shop.example.com", RefusalReason.NAME_TAKEN),
            ("b hostnames", "shop.other.org", RefusalReason.NOT_ALLOWED),
        }

    def test_each_part_that_changes_is_read_again(self) -> None:
        memo, (key, chain) = Memo(), certificate("shop")
        chains, keys = config_map("certificates", {"shop": chain}), secret("keys", {"shop": key})
        elsewhere = PresetOptions(own=own_options(ConfigmapOptions(ssldir="/elsewhere")))
        first = registry.translate(snapshot(services(shop=SHOP)), ("configmap",), OPTIONS, memo)
        assert (len(first.names["services"]), first.names["certificates"]) == (1, [])
        second = registry.translate(snapshot(services(shop=SHOP), chains, keys), ("configmap",), OPTIONS, memo)
        assert (len(second.names["services"]), second.names["certificates"]) == (1, ["shop"])
        third = registry.translate(snapshot(chains, keys), ("configmap",), OPTIONS, memo)
        assert (third.names["services"], third.names["certificates"]) == ([], ["shop"])
        fourth = registry.translate(snapshot(chains, keys), ("configmap",), elsewhere, memo)
        assert (third.names["ssldir"], fourth.names["ssldir"]) == ("/f/certs", "/elsewhere")

    def test_claims_are_keys_with_what_templates_were_given(self) -> None:
        seen = snapshot(
            services(shop=SHOP, wrong="{", **{"": "{"}),
            pod("a", "10.0.0.1", WEB),
            pod("b", None, WEB),
            pod("c", "10.0.0.3"),
            pod("d", "10.0.0.4", WEB, namespace="other"),
        )
        shop = ("shop", "shop", ["10.0.0.1"], ["shop.example.com"], False)
        assert claims(seen, "configmap", OPTIONS) == {
            "ConfigMap lb/services": ("key (missing)", (), {}, []),
            "ConfigMap lb/services shop": (
                "key shop", ("shop.example.com",), {"shop": shop}, ["10.0.0.1:0 ready", ":0 down"]
            ),
            "ConfigMap lb/services wrong": ("key wrong", (), {}, []),
        }  # fmt: skip
        assert counted(seen, "configmap", OPTIONS) == {"shop": ["10.0.0.1"]}

    def test_two_services_of_one_name_and_path_have_a_winner(self) -> None:
        hosts = {"hostnames": ["shop.example.com", "b.example.com"]}
        context = translated(services(a=SHOP, b=SHOP | hosts, c=SHOP | {"path": "/c"}, d=SHOP | {"ssl": True}))
        found = {entry["name"]: entry["hostnames"] for entry in context.names["services"]}
        assert found == {
            "a": ["shop.example.com"],
            "b": ["b.example.com"],
            "c": ["shop.example.com"],
            "d": ["shop.example.com"],
        }
        assert "service a has this name" in refusals(context)["ConfigMap services b hostnames"]

    def test_names_that_differ_in_case_only_are_one_backend(self) -> None:
        context = translated(services(Shop=SHOP, shop=SHOP | {"hostnames": ["b.example.com"]}))
        assert [entry["name"] for entry in context.names["services"]] == ["Shop"]
        assert "only in its case" in refusals(context)["ConfigMap services shop"]

    def test_pods_hold_plain_words_only_and_their_passwords_stay_away(self) -> None:
        labels = WEB | {"app.kubernetes.io/name": "shop"}
        env = [{"name": "PASSWORD", "value": "two words"}, {"name": "MODE", "value": "prod"}]
        found = entries(
            services(shop=SHOP),
            pod("p", "10.0.0.1", labels, annotations={"note": "a } || {", "ok": "1"}, containers=(True,), extra=env),
        )
        given = found["shop"]["pods"]["p"]
        assert given["metadata"]["labels"] == labels
        assert given["metadata"]["annotations"] == {"ok": "1"}
        assert given["spec"]["extra"] == [{"name": "PASSWORD"}, {"name": "MODE", "value": "prod"}]
        assert "managedFields" not in given["metadata"]

    def test_the_order_of_the_api_does_not_count(self) -> None:
        pods = [pod(f"p{n}", f"10.0.0.{n}", WEB) for n in range(5)]
        maps = services(b=SHOP, a=SHOP | {"hostnames": ["a.example.com"]})
        forward, backward = translated(maps, *pods), translated(*reversed(pods), maps)
        assert json.dumps(forward.names["services"]) == json.dumps(backward.names["services"])


class TestCertificates:
    def pairs(self, **names: tuple[str, str]) -> tuple[Record, Record]:
        chains = config_map("certificates", {name: pair[1] for name, pair in names.items() if pair[1]})
        return chains, secret("keys", {name: pair[0] for name, pair in names.items() if pair[0]})

    def test_complete_pairs_become_files_of_key_and_certificate(self) -> None:
        key, chain = certificate("shop")
        context = translated(*self.pairs(shop=(key.rstrip(), chain.rstrip() + "\n\n\n")))
        assert context.names["certificates"] == ["shop"]
        (file,) = context.files
        assert (file.kind, file.path) == (FileKind.CERTIFICATE, "/f/certs/shop.pem")
        assert file.content == f"{key.strip()}\n{chain.strip()}\n"
        assert "PRIVATE" not in repr(context)

    def test_a_broken_pair_is_refused_by_name_and_the_others_stay(self) -> None:
        good, other = certificate("good"), certificate("other")
        context = translated(
            *self.pairs(
                good=good,
                mixed=(good[0], other[1]),
                garbage=("x", good[1]),
                keyless=("", good[1]),
                certless=(good[0], ""),
                **{".hidden": good},
            )
        )
        assert context.names["certificates"] == ["good"]
        told = refusals(context)
        assert "does not belong" in told["Secret keys mixed"]
        assert "holds no PRIVATE KEY" in told["Secret keys garbage"]
        assert "has no keyless" in told["ConfigMap certificates keyless"]
        assert "has no certless" in told["Secret keys certless"]
        assert "not a name for a file" in told["ConfigMap certificates .hidden"]
        assert "PRIVATE KEY-----" not in str(context.refused)

    def test_deletions_count(self) -> None:
        pair = self.pairs(shop=certificate("shop"))
        assert translated(*pair).files
        assert not translated(pair[0]).files
        assert not translated(pair[1]).files
        gone = translated()
        assert gone.names["services"] == []
        assert "there is no ConfigMap services" in refusals(gone)["ConfigMap services"]

    def test_each_refusal_names_the_object_of_the_cluster(self) -> None:
        (certificates, keys), asked = self.pairs(shop=certificate("shop")), replace(OPTIONS, cluster_templates=True)
        assert isinstance(certificates, ConfigMap)
        assert isinstance(keys, Secret)
        assert keys.data is not None
        broken = msgspec.structs.replace(keys, data={**keys.data, "alone": keys.data["shop"]})
        lonely = msgspec.structs.replace(certificates, data={**(certificates.data or {}), "lonely": "x", ".x": "y"})
        none = replace(snapshot(), cluster="east")
        found = replace(snapshot(lonely, broken, services(shop="{")), cluster="east")

        def told(seen: Any) -> list[tuple[ObjectRef, str, str, RefusalReason]]:
            context = registry.translate(seen, ("configmap",), asked)
            return [(each.ref, each.field, each.value, each.reason) for each in context.refused]

        config, services_ = (
            ObjectRef("ConfigMap", "lb", "config", "east"),
            ObjectRef("ConfigMap", "lb", "services", "east"),
        )
        incomplete, invalid = RefusalReason.INCOMPLETE, RefusalReason.INVALID_VALUE
        assert told(none) == [(config, "template", "", incomplete), (services_, "", "", incomplete)]
        of_certificates = ObjectRef("ConfigMap", "lb", certificates.metadata.name, "east")
        assert told(found) == [
            (of_certificates, ".x", ".x", invalid),
            (of_certificates, "lonely", "", incomplete),
            (config, "template", "", incomplete),
            (services_, "shop", "{", invalid),
            (ObjectRef("Secret", "lb", keys.metadata.name, "east"), "alone", "", incomplete),
        ]

    def test_the_template_and_the_claims_name_the_objects_of_the_cluster(self) -> None:
        seen = replace(snapshot(config_map("config", {"template": "x"}), services(shop=SHOP)), cluster="east")
        context = registry.translate(seen, ("configmap",), replace(OPTIONS, cluster_templates=True))
        (template,) = context.templates
        assert template.ref == ObjectRef("ConfigMap", "lb", "config", "east")
        assert (template.name, template.text, template.field) == ("configmap lb/config", "x", "template")
        (claim,) = registry.claims_of(context)
        assert (claim.ref, claim.item) == (ObjectRef("ConfigMap", "lb", "services", "east"), "shop")


class TestOtherNames:
    def test_there_is_no_password_that_everybody_knows(self) -> None:
        for password, told in (("", "set STATISTICS_PASSWORD"), (KNOWN_PASSWORD, "everybody knows"), ("a b", "blank")):
            own = replace(OPTIONS.of(ConfigmapOptions), stats_password=password)
            context = translated(options=PresetOptions(own=own_options(own)))
            assert context.names["stats"] == {"username": "stats"}
            assert told in context.templates[0].required["stats.password"]
        own = replace(OPTIONS.of(ConfigmapOptions), stats_password="s3cret!")
        context = translated(options=PresetOptions(own=own_options(own)))
        assert context.names["stats"] == {"username": "stats", "password": "s3cret!"}
        assert "stats.password" not in context.templates[0].required
        assert (context.templates[0].ref.name, context.templates[0].field) == ("config", "template")
        assert "s3cret" not in repr(own)

    def test_env_holds_what_the_operator_listed(self) -> None:
        own = replace(OPTIONS.of(ConfigmapOptions), env={"VARNISH_SECRET": "x"})
        assert translated(options=PresetOptions(own=own_options(own))).names["env"] == {"VARNISH_SECRET": "x"}
        assert translated().names["env"] == {}
        assert "configmap.env" in translated().templates[0].required["env.*"]

    def test_without_a_template_it_is_said(self) -> None:
        context = read("configmap", services(), options=OPTIONS)
        assert context.templates == ()
        assert "nothing is served" in refusals(context)["ConfigMap config template"]

    def test_what_is_read_by_name(self) -> None:
        own = ConfigmapOptions(namespace="edge", keys="tls")
        assert registry.named_of(("configmap",), PresetOptions(own=own_options(own))) == {
            Named(Resource.CONFIGMAPS, "edge", "services"),
            Named(Resource.CONFIGMAPS, "edge", "certificates"),
            Named(Resource.CONFIGMAPS, "edge", "config"),
            Named(Resource.SECRETS, "edge", "tls"),
        }
        assert registry.resources_of(("configmap",), secrets=False) == {Resource.PODS}


@pytest.mark.haproxy
@pytest.mark.parametrize("with_certificates", [True, False])
def test_the_predecessors_way_of_writing_templates_serves(tmp_path: Path, with_certificates: bool) -> None:
    pair = certificate("shop.example.com")
    own = ConfigmapOptions(ssldir=f"{tmp_path}/certs", stats_password="s3cret", env={"VARNISH_SECRET": "x"})
    context = read(
        "configmap",
        config_map("config", {"template": (GOLDEN / "template.j2").read_text()}),
        services(
            shop=SHOP | {"ssl": True, "path": "^/api(/|$)"},
            regex=SHOP | {"hostnames": [r"^[a-z]+\.example\.org$"], "ports": [80, 81]},
            empty=SHOP | {"hostnames": ["empty.example.com"], "selector": {"app": "none"}},
        ),
        *(
            (config_map("certificates", {"shop": pair[1]}), secret("keys", {"shop": pair[0]}))
            if with_certificates
            else ()
        ),
        pod("one", "10.0.0.1", WEB),
        pod("six", "fd00::1", WEB),
        options=PresetOptions(own=own_options(own)),
    )
    (template,) = context.templates
    text = cluster_templates.render(template.text, template.names, template.required, 1_000_000)
    assert isinstance(text, str), text
    judged = judge(template.name, text, Boundaries(certificates=(own.ssldir,)))
    assert len(judged.notes) == (5 if with_certificates else 4), "user, group, daemon, stats socket; reqadd"
    (tmp_path / "certs").mkdir()
    for file in context.files:
        Path(file.path).write_text(file.content)
    (tmp_path / "haproxy.cfg").write_text(judged.text + "\n")
    done = subprocess.run(
        [BINARY, "-c", "-f", str(tmp_path / "haproxy.cfg")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "server REGEX_1_2 10.0.0.1:81 check" in judged.text
    assert "server SHOP_2_1 fd00::1:8080 check" in judged.text
    assert ("crt " in judged.text) is with_certificates
