"""All objects of one kind vanish from the API, as after a restored backup: what they claimed is held."""

import pytest
import yaml

from tests.e2e.expect import beats, serving, undisturbed
from tests.e2e.test_gateway_api_comes_and_goes import ADDRESS, OBJECTS, WINDOW_S
from tests.e2e.test_least_rights import INGRESS
from tests.e2e.test_tls import annotations, reasons, until_presented
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask, presented_to
from tests.world.issuer import Issuer
from tests.world.ports import service_port

pytestmark = pytest.mark.haproxy

KINDS = ("ingresses", "ingressclasses", "httproutes", "gateways", "gatewayclasses")


class Stage:
    """An appliance with an Ingress and a Gateway's route beside a Service of its own."""

    def __init__(self, appliance: Appliance) -> None:
        self.appliance, self.port = appliance, service_port(ADDRESS)
        appliance.values["addresses"] = {"pool": [ADDRESS]}
        appliance.values["removal_protection"] = {"persist_s": 3600, "window_s": WINDOW_S}
        appliance.serve("routed", {})
        appliance.cluster.add_namespace("pyconfd")
        for text in (INGRESS, OBJECTS):
            for document in yaml.safe_load_all(text.format(namespace=NAMESPACE, port=self.port)):
                appliance.cluster.load_object(document)
        serving(appliance)
        appliance.until(self.serves, "the Ingress and the route are served")

    def serves(self) -> bool:
        """Return whether both are served."""
        routed = ask(self.port, "routed.example.com", address=ADDRESS)
        return {routed, ask(self.appliance.http, "ingress.example.com")} == {"routed-1"}

    def is_held(self) -> bool:
        """Return whether something is held, which the lists have confirmed."""
        return bool((self.appliance.status().get("hold") or {}).get("confirmed_at"))

    def lose(self, kind: str) -> None:
        """Make the API server list no object of a kind."""
        (server,) = self.appliance.servers
        server.faults.empty_list(kind, times=None)
        server.faults.watch_error(410, kind, times=None)


def test_what_vanished_is_served_until_it_is_back(appliance: Appliance) -> None:
    stage = Stage(appliance)
    (server,) = appliance.servers
    with undisturbed(appliance):
        for kind in KINDS:
            beats(appliance, 2 * WINDOW_S)
            stage.lose(kind)
            appliance.until(stage.is_held, f"the loss of all {kind} is held")
            assert stage.serves(), kind
            server.faults.clear()
            appliance.until(lambda: not stage.is_held() and appliance.settled(), f"the {kind} are back")
            assert stage.serves(), kind


def test_what_is_deleted_by_name_is_not_held(appliance: Appliance) -> None:
    stage = Stage(appliance)
    beats(appliance, 2 * WINDOW_S)
    appliance.cluster.delete("httproutes", NAMESPACE, "web")
    appliance.until(lambda: ask(stage.port, "routed.example.com", address=ADDRESS) == "404", "the route is gone")
    assert ask(appliance.http, "ingress.example.com") == "routed-1"
    appliance.cluster.delete_service(NAMESPACE, "routed")
    appliance.until(lambda: ask(appliance.http, "ingress.example.com") == "503", "the last Service of all is gone")
    assert not appliance.events("hold.begun")


def test_a_restart_while_routes_are_gone_serves_them(appliance: Appliance) -> None:
    stage = Stage(appliance)
    with undisturbed(appliance):
        beats(appliance, 2 * WINDOW_S)
        stage.lose("httproutes")
        appliance.until(stage.is_held, "the loss of all routes is held")
        appliance.kill()
        appliance.spawn()
        appliance.until(stage.is_held, "it is held again")
        new = appliance.scale_up("routed")
        served = {ask(stage.port, "routed.example.com", address=ADDRESS) for _ in range(10)}
        assert served <= {"routed-1", new}
        assert appliance.command("allow", appliance.status()["hold_id"]).returncode == 0
        appliance.until(lambda: ask(stage.port, "routed.example.com", address=ADDRESS) == "404", "the loss is applied")
        assert ask(appliance.http, "ingress.example.com").startswith("routed-")


def test_certificates_whose_secrets_vanished_are_presented(appliance: Appliance) -> None:
    certificates, (server,) = Issuer(appliance), appliance.servers
    serials = {f"{name}.example.com": certificates.renew(name, f"{name}.example.com") for name in ("shop", "blog")}
    for host in serials:
        name = host.partition(".")[0]
        appliance.serve(name, annotations(host, tls_secret=name))
    appliance.start()
    for host, number in serials.items():
        until_presented(appliance, host, number)
    server.faults.empty_list("secrets", times=None)
    server.faults.watch_error(410, "secrets", times=None)
    appliance.until(lambda: len(set(reasons(appliance))) > 0, "the loss is reported")
    appliance.scale_up("shop")
    appliance.until(appliance.settled, "changes are applied")
    assert {host: presented_to(appliance.https, host) for host in serials} == serials
    server.faults.clear()
    appliance.until(lambda: not reasons(appliance), "the Secrets are back")
    appliance.cluster.delete("secrets", NAMESPACE, "blog")
    until_presented(appliance, "blog.example.com", 0)
    assert presented_to(appliance.https, "shop.example.com") == serials["shop.example.com"]
