"""Every option, variable, command and annotation of the predecessors works, or ``migrate`` names what became of it.

``tests/data/predecessors.toml`` lists them all, as their sources and READMEs do.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyconfd.predecessors.migrate.migration import migrate
from pyconfd.predecessors.migrate.options import ANNOTATIONS, COMMANDS, OPTIONS, PROGRAMS
from pyconfd.predecessors.migrate.report import Effect, InputFile, System
from pyconfd.settings import SettingOrigin, Settings, SettingSource
from pyconfd.settings.table import TABLE, value_of
from tests.cli.invoking import daemon_settings

CONTRACTS = tomllib.loads((Path(__file__).parents[1] / "data" / "predecessors.toml").read_text(encoding="utf-8"))
Entry = dict[str, Any]


def entries(kind: str) -> Iterator[tuple[System, str, Entry]]:
    for system, kinds in CONTRACTS.items():
        for name, entry in kinds.get(kind, {}).items():
            yield System(system), name, entry


FLAGS, VARIABLES = list(entries("flags")), list(entries("variables"))
COMMAND_NAMES, NOTES = list(entries("commands")), list(entries("annotations"))
WORKING_FLAGS = [(name, entry) for _system, name, entry in FLAGS if "works" in entry]
WORKING_VARIABLES = [(name, entry) for _system, name, entry in VARIABLES if "works" in entry]


def started(*arguments: str, **environ: str) -> tuple[Settings, dict[str, SettingOrigin]]:
    resolved = daemon_settings(*arguments, **(environ | {"HOME": "/root"}))
    return resolved.settings, dict(resolved.origins)


def is_taken(settings: Settings, origins: dict[str, SettingOrigin], entry: Entry, source: SettingSource) -> bool:
    row = TABLE[entry["works"]]
    expected = row.accept(entry["value"])
    if isinstance(expected, str) and expected.startswith("~/"):
        expected = f"/root{expected[1:]}"
    return bool(value_of(settings, row) == expected and origins[row.path].source is source)


@pytest.mark.parametrize("run", [[], ["run"]], ids=["plain", "run"])
@pytest.mark.parametrize(("flag", "entry"), WORKING_FLAGS)
def test_a_flag_works_under_its_old_name(flag: str, entry: Entry, run: list[str]) -> None:
    settings, origins = started(*run, *entry.get("beside", []), flag, entry["value"])
    assert is_taken(settings, origins, entry, SettingSource.FLAG)


@pytest.mark.parametrize(("name", "entry"), WORKING_VARIABLES)
def test_a_variable_works_under_its_old_name(name: str, entry: Entry) -> None:
    beside = dict(item.split("=", 1) for item in entry.get("beside", []))
    settings, origins = started(**beside, **{name: entry["value"]})
    assert is_taken(settings, origins, entry, SettingSource.ENVIRONMENT)


def said(system: System, text: str, name: str = "run.sh") -> list[str]:
    """Return what ``migrate`` says of the last line of a text; nothing of it may be left."""
    migration = migrate(system, [InputFile(name, text)])
    line = len(text.splitlines())
    assert not [finding for finding in migration.of(Effect.LEFT) if finding.line], migration.findings
    return [finding.message for finding in migration.findings if finding.line == line]


def is_named(name: str, entry: Entry, messages: list[str]) -> bool:
    text = "\n".join(messages)
    return name in text and str(entry.get("successor", entry.get("works", ""))) in text


@pytest.mark.parametrize(("system", "flag", "entry"), FLAGS)
def test_migrate_names_every_flag_with_its_successor(system: System, flag: str, entry: Entry) -> None:
    value = [entry["value"]] if "value" in entry else []
    words = [f"{flag}={value[0]}"] if entry.get("form") == "=" else [flag, *(f"'{word}'" for word in value)]
    assert is_named(flag, entry, said(system, " ".join([min(PROGRAMS[system]), *words])))


@pytest.mark.parametrize(("system", "name", "entry"), VARIABLES)
def test_migrate_names_every_variable_with_its_successor(system: System, name: str, entry: Entry) -> None:
    assert is_named(name, entry, said(system, f"{name}='{entry['value']}'"))


@pytest.mark.parametrize(("system", "name", "entry"), COMMAND_NAMES)
def test_migrate_names_every_command(system: System, name: str, entry: Entry) -> None:
    assert is_named(name, entry, said(system, f"haproxy-kubefigurator {name}"))


@pytest.mark.parametrize(("system", "name", "entry"), NOTES)
def test_migrate_says_of_every_annotation_that_it_works(system: System, name: str, entry: Entry) -> None:
    kind = "labels" if name.endswith(".enabled") else "annotations"
    messages = said(system, f"kind: Pod\nmetadata:\n  name: a\n  {kind}:\n    {name}: b\n", "a.yaml")
    assert is_named(name, {"successor": "works as it is"} | entry, messages)


def test_nothing_else_is_claimed() -> None:
    listed = {system: {name for kinds in CONTRACTS[system].values() for name in kinds} for system in System}
    counted = {"-vv", "-vvvv"}
    for system, options in OPTIONS.items():
        names = {name for option in options for name in (*option.flags, *option.variables)}
        known = names | COMMANDS.get(system, {}).keys()
        notes = {note for note in ANNOTATIONS[system] if not note.endswith(".")}
        assert known | notes == {
            name for name in listed[system] - counted if not name.startswith("haproxy-kubefigurator.")
        }


def test_the_lists_are_as_long_as_the_contracts() -> None:
    counts = {system: {kind: len(names) for kind, names in kinds.items()} for system, kinds in CONTRACTS.items()}
    assert counts == {
        "python-confd": {"flags": 11, "variables": 11, "annotations": 2},
        "kube2lb": {"flags": 12, "annotations": 3},
        "haproxy-kubefigurator": {"flags": 13, "commands": 3, "annotations": 10},
        "kubernetes-haproxy": {"variables": 3},
        "ads-infra-haproxy": {"variables": 10, "annotations": 4},
    }
