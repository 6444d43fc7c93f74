"""The tests; what they import knows the presets of predecessors, as the composition root has it."""

from pyconfd.predecessors.presets import PRESETS
from pyconfd.presets import registry

registry.register(*PRESETS)
