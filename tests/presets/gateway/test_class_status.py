"""What the status of a GatewayClass says, and what becomes of a Gateway."""

from typing import Any

import pytest

from pyconfd.model.gateway_api import GatewayClass, GatewayClassSpec, ObjectReference
from pyconfd.model.object_status import ObjectStatus
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import NEVER, Owner
from pyconfd.model.snapshot import HostFacts, Key
from pyconfd.presets.addresses import AddressProblem, AddressReason, Assigned
from pyconfd.presets.gateway import features
from pyconfd.presets.gateway.gateways import (
    GatewayDecision,
    class_fault,
    class_status,
    decide_gateway,
    gateway_status,
    is_misspelled,
    mistaken_class,
    mistaken_gateway,
)
from pyconfd.presets.gateway.grants import Grants
from pyconfd.presets.gateway.listeners import Referents, ResolvedCertificate, decide_listeners
from pyconfd.presets.gateway.status import Fault, StatusCondition
from tests.presets.gateway.objects import CLASS, gateway, snapshot

ACCEPTED = GatewayClass(ObjectMeta("pyconfd", generation=3), GatewayClassSpec("pyconfd.io/gateway"))
WITH_PARAMETERS = GatewayClass(
    ACCEPTED.metadata, GatewayClassSpec("pyconfd.io/gateway", ObjectReference("", "ConfigMap", "x"))
)


def test_a_class_is_accepted_and_names_what_is_supported() -> None:
    status = class_status(ACCEPTED).body
    accepted = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 3}
    assert status["conditions"] == [accepted]
    assert status["supportedFeatures"] == [{"name": name} for name in features.supported()]
    assert class_fault(ACCEPTED) is None


def test_a_class_with_parameters_is_not_accepted() -> None:
    fault = class_fault(WITH_PARAMETERS)
    assert fault is not None
    assert tuple(fault)[:3] == ("InvalidParameters", "spec.parametersRef", "ConfigMap x")
    assert tuple(fault)[3] == "parameters of no kind are supported: remove the field"
    [condition] = class_status(WITH_PARAMETERS).body["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "InvalidParameters")


HTTP = "listeners: [{name: a, port: 80, protocol: HTTP}]"
HERE = Assigned(("192.0.2.1", "2001:db8::1"))


def decide(
    spec: str, assigned: Assigned = HERE, host: HostFacts | None = None, name: str = "web", grants: Grants | None = None
) -> GatewayDecision:
    lookup = Referents(
        lambda key: ResolvedCertificate("PEM", "/c.pem") if key.name == "cert" else ResolvedCertificate(fault="none"),
        lambda _: ResolvedCertificate("CA"),
        grants or Grants(),
    )
    made = gateway(spec, name)
    return decide_gateway(made, decide_listeners(made, lookup), assigned, lookup, host or HostFacts())


def reasons(decision: GatewayDecision) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in decision.conditions}


SERVED = {
    "Accepted": ("True", "Accepted"),
    "Programmed": ("True", "Programmed"),
    "ResolvedRefs": ("True", "ResolvedRefs"),
}
CERTIFICATE = "spec.tls.backend.clientCertificateRef"
IN_USE = AddressProblem("192.0.2.9", AddressReason.TAKEN, "why")
NO_POOL = AddressProblem("", AddressReason.NO_POOL, "why")


@pytest.mark.parametrize(
    ("spec", "assigned", "differs", "faults", "addresses"),
    [
        (HTTP, HERE, {}, [], HERE.addresses),
        (
            HTTP,
            Assigned(),
            {"Programmed": ("False", "AddressNotAssigned")},
            [("AddressNotAssigned", "spec.addresses", "")],
            (),
        ),
        (
            HTTP,
            Assigned(("192.0.2.1",), (IN_USE,)),
            {"Programmed": ("False", "AddressNotUsable")},
            [("AddressNotUsable", "spec.addresses", "192.0.2.9")],
            ("192.0.2.1",),
        ),
        (
            HTTP,
            Assigned((), (NO_POOL,)),
            {"Programmed": ("False", "AddressNotAssigned")},
            [("AddressNotAssigned", "spec.addresses", "")],
            (),
        ),
        (
            f"{{{HTTP}, addresses: [{{type: a.io/x, value: y}}]}}",
            HERE,
            {"Accepted": ("False", "UnsupportedAddress"), "Programmed": ("False", "Invalid")},
            [("UnsupportedAddress", "spec.addresses", "a.io/x y")],
            (),
        ),
        (
            f"{{{HTTP}, infrastructure: {{parametersRef: {{group: a.io, kind: Config, name: x}}}}}}",
            HERE,
            {"Accepted": ("False", "InvalidParameters"), "Programmed": ("False", "Invalid")},
            [("InvalidParameters", "spec.infrastructure.parametersRef", "Config x")],
            (),
        ),
        # Of two listeners one is accepted.
        (
            "listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 0, protocol: HTTP}]",
            HERE,
            {"Accepted": ("True", "ListenersNotValid")},
            [("PortUnavailable", "listener b port", "0")],
            HERE.addresses,
        ),
        (
            "listeners: [{name: b, port: 0, protocol: HTTP}]",
            HERE,
            {"Accepted": ("False", "ListenersNotValid"), "Programmed": ("False", "Invalid")},
            [("PortUnavailable", "listener b port", "0")],
            (),
        ),
        # It is accepted, and cannot serve.
        (
            "listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: none}]}}]",
            HERE,
            {"Programmed": ("False", "Invalid"), "ResolvedRefs": ("False", "ListenersNotResolved")},
            [("InvalidCertificateRef", "listener a tls.certificateRefs", "shop/none")],
            HERE.addresses,
        ),
        (
            f"{{{HTTP}, tls: {{backend: {{clientCertificateRef: {{name: none}}}}}}}}",
            HERE,
            {"ResolvedRefs": ("False", "InvalidClientCertificateRef")},
            [("InvalidClientCertificateRef", CERTIFICATE, "shop/none")],
            HERE.addresses,
        ),
        (
            f"{{{HTTP}, tls: {{backend: {{clientCertificateRef: {{kind: Bucket, group: a.io, name: cert}}}}}}}}",
            HERE,
            {"ResolvedRefs": ("False", "InvalidClientCertificateRef")},
            [("InvalidClientCertificateRef", CERTIFICATE, "Bucket.a.io")],
            HERE.addresses,
        ),
        (
            f"{{{HTTP}, tls: {{backend: {{clientCertificateRef: {{name: cert, namespace: other}}}}}}}}",
            HERE,
            {"ResolvedRefs": ("False", "RefNotPermitted")},
            [("RefNotPermitted", CERTIFICATE, "other/cert")],
            HERE.addresses,
        ),
        (
            f"{{{HTTP}, tls: {{frontend: {{default: {{validation: {{mode: AllowInsecureFallback}}}}}}}}}}",
            HERE,
            {"InsecureFrontendValidationMode": ("True", "ConfigurationChanged")},
            [],
            HERE.addresses,
        ),
    ],
)
def test_what_becomes_of_a_gateway(
    spec: str,
    assigned: Assigned,
    differs: dict[str, tuple[str, str]],
    faults: list[tuple[str, str, str]],
    addresses: tuple[str, ...],
) -> None:
    found = decide(spec, assigned)
    assert reasons(found) == SERVED | differs
    assert [fault[:3] for fault in found.faults] == faults
    assert all(fault.detail for fault in found.faults)
    assert (found.addresses, found.reached_at, found.absent) == (addresses, addresses, frozenset())


def test_conditions_of_a_gateway_name_the_listeners_that_they_are_about() -> None:
    bad = ", ".join(f"{{name: {name}, port: 0, protocol: HTTP}}" for name in "bc")
    accepted, *_ = decide(f"listeners: [{{name: a, port: 80, protocol: HTTP}}, {bad}]").conditions
    message = "listeners b, c: these are not accepted: see the conditions of each"
    assert accepted == StatusCondition("Accepted", "True", "ListenersNotValid", message)

    tls = "protocol: HTTPS, tls: {certificateRefs: [{name: none}]}"
    found = decide(f"listeners: [{{name: a, port: 443, {tls}}}, {{name: b, port: 444, {tls}}}]")
    not_resolved = "references of these listeners are not resolved: see the conditions of each"
    assert found.conditions == (
        StatusCondition("Accepted", "True", "Accepted"),
        StatusCondition(
            "Programmed", "False", "Invalid", "listeners: none of them can serve: see the conditions of each"
        ),
        StatusCondition("ResolvedRefs", "False", "ListenersNotResolved", f"listeners a, b: {not_resolved}"),
    )


@pytest.mark.parametrize(("kind", "is_granted"), [("Secret", True), ("ConfigMap", False)])
def test_a_grant_lets_a_gateway_show_a_certificate_of_another_namespace(kind: str, is_granted: bool) -> None:
    (found,) = snapshot(f"""
kind: ReferenceGrant
metadata: {{name: grant, namespace: other}}
spec:
  from: [{{group: gateway.networking.k8s.io, kind: Gateway, namespace: shop}}]
  to: [{{group: "", kind: {kind}}}]
""").referencegrants.items()
    spec = f"{{{HTTP}, tls: {{backend: {{clientCertificateRef: {{name: cert, namespace: other}}}}}}}}"
    decision = decide(spec, grants=Grants({"other": (found,)}))
    assert decision.client_certificate == (ResolvedCertificate("PEM", "/c.pem") if is_granted else None)
    assert bool(decision.faults) is not is_granted


def test_a_gateway_is_decided_as_a_whole() -> None:
    spec = f"{{{HTTP}, tls: {{backend: {{clientCertificateRef: {{name: cert}}}}}}}}"
    found = decide(spec, host=HostFacts(frozenset({"2001:db8::1"})))
    why = next(fault.detail for fault in found.faults)
    missing = Fault("AddressNotUsable", "status.addresses", "192.0.2.1", why)
    assert found == GatewayDecision(
        Key("shop", "web"),
        "gateway",
        3,
        Owner("Gateway", "shop", "web", NEVER),
        ("192.0.2.1", "2001:db8::1"),
        frozenset({"192.0.2.1"}),
        found.listeners,
        ResolvedCertificate("PEM", "/c.pem"),
        (missing,),
        (
            StatusCondition("Accepted", "True", "Accepted"),
            StatusCondition("Programmed", "False", "AddressNotUsable", missing.message),
            StatusCondition("ResolvedRefs", "True", "ResolvedRefs"),
        ),
    )
    assert found.reached_at == ("2001:db8::1",)
    name = decide(HTTP, name="a b").faults[0]
    assert name[:3] == ("UnsupportedValue", "metadata.name", "shop/a b")


@pytest.mark.parametrize(("assigned", "reason"), [(HERE, "Programmed"), (Assigned(), "Pending")])
def test_the_whole_status_of_a_gateway(assigned: Assigned, reason: str) -> None:
    found = decide(HTTP, assigned)

    def condition(type_: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
        return {"type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": 3}

    programmed = (
        condition("Programmed", "True", "Programmed")
        if reason == "Programmed"
        else condition("Programmed", "False", reason, "the Gateway has no address: see its conditions")
    )
    addresses = [{"type": "IPAddress", "value": each} for each in assigned.addresses]
    listener = {
        "name": "a",
        "supportedKinds": [{"group": "gateway.networking.k8s.io", "kind": kind} for kind in ("HTTPRoute", "GRPCRoute")],
        "attachedRoutes": 7,
        "conditions": [
            condition("Accepted", "True", "Accepted"),
            programmed,
            condition("ResolvedRefs", "True", "ResolvedRefs"),
            condition("Conflicted", "False", "NoConflicts"),
        ],
    }
    body = {
        "conditions": [each.body(3) for each in found.conditions],
        "listeners": [listener],
        "attachedListenerSets": 2,
        **({"addresses": addresses} if addresses else {}),
    }
    assert gateway_status(found, {"a": 7}, 2) == ObjectStatus("gateway", 3, body)
    assert gateway_status(found, {}).body["listeners"] == [listener | {"attachedRoutes": 0}]


OTHER = CLASS.replace("name: pyconfd, uid: class", "name: other, uid: other").replace("pyconfd.io/gateway", "a.io/b")
SECOND = CLASS.replace("name: pyconfd, uid: class", "name: zebra, uid: zebra")


@pytest.mark.parametrize(
    ("name", "classes", "wrong", "misspelled"),
    [
        ("pyconfd", (CLASS, OTHER), "", False),
        ("pyconf", (CLASS, OTHER), "there is no GatewayClass pyconf: did you mean gatewayClassName: pyconfd?", True),
        ("Pyconfd", (CLASS,), "there is no GatewayClass Pyconfd: did you mean gatewayClassName: pyconfd?", True),
        ("nginx", (CLASS,), "there is no GatewayClass nginx: did you mean gatewayClassName: pyconfd?", False),
        ("zebr", (CLASS, SECOND), "there is no GatewayClass zebr: did you mean gatewayClassName: zebra?", True),
        ("other", (CLASS, OTHER), "its GatewayClass other is that of a.io/b: set gatewayClassName: pyconfd", False),
        ("pyconfd", (), "no GatewayClass has the controllerName pyconfd.io/gateway: create one", False),
        ("pyconfd", (OTHER,), "no GatewayClass has the controllerName pyconfd.io/gateway: create one", False),
    ],
)
def test_why_a_class_is_not_pyconfds(name: str, classes: tuple[str, ...], wrong: str, misspelled: bool) -> None:
    made, found = gateway(f"{{gatewayClassName: {name}, {HTTP}}}"), snapshot(*classes).gatewayclasses
    assert mistaken_class(made, found) == wrong
    assert is_misspelled(made, found) is misspelled


MINE = "kind: Gateway\nmetadata: {name: web}\nspec: {gatewayClassName: pyconfd, listeners: []}\n"


@pytest.mark.parametrize(
    ("parent", "objects", "wrong"),
    [
        (Key("shop", "web"), (CLASS, MINE), ""),
        (Key("shop", "wep"), (CLASS, MINE), "there is no Gateway shop/wep: did you mean shop/web?"),
        (
            Key("other-namespace", "web"),
            (CLASS, MINE),
            "there is no Gateway other-namespace/web: did you mean shop/web?",
        ),
        (Key("x", "y"), (CLASS, MINE), "there is no Gateway x/y"),
        (Key("shop", "wep"), (MINE,), "there is no Gateway shop/wep"),
        (
            Key("shop", "web"),
            (MINE,),
            "Gateway shop/web is not pyconfd's: no GatewayClass has the controllerName pyconfd.io/gateway: create one",
        ),
    ],
)
def test_why_a_parent_is_none(parent: Key, objects: tuple[str, ...], wrong: str) -> None:
    assert mistaken_gateway(parent, snapshot(*objects)) == wrong
