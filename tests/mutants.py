"""``make mutants``: what share of small changes to the pure packages the nearest tests catch.

mutmut makes the mutants (another comparison, an argument less, ``and`` for ``or``, ...). A seeded sample of them runs,
one at a time, each in a copy of the repository and against the nearest tests of its module only, of these against those
that reach the changed line, the quickest first. One JSON object a line: what became of each mutant, with the diff of
those that survived, then the sums of each package. Of what no test catches, what mypy rejects is counted apart.
"""

import ast
import difflib
import json
import operator
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, reduce
from importlib.util import cache_from_source
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Self

import libcst
from coverage import CoverageData
from libcst import matchers
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import Mutation, MutationVisitor, deep_replace
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

ROOT = Path(__file__).parent.parent
PURE = (
    "pyconfd/derived.py",
    "pyconfd/presets",
    "pyconfd/predecessors/allowed.py",
    "pyconfd/predecessors/allowed_words.py",
    "pyconfd/predecessors/kube2lb",
    "pyconfd/predecessors/kubefigurator",
    "pyconfd/predecessors/configmap.py",
    "pyconfd/predecessors/hosts.py",
    "pyconfd/predecessors/pods.py",
    "pyconfd/haproxy/config",
    "pyconfd/render",
    "pyconfd/admission",
    "pyconfd/model",
    "pyconfd/dns/records.py",
    "pyconfd/dns/planner.py",
    "pyconfd/dns/activity.py",
)
SECONDS = 200
"""Processor time that the nearest tests of one mutant may take; a loop that never ends is caught then."""
MEMORY_KIB = 4 * 1024 * 1024
ELSEWHERE = 8
"""From folders of others at most so many test files, the shortest: records of the model are imported by dozens."""
TESTS_OF = {"predecessors": "presets", "derived.py": "derived"}
"""Packages whose tests are in a folder of another name."""
TOP = 2
"""Parts of the path of a folder of tests that is not one of a package in a package, such as ``tests/presets``."""
CAUGHT, TIMED_OUT, REJECTED, SURVIVED = "caught", "timed_out", "rejected_by_types", "survived"
_OPTIONS = ("-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-m", "not haproxy")
_OUT_OF_TIME = frozenset({-signal.SIGXCPU, -signal.SIGKILL})
_NO_TESTS = 5
_FAILING = frozenset({1, 2, 4})
"""A test failed, or a file of tests or a conftest could not be imported. Source: pytest's exit codes."""
_TYPE_ERRORS = 1
"""Exit status of mypy; 2 is a fault of the run."""

_LOG_LINE = matchers.Call(func=matchers.Attribute(value=matchers.Name("log")))
_COLLECTION = matchers.OneOf(
    *map(matchers.Name, ("Source", "Derived", "Spread", "Grouped", "Tally", "Joined", "Value"))
)
"""Calls whose texts are words for people."""


@dataclass(frozen=True)
class Mutant:
    """One small change to one module."""

    path: str
    line: int
    text: str
    """The module with the change."""
    diff: tuple[str, ...]


class Imports:
    """Which modules of a repository import which."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files = {_module(path): path for path in sorted(_sources(root))}

    @cached_property
    def _importers(self) -> Mapping[str, set[str]]:
        found = defaultdict[str, set[str]](set)
        for module, path in self._files.items():
            for node in ast.walk(ast.parse((self._root / path).read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module:
                    modules = [f"{node.module}.{alias.name}" for alias in node.names]
                    names = [name if name in self._files else node.module for name in modules]
                else:
                    continue
                for name in names:
                    found[name].add(module)
        return found

    def nearest_tests(self, path: str) -> list[str]:
        """Return the test files that belong to a module.

        They are those of the folder of tests with its path that import it, and those elsewhere that import it and bear
        its name. A package without a folder of tests has those that bear its name in the folder above. The modules of
        a preset are tested through the preset: where no file bears a module's name, all of their folder count. Where
        nothing is found in this way, they are all of the folder, and a few elsewhere that import the module.
        """
        at = Path(path)
        exact = folder = Path("tests", TESTS_OF.get(at.parts[1], at.parts[1]), *at.parts[2:-1])
        while not any((self._root / folder).rglob("test_*.py")):
            folder = folder.parent
        tests = [file for file in self._files.values() if file.name.startswith("test_")]
        importers = self._importers.get(_module(at), set())
        importing = {test for test in tests if _module(test) in importers}
        own = {test for test in importing if test.is_relative_to(folder)}
        named = {test for test in importing if _bears(test, at.stem)}
        if folder != exact:
            named |= {test for test in tests if test.parent == folder and _bears(test, at.parent.name)}
        of_a_preset = folder == exact and len(folder.parts) > TOP
        if not named and (of_a_preset or not own):
            shortest = sorted(importing, key=lambda test: ((self._root / test).stat().st_size, test))
            named = {test for test in tests if test.is_relative_to(folder)} | set(() if own else shortest[:ELSEWHERE])
        return sorted(map(str, own | named))


def _bears(test: Path, name: str) -> bool:
    return f"{test.stem}_".startswith(f"test_{name}_")


def _sources(root: Path) -> Iterator[Path]:
    for folder in ("pyconfd", "tests"):
        yield from (path.relative_to(root) for path in (root / folder).rglob("*.py"))


def _module(path: Path) -> str:
    return ".".join(path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts)


def _mutations(text: str) -> tuple[libcst.Module, list[Mutation]]:
    """Return what mutmut does to the functions of a module.

    It leaves annotations, docstrings and decorated functions alone. Words for people are left out here, since tests
    assert on values: sentences that are raised, what a log line says, and the names of derived collections.
    """
    visitor = MutationVisitor(mutation_operators, IgnoredCode(set(), set(), set()))
    module = MetadataWrapper(libcst.parse_module(text)).visit(visitor)
    raised = matchers.findall(module, matchers.Raise())
    texts = (each for at in raised for each in matchers.findall(at, matchers.SimpleString()))
    words = {id(each) for each in texts if isinstance(each, libcst.SimpleString) and " " in each.value}
    words |= {id(each) for at in matchers.findall(module, _LOG_LINE) for each in _nodes(at)}
    words |= {id(each) for name in _names_of_collections(module) for each in _nodes(name)}
    return module, [
        each
        for each in visitor.mutations
        if isinstance(each.contained_by_top_level_function, libcst.FunctionDef)
        and id(each.original_node) not in words
        and not _is_about_an_argument_of(each, words)
    ]


def _names_of_collections(module: libcst.Module) -> Iterator[libcst.Arg]:
    for call in matchers.findall(module, matchers.Call(func=_COLLECTION)):
        assert isinstance(call, libcst.Call)
        texts = libcst.SimpleString | libcst.FormattedString
        yield from (arg for arg in call.args if isinstance(arg.value, texts))


def _is_about_an_argument_of(mutation: Mutation, words: Container[int]) -> bool:
    """Return whether a call lacks nothing but words, or has None in their place."""
    was, now = mutation.original_node, mutation.mutated_node
    if not isinstance(was, libcst.Call) or not isinstance(now, libcst.Call):
        return False
    kept = {id(arg) for arg in now.args}
    gone = [arg for arg in was.args if id(arg) not in kept]
    return bool(gone) and all(id(arg) in words for arg in gone)


def _nodes(at: libcst.CSTNode) -> Iterator[libcst.CSTNode]:
    yield at
    for each in at.children:
        yield from _nodes(each)


def _mutant(path: str, text: str, module: libcst.Module, mutation: Mutation) -> Mutant:
    mutated = deep_replace(module, mutation.original_node, mutation.mutated_node)
    assert isinstance(mutated, libcst.Module)
    old, new = text.splitlines(), mutated.code.splitlines()
    line = next((n for n, (a, b) in enumerate(zip(old, new, strict=False), 1) if a != b), len(old))
    diff = [each for each in difflib.unified_diff(old, new, n=0, lineterm="") if each[:3] not in {"---", "+++"}]
    return Mutant(path, line, mutated.code, tuple(each for each in diff if each[:2] != "@@"))


def sample(root: Path, places: Sequence[str], size: int, seed: int) -> tuple[list[Mutant], int]:
    """Return so many mutants of the modules in ``places``, and how many there are."""
    modules = sorted({str(path) for path in _sources(root) if any(path.is_relative_to(place) for place in places)})
    texts = {path: (root / path).read_text(encoding="utf-8") for path in modules}
    all_of_them = [(path, number) for path in modules for number in range(len(_mutations(texts[path])[1]))]
    chosen = random.Random(seed).sample(all_of_them, min(size, len(all_of_them)))
    made: dict[tuple[str, int], Mutant] = {}
    for path, places_in_it in groupby(sorted(chosen), key=itemgetter(0)):
        module, mutations = _mutations(texts[path])
        made |= {(path, number): _mutant(path, texts[path], module, mutations[number]) for _, number in places_in_it}
    # In the order of the sample, so that what is printed so far is a sample, too.
    return [made[each] for each in chosen], len(all_of_them)


@dataclass(frozen=True)
class Reach:
    """Which tests reach which lines, and the seconds that each test takes.

    Tests are functions as pytest names them, without their parameters.
    """

    lines: Mapping[str, Mapping[int, Sequence[str]]]
    """By path and line; "" is what runs outside of a test, such as a fixture or an import."""
    seconds: Mapping[str, float]
    failing: Sequence[str] = ()
    """Files and functions, as pytest takes them, that fail without any mutant: they judge none."""

    @classmethod
    def read(cls, folder: Path, paths: Sequence[str], data: Path, times: Path) -> Self:
        """Read what coverage and pytest wrote of ``paths`` in a run in ``folder``."""
        measured = CoverageData(str(data))
        measured.read()
        seconds = defaultdict[str, float](float)
        failing = set[str]()
        for case in ET.parse(times).getroot().iter("testcase"):
            module, name = case.get("classname", ""), case.get("name", "").partition("[")[0]
            seconds[f"{module}.{name}"] += float(case.get("time", "0"))
            if case.find("failure") is not None or case.find("error") is not None:
                failing.add(f"{module.replace('.', '/')}.py::{name}")
        lines = {path: measured.contexts_by_lineno(str(folder / path)) for path in paths}
        return cls(lines, seconds, sorted(failing))

    def tests(self, path: str, line: int, files: Sequence[str]) -> list[str]:
        """Return those of ``files`` that reach a line, the quickest first; all files where that is not known."""
        modules = {_module(Path(file)): file for file in files}
        found = dict[str, str]()
        for test in self.lines.get(path, {}).get(line, ()):
            module = next((each for each in modules if test.startswith(f"{each}.")), "")
            if not module:
                if test:
                    continue  # a test of another module's
                return list(files)
            found[test] = "::".join((modules[module], *test.removeprefix(f"{module}.").split(".")))
        quickest_first = sorted(found, key=lambda test: (self.seconds.get(test, 0.0), test))
        return [found[test] for test in quickest_first] or list(files)

    def __or__(self, other: Self) -> Self:
        lines = defaultdict[str, defaultdict[int, list[str]]](lambda: defaultdict(list))
        for each in (self.lines, other.lines):
            for path, reached in each.items():
                for line, tests in reached.items():
                    lines[path][line] += tests
        return type(self)(lines, {**self.seconds, **other.seconds}, [*self.failing, *other.failing])


class Copy:
    """A copy of the repository, in which tests run."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        self.left_out: Sequence[str] = ()
        """Tests that are not run."""
        shutil.copytree(root, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "dist"), symlinks=True)

    def run(self, tests: Sequence[str]) -> tuple[int, str]:
        """Run tests; return the exit status of pytest and what it printed."""
        argv = [sys.executable, "-m", "pytest", "-x", *_OPTIONS, *map("--deselect={}".format, self.left_out), *tests]
        limits = f'ulimit -v {MEMORY_KIB}; ulimit -t {SECONDS}; exec "$@"'
        return self._run(["/bin/sh", "-c", limits, "sh", *argv])

    def _run(self, argv: Sequence[str]) -> tuple[int, str]:
        environment = os.environ | {"PYTHONPATH": str(self._folder), "TEST_PROFILE": "mutants"}
        done = subprocess.run(argv, cwd=self._folder, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def measure(self, tests: Sequence[str], paths: Sequence[str]) -> Reach:
        """Run tests without any mutant; return what they reach in ``paths``. Raises: SystemExit, if they cannot run."""
        with tempfile.TemporaryDirectory(prefix="reach-") as folder:
            settings, data, times = (Path(folder, name) for name in ("settings", "data", "times.xml"))
            settings.write_text(f"[run]\nsource = pyconfd\ndynamic_context = test_function\ndata_file = {data}\n")
            argv = ["coverage", "run", f"--rcfile={settings}", "-m", "pytest", f"--junitxml={times}", *_OPTIONS, *tests]
            status, printed = self._run([sys.executable, "-m", *argv])
            if status not in {0, 1}:
                raise SystemExit(f"tests do not run without any mutant:\n{printed}")
            return Reach.read(self._folder, paths, data, times)

    def judge(self, mutant: Mutant, tests: Sequence[str]) -> str:
        """Return what became of a mutant."""
        file = self._folder / mutant.path
        original = file.read_text(encoding="utf-8")
        try:
            self._write(file, mutant.text)
            status, printed = self.run(tests)
            if status in {0, _NO_TESTS}:
                return REJECTED if self._has_type_errors(mutant.path) else SURVIVED
        finally:
            self._write(file, original)
        if status not in _OUT_OF_TIME | _FAILING:
            raise SystemExit(f"{mutant.path}:{mutant.line}: pytest ended with {status}, which says nothing:\n{printed}")
        return TIMED_OUT if status in _OUT_OF_TIME else CAUGHT

    def _has_type_errors(self, path: str) -> bool:
        status, printed = self._run([sys.executable, "-m", "mypy", "--follow-imports=silent", path])
        if status not in {0, _TYPE_ERRORS}:
            raise SystemExit(f"{path}: mypy ended with {status}, which says nothing:\n{printed}")
        return status == _TYPE_ERRORS

    @staticmethod
    def _write(file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8")
        # Of the same length and second, it would pass for the code that is cached.
        Path(cache_from_source(str(file))).unlink(missing_ok=True)


def _package(path: str, places: Sequence[str]) -> str:
    place = Path(next(place for place in places if Path(path).is_relative_to(place)))
    return _module(place.parent if place.suffix else place)


def run(root: Path, places: Sequence[str], *, size: int, seed: int, jobs: int = 1) -> Iterator[dict[str, object]]:
    """Try a sample of mutants; return a row for each, then for each package and all of them."""
    mutants, of = sample(root, places, size, seed)
    imports = Imports(root)
    nearest = {path: imports.nearest_tests(path) for path in {mutant.path for mutant in mutants}}
    outcomes = defaultdict[str, Counter[str]](Counter)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies = [Copy(root, Path(folder, str(number))) for number in range(jobs)]
        files = sorted({file for tests in nearest.values() for file in tests})
        shares = [files[number::jobs] for number in range(jobs)]
        measured = [
            pool.submit(copy.measure, share, sorted(nearest))
            for copy, share in zip(copies, shares, strict=True)
            if share
        ]
        reach = reduce(operator.or_, (each.result() for each in measured))
        free = SimpleQueue[Copy]()
        for copy in copies:
            copy.left_out = reach.failing
            free.put(copy)
        if reach.failing:
            yield {"fail_without_any_mutant": reach.failing}

        def judge(mutant: Mutant) -> str:
            copy = free.get()
            try:
                return copy.judge(mutant, reach.tests(mutant.path, mutant.line, nearest[mutant.path]))
            finally:
                free.put(copy)

        for mutant, outcome in zip(mutants, pool.map(judge, mutants), strict=True):
            outcomes[_package(mutant.path, places)][outcome] += 1
            shown: dict[str, object] = (
                {"diff": mutant.diff, "tests": nearest[mutant.path]} if outcome == SURVIVED else {}
            )
            yield {outcome: f"{mutant.path}:{mutant.line}", **shown}
    for package, counts in sorted(outcomes.items()):
        yield {"package": package} | _sums(counts)
    whole = sum(outcomes.values(), Counter[str]())
    yield {"package": "all of them"} | _sums(whole) | {"of": of, "seed": seed}


def _sums(counts: Counter[str]) -> dict[str, object]:
    caught = counts[CAUGHT] + counts[TIMED_OUT]
    return {
        "mutants": counts.total(),
        "caught": caught,
        "timed_out": counts[TIMED_OUT],
        "rejected_by_types": counts[REJECTED],
        "survived": counts[SURVIVED],
        "caught_percent": round(100 * caught / max(1, counts.total()), 1),
        "caught_or_rejected_percent": round(100 * (caught + counts[REJECTED]) / max(1, counts.total()), 1),
    }


def main(only: str) -> int:
    """Print the rows for the modules whose paths begin with ``only``."""
    size, seed = int(os.environ.get("SAMPLE", "300")), int(os.environ.get("SEED", "1"))
    jobs = int(os.environ.get("JOBS", "0")) or len(os.sched_getaffinity(0))
    for row in run(ROOT, [only] if only else PURE, size=size, seed=seed, jobs=jobs):
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
