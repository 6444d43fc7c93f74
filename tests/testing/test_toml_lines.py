import tomllib

from hypothesis import given
from hypothesis import strategies as st

from pyconfd.testing.toml_lines import TomlLines

TEXT = '''\
# a comment with [[test]] and = signs
[settings]
presets.use = ["domains"]

[[test]]
name = "a # b"
objects = """
[[test]]
name = "not me"
"""
expect = [
  { contains = "x, y" },   # ]
  { matches = 'a[0-9]{2}', times = 2 },
]
[[test.then]]
plan = "live"

[[test]]
"name" = "second"
vars = { a = [1, 2], b = "}" }
then = [{ plan = "live" }, { plan = "reload" }]
'''


def test_every_table_key_and_item_has_its_line() -> None:
    found = TomlLines(TEXT)
    lines = TEXT.splitlines()

    def text_at(*path: str | int) -> str:
        return lines[found.line(*path) - 1]

    assert text_at("settings") == "[settings]"
    assert text_at("settings", "presets", "use").startswith("presets.use")
    assert found.line("test", 0) == lines.index("[[test]]") + 1
    assert text_at("test", 0, "objects") == 'objects = """'
    assert "x, y" in text_at("test", 0, "expect", 0)
    assert "times" in text_at("test", 0, "expect", 1)
    assert text_at("test", 0, "then", 0, "plan") == 'plan = "live"'
    assert text_at("test", 1, "name") == '"name" = "second"'
    assert "reload" in text_at("test", 1, "then", 1, "plan")


def test_what_is_unknown_has_the_line_of_what_is_around_it() -> None:
    assert TomlLines(TEXT).line("test", 1, "vars", "a", 1) == TomlLines(TEXT).line("test", 1, "vars")
    assert TomlLines("").line("test", 3) == 1


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    TomlLines(text)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"])), min_size=1, max_size=5))
def test_items_are_found_whatever_is_in_their_texts(texts: list[str]) -> None:
    rows = ["  " + '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '",' for text in texts]
    document = "\n".join(["[[test]]", "expect = [", *rows, "]", "last = 1"])
    assert tomllib.loads(document)["test"][0]["expect"] == texts
    found = TomlLines(document)
    assert [found.line("test", 0, "expect", number) for number in range(len(texts))] == list(range(3, len(texts) + 3))
    assert found.line("test", 0, "last") == len(texts) + 4
