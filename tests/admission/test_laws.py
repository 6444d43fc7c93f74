"""Whatever happens, in whatever order."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.model.hold import HoldKind
from tests.admission.stage import Pod, Stage, staged

Event = Callable[[Stage, int, int], None]


def _service(stage: Stage, number: int) -> dict[str, Pod]:
    return stage.pods.services[f"s{number}"]


def _pod(stage: Stage, number: int, which: int) -> Pod | None:
    pods = list(_service(stage, number).values())
    return pods[which % len(pods)] if pods else None


def _come(stage: Stage, number: int, which: int) -> None:
    pods = _service(stage, number)
    pods[f"new-{len(pods)}-{which}"] = Pod(f"10.{number}.1.{which}")


def _go(stage: Stage, number: int, which: int) -> None:
    pods = _service(stage, number)
    if pods:
        del pods[list(pods)[which % len(pods)]]


def _all_go(stage: Stage, number: int, which: int) -> None:
    del which
    _service(stage, number).clear()


def _flip(stage: Stage, number: int, which: int) -> None:
    if (pod := _pod(stage, number, which)) is not None:
        pod.ready = not pod.ready


def _terminate(stage: Stage, number: int, which: int) -> None:
    if (pod := _pod(stage, number, which)) is not None:
        pod.terminating = True


def _hide(stage: Stage, number: int, which: int) -> None:
    del which
    stage.pods.hidden ^= {f"s{number}"}


def _hide_slices(stage: Stage, number: int, which: int) -> None:
    del which
    stage.pods.hidden_slices ^= {f"s{number}"}


def _hide_all(stage: Stage, number: int, which: int) -> None:
    del number, which
    stage.pods.hidden = set() if stage.pods.hidden else set(stage.pods.services)


def _hide_all_slices(stage: Stage, number: int, which: int) -> None:
    del number, which
    stage.pods.hidden_slices = set() if stage.pods.hidden_slices else set(stage.pods.services)


def _steal(stage: Stage, number: int, which: int) -> None:
    """Give a pod the address of one of another service."""
    other = _pod(stage, (number + 1) % len(stage.pods.services), which)
    if other is not None:
        _service(stage, number)[f"thief-{which}"] = Pod(other.address)


EVENTS: tuple[Event, ...] = (
    _come,
    _go,
    _all_go,
    _flip,
    _terminate,
    _hide,
    _hide_slices,
    _hide_all,
    _hide_all_slices,
    _steal,
)

SCRIPTS = st.lists(
    st.tuples(
        st.sampled_from(EVENTS),
        st.integers(0, 2),
        st.integers(0, 7),
        st.sampled_from([0.0, 0.1, 5.0, 70.0]),
        st.booleans(),
    ),
    max_size=30,
)


def _behind(stage: Stage) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    return stage.addresses(stage.raw), stage.addresses()


@settings(max_examples=300)
@given(counts=st.tuples(*(st.integers(0, 6) for _ in range(3))), script=SCRIPTS)
def test_laws(counts: tuple[int, ...], script: list[tuple[Event, int, int, float, bool]]) -> None:
    stage = staged(*counts)
    served_once = stage.addresses()
    for event, number, which, pause_s, confirmed in script:
        former = stage.protection.hold
        had = stage.all_served
        event(stage, number, which)
        stage.confirmed = confirmed
        stage.look(pause_s)
        shown, served = _behind(stage)
        for name, addresses in shown.items():
            # A pod that terminates gets traffic only where no other can.
            leaving = {pod.address for pod in stage.pods.services[name].values() if pod.terminating}
            assert addresses - leaving <= served[name], "what is there is served, whatever is held"
            served_once.setdefault(name, set()).update(addresses)
        for name, addresses in served.items():
            own = {pod.address for pod in stage.pods.services[name].values()}
            # One address behind two names is kept for both where one of them misses it.
            shared = any(each is _steal for each, *_ in script)
            assert shared or addresses <= served_once.get(name, set()) | own, "what is held served before"
            served_once.setdefault(name, set()).update(addresses)
        if stage.protection.hold is None:
            assert served == shown
            assert stage.served is stage.raw
        if had and not stage.all_served:
            # Only where each address belongs to somebody else by now nothing is left to keep.
            assert stage.kind is HoldKind.TOTAL
            assert any(event is _steal for event, *_ in script)
        if former is not None and former.kind is HoldKind.TOTAL and not any(shown.values()):
            assert stage.kind is HoldKind.TOTAL, "nobody allowed it"
        if former is None and stage.protection.hold is not None:
            assert stage.protection.hold.lost


@settings(max_examples=100)
@given(counts=st.tuples(*(st.integers(1, 6) for _ in range(3))), script=SCRIPTS)
def test_a_restart_at_any_time_changes_nothing(
    counts: tuple[int, ...], script: list[tuple[Event, int, int, float, bool]]
) -> None:
    stage = staged(*counts)
    for event, number, which, pause_s, _ in script:
        event(stage, number, which)
        stage.look(pause_s)
        if stage.protection.hold is not None and not any(each is _steal for each, *_ in script):
            before, kind = stage.addresses(), stage.kind
            stage.restart()
            assert (stage.addresses(), stage.kind) == (before, kind)


@settings(max_examples=200)
@given(
    counts=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    surge=st.integers(1, 8),
    order=st.randoms(use_true_random=False),
    pause_s=st.sampled_from([0.0, 0.1, 3.0, 30.0]),
    is_seen=st.booleans(),
)
def test_a_rolling_update_of_everything_at_once_is_never_held(
    counts: list[int], surge: int, order: object, pause_s: float, is_seen: bool
) -> None:
    """New pods come before the old ones go; ``is_seen``: whether the old ones are seen to terminate."""
    stage = staged(*counts)
    pending = {f"s{number}": list(pods) for number, pods in enumerate(stage.pods.services.values())}
    step = 0
    while any(pending.values()):
        name = order.choice([each for each, pods in pending.items() if pods])  # type: ignore[attr-defined]
        batch, pending[name] = pending[name][:surge], pending[name][surge:]
        for old in batch:
            step += 1
            stage.pods.add(name, f"{old}-next", f"10.200.{step // 250}.{step % 250}")
        stage.look(pause_s)
        assert stage.protection.hold is None
        pods = stage.pods.services[name]
        if is_seen:
            for old in batch:
                pods[old].terminating = True
            stage.look(pause_s)
            assert stage.protection.hold is None
        for old in batch:
            del pods[old]
        stage.look(pause_s)
        assert stage.protection.hold is None
        assert stage.served is stage.raw


@settings(max_examples=100)
@given(
    counts=st.lists(st.integers(2, 8), min_size=1, max_size=4),
    keep=st.integers(1, 2),
    pause_s=st.sampled_from([0.0, 0.1, 3.0]),
)
def test_an_orderly_scale_down_of_everything_at_once_is_never_held(
    counts: list[int], keep: int, pause_s: float
) -> None:
    stage = staged(*counts)
    leaving = [(pods, list(pods)[keep:]) for pods in stage.pods.services.values()]
    for pods, names in leaving:
        for name in names:
            pods[name].terminating = True
        stage.look(pause_s)
        assert stage.protection.hold is None
    for pods, names in leaving:
        for name in names:
            del pods[name]
        stage.look(pause_s)
        assert stage.protection.hold is None


@settings(max_examples=300)
@given(
    counts=st.tuples(*(st.integers(0, 8) for _ in range(3))),
    script=SCRIPTS,
    applied=st.lists(st.sampled_from([True, True, False]), min_size=30, max_size=30),
)
def test_what_is_gone_and_was_let_go_never_comes_back(
    counts: tuple[int, ...], script: list[tuple[Event, int, int, float, bool]], applied: list[bool]
) -> None:
    stage = staged(*counts)
    last_applied = last_served = stage.addresses()
    for (event, number, which, pause_s, confirmed), applies in zip(script, applied, strict=False):
        event(stage, number, which)
        stage.confirmed, stage.applies = confirmed, applies
        stage.look(pause_s)
        served = stage.addresses()
        for name, addresses in served.items():
            present = {pod.address for pod in stage.pods.services[name].values()}
            assert addresses <= last_applied.get(name, set()) | last_served.get(name, set()) | present
        last_served = served
        if applies:
            last_applied = served
