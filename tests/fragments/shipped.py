"""Renders the shipped fragments from plain values and writes the files they declare."""

import json
import os
import shutil
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyconfd.fragments import directory, of_presets
from pyconfd.haproxy.config.certificates import with_stubs
from pyconfd.model.context import Context
from pyconfd.model.rendering import SECRETS_FOLDER, Fragment, FragmentSet, Rendering
from pyconfd.presets.policy import ClaimOptions, network
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.presets.ingress.objects import ADDRESSES, Obj, service
from tests.world.backends import Backends
from tests.world.haproxy import BINARY_VARIABLE, HaproxyProcess

HAPROXY = (
    os.environ.get("HAPROXY")
    or os.environ.get(BINARY_VARIABLE)
    or shutil.which("haproxy", path="/usr/sbin:/usr/bin")
    or ""
)
OPTIONS = PresetOptions(addresses=ADDRESSES, claims=ClaimOptions(allow_endpoints=(network("127.0.0.0/8"),)))
"""Those of a balancer whose pods are on this machine."""
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


def shipped_for(*presets: str) -> FragmentSet:
    """Return the fragments that are shipped for presets."""
    texts = [Fragment(name, path.read_text()) for name, path in of_presets(presets).items()]
    included = tuple(each for each in texts if each.name.endswith(".j2"))
    return FragmentSet(tuple(each for each in texts if each not in included), included)


def start_shipped(haproxy: HaproxyProcess, context: Context, ports: Mapping[str, int], folder: Path) -> Rendering:
    """Start HAProxy with what the shipped fragments make of a context, on the ports ``http`` and ``https``.

    Return that.
    """
    binds = {f"{each}_bind": f"127.0.0.1:{ports[each]}" if each in ports else "" for each in ("http", "https")}
    variables = {**binds, "stats_bind": "", "runtime_socket": haproxy.stats_socket}
    renderer = Renderer(read_fragments(directory()), RenderOptions(str(folder / "files"), variables=variables))
    rendering = renderer.render(context, curdate="").rendering
    write_rendering(rendering, haproxy.conf)
    haproxy.start()
    return rendering


def service_of(pods: Backends, name: str, *addresses: str, **more: Any) -> list[Obj]:
    """Return a Service whose port http leads to the port that the pods of a test listen on."""
    made = service(name, *addresses, **more)
    made[1]["ports"] = [{"name": "http", "port": pods.port}]
    return made


def read_context(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the domains and the operator's variables of a golden case."""
    case = json.loads(path.read_text())
    for items in case["domains"].values():
        items["endpoints"] = [Endpoint(**endpoint) for endpoint in items["endpoints"]]
    return case["domains"], case["vars"]


def context_of(domains: Mapping[str, Any], files_dir: str = "") -> Context:
    """Return the names that the shipped fragments read; certificates of domains are below ``files_dir``."""
    given = {
        domain: {"tls": None, "below_foreign": False, "unlogged": False, **items} for domain, items in domains.items()
    }
    for items in given.values():
        if items["tls"] and items["tls"]["path"]:
            items["tls"] = {**items["tls"], "path": f"{files_dir}/secrets/{items['tls']['path']}"}
    tls = {
        "default_certificate": "",
        "in_use": any(items["tls"] for items in given.values()),
        "reads_hello": any(items["proto"] == "https" or items["below_foreign"] for items in given.values()),
    }
    return Context({"domains": given, "tls": tls})


def render_shipped(domains: Mapping[str, Any], variables: Mapping[str, Any], files_dir: str) -> Rendering:
    """Render with an empty memory."""
    key = repr(variables), files_dir
    if key not in _UNUSED:  # to compile the fragments takes longer than most renderings
        options = RenderOptions(files_dir, variables={"ipv6": True, **variables})
        _UNUSED[key] = Renderer(read_fragments(directory()), options)
    rendered = copy(_UNUSED[key]).render(context_of(domains, files_dir), curdate="")
    assert not rendered.used_curdate
    return rendered.rendering


def write_rendering(rendering: Rendering, conf: Path) -> None:
    stubs = [file for file in with_stubs(rendering).files if f"/{SECRETS_FOLDER}/" in file.path]
    for file in (*stubs, *rendering.files):
        Path(file.path).parent.mkdir(parents=True, exist_ok=True)
        Path(file.path).write_text(file.content)
    conf.write_text(rendering.text)
