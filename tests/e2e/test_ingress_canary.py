"""A rollout as Flagger does it with ingress-nginx: a canary Ingress is written, and its weight step by step."""

import copy
from collections import Counter
from functools import partial
from typing import Any

import pytest

from tests.e2e.expect import undisturbed
from tests.e2e.test_ingress import ingress
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask

pytestmark = pytest.mark.haproxy

HOST = "shop.example.com"
NGINX = "nginx.ingress.kubernetes.io/"
TIMES = 100


def written(name: str, service: str, **annotations: str) -> dict[str, Any]:
    found = ingress(name, ("/", service), host=HOST)
    found["metadata"]["annotations"] = {f"{NGINX}{each.replace('_', '-')}": text for each, text in annotations.items()}
    found["spec"]["ingressClassName"] = "nginx"
    return found


def has_share(appliance: Appliance, weight: int) -> bool:
    return abs(shares(appliance)["shop-canary"] - weight) <= 3


def shares(appliance: Appliance) -> Counter[str]:
    return Counter(ask(appliance.http, HOST).rpartition("-")[0] for _ in range(TIMES))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("words", [{}, {"whitelist_source_range": "127.0.0.0/8", "proxy_read_timeout": "30"}])
def test_steps_of_flagger_take_no_reload_and_fail_no_request(appliance: Appliance, words: dict[str, str]) -> None:
    appliance.values["ingress"] = {"nginx_classes": ["nginx"]}
    cluster = appliance.cluster
    cluster.add_namespace("pyconfd")
    for name, pods in (("shop", 3), ("shop-canary", 2)):
        appliance.serve(name, {}, pods=pods)
    main = written("shop", "shop", **words)
    cluster.load_object(main)
    # The first backend of any rule in a cluster is a reload, whatever it is for.
    other = written("other", "shop", proxy_body_size="1m")
    other["spec"]["rules"][0]["host"] = "other.example.com"
    cluster.load_object(other)
    appliance.start()
    appliance.until(appliance.settled, "the first configuration is applied and verified")
    worker, reloads = appliance.haproxy.worker(), appliance.status()["reloads_by_reason"]

    copied = {name.removeprefix(NGINX): text for name, text in main["metadata"]["annotations"].items()}
    canary = written("shop-canary", "shop-canary", **copied, canary="true", canary_weight="0")
    weighing = copy.deepcopy(canary)
    with undisturbed(appliance):
        cluster.load_object(canary)
        appliance.until(appliance.settled, "the canary is applied")
        assert shares(appliance) == {"shop": TIMES}
        for weight in (5, 50, 100, 0):
            weighing["metadata"]["annotations"][f"{NGINX}canary-weight"] = str(weight)
            cluster.load_object(weighing)
            appliance.until(partial(has_share, appliance, weight), "the weight holds")
        cluster.delete("ingresses", NAMESPACE, "shop-canary")
        appliance.until(appliance.settled, "the canary is gone")
        assert shares(appliance) == {"shop": TIMES}
    assert (appliance.haproxy.worker(), appliance.status()["reloads_by_reason"]) == (worker, reloads)
