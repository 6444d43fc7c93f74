"""``pyconfd test``: fragments against the fixtures and expectations beside them."""

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from pyconfd import wiring
from pyconfd.app.trial import Trial, expected_files, text_of
from pyconfd.cli.command import CommandContext, command, json_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import diff_line, print_json, print_text
from pyconfd.errors import ConfigurationError, Problem, PyconfdError
from pyconfd.settings import Resolved, Settings, SettingSource, TargetSettings, overlaid, resolve_again
from pyconfd.settings.table import TABLE
from pyconfd.testing import report
from pyconfd.testing.cases import FOLDER, TEST_SUFFIX, Case, read_cases
from pyconfd.testing.judge import difference
from pyconfd.testing.report import Result

_POLL_S = 0.3
"""How often edits are looked for."""
_COLOURS = {"ok": "green", "failed": "red", "place": "yellow"}


@dataclass(frozen=True, slots=True)
class TrialRound:
    """One run of all tests while somebody edits.

    ``changes`` are the lines of unified diffs of what the tests render, by test, since the round before; ``problems``
    are why there are no results.
    """

    results: tuple[Result, ...] = ()
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@command(
    examples={
        "pyconfd test /etc/pyconfd": "the tests beside these fragments, and in the folder tests",
        "pyconfd test --watch .": "again after each save, with what it changed",
        "pyconfd test --update .": "write files of expected text again",
        "pyconfd test --junit report.xml .": "for continuous integration",
    },
    exits={
        Exit.OK: "all passed",
        Exit.FAILED: "a test failed",
        Exit.TEMPORARY: "haproxy cannot be asked",
        Exit.CONFIGURATION: "settings, tests or fixtures are wrong, or there are no tests",
    },
)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path())
@click.option("--only", default="", metavar="TEXT", help="Run the tests with this in their name.")
@click.option("--update", is_flag=True, help="Write the files of equals_file again; read the difference afterwards.")
@click.option("--watch", is_flag=True, help="Run again after each edit and show what it changed, until Ctrl-C.")
@json_option
@click.option("--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Write the results as JUnit XML too.")
def test(
    context: CommandContext,
    paths: tuple[str, ...],
    only: str,
    junit: str | None,
    *,
    as_json: bool,
    update: bool,
    watch: bool,
) -> int:
    """Test fragments.

    Run the tests beside the fragments: objects in; expectations on the text, and on whether a change is a runtime
    update or takes a reload. Each rendering has to pass `haproxy -c`, and be the same for the same objects in another
    order.

    PATH is a test file (*.test.toml) or a directory of fragments; without one it is templates.dir.
    """
    if watch and (update or junit or as_json):
        raise click.UsageError("--watch goes with none of --update, --junit and --json")
    context.settings(log_level="ERROR")
    if watch:
        return print_rounds(watch_tests(context.resolve(), paths, only=only))
    results = []
    for result in run_tests(context.resolve(), paths, only=only, update=update):
        results.append(result)
        if not as_json:
            _print(result)
    if as_json:
        print_json(report.as_values(results))
    else:
        _print_summary(results)
    if junit is not None:
        try:
            Path(junit).write_text(report.as_junit(results), "utf-8")
        except OSError as error:
            raise ConfigurationError(Problem(junit, f"cannot be written: {error.strerror}")) from error
    return Exit.OK if all(result.passed for result in results) else Exit.FAILED


def print_rounds(rounds: Iterable[TrialRound]) -> int:
    """Print what each run of the tests shows, until Ctrl-C."""
    try:
        for each in rounds:
            for problem in each.problems:
                print_text(f"{click.style('cannot be tested', fg='red')} {problem}")
            shown: set[tuple[str, ...]] = set()  # one edit mostly changes what nearly all tests render
            for name, lines in each.changes.items():
                edits = tuple(line for line in lines if not line.startswith(("@@", " ")))
                if edits not in shown:
                    shown.add(edits)
                    print_text(click.style(f"changed: {name}", fg="cyan"))
                    for line in lines[2:]:  # without the names of a unified diff, which say nothing here
                        print_text(f"    {diff_line(line)}")
            for result in each.results:
                _print(result)
            if each.results:
                _print_summary(each.results)
            print_text("")
    except KeyboardInterrupt:
        return Exit.OK
    return Exit.OK


def _print(result: Result) -> None:
    for kind, text in report.as_lines(result):
        if kind == "detail":
            print_text(f"    {diff_line(text)}")
        elif kind in {"ok", "failed"}:
            print_text(f"{click.style(kind.ljust(6), fg=_COLOURS[kind])} {text}")
        else:
            print_text(f"  {click.style(text, fg=_COLOURS.get(kind))}")


def _print_summary(results: Sequence[Result]) -> None:
    failed = any(not result.passed for result in results)
    print_text(click.style(report.summary(results), fg="red" if failed else "green", bold=True))


def run_tests(resolved: Resolved, paths: tuple[str, ...], *, only: str = "", update: bool = False) -> Iterator[Result]:
    """Run the tests of ``paths`` (files, or directories of fragments; none: the template directory), one by one.

    ``only`` is a part of the names of those to run; ``update`` writes files of expected text again.

    Raises:
        ConfigurationError: a test file or a fixture cannot be used, or there is nothing to run.
        TransientError: haproxy cannot be asked.
    """
    yield from _run(resolved, paths, only=only, update=update, files=set())


def watch_tests(resolved: Resolved, paths: tuple[str, ...], *, only: str = "") -> Iterator[TrialRound]:
    """Run the tests now and after each edit of fragments, fixtures, tests and settings, for ever."""
    former: dict[str, tuple[str, ...]] = {}
    files = {Path(resolved.config), *(map(Path, paths) if paths else (Path(resolved.settings.templates.dir),))}
    while True:
        seen = _marks(files)
        try:
            resolved = resolve_again(resolved)
            results = tuple(_run(resolved, paths, only=only, update=False, files=files))
        except PyconfdError as error:
            yield TrialRound(problems=error.problems)
        else:
            texts = {f"{result.file}: {result.name}": result.texts for result in results}
            yield TrialRound(results, _changes(former, texts))
            former = texts
        # What was edited during the run is seen too, but for the files that only the run has named.
        marks = _marks(files) | seen
        while _marks(files) == marks:
            time.sleep(_POLL_S)


def _marks(files: set[Path]) -> dict[str, tuple[int, int, int]]:
    """Return what changes when a file does, or any in a directory."""
    marks: dict[str, tuple[int, int, int]] = {}
    for path in files:
        for each in (path, *(path.rglob("*") if path.is_dir() else ())):
            try:
                status = each.stat()
            except OSError:
                continue
            marks[str(each)] = status.st_ino, status.st_mtime_ns, status.st_size
    return marks


def _changes(
    former: Mapping[str, tuple[str, ...]], texts: Mapping[str, tuple[str, ...]]
) -> Mapping[str, tuple[str, ...]]:
    changes = {}
    for name, states in texts.items():
        before = former.get(name, ())
        pairs = zip(before, states, strict=False)
        lines = [line for old, new in pairs for line in difference(old, new, "before", "now")]
        if lines:
            changes[name] = tuple(lines)
    return changes


def _run(resolved: Resolved, paths: tuple[str, ...], *, only: str, update: bool, files: set[Path]) -> Iterator[Result]:
    """Run; ``files`` is filled with what the results depend on."""
    found = _test_files(resolved.settings, paths)
    cases: list[tuple[Path, Case]] = []
    problems: list[Problem] = []
    for path in found:
        files.add(path)
        try:
            cases += [(path, case) for case in read_cases(str(path), text_of(path)) if only in case.name]
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(*problems)
    if not cases:
        raise ConfigurationError(Problem("--only", f"no test has {only!r} in its name", "leave it out to run all"))
    explicit = resolved.origins["templates.dir"].source is SettingSource.FLAG
    with tempfile.TemporaryDirectory(prefix="pyconfd-test-") as scratch:
        for path, case in cases:
            settings = _settings(resolved.settings, path, case, scratch, explicit=explicit)
            files |= {Path(settings.templates.dir), *(Path(target.template) for target in _targets(settings))}
            files |= {path.parent / name for step in case.steps for name in step.files}
            files |= {path.parent / name for step in case.steps for name in expected_files(step)}
            began = time.monotonic()
            result = Trial(path, case, settings, update=update).run()
            yield replace(result, duration_s=time.monotonic() - began)


def _test_files(settings: Settings, paths: tuple[str, ...]) -> list[Path]:
    templates = [str(Path(target.template).parent) for target in _targets(settings)]
    places = paths or tuple(dict.fromkeys((settings.templates.dir, *templates)))
    found: list[Path] = []
    for place in map(Path, places):
        if place.is_dir():
            found += sorted(place.glob(f"*{TEST_SUFFIX}")) + sorted((place / FOLDER).glob(f"*{TEST_SUFFIX}"))
        elif place.is_file():
            found.append(place)
        elif paths:
            raise ConfigurationError(Problem(str(place), "there is no such file or directory", "name a test file"))
    if not found:
        message = f"there is no test: no file *{TEST_SUFFIX} in {', '.join(places)}, nor in the folder {FOLDER} there"
        raise ConfigurationError(Problem("test", message, "docs/testing-templates.md shows how to write one"))
    return list(dict.fromkeys(found))


def _targets(settings: Settings) -> tuple[TargetSettings, ...]:
    return tuple(target.settings for target in wiring.targets(settings))


def _settings(base: Settings, path: Path, case: Case, scratch: str, *, explicit: bool) -> Settings:
    """Return the settings of a case: the command's, and what the test file says; nothing is written but in ``scratch``.

    Fragments are those beside the test file, unless a flag or the test file names others. Relative paths of the test
    file begin at its folder.
    """
    folder = path.resolve().parent
    beside = str(folder.parent if folder.name == FOLDER else folder)
    # The same text on every machine, whether it has IPv6 or not.
    base = replace(base, templates=replace(base.templates, vars={"ipv6": True, **base.templates.vars}))
    if not explicit:
        base = replace(base, templates=replace(base.templates, dir=beside))
    settings = overlaid(base, _rooted(case.settings, folder), f"{path}: {case.name}: settings")
    outputs = tuple(replace(target, output=f"{scratch}/{target.name}") for target in settings.targets)
    single = replace(settings.target, output=f"{scratch}/target" if settings.target.output else "")
    return replace(settings, state_dir=scratch, runtime_dir=scratch, targets=outputs, target=single)


def _rooted(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a document of settings whose relative paths begin at ``folder``."""

    def rooted(value: Any) -> Any:
        return os.path.normpath(folder / value) if isinstance(value, str) and value and value[0] not in "/~@" else value

    result: dict[str, Any] = {}
    for section, table in document.items():
        if isinstance(table, Mapping):
            result[section] = {
                key: rooted(value) if (path := f"{section}.{key}") in TABLE and TABLE[path].form.path else value
                for key, value in table.items()
            }
        elif section == "targets" and isinstance(table, list):
            result[section] = [
                {**each, "template": rooted(each.get("template"))} if isinstance(each, Mapping) else each
                for each in table
            ]
        else:
            result[section] = table
    return result
