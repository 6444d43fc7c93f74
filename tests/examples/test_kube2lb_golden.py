"""Each folder of tests/golden/kube2lb holds objects, flags, and what comes of them.

``template.tpl`` is a Go template, migrated and then rendered; without one it is the shipped example for HAProxy. Those
that begin with ``readme`` have annotations, flags and snippets as they stand in kube2lb's README.
``PYCONFD_UPDATE_GOLDEN=1 pytest tests/examples`` writes the results again; read the difference before you commit it.
"""

import os
import subprocess
from pathlib import Path

import pytest

from pyconfd.model.context import Refusal
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.predecessors.migrate.migration import migrate
from pyconfd.predecessors.migrate.report import InputFile, System
from pyconfd.presets import registry
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.file import read_snapshot
from pyconfd.wiring import base_options
from tests.cli.invoking import daemon_settings
from tests.fragments.shipped import HAPROXY

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "kube2lb"
SHIPPED = ROOT / "pyconfd" / "examples" / "kube2lb" / "haproxy" / "haproxy.cfg.tmpl"
CASES = sorted(path.name for path in GOLDEN.iterdir())
UPDATE = "PYCONFD_UPDATE_GOLDEN" in os.environ


def render(folder: Path) -> tuple[str, tuple[Refusal, ...]]:
    resolved = daemon_settings("--preset", "kube2lb", *(folder / "flags.txt").read_text().splitlines())
    snapshot, unreadable = read_snapshot([str(folder / "snapshot.yaml")])
    context = registry.translate(snapshot, ("kube2lb",), base_options(resolved.settings))
    fragments = FragmentSet((Fragment("haproxy.tmpl", template(folder)),))
    rendered = Renderer(fragments, RenderOptions("/files")).render(context, curdate="")
    return rendered.rendering.text, (*unreadable, *context.refused)


def template(folder: Path) -> str:
    own = folder / "template.tpl"
    if not own.exists():
        return SHIPPED.read_text()
    migration = migrate(System.KUBE2LB, [InputFile("haproxy.tpl", own.read_text())])
    assert migration.is_complete
    [output] = migration.outputs
    return output.text


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    folder = GOLDEN / case
    text, refused = render(folder)
    given = {"haproxy.cfg": text}
    if refused:
        given["refused.txt"] = "".join(f"{r.ref}: {r.field}: {r.value}: {r.reason}\n" for r in refused)
    if UPDATE:
        for name, content in given.items():
            (folder / name).write_text(content)
    expected = {
        name: (folder / name).read_text() for name in ("haproxy.cfg", "refused.txt") if (folder / name).exists()
    }
    assert given == expected


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
@pytest.mark.parametrize("case", [case for case in CASES if not (GOLDEN / case / "template.tpl").exists()])
def test_haproxy_takes_what_is_whole(case: str) -> None:
    command = [HAPROXY, "-c", "-f", str(GOLDEN / case / "haproxy.cfg")]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_readme_is_there() -> None:
    assert sum(case.startswith("readme") for case in CASES) == 2
