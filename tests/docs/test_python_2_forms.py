"""What docs/migrating says of templates that were written for Python 2."""

import pytest

from pyconfd.render.cluster_templates import TemplateFault, render

NAMES = {"hosts": {"web": ["192.0.2.1"]}, "service": {"path": "/a", "pods": {"b": {"n": 1}}}}


@pytest.mark.parametrize(
    "then",
    [
        "{{ hosts.has_key('web') }}",
        "{{ hosts.values()[0] }}",
        "{{ hosts.keys()[0] }}",
        "{{ hosts.iteritems()[0] }}",
        "{{ service.has_key('path') }}",
        "{{ service.pods.values()[0].n }}",
    ],
)
def test_the_old_form_is_refused_with_its_line(then: str) -> None:
    found = render(f"\n{then}", NAMES, {}, 1000)
    assert isinstance(found, TemplateFault)
    assert found.line == 2


@pytest.mark.parametrize(
    ("now", "given"),
    [
        ("{{ 'web' in hosts }}", "True"),
        ("{{ (hosts.values() | list)[0][0] }}", "192.0.2.1"),
        ("{{ 'path' in service }}", "True"),
        ("{{ (service.pods.values() | list)[0].n }}", "1"),
    ],
)
def test_the_new_form_does_the_same(now: str, given: str) -> None:
    assert render(now, NAMES, {}, 1000) == given
