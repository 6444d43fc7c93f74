"""The loop beside templates of the cluster that take long; the test says when each rendering ends."""

import queue
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.context import ClusterTemplate
from pyconfd.model.kubernetes import ConfigMap
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import FragmentSet
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.model.status import Phase
from pyconfd.predecessors.sandbox.background import BackgroundTemplates
from pyconfd.render.engine import Renderer, RenderOptions
from tests.daemon.fakes import Bed, cluster

LIMIT_S = 30.0


def judged(template: ClusterTemplate) -> str:
    """Stand for rendering: the template with the names of the services, of which none may be ``bad``."""
    names = " ".join(service["name"] for service in template.names["services"])
    if "bad" in names or "wrong" in template.text:
        raise RejectedInput(Problem(template.name, "it is wrong"))
    return f"{template.text} for {names}\n"


class TemplateBed(Bed):
    """``finish`` lets one rendering end and the loop see it; ``rendered`` are the sources in order."""

    presets = ("domains", "configmap")

    def __init__(self) -> None:
        self._may_end: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.began: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.rendered: list[str] = []
        self.renderings = self.background = BackgroundTemplates(self._render, lambda: self._may_end.put(None))
        super().__init__()

    def _render(self, template: ClusterTemplate) -> str:
        self.began.put(template.text)
        self._may_end.get(timeout=LIMIT_S)
        self.rendered.append(template.text)
        return judged(template)

    def _compile(self, found: FragmentSet) -> Renderer:
        return Renderer(found, RenderOptions("/files"), self.background.render)

    def show(self, template: str, address: str, *services: str) -> None:
        self.source.show(snapshot(template, address, *services))

    def finish(self) -> None:
        self._may_end.put(None)
        posts = self.daemon.mailbox.take(LIMIT_S)
        assert posts, "the end of a rendering wakes the loop"
        self.daemon.step(posts)
        self.settle()


def snapshot(template: str, address: str, *services: str) -> Snapshot:
    entry = '{"namespace": "demo", "selector": {"app": "x"}}'
    data = {"config": {"template": template}, "services": dict.fromkeys(services or ("app",), entry)}
    maps = {
        Key("lb", name): ConfigMap(ObjectMeta(name=name, namespace="lb", resource_version=str(each)), each)
        for name, each in data.items()
    }
    return replace(cluster(address), config_maps=maps)


@pytest.fixture
def bed() -> Iterator[TemplateBed]:
    """Serves template ``# one`` and a Service."""
    made = TemplateBed()
    made.show("# one", "192.0.2.10")
    made.settle()
    assert made.serves == "", "the first configuration waits for its template"
    made.finish()
    assert "# one for app" in made.serves
    assert made.began.get(timeout=LIMIT_S) == "# one"
    yield made
    made.daemon.close()


def test_endpoints_wait_for_no_rendering(bed: TemplateBed) -> None:
    for number in range(11, 16):  # one edit each second, and each would take for ever
        bed.show(f"# edit {number}", f"192.0.2.{number}")
        bed.settle()
        if number == 11:
            assert bed.began.get(timeout=LIMIT_S) == "# edit 11"
        assert f"192.0.2.{number}" in bed.serves
        assert "# one for app" in bed.serves
        assert bed.status.pending_since
    assert bed.rendered == ["# one"], "no rendering ended meanwhile"
    bed.finish()
    assert "# one for app" in bed.serves, "the first edit is outdated"
    bed.finish()
    assert "# edit 15 for app" in bed.serves
    assert bed.rendered == ["# one", "# edit 11", "# edit 15"], "those between them are never rendered"
    assert bed.status.pending_since == 0.0


def test_a_refusal_stays_shown_while_endpoints_change(bed: TemplateBed) -> None:
    bed.show("# wrong", "192.0.2.10")
    bed.settle()
    assert bed.phase() is Phase.SERVING
    bed.finish()
    assert bed.phase() is Phase.REJECTED
    assert "it is wrong" in bed.problems()[0]
    bed.show("# wrong", "192.0.2.11", "app", "more")
    bed.settle()
    assert "192.0.2.11" in bed.serves
    assert "it is wrong" in bed.problems()[0]
    bed.finish()
    assert "# one for app\n" in bed.serves, "the last good text stays"
    assert "it is wrong" in bed.problems()[0]
    bed.show("# two", "192.0.2.11", "app", "more")
    bed.settle()
    bed.finish()
    assert "# two for app more" in bed.serves
    assert bed.phase() is Phase.SERVING


def test_a_steady_stream_of_changes_is_followed(bed: TemplateBed) -> None:
    bed.show("# one", "192.0.2.10", "app", "b")
    bed.settle()
    assert bed.began.get(timeout=LIMIT_S) == "# one"
    bed.show("# one", "192.0.2.10", "app", "b", "c")
    bed.settle()
    bed.finish()
    assert "# one for app b\n" in bed.serves, "what was just rendered is newer than what serves"
    bed.finish()
    assert "# one for app b c\n" in bed.serves


def test_an_entry_that_spoils_the_template_stops_nobody_else(bed: TemplateBed) -> None:
    bed.show("# one", "192.0.2.11", "app", "bad")
    bed.settle()
    bed.finish()
    assert "192.0.2.11" in bed.serves
    assert "# one for app\n" in bed.serves, "the last good text stays"
    assert "last good text stays" in bed.problems()[0]
    bed.show("# one", "192.0.2.11", "app", "more")
    bed.settle()
    bed.finish()
    assert "# one for app more\n" in bed.serves
    assert bed.problems() == ()


def test_nothing_waits_for_a_template_that_comes_later() -> None:
    """The one that never served is left out until it is rendered, and the rest goes on."""
    other = TemplateBed()
    try:
        other.source.show(cluster("192.0.2.10"))
        other.settle()
        assert "192.0.2.10" in other.serves
        other.show("# one", "192.0.2.11")
        other.settle()
        assert "192.0.2.11" in other.serves
        assert "# one" not in other.serves
        assert other.phase() is Phase.SERVING
        other.finish()
        assert "# one for app" in other.serves
    finally:
        other.daemon.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_thread_ends_the_loop(bed: TemplateBed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.daemon.test_cluster_templates.judged", lambda _: 1 // 0)
    bed.show("# two", "192.0.2.10")
    bed.settle()
    with pytest.raises(ZeroDivisionError):
        bed.finish()
