"""Generated texts and trees: reading never fails with anything but its own error; translating keeps the meaning."""

from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from jinja2 import TemplateSyntaxError

from pyconfd.migrate.gotemplate.lexer import GoTemplateError
from pyconfd.migrate.gotemplate.parser import parse
from pyconfd.migrate.gotemplate.translate import translate
from pyconfd.migrate.gotemplate.types import KUBE2LB, PLAIN
from pyconfd.render.invalid import InvalidValueError
from tests.migrate.go_oracle import GoError, Machine, source
from tests.migrate.test_go_corpus import environment, rendered

DATA = {
    "name": "shop",
    "empty": "",
    "n": 3,
    "zero": 0,
    "yes": True,
    "no": False,
    "nothing": None,
    "list": ["b", "a", ""],
    "numbers": [2, 0, 1],
    "none": [],
    "map": {"k": "v", "a": 1},
    "people": [{"name": "Ann", "n": 1, "list": ["x"]}, {"name": "", "n": 0, "list": []}],
}
FIELDS = st.sampled_from([*DATA, "absent"])
TRIMS = st.tuples(st.booleans(), st.booleans())
RAW = st.text(alphabet="ab {}%#-\n\t\u00a0\u00e9\"'", max_size=8).filter(lambda text: "{{" not in text)
LEAVES = st.one_of(
    st.tuples(st.just("text"), st.sampled_from(["x", "", "a b", 'q"', "é", "{{ x }}", "{% x %}", "a\nb", "\\"])),
    st.tuples(st.just("number"), st.integers(-3, 9)),
    st.tuples(st.just("bool"), st.booleans()),
    st.just(("dot",)),
    st.tuples(st.just("root"), FIELDS),
    st.tuples(st.just("field"), FIELDS),
)


@cache
def values(variables: tuple[str, ...], depth: int = 2) -> st.SearchStrategy[Any]:
    leaves = LEAVES
    if variables:
        leaves = st.one_of(leaves, st.tuples(st.just("variable"), st.sampled_from(variables)))
    if not depth:
        return leaves
    inner = values(variables, depth - 1)
    return st.one_of(
        leaves,
        leaves,
        st.tuples(st.just("call"), st.sampled_from(["eq", "ne", "lt", "gt", "and", "or", "print"]), inner, inner),
        st.tuples(st.just("call"), st.sampled_from(["not", "len"]), inner),
        st.tuples(st.just("piped"), st.sampled_from(["eq", "and", "or", "print"]), inner, inner),
    )


NAMES = ("x", "y", "services", "loop", "camelCase")


@st.composite
def bodies(draw: st.DrawFn, variables: tuple[str, ...] = (), depth: int = 3, *, in_range: bool = False) -> Any:
    nodes: list[Any] = []
    known = variables
    kinds = ["raw", "raw", "print", "print", "set"] + (["if", "with", "range", "range"] if depth else [])
    kinds += ["jump"] if in_range else []
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=5)):
        trims = draw(TRIMS)
        value = draw(values(tuple(sorted(set(known)))))
        if kind == "raw":
            # Two texts beside each other are one text, and braces may meet in them.
            if not nodes or nodes[-1][0] != "raw":
                nodes.append(("raw", draw(RAW)))
        elif kind == "print":
            nodes.append(("print", trims, value))
        elif kind == "jump":
            nodes.append(("jump", trims, draw(st.sampled_from(["break", "continue"])), value))
        elif kind == "set":
            name = draw(st.sampled_from(NAMES))
            sign = draw(st.sampled_from([":=", "="])) if name in known else ":="
            nodes.append(("set", trims, name, sign, value))
            known = (*known, name)
        else:
            body = bodies(known, depth - 1, in_range=in_range)
            if kind == "if":
                nodes.append(("if", trims, value, draw(body), draw(st.none() | body)))
            elif kind == "with":
                nodes.append(("with", trims, value, draw(body)))
            else:
                names = tuple(draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True)))
                collection = draw(st.sampled_from(["list", "numbers", "none", "map", "people", "nothing"]))
                inner = draw(bodies((*known, *names), depth - 1, in_range=True))
                nodes.append(("range", trims, names, ("root", collection), inner, draw(st.none() | body)))
    return tuple(nodes)


@given(st.text(alphabet=st.sampled_from(list("{}-. \n$xi|()\"'`,:=01/*+%#\\é\x00")) | st.characters(), max_size=60))
@settings(max_examples=300, deadline=None)
def test_reading_any_text_gives_a_tree_or_its_own_error_with_line_and_column(text: str) -> None:
    _reads_or_says_where("{{" + text)
    _reads_or_says_where(text)


TOKENS = """{{ }} {{- -}} if else end range with define template block break continue . .X $ $x := = | ( ) , "s" `r` 'c'
    1 -2 0x1f 1.5 nil true eq and len printf index ServerNames js foo /* */ $y text"""


@given(st.lists(st.sampled_from([*TOKENS.split(), " ", "\n"]), max_size=40), st.sampled_from(["", " "]))
@settings(max_examples=300, deadline=None)
def test_reading_and_translating_any_tokens_never_fails_otherwise(tokens: list[str], blank: str) -> None:
    text = blank.join(tokens)
    _reads_or_says_where(text)
    for schema in (PLAIN, KUBE2LB):
        try:
            translated = translate(text, schema, "any.tpl")
        except GoTemplateError:
            continue
        environment().parse(translated.text)


def _reads_or_says_where(text: str) -> None:
    refused = None
    try:
        parse(text)
    except GoTemplateError as error:
        refused = error
    if refused is not None:
        lines = text.split("\n")
        assert 1 <= refused.line <= len(lines)
        assert 1 <= refused.column <= len(lines[refused.line - 1]) + 2


@given(bodies())
@settings(
    max_examples=200,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_a_generated_template_renders_as_the_oracle_says(nodes: Any) -> None:
    text = source(nodes)
    try:
        translated = translate(text, PLAIN, "generated.tpl")
    except GoTemplateError:
        # A brace before a tag: Go refuses it too.
        assume(False)
    assume(not any(remark.is_problem for remark in translated.remarks))
    try:
        expected = Machine(DATA).run(nodes)
    except GoError:
        return
    try:
        result = rendered(translated.text, {"data": DATA})
    except (InvalidValueError, TemplateSyntaxError, TypeError) as error:
        raise AssertionError(f"{text!r}\n{translated.text!r}\n{error}") from error
    assert result == expected, f"{text!r}\n{translated.text!r}"
