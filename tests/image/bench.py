"""``make image-bench``: from power to serving, in a machine with the real systemd; one JSON object a line."""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tests.image.bake import appliance, prepare
from tests.image.machine import Machine, lan
from tests.image.trees import missing
from tests.image.world import World

ROUNDS = 7
PAUSE_S = 0.002


def _until(condition: Callable[[], object]) -> float:
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < 120
        time.sleep(PAUSE_S)
    return time.monotonic()


def _inside(machine: Machine, unit: str) -> float:
    """Return the seconds between systemd's own start and that of a unit, as systemd has them."""
    machine.until(lambda: machine.active(unit) == "active", f"{unit} is up")
    manager = int(machine.systemctl("show", "--property=UserspaceTimestampMonotonic", "--value"))
    return (int(machine.show(unit, "ActiveEnterTimestampMonotonic")["ActiveEnterTimestampMonotonic"]) - manager) / 1e6


def _round(machine: Machine, world: World, *, fresh: bool) -> dict[str, float]:
    """Cut the power and restore it; with ``fresh`` a pod is new meanwhile, else no API server answers."""
    machine.kill()
    pod = world.scale_up("shop") if fresh else ""
    if not fresh:
        world.api.refuse()
    begin = time.monotonic()
    machine.boot()
    serving = _until(lambda: machine.ask("shop").startswith("shop-"))
    found = {"boot_to_serving_s": serving - begin, "inside_haproxy_up_s": _inside(machine, "haproxy")}
    if fresh:
        found["boot_to_fresh_s"] = _until(lambda: machine.ask("shop") == pod) - begin
        found["inside_pyconfd_ready_s"] = _inside(machine, "pyconfd")
        machine.until(lambda: (machine.status().get("generation") or {}).get("number"), "it is applied")
    world.api.listen()
    return found


def main() -> int:
    """Measure; 0 when it could be done."""
    if reason := missing():
        print(f"image-bench: {reason}", file=sys.stderr)
        return 1
    prepare()
    with tempfile.TemporaryDirectory(prefix="image-bench-") as folder, lan(), World() as world:
        world.serve("shop", pods=3)
        machine = Machine("lb1", 1, appliance(Path(folder) / "bake").layers, Path(folder) / "lb1")
        machine.prepare("/etc/pyconfd/pyconfd.toml", world.settings())
        with machine:
            machine.until(lambda: machine.ask("shop").startswith("shop-"), "the first boot serves")
            for name, fresh in (("boot with no API server", False), ("boot with an API server", True)):
                rounds = [_round(machine, world, fresh=fresh) for _ in range(ROUNDS)]
                figures = {key: round(median(one[key] for one in rounds), 3) for key in rounds[0]}
                print(json.dumps({"figure": name, "rounds": ROUNDS, **figures}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
