"""The example of python-confd's README: its annotated Endpoints, the dictionary, and the lines of its templates.

The README names backends ``begrafana_k8s...``; python-confd made ``begrafana.k8s...``, and so it is here.
"""

import json
from pathlib import Path

from pyconfd.model.rendering import FragmentSet
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.file import read_snapshot
from tests.fragments.python_confd import fragments

README = Path(__file__).parents[1] / "golden" / "python-confd" / "readme"


def test_the_readmes_example() -> None:
    snapshot, refused = read_snapshot([str(README / "endpoints.yaml")])
    context = registry.translate(snapshot, ("domains",), PresetOptions())
    assert (refused, context.refused) == ((), ())
    domains = context.names["domains"]
    keys = ("ips", "proto", "port")
    seen = {name: {key: domains[name][key] for key in keys} for name in domains}
    assert seen == json.loads((README / "domains.json").read_text())

    text = Renderer(FragmentSet(fragments()), RenderOptions("/files")).render(context, curdate="").rendering.text
    given = iter(text.splitlines())
    for line in (README / "lines.txt").read_text().splitlines():
        assert line in given, line
