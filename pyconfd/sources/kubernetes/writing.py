"""What the threads that write to the cluster share: requests with short time limits, and how failures are reported."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import msgspec
import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.client import ApiServers, Method
from pyconfd.sources.kubernetes.credentials import Credentials
from pyconfd.sources.kubernetes.failures import ApiError, Denials
from pyconfd.system.clock import SystemClock

FORBIDDEN, NOT_FOUND, CONFLICT, NOT_ACCEPTED = 403, 404, 409, 422

_ABOUT_THE_OBJECT = frozenset({NOT_FOUND, CONFLICT, NOT_ACCEPTED})
"""Answers that say nothing about the server: the object is gone, has changed, or is not valid."""

log = structlog.get_logger(__name__)


class AnswerMetadata(msgspec.Struct, rename="camel"):
    """What is read of the ``metadata`` of an object that the API server returns after a write."""

    resource_version: str = ""
    uid: str = ""


class FirstDenialError(ApiError):
    """The first 403 of a request that was allowed before: it is nothing to report, and tried again soon."""

    def __init__(self, error: ApiError) -> None:
        problem = error.problems[0]
        super().__init__(error.kind, problem.place, problem.message)


def _right_of(method: Method, path: str) -> tuple[Method, str]:
    """Return what a Role allows: the verb and the resource of a path, in any namespace."""
    _, kind, *rest = path.strip("/").split("/")
    rest = rest if kind == "v1" else rest[1:]
    return method, rest[2] if rest[0] == "namespaces" else rest[0]


class Writer:
    """Sends the requests of one thread to the API server in use, and remembers why they fail.

    ``place`` names what is written in problems and ``event`` in the log; ``remedy`` is what to do without the right to
    write it, or its namespace.

    Raises:
        ConfigurationError: from the constructor: no API server is known.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        *,
        answer_s: float,
        clock: SystemClock,
        credentials: Credentials | None,
        place: str,
        event: str,
        remedy: str,
    ) -> None:
        limited = replace(
            settings,
            connect_timeout_s=min(settings.connect_timeout_s, answer_s),
            read_timeout_s=min(settings.read_timeout_s, answer_s),
        )
        self._servers = ApiServers(limited, credentials or Credentials(settings, clock), clock)
        self._place, self._event, self._remedy = place, event, remedy
        self._problems: Mapping[str, Problem] = MappingProxyType({})
        self._denials = Denials()

    def send(
        self, method: Method, path: str, body: bytes | None = None, params: Mapping[str, str] = MappingProxyType({})
    ) -> bytes:
        """Send one request and return the object as it is then; raises ApiError."""
        connection, right = self._servers.connection(), _right_of(method, path)
        try:
            answer = connection.send(method, path, body, params)
        except ApiError as error:
            if error.status in _ABOUT_THE_OBJECT:
                self._servers.succeeded(connection.index)
                self._denials.allowed(right)
            else:
                self._servers.failed(connection.index, error)
            if self._denials.is_first(error, right):
                raise FirstDenialError(error) from error
            raise
        self._servers.succeeded(connection.index)
        self._denials.allowed(right)
        return answer

    def tend(self) -> None:
        """Reload changed credentials, and go back to the first API server that works."""
        self._servers.tend()

    def close(self) -> None:
        """Cut off the request that runs, and allow no more."""
        self._servers.close()

    def failed(self, error: TransientError, what: str = "") -> None:
        """Show why ``what`` cannot be written, and log it once."""
        if isinstance(error, FirstDenialError):
            return
        denied = isinstance(error, ApiError) and error.status in {FORBIDDEN, NOT_FOUND}
        first = error.problems[0]
        problem = Problem(self._place, f"cannot be written: {first.message}", self._remedy if denied else first.remedy)
        if self._problems.get(what) != problem:
            self._problems = MappingProxyType({**self._problems, what: problem})
            log.warning(self._event, problem=problem.message, remedy=problem.remedy)

    def succeeded(self, what: str = "") -> None:
        """Show that ``what`` is written again."""
        if what in self._problems:
            self._problems = MappingProxyType({key: each for key, each in self._problems.items() if key != what})

    def problems(self) -> tuple[Problem, ...]:
        """Return why something cannot be written; empty where all can. Safe in any thread.

        Where the credentials are why, these are named, in the words of who reads with them: watches that were opened
        before go on, so reading may find it half a minute later.
        """
        known = tuple(dict.fromkeys(self._problems.values()))
        return (known and self._servers.credential_problems()) or known
