from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.context import Context
from pyconfd.model.rendering import FileKind, Fragment, FragmentSet, OutputFile
from pyconfd.render.engine import Rendered, Renderer, RenderOptions

FILES = "/etc/haproxy/generated/files"
CURDATE = "2017-11-09 12:00:00.000000"
SHOP = {"proto": "http", "port": 8080, "ips": ["10.0.0.1"], "name": "shop", "namespace": "demo", "domain": "shop.local"}
DOMAINS = {"domains": {"shop.local": SHOP}}

JINJA = "correct this line, then type: pyconfd check (Jinja's syntax: https://jinja.palletsprojects.com/templates/)"


@dataclass(frozen=True)
class Service:
    namespace: str
    name: str
    port: int


def render(
    texts: dict[str, str],
    names: dict[str, Any] | None = None,
    *,
    includable: dict[str, str] | None = None,
    **options: Any,
) -> Rendered:
    fragments = FragmentSet(
        tuple(Fragment(name, text) for name, text in texts.items()),
        tuple(Fragment(name, text) for name, text in (includable or {}).items()),
    )
    return Renderer(fragments, RenderOptions(FILES, **options)).render(Context(names or {}), curdate=CURDATE)


def text(template: str, names: dict[str, Any] | None = None, **options: Any) -> str:
    return render({"02-http.tmpl": template}, names, **options).rendering.text


def problems(texts: dict[str, str] | str, names: dict[str, Any] | None = None, **options: Any) -> tuple[Problem, ...]:
    with pytest.raises(RejectedInput) as caught:
        render({"02-http.tmpl": texts} if isinstance(texts, str) else texts, names, **options)
    return caught.value.problems


def problem(template: str, names: dict[str, Any] | None = None, **options: Any) -> Problem:
    (found,) = problems(template, names, **options)
    return found


class TestJoining:
    def test_neighbours_never_glue(self) -> None:
        rendering = render({"1.tmpl": "default_backend b", "2.tmpl": "backend b", "3.conf": "# end"}).rendering
        assert rendering.text == "default_backend b\nbackend b\n# end\n"
        assert [piece.fragment for piece in rendering.pieces] == ["1.tmpl", "2.tmpl", "3.conf"]

    def test_an_empty_result_is_an_empty_piece(self) -> None:
        assert [
            piece.text
            for piece in render({"1.tmpl": "{% if false %}x{% endif %}\n\n", "2.conf": "\n"}).rendering.pieces
        ] == ["", ""]

    def test_plain_fragments_are_not_rendered(self) -> None:
        assert render({"1.conf": "log-format {{ %ci }} {% x"}).rendering.text == "log-format {{ %ci }} {% x\n"

    def test_windows_line_ends_work_as_with_the_predecessor(self) -> None:
        assert (
            render({"1.conf": "global\r\n\r\ndefaults\r\n", "2.tmpl": "a\r\nb"}).rendering.text
            == "global\n\ndefaults\na\nb\n"
        )

    @given(st.lists(st.tuples(st.sampled_from(["conf", "tmpl"]), st.text("ab #\n", max_size=8)), max_size=5))
    def test_a_piece_is_empty_or_ends_with_one_newline_and_keeps_its_lines(
        self, given_texts: list[tuple[str, str]]
    ) -> None:
        # "{#" and "#}" cannot occur, so a template gives its own text.
        texts = {f"{number}.{suffix}": content for number, (suffix, content) in enumerate(given_texts)}
        for piece in render(texts).rendering.pieces:
            assert piece.text == "" or (piece.text.endswith("\n") and not piece.text.endswith("\n\n"))
            assert piece.text.strip() == texts[piece.fragment].strip()
            assert piece.text.rstrip().split("\n") == texts[piece.fragment].rstrip().split("\n")


class TestNames:
    def test_the_predecessors_loop(self) -> None:
        template = (
            "{%- for domain, items in domains.items() %}\n"
            "{%- if items.proto == 'http' %}\n"
            "{%- set var_name = domain|replace('.', '_') %}\n"
            "{% set be_name = 'be' + domain %}\n"
            "backend {{ be_name }} # {{ var_name }}\n"
            "{% for ip in items.ips %}\n"
            "    server {{ ip|replace('.', '_') }} {{ ip }}:{{ items.port }} check\n"
            "{% endfor %}\n"
            "{% endif %}\n"
            "{% endfor %}\n"
        )
        assert text(template, DOMAINS).strip() == (
            "backend beshop.local # shop_local\n    server 10_0_0_1 10.0.0.1:8080 check"
        )

    @pytest.mark.parametrize(
        "expression",
        ["extra.curdate", "extra['curdate']", "extra.get('curdate')", "extra.values() | first", "extra.items() | list"],
    )
    def test_curdate_is_given_and_its_use_is_told(self, expression: str) -> None:
        rendered = render({"1.tmpl": f"# {{{{ {expression} }}}}"})
        assert CURDATE in rendered.rendering.text
        assert rendered.used_curdate

    def test_without_use_curdate_is_not_told(self) -> None:
        assert not render(
            {"1.tmpl": "{{ extra is mapping }} {{ 'curdate' in extra }} {{ extra.other is defined }}"}
        ).used_curdate

    def test_extra_prints_as_the_predecessors_dict(self) -> None:
        rendered = render({"1.tmpl": "# {{ extra }}"})
        assert rendered.rendering.text == f"# {{'curdate': '{CURDATE}'}}\n"
        assert rendered.used_curdate

    def test_variables_of_the_operator_with_defaults(self) -> None:
        template = "{{ vars.maxconn | default(1000) }} {{ vars.bind | default('*:80') }}"
        assert text(template, variables={"maxconn": 5}) == "5 *:80\n"

    def test_loop_controls_and_do(self) -> None:
        loop = "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{% do found.append(i) %}{% endfor %}"
        assert text("{% set found = [] %}" + loop + "{{ found }}") == "[0, 1]\n"

    def test_trim_blocks_as_the_predecessor_had_it_or_off(self) -> None:
        assert text("{% if true %}\nx\n{% endif %}\ny") == "x\ny\n"
        assert text("{% if true %}\nx\n{% endif %}\ny", trim_blocks=False) == "\nx\n\ny\n"

    def test_filters(self) -> None:
        template = "{{ 'a b'|quote }} {{ 'fd00::1'|hostport(80) }} {{ '*.x'|identifier }} {{ [10, 9]|natsort }}"
        assert text(template) == "'a b' [fd00::1]:80 _2a.x [9, 10]\n"

    def test_nothing_is_escaped_for_html(self) -> None:
        assert text("{{ x }} {{ x | e | length }}", {"x": 'a<b> & "c"'}).startswith('a<b> & "c" ')

    @pytest.mark.parametrize("template", ["{{ [1] | random }}", "{{ lipsum() }}"])
    def test_nothing_random_is_there(self, template: str) -> None:
        assert problem(template)


class TestIncludes:
    def test_includes_imports_and_macros(self) -> None:
        includable = {
            "lib/macros.j2": "{% macro server(ip) %}server {{ ip }}:{{ vars.port }}{% endmacro %}",
            "head.txt": "# head for {{ domains | first }}\n",
        }
        template = "{% import 'lib/macros.j2' as m %}{% include 'head.txt' %}\n\n{{ m.server('10.0.0.1') }}"
        assert (
            text(template, DOMAINS, includable=includable, variables={"port": 80})
            == "# head for shop.local\nserver 10.0.0.1:80\n"
        )

    def test_fragments_may_include_each_other(self) -> None:
        assert render({"1.conf": "# one", "2.tmpl": "{% include '1.conf' %}"}).rendering.text == "# one\n# one\n"

    def test_an_imported_file_is_rendered_again_each_time(self) -> None:
        fragments = FragmentSet(
            (Fragment("1.tmpl", "{% import 'm.j2' as m %}{{ m.path }} {{ m.first }}"),),
            (Fragment("m.j2", "{% set path = map_file('a', {'k': 'v'}) %}{% set first = domains | first %}"),),
        )
        renderer = Renderer(fragments, RenderOptions(FILES))
        for domain in ("a", "b"):
            rendered = renderer.render(Context({"domains": {domain: {}}}), curdate=CURDATE)
            assert rendered.rendering.text == f"{FILES}/maps/a.map {domain}\n"
            assert len(rendered.rendering.files) == 1

    def test_a_template_that_is_not_there(self) -> None:
        found = problem("\n{% include 'macro.j2' %}", includable={"macros.j2": ""})
        known = "*.conf *.tmpl *.cfg *.inc *.j2 *.jinja *.jinja2 below the template directory; never credentials"
        assert found == Problem(
            "02-http.tmpl line 2",
            "there is no template 'macro.j2' to include",
            f"did you mean 'macros.j2'? (includable: {known})",
        )

    def test_an_error_in_an_included_file_names_both_files(self) -> None:
        found = problem("\n\n{% include 'a.j2' %}", includable={"a.j2": "x\n{{ 1 / 0 }}"})
        assert found.place == "a.j2 line 2"
        assert found.message == "division by zero (called from 02-http.tmpl line 3)"

    def test_an_error_in_an_imported_macro_names_the_macro_and_the_object(self) -> None:
        macro = "{% macro m(items) %}\n{{ items.prot }}\n{% endmacro %}"
        template = "{% import 'm.j2' as lib %}\n{% for d, items in domains.items() %}\n{{ lib.m(items) }}\n{% endfor %}"
        found = problem(template, DOMAINS, includable={"m.j2": macro})
        assert found.place == "m.j2 line 2"
        assert found.message == (
            "'items' has no 'prot', while rendering demo/shop (domain 'shop.local') (called from 02-http.tmpl line 3)"
        )
        assert found.remedy.startswith("did you mean 'proto'")

    def test_a_syntax_error_in_an_included_file(self) -> None:
        found = problem("{% include 'a.j2' %}", includable={"a.j2": "x\n{% for %}"})
        assert found.place == "a.j2 line 2"
        assert "called from 02-http.tmpl line 1" in found.message

    def test_a_recursion_without_end(self) -> None:
        found = problem("{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}")
        assert found.place == "02-http.tmpl line 1"
        assert "without end" in found.message


class TestErrors:
    def test_syntax_errors_of_all_fragments_at_once(self) -> None:
        found = problems(
            {"1.tmpl": "\n{% if %}", "2.tmpl": "fine", "3.tmpl": "{{ x | quotee }}", "4.tmpl": "{% fro x %}"}
        )
        assert [one.place for one in found] == ["1.tmpl line 2", "3.tmpl line 1", "4.tmpl line 1"]
        assert found[1].remedy == "did you mean 'quote'?"
        assert found[2].remedy == "did you mean 'from' or 'for'?"

    @pytest.mark.parametrize(
        "template",
        [
            "{% break %}",
            "{% macro m(a, a) %}{% endmacro %}",
            "{{ " + "9" * 5000 + " }}",
            "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
            "{% for a in [1] %}" * 25 + "{% endfor %}" * 25,
            "{% if 1 %}" * 120 + "{% endif %}" * 120,
        ],
        ids=["break", "argument", "number", "brackets", "loops", "ifs"],
    )
    def test_what_jinja_takes_and_python_does_not(self, template: str) -> None:
        assert problem(template).place == "02-http.tmpl"
        (found,) = problems({"02-http.tmpl": "{% include 'part' %}"}, includable={"part": template})
        assert found.place == "02-http.tmpl line 1"

    def test_failures_of_all_fragments_at_once(self) -> None:
        found = problems({"1.tmpl": "{{ a }}", "2.tmpl": "fine", "3.tmpl": "\n{{ b }}"})
        assert [one.place for one in found] == ["1.tmpl line 1", "3.tmpl line 2"]

    def test_an_undefined_name_suggests_a_close_one(self) -> None:
        found = problem("\n{% for d in domians %}{% endfor %}", DOMAINS)
        assert found.place == "02-http.tmpl line 2"
        assert found.message == "'domians' is undefined"
        assert found.remedy.startswith("did you mean 'domains'?")

    def test_an_undefined_loop_variable_suggests_a_close_one(self) -> None:
        assert (
            "'items'" in problem("{% for d, items in domains.items() %}{{ itmes.proto }}{% endfor %}", DOMAINS).remedy
        )

    def test_an_undefined_attribute_names_line_and_object(self) -> None:
        found = problem(
            "{% for d, items in domains.items() %}\n{% for ip in items.ipps %}\n{% endfor %}\n{% endfor %}", DOMAINS
        )
        assert found.place == "02-http.tmpl line 2"
        assert found.message == "'items' has no 'ipps', while rendering demo/shop (domain 'shop.local')"
        assert "'ips'" in found.remedy

    @pytest.mark.parametrize(
        ("template", "message", "remedy"),
        [
            ("{{ {'port': 1}.prt }}", "a dict has no 'prt'", "did you mean 'port'?"),
            ("{{ item.prt }}", "'item' has no 'prt'", "did you mean 'port'?"),
            ("{{ text.isdigt }}", "'text' has no 'isdigt'", ""),
            ("{{ numbers.coun }}", "'numbers' has no 'coun'", ""),
            ("{{ none.prt }}", "a NoneType has no 'prt'", ""),
        ],
    )
    def test_fields_of_what_has_some_are_suggested(self, template: str, message: str, remedy: str) -> None:
        names = {"item": Service("demo", "shop", 80), "text": "x", "numbers": [1]}
        found = problem("{% set item, text, numbers = item, text, numbers %}" + template, names)
        assert (found.message.partition(",")[0], found.remedy.partition("?")[0]) == (message, remedy.partition("?")[0])

    def test_what_was_at_hand_is_a_clue(self) -> None:
        items = [{"port": 1}]
        found = problem("{% for item in items %}{{ item.prt }}{% endfor %}", {"items": items})
        assert any(each is items[0] for each in found.clues.values)

    def test_objects_name_themselves_too(self) -> None:
        names = {"services": [Service("demo", "shop", 80), Service("demo", "cart", 81)]}
        found = problem("{% for s in services %}{% if s.name == 'cart' %}{{ s.prt }}{% endif %}{% endfor %}", names)
        assert found.message == "'s' has no 'prt', while rendering demo/cart"
        assert "'port'" in found.remedy

    def test_the_innermost_object_counts(self) -> None:
        names = {"services": [{"namespace": "a", "name": "outer", "refs": [{"namespace": "b", "name": "inner"}]}]}
        found = problem("{% for s in services %}{% for r in s.refs %}{{ r.x }}{% endfor %}{% endfor %}", names)
        assert "while rendering b/inner" in found.message

    def test_an_object_whose_loop_is_over_is_not_blamed(self) -> None:
        assert "demo" not in problem("{% for d, i in domains.items() %}{% endfor %}{{ 1 / 0 }}", DOMAINS).message

    def test_the_predecessors_values_are_named_by_their_domain(self) -> None:
        names = {"domains": {"shop.local": {"proto": "http"}}}
        found = problem("{% for domain, items in domains.items() %}{{ items.ips }}{% endfor %}", names)
        assert found.message == "'items' has no 'ips', while rendering domain 'shop.local'"

    @pytest.mark.parametrize(
        ("template", "message"),
        [
            ("{{ 'a' + 1 }}", "TypeError"),
            ("{{ 1 // 0 }}", "division by zero"),
            ("{{ none.x.y }}", "'x'"),
            ("{{ ''.join(1) }}", "TypeError"),
            ("{{ [1]|map('upper')|map('foo')|list }}", "foo"),
            ("{{ 'x' * 10 ** 18 }}", "MemoryError"),
            ("{{ 'x' * 10 ** 20 }}", "OverflowError"),
            ("{{ 'x' | hostport('http') }}", "'http' is no port"),
            ("{{ 'a\nb' | quote }}", "control character"),
            ("{{ domains.items }}", "not a text"),
            ("{{ [1] | map('string') }}", "not a text"),
            ("{{ unordered }}", "no order"),
            ("{{ caller() }}", "'caller' is undefined"),
            ("{% macro m(a) %}{{ a }}{% endmacro %}{{ m() }}", "parameter 'a' was not provided"),
        ],
    )
    def test_any_failure_gives_a_place(self, template: str, message: str) -> None:
        found = problem("\n" + template, {**DOMAINS, "unordered": {1, 2}})
        assert found.place.startswith("02-http.tmpl line ")
        assert message in found.message

    NULL = "a value is null there: test it with {% if %} or give a default"
    OPERAND = "TypeError: unsupported operand type(s) for +:"

    @pytest.mark.parametrize(
        ("template", "message", "remedy"),
        [
            ("{{ 1 / 0 }}", "division by zero", "test the divisor with {% if %} first"),
            ("{{ none + 1 }}", f"{OPERAND} 'NoneType' and 'int'", NULL),
            ("{{ 1 + 'a' }}", f"{OPERAND} 'int' and 'str'", ""),
            # Jinja's own words say it all.
            ("{{ [] | first }}", "No first item, sequence was empty.", ""),
            ("{% if %}", "Expected an expression, got 'end of statement block'", JINJA),
            ("{{ 'a' | nofilter }}", "No filter named 'nofilter'.", JINJA),
            ("{{ 'a' | uper }}", "No filter named 'uper'.", "did you mean 'upper'?"),
            ("{{ 'a' is nubmer }}", "No test named 'nubmer'.", "did you mean 'number'?"),
            ("{% foo %}", "Encountered unknown tag 'foo'.", "did you mean 'for'?"),
            (
                "{{ domian }}",
                "'domian' is undefined",
                "did you mean 'domains'?; or give a default: domian | default(...)",
            ),
            (
                "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                "a macro or an include calls itself without end",
                "give the recursion a condition that ends it",
            ),
        ],
    )
    def test_what_is_wrong_and_what_to_do(self, template: str, message: str, remedy: str) -> None:
        assert problem(f"\n{template}", DOMAINS) == Problem("02-http.tmpl line 2", message, remedy)

    def test_lenient_is_the_predecessors_silence(self) -> None:
        assert text("a{{ x }}{% for y in z %}{% endfor %}{{ domains.nope }}b", DOMAINS, lenient=True) == "ab\n"
        assert "'x' is undefined" in problem("{{ x.y }}", lenient=True).message

    @pytest.mark.parametrize(("bad", "what"), [("\0", "NUL"), ("\r", "carriage return"), ("\ud800", "surrogate")])
    def test_characters_that_would_break_the_file_are_refused(self, bad: str, what: str) -> None:
        found = problem("one\n{{ x }}", {"x": f"bind{bad} :80"})
        assert found.place == "02-http.tmpl rendered line 2"
        assert what in found.message
        assert problems({"1.conf": f"global\n# {bad}"})[0].place == "1.conf line 2"

    @pytest.mark.parametrize("name", ["1.conf", "1.tmpl"])
    @pytest.mark.parametrize("bad", ["\0", "\r", "\ud800"])
    def test_a_refused_text_stays_refused_when_rendered_again(self, name: str, bad: str) -> None:
        written = f"global\n# {bad}x\n" if name == "1.conf" else "global\n# {{ x }}\n"
        renderer = Renderer(FragmentSet((Fragment(name, written),)), RenderOptions(FILES))
        for _ in range(3):
            with pytest.raises(RejectedInput):
                renderer.render(Context({"x": bad}), curdate="")

    def test_line_ends_of_windows_are_line_ends(self) -> None:
        template = "{% for a in b %}\r\n# {{ a }}\r\n{% endfor %}\r\n"
        assert text(template, {"b": [1, 2]}) == "# 1\n# 2\n"
        assert render({"1.conf": "global\r\n# a\r\n"}).rendering.text == "global\n# a\n"

    def test_a_failure_outside_of_templates_is_a_bug_and_is_not_hidden(self) -> None:
        with pytest.raises(TypeError):
            render({"1.tmpl": "x"}, {"extra": 5})

    def test_a_file_that_is_imported_by_an_imported_one_needs_the_context(self) -> None:
        files = {
            "m.j2": "{% import 'n.j2' as n %}{% set x = n.y %}",
            "n.j2": "{% set y = domains | length %}",
        }
        found = problem("{% import 'm.j2' as m with context %}{{ m.x }}", {"domains": {}}, includable=files)
        assert found.message == "'domains' is undefined (called from 02-http.tmpl line 1)"
        assert found.remedy == (
            "a file that is imported by an imported file sees it only with {% import ... with context %}"
        )


class TestFiles:
    def test_a_map_is_declared_sorted_and_gives_its_path(self) -> None:
        rendering = render({"1.tmpl": "{{ map_file('hosts', {'b.local': 'be-b', 'a.local': 'be-a'}) }}"}).rendering
        assert rendering.text == f"{FILES}/maps/hosts.map\n"
        assert rendering.files == (OutputFile(FileKind.MAP, f"{FILES}/maps/hosts.map", "a.local be-a\nb.local be-b\n"),)

    def test_an_ordered_map_keeps_its_order(self) -> None:
        rendering = render({"1.tmpl": "{{ map_file('h', [('b', 1), ('a', 'x y')], ordered=true) }}"}).rendering
        assert rendering.files[0].content == "b 1\na x y\n"

    def test_a_map_of_endings_has_the_longest_first(self) -> None:
        entries = "{'.b': 1, '.a': 2, '.x.a': 3}"
        rendering = render({"1.tmpl": f"{{{{ map_file('h', {entries}, longest_first=true) }}}}"}).rendering
        assert rendering.files[0].content == ".x.a 3\n.a 2\n.b 1\n"

    def test_a_map_may_be_empty(self) -> None:
        assert render({"1.tmpl": "{{ map_file('h', []) }}"}).rendering.files[0].content == ""

    def test_the_same_content_twice_is_one_file(self) -> None:
        template = "{{ map_file('h', [('a', 1), ('a', 1)]) }}{{ map_file('h', {'a': '1'}) }}"
        assert len(render({"1.tmpl": template}).rendering.files) == 1

    @pytest.mark.parametrize(
        "expression", ["map_file('../x', {})", "map_file('h', [1])", "certificate_file('c', 'secret')"]
    )
    def test_what_no_file_can_hold_is_refused_at_its_line(self, expression: str) -> None:
        found = problem(f"\n{{{{ {expression} }}}}")
        assert found.place == "02-http.tmpl line 2"
        assert "secret" not in str(found)

    def test_a_certificate_is_canonical_and_secret(self) -> None:
        certificate = "-----BEGIN CERTIFICATE-----\r\nMIIB\r\n\r\n-----END CERTIFICATE-----\n"
        pem = certificate + " \n-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"
        rendering = render({"1.tmpl": "{{ certificate_file('shop.local', pem) }}"}, {"pem": pem}).rendering
        assert rendering.text == f"{FILES}/certs/shop.local.pem\n"
        assert rendering.files[0].content == (
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
            "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"
        )
        assert "MIIE" not in repr(rendering)

    def test_files_are_sorted_by_path(self) -> None:
        template = "{{ map_file('b', {}) }}{{ map_file('a', {}) }}{{ certificate_file('c', '-----BEGIN x-----END x') }}"
        paths = [file.path.removeprefix(FILES) for file in render({"1.tmpl": template}).rendering.files]
        assert paths == ["/certs/c.pem", "/maps/a.map", "/maps/b.map"]

    def test_a_directory_that_would_need_quotes_is_refused(self) -> None:
        fragments = FragmentSet((Fragment("1.tmpl", "{{ map_file('h', {}) }}"),))
        with pytest.raises(RejectedInput, match="files_dir"):
            Renderer(fragments, RenderOptions("/etc/my files")).render(Context({}), curdate="")


def test_the_same_input_gives_the_same_bytes() -> None:
    fragments = FragmentSet((Fragment("1.tmpl", "{{ map_file('h', domains) }} {{ extra.curdate }}"),))
    renderer = Renderer(fragments, RenderOptions(FILES))
    one, two = (renderer.render(Context({"domains": {"a": "b", "c": "d"}}), curdate=CURDATE) for _ in range(2))
    assert one == two
    assert one.rendering.digest == two.rendering.digest


def test_same_objects_give_the_same_rendering() -> None:
    """An event that changes nothing that templates see costs no rendering."""
    fragments = FragmentSet((Fragment("1.tmpl", "{{ a.b }}{{ extra.curdate }}"),))
    renderer, names = Renderer(fragments, RenderOptions(FILES)), MappingProxyType({"a": {"b": "c"}})
    first = renderer.render(Context(names), curdate=CURDATE)
    assert renderer.render(Context(names), curdate=CURDATE) is first
    assert renderer.render(Context(names), curdate="later").rendering.text == "clater\n"
    assert renderer.render(Context({"a": {"b": "d"}}), curdate="later").rendering.text == "dlater\n"
    key = OutputFile(FileKind.CERTIFICATE, f"{FILES}/certs/a.pem", "x")
    assert renderer.render(Context(names, files=(key,)), curdate=CURDATE).rendering.files == (key,)
    owned = Context(names, owners={"domains": {}})
    assert renderer.render(owned, curdate=CURDATE).rendering.owners == owned.owners


def test_failed_rendering_is_forgotten() -> None:
    renderer, names = Renderer(FragmentSet((Fragment("1.tmpl", "{{ a.b }}"),)), RenderOptions(FILES)), {"a": {"b": "c"}}
    renderer.render(Context(names), curdate=CURDATE)
    with pytest.raises(RejectedInput):
        renderer.render(Context({}), curdate=CURDATE)
    again = renderer.render(Context(names), curdate=CURDATE)
    assert again.rendering.text == "c\n"
    assert renderer.element_at("1.tmpl", 1, "other") is None
