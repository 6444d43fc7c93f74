"""The metrics of ``/metrics/routes``; docs/metrics.md lists them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pyconfd.model.route_figures import BOUNDS_S, CLASSES, Counts, RouteFigures
from pyconfd.presets.gateway.routes import rule_of
from pyconfd.system.textfile import exposition

RouteFiguresByBackend = Mapping[str, RouteFigures]
_Samples = Iterator[tuple[str, object]]


def route_exposition(figures: RouteFiguresByBackend) -> bytes:
    """Return the figures by backend in Prometheus' text format."""
    labels = {backend: _labels(backend) for backend in sorted(figures)}
    bounds = [*map(str, BOUNDS_S), "+Inf"]

    def each(value: Callable[[RouteFigures], int]) -> _Samples:
        return ((mine, value(figures[backend])) for backend, mine in labels.items())

    def parts(name: str, keys: Sequence[str], values: Callable[[RouteFigures], Counts]) -> _Samples:
        for backend, mine in labels.items():
            if found := values(figures[backend]):
                yield from ((f'{mine},{name}="{key}"', value) for key, value in zip(keys, found, strict=True))

    families: dict[str, _Samples] = {
        "requests_total": parts("code", CLASSES, lambda mine: mine.requests),
        "first_byte_seconds_bucket": parts("le", bounds, lambda mine: mine.cumulative if mine.steps else ()),
        "connections_total": each(lambda mine: mine.connections),
        "bytes_in_total": each(lambda mine: mine.bytes_in),
        "bytes_out_total": each(lambda mine: mine.bytes_out),
        "retries_total": each(lambda mine: mine.retries),
        "connect_errors_total": each(lambda mine: mine.connect_errors),
        "response_errors_total": each(lambda mine: mine.response_errors),
        "sessions": each(lambda mine: mine.sessions),
    }
    return exposition("pyconfd_route", families).encode()


def _labels(backend: str) -> str:
    kind, namespace, name, rule = owner_of(backend)
    return f'backend="{backend}",kind="{kind}",namespace="{namespace}",name="{name}",rule="{rule}"'


class OwnerLabels(NamedTuple):
    """The object that a backend serves; "" for all where its name does not say it."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    rule: str = ""


def owner_of(backend: str) -> OwnerLabels:
    """Return the object, and its rule or port, that a backend is named after."""
    if decider := rule_of(backend):
        return OwnerLabels(*decider[:3], "" if decider.rule is None else str(decider.rule))
    if backend.startswith("ing_") and backend.count("_") == len(("namespace", "name", "port")):
        return OwnerLabels("Service", *backend.split("_")[1:])
    if backend.startswith("lb-") and backend.count(":") == len(("name", "port")):
        return OwnerLabels("Service", *backend.removeprefix("lb-").split(":"))
    return OwnerLabels()
