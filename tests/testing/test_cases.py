import pytest

from pyconfd.errors import ConfigurationError
from pyconfd.model.inputs import merged_documents
from pyconfd.model.plan import ReloadReason
from pyconfd.testing.cases import Expectation, ExpectedPlan, Kind, read_cases


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read_cases("a.test.toml", text)
    return [f"{problem.place}: {problem.message} -> {problem.remedy}" for problem in caught.value.problems]


def test_a_case_with_all_that_there_is() -> None:
    [case] = read_cases(
        "a.test.toml",
        """
[settings.presets]
use = ["kube2lb"]
[[test]]
name = "all"
snapshot = ["a.yaml", "b.yaml"]
vars = { x = "1" }
settings.presets.listen_ports = ["1-2"]
deterministic = false
can = ["backends"]
expect = [
  { contains = "a", in = "02-http.tmpl" },
  { matches = "b+", times = 0 },
  { in_order = ["c", "d"] },
  { equals_file = "e.cfg" },
]
[[test.then]]
snapshot = "c.yaml"
reasons = ["section_added"]
""",
    )
    first, then = case.steps
    assert case.name == "all"
    assert case.settings == {
        "presets": {"use": ["kube2lb"], "listen_ports": ["1-2"]},
        "templates": {"vars": {"x": "1"}},
    }
    assert (case.valid, case.deterministic, case.abilities) == (True, False, ("backends",))
    assert first.files == ("a.yaml", "b.yaml")
    assert first.expectations == (
        Expectation(Kind.CONTAINS, ("a",), "02-http.tmpl"),
        Expectation(Kind.MATCHES, ("b+",), times=0),
        Expectation(Kind.IN_ORDER, ("c", "d")),
        Expectation(Kind.EQUALS_FILE, ("e.cfg",)),
    )
    assert (then.files, then.way, then.reasons) == (("c.yaml",), ExpectedPlan.RELOAD, (ReloadReason.SECTION_ADDED,))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[test]\n", "a.test.toml: is not TOML"),
        ("", "a.test.toml: there is no test in it"),
        ("[[tests]]\nname = 'a'", "file: 'tests' is not known here -> did you mean test?"),
        ("[[test]]\nnmae = 'a'", "test[0]: 'nmae' is not known here -> did you mean name?"),
        ("[[test]]\nsnapshot = 'a'", "test[0]: a test needs a name"),
        ("[[test]]\nname = 'a'\n[[test]]\nname = 'a'", "test[1]: there is a test 'a' already"),
        ("[[test]]\nname = 1", "test[0].name: Expected `str`, got `int`"),
        ("test = 1", "file.test: Expected `array`, got `int`"),
        ("[[test]]\nname = 'a'\nexpect = [\n{ in = 'x' }]", "test[0].expect[0]: nothing is expected -> give one of"),
        ("[[test]]\nname = 'a'\nexpect = [{ contains = 'a', lacks = 'b' }]", "contains and lacks exclude"),
        ("[[test]]\nname = 'a'\nexpect = [{ contians = 'a' }]", "did you mean contains?"),
        ("[[test]]\nname = 'a'\nthen = [{ paln = 'live' }]", "did you mean plan?"),
        ("[[test]]\nname = 'a'\nexpect = [{ matches = '(' }]", "'(' is no regular expression"),
        ("[[test]]\nname = 'a'\nexpect = [{ contains = 'a', times = 2 }]", "times counts what matches"),
        ("[[test]]\nname = 'a'\n[[test.then]]\nplan = 'lvie'", "test[0].then[0].plan: Invalid enum value 'lvie'"),
        ("[[test]]\nname = 'a'\n[[test.then]]\nplan = 'live'\nreasons = ['not_live']", "only a reload has"),
        ("[[test]]\nname = 'a'\ncan = ['fly']", "Invalid enum value 'fly'"),
        ("[[test]]\nname = 'a'\nfails = 'x'\nexpect = [{ contains = 'a' }]", "test[0].fails: what fails has no text"),
    ],
)
def test_mistakes_have_their_place_and_what_to_do(text: str, told: str) -> None:
    assert told in "\n".join(problems(text))


def test_a_mistake_of_each_test_is_reported_at_once() -> None:
    told = problems(
        "[[test]]\nname = 1\n[[test]]\nname = 'b'\nvalid = 2\n[[test]]\nname = 'c'\nexpect = [{ what = 3 }]"
    )
    assert [each.split(": ")[1] for each in told] == ["test[0].name", "test[1].valid", "test[2].expect[0]"]


def test_merged_documents_keep_what_the_second_does_not_name() -> None:
    assert merged_documents({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 4}, "e": 5}) == {
        "a": {"b": 1, "c": 4},
        "d": 3,
        "e": 5,
    }
