"""Help, completion and ``pyconfd settings``."""

import json
import tomllib
from pathlib import Path

import click

from pyconfd import __version__
from pyconfd.cli.main import cli
from pyconfd.settings import show
from pyconfd.settings.table import TABLE
from tests.cli.invoking import invoke


def test_settings_show_value_and_origin_by_section(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[haproxy]\nconf = '/x/haproxy.cfg'\n[templates]\nvars = { stats = 'hunter2' }")
    result = invoke("--config", str(config), "settings", "--interval", "15", LOGLEVEL="debug")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "[haproxy] what is written where, how it is checked and loaded" in lines
    assert f"conf /x/haproxy.cfg {config}: [haproxy] conf" in lines
    assert "interval_s 15 s --interval" in lines
    assert "level DEBUG environment LOGLEVEL" in lines
    assert "mode watch default" in lines
    assert f"vars stats {config}: [templates] vars" in lines
    assert f"file: {config}" in lines
    assert "note: --interval: has no effect" in result.stderr
    for output in (("--json"), ("--toml",)):
        assert "hunter2" not in invoke("--config", str(config), "settings", *output).output


def test_settings_as_json_and_toml() -> None:
    document = json.loads(invoke("settings", "--json", REFRESH_INTERVAL="7").stdout)
    assert set(document["settings"]) == set(TABLE)
    assert document["settings"]["kubernetes.interval_s"] == {
        "value": 7.0,
        "unit": "s",
        "source": "environment",
        "place": "environment REFRESH_INTERVAL",
    }
    assert document["config"] == {"path": "/etc/pyconfd/pyconfd.toml", "found": False}
    toml = tomllib.loads(invoke("settings", "--toml", REFRESH_INTERVAL="7").stdout)
    assert toml.pop("settings_version") == __version__
    assert {name: table for name, table in toml.items() if table} == {"kubernetes": {"interval_s": 7}}
    assert "interval_s = 30" in invoke("settings", "--defaults", "--toml", REFRESH_INTERVAL="7").stdout
    assert "environment" not in invoke("settings", "--defaults", REFRESH_INTERVAL="7").stdout.replace(
        "flag, environment", ""
    )


def test_the_reference_in_docs_is_current() -> None:
    committed = Path(__file__).parents[2] / "docs" / "settings.md"
    assert committed.read_text() == invoke("settings", "--markdown").stdout
    assert committed.read_text() == "\n".join(show.as_markdown()) + "\n"


def test_the_help_of_run_has_every_option_in_its_section() -> None:
    text = invoke("run", "--help").stdout
    assert all(flag in text for row in TABLE.values() for flag in row.flags)
    headings = [
        "kubernetes: which API",
        "templates: the fragments",
        "haproxy: what is",
        "log: what is",
        "Where pyconfd keeps",
    ]
    places = [text.index(heading) for heading in headings]
    assert places == sorted(places)


def test_help_and_version_do_not_need_good_settings() -> None:
    for arguments in (["--help"], ["--version"], ["plan", "--help"], ["completion", "zsh"]):
        result = invoke(*arguments, LOGLEVEL="wrong")
        assert result.exit_code == 0, arguments
        assert "pyconfd" in result.stdout


def test_completion_offers_words_and_leaves_paths_to_the_shell() -> None:
    def offered(flag: str, incomplete: str) -> list[tuple[str, str]]:
        [option] = [option for option in cli.params if flag in option.opts]
        with click.Context(cli) as ctx:
            return [(item.value, item.type) for item in option.shell_complete(ctx, incomplete)]

    assert offered("--log-level", "w") == [("WARNING", "plain")]
    assert offered("--kubernetes-mode", "") == [("watch", "plain"), ("poll", "plain")]
    assert offered("--haproxy-conf", "/e") == [("/e", "file")]
    assert offered("--template-dir", "/e") == [("/e", "dir")]
    assert offered("--config", "/e") == [("/e", "file")]
