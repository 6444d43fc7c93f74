"""The fragments that pyconfd ships: a set to start from for each preset, and the default of the demo.

The directory itself is the set of the presets that are in use by default, which share frontends. Another preset knows
the folder of its own (``Preset.fragments``), beside those that every set has.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from pyconfd.model.context import AUTOMATIC_PRESETS
from pyconfd.presets.registry import PRESETS

SHARED = ("00-runtime.tmpl", "01-defaults.conf", "05-stats.tmpl", "06-peers.tmpl")
"""In every set."""

_CODE = {".py", ".pyc"}
_TESTS = "tests"


def directory() -> str:
    """Return the path of the directory that holds the shipped fragments."""
    return str(files(__name__))


def of_presets(presets: Sequence[str]) -> dict[str, Path]:
    """Return the fragments of these presets by name, sorted; a preset without fragments of its own adds none."""
    root = Path(directory())
    found = {name: root / name for name in SHARED}
    for preset in presets:
        if (folder := _folder_of(preset)) is not None:
            inside = folder.iterdir() if folder == root else folder.rglob("*")
            kept = [path for path in inside if path.is_file() and path.suffix not in _CODE]
            names = {path.relative_to(folder): path for path in kept}
            found |= {str(name): path for name, path in names.items() if name.parts[0] != _TESTS}
    return dict(sorted(found.items()))


def tests_of(presets: Sequence[str]) -> dict[str, Path]:
    """Return the tests of the fragments of these presets and their fixtures, by their names beside those, sorted."""
    folders = dict.fromkeys(map(_folder_of, presets))
    found = {
        str(path.relative_to(folder)): path
        for folder in folders
        if folder is not None
        for path in (folder / _TESTS).rglob("*")
        if path.is_file()
    }
    return dict(sorted(found.items()))


def _folder_of(preset: str) -> Path | None:
    return Path(directory()) if preset in AUTOMATIC_PRESETS else PRESETS[preset].fragments
