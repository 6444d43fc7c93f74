"""The demo's scenes are the end-to-end test of the preset: fake API servers, real haproxy, real TLS."""

import pytest

from tests.demo.configmap import scenes


@pytest.mark.haproxy
def test_every_promise_of_the_demo_holds() -> None:
    play = scenes()
    with play.stage() as stage:
        stage.populate()
        for scene in play.scenes:
            scene(stage)
