"""Virtual hosts of named hosts: which host belongs to which virtual host, and which unserved host needs one."""

import pytest

from pyconfd.derived import Graph, Source
from pyconfd.model.reservation import HostClaim, Name, Owner, Reservation
from pyconfd.presets.host_ownership import HostDecision, HostRights, Hosts
from pyconfd.presets.routing.types import HostKind, VirtualHost
from pyconfd.presets.shared_virtual_hosts import named_virtual_hosts, shared_virtual_host

SINCE = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("host", "wildcard", "kind", "id_"),
    [
        ("a.test", HostKind.ONE_LABEL, HostKind.EXACT, "a.test"),
        ("*", HostKind.ANY_DEPTH, HostKind.ANY, "*"),
        ("*.a.test", HostKind.ONE_LABEL, HostKind.ONE_LABEL, "*.a.test"),
        ("*.a.test", HostKind.ANY_DEPTH, HostKind.ANY_DEPTH, ".a.test"),
    ],
)
@pytest.mark.parametrize("below", [True, False])
def test_the_virtual_host_of_a_host(host: str, wildcard: HostKind, kind: HostKind, id_: str, below: bool) -> None:
    mine = HostDecision(Owner("Ingress", "shop", "web", SINCE), below_foreign=below)
    decisions: dict[str, HostDecision] = {host: mine}
    found = shared_virtual_host(host, HostRights(decisions.get), wildcard)
    assert found == VirtualHost(id_, "http", host, kind, namespace="shop", below_foreign=below)
    decisions.clear()
    unknown = shared_virtual_host(host, HostRights(decisions.get), wildcard)
    assert unknown == VirtualHost(id_, "http", host, kind)


INGRESS, FOREIGN = Owner("Ingress", "shop", "web", SINCE), Owner("Ingress", "evil", "trap", SINCE)
YOUNGER = Owner("Service", "shop", "other", "2026-02-01T00:00:00Z")
DOMAIN, FOREIGN_DOMAIN = Owner("Service", "shop", "web", SINCE), Owner("Service", "evil", "trap", SINCE)


@pytest.mark.parametrize(
    ("claims", "kept", "kind"),
    [
        # An Ingress whose paths are all refused: 404, and nobody's wildcard.
        ({"a.b.test": (INGRESS, "")}, None, HostKind.EXACT),
        ({"a.b.test": (INGRESS, ""), "*.b.test": (FOREIGN, "")}, None, HostKind.EXACT),
        # A domain with HTTP has a virtual host of its own, one without needs one where another namespace would answer.
        ({"a.b.test": (DOMAIN, "http")}, None, None),
        ({"a.b.test": (DOMAIN, "https")}, None, None),
        ({"a.b.test": (DOMAIN, "https"), "*.b.test": (DOMAIN, "http")}, None, None),
        ({"a.b.test": (DOMAIN, "https"), "*.b.test": (FOREIGN, "")}, None, HostKind.EXACT),
        ({"a.b.test": (DOMAIN, "https"), "*": (FOREIGN, "")}, None, HostKind.EXACT),
        # A wildcard of an Ingress is for one label, that of a domain for more.
        ({"a.b.test": (DOMAIN, "https"), "*.test": (FOREIGN, "")}, None, None),
        ({"a.b.test": (DOMAIN, "https"), "*.test": (FOREIGN_DOMAIN, "http")}, None, HostKind.EXACT),
        # What is kept for a namespace goes to no other meanwhile.
        ({"*.b.test": (FOREIGN, "")}, INGRESS, HostKind.EXACT),
        ({"*.b.test": (INGRESS, "")}, INGRESS, None),
        ({}, INGRESS, None),
    ],
)
def test_a_host_that_nothing_serves_keeps_its_requests(
    claims: dict[str, tuple[Owner, str]], kept: Owner | None, kind: HostKind | None
) -> None:
    virtual_hosts = _named(claims, {} if kept is None else {"a.b.test": kept})
    assert (virtual_hosts["a.b.test"].kind if "a.b.test" in virtual_hosts else None) == kind


def test_a_served_host_is_not_named_again() -> None:
    claims = {"a.b.test": (INGRESS, ""), "*.b.test": (DOMAIN, "https"), "*.test": (FOREIGN_DOMAIN, "http")}
    assert set(_named(claims, {}, served="a.b.test")) == {"*.b.test"}
    found = _named(claims, {})
    assert {host: virtual_host.kind for host, virtual_host in found.items()} == {
        "a.b.test": HostKind.EXACT,
        "*.b.test": HostKind.ANY_DEPTH,
    }
    # Kept for an Ingress: its wildcard is for one label, as it was.
    kept = _named({"*.test": (FOREIGN_DOMAIN, "http")}, {"*.b.test": INGRESS, "*.c.test": DOMAIN})
    assert {host: virtual_host.kind for host, virtual_host in kept.items()} == {
        "*.b.test": HostKind.ONE_LABEL,
        "*.c.test": HostKind.ANY_DEPTH,
    }


@pytest.mark.parametrize("of_younger", [False, True])
def test_a_host_is_known_where_the_domain_that_has_it_has_no_http(of_younger: bool) -> None:
    """One domain has a name: another one of the namespace with HTTP is refused, and has no virtual host."""
    protos = ("http", "redis") if of_younger else ("redis", "http")
    claims = [
        HostClaim("a.b.test", owner, domain_proto=of) for owner, of in zip((DOMAIN, YOUNGER), protos, strict=True)
    ]
    found = _of_claims([*claims, HostClaim("*.b.test", FOREIGN)], {})
    assert ("a.b.test" in found) is not of_younger


@pytest.mark.parametrize(("proto", "is_named"), [("http", True), ("https", False)])
def test_a_wildcard_of_an_older_ingress_does_not_hide_that_of_a_domain(proto: str, is_named: bool) -> None:
    younger = HostClaim("*.test", Owner("Service", "evil", "web", "2026-02-01T00:00:00Z"), domain_proto=proto)
    claims = [HostClaim("a.b.test", DOMAIN, domain_proto="https"), HostClaim("*.test", FOREIGN), younger]
    assert ("a.b.test" in _of_claims(claims, {})) is is_named


def _named(claims: dict[str, tuple[Owner, str]], kept: dict[str, Owner], served: str = "") -> dict[str, VirtualHost]:
    asked = [HostClaim(host, owner, domain_proto=proto) for host, (owner, proto) in claims.items()]
    return _of_claims(asked, kept, served)


def _of_claims(claims: list[HostClaim], kept: dict[str, Owner], served: str = "") -> dict[str, VirtualHost]:
    graph = Graph()
    source, virtual_hosts = Source[Name, HostClaim](graph, "claims"), Source[str, VirtualHost](graph, "served")
    hosts = Hosts(source)
    found = named_virtual_hosts(hosts, virtual_hosts)
    hosts.shared.set(frozenset())
    hosts.reservations.replace({host: Reservation(owner, 9.0) for host, owner in kept.items()})
    source.replace({Name(claim.host, "/".join(claim.owner[:3])): claim for claim in claims})
    virtual_hosts.replace({served: VirtualHost(served, "http", served, HostKind.EXACT)} if served else {})
    graph.settle()
    return dict(found.items)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ([], False),
        ([HostClaim("a.test", INGRESS)], False),
        ([HostClaim("a.test", DOMAIN, domain_proto="http"), HostClaim("*.test", INGRESS)], False),
        ([HostClaim("a.test", DOMAIN, domain_proto="https")], True),
        ([HostClaim("a.test", DOMAIN, domain_proto="http"), HostClaim("a.test", YOUNGER, domain_proto="https")], False),
        ([HostClaim("a.test", DOMAIN, domain_proto="https"), HostClaim("a.test", YOUNGER, domain_proto="http")], True),
        ([HostClaim("a.test", INGRESS), HostClaim("*.test", FOREIGN)], True),
    ],
)
def test_names_are_read_before_tls_where_some_go_through_or_are_below_foreign(
    claims: list[HostClaim], expected: bool
) -> None:
    graph = Graph()
    source = Source[int, HostClaim](graph, "claims")
    hosts = Hosts(source)
    hosts.shared.set(frozenset())
    source.replace(dict(enumerate(claims)))
    graph.settle()
    assert hosts.read_hello() is expected
    source.replace(dict.fromkeys(range(len(claims))))
    graph.settle()
    assert hosts.read_hello() is False
