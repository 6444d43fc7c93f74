"""What docs/migrating says of presets, commands, options and removed lines is what pyconfd does."""

import os
import re
from pathlib import Path

import pytest

from pyconfd.haproxy.config.removed import find_in_lines
from pyconfd.model.context import PresetName
from pyconfd.predecessors.migrate.report import System
from pyconfd.settings.table import TABLE
from tests.cli.invoking import invoke
from tests.docs.examples import ROOT

PAGE = (ROOT / "docs" / "migrating" / "python-confd.md").read_text(encoding="utf-8")
OPTIONS = re.findall(r"^\| `(--[a-z-]+)` \| `([A-Z_]+)` \| `([a-z._]+)` \|", PAGE, re.MULTILINE)
REMOVED = re.findall(r"^\| `([^`]+)` \| `(http-(?:request|response) [^`]+|option [^`]+)` \|$", PAGE, re.MULTILINE)


def test_the_table_has_all_options_of_python_confd() -> None:
    assert {path for _, _, path in OPTIONS} == {row.path for row in TABLE.values() if row.old_env}
    assert len(OPTIONS) == 11


@pytest.mark.parametrize(("flag", "variable", "path"), OPTIONS)
def test_an_option_has_the_names_that_the_table_gives_it(flag: str, variable: str, path: str) -> None:
    assert flag in TABLE[path].flags
    assert variable == TABLE[path].old_env


@pytest.mark.parametrize(("line", "today"), REMOVED)
def test_a_removed_line_is_replaced_as_the_page_says(line: str, today: str) -> None:
    [found] = find_in_lines([line])
    assert str(found.replacement) == f"write: {today}"


def test_the_table_of_removed_lines_is_read() -> None:
    assert len(REMOVED) >= 4


INDEX = (ROOT / "docs" / "migrating" / "index.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| `([a-z0-9]+)`[^|]*\| \[([a-z0-9-]+)\]\([^)]*\) \| `make demo(?: PRESET=([a-z0-9]+))?` \|"
    r" `pyconfd migrate ([a-z0-9-]+) ([^`]+)` \| \[page\]\(([a-z0-9-]+)\.md\) \|$",
    INDEX,
    re.MULTILINE,
)
COMMANDS = sorted(set(re.findall(r"`pyconfd migrate ([a-z0-9-]+) ([^`-][^`]*)`", INDEX)))
FILES = {
    "pyconfd.env": "APISERVERS=https://10.31.12.49:6443\nLOGLEVEL=info\n",
    "02-http.tmpl": "frontend a\n{% for domain in domains %}\n    # {{ domain }}\n{% endfor %}\n\n",
    "keepalived.conf": "vrrp_instance a {\ninterface eth0\nvirtual_router_id 7\n virtual_ipaddress {\n10.0.0.5\n}\n}\n",
    "haproxy.tpl": "global\n{{ range .Services }}    # {{ . }}\n{{ end }}",
    "run.sh": "kube2lb -template=haproxy.tpl -config=haproxy.cfg -domain=cluster.local -notify=debug:\n",
    "loop.sh": "haproxy-kubefigurator --etcd-host https://etcd1:2379 --cluster ny apply\n",
    "haproxy.cfg": "global\n    maxconn 100\n",
    "config.yaml": "kind: ConfigMap\nmetadata: {name: config, namespace: lb}\ndata:\n  template: |\n    global\n",
    "lb.env": "K8SBASE=http://127.0.0.1:8080\nSTATISTICS_PASSWORD=hush\n",
    "pod.yaml": "kind: Pod\nmetadata:\n  name: a\n  annotations:\n    kontrol.unity3d.com/master: haproxy.web.svc\n",
}


def test_the_index_has_a_row_for_each_predecessor_with_its_preset() -> None:
    assert {row[0] for row in ROWS} <= {name.value for name in PresetName}
    assert {row[1] for row in ROWS} == set(System)
    for preset, system, demo, migrated, _, page in ROWS:
        assert (demo or "domains", migrated, page) == (preset, system, system)
        assert preset == "domains" or (ROOT / "tests" / "demo" / f"{preset}.py").exists()


@pytest.mark.parametrize("page", [system.value for system in System])
def test_a_page_names_its_command(page: str) -> None:
    assert f"pyconfd migrate {page} " in (ROOT / "docs" / "migrating" / f"{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("system", "files"), COMMANDS)
def test_a_migration_that_the_index_shows_is_complete(system: str, files: str, tmp_path: Path) -> None:
    for name in files.split():
        (tmp_path / name).write_text(FILES[name])
    result = invoke("migrate", system, *(os.fspath(tmp_path / name) for name in files.split()))
    assert result.exit_code == 0, result.output
    assert result.stdout


def test_every_system_has_a_command_in_the_index() -> None:
    assert {system for system, _files in COMMANDS} == set(System)
    assert len(COMMANDS) >= 9
