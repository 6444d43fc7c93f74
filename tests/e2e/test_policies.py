"""Words of policies change while HAProxy runs: what they restrict is open at no moment."""

import threading
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, Self

import pytest

from pyconfd.presets.policies.attached import field_of
from tests.e2e.test_ingress import CLASS, HOST, ingress
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask
from tests.world.cluster import Cluster

pytestmark = pytest.mark.haproxy

LOCAL, OTHER = "127.0.0.0/8", "10.0.0.0/8"
MANY = ", ".join([LOCAL, *(f"10.{number}.0.0/16" for number in range(60))])


def saying(way: str, name: str = "admin", host: str = HOST, **words: str) -> list[dict[str, Any]]:
    """Return an Ingress that says words, by annotations or by a policy, which has to be there first."""
    found, named = ingress(name, ("/admin", "web"), host=host, day=2), {}
    for word, text in words.items():
        named[word.replace("_", "-")] = text
    if way == "annotation":
        found["metadata"]["annotations"] = {f"pyconfd.io/{word}": text for word, text in named.items()}
        return [found]
    target = {"group": "networking.k8s.io", "kind": "Ingress", "name": name}
    said = policy(name, target, **{field_of(word): text for word, text in named.items()})
    return [said, found]


def policy(name: str, *targets: dict[str, str], **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "pyconfd.io/v1alpha1",
        "kind": "RoutePolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"targetRefs": list(targets), **fields},
    }


def load_all(cluster: Cluster, objects: Iterable[dict[str, Any]]) -> None:
    for each in objects:
        cluster.load_object(each)


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
@pytest.mark.parametrize("way", ["annotation", "policy"])
def test_a_restricted_path_is_open_at_no_moment(appliance: Appliance, way: str) -> None:
    cluster = appliance.cluster
    cluster.load_object(CLASS)
    appliance.serve("web", {}, pods=2)
    cluster.load_object(ingress("open", ("/", "web")))
    load = partial(load_all, cluster)
    load(saying(way, deny_networks=LOCAL))
    for name, words in {"one": {"deny_networks": OTHER, "limit_rps": "9"}, "two": {"allow_networks": OTHER}}.items():
        # Their profiles are there, so that words of the other one need no reload.
        load(saying(way, name, f"{name}.example.com", **words))
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
            load(saying(way, **words))
            cluster.load_object(ingress("later", ("/", "web"), host=later))
            appliance.until(lambda later=later: ask(appliance.http, later) != "404", "what came later is applied")  # type: ignore[misc]
    assert intruder.answers.keys() == {"403"}
    assert ask(appliance.http, HOST).startswith("web-")


def internal(**fields: Any) -> dict[str, Any]:
    """Return a policy for an Ingress that is there, and for one that is not."""
    target = {"group": "networking.k8s.io", "kind": "Ingress", "name": "open"}
    return policy("internal", target, {**target, "name": "absent"}, **fields)


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
        cluster.load_object(internal(**fields))
        appliance.until(lambda answer=answer: ask(appliance.http, HOST) == answer, "the policy counts")  # type: ignore[misc]
        appliance.until(lambda expected=expected: reasons(appliance) == expected, "its status says so")  # type: ignore[misc]
    cluster.delete("routepolicies", NAMESPACE, "internal")
    appliance.until(lambda: ask(appliance.http, HOST) == "web-1", "without it, all is open")


def test_policies_that_may_not_be_read_any_more_go_on_to_count(appliance: Appliance) -> None:
    cluster = appliance.cluster
    cluster.load_object(CLASS)
    appliance.serve("web", {}, pods=1)
    cluster.load_object(internal(denyNetworks=[LOCAL]))
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
