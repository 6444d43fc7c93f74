"""Checks each API server before the start: whether it answers, and whether everything can be listed and watched."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from pyconfd.errors import Problem, PyconfdError, TransientError
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.preflight import Finding, Level
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.client import Connection
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.decode import decode_list
from pyconfd.sources.kubernetes.events import RefusedObject, event_of
from pyconfd.sources.kubernetes.failures import NEXT_SERVER, ApiError, Failure
from pyconfd.sources.kubernetes.resources import Read
from pyconfd.system.clock import SystemClock

TOTAL_S = 60.0
"""How long all servers together may take; they are asked at the same time."""

READ_TIMEOUT_S = 10.0
MOST_SKEW_S = 60.0
"""Certificates and tokens are valid from the minute on in which they were made."""

_WATCH_S = 1


def look(
    settings: KubernetesSettings,
    wanted: Sequence[Read],
    *,
    clock: SystemClock | None = None,
    credentials: Credentials | None = None,
    total_s: float = TOTAL_S,
    events: bool = False,
) -> tuple[tuple[Finding, ...], Credentials]:
    """Ask every API server; return what was found, in the order of the settings, and the credentials that were used.

    ``events``: whether Events are to be created.

    Raises:
        ConfigurationError: no API server is known.
    """
    clock = clock or SystemClock()
    known = credentials or Credentials(settings, clock)
    asked: tuple[Read | None, ...] = (*wanted, *([None] if events else []))
    limited = replace(settings, read_timeout_s=min(settings.read_timeout_s, READ_TIMEOUT_S))
    answers: dict[str, list[Finding]] = {url: [] for url in known.urls}
    threads = [
        threading.Thread(target=_ask, args=(url, limited, known, asked, clock, answers[url]), daemon=True)
        for url in known.urls
    ]
    ends_s = clock.monotonic() + total_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, ends_s - clock.monotonic()))
    findings: list[Finding] = []
    for thread, (url, found) in zip(threads, answers.items(), strict=True):
        findings += list(found)
        if thread.is_alive():
            problem = Problem(url, f"not done within {total_s:g} s", "is the server overloaded, or a plugin hanging?")
            findings.append(Finding.of(Level.FAILURE, "kubernetes", problem))
    return tuple(findings), known


def _ask(  # noqa: PLR0917 - the arguments of a thread
    url: str,
    settings: KubernetesSettings,
    credentials: Credentials,
    wanted: Sequence[Read | None],
    clock: SystemClock,
    found: list[Finding],
) -> None:
    """Ask one server; ``found`` grows with each answer, so that what came before a time-out is reported."""
    try:
        connection = Connection(url, credentials, settings, clock)
    except PyconfdError as error:
        found += [Finding.of(Level.FAILURE, "kubernetes", replace(each, place=url)) for each in error.problems]
        return
    try:
        found += _answers(connection, url, wanted, clock)
    finally:
        connection.close()


def _answers(connection: Connection, url: str, wanted: Sequence[Read | None], clock: SystemClock) -> Iterator[Finding]:
    try:
        connection.probe()
    except ApiError as error:
        yield Finding.of(Level.FAILURE, "kubernetes", replace(error.problems[0], place=url))
        return
    yield Finding.ok("kubernetes", url, "answers, and is ready")
    yield from _clock(connection, url, clock)
    for read in wanted:
        try:
            yield _may_read(connection, url, read) if read is not None else _may_create_events(connection, url, clock)
        except TransientError as error:
            what = read or "events"
            yield Finding.of(Level.FAILURE, "permissions", replace(error.problems[0], place=f"{url} {what}"))
            if isinstance(error, ApiError) and error.kind in NEXT_SERVER:
                return  # the others would time out in the same way


def _clock(connection: Connection, url: str, clock: SystemClock) -> Iterator[Finding]:
    server_time = connection.server_time_s
    if server_time is None:
        return
    ahead = clock.now() - server_time
    if abs(ahead) <= MOST_SKEW_S:
        yield Finding.ok("clock", url, "this machine and the API server have the same time")
        return
    side = "ahead of" if ahead > 0 else "behind"
    problem = Problem(
        url, f"this machine's clock is {abs(ahead):.0f} s {side} the API server's", "set it, and keep it with NTP"
    )
    yield Finding.of(Level.WARNING, "clock", problem)


def _may_read(connection: Connection, url: str, read: Read) -> Finding:
    """List and watch for real: what RBAC says about a user is known only for the user who asks.

    Raises:
        ApiError: one of the two does not work.
    """
    missing, listed = [], None
    try:
        listed = decode_list(read.scope.resource, connection.list_page(read.path, {**read.params, "limit": 1}))
    except ApiError as error:
        missing += [_denied(error, "list")]
    version = listed.resource_version if listed is not None else "0"
    params: dict[str, str | int] = {
        **read.params,
        "watch": 1,
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": _WATCH_S,
    }
    try:
        with connection.watch(read.path, params):
            pass
    except ApiError as error:
        missing += [_denied(error, "watch")]
    if missing:
        verbs = " and ".join(missing)
        message = f"this account may not {verbs} {read}"
        return Finding(
            Level.FAILURE,
            "permissions",
            f"{url} {read}",
            message,
            f"add the verb {verbs}: pyconfd rbac prints all",
        )
    return Finding.ok("permissions", f"{url} {read}", "can be listed and watched")


def _may_create_events(connection: Connection, url: str, clock: SystemClock) -> Finding:
    """Create an Event without keeping it; raises ApiError."""
    what = f"{url} events"
    trial = Refusal(ObjectRef("Namespace", "", "default"), "", "", RefusalReason.INCOMPLETE, "only a trial")
    namespace, event = event_of(RefusedObject(trial), clock.now(), instance="preflight", every_s=1.0)
    try:
        body = msgspec.json.encode(event)
        connection.create(f"/api/v1/namespaces/{namespace}/events", body, {"dryRun": "All"})
    except ApiError as error:
        verb = _denied(error, "create")
        remedy = f"add the verb {verb}: pyconfd rbac prints all; or set events.enabled = false"
        return Finding(Level.FAILURE, "permissions", what, f"this account may not {verb} events", remedy)
    return Finding.ok("permissions", what, "can be created")


def _denied(error: ApiError, verb: str) -> str:
    if error.kind is not Failure.FORBIDDEN:
        raise error
    return verb
