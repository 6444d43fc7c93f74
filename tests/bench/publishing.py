"""From the creation of an Ingress to its address in its status: a whole daemon, a real haproxy, a fake API server."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.figures import Figure, median
from tests.e2e.expect import serving
from tests.e2e.test_status import PUBLISHED, Stage
from tests.world.appliance import Appliance

ROUNDS, STORM = 30, 300
GOAL_S = 2.0
CALM_S = 20.0


def status_published() -> Iterator[Figure]:
    """Return how long single Ingresses take, how many writes a storm of them is, and how many follow in quiet."""
    with tempfile.TemporaryDirectory(prefix="pyconfd-bench-") as name, Appliance(Path(name)) as appliance:
        stage = Stage(appliance)
        serving(appliance)
        stage.ingress("first")
        stage.until(lambda: stage.published("first") == PUBLISHED, "the writer has the Lease")
        times = []
        for number in range(ROUNDS):
            began = time.monotonic()
            stage.ingress(f"web-{number}")
            while stage.published(f"web-{number}") != PUBLISHED:
                time.sleep(0.005)
            times.append(time.monotonic() - began)
            time.sleep(0.5)
        yield Figure("status_published_p50", median(times), "s", GOAL_S)
        yield Figure("status_published_max", max(times), "s", GOAL_S)
        before, began = stage.writes(), time.monotonic()
        for number in range(STORM):
            stage.ingress(f"storm-{number}")
        stage.until(
            lambda: all(stage.published(f"storm-{number}") == PUBLISHED for number in range(STORM)), "all are published"
        )
        yield Figure(f"status_storm_{STORM}_s", time.monotonic() - began, "s")
        time.sleep(CALM_S)
        yield Figure(f"status_storm_{STORM}_writes", stage.writes() - before, "writes", STORM)
