from collections.abc import Callable
from dataclasses import replace

from pyconfd.admission.whole_change import total_loss
from pyconfd.daemon.reconcile import FailedAttempt, Inputs, Judge, Reconciled, reconcile
from pyconfd.daemon.translation import Translator
from pyconfd.errors import ApplyError, Problem
from pyconfd.model.context import Context, EndpointTotals, RefusalReason
from pyconfd.model.listener import Listener
from pyconfd.model.outcome import Applied, Held, Step, Stored, Unchanged
from pyconfd.model.plan import Reload, ReloadReason
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from pyconfd.render.engine import Renderer, RenderOptions
from tests.daemon.fakes import DATED, FIRST, TEMPLATE, FakeBalancer, cluster
from tests.presets import kubefigurator, objects


def renderer(template: str = TEMPLATE) -> Renderer:
    return Renderer(FragmentSet((Fragment("02-part.tmpl", template),)), RenderOptions("/files"))


INPUTS = Inputs(
    snapshot=cluster("192.0.2.10"),
    renderer=renderer(),
    translator=Translator(("domains",)),
    now=1000.0,
    curdate="today",
)


def serving(template: str = TEMPLATE) -> FakeBalancer:
    balancer = FakeBalancer()
    assert isinstance(run(balancer, renderer=renderer(template)).outcome, Applied)
    return balancer


def run(balancer: FakeBalancer, **changes: object) -> Reconciled:
    return reconcile(replace(INPUTS, **changes), balancer)  # type: ignore[arg-type]


def by_numbers(*allowed: str) -> Judge:
    """Judge as the loop does before it has seen a first Snapshot."""

    def judge(before: Stored, context: Context, digest: Callable[[], str]) -> Held | None:
        return total_loss(before.generation.totals, context.totals, digest=digest, allowed=frozenset(allowed))

    return judge


def test_the_first_configuration_is_applied_with_the_census_and_the_date() -> None:
    balancer = FakeBalancer()
    done = run(balancer)
    assert isinstance(done.outcome, Applied)
    assert isinstance(done.outcome.plan, Reload)
    assert done.outcome.plan.reasons == (FIRST,)
    generation = done.outcome.generation
    assert (generation.number, generation.applied_at, generation.curdate) == (1, 1000.0, "today")
    assert generation.totals == EndpointTotals(claimed=1, total=1)
    assert "server s1 192.0.2.10:80" in (balancer.disk.conf or "")


def test_what_serves_already_is_not_touched() -> None:
    balancer = serving()
    worker = balancer.disk.worker
    done = run(balancer, snapshot=cluster("192.0.2.10", extra="node-9"), curdate="tomorrow")
    assert isinstance(done.outcome, Unchanged)
    assert done.outcome.verified
    assert balancer.disk.worker == worker


def test_the_date_alone_changes_nothing_and_is_new_with_every_real_change() -> None:
    """Failure class 8: a template that prints the time of day reloaded the predecessor without an end."""
    balancer = serving(DATED)
    assert isinstance(run(balancer, renderer=renderer(DATED), curdate="tomorrow").outcome, Unchanged)
    assert "# made today" in (balancer.disk.conf or "")
    changed = run(balancer, renderer=renderer(DATED), curdate="tomorrow", snapshot=cluster("192.0.2.11"))
    assert isinstance(changed.outcome, Applied)
    assert changed.outcome.generation.curdate == "tomorrow"
    assert "# made tomorrow" in (balancer.disk.conf or "")


def test_a_file_that_was_edited_comes_back_with_the_date_it_had() -> None:
    balancer = serving(DATED)
    written, balancer.disk.conf = balancer.disk.conf, "edited by hand\n"
    done = run(balancer, renderer=renderer(DATED), curdate="tomorrow")
    assert isinstance(done.outcome, Applied)
    assert isinstance(done.outcome.plan, Reload)
    assert ReloadReason.FILE_EDITED in done.outcome.plan.reasons
    assert balancer.disk.conf == written
    assert done.outcome.generation.curdate == "today"


def test_a_process_that_runs_another_text_is_reloaded_with_the_same_digest() -> None:
    balancer = serving(DATED)
    balancer.disk.loaded = "0" * 64
    done = run(balancer, renderer=renderer(DATED), curdate="tomorrow")
    assert isinstance(done.outcome, Applied)
    assert isinstance(done.outcome.plan, Reload)
    assert done.outcome.plan.reasons == (ReloadReason.PROCESS_BEHIND,)
    assert balancer.disk.loaded == done.outcome.generation.digest == balancer.disk.history[0].generation.digest


def test_a_loss_that_changes_nothing_in_the_configuration_is_not_held() -> None:
    constant = renderer("frontend fe\n    bind :8000\n")
    balancer = FakeBalancer()
    run(balancer, renderer=constant)
    assert isinstance(run(balancer, renderer=constant, snapshot=cluster(), judge=by_numbers()).outcome, Unchanged)


def test_a_rejection_stands_for_its_rendering_only() -> None:
    balancer = serving()
    bad = renderer(TEMPLATE + "    blance roundrobin\n")
    first = run(balancer, renderer=bad)
    checks = balancer.checks
    again = run(balancer, renderer=bad, failed=FailedAttempt(first.rendering, first.outcome))
    assert again.repeated
    assert again.outcome is first.outcome
    assert balancer.checks == checks
    assert isinstance(run(balancer, failed=FailedAttempt(first.rendering, first.outcome)).outcome, Unchanged)


def test_a_failure_stands_for_every_rendering_but_the_one_that_serves() -> None:
    """Each attempt costs a reload, and a reload that fails costs traffic; endpoints change all the time."""
    balancer = serving()
    balancer.broken = ApplyError(Step.VERIFY, Problem("haproxy", "the new worker did not start"))
    first = run(balancer, snapshot=cluster("192.0.2.11"))
    last = FailedAttempt(first.rendering, first.outcome)
    tried = len(balancer.attempts)
    assert run(balancer, snapshot=cluster("192.0.2.12"), failed=last).repeated
    assert len(balancer.attempts) == tried
    assert isinstance(run(balancer, failed=last).outcome, Unchanged)


def test_a_failure_of_the_very_first_rendering_is_known_again_in_spite_of_its_date() -> None:
    balancer = FakeBalancer()
    balancer.broken = ApplyError(Step.VERIFY, Problem("haproxy", "is not running"))
    first = run(balancer, renderer=renderer(DATED))
    again = run(
        balancer, renderer=renderer(DATED), curdate="later", failed=FailedAttempt(first.rendering, first.outcome)
    )
    assert again.repeated
    balancer.broken = None
    assert isinstance(run(balancer, renderer=renderer(DATED), curdate="later").outcome, Applied)
    assert "# made later" in (balancer.disk.conf or "")


def test_nothing_runs_and_the_history_is_empty_so_it_is_the_first() -> None:
    balancer = FakeBalancer()
    balancer.disk.worker = 0
    done = run(balancer)
    assert isinstance(done.outcome, Applied)
    assert isinstance(done.outcome.plan, Reload)
    assert done.outcome.plan.reasons == (FIRST, ReloadReason.PROCESS_BEHIND)


PORTS = """frontend fe
    bind :8000
{% for domain, items in domains.items() if items.listen_port %}
frontend {{ domain }}
    bind :{{ items.listen_port }}
{% endfor %}
{% for domain, items in domains.items() %}
# {{ domain }} {{ items.ips }}
{% endfor %}
"""


def _with_ports(*addresses: str) -> Snapshot:
    cache = {"domain": "cache", "proto": "redis", "pyconfd.io/listen-port": "6379"}
    bad = {"domain": "bad", "proto": "redis", "pyconfd.io/listen-port": "9100"}
    return objects.snapshot(
        objects.service("cache", cache),
        objects.slice_("cache", *(objects.endpoint(address) for address in addresses)),
        objects.service("bad", bad),
        objects.slice_("bad", objects.endpoint("192.0.2.99")),
    )


def test_an_object_that_asks_for_a_port_of_another_program_stops_nobody_else() -> None:
    balancer = FakeBalancer()
    balancer.taken = (Listener("127.0.0.1", 9100), Listener("0.0.0.0", 8000))
    first = run(balancer, renderer=renderer(PORTS), snapshot=_with_ports("192.0.2.10"))
    assert isinstance(first.outcome, Applied)
    assert first.port_conflict
    assert "bind :6379" in (balancer.disk.conf or "")
    assert "bind :9100" not in (balancer.disk.conf or "")
    (refusal,) = first.context.refused
    assert (refusal.ref.name, refusal.value, refusal.reason) == ("bad", "9100", RefusalReason.PORT_TAKEN)

    assert isinstance(run(balancer, renderer=renderer(PORTS), snapshot=_with_ports("192.0.2.10")).outcome, Unchanged)
    assert isinstance(run(balancer, renderer=renderer(PORTS), snapshot=_with_ports("192.0.2.11")).outcome, Applied)

    balancer.taken = ()
    freed = run(balancer, renderer=renderer(PORTS), snapshot=_with_ports("192.0.2.11"))
    assert isinstance(freed.outcome, Applied)
    assert not freed.port_conflict
    assert "bind :9100" in (balancer.disk.conf or "")


TWO_PRESETS = """{% for domain, items in domains.items() if items.listen_port %}
frontend {{ domain }}
    bind 127.0.0.1:{{ items.listen_port }}
{% endfor %}
{% for listener in kubefigurator.listeners %}
frontend {{ listener.name }}
    bind {{ listener.address }}:{{ listener.port }}
{% endfor %}
"""


def test_what_one_preset_loses_to_another_program_stops_the_next_one_neither() -> None:
    """The next preset gets what the first one had to give up, and cannot have it either."""
    cache = {"domain": "cache", "proto": "redis", "pyconfd.io/listen-port": "6379"}
    given = (objects.service("cache", cache), objects.slice_("cache", objects.endpoint("192.0.2.10")))
    wants = tuple(
        kubefigurator.labelled(name, kubefigurator.tcp("6379") | {"web.listen-ip": address})
        for name, address in (("everywhere", "*"), ("beside", "127.0.0.2"))
    )
    inputs = Inputs(
        objects.snapshot(*given, *wants, objects.node("n1", "10.0.0.1")),
        renderer(TWO_PRESETS),
        Translator(("domains", "kubefigurator"), PresetOptions(listen_address="127.0.0.1")),
        now=0.0,
        curdate="",
    )
    balancer = FakeBalancer()
    balancer.taken = (Listener("127.0.0.1", 6379),)
    done = reconcile(inputs, balancer)

    assert isinstance(done.outcome, Applied)
    assert done.port_conflict
    assert "bind 127.0.0.2:6379" in (balancer.disk.conf or "")
    assert "frontend cache" not in (balancer.disk.conf or "")
    assert {refusal.ref.name for refusal in done.context.refused} == {"cache", "everywhere"}


def test_a_memo_keeps_what_did_not_change_from_one_reconciliation_to_the_next() -> None:
    balancer, translator = FakeBalancer(), Translator(("domains",), memo=Memo())
    first = run(balancer, translator=translator).context.names["domains"]
    relisted = replace(INPUTS.snapshot, services=dict(INPUTS.snapshot.services))
    again = run(balancer, translator=translator, snapshot=relisted).context.names["domains"]
    fresh = run(balancer, snapshot=relisted).context.names["domains"]
    assert first
    assert again is first
    assert fresh == first
    assert fresh is not first
