"""Compare error rates and servers that are up before and after a change. Pure.

Shares are compared and not counts: counters start at zero in each worker, and what failed before a change was not
caused by it. Few requests are no evidence, and a small service among big ones raises no alarm.
"""

from collections.abc import Iterator, Mapping

from pyconfd.model.status import Counts, Sample

LEAST_REQUESTS = 20
"""With fewer requests on either side nothing is compared."""
LEAST_FAILED = 10
RISE = 0.2
"""The share of failed requests has to rise by this much ..."""
FACTOR = 3.0
"""... and to this many times what it was."""
WEIGHT = 0.05
"""The affected share of all requests, or of all backends, from which an alarm is raised."""
FALL = 0.5
"""An alarm is raised when at most this share of the servers that were up is left."""


def counted(before: Sample | None, after: Sample) -> Sample:
    """Return what was counted between two samples, or since its start if ``after`` is of another worker."""
    if before is None or before.worker != after.worker:
        return after
    backends = {name: _since(before.backends.get(name, Counts()), now) for name, now in after.backends.items()}
    return Sample(after.at, after.worker, _since(before.clients, after.clients), backends)


def _since(before: Counts, after: Counts) -> Counts:
    if after.requests < before.requests or after.failed < before.failed:  # "clear counters" on the socket
        return after
    requests, failed = after.requests - before.requests, after.failed - before.failed
    return Counts(requests, failed, after.servers_up, after.servers)


def judge(before: Sample, after: Sample) -> tuple[str, ...]:
    """Return what is much worse in ``after`` than in ``before``, one sentence each."""
    return (*_failures(before, after), *_servers(before.backends, after.backends))


def _failures(before: Sample, after: Sample) -> Iterator[str]:
    total = sum((counts.requests for counts in after.backends.values()), start=0)
    worse = [
        name for name, now in after.backends.items() if name in before.backends and _rose(before.backends[name], now)
    ]
    affected = sum(after.backends[name].requests for name in worse)
    if worse and affected >= WEIGHT * total:
        worse.sort(key=lambda name: -after.backends[name].failed)
        for name in worse[:3]:
            yield f"backend {name}: {_shares(before.backends[name], after.backends[name])}"
        if len(worse) > 3:
            yield f"and {len(worse) - 3} more backends"
    elif _rose(before.clients, after.clients):
        yield f"all clients: {_shares(before.clients, after.clients)}"


def _rose(before: Counts, after: Counts) -> bool:
    if before.requests < LEAST_REQUESTS or after.requests < LEAST_REQUESTS or after.failed < LEAST_FAILED:
        return False
    was, now = before.failed / before.requests, after.failed / after.requests
    return now >= was + RISE and now >= FACTOR * was


def _shares(before: Counts, after: Counts) -> str:
    was, now = (100 * each.failed / each.requests for each in (before, after))
    return f"{now:.0f} % of {after.requests:,} requests failed, {was:.0f} % before"


def _servers(before: Mapping[str, Counts], after: Mapping[str, Counts]) -> Iterator[str]:
    had = [name for name, counts in before.items() if counts.servers_up and after.get(name, Counts()).servers]
    down = [name for name in had if not after[name].servers_up]
    if down and len(down) >= max(1.0, WEIGHT * len(had)):
        shown = ", ".join(sorted(down)[:3]) + (f" and {len(down) - 3} more" if len(down) > 3 else "")
        yield f"no server is up any more: {shown}"
        return
    was, now = (sum((each[name] for name in had), start=Counts()) for each in (before, after))
    if not was.servers or not now.servers:
        return
    fell = now.servers_up / now.servers <= FALL * was.servers_up / was.servers
    if fell and was.servers_up - now.servers_up >= 2:
        yield f"{now.servers_up} of {now.servers} servers are up, {was.servers_up} of {was.servers} before"
