"""``make mutants``, on a repository of one small module."""

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import ELSEWHERE, PURE, ROOT, Copy, Imports, Reach, run, sample

MODULE = '''"""A module."""

LIMIT = 7


def larger(a: int, b: int) -> int:
    """Return the larger one."""
    return a if a > b else b


def within(n: int) -> bool:
    """Say whether a number is small enough."""
    return n <= LIMIT
'''
TESTS = """from pyconfd.model.small import larger, within


def test_larger():
    assert [larger(1, 2), larger(4, 3)] == [2, 4]


def test_within():
    assert within(7) and not within(8)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for folder in ("pyconfd/model", "tests/model", "tests/status"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    (root / "tests/__init__.py").touch()
    (root / "pyconfd/__init__.py").touch()
    (root / "pyconfd/model/small.py").write_text(MODULE)
    (root / "tests/model/test_small.py").write_text(TESTS)
    (root / "tests/status/test_far.py").write_text("from pyconfd.model.small import within\n\nraise SystemExit(1)\n")
    return root


def test_a_mutant_that_no_test_catches_is_shown_with_its_place(repository: Path) -> None:
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}

    *mutants, package, whole = run(repository, ["pyconfd/model"], size=100, seed=1, jobs=2)

    # Of equals either is the larger one: no test can tell.
    assert [mutant for mutant in mutants if "survived" in mutant] == [
        {
            "survived": "pyconfd/model/small.py:8",
            "diff": ("-    return a if a > b else b", "+    return a if a >= b else b"),
            "tests": ["tests/model/test_small.py"],
        }
    ]
    caught = Counter(mutant["caught"] for mutant in mutants if "caught" in mutant)
    assert caught == {f"pyconfd/model/small.py:{line}": count for line, count in ((8, 2), (13, 1))}
    counts = {"mutants": 4, "caught": 3, "timed_out": 0, "rejected_by_types": 0, "survived": 1} | {
        "caught_percent": 75.0,
        "caught_or_rejected_percent": 75.0,
    }
    assert package == {"package": "pyconfd.model"} | counts
    assert whole == {"package": "all of them"} | counts | {"of": 4, "seed": 1}
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before


def test_a_loop_that_never_ends_is_caught_by_its_processor_time(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "pyconfd/model/small.py").write_text("def down(n):\n    while n:\n        n -= 1\n    return n\n")
    tests = "from pyconfd.model.small import down\n\n\ndef test_down():\n    assert down(2) == 0\n"
    (repository / "tests/model/test_small.py").write_text(tests)
    monkeypatch.setattr("tests.mutants.SECONDS", 6)
    *_, whole = run(repository, ["pyconfd/model"], size=1, seed=1)  # n = 1
    assert (whole["of"], whole["mutants"], whole["timed_out"], whole["survived"]) == (3, 1, 1, 0)


def test_what_no_test_catches_and_mypy_rejects_is_counted_apart(repository: Path) -> None:
    (repository / "pyconfd/model/small.py").write_text('def name(of: str) -> str:\n    return of.removeprefix("/")\n')
    tests = "from pyconfd.model.small import name\n\n\ndef test_name():\n    assert name\n"
    (repository / "tests/model/test_small.py").write_text(tests)
    *mutants, _, whole = run(repository, ["pyconfd/model"], size=100, seed=1)
    # None is no prefix; another text is one, and a suffix is a text, too.
    assert [each for each in mutants if "survived" not in each] == [{"rejected_by_types": "pyconfd/model/small.py:2"}]
    assert (whole["caught_percent"], whole["caught_or_rejected_percent"]) == (0.0, 33.3)


def test_sentences_that_are_raised_are_left_alone(repository: Path) -> None:
    code = 'def kind(n):\n    if n:\n        raise ValueError("spec.n", "too many")\n    return "a Pod"\n'
    (repository / "pyconfd/model/small.py").write_text(code)
    mutants, _ = sample(repository, ["pyconfd/model"], size=100, seed=1)
    changed = {line.strip("+ ") for mutant in mutants for line in mutant.diff if line.startswith("+")}
    assert {'raise ValueError("XXspec.nXX", "too many")', 'return "XXa PodXX"'} <= changed
    assert not {line for line in changed if "many" in line.lower() and '"too many"' not in line}


def test_names_of_collections_and_log_lines_are_left_alone(repository: Path) -> None:
    code = 'def won(of):\n    log.info("a.b", n=1)\n    return Grouped(of, key, f"{of}: by key", rank=age)\n'
    (repository / "pyconfd/model/small.py").write_text(code)
    mutants, _ = sample(repository, ["pyconfd/model"], size=100, seed=1)
    assert {line.strip("+ ") for mutant in mutants for line in mutant.diff if line.startswith("+")} == {
        'return Grouped(None, key, f"{of}: by key", rank=age)',
        'return Grouped(key, f"{of}: by key", rank=age)',
        'return Grouped(of, None, f"{of}: by key", rank=age)',
        'return Grouped(of, f"{of}: by key", rank=age)',
        'return Grouped(of, key, f"{of}: by key", rank=None)',
        'return Grouped(of, key, f"{of}: by key", )',
    }


def test_what_reaches_a_line_is_measured(repository: Path, tmp_path: Path) -> None:
    found = Copy(repository, tmp_path / "copy").measure(["tests/model/test_small.py"], ["pyconfd/model/small.py"])
    reached = {line: tests for line, tests in found.lines["pyconfd/model/small.py"].items() if tests != [""]}
    assert reached == {8: ["tests.model.test_small.test_larger"], 13: ["tests.model.test_small.test_within"]}
    assert found.seconds.keys() == {"tests.model.test_small.test_larger", "tests.model.test_small.test_within"}


def test_tests_that_reach_a_line_are_chosen_the_quickest_first() -> None:
    lines = {
        3: ["tests.m.test_a.test_slow", "tests.m.test_b.TestIt.test_quick", "tests.m.test_else.test_it"],
        4: ["tests.m.test_a.test_slow", ""],
        5: ["tests.m.test_else.test_it"],
    }
    reach = Reach({"pyconfd/a.py": lines}, {"tests.m.test_a.test_slow": 2.0, "tests.m.test_b.TestIt.test_quick": 0.1})
    files = ["tests/m/test_a.py", "tests/m/test_b.py"]
    assert reach.tests("pyconfd/a.py", 3, files) == [
        "tests/m/test_b.py::TestIt::test_quick",
        "tests/m/test_a.py::test_slow",
    ]
    # Outside of tests, by no test of these files, or by nothing that was seen.
    assert [reach.tests(*each, files) for each in (("pyconfd/a.py", 4), ("pyconfd/a.py", 5), ("pyconfd/b.py", 3))] == [
        files
    ] * 3


def test_tests_that_fail_anyway_are_no_judge(repository: Path) -> None:
    (repository / "tests/model/test_small.py").write_text(TESTS.replace("[2, 4]", "[2, 3]"))
    found = list(run(repository, ["pyconfd/model"], size=100, seed=1))
    assert found[0] == {"fail_without_any_mutant": ["tests/model/test_small.py::test_larger"]}
    outcomes = Counter(next(iter(row.items())) for row in found[1:-2] if "diff" not in row)
    assert outcomes == {("caught", "pyconfd/model/small.py:13"): 1}
    assert [row["survived"] for row in found if "diff" in row] == ["pyconfd/model/small.py:8"] * 3


OF_GATEWAY = (ROOT / "tests/presets/gateway").glob("test_*.py")
OF_KUBE2LB = (ROOT / "tests/presets").glob("test_kube2lb*.py")
OF_INGRESS = (ROOT / "tests/presets/ingress").glob("test_*.py")


@pytest.fixture(scope="module")
def imports() -> Imports:
    return Imports(ROOT)


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("pyconfd/presets/routing/table.py", ["tests/presets/routing/test_table.py"]),
        # No test imports it: all of its folder.
        ("pyconfd/presets/ingress/classes.py", sorted(str(path.relative_to(ROOT)) for path in OF_INGRESS)),
        # None bears its name: what the preset's tests go through counts, not only what imports it by chance.
        ("pyconfd/presets/gateway/http_rules.py", sorted(str(path.relative_to(ROOT)) for path in OF_GATEWAY)),
        # Its package has no folder of tests, but files that bear its name.
        ("pyconfd/predecessors/kube2lb/preset.py", sorted(str(path.relative_to(ROOT)) for path in OF_KUBE2LB)),
        # In another folder, but it bears the name.
        ("pyconfd/model/spares.py", ["tests/haproxy/test_spares.py", "tests/haproxy/test_spares_live.py"]),
        ("pyconfd/predecessors/configmap.py", ["tests/presets/test_configmap.py"]),
        ("pyconfd/derived.py", ["tests/derived/test_derived.py"]),
        ("pyconfd/model/outcome.py", ["tests/model/test_changes.py", "tests/model/test_rendering.py"]),
    ],
)
def test_nearest_tests(imports: Imports, module: str, tests: list[str]) -> None:
    assert imports.nearest_tests(module) == tests


def test_where_no_test_of_the_folder_imports_a_module_others_count_too(imports: Imports) -> None:
    found = imports.nearest_tests("pyconfd/model/hold.py")
    assert "tests/model/test_changes.py" in found
    assert len([each for each in found if not each.startswith("tests/model/")]) == ELSEWHERE


def test_each_pure_module_has_nearest_tests(imports: Imports) -> None:
    modules = [
        module for place in PURE for module in ((ROOT / place).rglob("*.py") if "." not in place else [ROOT / place])
    ]
    without = [module for module in modules if not imports.nearest_tests(str(module.relative_to(ROOT)))]
    assert [module for module in without if module.name != "__init__.py"] == []
