"""A Status as JSON and back: the body of ``/status.json`` and of the file in the runtime directory."""

from collections.abc import Mapping
from typing import Any

import msgspec

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.status import Status
from pyconfd.status.redaction import public_status


def encode(status: Status) -> bytes:
    """Return ``status`` as indented UTF-8 JSON, without secrets; times stay seconds since the epoch."""
    document = msgspec.to_builtins(public_status(status), enc_hook=_plain)
    for told in (*document["refused"], *document["quarantine"]["now"]):
        told["ref"] = dict(zip(ObjectRef._fields, told["ref"], strict=True))
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def decode(data: bytes) -> Status:
    """Return the Status that :func:`encode` wrote; fields of a newer version are ignored.

    Raises:
        RejectedInput: this is no status of pyconfd.
    """
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
        for told in (*document.get("refused", ()), *document.get("quarantine", {}).get("now", ())):
            told["ref"] = [told["ref"][field] for field in ObjectRef._fields]
        return msgspec.convert(document, Status)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise RejectedInput(Problem("", f"not a status of pyconfd: {error}")) from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"no JSON for {type(value).__name__}")
