import xml.etree.ElementTree as ET

from pyconfd.testing.judge import CaseFailure
from pyconfd.testing.report import Result, as_junit, as_lines, as_values, summary

GOOD = Result("a.test.toml", 'good <&> "quoted"')
BAD = Result("b.test.toml", "bad", (CaseFailure("does not contain 'x\x1b'", ("-a", "+<b>")),), duration_s=0.25)


def test_people_get_one_line_a_test_and_the_place_of_a_failure() -> None:
    assert list(as_lines(GOOD)) == [("ok", 'a.test.toml: good <&> "quoted"')]
    assert [text for _, text in as_lines(BAD)] == [
        "b.test.toml: bad",
        "does not contain 'x\x1b'",
        "-a",
        "+<b>",
    ]
    assert (summary([GOOD]), summary([GOOD, BAD])) == ("1 test, all passed", "2 tests, 1 failed")


def test_programs_get_the_same() -> None:
    values = as_values([GOOD, BAD])
    assert (values["tests"], values["failed"]) == (2, 1)
    assert values["results"][1]["failures"] == [{"message": "does not contain 'x\x1b'", "lines": ["-a", "+<b>"]}]


def test_junit_is_xml_whatever_is_in_the_texts() -> None:
    root = ET.fromstring(as_junit([GOOD, BAD]))
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert set(cases) == {GOOD.name, BAD.name}
    failure = cases["bad"].find("failure")
    assert failure is not None
    assert failure.text is not None
    assert "+<b>" in failure.text
    assert [(suite.get("tests"), suite.get("failures")) for suite in root] == [("1", "0"), ("1", "1")]
