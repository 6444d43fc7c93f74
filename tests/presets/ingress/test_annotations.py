"""Annotations for other controllers: what restricts closes the path, the rest is named, nothing is passed over."""

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

import pyconfd
from pyconfd.model.context import left_out, notes_among
from pyconfd.presets.annotations import OWN_ANNOTATIONS, AnnotationEffect, read_foreign
from pyconfd.presets.policies.words import WORDS
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.presets.ingress.objects import (
    ADDRESSES,
    Obj,
    ingress,
    ingress_class,
    path,
    paths_of,
    read,
    refusals,
    service,
)

CLASS = ingress_class()
WEB = service("web", "10.0.0.1")
RULES = {"shop.example.com": [path("/")]}
TLS = [{"hosts": ["shop.example.com"], "secretName": "shop-tls"}]
NGINX = "nginx.ingress.kubernetes.io/"


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (f"{NGINX}whitelist-source-range", "10.0.0.0/8"),
        (f"{NGINX}allowlist-source-range", "10.0.0.0/8"),
        (f"{NGINX}denylist-source-range", "10.0.0.0/8"),
        (f"{NGINX}auth-url", "https://auth.example.com/verify"),
        (f"{NGINX}auth-type", "basic"),
        (f"{NGINX}auth-secret", "users"),
        (f"{NGINX}auth-tls-secret", "demo/ca"),
        (f"{NGINX}auth-tls-verify-client", "on"),
        (f"{NGINX}limit-rps", "5"),
        (f"{NGINX}limit-connections", "2"),
        (f"{NGINX}enable-modsecurity", "true"),
        (f"{NGINX}server-snippet", "deny all;"),
        (f"{NGINX}force-ssl-redirect", "true"),
        ("haproxy.org/allow-list", "10.0.0.0/8"),
        ("haproxy.org/deny-list", "10.0.0.0/8"),
        ("haproxy.org/auth-type", "basic-auth"),
        ("haproxy.org/rate-limit-requests", "10"),
        ("haproxy.org/ssl-redirect", "true"),
        ("haproxy.com/allow-list", "10.0.0.0/8"),
        ("haproxy-ingress.github.io/allowlist-source-range", "10.0.0.0/8"),
        ("haproxy-ingress.github.io/auth-url", "http://auth"),
        ("haproxy-ingress.github.io/oauth", "oauth2_proxy"),
        ("haproxy-ingress.github.io/waf", "modsecurity"),
        ("haproxy-ingress.github.io/limit-rps", "5"),
        ("traefik.ingress.kubernetes.io/router.middlewares", "demo-auth@kubernetescrd"),
        ("traefik.ingress.kubernetes.io/router.tls.options", "demo-mtls@kubernetescrd"),
        ("traefik.ingress.kubernetes.io/router.entrypoints", "internal"),
        ("traefik.ingress.kubernetes.io/router.entrypoints", "websecure"),
        ("traefik.ingress.kubernetes.io/router.tls", "true"),
        ("konghq.com/plugins", "key-auth"),
        ("konghq.com/methods", "GET"),
        ("konghq.com/headers.x-team", "blue"),
        ("konghq.com/protocols", "https"),
        ("ingress.kubernetes.io/auth-type", "basic"),
        ("ingress.kubernetes.io/whitelist-source-range", "10.0.0.0/8"),
        ("ingress.kubernetes.io/force-ssl-redirect", "true"),
        ("ingress.kubernetes.io/proxy-body-size", "1m"),
        ("kubernetes.io/ingress.allow-http", "false"),
        ("nginx.org/basic-auth-secret", "users"),
        ("nginx.org/policies", "allow-office"),
        ("nginx.org/limit-req-rate", "5r/s"),
        ("nginx.org/server-snippets", "deny all;"),
        ("nginx.org/redirect-to-https", "true"),
        ("nginx.com/jwt-key", "keys"),
        ("appprotect.f5.com/app-protect-enable", "True"),
        ("appprotectdos.f5.com/app-protect-dos-resource", "dos"),
        ("alb.ingress.kubernetes.io/inbound-cidrs", "10.0.0.0/8"),
        ("alb.ingress.kubernetes.io/auth-type", "oidc"),
        ("alb.ingress.kubernetes.io/wafv2-acl-arn", "arn:aws:wafv2:x"),
        ("alb.ingress.kubernetes.io/conditions.web", '[{"field":"source-ip"}]'),
        ("alb.ingress.kubernetes.io/ssl-redirect", "443"),
    ],
)
def test_a_path_behind_a_restriction_of_another_controller_is_not_served(annotation: str, value: str) -> None:
    context = read(CLASS, *WEB, ingress(rules=RULES, annotations={annotation: value}))
    assert refusals(context) == [("demo/web", f"annotation {annotation}", "unsupported_annotation")]
    assert paths_of(context) == {}
    assert "ingress.ignored_annotations" in context.refused[0].detail


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (f"{NGINX}proxy-body-size", "8m"),
        (f"{NGINX}rewrite-target", "/"),
        (f"{NGINX}whitelist-source-range", "0.0.0.0/0"),
        (f"{NGINX}limit-rps", "0"),
        (f"{NGINX}enable-modsecurity", "False"),
        (f"{NGINX}auth-tls-verify-client", "off"),
        (f"{NGINX}force-ssl-redirect", "false"),
        (f"{NGINX}ssl-redirect", "false"),
        ("traefik.ingress.kubernetes.io/router.entrypoints", "web, websecure"),
        ("traefik.ingress.kubernetes.io/router.tls.domains.0.main", "shop.example.com"),
        ("konghq.com/protocols", "http,https"),
        ("ingress.kubernetes.io/backends", '{"k8s-be": "HEALTHY"}'),
        ("alb.ingress.kubernetes.io/scheme", "internal"),
        ("alb.ingress.kubernetes.io/inbound-cidrs", "0.0.0.0/0, ::/0"),
        ("alb.ingress.kubernetes.io/auth-type", "none"),
        ("nginx.org/mergeable-ingress-type", "minion"),
        ("nginx.com/health-checks", "true"),
    ],
)
def test_what_restricts_nobody_is_named_once_and_its_path_is_served(annotation: str, value: str) -> None:
    context = read(CLASS, *WEB, ingress(rules=RULES, annotations={annotation: value}))
    assert refusals(context) == [("demo/web", "metadata.annotations", "ignored_annotation")]
    assert left_out(context.refused) == ()
    assert paths_of(context) == {"shop.example.com/": "ing_demo_web_80"}


def test_an_unknown_annotation_of_a_known_controller_counts_as_one_that_restricts() -> None:
    context = read(CLASS, *WEB, ingress(rules=RULES, annotations={f"{NGINX}whitelist-source-rang": "10.0.0.0/8"}))
    assert refusals(context) == [("demo/web", f"annotation {NGINX}whitelist-source-rang", "unsupported_annotation")]
    assert paths_of(context) == {}


@pytest.mark.parametrize("accepted", [f"{NGINX}auth-url", f"{NGINX}*"])
def test_what_the_operator_lists_is_served_and_still_named(accepted: str) -> None:
    options = PresetOptions(addresses=ADDRESSES, ignored_annotations=(accepted,))
    made = ingress(rules=RULES, annotations={f"{NGINX}auth-url": "https://auth", "haproxy.org/check": "true"})
    context = read(CLASS, *WEB, made, options=options)
    assert refusals(context) == [("demo/web", "metadata.annotations", "ignored_annotation")]
    assert f"{NGINX}auth-url" in context.refused[0].detail
    assert paths_of(context) == {"shop.example.com/": "ing_demo_web_80"}


def test_the_same_object_is_read_again_when_the_operator_lists_an_annotation() -> None:
    objects = (CLASS, *WEB, ingress(rules=RULES, annotations={f"{NGINX}auth-url": "https://auth"}))
    memo = Memo()
    options = PresetOptions(addresses=ADDRESSES)
    assert paths_of(read(*objects, options=options, memo=memo)) == {}
    again = read(*objects, options=replace(options, ignored_annotations=(f"{NGINX}*",)), memo=memo)
    assert paths_of(again) == {"shop.example.com/": "ing_demo_web_80"}


def test_https_alone_is_served_for_hosts_with_a_certificate_and_not_for_others() -> None:
    rules = {"shop.example.com": [path("/")], "open.example.com": [path("/")]}
    made = ingress(rules=rules, tls=TLS, annotations={f"{NGINX}force-ssl-redirect": "true"})
    context = read(CLASS, *WEB, made)
    assert paths_of(context) == {"shop.example.com/": "ing_demo_web_80"}
    assert [(each.field, each.value) for each in left_out(context.refused) if "annotation" in each.field] == [
        (f"annotation {NGINX}force-ssl-redirect", "open.example.com")
    ]


def test_https_alone_is_refused_where_the_redirect_is_switched_off() -> None:
    annotations = {f"{NGINX}force-ssl-redirect": "true", "pyconfd.io/ssl-redirect": "false"}
    assert paths_of(read(CLASS, *WEB, ingress(rules=RULES, tls=TLS, annotations=annotations))) == {}


def test_https_alone_is_kept_when_an_older_ingress_of_the_host_switches_the_redirect_off() -> None:
    old = ingress("old", RULES, tls=TLS, annotations={"pyconfd.io/ssl-redirect": "false"}, day=1)
    rules = {"shop.example.com": [path("/admin")]}
    young = ingress("young", rules, tls=TLS, annotations={f"{NGINX}force-ssl-redirect": "true"}, day=2)
    lines = read(CLASS, *WEB, old, young).names["ingress"]["certificates"]
    assert lines["demo/shop-tls"].redirects == ("shop.example.com",)


def test_https_alone_is_refused_for_every_host_without_a_name() -> None:
    tls = [{"secretName": "shop-tls"}]
    made = ingress(rules={"": [path("/")], **RULES}, tls=tls, annotations={f"{NGINX}force-ssl-redirect": "true"})
    assert paths_of(read(CLASS, *WEB, made)) == {"shop.example.com/": "ing_demo_web_80"}


def test_a_redirect_of_hosts_with_tls_asks_for_nothing_where_there_is_no_tls() -> None:
    context = read(CLASS, *WEB, ingress(rules=RULES, annotations={f"{NGINX}ssl-redirect": "true"}))
    assert (context.refused, paths_of(context)) == ((), {"shop.example.com/": "ing_demo_web_80"})


def test_an_entry_for_the_default_certificate_does_not_keep_plain_http_out() -> None:
    tls = [{"hosts": ["shop.example.com"]}]
    made = ingress(rules=RULES, tls=tls, annotations={f"{NGINX}ssl-redirect": "true"})
    assert paths_of(read(CLASS, *WEB, made)) == {}


def test_a_service_whose_annotations_restrict_answers_503_and_others_are_served() -> None:
    closed = service("closed", "10.0.0.2", annotations={"konghq.com/plugins": "key-auth"})
    made = ingress(rules={"shop.example.com": [path("/"), path("/admin", "closed:80")]})
    context = read(CLASS, *WEB, *closed, made)
    backends = context.names["ingress"]["backends"]
    assert {name: len(each.servers) for name, each in backends.items()} == {
        "ing_demo_closed_80": 0,
        "ing_demo_web_80": 1,
    }
    assert [each.reason.value for each in left_out(context.refused)] == ["unsupported_annotation"]
    assert "konghq.com/plugins" in context.refused[0].detail


@pytest.mark.parametrize(
    ("made", "owner"),
    [
        (ingress(rules=RULES, annotations={"pyconfd.io/hstss": "1"}), "Ingress demo/web"),
        (service("other", annotations={"pyconfd.io/domian": "a.example.com"})[0], "Service demo/other"),
    ],
)
def test_a_misspelled_annotation_of_pyconfd_is_named_with_what_was_meant(made: Obj, owner: str) -> None:
    notes = notes_among(read(CLASS, *WEB, made).refused)
    assert [str(each.ref) for each in notes] == [owner]
    assert "did you mean pyconfd.io/" in notes[0].detail


def test_annotations_of_tools_that_are_no_controllers_are_nobodys_business() -> None:
    annotations = {
        "cert-manager.io/cluster-issuer": "le",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "meta.helm.sh/release-name": "shop",
        "external-dns.alpha.kubernetes.io/hostname": "shop.example.com",
        "kubernetes.io/ingress.class": "pyconfd",
        "owner": "me",
    }
    assert read(CLASS, *WEB, ingress(rules=RULES, annotations=annotations)).refused == ()


@pytest.mark.parametrize("prefix", ["nginx.ingress.kubernetes.io", "haproxy.org", "example.com"])
@pytest.mark.parametrize("accepted", [(), ("*/*",)])
def test_a_canary_of_the_same_second_never_owns_the_host(prefix: str, accepted: tuple[str, ...]) -> None:
    canary = ingress(
        "a-canary", {"shop.example.com": [path("/", "canary:80")]}, annotations={f"{prefix}/canary": "true"}
    )
    options = PresetOptions(addresses=ADDRESSES, ignored_annotations=accepted)
    context = read(CLASS, *WEB, *service("canary", "10.0.0.9"), canary, ingress("main", RULES), options=options)
    assert paths_of(context) == {"shop.example.com/": "ing_demo_web_80"}
    assert ("demo/a-canary", f"annotation {prefix}/canary", "unsupported_annotation") in refusals(context)
    assert "pyconfd.io/canary" in left_out(context.refused)[0].detail
    alone = read(CLASS, *service("canary", "10.0.0.9"), canary, options=options)
    assert alone.names["ingress"]["virtual_hosts"] == {}


def test_an_ingress_that_is_no_canary_is_served() -> None:
    made = ingress(rules=RULES, annotations={f"{NGINX}canary": "false", f"{NGINX}canary-weight": "10"})
    assert paths_of(read(CLASS, *WEB, made)) == {"shop.example.com/": "ing_demo_web_80"}


def test_each_line_of_the_table_has_a_source_and_a_name_of_its_own() -> None:
    lines = (files("pyconfd.presets") / "annotations.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    assert all(len(row) == 3 and row[2].startswith("https://") for row in rows)
    assert len({row[0] for row in rows}) == len(rows) > 500
    assert {effect.split(" if ")[0] for row in rows for effect in row[1].split("; ")} == {
        each.value for each in AnnotationEffect
    }


def test_every_own_annotation_that_the_code_reads_is_known() -> None:
    package = Path(pyconfd.__file__).parent
    text = "".join(each.read_text() for each in (package / "presets").rglob("*.py"))
    read_there = set(re.findall(r'"pyconfd\.io/([a-z-]+)"', text)) - {"ingress", "gateway", "lb"}
    assert read_there <= set().union(*OWN_ANNOTATIONS.values())


def test_every_own_annotation_is_on_a_page() -> None:
    pages = "".join(each.read_text() for each in (Path(pyconfd.__file__).parents[1] / "docs").rglob("*.md"))
    named = set(re.findall(r"pyconfd\.io/([a-z-]+)", pages))
    # tests/docs/test_policies.py is about the words of policies.
    assert set().union(*OWN_ANNOTATIONS.values()) - set(WORDS) <= named


def test_a_note_is_short_however_many_annotations_there_are() -> None:
    foreign = read_foreign({f"{NGINX}proxy-{number}": "" for number in range(100)}, "Ingress", (f"{NGINX}*",))
    assert len(foreign.note("Ingress")) < 400
    assert "95 more" in foreign.note("Ingress")


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (f"{NGINX}auth-url", "it restricts access, which is not implemented"),
        (f"{NGINX}server-snippet", "it is a snippet, of which nothing is executed, and may restrict access"),
        (f"{NGINX}whitelist-source-rang", "it is not known, and may restrict access, which is not implemented"),
    ],
)
def test_a_restriction_says_whether_it_is_known(annotation: str, why: str) -> None:
    context = read(CLASS, *WEB, ingress(rules=RULES, annotations={annotation: "x"}))
    assert why in context.refused[0].detail


@pytest.mark.parametrize("annotation", [f"{NGINX}server-snippet", "konghq.com/plugins"])
def test_what_restricts_keeps_its_path_from_shorter_ones_of_others(annotation: str) -> None:
    open_one = ingress("open", RULES)
    closed = ingress("closed", {"shop.example.com": [path("/admin")]}, annotations={annotation: "x"})
    context = read(CLASS, *WEB, open_one, closed)
    name, rules = "ing_demo_web_80_closed_closed", context.names["rules"]["backends"]
    assert rules[name].policy.closed
    assert [entry.key for entry in rules[name].entries] == ["shop.example.com/admin/"]
    assert paths_of(context) == {"shop.example.com/": "ing_demo_web_80"}


def test_few_of_many_unknown_names_are_compared_with_known_ones() -> None:
    names = [f"pyconfd.io/allow-networks-{number:04}" for number in range(1000)]
    context = read(CLASS, *WEB, ingress(rules=RULES, annotations=dict.fromkeys(names, "x")))
    assert len(left_out(context.refused)) == 50
    (note,) = notes_among(context.refused)
    assert note.detail.endswith(" and 900 more")
