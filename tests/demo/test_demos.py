"""The scenes of the demos are the end-to-end tests of the presets: fake API servers; real haproxy, nginx and TLS.

Those of the presets that are in use by default are repeated by tests/e2e.
"""

import importlib

import pytest

from pyconfd.model.context import AUTOMATIC_PRESETS, PresetName


@pytest.mark.haproxy
@pytest.mark.parametrize("preset", sorted(set(PresetName) - set(AUTOMATIC_PRESETS)))
def test_every_promise_of_the_demo_holds(preset: str) -> None:
    play = importlib.import_module(f"tests.demo.{preset}").scenes()
    with play.stage() as stage:
        stage.populate()
        for scene in play.scenes:
            scene(stage)
