import pytest

from pyconfd.daemon.fragments import LiveFragments
from pyconfd.errors import Problem, PyconfdError, TransientError
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions

GOOD, OTHER, BAD = "# good\n", "# other\n", "{% fro x %}\n"
AWAY = TransientError(Problem("/etc/pyconfd", "does not exist"))


class Directory:
    def __init__(self, former: str | None = None) -> None:
        self.content: str | PyconfdError = GOOD
        self.compiled: list[str] = []
        self.live = LiveFragments(
            self.read,
            self.compile,
            lambda _: PresetOptions(node_ports=True),
            lambda: None if former is None else FragmentSet((Fragment("01.tmpl", former),)),
        )

    def read(self) -> FragmentSet:
        if isinstance(self.content, PyconfdError):
            raise self.content
        return FragmentSet((Fragment("01.tmpl", self.content),))

    def compile(self, found: FragmentSet) -> Renderer:
        self.compiled.append(found.fragments[0].text)
        return Renderer(found, RenderOptions("/files"))

    def becomes(self, content: str | PyconfdError) -> bool:
        self.content = content
        return self.live.refresh()


def test_it_compiles_what_changed_and_nothing_else() -> None:
    directory = Directory()
    assert directory.becomes(GOOD)
    assert not directory.becomes(GOOD)
    first = directory.live.newest
    assert first is not None
    assert first.options.node_ports
    assert directory.becomes(OTHER)
    assert directory.live.newest is not first
    assert directory.compiled == [GOOD, OTHER]


def test_a_directory_that_vanishes_takes_nothing_away_and_comes_back_without_compiling() -> None:
    directory = Directory()
    directory.becomes(GOOD)
    before = directory.live.newest
    assert not directory.becomes(AWAY)
    assert directory.live.problems == AWAY.problems
    assert not directory.becomes(GOOD)
    assert directory.live.problems == ()
    assert directory.live.newest is before
    assert directory.compiled == [GOOD]


def test_what_does_not_compile_is_tried_once_and_shown_until_it_is_mended() -> None:
    directory = Directory()
    directory.becomes(GOOD)
    before = directory.live.newest
    for _ in range(3):
        assert not directory.becomes(BAD)
        assert "01.tmpl line 1" in str(directory.live.problems[0])
    directory.becomes(AWAY)
    directory.becomes(BAD)
    assert "01.tmpl line 1" in str(directory.live.problems[0])
    assert directory.compiled == [GOOD, BAD]
    assert directory.live.newest is before
    assert directory.becomes(GOOD)
    assert directory.live.problems == ()


def test_what_served_before_a_restart_is_proven_and_what_else_is_there_has_yet_to_be() -> None:
    directory = Directory(former=OTHER)
    assert directory.becomes(GOOD)
    live = directory.live
    assert live.newest is not None
    assert live.proven is not None
    assert (live.newest.source.fragments[0].text, live.proven.source.fragments[0].text) == (GOOD, OTHER)
    assert live.serving is None
    live.prove(live.newest)
    assert live.serving == live.newest.source


@pytest.mark.parametrize("content", [BAD, AWAY, OTHER])
def test_with_bad_fragments_after_a_restart_the_former_ones_go_on(content: str | PyconfdError) -> None:
    directory = Directory(former=OTHER)
    assert directory.becomes(content)
    live = directory.live
    assert live.newest is live.proven
    assert live.newest is not None
    assert live.newest.source.fragments[0].text == OTHER
    assert bool(live.problems) == (content != OTHER)
    assert live.serving is None  # it did not serve in this run yet
    assert not directory.becomes(content)


def test_former_fragments_that_do_not_compile_any_more_are_forgotten() -> None:
    directory = Directory(former=BAD)
    assert directory.becomes(GOOD)
    assert directory.live.proven is None
    assert directory.live.newest is not None
