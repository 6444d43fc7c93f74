"""Words that have requests copied to another Service, as the filter RequestMirror of the Gateway API does.

A tenant copies what comes to his own paths to a Service of his own namespace: HAProxy sends at most 256 copies at once,
of all objects together, drops what is beyond, and waits for none of them.
"""

import re

from pyconfd.model.gateway_api import BackendRef
from pyconfd.model.snapshot import Key
from pyconfd.presets import values
from pyconfd.presets.routing.rules import Filters, Mirror

ALL = 100
FIELD = "annotation pyconfd.io/mirror"
_TARGET = re.compile(r"([a-z0-9.-]{1,253})(?::([0-9]{1,5}))?", re.ASCII)
_USUAL_PORT = 80


def target(text: str) -> str:
    """Parse a Service, ``NAME[.NAMESPACE][:PORT]``; raise ValueError."""
    found = _TARGET.fullmatch(text.strip())
    port = int(found[2] or _USUAL_PORT) if found else 0
    if not found or not all(map(values.is_object_name, found[1].split(".", 1))) or not 0 < port < 65536:
        raise ValueError("expected a Service of the same namespace, such as shadow or shadow:8080")
    return f"{found[1]}:{port}"


def with_target(filters: Filters, wanted: Key) -> Filters:
    """Return filters that copy requests to a Service.

    Raises:
        ValueError: it is one of another namespace.
    """
    service, _, port = wanted.name.partition(":")
    name, _, namespace = service.partition(".")
    if namespace not in {"", wanted.namespace}:
        raise ValueError(f"{values.shortened(service)} is no Service of the namespace {wanted.namespace}")
    reference = BackendRef(name=name, namespace=wanted.namespace, port=int(port))
    return filters._replace(mirrors=(*filters.mirrors, Mirror(FIELD, reference, ALL, ALL)))


def percent(text: str) -> int:
    """Parse how many of 100 requests are copied; raise ValueError."""
    return values.number(text, 0, ALL)


def with_percent(filters: Filters, share: int) -> Filters:
    """Return filters that copy so many percent of what they copied.

    Raises:
        ValueError: they copy nothing.
    """
    if not filters.mirrors:
        raise ValueError("there is no mirror beside it")
    return filters._replace(mirrors=tuple(each._replace(share=share) for each in filters.mirrors))
