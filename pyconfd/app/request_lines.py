"""A request of the access log as one line for people: of `pyconfd logs`, and of the page."""

from datetime import datetime

from pyconfd.model.logged import NO_SERVER, LoggedRequest
from pyconfd.presets.gateway.routes import rule_of
from pyconfd.presets.routing.types import Decider
from pyconfd.printable import clean


def decider_of(request: LoggedRequest) -> Decider | None:
    """Return the object that decided on a request, None for none."""
    kind, _, of = request.object.partition("/")
    namespace, _, name = of.partition("/")
    return Decider(kind, namespace, name) if name else rule_of(request.backend)


def line_of(request: LoggedRequest) -> str:
    """Return a request as one line for people; what strangers wrote is text in it."""
    at = datetime.fromtimestamp(request.time).astimezone()
    what = f"{request.method} {request.host}{request.path}" if request.method else f"TCP {request.sni}"
    decider = decider_of(request)
    of = (
        f"by {decider}"
        if decider is not None
        else f"at {request.listener}" + ": no object has it" * (not request.backend)
    )
    parts = [
        f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}",
        str(request.status) if request.method else "---",
        f"{request.total_ms} ms",
        clean(what.strip()),
        f"from {request.client}",
        of,
        f"to {request.pod or request.server}" if request.server and request.server != NO_SERVER else "",
        f"({request.why})" if request.why else "",
    ]
    return clean("  ".join(filter(None, parts)), 4_000)
