"""Renderers of a few templates, and what they give."""

from typing import Any

from pyconfd.model.context import Context
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.render.declared import Declarations
from pyconfd.render.engine import Renderer, RenderOptions

FILES = "/files"


def renderer(*texts: str, includable: dict[str, str] | None = None, **options: Any) -> Renderer:
    fragments = tuple(Fragment(f"{number:02}.tmpl", text) for number, text in enumerate(texts, 1))
    files = tuple(Fragment(name, text) for name, text in (includable or {}).items())
    return Renderer(FragmentSet(fragments, files), RenderOptions(FILES, **options))


def rendered(by: Renderer, names: dict[str, Any], curdate: str = "now") -> Rendering:
    return by.render(Context(names), curdate=curdate).rendering


def declarations() -> Declarations:
    return Declarations(FILES)
