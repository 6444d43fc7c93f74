"""What may never leave the process in a log line, a metric or the status page."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyconfd.model.context import Refusal
from pyconfd.model.secrets import names_secret
from pyconfd.model.status import ApiServerState, CredentialState, ResourceState, Status
from pyconfd.model.traffic import RolloutStatus
from pyconfd.system.secrecy import HIDDEN, redacted

__all__ = ["HIDDEN", "hidden_configuration", "public_status", "public_value", "redacted"]


_IN_CONFIGURATION = (
    re.compile(r"((?:^|\s)(?:insecure-)?password\s+)(?:\"[^\"\n]*\"|'[^'\n]*'|\S+)"),
    re.compile(r"(\bstats\s+auth\s+[^:\s]+:)\S+"),
    re.compile(r"((?i:\bauthorization\b)[^\n]*?\s)(?:\"[^\"\n]*\"|'[^'\n]*'|\S+)$", re.MULTILINE),
    re.compile(r"((?i:\btcp-check\s+send)\S*\s[^\n]*?\bAUTH(?:\s|\\ )+)\S+"),
)
"""Where HAProxy's keywords take a password. Source: its configuration manual, ``userlist``, ``stats auth``."""


def hidden_configuration(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a configuration of HAProxy without its passwords; ``secrets`` are texts that are hidden anywhere."""
    for secret in sorted({each for each in secrets if each}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for pattern in _IN_CONFIGURATION:
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return redacted(text)


def public_value(value: Any) -> Any:
    """Return ``value`` as JSON can hold it, redacted; a mapping's value is hidden where its key names a secret.

    ``token`` names one, ``token_file`` does not.
    """
    match value:
        case str():
            return redacted(value)
        case None | bool() | int() | float():
            return value
        case Mapping():
            return {
                str(key): HIDDEN if held and names_secret(str(key)) else public_value(held)
                for key, held in value.items()
            }
        case list() | tuple() | set() | frozenset():
            return [public_value(item) for item in value]
        case _:
            return redacted(str(value))


def public_status(status: Status) -> Status:
    """Return ``status`` as strangers may read it: no secrets in messages, no values of Secret objects."""
    source = replace(
        status.source,
        api_servers=tuple(_server(server) for server in status.source.api_servers),
        etcd=tuple(_server(server) for server in status.source.etcd),
        note=redacted(status.source.note),
        resources=tuple(_resource(resource) for resource in status.source.resources),
        credentials=tuple(_credential(credential) for credential in status.source.credentials),
        problems=tuple(replace(one, message=redacted(one.message)) for one in status.source.problems),
    )
    paused = status.live.paused
    if paused is not None:
        paused = replace(paused, reason=redacted(paused.reason))
    pin = status.pin
    if pin is not None:
        pin = replace(pin, pin=replace(pin.pin, reason=redacted(pin.pin.reason)))
    return replace(
        status,
        live=replace(status.live, paused=paused),
        pin=pin,
        rollout=_rollout(status.rollout),
        problems=tuple(redacted(problem) for problem in status.problems),
        source=source,
        refused=tuple(public_refusal(refusal) for refusal in status.refused),
        quarantine=replace(
            status.quarantine,
            now=tuple(replace(one, detail=redacted(one.detail)) for one in status.quarantine.now),
        ),
        targets=tuple(
            replace(target, problems=tuple(redacted(problem) for problem in target.problems))
            for target in status.targets
        ),
    )


def _rollout(rollout: RolloutStatus) -> RolloutStatus:
    alarm = rollout.alarm
    if alarm is None:
        return rollout
    findings = tuple(redacted(finding) for finding in alarm.findings)
    return replace(rollout, alarm=replace(alarm, change=redacted(alarm.change), findings=findings))


def _server(server: ApiServerState) -> ApiServerState:
    return replace(server, url=redacted(server.url), last_error=redacted(server.last_error))


def _resource(resource: ResourceState) -> ResourceState:
    return replace(resource, problem=redacted(resource.problem))


def _credential(credential: CredentialState) -> CredentialState:
    return replace(credential, name=redacted(credential.name), problem=redacted(credential.problem))


def public_refusal(refusal: Refusal) -> Refusal:
    """Return a refusal without secrets."""
    value = HIDDEN if refusal.ref.kind == "Secret" and refusal.value else redacted(refusal.value)
    return replace(refusal, value=value, detail=redacted(refusal.detail))
