"""Each refusal of a listener of haproxy-kubefigurator: its field, its value, and what to do."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef, ServicePort
from pyconfd.model.listener import Listener
from pyconfd.model.reservation import Name, Owner, Reservation
from pyconfd.predecessors.kubefigurator.claims import (
    KubefiguratorClaim,
    KubefiguratorOptions,
    ParsedService,
    certified_name,
    field_of,
    parse,
)
from pyconfd.predecessors.kubefigurator.preset import decide
from pyconfd.presets.conflicts import reserved_until
from pyconfd.presets.policy import ANYTHING, ClaimOptions, Rule
from pyconfd.presets.preset import PresetOptions
from tests.presets import cluster
from tests.presets.kubefigurator import HOST, labelled, read, web
from tests.presets.objects import Named, snapshot

INVALID, INCOMPLETE, NOT_ALLOWED = RefusalReason.INVALID_VALUE, RefusalReason.INCOMPLETE, RefusalReason.NOT_ALLOWED
METHODS = "roundrobin, leastconn, static-rr, first, source, random"
WEB = "annotation haproxy-kubefigurator.web."
RULES = ClaimOptions((Rule(("demo",), ("example.com",), ("http",), ((443, 443), (8000, 8999))),))


def parsed(made: Named, rules: ClaimOptions = ANYTHING, **own: Any) -> ParsedService | None:
    [seen] = cluster.read(snapshot(made)).services.values()
    return parse(seen, "", KubefiguratorOptions(**own), rules, HOST)


def asked(made: Named, rules: ClaimOptions = ANYTHING, **own: Any) -> ParsedService:
    found = parsed(made, rules, **own)
    assert found is not None
    return found


def claimed(annotations: Mapping[str, str], **own: Any) -> KubefiguratorClaim:
    found = asked(labelled("web", annotations), **own)
    assert found.refused == ()
    [claim] = found.claims
    return claim


@pytest.mark.parametrize(
    ("annotations", "field", "value", "reason", "detail"),
    [
        ({"web.haproxy-mode": "udp"}, "haproxy-mode", "udp", INVALID, "expected http or tcp"),
        (web("web", use_ssl="maybe"), "use-ssl", "maybe", INVALID, 'expected "true" or "false"'),
        (web("web", backends_use_ssl="yes"), "backends-use-ssl", "yes", INVALID, 'expected "true" or "false"'),
        (web("web", backends_verify_ssl="1"), "backends-verify-ssl", "1", INVALID, 'expected "true" or "false"'),
        (
            {"web.haproxy-mode": "http"},
            "hostname",
            "",
            INCOMPLETE,
            "is missing: a port in mode http is reached by its host name (or set haproxy-mode to tcp)",
        ),
        (
            {"web.haproxy-mode": "tcp", "web.use-ssl": "true"},
            "ssl-certificate",
            "",
            INCOMPLETE,
            "TLS is asked for (use-ssl) and neither hostname nor ssl-certificate says which certificate",
        ),
        (
            web("web", ssl_certificate="../x"),
            "ssl-certificate",
            "../x",
            INVALID,
            "not the name of a file below kubefigurator.ssl_dir",
        ),
        (
            web("web", listen_ip="here"),
            "listen-ip",
            "here",
            INVALID,
            "not an IP address: expected one of this machine's, or * for all",
        ),
        (
            web("web", listen_ip="192.0.2.99"),
            "listen-ip",
            "192.0.2.99",
            RefusalReason.NO_SUCH_ADDRESS,
            "this machine has no such address; if it moves between machines set net.ipv4.ip_nonlocal_bind",
        ),
        (
            web("web", listen_ip="2001:db8::99"),
            "listen-ip",
            "2001:db8::99",
            RefusalReason.NO_SUCH_ADDRESS,
            "this machine has no such address; if it moves between machines set net.ipv6.ip_nonlocal_bind",
        ),
        (
            web("web", listen_port="22"),
            "listen-port",
            "22",
            NOT_ALLOWED,
            "this port is not in the setting kubefigurator.listen_ports",
        ),
        (
            web("web", backends_balance_method="best"),
            "backends-balance-method",
            "best",
            INVALID,
            f"not a balance method of HAProxy: expected one of {METHODS}, uri, url_param NAME, hdr(NAME)",
        ),
        (
            {"web.haproxy-mode": "tcp", "web.backends-balance-method": "uri"},
            "backends-balance-method",
            "uri",
            INVALID,
            f"needs haproxy-mode http; in mode tcp use one of {METHODS}",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(
    annotations: Mapping[str, str], field: str, value: str, reason: RefusalReason, detail: str
) -> None:
    found = asked(labelled("web", annotations), listen_ports=((80, 32767),))
    assert found.claims == ()
    [refusal] = found.refused
    assert refusal.ref == ObjectRef("Service", "demo", "web")
    assert (refusal.field, refusal.value, refusal.reason, refusal.detail) == (f"{WEB}{field}", value, reason, detail)


@pytest.mark.parametrize(
    ("annotations", "field", "value"),
    [
        ({"web.haproxy-mode": "tcp"}, "haproxy-mode", "tcp"),
        (web("web", "shop.example.org"), "hostname", "shop.example.org"),
        (web("web", ssl_certificate="a/other.org.pem"), "ssl-certificate", "a/other.org.pem"),
        (web("web", listen_port="80"), "listen-port", "80"),
        (web("web", listen_ip="192.0.2.7"), "listen-ip", "192.0.2.7"),
    ],
)
def test_what_the_operator_does_not_allow(annotations: Mapping[str, str], field: str, value: str) -> None:
    [refusal] = asked(labelled("web", annotations), RULES).refused
    assert (refusal.field, refusal.value, refusal.reason) == (f"{WEB}{field}", value, NOT_ALLOWED)
    assert "the namespace demo may not claim" in refusal.detail


@pytest.mark.parametrize(
    ("port", "value", "detail"),
    [
        (ServicePort("web", 80, node_port=30080, protocol="UDP"), "web UDP", "only TCP can be balanced by HAProxy"),
        (ServicePort("web", 80, node_port=65536), "65536", "not a node port"),
        (ServicePort("a b", 80, node_port=1), "a b", "not a name that Kubernetes would give to a port"),
        (ServicePort("if", 80, node_port=1), "if", "not a name that Kubernetes would give to a port"),
    ],
)
def test_ports_that_cannot_be_balanced(port: ServicePort, value: str, detail: str) -> None:
    [refusal] = asked(labelled("web", ports=(port,))).refused
    assert (refusal.field, refusal.value, refusal.reason, refusal.detail) == ("spec.ports", value, INVALID, detail)


def test_a_service_without_a_node_port() -> None:
    [refusal] = asked(labelled("web", ports=(ServicePort("web", 80),))).refused
    assert (refusal.field, refusal.reason) == ("spec.ports", RefusalReason.NO_NODE_PORT)
    assert refusal.detail == "no port of this service has a node port: give it the type NodePort or LoadBalancer"


@pytest.mark.parametrize("name", ["A", "a_b"])
def test_names_that_kubernetes_would_not_give(name: str) -> None:
    [refusal] = asked(labelled(name, web("web"))).refused
    assert (refusal.field, refusal.value) == ("metadata.name", name)
    assert refusal.detail == "not a name that Kubernetes would give"


def test_annotations_without_effect_are_explained() -> None:
    found = asked(labelled("web", web("web") | {"other.hostname": "x", "web.unknown": "y"}))
    assert [(each.field, each.value) for each in found.refused] == [
        ("annotation haproxy-kubefigurator.other.hostname", "x"),
        ("annotation haproxy-kubefigurator.web.unknown", "y"),
    ]
    assert found.refused[0].detail.startswith(
        "has no effect: it must be haproxy-kubefigurator.PORT.OPTION with the name of a port that has a node port"
        " (web) and one of the options "
    )
    assert len(found.claims) == 1


def test_a_port_that_somebody_has() -> None:
    options = PresetOptions(taken_listeners={Listener("0.0.0.0", 443): "haproxy's own frontend has this"})
    [refusal] = read(labelled("web", web("web")), options=options).refused
    assert (refusal.field, refusal.value, refusal.reason) == (f"{WEB}listen-port", "443", RefusalReason.PORT_TAKEN)
    assert refusal.detail == ("haproxy's own frontend has this; choose another port, or another address with listen-ip")


BANK = Reservation(Owner("Service", "bank", "web", "2026-01-20"), 99.0)
TCP = {"web.haproxy-mode": "tcp"}


@pytest.mark.parametrize(
    ("annotations", "reserved", "field", "value"),
    [
        (web("web"), Name("*:443", ""), "listen-port", "443"),
        (web("web"), Name("*:443", "shop.example.com"), "hostname", "shop.example.com"),
        (web("web"), Name("*:443", "other.example.com"), "", ""),
        (web("web"), Name("*:80", ""), "", ""),
        (web("web", listen_ip="192.0.2.7"), Name("*:443", ""), "listen-port", "443"),
        (TCP, Name("*:443", ""), "listen-port", "443"),
        # In mode tcp a listener has no names, so that a name of another namespace takes all of it.
        (TCP, Name("*:443", "other.example.com"), "listen-port", "443"),
    ],
)
def test_what_is_reserved_for_another_namespace(
    annotations: Mapping[str, str], reserved: Name, field: str, value: str
) -> None:
    claim = claimed(annotations)
    found = decide([claim], {reserved: BANK}, lambda _: None, lambda _: None)
    ref = ObjectRef("Service", "demo", "web")
    assert found.refused == (
        (Refusal(ref, f"{WEB}{field}", value, RefusalReason.NAME_RESERVED, reserved_until(BANK)),) if field else ()
    )
    assert found.served == (() if field else (claim,))
    own = {reserved: BANK._replace(owner=claim.owner)}
    assert decide([claim], own, lambda _: None, lambda _: None).refused == ()


@pytest.mark.parametrize(
    ("older", "younger", "field", "value", "reason", "why"),
    [
        (web("web"), web("web", "b.example.com"), "", "", None, ""),
        (web("web"), web("web"), "hostname", "shop.example.com", RefusalReason.NAME_TAKEN, "has this name on *:443"),
        (web("web"), TCP, "haproxy-mode", "tcp", RefusalReason.PORT_TAKEN, "in mode http"),
        (TCP, web("web"), "haproxy-mode", "http", RefusalReason.PORT_TAKEN, "in mode tcp"),
        (TCP, TCP, "listen-port", "443", RefusalReason.PORT_TAKEN, "a port has one service"),
        (
            web("web"),
            web("web", "b.example.com", use_ssl="false", listen_port="443"),
            "use-ssl",
            "false",
            RefusalReason.PORT_TAKEN,
            "with TLS",
        ),
        (
            web("web", use_ssl="false", listen_port="443"),
            web("web", "b.example.com"),
            "use-ssl",
            "true",
            RefusalReason.PORT_TAKEN,
            "without TLS",
        ),
    ],
)
def test_what_an_older_claim_has(
    older: Mapping[str, str],
    younger: Mapping[str, str],
    field: str,
    value: str,
    reason: RefusalReason | None,
    why: str,
) -> None:
    first, second = claimed(older), replace(claimed(younger), ref=ObjectRef("Service", "demo", "young"))
    found = decide([first, second], {}, lambda _: None, lambda _: None)
    assert [(each.ref, each.field, each.value, each.reason) for each in found.refused] == (
        [(second.ref, f"{WEB}{field}", value, reason)] if reason else []
    )
    assert all(each.detail.startswith("Service demo/web port web ") and why in each.detail for each in found.refused)
    assert found.served == ((first,) if reason else (first, second))


def test_defaults() -> None:
    claim = claimed(web("web"), ssl_dir="/tls/")
    assert (claim.mode, claim.hostname, claim.certificate) == ("http", "shop.example.com", "/tls/shop.example.com.pem")
    assert (str(claim.slot), claim.tls, claim.verify, claim.balance) == ("*:443", True, False, "roundrobin")
    assert (claim.who, claim.owner.namespace) == ("Service demo/web port web", "demo")
    plain = claimed(web("web", use_ssl="false", listen_port="80", listen_ip="192.0.2.7"))
    assert (plain.certificate, plain.tls, str(plain.slot)) == ("", False, "192.0.2.7:80")
    own = claimed(web("web", ssl_certificate="a/B.pem", backends_use_ssl="false"), ssl_dir="/tls")
    assert (own.certificate, own.tls) == ("/tls/a/B.pem", False)
    tcp = claimed({"web.haproxy-mode": "TCP", "web.backends-balance-method": " leastconn "})
    assert (tcp.mode, tcp.hostname, tcp.certificate, tcp.balance) == ("tcp", "", "", "leastconn")
    named = claimed(web("web", "CLUSTER.example.com"), cluster="east")
    assert named.hostname == "east.example.com"


@pytest.mark.parametrize(
    ("text", "address"),
    [("*", "*"), ("0.0.0.0", "*"), ("::ffff:192.0.2.7", "192.0.2.7"), ("[2001:db8::7]", "2001:db8::7"), ("::", "::")],
)
def test_addresses(text: str, address: str) -> None:
    assert claimed(web("web", listen_ip=text)).slot.address == address


def test_names() -> None:
    assert field_of("", "hostname") == "annotation haproxy-kubefigurator..hostname"
    assert certified_name("a/B.example.com.pem") == "b.example.com"
    assert parsed(labelled("web", label="no")) is None
