"""Renders the shipped fragments from plain values and writes the files they declare."""

import json
import os
import shutil
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyconfd.fragments import directory
from pyconfd.model.context import Context
from pyconfd.model.rendering import Rendering
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.world.haproxy import BINARY_VARIABLE

HAPROXY = (
    os.environ.get("HAPROXY")
    or os.environ.get(BINARY_VARIABLE)
    or shutil.which("haproxy", path="/usr/sbin:/usr/bin")
    or ""
)
_UNUSED: dict[tuple[str, str], Renderer] = {}
GOLDEN = Path(__file__).parent.parent / "golden" / "domains"


@dataclass(frozen=True)
class Endpoint:
    """What the preset ``domains`` puts into ``endpoints``."""

    pod: str
    node: str
    zone: str
    address: str
    port: int
    family: str
    state: str


def read_context(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the domains and the operator's variables of a golden case."""
    case = json.loads(path.read_text())
    for items in case["domains"].values():
        items["endpoints"] = [Endpoint(**endpoint) for endpoint in items["endpoints"]]
    return case["domains"], case["vars"]


def render_shipped(domains: Mapping[str, Any], variables: Mapping[str, Any], files_dir: str) -> Rendering:
    """Render with an empty memory."""
    key = repr(variables), files_dir
    if key not in _UNUSED:  # to compile the fragments takes longer than most renderings
        options = RenderOptions(files_dir, variables={"ipv6": True, **variables})
        _UNUSED[key] = Renderer(read_fragments(directory()), options)
    rendered = copy(_UNUSED[key]).render(Context({"domains": domains}), curdate="")
    assert not rendered.used_curdate
    return rendered.rendering


def write_rendering(rendering: Rendering, conf: Path) -> None:
    for file in rendering.files:
        Path(file.path).parent.mkdir(parents=True, exist_ok=True)
        Path(file.path).write_text(file.content)
    conf.write_text(rendering.text)
