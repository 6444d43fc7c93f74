"""Renders golden cases of the preset ``kubefigurator`` with the fragments that are shipped for it."""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import yaml

from pyconfd.fragments import of_presets
from pyconfd.model.context import Refusal
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering, natural_order
from pyconfd.model.snapshot import HostFacts, Snapshot
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.file import read_snapshot
from tests.world.objects import with_service_defaults

GOLDEN = Path(__file__).parent.parent / "golden" / "kubefigurator"


@dataclass(frozen=True)
class Case:
    """``options.json``: the cluster's name, the certificates below the ssl directory, this machine's addresses."""

    snapshot: Snapshot
    options: PresetOptions


def read_case(folder: Path, ssl_dir: str) -> Case:
    given = json.loads((folder / "options.json").read_text())
    snapshot = _as_the_api_server_would_have_it(folder)
    certificates = {f"{ssl_dir}/{name}": fault for name, fault in given["certificates"].items()}
    host = HostFacts(addresses=frozenset(given.get("addresses", ["127.0.0.1"])), certificates=certificates)
    own = KubefiguratorOptions(
        cluster=given.get("cluster", ""), ssl_dir=ssl_dir, node_ports=given.get("node_ports", True)
    )
    parts = {name: getattr(snapshot, name) for name in ("services", "endpointslices", "endpoints", "nodes")}
    return Case(Snapshot(**parts, host=host), PresetOptions(own=own_options(own)))


def _as_the_api_server_would_have_it(folder: Path) -> Snapshot:
    """Read the documents; Services get what the API server fills in, above all their node ports."""
    documents = [
        each for path in sorted(folder.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text()) if each
    ]
    items = [with_service_defaults(each) if each["kind"] == "Service" else each for each in documents]
    with NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": items}, file)
        file.flush()
        snapshot, refused = read_snapshot([file.name])
    assert refused == ()
    return snapshot


def shipped_fragments() -> FragmentSet:
    paths = of_presets(["kubefigurator"])
    return FragmentSet(tuple(Fragment(name, paths[name].read_text()) for name in natural_order(paths)))


def render_case(case: Case, files_dir: str) -> tuple[Rendering, tuple[Refusal, ...]]:
    context = registry.translate(case.snapshot, ("kubefigurator",), case.options)
    rendered = Renderer(shipped_fragments(), RenderOptions(files_dir)).render(context, curdate="")
    assert not rendered.used_curdate
    return rendered.rendering, context.refused
