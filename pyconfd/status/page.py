"""The status page of a loop; that it cannot listen stops nothing else, and is tried again."""

import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.status.pages import Explain, no_explanation
from pyconfd.status.server import StatusServer

log = structlog.get_logger(__name__)


class StatusPage:
    """Nothing listens before :meth:`serve`. ``explain`` answers ``/explain``."""

    def __init__(self) -> None:
        self.explain: Explain = no_explanation
        self._server: StatusServer | None = None
        self._problems: tuple[Problem, ...] = ()

    def serve(self, server: StatusServer) -> None:
        """Begin to listen, now or as soon as that is possible."""
        self._server = server
        for problem in self.problems():
            log.error("status_page.failed", place=problem.place, problem=problem.message, remedy=problem.remedy)

    def problems(self) -> tuple[Problem, ...]:
        """Try to listen unless it does; say why it cannot."""
        if self._server is not None and not self._server.address:
            try:
                self._server.start()
            except TransientError as error:
                self._problems = error.problems
            else:
                self._problems = ()
        return self._problems

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.stop()
