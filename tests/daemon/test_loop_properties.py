"""Whatever happens, in whatever order: the loop does not spin, says READY once, tells the truth, and heals."""

from collections.abc import Callable

import structlog.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.errors import ApplyError, Problem, TransientError
from pyconfd.model.outcome import Step
from pyconfd.model.status import Phase
from tests.daemon.fakes import DATED, TEMPLATE, Bed, FakeDisk, cluster

RETRY_MAX_S = 4.0
LONGEST_PAUSE_S = 16 * RETRY_MAX_S
BOOT_WAIT_S = 5.0


def _show(*addresses: str, extra: str = "") -> Callable[[Bed], None]:
    return lambda bed: bed.source.show(cluster(*addresses, extra=extra))


def _no_cluster(bed: Bed) -> None:
    bed.source.show(None)


def _templates(text: str) -> Callable[[Bed], None]:
    def edit(bed: Bed) -> None:
        bed.templates = {"02-part.tmpl": text}

    return edit


def _away(bed: Bed) -> None:
    bed.templates = TransientError(Problem("/etc/pyconfd", "does not exist"))


def _break(step: Step, *, disruptive: bool = False) -> Callable[[Bed], None]:
    def break_it(bed: Bed) -> None:
        bed.balancer.broken = ApplyError(step, Problem("haproxy", "does not"), disruptive=disruptive)

    return break_it


def _mend(bed: Bed) -> None:
    bed.balancer.broken = None


def _edit_file(bed: Bed) -> None:
    bed.balancer.disk.conf = "edited by hand\n"


def _stop_haproxy(bed: Bed) -> None:
    bed.balancer.disk.worker, bed.balancer.disk.loaded = 0, None


def _start_haproxy(bed: Bed) -> None:
    bed.balancer.disk.load()


def _allow(bed: Bed) -> None:
    bed.allowed.add(bed.status.hold_id or "00000000")


def _set_clock(seconds: float) -> Callable[[Bed], None]:
    def set_it(bed: Bed) -> None:
        bed.clock.wall += seconds

    return set_it


EVENTS: tuple[Callable[[Bed], None], ...] = (
    _show("192.0.2.10"),
    _show("192.0.2.10", "192.0.2.11"),
    _show(),
    _show("192.0.2.10", extra="node-1"),
    _no_cluster,
    _templates(TEMPLATE),
    _templates(DATED),
    _templates(TEMPLATE + "    blance x\n"),
    _templates("{% fro x %}"),
    _templates(TEMPLATE + "{{ nothing }}\n"),
    _away,
    _break(Step.RELOAD),
    _break(Step.VERIFY, disruptive=True),
    _mend,
    _edit_file,
    _stop_haproxy,
    _start_haproxy,
    _allow,
    _set_clock(-86_400.0),
    _set_clock(86_400.0),
)

SCRIPTS = st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from([0.0, 0.1, 0.5, 1.0, 7.0, 40.0])), max_size=20)


def _bed(disk: FakeDisk | None) -> Bed:
    return Bed(disk, retry_min_s=1.0, retry_max_s=RETRY_MAX_S, boot_wait_s=BOOT_WAIT_S)


def _check(bed: Bed, elapsed: float) -> None:
    status = bed.status
    assert len(bed.notifier.readies) <= 1
    assert status.hold_id or status.phase is not Phase.HELD
    assert not status.hold_id or status.phase is not Phase.SERVING
    assert (status.phase is Phase.STARTING) == (bed.notifier.readies == [])
    assert elapsed <= BOOT_WAIT_S or status.phase is not Phase.STARTING
    assert "blance" not in (bed.balancer.disk.conf or "")
    if status.phase is Phase.SERVING:
        last = bed.balancer.last_good()
        assert last is not None
        assert status.generation == last.generation
    if status.phase in {Phase.HELD, Phase.REJECTED, Phase.FAILED}:
        assert status.problems
        assert status.pending_since > 0 or bed.source.current is None


@settings(max_examples=80)
@given(lived_before=st.booleans(), script=SCRIPTS)
def test_any_script(*, lived_before: bool, script: list[tuple[Callable[[Bed], None], float]]) -> None:
    with structlog.testing.capture_logs():
        disk = None
        if lived_before:
            earlier = _bed(None)
            earlier.source.show(cluster("192.0.2.9"))
            earlier.settle()
            disk = earlier.balancer.disk
        bed = _bed(disk)
        began = bed.clock.monotonic()
        for event, pause_s in script:
            event(bed)
            bed.run_for(pause_s)
            _check(bed, bed.clock.monotonic() - began - bed.balancer.takes_s)
        for cure in (_mend, _start_haproxy, _templates(TEMPLATE + "# whole\n"), _show("192.0.2.99")):
            cure(bed)
        bed.run_for(10)
        assert (bed.phase(), bed.problems(), bed.status.pending_since) == (Phase.SERVING, (), 0.0)
        assert "192.0.2.99" in bed.serves
        assert "# whole" in bed.serves
        assert len(bed.notifier.readies) == 1


@settings(max_examples=25)
@given(script=SCRIPTS)
def test_what_failed_is_tried_again_within_the_longest_pause_without_any_event(
    script: list[tuple[Callable[[Bed], None], float]],
) -> None:
    with structlog.testing.capture_logs():
        bed = _bed(None)
        bed.source.show(cluster("192.0.2.9"))
        bed.settle()
        for event, pause_s in script:
            event(bed)
            bed.run_for(pause_s)
        _start_haproxy(bed)
        bed.templates = {"02-part.tmpl": TEMPLATE}
        bed.source.show(cluster("192.0.2.98"))
        bed.settle()
        _break(Step.VERIFY, disruptive=True)(bed)
        bed.source.show(cluster("192.0.2.99"))
        bed.run_for(LONGEST_PAUSE_S)
        _mend(bed)
        bed.run_for(LONGEST_PAUSE_S + 1)
        assert bed.phase() is Phase.SERVING
        assert "192.0.2.99" in bed.serves
