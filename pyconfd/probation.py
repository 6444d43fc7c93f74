"""Judges whether a change made things worse: failures and servers that are up, before and after it.

Everything is a share and is compared with the same share before, because counters begin anew with each worker, and
because what failed before is not the change's fault. Few requests are no evidence; small services among big ones do
not raise an alarm for all.
"""

from collections.abc import Iterator, Mapping

from pyconfd.model.traffic import Counts, Sample

LEAST_REQUESTS = 20
"""Fewer than this on either side say nothing."""
LEAST_FAILED = 10
LEAP = 0.2
"""By how much the share of failures has to rise."""
FACTOR = 3.0
"""And how many times it has to be what it was."""
WEIGHT = 0.05
"""The share of all requests, or of all services, that has to be concerned."""
FALL = 0.5
"""The share of the servers that were up which is left after a fall."""


def counted(before: Sample | None, after: Sample) -> Sample:
    """Give what was counted between two samples; from another worker, since it began."""
    if before is None or before.worker != after.worker:
        return after
    backends = {name: _since(before.backends.get(name, Counts()), now) for name, now in after.backends.items()}
    return Sample(after.at, after.worker, _since(before.clients, after.clients), backends)


def _since(before: Counts, after: Counts) -> Counts:
    if after.requests < before.requests or after.failed < before.failed:  # somebody cleared the counters
        return after
    requests, failed = after.requests - before.requests, after.failed - before.failed
    return Counts(requests, failed, after.servers_up, after.servers)


def judge(before: Sample, after: Sample) -> tuple[str, ...]:
    """Say what is much worse in ``after`` than it was in ``before``; () where nothing is."""
    return (*_failures(before, after), *_servers(before.backends, after.backends))


def _failures(before: Sample, after: Sample) -> Iterator[str]:
    total = sum((counts.requests for counts in after.backends.values()), start=0)
    worse = [
        name for name, now in after.backends.items() if name in before.backends and _leapt(before.backends[name], now)
    ]
    concerned = sum(after.backends[name].requests for name in worse)
    if worse and concerned >= WEIGHT * total:
        worse.sort(key=lambda name: -after.backends[name].failed)
        for name in worse[:3]:
            yield f"backend {name}: {_shares(before.backends[name], after.backends[name])}"
        if len(worse) > 3:
            yield f"and {len(worse) - 3} more backends"
    elif _leapt(before.clients, after.clients):
        yield f"all clients: {_shares(before.clients, after.clients)}"


def _leapt(before: Counts, after: Counts) -> bool:
    if before.requests < LEAST_REQUESTS or after.requests < LEAST_REQUESTS or after.failed < LEAST_FAILED:
        return False
    was, now = before.failed / before.requests, after.failed / after.requests
    return now >= was + LEAP and now >= FACTOR * was


def _shares(before: Counts, after: Counts) -> str:
    was, now = (100 * each.failed / each.requests for each in (before, after))
    return f"{now:.0f} % of {after.requests:,} requests failed, {was:.0f} % before"


def _servers(before: Mapping[str, Counts], after: Mapping[str, Counts]) -> Iterator[str]:
    had = [name for name, counts in before.items() if counts.servers_up and after.get(name, Counts()).servers]
    dead = [name for name in had if not after[name].servers_up]
    if dead and len(dead) >= max(1.0, WEIGHT * len(had)):
        shown = ", ".join(sorted(dead)[:3]) + (f" and {len(dead) - 3} more" if len(dead) > 3 else "")
        yield f"no server is up any more: {shown}"
        return
    was, now = (sum((each[name] for name in had), start=Counts()) for each in (before, after))
    if not was.servers or not now.servers:
        return
    fell = now.servers_up / now.servers <= FALL * was.servers_up / was.servers
    if fell and was.servers_up - now.servers_up >= 2:
        yield f"{now.servers_up} of {now.servers} servers are up, {was.servers_up} of {was.servers} before"
