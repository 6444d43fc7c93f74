"""What tests of targets share: a context, settings of a target in a folder, a memory there."""

from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyconfd.model.context import Context, EndpointTotals
from pyconfd.predecessors.targets.target import Target
from pyconfd.render.engine import RenderOptions
from pyconfd.settings import TargetSettings


def context(word: str = "one", ready: int = 1) -> Context:
    return Context(MappingProxyType({"word": word}), totals=EndpointTotals(ready, ready))


def settings(folder: Path, name: str = "web", **changes: Any) -> TargetSettings:
    template = folder / f"{name}.tpl"
    if not template.exists():
        template.write_text("word {{ word }}\n")
    values = {
        "name": name,
        "template": str(template),
        "output": str(folder / f"{name}.conf"),
        "notify": f"command:echo told >> {folder}/{name}.log",
        **changes,
    }
    return TargetSettings(**values)


def target(folder: Path, name: str = "web", **changes: Any) -> Target:
    return Target(settings(folder, name, **changes), RenderOptions(str(folder)), str(folder / "state"))


def told(folder: Path, name: str = "web") -> int:
    log = folder / f"{name}.log"
    return len(log.read_text().splitlines()) if log.exists() else 0
