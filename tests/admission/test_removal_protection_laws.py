"""What holds of removal protection whatever happens, in whatever order."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from pyconfd.model.hold import HoldKind
from tests.admission.cluster import Cluster, Pod

Event = Callable[[Cluster, int, int], None]


def _service(cluster: Cluster, number: int) -> dict[str, Pod]:
    return cluster.pods.services[f"s{number}"]


def _pod(cluster: Cluster, number: int, which: int) -> Pod | None:
    pods = list(_service(cluster, number).values())
    return pods[which % len(pods)] if pods else None


def _come(cluster: Cluster, number: int, which: int) -> None:
    pods = _service(cluster, number)
    pods[f"new-{len(pods)}-{which}"] = Pod(f"10.{number}.1.{which}")


def _go(cluster: Cluster, number: int, which: int) -> None:
    pods = _service(cluster, number)
    if pods:
        del pods[list(pods)[which % len(pods)]]


def _all_go(cluster: Cluster, number: int, which: int) -> None:
    del which
    _service(cluster, number).clear()


def _flip(cluster: Cluster, number: int, which: int) -> None:
    if (pod := _pod(cluster, number, which)) is not None:
        pod.ready = not pod.ready


def _terminate(cluster: Cluster, number: int, which: int) -> None:
    if (pod := _pod(cluster, number, which)) is not None:
        pod.terminating = True


def _hide(cluster: Cluster, number: int, which: int) -> None:
    del which
    cluster.pods.hidden ^= {f"s{number}"}


def _hide_slices(cluster: Cluster, number: int, which: int) -> None:
    del which
    cluster.pods.hidden_slices ^= {f"s{number}"}


def _hide_all(cluster: Cluster, number: int, which: int) -> None:
    del number, which
    cluster.pods.hidden = set() if cluster.pods.hidden else set(cluster.pods.services)


def _hide_all_slices(cluster: Cluster, number: int, which: int) -> None:
    del number, which
    cluster.pods.hidden_slices = set() if cluster.pods.hidden_slices else set(cluster.pods.services)


def _steal(cluster: Cluster, number: int, which: int) -> None:
    """Return a pod the address of one of another service."""
    other = _pod(cluster, (number + 1) % len(cluster.pods.services), which)
    if other is not None:
        _service(cluster, number)[f"thief-{which}"] = Pod(other.address)


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


@given(counts=st.tuples(*(st.integers(0, 6) for _ in range(3))), script=SCRIPTS)
def test_laws(counts: tuple[int, ...], script: list[tuple[Event, int, int, float, bool]]) -> None:
    cluster = Cluster(*counts)
    is_stealing = any(event is _steal for event, *_ in script)
    for event, number, which, pause_s, confirmed in script:
        former, before = cluster.protection.hold, cluster.addresses()
        event(cluster, number, which)
        cluster.confirmed = confirmed
        cluster.look(pause_s)
        shown, served, hold = cluster.addresses(cluster.raw), cluster.addresses(), cluster.protection.hold
        for name, addresses in shown.items():
            # A pod that terminates gets traffic only where no other can.
            leaving = {pod.address for pod in cluster.pods.services[name].values() if pod.terminating}
            assert addresses - leaving <= served[name], "what is there is served, whatever is held"
        for name, addresses in served.items():
            own = {pod.address for pod in cluster.pods.services[name].values()}
            # One address behind two names is kept for both while one of them misses it.
            is_new = not addresses <= before.get(name, set()) | own
            assert is_stealing or not is_new, "what is gone and was let go never comes back"
        if hold is None:
            assert cluster.served is cluster.raw
        elif former is None:
            assert hold.lost
        if any(before.values()) and not cluster.all_served:
            # Only where each address belongs to somebody else by now nothing is left to keep.
            assert is_stealing
            assert cluster.kind is HoldKind.TOTAL
        if former is not None and former.kind is HoldKind.TOTAL and not any(shown.values()):
            assert cluster.kind is HoldKind.TOTAL, "nobody allowed it"


@given(counts=st.tuples(*(st.integers(1, 6) for _ in range(3))), script=SCRIPTS)
def test_a_restart_at_any_time_changes_nothing(
    counts: tuple[int, ...], script: list[tuple[Event, int, int, float, bool]]
) -> None:
    cluster = Cluster(*counts)
    for event, number, which, pause_s, _ in script:
        event(cluster, number, which)
        cluster.look(pause_s)
        if cluster.protection.hold is not None and not any(each is _steal for each, *_ in script):
            before, kind = cluster.addresses(), cluster.kind
            cluster.restart()
            assert (cluster.addresses(), cluster.kind) == (before, kind)


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
    cluster = Cluster(*counts)
    pending = {f"s{number}": list(pods) for number, pods in enumerate(cluster.pods.services.values())}
    step = 0
    while any(pending.values()):
        name = order.choice([each for each, pods in pending.items() if pods])  # type: ignore[attr-defined]
        batch, pending[name] = pending[name][:surge], pending[name][surge:]
        for old in batch:
            step += 1
            cluster.pods.add(name, f"{old}-next", f"10.200.{step // 250}.{step % 250}")
        cluster.look(pause_s)
        assert cluster.protection.hold is None
        pods = cluster.pods.services[name]
        if is_seen:
            for old in batch:
                pods[old].terminating = True
            cluster.look(pause_s)
            assert cluster.protection.hold is None
        for old in batch:
            del pods[old]
        cluster.look(pause_s)
        assert cluster.protection.hold is None
        assert cluster.served is cluster.raw


@given(
    counts=st.lists(st.integers(2, 8), min_size=1, max_size=4),
    keep=st.integers(1, 2),
    pause_s=st.sampled_from([0.0, 0.1, 3.0]),
)
def test_an_orderly_scale_down_of_everything_at_once_is_never_held(
    counts: list[int], keep: int, pause_s: float
) -> None:
    cluster = Cluster(*counts)
    leaving = [(pods, list(pods)[keep:]) for pods in cluster.pods.services.values()]
    for pods, names in leaving:
        for name in names:
            pods[name].terminating = True
        cluster.look(pause_s)
        assert cluster.protection.hold is None
    for pods, names in leaving:
        for name in names:
            del pods[name]
        cluster.look(pause_s)
        assert cluster.protection.hold is None
