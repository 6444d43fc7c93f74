"""Maps that templates fill entry by entry, over several renderings, and what no file can hold."""

from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.rendering import OutputFile
from pyconfd.model.versioned import VersionedDict
from pyconfd.render import declared
from pyconfd.render.engine import Renderer
from tests.render.stage import rendered, renderer


class TestMaps:
    TEMPLATE = (
        "{{ map_file('m') }}\n{% for d, i in domains.items() %}\n"
        "{% do map_entry('m', i.host, d) %}\n{{ d }} {{ i.port }}\n"
        "{% endfor %}"
    )

    @staticmethod
    def content(by: Renderer, domains: dict[str, Any]) -> OutputFile:
        (file,) = rendered(by, {"domains": domains}).files
        return file

    def test_the_file_is_the_same_object_until_an_entry_changes(self) -> None:
        by, one, two = renderer(self.TEMPLATE), {"host": "x", "port": 1}, {"host": "y", "port": 2}
        first = self.content(by, {"a": one, "b": two})
        assert first.content == "x a\ny b\n"
        assert self.content(by, {"a": one, "b": {"host": "y", "port": 3}}) is first
        assert self.content(by, {"a": one, "b": {"host": "w", "port": 3}}).content == "w b\nx a\n"
        assert self.content(by, {"b": two}).content == "y b\n"

    def test_the_first_writer_of_a_key_wins_also_when_it_comes_later(self) -> None:
        by, one = renderer(self.TEMPLATE), {"host": "x", "port": 1}
        assert self.content(by, {"b": one}).content == "x b\n"
        assert self.content(by, {"a": one, "b": one}).content == "x a\n"
        assert self.content(by, {"b": one}).content == "x b\n"

    def test_entries_before_and_after_the_declaration_and_from_any_fragment(self) -> None:
        by = renderer(
            "{% do map_entry('m', 'a', 1) %}", "{{ map_file('m', ordered=true) }}", "{% do map_entry('m', '0', 2) %}"
        )
        assert self.content(by, {}).content == "a 1\n0 2\n"

    def test_a_repeated_map_has_each_value_of_a_key_once(self) -> None:
        by = renderer(
            "{{ map_file('m', repeated=true) }}{% each d, i in domains %}{% do map_entry('m', 'k', i) %}{% endeach %}"
        )
        assert self.content(by, {"a": "y", "b": "x"}).content == "k x\nk y\n"
        assert self.content(by, {"a": "y", "b": "y", "c": "z z"}).content == "k y\nk z z\n"

    def test_entries_of_a_map_that_none_declares_are_a_problem_each_map(self) -> None:
        by = renderer("{{ map_file('m') }}{% do map_entry('b', 'k', 1) %}{% do map_entry('a', 'k', 1) %}")
        with pytest.raises(RejectedInput) as raised:
            rendered(by, {})
        assert [(each.place, each.remedy) for each in raised.value.problems] == [
            (f"map '{name}'", f"write {{{{ map_file('{name}') }}}} where its path belongs, or leave the entries out")
            for name in ("b", "a")
        ]

    def test_a_loop_may_declare_maps(self) -> None:
        by = renderer("{% for n in names %}{{ map_file(n) }}{% do map_entry(n, n, 1) %}{% endfor %}")
        assert [file.content for file in rendered(by, {"names": ["a", "b"]}).files] == ["a 1\n", "b 1\n"]
        assert [file.content for file in rendered(by, {"names": ["b"]}).files] == ["b 1\n"]

    @pytest.mark.parametrize(
        ("template", "message"),
        [
            ("{% do map_entry('m', 'a', 1) %}", "none declares it"),
            ("{{ map_file('m') }}{{ map_file('m', longest_first=true) }}", "declared twice"),
            ("{{ map_file('m') }}{{ map_file('m', {'a': 1}) }}", "declared twice"),
            ("{{ map_file('m', {'a': 1}) }}{{ map_file('m') }}", "declared twice"),
            ("{{ map_file('m') }}{% do map_entry('m', 'a b', 1) %}", "the entry of map 'm' has the key 'a b'"),
            ("{{ map_file('m') }}{% do map_entry('m', 'a', '') %}", "the value ''"),
        ],
    )
    def test_what_cannot_be_is_refused_each_time(self, template: str, message: str) -> None:
        by = renderer(template)
        for _ in range(2):
            with pytest.raises(RejectedInput) as caught:
                rendered(by, {})
            assert message in str(caught.value)


EACH = (
    "{{ map_file('m') }}{{ map_file('other', longest_first=true) }}"
    "{% each name, keys in domains %}{% for key in keys %}{% do map_entry('m', key, name) %}"
    "{% do map_entry('other', key, key) if loop.first %}{% endfor %}{{ name }}\n{% endeach %}"
)
KEYS = st.lists(st.sampled_from(["a", "a/b", "a-b", "b", "b/"]), max_size=3)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("wxyz"), KEYS, max_size=4), min_size=2, max_size=6))
def test_a_map_after_any_changes_is_that_of_a_first_rendering(steps: list[dict[str, list[str]]]) -> None:
    by = renderer(EACH)
    domains: VersionedDict[str, list[str]] = VersionedDict({})
    for step in steps:
        kept = {name: domains[name] if domains.get(name) == keys else keys for name, keys in sorted(step.items())}
        same_names = list(kept) == list(domains)
        domains = domains.with_values(kept) if same_names else VersionedDict(kept)
        names = {"domains": domains}
        assert rendered(by, names).files == rendered(renderer(EACH), names).files


@pytest.mark.parametrize("names", ["wxyz", "xy", "vwx", "xz", "wyz"])
def test_elements_that_come_and_go_change_their_lines_alone(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{{ map_file('m') }}{% each name, keys in domains %}{% do map_entry('m', name, 1) %}{% endeach %}"
    by = renderer(template)
    rendered(by, {"domains": {"w": [], "x": [], "y": []}})
    after: dict[str, Any] = {"domains": {name: [] for name in names}}

    def whole(recorded: Any) -> NoReturn:
        raise AssertionError(f"read {len(recorded)} entries")

    expected = rendered(renderer(template), after).files
    monkeypatch.setattr(declared, "_by_map", whole)
    assert rendered(by, after).files == expected


def test_a_map_goes_with_the_element_that_declares_it() -> None:
    template = "{% each name, keys in domains %}{% do map_entry(name, 'k', 1) %}{{ map_file(name) }}{% endeach %}"
    by = renderer(template)
    for names in ("wxy", "wy", "wxy", "wxyz"):
        after: dict[str, Any] = {"domains": {name: [] for name in names}}
        assert [file.path for file in rendered(by, after).files] == [f"/files/maps/{name}.map" for name in names]


NAME = "use letters, digits, '.', '_' and '-', and no '.' at the start"
KEY = "a key is one word that does not begin with '#'"
VALUE = "a value is one line, not empty, without spaces at its ends"
PAIRS = "give a mapping or (key, value) pairs"
OTHER_NAME = "give one of them another name"
PEM = "give the certificate, its chain and its private key in PEM, one after the other"


@pytest.mark.parametrize(
    ("expression", "message", "remedy"),
    [
        ("map_file('../x', {})", "'../x' cannot name a file", NAME),
        ("map_file('.x', {})", "'.x' cannot name a file", NAME),
        ("map_file('', {})", "'' cannot name a file", NAME),
        ("certificate_file('a/b', '-----BEGIN x-----END x')", "'a/b' cannot name a file", NAME),
        (
            "map_file('h', [('a', 1), ('a', 2)])",
            "key 'a' of map 'h' has two values: '1' and '2'",
            "decide for one of them in the template",
        ),
        ("map_file('h', [('z', 1), ('a b', 1)])", "entry 2 of map 'h' has the key 'a b'", KEY),
        ("map_file('h', [('', 1)])", "entry 1 of map 'h' has the key ''", KEY),
        ("map_file('h', [('#a', 1)])", "entry 1 of map 'h' has the key '#a'", KEY),
        ("map_file('h', [('a\\nb', 1)])", "entry 1 of map 'h' has the key 'a\\nb'", KEY),
        ("map_entry('h', 'a b', 1)", "the entry of map 'h' has the key 'a b'", KEY),
        ("map_file('h', [('a', '')])", "key 'a' of map 'h' has the value ''", VALUE),
        ("map_file('h', [('a', ' x')])", "key 'a' of map 'h' has the value ' x'", VALUE),
        ("map_file('h', [('a', 'x\\ny')])", "key 'a' of map 'h' has the value 'x\\ny'", VALUE),
        ("map_file('h', [('a', 'x\\r')])", "key 'a' of map 'h' has the value 'x\\r'", VALUE),
        ("map_file('h', ['ab'])", "entry 1 of map 'h' is no pair: 'ab'", PAIRS),
        ("map_file('h', [1])", "entry 1 of map 'h' is no pair: '1'", PAIRS),
        ("map_file('h', [(1, 2, 3)])", "entry 1 of map 'h' is no pair: '(1, 2, 3)'", PAIRS),
        (
            "map_file('h', {'a': 1}) + map_file('h', {'a': 2})",
            "map 'h' is declared twice with different content",
            OTHER_NAME,
        ),
        (
            "certificate_file('h', '-----BEGIN x-----END x') + certificate_file('h', '-----BEGIN y-----END y')",
            "certificate 'h' is declared twice with different content",
            OTHER_NAME,
        ),
        ("certificate_file('c', 'secret')", "certificate 'c' is no PEM text", PEM),
        ("certificate_file('c', '-----BEGIN secret')", "certificate 'c' is no PEM text", PEM),
        ("certificate_file('c', '-----END secret')", "certificate 'c' is no PEM text", PEM),
        (
            "certificate_file('c', '-----BEGIN secret\\0-----END x')",
            "certificate 'c' has a NUL character",
            "give PEM text",
        ),
    ],
)
def test_what_no_file_can_hold_is_refused(expression: str, message: str, remedy: str) -> None:
    with pytest.raises(RejectedInput) as raised:
        rendered(renderer(f"\n{{{{ {expression} }}}}"), {})
    assert raised.value.problems == (Problem("01.tmpl line 2", message, remedy),)
    assert "secret" not in str(raised.value)
