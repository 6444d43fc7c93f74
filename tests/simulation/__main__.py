"""``python -m tests.simulation --seed 1 --steps 10000``: the long form; ``make soak`` runs it.

A failing run prints the seed, the promise that was not kept, and the fewest steps found that break it, which it writes
to a file; ``--replay`` plays such a file again, and leaves out more of it where that is possible.
"""

import argparse
import ast
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.simulation.shrinking import shrunk
from tests.simulation.simulation import BrokenPromiseError, Simulation
from tests.simulation.steps import Step, random_steps

_MEMORY = Path("/dev/shm")


def play(steps: Sequence[Step], kind: type[Simulation] = Simulation, *, told_every: int = 0) -> Simulation:
    """Play in a folder of its own; raises BrokenPromiseError."""
    began = time.monotonic()

    def progress(at: int) -> None:
        if told_every and at and at % told_every == 0:
            print(f"{at} steps, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    in_memory = str(_MEMORY) if os.access(_MEMORY, os.W_OK) else None  # nothing here is to outlive the machine
    with tempfile.TemporaryDirectory(prefix="sim-", dir=in_memory) as folder:
        simulation = kind(Path(folder))
        try:
            simulation.play(steps, progress)
        except BrokenPromiseError:
            for entry in simulation.logs[-60:] if told_every else ():
                print(entry, file=sys.stderr)
            raise
        finally:
            simulation.close()
    return simulation


def main(arguments: Sequence[str] | None = None, kind: type[Simulation] = Simulation) -> int:
    """Run; return 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Random faults against pyconfd.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--replay", default="", help="a file with steps, as a failing run writes it")
    parser.add_argument("--shrink", type=int, default=60, help="how many runs to spend on fewer steps; 0: none")
    parser.add_argument("--write", default="", help="where the fewest steps go (default: simulation-SEED.steps)")
    options = parser.parse_args(arguments)
    if options.replay:
        steps = [Step(*each) for each in ast.literal_eval(Path(options.replay).read_text(encoding="utf-8"))]
    else:
        steps = random_steps(options.seed, options.steps)
    began, what = time.monotonic(), options.replay or f"seed {options.seed}"

    def fails(some: Sequence[Step]) -> bool:
        try:
            play(some, kind)
        except BrokenPromiseError:
            return True
        return False

    try:
        done = play(steps, kind, told_every=500)
    except BrokenPromiseError as error:
        print(f"{what}: {error}", flush=True)
        fewest = shrunk(steps[: error.at + 1], fails, most=options.shrink)
        file = Path(options.write or f"simulation-{options.seed}.steps")
        file.write_text(f"[\n{''.join(f'    {tuple(each)},{chr(10)}' for each in fewest)}]\n", encoding="utf-8")
        print(f"the fewest steps found that break a promise ({len(fewest)} of {error.at + 1}) are in {file}:")
        print(f"make soak REPLAY={file}")
        return 1
    total, took_s = done.survived.total(), time.monotonic() - began
    print(f"{what}, {len(steps)} steps in {took_s:.0f} s: every promise kept; survived {total} faults:")
    for fault, count in sorted(done.survived.items()):
        print(f"  {count:6} {fault}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
