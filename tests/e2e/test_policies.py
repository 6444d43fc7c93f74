"""Words of policies change while HAProxy runs: what they restrict is open at no moment."""

import threading
from collections import Counter
from typing import Any, Self

import pytest

from tests.e2e.test_ingress import CLASS, HOST, ingress
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask

pytestmark = pytest.mark.haproxy

LOCAL, OTHER = "127.0.0.0/8", "10.0.0.0/8"
MANY = ", ".join([LOCAL, *(f"10.{number}.0.0/16" for number in range(60))])


def saying(**words: str) -> dict[str, Any]:
    found = ingress("admin", ("/admin", "web"), day=2)
    found["metadata"]["annotations"] = {f"pyconfd.io/{name.replace('_', '-')}": text for name, text in words.items()}
    return found


class Intruder:
    """A client that asks for the path all the time, and counts what it gets."""

    def __init__(self, port: int) -> None:
        self.answers: Counter[str] = Counter()
        self._port, self._ends = port, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            self.answers[ask(self._port, HOST, path="/admin")] += 1


@pytest.mark.timeout(180)
def test_a_restricted_path_is_open_at_no_moment(appliance: Appliance) -> None:
    cluster = appliance.cluster
    cluster.load_object(CLASS)
    appliance.serve("web", {}, pods=2)
    cluster.load_object(ingress("open", ("/", "web")))
    cluster.load_object(saying(deny_networks=LOCAL))
    for name, words in {"one": {"deny_networks": OTHER, "limit_rps": "9"}, "two": {"allow_networks": OTHER}}.items():
        beside = saying(**words)  # their profiles are there, so that words of the other one need no reload
        beside["metadata"]["name"] = name
        beside["spec"]["rules"][0]["host"] = f"{name}.example.com"
        cluster.load_object(beside)
    appliance.start()
    appliance.until(appliance.settled, "the first configuration is applied and verified")
    changes: list[dict[str, str]] = [
        {"deny_networks": MANY},
        {"deny_networks": MANY, "limit_rps": "9"},
        {"deny_networks": MANY},
        {"allow_networks": OTHER},
        {"allow_networks": "no network"},
        {"allow_network": OTHER},
        {"deny_networks": MANY, "limit_rps": "1000"},
        {"deny_networks": LOCAL, "request_headers": "X-A: b", "max_body_size": "1k"},
        {"deny_networks": "0.0.0.0/0"},
    ]
    with Intruder(appliance.http) as intruder:
        for number, words in enumerate(changes):
            later = f"later-{number}.example.com"
            cluster.load_object(saying(**words))
            cluster.load_object(ingress("later", ("/", "web"), host=later))
            appliance.until(lambda later=later: ask(appliance.http, later) != "404", "what came later is applied")  # type: ignore[misc]
    assert intruder.answers.keys() == {"403"}
    assert ask(appliance.http, HOST).startswith("web-")


def policy(**fields: Any) -> dict[str, Any]:
    target = {"group": "networking.k8s.io", "kind": "Ingress", "name": "open"}
    return {
        "apiVersion": "pyconfd.io/v1alpha1",
        "kind": "RoutePolicy",
        "metadata": {"name": "internal", "namespace": NAMESPACE},
        "spec": {"targetRefs": [target, {**target, "name": "absent"}], **fields},
    }


def reasons(appliance: Appliance) -> list[str]:
    """Return what the status of the policy says, as the API server has it."""
    status = appliance.cluster.get("routepolicies", NAMESPACE, "internal").get("status") or {}
    return [each["conditions"][0]["reason"] for each in status.get("ancestors", ())]


def test_policies_whose_definition_is_installed_later(appliance: Appliance) -> None:
    cluster = appliance.cluster
    cluster.uninstall("pyconfd.io")
    cluster.load_object(CLASS)
    appliance.serve("web", {}, pods=1)
    cluster.load_object(ingress("open", ("/", "web")))
    appliance.start()
    appliance.until(lambda: ask(appliance.http, HOST).startswith("web-"), "it is served")
    cluster.install("pyconfd.io")
    # What a value cannot be closes, and so does a field that this version does not know.
    for fields, answer, expected in (
        ({"denyNetworks": [LOCAL]}, "403", ["Accepted", "TargetNotFound"]),
        ({"denyNetworks": [OTHER]}, "web-1", ["Accepted", "TargetNotFound"]),
        ({"denyNetworks": ["x"]}, "403", ["Invalid", "TargetNotFound"]),
        ({"serverTimeout": "5s"}, "web-1", ["Accepted", "TargetNotFound"]),
        ({"inNextYear": "5s"}, "403", ["Invalid", "TargetNotFound"]),
    ):
        cluster.load_object(policy(**fields))
        appliance.until(lambda answer=answer: ask(appliance.http, HOST) == answer, "the policy counts")  # type: ignore[misc]
        appliance.until(lambda expected=expected: reasons(appliance) == expected, "its status says so")  # type: ignore[misc]
    cluster.delete("routepolicies", NAMESPACE, "internal")
    appliance.until(lambda: ask(appliance.http, HOST) == "web-1", "without it, all is open")


def test_policies_that_may_not_be_read_any_more_go_on_to_count(appliance: Appliance) -> None:
    cluster = appliance.cluster
    cluster.load_object(CLASS)
    appliance.serve("web", {}, pods=1)
    cluster.load_object(policy(denyNetworks=[LOCAL]))
    cluster.load_object(ingress("open", ("/", "web")))
    appliance.start()
    appliance.until(lambda: ask(appliance.http, HOST) == "403", "the policy counts")
    for server in appliance.servers:
        server.faults.deny("routepolicies")
        server.cut_connections()
    appliance.until(lambda: any("routepolicies" in each for each in appliance.status()["problems"]), "it is told")
    cluster.load_object(ingress("later", ("/", "web"), host="later.example.com"))
    appliance.until(lambda: ask(appliance.http, "later.example.com") == "web-1", "all else is followed")
    assert ask(appliance.http, HOST) == "403"
    assert "{apiGroups: [pyconfd.io], resources: [routepolicies], verbs: [list, watch]}" in str(appliance.status())
