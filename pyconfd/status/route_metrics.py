"""The metrics of ``/metrics/routes``; docs/metrics.md lists them."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from pyconfd.model.route_figures import BOUNDS_S, CLASSES, Counts, RouteFigures
from pyconfd.presets.gateway.routes import rule_of
from pyconfd.printable import clean
from pyconfd.system.textfile import exposition

HOSTS_SHOWN = 20_000
"""Backends and hosts; what is more is counted, and not shown."""

RouteFiguresByBackend = Mapping[str, RouteFigures]
HostsByBackend = Mapping[str, Collection[str]]
_Samples = Iterator[tuple[str, object]]


def route_exposition(figures: RouteFiguresByBackend, hosts: HostsByBackend | None = None) -> bytes:
    """Return the figures by backend in Prometheus' text format; with ``hosts`` also which ones lead to them."""
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
    if hosts is not None:
        total = sum(len(hosts.get(backend, ())) for backend in figures)
        families["host_info"] = _host_info(figures, hosts)
        families["hosts_left_out"] = iter([("", max(0, total - HOSTS_SHOWN))])
    return exposition("pyconfd_route", families).encode()


def _host_info(figures: RouteFiguresByBackend, hosts: HostsByBackend) -> _Samples:
    every = ((backend, host) for backend in sorted(figures) for host in sorted(hosts.get(backend, ())))
    for backend, host in islice(every, HOSTS_SHOWN):
        yield f'backend="{backend}",host="{_escaped(host)}"', 1


def _escaped(text: str) -> str:
    return clean(text).replace("\\", r"\\").replace('"', r"\"")


def _labels(backend: str) -> str:
    kind, namespace, name, rule = owner_of(backend)
    return f'backend="{backend}",kind="{kind}",namespace="{namespace}",name="{name}",rule="{rule}"'


_DIGEST = re.compile(r"[0-9a-f]{16}")


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
    # That of an Ingress with words of policies, and maybe of one path of it.
    if backend.startswith("ing_") and backend.count("_") > len(("namespace", "service", "port")):
        _, namespace, service, port, name, *more = backend.split("_")
        is_digest = not more and _DIGEST.fullmatch(name)  # of a long name, which was cut
        return OwnerLabels() if is_digest else OwnerLabels("Ingress", namespace, name, f"{service}:{port}")
    if backend.startswith("lb-") and backend.count(":") == len(("name", "port")):
        return OwnerLabels("Service", *backend.removeprefix("lb-").split(":"))
    return OwnerLabels()
