"""Checks each API server before the start: whether it answers, and whether everything can be listed and watched."""

import threading
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from pyconfd.errors import Problem, PyconfdError, TransientError
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.preflight import Finding, Level
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.client import Connection, Method
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
    limited = replace(settings, read_timeout_s=min(settings.read_timeout_s, READ_TIMEOUT_S))
    checks = [_ServerCheck(url, limited, known, clock, wanted, events=events) for url in known.urls]
    ends_s = clock.monotonic() + total_s
    for check in checks:
        check.start()
    findings: list[Finding] = []
    for check in checks:
        check.join(max(0.0, ends_s - clock.monotonic()))
    for check in checks:
        findings += check.findings
        if check.is_alive():
            problem = Problem(
                check.url, f"not done within {total_s:g} s", "is the server overloaded, or a plugin hanging?"
            )
            findings.append(Finding.of(Level.FAILURE, "kubernetes", problem))
    return tuple(findings), known


class _ServerCheck(threading.Thread):
    """Checks one server; ``findings`` grows with each answer, so that what came before a time-out is reported."""

    def __init__(
        self,
        url: str,
        settings: KubernetesSettings,
        credentials: Credentials,
        clock: SystemClock,
        wanted: Sequence[Read],
        *,
        events: bool,
    ) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.findings: list[Finding] = []
        self._settings = settings
        self._credentials = credentials
        self._clock = clock
        self._wanted = wanted
        self._events = events

    def run(self) -> None:
        try:
            connection = Connection(self.url, self._credentials, self._settings, self._clock)
        except PyconfdError as error:
            self.findings += [
                Finding.of(Level.FAILURE, "kubernetes", replace(each, place=self.url)) for each in error.problems
            ]
            return
        try:
            self._ask(connection)
        finally:
            connection.close()

    def _ask(self, connection: Connection) -> None:
        try:
            connection.probe()
        except ApiError as error:
            self.findings.append(Finding.of(Level.FAILURE, "kubernetes", replace(error.problems[0], place=self.url)))
            return
        self.findings.append(Finding.ok("kubernetes", self.url, "answers, and is ready"))
        self._compare_clocks(connection.server_time_s)
        for read in (*self._wanted, *([None] if self._events else [])):
            place = f"{self.url} {read or 'events'}"
            try:
                self.findings.append(
                    self._may_read(connection, place, read) if read else self._may_create_events(connection, place)
                )
            except TransientError as error:
                self.findings.append(Finding.of(Level.FAILURE, "permissions", replace(error.problems[0], place=place)))
                if isinstance(error, ApiError) and error.kind in NEXT_SERVER:
                    return  # the others would time out in the same way

    def _compare_clocks(self, server_time: float | None) -> None:
        if server_time is None:
            return
        ahead = self._clock.now() - server_time
        if abs(ahead) <= MOST_SKEW_S:
            self.findings.append(Finding.ok("clock", self.url, "this machine and the API server have the same time"))
            return
        side = "ahead of" if ahead > 0 else "behind"
        message = f"this machine's clock is {abs(ahead):.0f} s {side} the API server's"
        problem = Problem(self.url, message, "set it, and keep it with NTP")
        self.findings.append(Finding.of(Level.WARNING, "clock", problem))

    @staticmethod
    def _may_read(connection: Connection, place: str, read: Read) -> Finding:
        """List and watch for real: what RBAC says about a user is known only for the user who asks.

        Raises:
            ApiError: one of the two does not work.
        """
        missing, version = [], "0"
        try:
            page = decode_list(read.scope.resource, connection.list_page(read.path, {**read.params, "limit": 1}))
            version = page.resource_version
        except ApiError as error:
            missing += [_denied(error, "list")]
        try:
            with connection.watch(read.path, read.watch_params(version, _WATCH_S)):
                pass
        except ApiError as error:
            missing += [_denied(error, "watch")]
        if not missing:
            return Finding.ok("permissions", place, "can be listed and watched")
        verbs = " and ".join(missing)
        remedy = f"add the verb {verbs}: pyconfd rbac prints all"
        return Finding(Level.FAILURE, "permissions", place, f"this account may not {verbs} {read}", remedy)

    def _may_create_events(self, connection: Connection, place: str) -> Finding:
        """Create an Event without keeping it; raises ApiError."""
        trial = Refusal(ObjectRef("Namespace", "", "default"), "", "", RefusalReason.INCOMPLETE, "only a trial")
        namespace, event = event_of(RefusedObject(trial), self._clock.now(), instance="preflight", every_s=1.0)
        try:
            body = msgspec.json.encode(event)
            connection.send(Method.CREATE, f"/api/v1/namespaces/{namespace}/events", body, {"dryRun": "All"})
        except ApiError as error:
            verb = _denied(error, "create")
            remedy = f"add the verb {verb}: pyconfd rbac prints all; or set events.enabled = false"
            return Finding(Level.FAILURE, "permissions", place, f"this account may not {verb} events", remedy)
        return Finding.ok("permissions", place, "can be created")


def _denied(error: ApiError, verb: str) -> str:
    if error.kind is not Failure.FORBIDDEN:
        raise error
    return verb
