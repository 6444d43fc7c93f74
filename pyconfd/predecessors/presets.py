"""The presets of the predecessors."""

from pyconfd.predecessors.configmap import ConfigmapPreset
from pyconfd.predecessors.hosts import HostsPreset
from pyconfd.predecessors.kube2lb.preset import Kube2lbPreset
from pyconfd.predecessors.kubefigurator.preset import KubefiguratorPreset
from pyconfd.presets.preset import Preset

PRESETS: tuple[Preset, ...] = (KubefiguratorPreset(), Kube2lbPreset(), ConfigmapPreset(), HostsPreset())
