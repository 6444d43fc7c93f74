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
    assert own or preset in {scene.preset for scene in smuggling.SCENES.values()}


@PRESETS
def test_each_preset_is_fuzzed(preset: str) -> None:
    assert preset in {name.removesuffix("-tcp") for name in scenes.SCENES} | {*pods.PRESETS, *ownership.PRESETS}


@PRESETS
def test_fragments_of_each_preset_have_tests(preset: str) -> None:
    """They are run by tests/cli/test_test.py."""
    own = set(fragments.of_presets([preset])) - set(fragments.SHARED)
    assert not own or any(name.endswith(".test.toml") for name in fragments.tests_of([preset]))


@PRESETS
def test_each_preset_is_on_a_page(preset: str) -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md") if page.name != "settings.md")
    assert re.search(rf"`{preset}`|preset {preset}\b", pages)
