"""Attribute names that lead from a value to Python's own objects: no filter, test or function follows them."""

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment
from jinja2.exceptions import SecurityError
from jinja2.runtime import new_context

from pyconfd.model.rendering import FragmentSet
from pyconfd.render import cluster_templates, engine
from pyconfd.render.cluster_templates import TemplateFault, render
from pyconfd.render.filters import FILTERS, FUNCTIONS
from pyconfd.render.fragment import TEMPLATE_FAULTS

SECRET = "hunter2-of-another-tenant"
OUT_OF_REACH = [SECRET]
"""A module's global: whoever reaches ``__globals__`` of a function of this file reads it."""

_STEPS = (
    "__class__ __mro__ mro __subclasses__ __bases__ __base__ __init__ __globals__ __builtins__ __dict__ "
    "__self__ __func__ __code__ __closure__ __defaults__ __wrapped__ __module__ __import__ __getattribute__ "
    "__reduce_ex__ __call__ __name__ __doc__ func_globals func_code gi_frame gi_code gi_yieldfrom cr_frame "
    "cr_code ag_frame f_globals f_locals f_back f_builtins f_code tb_frame tb_next co_consts im_func im_self "
    "_secret _environment _context _func environment context _undefined_obj format format_map keys items next "
    "current grouper list name code secret 0 1 -1"
)
STEPS = _STEPS.split()


@dataclass(frozen=True)
class Pod:
    """What presets give: data, and a method."""

    name: str
    _secret: str = field(default=SECRET, repr=False)

    def code(self) -> str:
        return OUT_OF_REACH[0]


def a_generator() -> Any:
    secret = SECRET
    yield len(secret)


def of_fragments() -> Environment:
    return engine._environment(FragmentSet(()), engine.RenderOptions("/files"))[0]


def of_the_cluster() -> Environment:
    return cluster_templates._environment({}, {})


ENVIRONMENTS = {"fragments": of_fragments(), "cluster": of_the_cluster()}
OWN = sorted({*FILTERS, *FUNCTIONS})
BUILT_IN = sorted(set(ENVIRONMENTS["cluster"].filters) - set(OWN))
TESTS = sorted(ENVIRONMENTS["cluster"].tests)
CODE = (
    type,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.FrameType,
    types.CodeType,
    types.TracebackType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.GetSetDescriptorType,
)
paths = st.lists(st.sampled_from(STEPS), min_size=1, max_size=4).map(".".join)
SUBJECTS: tuple[Callable[[], Any], ...] = (
    lambda: "text",
    lambda: {"name": "a", "secret": "public"},
    lambda: Pod("a"),
    a_generator,
    lambda: result_of,
    lambda: OUT_OF_REACH.copy,
    lambda: SecurityError("x"),
)


def escaped(value: Any, depth: int = 0) -> list[Any]:
    """Return what ``value`` holds that is code or the secret."""
    if isinstance(value, CODE) or (isinstance(value, str) and SECRET in value):
        return [value]
    if isinstance(value, Pod) or depth > 4:
        return []
    if isinstance(value, dict):
        return [found for pair in value.items() for each in pair for found in escaped(each, depth + 1)]
    if isinstance(value, list | tuple | set | types.GeneratorType):
        return [found for each in value for found in escaped(each, depth + 1)]
    return []


def result_of(call: Callable[[], Any]) -> Any:
    """Return what a call gives, with what a generator of it gives; an error of the template gives nothing."""
    try:
        found = call()
        return list(found) if isinstance(found, types.GeneratorType) else found
    except TEMPLATE_FAULTS:
        return None


def arguments_with(path: str) -> tuple[tuple[list[str], dict[str, str]], ...]:
    """Return all ways in which a filter or test takes the name of an attribute."""
    named = ("attribute", "name", "by")
    return ([path], {}), (["attr", path], {}), ([], {}), *(([], {each: path}) for each in named)


def assert_reaches_nothing(environment: Environment, name: str, path: str, call: str) -> None:
    context = new_context(environment, None, {}, {})
    for make in SUBJECTS:
        subject = make()
        for given_subject in (subject, [subject], {"name": subject}):
            for arguments, keywords in arguments_with(path):
                function = getattr(environment, call)
                found = result_of(partial(function, name, given_subject, arguments, keywords, context=context))
                assert [each for each in escaped(found) if each is not subject] == [], (subject, arguments, keywords)


@pytest.mark.parametrize("kind", ENVIRONMENTS)
@given(name=st.sampled_from(OWN), path=paths)
@settings(max_examples=150, deadline=None)
def test_own_filters_reach_no_code(kind: str, name: str, path: str) -> None:
    assert_reaches_nothing(ENVIRONMENTS[kind], name, path, "call_filter")


@given(name=st.sampled_from(BUILT_IN), path=paths)
@settings(max_examples=300, deadline=None)
def test_built_in_filters_reach_no_code(name: str, path: str) -> None:
    assert_reaches_nothing(ENVIRONMENTS["cluster"], name, path, "call_filter")


@given(name=st.sampled_from(TESTS), path=paths)
@settings(max_examples=60, deadline=None)
def test_tests_reach_no_code(name: str, path: str) -> None:
    assert_reaches_nothing(ENVIRONMENTS["cluster"], name, path, "call_test")


@pytest.mark.parametrize("kind", ENVIRONMENTS)
@given(name=st.sampled_from(sorted(FUNCTIONS)), path=paths)
@settings(max_examples=60, deadline=None)
def test_functions_reach_no_code(kind: str, name: str, path: str) -> None:
    function: Any = ENVIRONMENTS[kind].globals[name]
    for make in SUBJECTS:
        subject = make()
        for arguments in ([subject], [[subject]], [subject, path], [[subject], path]):
            found = result_of(partial(function, *arguments))
            assert [each for each in escaped(found) if each is not subject] == []


EXPRESSIONS = (
    "{{{{ ({subject} | attr('{path}')) | string }}}}",
    "{{{{ [{subject}] | map(attribute='{path}') | map('string') | join }}}}",
    "{{{{ [{subject}] | group_by('{path}') | map(attribute='grouper') | map('string') | join }}}}",
    "{{{{ [{subject}] | groupby('{path}') | map('first') | map('string') | join }}}}",
    "{{{{ [{subject}] | natsort('{path}') | length }}}}{{{{ [{subject}] | unique_by('{path}') | length }}}}",
    "{{{{ [{subject}] | sort(attribute='{path}') | unique(attribute='{path}') | list | length }}}}",
    "{{{{ [{subject}] | sum(attribute='{path}') | string }}}}{{{{ [{subject}] | min(attribute='{path}') | string }}}}",
    "{{{{ [{subject}] | selectattr('{path}') | list | length }}}}",
    "{{{{ {subject}.{path} | string }}}}",
    "{{{{ {subject}['{path}'] | string }}}}",
    "{{{{ '{{0.{path}}}'.format({subject}) }}}}",
    "{{{{ '{{a.{path}}}'.format_map({{'a': {subject}}}) }}}}",
    "{{{{ ('{{0.{path}}}' | attr('format'))({subject}) }}}}",
    "{{{{ ['{{0.{path}}}'] | map('attr', 'format') | list | length }}}}",
    "{{% set f = {subject}.{path} %}}{{{{ f() | string }}}}",
)
_NAMES = (
    "pod text number list map loop self cycler joiner dict range namespace hostport port_named server_ids m c j n g"
)
NAMES = _NAMES.split()
BEFORE = (
    "{% macro m(a) %}{{ a }}{% endmacro %}{% set c = cycler(1, 2) %}{% set j = joiner('-') %}"
    "{% set n = namespace(a=1) %}{% set g = [1] | map('string') %}"
)


@given(st.sampled_from(EXPRESSIONS), st.sampled_from(NAMES), st.lists(st.sampled_from(STEPS), min_size=1, max_size=3))
@settings(max_examples=500, deadline=None)
def test_no_expression_prints_code_or_a_secret(expression: str, subject: str, steps: list[str]) -> None:
    text = BEFORE + "{% for one in [1] %}" + expression.format(subject=subject, path=".".join(steps)) + "{% endfor %}"
    names = {"pod": Pod("a"), "text": "text", "number": 1, "list": [1], "map": {"secret": "public", "a": 1}}
    found = render(text, names, {}, 100_000)
    printed = found.message if isinstance(found, TemplateFault) else found
    assert SECRET not in printed
    if not isinstance(found, TemplateFault):
        for mark in ("<class", "<function", "<module", "<frame", "<code", "<slot wrapper", "<method"):
            assert mark not in printed, text


@pytest.mark.parametrize(
    "text",
    [
        "{{ [''] | group_by('__class__.__mro__') | length }}",
        "{{ [''] | natsort('__class__.__mro__') | length }}",
        "{{ [''] | unique_by('__class__') | length }}",
        "{{ [hostport] | group_by('__globals__') | length }}",
        "{{ [dict] | group_by('mro') | length }}",
        "{{ ''|map('string')|list|length }}{{ [''|map('string')] | group_by('gi_frame') | length }}",
        "{{ [pod] | group_by('code') | length }}",
        "{{ joiner.__init__ | string }}",
    ],
)
def test_a_way_to_code_is_refused(text: str) -> None:
    found = render(text, {"pod": Pod("a")}, {}, 1000)
    assert isinstance(found, TemplateFault), found


@pytest.mark.parametrize("name", ["cycler", "joiner", "dict", "range", "namespace", "hostport", "port_named"])
def test_a_function_is_called_by_name_and_is_no_value(name: str) -> None:
    assert render(f"{{% set f = {name} %}}{{{{ f | string }}}}", {}, {}, 1000) == f"function {name}"
    assert isinstance(render(f"{{{{ {name} }}}}", {}, {}, 1000), TemplateFault)


def test_functions_still_work_by_name() -> None:
    text = (
        "{% set n = namespace(a=1) %}{% set n.a = 2 %}{{ n.a }}"
        "{% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.current }}{% set j = joiner('-') %}{{ j() }}a{{ j() }}b"
        " {{ dict(a=1).a }} {{ range(3) | join }} {{ hostport('fd00::1', 80) }}"
        " {{ port_named([{'name': 'http', 'port': 80}], 'http') }}"
        " {{ '{0}-{b}'.format(1, b=2) }} {{ '{a}'.format_map({'a': 3}) }}"
    )
    assert render(text, {}, {}, 1000) == "2xya-b 1 012 [fd00::1]:80 80 1-2 3"
