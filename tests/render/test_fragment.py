"""One fragment: what its text becomes, what is kept of its last rendering, and which element gave a line."""

from typing import Any

import pytest

from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.render.engine import RenderOptions, _compiler, _environment
from pyconfd.render.fragment import CompiledFragment, RenderedFragment, compiled_source
from tests.render.stage import declarations

PARTS = {
    "part.j2": "from a part\n",
    "x.j2": "{% macro m() %}{{ x | default('-') }}{% endmacro %}",
    "chain.j2": "{% from 'x.j2' import m with context %}{{ m() }}",
    "circle.j2": "{% if again %}{% include 'circle.j2' %}{% endif %}{{ x }}",
    "bad.j2": "{% if %}",
    "base.j2": "{{ x }}{% block b %}{% endblock %}",
}
ENVIRONMENT, LOADER = _environment(
    FragmentSet((), tuple(Fragment(*each) for each in PARTS.items())), RenderOptions("/files")
)


def compiled(text: str, name: str = "1.tmpl") -> CompiledFragment:
    return CompiledFragment(ENVIRONMENT, LOADER, Fragment(name, text))


def render(
    fragment: CompiledFragment,
    previous: RenderedFragment | None = None,
    made: Any = None,
    **names: Any,
) -> RenderedFragment:
    made = made or declarations()
    return fragment.render({**names, "map_entry": made.map_entry, "map_file": made.map_file}, previous, made)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("1.conf", "a {{ x }}\r\nb", "a {{ x }}\nb\n"),
        ("1.tmpl", "a {{ x }}\nb", "a 7\nb\n"),
        ("1.tmpl", "a\n\n\n", "a\n"),
        ("1.tmpl", "\na\n", "\na\n"),
        ("1.tmpl", "", ""),
        ("1.tmpl", " \n\n", ""),
        ("1.tmpl", "{% each e in es %}{{ e }}\n\n{% endeach %}", "a\n\nb\n\n"),
        ("1.tmpl", "{% each e in es %}{{ e }}\n{% endeach %}\n\n", "a\nb\n"),
        ("1.tmpl", "{% each e in nobody %}{{ e }}\n{% endeach %}", ""),
    ],
)
def test_a_piece_ends_with_one_newline_or_is_empty(name: str, text: str, found: str) -> None:
    made = render(compiled(text, name), x=7, es=["a", "b"], nobody=[])
    assert (made.piece.fragment, made.piece.text.rstrip("\n"), made.piece.text[-1:]) == (
        name,
        found.rstrip("\n"),
        found[-1:],
    )
    assert not made.suspect


def test_a_fragment_that_reads_the_same_objects_is_not_rendered_again() -> None:
    fragment, value = compiled("{{ x }} {{ y | default('-') }}"), [1]
    before = render(fragment, x=value, other=1)
    assert render(fragment, before, x=value, other=2) is before
    assert render(fragment, before, x=[1], other=1) is not before
    assert render(fragment, before, x=value, y=1).piece.text == "[1] 1\n"
    assert render(fragment, None, x=value) is not before
    text = compiled("as it is", "1.conf")
    as_it_is = render(text)
    assert render(text, as_it_is, x=1) is as_it_is


@pytest.mark.parametrize(
    "text",
    [
        "{% from 'x.j2' import m %}{{ m() }}",
        "{% import 'x.j2' as x_ with context %}{{ x_.m() }}",
        "{% include 'chain.j2' %}",
        "{% include 'circle.j2' %}",
        "{% extends 'base.j2' %}{% block b %}b{% endblock %}",
    ],
)
def test_what_other_files_read_is_read_too(text: str) -> None:
    fragment, value = compiled(text), [1]
    before = render(fragment, x=value, again=False, other=1)
    assert render(fragment, before, x=value, again=False, other=2) is before
    assert render(fragment, before, x=[2], again=False, other=1).piece.text.startswith("[2]")


def test_what_reads_files_that_are_not_known_or_declares_whole_ones_is_always_rendered_again() -> None:
    for text in (
        "{% include name %}",
        "{% include ['gone.j2', 'part.j2'] %}",
        "{% include 'gone.j2' ignore missing %}",
        "{% if x is defined %}{% include 'bad.j2' %}{% endif %}",
        "{{ map_file('hosts', {'k': 'v'}) }}",
    ):
        fragment = compiled(text)
        before = render(fragment, name="part.j2")
        assert before.read is None
        assert render(fragment, before, name="part.j2") is not before


def test_entries_of_maps_are_declared_again_without_rendering() -> None:
    fragment = compiled("{{ map_entry('hosts', 'k', 'v') }}")
    before = render(fragment)
    assert len(before.recorded) > 0
    again = declarations()
    again.recorded.append(before.recorded[0])
    assert render(fragment, before, again) is before
    assert len(again.recorded) == 1 + len(before.recorded)


def test_what_no_configuration_may_have_is_suspect_and_builds_nothing() -> None:
    for text in ("{{ x }}", "{% each e in [x] %}{{ e }}\n{% endeach %}"):
        fragment = compiled(text)
        assert not render(fragment, x="plain").suspect
        for character in ("\0", "\r", "\ud800"):
            found = render(fragment, x=f"a{character}b")
            assert (found.suspect, found.read, found.recorded) == (True, None, ())


def test_the_element_that_gave_a_line() -> None:
    fragment = compiled("first\n{% each e in es %}{% if e %}a {{ e }}\nb\n{% endif %}{% endeach %}last\n")
    made = render(fragment, es=["x", "", "y"])
    assert made.piece.text == "first\na x\nb\na y\nb\nlast\n"
    assert [made.element_at(line) for line in range(1, 8)] == [None, (0, "x"), (0, "x"), (2, "y"), (2, "y"), None, None]


def test_blocks_that_did_not_change_are_the_same_objects() -> None:
    fragment = compiled("first\n{% each key, e in es %}{{ e.name }}\n{% endeach %}last\n")
    one, two = {"name": "1"}, {"name": "2"}
    before = render(fragment, es={"a": one, "b": two})
    after = render(fragment, before, es={"a": one, "b": {"name": "3"}})
    assert after.piece.text == "first\n1\n3\nlast\n"
    assert after.piece.runs_since(before.piece) == [(2, 3, 2, 3)]
    assert all(after.piece.blocks[place] is before.piece.blocks[place] for place in (0, 1, 3))


@pytest.mark.parametrize(
    ("text", "names", "files"),
    [
        ("a", set(), ()),
        ("{{ x }}{% set y = 1 %}", {"x"}, ()),
        ("{% include 'part.j2' %}{% from 'x.j2' import m %}{{ m() }}", {"m"}, ("part.j2", "x.j2")),
        ("{% include file %}", {"file"}, None),
        ("{% include ['part.j2', 'x.j2'] %}", set(), None),
    ],
)
def test_a_text_is_compiled_once_for_a_language(text: str, names: set[str], files: tuple[str, ...] | None) -> None:
    language = _compiler(lenient=False, trim_blocks=True)
    source = compiled_source(language, "1.tmpl", text)
    assert (set(source.names), source.files) == (names, files)
    assert compiled_source(language, "1.tmpl", text) is source
    # Errors name the file, and another language compiles to other code.
    assert compiled_source(language, "2.tmpl", text) is not source
    assert compiled_source(_compiler(lenient=True, trim_blocks=True), "1.tmpl", text) is not source
