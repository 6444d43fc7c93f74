"""What a preset has beside its code; tests/cli/test_rbac.py and tests/demo miss its rights and its demo themselves."""

import re

import pytest

from pyconfd import fragments
from pyconfd.model.context import PresetName
from tests.docs.examples import ROOT
from tests.fuzz import ownership, pods, scenes
from tests.presets import smuggling

PRESETS = pytest.mark.parametrize("preset", [each.value for each in PresetName])


@PRESETS
def test_hostile_values_of_each_preset_are_tried(preset: str) -> None:
    own = [*(ROOT / "tests" / "presets" / preset).glob("test_hostile_*.py")]
    scenes_of = {scene.preset for scene in smuggling.SCENES.values()}
    assert own or preset in scenes_of, f"add a scene of {preset} to SCENES of tests/presets/smuggling.py"


@PRESETS
def test_each_preset_is_fuzzed(preset: str) -> None:
    known = {name.removesuffix("-tcp") for name in scenes.SCENES} | {*pods.PRESETS, *ownership.PRESETS}
    assert preset in known, f"add a scene of {preset} to SCENES of tests/fuzz/scenes.py"


@PRESETS
def test_fragments_of_each_preset_have_tests(preset: str) -> None:
    """They are run by tests/cli/test_test.py."""
    own = set(fragments.of_presets([preset])) - set(fragments.SHARED)
    tested = any(name.endswith(".test.toml") for name in fragments.tests_of([preset]))
    assert not own or tested, f"add tests/{preset}.test.toml beside the fragments of {preset}"


@PRESETS
def test_each_preset_is_on_a_page(preset: str) -> None:
    pages = (page.read_text() for page in (ROOT / "docs").rglob("*.md") if page.name != "settings.md")
    named = any(re.search(rf"`{preset}`|preset {preset}\b", page) for page in pages)
    assert named, f"no page in docs names the preset `{preset}`"
