"""``python -m tests.vip.bench [NAME,...]``: what each fault costs; one JSON object a line.

``REPS`` is how often each fault is repeated (20), ``LONG_S`` how long storms and packet loss last (60). Gaps are from
the last good to the first good answer to a client that opens a new connection each 5 ms and gives one up after 0.4 s;
the time with two holders is from what the kernels say. ``hook_at_rest`` is what the hook needs while nothing happens.
"""

import json
import math
import os
import statistics
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout

import psutil

from tests.vip.bed import Bed, missing
from tests.vip.faults import Fault, faults
from tests.vip.striking import Outcome, strike, wrongs

LIMIT_S = 0.4
REST_S = 20.0


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return the median, the 99th percentile (nearest rank) and the largest."""
    ordered = sorted(values)
    rank = max(1, math.ceil(len(ordered) * 0.99))
    return {"p50": round(statistics.median(ordered), 1), "p99": round(ordered[rank - 1], 1)}


def repeated(fault: Fault, repetitions: int) -> tuple[list[Outcome], list[str]]:
    """Return what came of each repetition, and what should not have; after an exception the bed is built again."""
    outcomes: list[Outcome] = []
    wrong: list[str] = []
    with ExitStack() as stack:
        bed: Bed | None = None
        for _ in range(repetitions):
            try:
                if bed is None or fault.fresh:
                    stack.close()
                    bed = stack.enter_context(Bed(fault.nodes, cluster=True, clocks=fault.clocks, ping_timeout_s=0.2))
                outcome = strike(bed, fault, LIMIT_S)
            except AssertionError as error:
                sys.stderr.write(traceback.format_exc())
                if bed is not None:
                    with redirect_stdout(sys.stderr):
                        bed.show()
                wrong.append(str(error).partition("\n")[0])
                bed = None
                continue
            outcomes.append(outcome)
            wrong += wrongs(fault, outcome)
    return outcomes, wrong


def measure(name: str, fault: Fault, repetitions: int) -> bool:
    """Print what was measured; return whether everything was right, and the goal met."""
    outcomes, wrong = repeated(fault, repetitions)
    shown: dict[str, object] = {"fault": name, "repetitions": repetitions, "wrong": wrong}
    met = None
    if outcomes:
        gap = percentiles([one.new["gap_ms"] for one in outcomes]) if fault.serves else None
        met = gap["p50"] < fault.goal_ms if gap and fault.goal_ms else None
        shown |= {
            "gap_ms": gap,
            "failed_new": percentiles([one.new["failed"] for one in outcomes]),
            "failed_kept": percentiles([one.kept["failed"] for one in outcomes]),
            "broken_kept": percentiles([one.kept["broken"] for one in outcomes]),
            "two_holders_ms": percentiles([one.double_s * 1000 for one in outcomes]),
            "settled_ms": percentiles([one.settled_s * 1000 for one in outcomes]),
        }
        alarms = [one.alarm_s * 1000 for one in outcomes if one.alarm_s is not None]
        shown |= {"alarm_ms": percentiles(alarms)} if alarms else {}
    shown |= {"goal_ms": fault.goal_ms, "met": met, "load": round(os.getloadavg()[0], 1)}
    print(json.dumps(shown), flush=True)
    return met is not False and not wrong


def measure_hook() -> None:
    """Print what a hook needs for :data:`REST_S` while nothing happens, and how long one takes to start."""
    with Bed(cluster=True) as bed:
        hooks = [psutil.Process(node.processes["hook"].pid) for node in bed.nodes]
        before = [sum(hook.cpu_times()[:2]) for hook in hooks]
        time.sleep(REST_S)
        used = [sum(hook.cpu_times()[:2]) - was for hook, was in zip(hooks, before, strict=True)]
        resident = max(hook.memory_info().rss for hook in hooks)
        hooks[0].terminate()
        hooks[0].wait(30)
        began = time.monotonic()
        bed.nodes[0].start_hook()
        started_s = time.monotonic() - began
    shown = {
        "fault": "hook_at_rest", "resident_mb": round(resident / 1e6, 1),
        "cpu_percent": round(max(used) / REST_S * 100, 2), "start_ms": round(started_s * 1000),
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    print(json.dumps(shown), flush=True)


def main(only: str) -> int:
    """Measure the faults whose names hold one of ``only``, separated by commas; return 2 where none does."""
    if why := missing():
        print(json.dumps({"skipped": why}))
        return 0
    table = faults(float(os.environ.get("LONG_S") or 60))
    repetitions = int(os.environ.get("REPS") or 20)
    words = only.split(",")
    if any(word in "hook_at_rest" for word in words):
        measure_hook()
    exact = [name for name in words if name in table]
    chosen = exact if len(exact) == len(words) else [name for name in table if any(word in name for word in words)]
    if not chosen and "hook_at_rest" not in words:
        sys.stderr.write(f"no fault is named {only}; there are: hook_at_rest, {', '.join(table)}\n")
        return 2
    good = True
    for name in chosen:
        if why := table[name].missing():
            print(json.dumps({"fault": name, "skipped": why}), flush=True)
        else:
            good &= measure(name, table[name], repetitions)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
