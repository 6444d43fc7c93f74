"""Why HAProxy answers a request itself, or refuses the connection: what ``explain NAME`` says of its host. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from pyconfd.explain.conditions import Evidence
from pyconfd.explain.queries import of_address, of_host, of_port, of_section, parents_of
from pyconfd.explain.request import ClientRequest
from pyconfd.explain.routing import RequestEnd
from pyconfd.model.condition import ConditionStatus
from pyconfd.model.explanation import ClaimReport
from pyconfd.presets import values

_MOST = 10
"""A request has one cause; more of them are what other tenants ask for."""
_OWN_ANSWERS = frozenset({404, 421, 500, 503})


class AnswerCauses(NamedTuple):
    """The claims that are not served as they ask, hosts that may have been meant, and what else there is to know."""

    claims: tuple[ClaimReport, ...] = ()
    close: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def has_cause(end: RequestEnd) -> bool:
    """Return whether an object may be the cause of an end: it is no answer of a server, and no redirect."""
    return not end.route and (not end.status or end.status in _OWN_ANSWERS)


def causes_of(request: ClientRequest, end: RequestEnd, backends: Iterable[str], evidence: Evidence) -> AnswerCauses:
    """Return why HAProxy answers a request itself, or a part of those that come to these backends."""
    named = (request.name, request.tls_name) if end.closed and request.is_tls else (request.name,)
    hosts = [each for each in dict.fromkeys(named) if each and values.address(each.strip("[]")) is None]
    answers = [of_host(host, evidence) for host in hosts]
    reports = [
        *(report for each in answers for report in each.claims),
        *(report for host in hosts for report in parents_of(host, evidence)),
        *(report for backend in backends for report in of_section(backend, evidence)),
    ]
    if not end.status:
        reports += of_port(request.port, evidence)
        reports += of_address(request.to, evidence) if request.to else ()
    found = list(_each_once(_wrong(reports)))
    notes = [note for each in answers for note in each.notes]
    if len(found) > _MOST:
        notes.append(f"{len(found) - _MOST:,} more objects of this host, backend or port are not served as they ask")
    close = dict.fromkeys(name for each in answers for name in each.close)
    return AnswerCauses(tuple(found[:_MOST]), tuple(close), tuple(notes))


def _wrong(reports: Iterable[ClaimReport]) -> Iterator[ClaimReport]:
    """Return those with a condition that is not true, without servers: those of the request are shown."""
    for each in reports:
        if any(condition.status is not ConditionStatus.TRUE for condition in each.conditions):
            yield msgspec.structs.replace(each, servers=())


def _each_once(reports: Iterable[ClaimReport]) -> Iterator[ClaimReport]:
    seen = set()
    for each in reports:
        if (key := (each.object, each.because, each.preset)) not in seen:
            seen.add(key)
            yield each
