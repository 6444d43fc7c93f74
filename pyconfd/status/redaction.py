"""What may never leave the process in a log line, a metric or the status page."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyconfd.model.context import Refusal
from pyconfd.model.status import ApiServerState, CredentialState, ResourceState, Status

HIDDEN = "[hidden]"

_SECRET_KEY = re.compile(
    r"(?:^|[_-])(?:password|passwd|token|secret|authorization|private_key|api_key)$", re.IGNORECASE
)
_PATTERNS = (
    (re.compile(r"(?<=://)[^/\s@\"']+@"), f"{HIDDEN}@"),
    (re.compile(r"(?i)\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)?"), HIDDEN),
    (re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL), HIDDEN),
)


def redacted(text: str) -> str:
    """Give ``text`` without URL passwords, bearer tokens, JSON web tokens and private keys."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def public_value(value: Any) -> Any:
    """Give ``value`` as JSON can hold it, redacted; a mapping's value is hidden where its key names a secret.

    ``token`` names one, ``token_file`` does not.
    """
    match value:
        case str():
            return redacted(value)
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {
                str(key): HIDDEN if held and _SECRET_KEY.search(str(key)) else public_value(held)
                for key, held in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [public_value(item) for item in value]
        case _:
            return redacted(str(value))


def public_status(status: Status) -> Status:
    """Give ``status`` as strangers may read it: no secrets in messages, no values of Secret objects."""
    source = replace(
        status.source,
        api_servers=tuple(_server(server) for server in status.source.api_servers),
        etcd=tuple(_server(server) for server in status.source.etcd),
        note=redacted(status.source.note),
        resources=tuple(_resource(resource) for resource in status.source.resources),
        credentials=tuple(_credential(credential) for credential in status.source.credentials),
    )
    paused = status.live.paused
    if paused is not None:
        paused = replace(paused, reason=redacted(paused.reason))
    return replace(
        status,
        live=replace(status.live, paused=paused),
        problems=tuple(redacted(problem) for problem in status.problems),
        source=source,
        refused=tuple(_refusal(refusal) for refusal in status.refused),
        targets=tuple(
            replace(target, problems=tuple(redacted(problem) for problem in target.problems))
            for target in status.targets
        ),
    )


def _server(server: ApiServerState) -> ApiServerState:
    return replace(server, url=redacted(server.url), last_error=redacted(server.last_error))


def _resource(resource: ResourceState) -> ResourceState:
    return replace(resource, problem=redacted(resource.problem))


def _credential(credential: CredentialState) -> CredentialState:
    return replace(credential, name=redacted(credential.name), problem=redacted(credential.problem))


def _refusal(refusal: Refusal) -> Refusal:
    value = HIDDEN if refusal.ref.kind == "Secret" and refusal.value else redacted(refusal.value)
    return replace(refusal, value=value, detail=redacted(refusal.detail))
