"""Compiles the shipped fragments where it is imported, so that forks of that process find them compiled."""

from pyconfd import fragments
from pyconfd.model.context import AUTOMATIC_PRESETS
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.render.engine import Renderer, RenderOptions

_FILES = [
    Fragment(name, path.read_text("utf-8"))
    for name, path in fragments.of_presets(AUTOMATIC_PRESETS).items()
    if path.suffix in {".tmpl", ".conf", ".j2"} and "/" not in name
]
Renderer(
    FragmentSet(
        tuple(each for each in _FILES if not each.name.endswith(".j2")),
        tuple(each for each in _FILES if each.name.endswith(".j2")),
    ),
    RenderOptions("/files"),
)
