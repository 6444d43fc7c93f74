"""What a request asks for, and the record that is kept of it."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

import msgspec

from tests.world.resources import TABLE, Resource
from tests.world.statuses import ApiError, no_such_path

_WRITE_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_TRUE = {"1", "true", "True"}


@dataclass(frozen=True, slots=True)
class Target:
    """A resource path taken apart; ``verb`` is that of RBAC."""

    resource: Resource
    verb: str
    namespace: str = ""
    name: str = ""
    api_version: str = "v1"
    subresource: str = ""
    """"status", or "" for the object itself."""

    @property
    def full_resource(self) -> str:
        """The plural with its subresource, as RBAC and the recorded requests name it: ``gateways/status``."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """``headers`` have lower-case names; ``resource`` and ``verb`` are "" for a path that names no resource.

    ``resource`` is that of RBAC: ``gateways/status`` for the subresource.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    client_cn: str
    resource: str = ""
    verb: str = ""


def split(url: str) -> tuple[str, dict[str, str]]:
    """Path and query of a request line."""
    parts = urlsplit(url)
    return parts.path.rstrip("/") or "/", dict(parse_qsl(parts.query, keep_blank_values=True))


def route(method: str, path: str, query: Mapping[str, str]) -> Target:
    """Raises: ApiError: 404 for a path, 405 for a method, that the server does not know."""
    steps = path.strip("/").split("/")
    head = 2 if steps[0] == "api" else 3
    api_version, rest = "/".join(steps[1:head]), steps[head:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    found = next((each for each in TABLE if api_version in each.api_versions and rest and each.plural == rest[0]), None)
    if found is None or (namespace and not found.namespaced):
        raise no_such_path()
    if rest[2:] not in ([], ["status"] if found.status else []):
        raise no_such_path()
    name, subresource = (rest[1] if len(rest) > 1 else ""), "".join(rest[2:])
    if method in {"GET", "HEAD"}:
        verb = "get" if name else "watch" if query.get("watch") in _TRUE else "list"
    elif method in _WRITE_VERBS:
        verb = _WRITE_VERBS[method]
    else:
        raise ApiError(405, "the server does not allow this method on the requested resource")
    if subresource and verb not in {"get", "update", "patch"}:
        raise ApiError(405, "the server does not allow this method on the requested resource")
    return Target(found, verb, namespace, name, api_version, subresource)


def encode_continue(rv: int, start: str) -> str:
    """The token of the real server; ``start`` is the key of the last item given, ``rv`` -1 means inconsistent."""
    token = {"v": "meta.k8s.io/v1", "rv": rv, "start": start.lstrip("/") + "\0"}
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()


def decode_continue(text: str, resource: Resource) -> tuple[int, str]:
    """resourceVersion and start. Raises: ApiError: 400 for text that is no token."""
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=dict[str, str | int])
        rv, start = int(token["rv"]), str(token["start"]).rstrip("\0")
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, KeyError, ValueError) as error:
        raise ApiError(400, f"continue key is not valid: {error}") from error
    return rv, start if resource.namespaced else f"/{start}"


def integer(query: Mapping[str, str], name: str) -> int:
    """A number of the query, 0 where it is absent. Raises: ApiError: 400."""
    text = query.get(name) or "0"
    if not text.isdecimal():
        raise ApiError(400, f'invalid value for "{name}": {text!r}')
    return int(text)
