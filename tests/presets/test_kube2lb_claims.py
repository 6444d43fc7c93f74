"""Who of kube2lb's claims gets a port and a name, claim by claim."""

from typing import Any

import pytest

from pyconfd.model.context import RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.listener import Listener
from pyconfd.model.reservation import Name, Owner, Reservation
from pyconfd.predecessors.kube2lb.claims import (
    DecidedPorts,
    Kube2lbClaim,
    Kube2lbPort,
    Kube2lbServerNames,
    Kube2lbService,
    decide,
    port_order,
)
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.presets.conflicts import reserved_until
from pyconfd.presets.policy import ANYTHING, ClaimOptions, Rule

ANY, ONE = "0.0.0.0", "192.0.2.1"
KEEPS = "already (the older one keeps it)"
TAKEN, RESERVED = RefusalReason.PORT_TAKEN, RefusalReason.NAME_RESERVED


def claim(name: str, *external: str, day: int = 1, namespace: str = "demo", **port: Any) -> Kube2lbClaim:
    asked = Kube2lbPort(
        port.get("ip", ANY), port.get("port", 80), port.get("mode", "http"), port.get("protocol", "tcp")
    )
    entry = Kube2lbService(name, namespace, asked, (), (), 0, external, 0)
    return Kube2lbClaim(ObjectRef("Service", namespace, name), f"2026-01-{day:02}", 0, entry)


OPTIONS = Kube2lbOptions(domain="local", server_name_templates=())


def decided(
    *claims: Kube2lbClaim, reserved: dict[Name, Reservation] | None = None, rules: ClaimOptions = ANYTHING
) -> DecidedPorts:
    return decide(sorted(claims, key=lambda each: each.place), OPTIONS, rules, reserved or {})


def served(found: DecidedPorts) -> list[str]:
    return [claim.entry.name for claim in found.served]


def refused(found: DecidedPorts) -> list[tuple[str, str, str, RefusalReason, str]]:
    return [(each.ref.name, each.field, each.value, each.reason, each.detail) for each in found.refused]


@pytest.mark.parametrize(
    ("old", "young", "detail"),
    [
        (claim("a"), claim("b", day=2), ""),
        (claim("a"), claim("b", day=2, ip=ONE), ""),
        (claim("a", mode="tcp"), claim("b", day=2, mode="tcp", port=81), ""),
        (claim("a", mode="tcp"), claim("b", day=2, mode="tcp", protocol="udp"), ""),
        (claim("a", mode="tcp", ip=ONE), claim("b", day=2, mode="tcp", ip="192.0.2.2"), ""),
        (
            claim("a", mode="tcp"),
            claim("b", day=2, mode="tcp"),
            f"Service demo/a listens on 0.0.0.0:80/tcp {KEEPS}, in mode tcp, which cannot be shared",
        ),
        (
            claim("a", mode="tcp"),
            claim("b", day=2, mode="tcp", ip=ONE),
            f"Service demo/a listens on 0.0.0.0:80/tcp {KEEPS}, in mode tcp, which cannot be shared",
        ),
        (
            claim("a", mode="tcp"),
            claim("b", day=2),
            f"Service demo/a listens on 0.0.0.0:80/tcp {KEEPS}, in another mode",
        ),
        (
            claim("a"),
            claim("b", day=2, mode="tcp"),
            f"Service demo/a listens on 0.0.0.0:80/tcp {KEEPS}, in another mode",
        ),
    ],
)
def test_who_has_a_socket(old: Kube2lbClaim, young: Kube2lbClaim, detail: str) -> None:
    found = decided(young, old)
    assert served(found) == (["a"] if detail else ["a", "b"])
    port = str(young.entry.port.port)
    assert [each[:4] for each in refused(found)] == ([("b", "spec.ports", port, TAKEN)] if detail else [])
    assert [each[4] for each in refused(found)] == ([detail] if detail else [])


BANK = Reservation(Owner("Service", "bank", "web", "2026-01-20"), 99.0)


@pytest.mark.parametrize(
    ("place", "asked", "is_refused"),
    [
        ("0.0.0.0:80/tcp", claim("a"), True),
        ("0.0.0.0:80/tcp", claim("a", ip=ONE), True),
        ("0.0.0.0:80/tcp", claim("a", mode="tcp", ip=ONE), True),
        ("0.0.0.0:80/tcp", claim("a", protocol="udp"), False),
        ("0.0.0.0:80/tcp", claim("a", port=81), False),
        ("0.0.0.0:80/tcp", claim("a", namespace="bank"), False),
        ("0.0.0.0:80/tcp", claim("a", namespace="bank", mode="tcp"), False),
    ],
)
def test_a_socket_that_is_reserved_for_another_namespace(place: str, asked: Kube2lbClaim, is_refused: bool) -> None:
    found = decided(asked, reserved={Name(place, ""): BANK})
    expected = [("a", "spec.ports", str(asked.entry.port.port), RESERVED, reserved_until(BANK))]
    assert refused(found) == (expected if is_refused else [])
    assert served(found) == ([] if is_refused else ["a"])


@pytest.mark.parametrize(
    ("asked", "is_refused"),
    [
        # A host name is kept there: who shares the socket leaves it, and who cannot share takes it.
        (claim("a"), False),
        (claim("a", mode="tcp"), True),
        (claim("a", mode="tcp", namespace="bank"), False),
    ],
)
def test_a_socket_of_which_a_name_is_reserved(asked: Kube2lbClaim, is_refused: bool) -> None:
    found = decided(asked, reserved={Name("0.0.0.0:80/tcp", "x.test"): BANK})
    assert [each[3] for each in refused(found)] == ([RESERVED] if is_refused else [])


@pytest.mark.parametrize(
    ("old", "young", "detail"),
    [
        (claim("a", "x.test"), claim("b", "y.test", day=2), ""),
        (claim("a", "x.test"), claim("b", "x.test", day=2, port=81), ""),
        (claim("a", "x.test", ip=ONE), claim("b", "x.test", day=2, ip="192.0.2.2"), ""),
        (claim("a", "x.test"), claim("b", "x.test", day=2), "0.0.0.0:80"),
        (claim("a", "x.test"), claim("b", "x.test", day=2, ip=ONE), "192.0.2.1:80"),
        (claim("a", "x.test", ip=ONE), claim("b", "x.test", day=2), "0.0.0.0:80"),
    ],
)
def test_who_has_a_name(old: Kube2lbClaim, young: Kube2lbClaim, detail: str) -> None:
    found = decided(young, old)
    given = Kube2lbServerNames(dict.fromkeys((80, 81), found), OPTIONS, ANYTHING, {})
    names = [given.of(claim.entry, "local") for claim in found.served]
    assert [given.of(claim.entry, "elsewhere") for claim in found.served] == names
    assert names == [list(old.entry.external), [] if detail else list(young.entry.external)]
    why = f"Service demo/a has this name on {detail} already; choose another one for one of them"
    field = "annotation kube2lb/external-domains"
    assert refused(found) == ([("b", field, "x.test", RefusalReason.NAME_TAKEN, why)] if detail else [])


def test_a_name_that_is_reserved_or_not_allowed() -> None:
    found = decided(claim("a", "x.test", "y.test"), reserved={Name("0.0.0.0:80/tcp", "x.test"): BANK})
    field = "annotation kube2lb/external-domains"
    assert refused(found) == [("a", field, "x.test", RESERVED, reserved_until(BANK))]
    rules = ClaimOptions((Rule(("demo",), ("y.test",)),))
    [refusal] = decided(claim("a", "x.test", "y.test"), rules=rules).refused
    assert (refusal.value, refusal.reason) == ("x.test", RefusalReason.NOT_ALLOWED)
    assert refusal.detail == rules.domain("demo", "x.test")


def test_what_is_remembered_and_listened_on() -> None:
    found = decided(claim("a", "x.test"), claim("b", day=2, mode="tcp", port=25), claim("c", day=3, protocol="udp"))
    owners = {name: Owner("Service", "demo", name, f"2026-01-0{day}") for day, name in enumerate("abc", 1)}
    assert found.owners == {
        Name("0.0.0.0:80/tcp", "x.test"): owners["a"],
        Name("0.0.0.0:25/tcp", ""): owners["b"],
        Name("0.0.0.0:80/udp", ""): owners["c"],
    }
    assert found.bound == {Listener(ANY, 80): owners["a"], Listener(ANY, 25): owners["b"]}
    assert [(each.bind, [at.name for at in found.by_port[each]]) for each in sorted(found.by_port, key=port_order)] == [
        ("0.0.0.0:25", ["b"]),
        ("0.0.0.0:80", ["a"]),
        ("0.0.0.0:80", ["c"]),
    ]


def test_names_on_all_addresses_are_served_on_each() -> None:
    found = decided(claim("a"), claim("b", day=2, ip=ONE), claim("c", day=3, ip="192.0.2.2", mode="tcp", port=81))
    assert [(each.bind, [at.name for at in found.by_port[each]]) for each in sorted(found.by_port, key=port_order)] == [
        ("0.0.0.0:80", ["a"]),
        (f"{ONE}:80", ["a", "b"]),
        ("192.0.2.2:81", ["c"]),
    ]
