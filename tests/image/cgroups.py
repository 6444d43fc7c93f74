"""A control group for each machine: two with the same names for their units would see each other's processes."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers")
"""There where this machine has only version 2."""


def _hierarchies() -> Iterator[Path]:
    """Return this process's group in each hierarchy in which systemd makes groups."""
    paths: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        mounted = before.split(" ")[4]
        if kind == "cgroup2":
            yield Path(mounted + paths[""])
        elif kind == "cgroup":
            found = [name for name in options.split(",") if name in paths and name != "cpuset"]
            yield from (Path(mounted + paths[name]) for name in found[:1])


def make(name: str) -> list[Path]:
    groups = [path / f"pyconfd-test-{os.getpid()}-{name}" for path in _hierarchies()]
    for group in groups:
        group.mkdir(exist_ok=True)
    return groups


def remove(groups: list[Path]) -> None:
    """Remove them, with what a machine made in them."""
    for group in groups:
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
