"""Templates of the cluster that are rejected before or by the check, and what is tried instead."""

from dataclasses import replace

import pytest

from pyconfd.daemon.reconcile import FailedAttempt, Inputs, Reconciled, reconcile
from pyconfd.daemon.translation import Translator
from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.context import ClusterTemplate
from pyconfd.model.kubernetes import ConfigMap
from pyconfd.model.outcome import Applied, Rejected, Step, Unchanged
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from tests.daemon.fakes import FakeBalancer, cluster

NAME = "configmap lb/config"


class StrictBalancer(FakeBalancer):
    """Rejects a line with ``moed``, and names its piece."""

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
    """Return a cluster with the ConfigMap of a template, None: without it."""
    data = {} if template is None else {"template": template}
    found = ConfigMap(ObjectMeta(name="config", namespace="lb"), data)
    return replace(cluster(*(addresses or ("192.0.2.10",))), config_maps={Key("lb", "config"): found})


INPUTS = Inputs(
    snapshot("# good\n"),
    renderer(),
    Translator(("configmap",), PresetOptions(cluster_templates=True)),
    now=1000.0,
    curdate="today",
)


def run(balancer: FakeBalancer, template: str | None, **changes: object) -> Reconciled:
    return reconcile(replace(INPUTS, snapshot=snapshot(template), **changes), balancer)  # type: ignore[arg-type]


def texts(done: Reconciled) -> list[str | None]:
    return [each.text for each in done.cluster_texts]


@pytest.mark.parametrize(("bad", "checks"), [("lua\n", 0), ("moed\n", 1)])
def test_the_last_good_text_stays_after_at_most_one_check(bad: str, checks: int) -> None:
    balancer = StrictBalancer()
    run(balancer, "# good\n")
    before = balancer.checks
    done = run(balancer, bad)
    assert isinstance(done.outcome, Unchanged)
    assert balancer.checks == before + checks
    assert texts(done) == ["# good\n"]
    assert texts(run(StrictBalancer(disk=balancer.disk), bad)) == ["# good\n"], "after a restart too"
    assert "last good text stays" in done.template_problems[0].message
    assert [refusal.ref.name for refusal in done.context.refused if refusal.reason == "bad_template"] == ["config"]


def test_a_text_that_the_check_rejected_is_not_checked_again_too_early() -> None:
    balancer = StrictBalancer()
    run(balancer, "# good\n")
    first = run(balancer, "moed\n")
    checks = balancer.checks
    again = run(balancer, "moed\n", rejected_templates=first.rejected_templates)
    assert isinstance(again.outcome, Unchanged)
    assert balancer.checks == checks
    assert again.rejected_templates == first.rejected_templates
    assert again.template_problems == first.template_problems
    run(balancer, "moed more\n", rejected_templates=first.rejected_templates)
    assert balancer.checks == checks + 1, "another source is"


@pytest.mark.parametrize("bad", ["lua\n", "moed\n"])
def test_one_that_was_never_accepted_is_left_out(bad: str) -> None:
    balancer = StrictBalancer()
    done = run(balancer, bad)
    assert isinstance(done.outcome, Applied)
    assert (balancer.disk.conf or "").startswith("frontend fe\n    bind :8000\n")
    assert texts(done) == [None]


@pytest.mark.parametrize("bad", ["lua\n", "moed\n"])
def test_where_it_is_all_there_is_nothing_is_applied(bad: str) -> None:
    balancer = StrictBalancer()
    done = run(balancer, bad, renderer=renderer(""))
    assert isinstance(done.outcome, Rejected)
    assert balancer.disk.conf is None
    assert done.template_problems == ()


def test_where_the_fragments_are_rejected_too_all_is_told_after_one_check_more() -> None:
    balancer = StrictBalancer()
    run(balancer, "# good\n")
    checks = balancer.checks
    bad = renderer("frontend fe\n    moed http\n")
    done = run(balancer, "moed\n", renderer=bad)
    assert isinstance(done.outcome, Rejected)
    assert {problem.piece for problem in done.outcome.problems} == {"01-a.conf", NAME}
    assert balancer.checks == checks + 2
    failed = FailedAttempt(done.rendering, done.outcome)
    stands = run(balancer, "moed\n", renderer=bad, failed=failed, rejected_templates=done.rejected_templates)
    assert stands.repeated
    assert balancer.checks == checks + 2


def test_what_misses_a_template_that_was_left_out_says_so() -> None:
    """The fragments alone are rejected because of what is not there: the cause is told first."""
    done = run(StrictBalancer(), "lua\n", renderer=renderer("moed\n"))
    assert isinstance(done.outcome, Rejected)
    assert [problem.message for problem in done.outcome.problems] == [
        "'lua-load' is not allowed",
        "unknown keyword 'moed'",
    ]


def test_a_deleted_template_is_not_replaced() -> None:
    balancer = StrictBalancer()
    run(balancer, "# good\n")
    done = run(balancer, None)
    assert isinstance(done.outcome, Applied)
    assert "# good" not in (balancer.disk.conf or "")
