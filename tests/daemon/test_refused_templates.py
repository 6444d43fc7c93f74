"""Templates of the cluster that are refused before or by the check, and what is tried instead."""

from dataclasses import replace

import pytest

from pyconfd.daemon.reconcile import Attempt, Inputs, Reconciled, reconcile
from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.context import AcceptedTemplate, ClusterTemplate
from pyconfd.model.kubernetes import ConfigMap, ObjectMeta
from pyconfd.model.outcome import Applied, Rejected, Step, Unchanged
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets.reading import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.render.fallback import Way
from tests.daemon.fakes import FakeBalancer, cluster

NAME = "configmap lb/config"


class StrictBalancer(FakeBalancer):
    """Refuses a line with ``moed``, and names its piece."""

    def _transact(self, rendering: Rendering) -> None:
        problems = [
            Problem(
                f"{piece.fragment} rendered line 1", "unknown keyword 'moed'", "did you mean 'mode'?", piece.fragment
            )
            for piece in rendering.pieces
            if "moed" in piece.text
        ]
        if problems:
            self.checks += 1
            raise RejectedInput(*problems, step=Step.CHECK)
        super()._transact(rendering)


def judged(template: ClusterTemplate) -> str:
    if "lua" in template.text:
        raise RejectedInput(Problem(f"{template.name} rendered line 1", "'lua-load' is not allowed"))
    return template.text


def renderer(fragment: str = "frontend fe\n    bind :8000\n") -> Renderer:
    return Renderer(FragmentSet((Fragment("01-a.conf", fragment),)), RenderOptions("/files"), judged)


def snapshot(template: str | None, *addresses: str) -> Snapshot:
    """Give a cluster with the ConfigMap of a template, None: without it."""
    data = {} if template is None else {"template": template}
    found = ConfigMap(ObjectMeta(name="config", namespace="lb"), data)
    return replace(cluster(*(addresses or ("192.0.2.10",))), config_maps={Key("lb", "config"): found})


INPUTS = Inputs(
    snapshot("# good\n"), renderer(), ("configmap",), PresetOptions(cluster_templates=True), now=1000.0, curdate="today"
)


def run(balancer: FakeBalancer, template: str | None, **changes: object) -> Reconciled:
    return reconcile(replace(INPUTS, snapshot=snapshot(template), **changes), balancer)  # type: ignore[arg-type]


def kept(done: Reconciled) -> dict[str, AcceptedTemplate]:
    return {each.name: each for each in done.accepted}


def test_what_served_is_what_is_remembered() -> None:
    assert kept(run(StrictBalancer(), "# good\n")) == {NAME: AcceptedTemplate(NAME, "# good\n", "# good\n")}
    assert kept(run(StrictBalancer(), None)) == {}


@pytest.mark.parametrize(("bad", "checks"), [("lua\n", 0), ("moed\n", 1)])
def test_the_former_template_serves_after_at_most_one_check_more(bad: str, checks: int) -> None:
    balancer = StrictBalancer()
    accepted = kept(run(balancer, "# good\n"))
    before = balancer.checks
    done = run(balancer, bad, accepted=accepted)
    assert isinstance(done.outcome, Unchanged)
    assert balancer.checks == before + checks
    assert [each.way for each in done.taken] == [Way.FORMER_SOURCE]
    assert kept(done) == accepted
    assert "accepted last" in done.template_problems[0].message
    assert [refusal.ref.name for refusal in done.context.refused if refusal.reason == "bad_template"] == ["config"]


def test_a_text_that_the_check_refused_is_not_checked_again_too_early() -> None:
    balancer = StrictBalancer()
    accepted = kept(run(balancer, "# good\n"))
    first = run(balancer, "moed\n", accepted=accepted)
    checks = balancer.checks
    again = run(balancer, "moed\n", accepted=accepted, refused=first.refused)
    assert isinstance(again.outcome, Unchanged)
    assert balancer.checks == checks
    assert (again.refused, again.template_problems) == (first.refused, first.template_problems)
    run(balancer, "moed more\n", accepted=accepted, refused=first.refused)
    assert balancer.checks == checks + 1, "another text is"


@pytest.mark.parametrize("bad", ["lua\n", "moed\n"])
def test_one_that_never_served_is_left_out(bad: str) -> None:
    balancer = StrictBalancer()
    done = run(balancer, bad)
    assert isinstance(done.outcome, Applied)
    assert (balancer.disk.conf or "").startswith("frontend fe\n    bind :8000\n")
    assert [each.way for each in done.taken] == [Way.LEFT_OUT]


@pytest.mark.parametrize("bad", ["lua\n", "moed\n"])
def test_where_it_is_all_there_is_nothing_is_applied(bad: str) -> None:
    balancer = StrictBalancer()
    done = run(balancer, bad, renderer=renderer(""))
    assert isinstance(done.outcome, Rejected)
    assert balancer.disk.conf is None
    assert done.template_problems == ()


def test_where_the_fragments_are_refused_too_all_is_told_after_one_check_more() -> None:
    balancer = StrictBalancer()
    accepted = kept(run(balancer, "# good\n"))
    checks = balancer.checks
    done = run(balancer, "moed\n", accepted=accepted, renderer=renderer("frontend fe\n    moed http\n"))
    assert isinstance(done.outcome, Rejected)
    assert [problem.piece for problem in done.outcome.problems] == ["01-a.conf", NAME]
    assert balancer.checks == checks + 2
    stands = run(
        balancer,
        "moed\n",
        accepted=accepted,
        renderer=renderer("frontend fe\n    moed http\n"),
        last=Attempt(done.rendering, done.outcome),
    )
    assert stands.repeated
    assert balancer.checks == checks + 2


def test_what_misses_a_template_that_was_left_out_says_so() -> None:
    """The fragments alone are refused because of what is not there: the cause is told first."""
    done = run(StrictBalancer(), "lua\n", renderer=renderer("moed\n"))
    assert isinstance(done.outcome, Rejected)
    assert [problem.message for problem in done.outcome.problems] == [
        "'lua-load' is not allowed",
        "unknown keyword 'moed'",
    ]


def test_a_deleted_template_is_not_replaced() -> None:
    balancer = StrictBalancer()
    accepted = kept(run(balancer, "# good\n"))
    done = run(balancer, None, accepted=accepted)
    assert isinstance(done.outcome, Applied)
    assert "# good" not in (balancer.disk.conf or "")
    assert done.accepted == ()


def test_the_text_that_serves_is_known_without_any_memory() -> None:
    balancer = StrictBalancer()
    run(balancer, "# good\n")
    done = run(balancer, "lua\n")
    assert isinstance(done.outcome, Unchanged)
    assert [each.way for each in done.taken] == [Way.FORMER_TEXT]
