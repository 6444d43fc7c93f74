"""What is known of a request, without a loop around it."""

import threading
import time
from collections.abc import Callable

import pytest

from pyconfd.errors import PendingRendering, Problem, RejectedInput
from pyconfd.model.context import ClusterTemplate
from pyconfd.model.versioned import VersionedDict
from pyconfd.predecessors.sandbox.background import BackgroundTemplates
from pyconfd.predecessors.sandbox.renderer import OverLimitError

TEMPLATE = ClusterTemplate("configmap lb/config", "a", {})


def asked(templates: BackgroundTemplates, template: ClusterTemplate = TEMPLATE) -> object:
    try:
        return templates.render(template)
    except RejectedInput as error:
        return error.problems[0].message
    except PendingRendering as pending:
        return "pending", pending.known if isinstance(pending.known, str | None) else pending.known.problems[0].message


def run(render: Callable[[ClusterTemplate], str], *, times: int = 1) -> BackgroundTemplates:
    """Ask for TEMPLATE until it was rendered so often."""
    done = threading.Semaphore(0)
    templates = BackgroundTemplates(render, lambda: None)
    templates.start(done.release)
    for _ in range(times):
        asked(templates)
        assert done.acquire(timeout=30)
    templates.stop()
    return templates


@pytest.mark.parametrize("names", [{}, {"a": [1]}, {"domains": VersionedDict({"a": {"ips": ["192.0.2.1"]}})}])
def test_an_answer_is_known_by_source_and_names(names: dict[str, object]) -> None:
    templates = run(lambda template: template.text)
    assert asked(templates) == "a"
    other = ClusterTemplate(TEMPLATE.name, "b", names)
    assert asked(templates, other) == ("pending", None)
    assert asked(templates, ClusterTemplate(TEMPLATE.name, "a", {"x": 1})) == ("pending", "a")


def test_one_that_used_too_much_is_asked_for_again_in_time() -> None:
    until = [0.0]

    def render(_template: ClusterTemplate) -> str:
        raise OverLimitError(Problem("", "too long"), until=until[0])

    until[0] = time.monotonic() + 3600
    templates = run(render)
    assert asked(templates) == "too long"
    assert templates._waiting == {}
    until[0] = 0.0
    templates = run(render, times=2)
    assert asked(templates) == ("pending", "too long")
