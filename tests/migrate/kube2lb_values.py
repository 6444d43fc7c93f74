"""What kube2lb's templates see, as the preset of its name gives it: the objects of ``cluster.yaml``."""

from pathlib import Path
from typing import Any

from pyconfd.model.context import Context
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.sources.file import read_snapshot

CLUSTER = Path(__file__).parents[1] / "data" / "go-templates" / "cluster.yaml"
OPTIONS = PresetOptions(own=own_options(Kube2lbOptions(domain="cluster.local")))


def kube2lb_context() -> Context:
    snapshot, refused = read_snapshot([str(CLUSTER)])
    assert not refused
    return registry.translate(snapshot, ("kube2lb",), OPTIONS)


def kube2lb_names() -> dict[str, Any]:
    return dict(kube2lb_context().names)
