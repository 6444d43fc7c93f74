import signal
import threading

import pytest

from pyconfd.daemon.limited import LimitedRenderer, _limits
from pyconfd.errors import RejectedInput
from pyconfd.model.context import ClusterTemplate, Context
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.predecessors.sandbox.renderer import Limits, TemplateProcess
from pyconfd.render.engine import RenderOptions

SILENT = """{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}
{%- endfor %}"""
LOUD = f"""{{% for a in range(9999) %}}{{% for b in range(9999) %}}{{{{ b ~ '{"x" * 1000}' }}}}{{% endfor %}}
{{%- endfor %}}"""


class Short(LimitedRenderer):
    longest_s = 0.5


class Small(LimitedRenderer):
    most_bytes = 64 << 20


def fragments(text: str) -> FragmentSet:
    return FragmentSet((Fragment("02-part.tmpl", f"# first\n{text}"),))


@pytest.mark.parametrize(
    ("kind", "text", "told"), [(Short, SILENT, "did not end within 0.5 s"), (Small, LOUD, "more than 64 MiB")]
)
def test_a_template_without_end_is_refused_by_its_line(kind: type[LimitedRenderer], text: str, told: str) -> None:
    before = signal.getsignal(signal.SIGALRM)
    renderer = kind(fragments(text), RenderOptions("/files"))
    with pytest.raises(RejectedInput) as error:
        renderer.render(Context({}), curdate="")
    (problem,) = error.value.problems
    assert problem.place == "02-part.tmpl line 2"
    assert told in problem.message
    assert problem.remedy
    assert signal.getsignal(signal.SIGALRM) is before


def test_the_object_that_is_behind_it_is_known() -> None:
    text = "{% for service in services %}{% for a in range(service.count) %}{% endfor %}{% endfor %}\n"
    bad = {"namespace": "demo", "name": "bad", "count": 10**12}
    with pytest.raises(RejectedInput) as error:
        Short(fragments(text), RenderOptions("/files")).render(Context({"services": [bad]}), curdate="")
    assert bad in error.value.problems[0].clues.values
    assert "while rendering demo/bad" in error.value.problems[0].message


def test_who_waits_for_a_template_of_the_cluster_is_not_cut_short() -> None:
    """It has limits of its own, and two seconds of processor time are many on a busy machine."""
    process = TemplateProcess(Limits(timeout_s=0.5))
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    try:
        with _limits(0.5, 1 << 40), pytest.raises(RejectedInput, match="the template takes longer than"):
            process.render(ClusterTemplate("configmap lb/config", endless, {}, {}))
        assert process.render(ClusterTemplate("configmap lb/other", "one", {}, {})) == "one", "no answer is mixed up"
    finally:
        process.close()


def test_what_ends_is_rendered_in_any_thread() -> None:
    renderer = LimitedRenderer(fragments("{{ a }}"), RenderOptions("/files"))
    given: list[str] = []

    def render() -> None:
        given.append(renderer.render(Context({"a": 1}), curdate="").rendering.text)

    render()
    thread = threading.Thread(target=render)
    thread.start()
    thread.join()
    assert given == ["# first\n1\n"] * 2
