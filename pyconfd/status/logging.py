"""Logs: structlog for pyconfd, the standard library's loggers of other packages through the same door."""

import json
import logging
import os
import sys
import threading
from collections.abc import Mapping, MutableMapping
from io import TextIOBase
from typing import TYPE_CHECKING, Any, TextIO

import structlog

from pyconfd.printable import escaped_json
from pyconfd.status.redaction import public_value

if TYPE_CHECKING:
    from structlog.typing import Processor, WrappedLogger

_PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""Source: syslog(3); the prefix is sd-daemon(3)."""

_FIRST = ("timestamp", "level", "event", "logger", "exception")
_WHOLE = frozenset({"exception", "stack"})
_MOST = 2_000
"""Characters of one value; a traceback stays whole."""


def configure(
    level: str,
    format: str,  # noqa: A002 - the name of the setting log.format
    *,
    stream: TextIO | TextIOBase | None = None,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Send pyconfd's logs from ``level`` up, and others' from WARNING up, to ``stream`` (default: standard error).

    ``format`` "text" is one line for an event, for people; "json" is one object a line. Under systemd each line
    carries its priority as ``<3>`` and no time, which the journal adds. May be called again.
    """
    target = sys.stderr if stream is None else stream
    journal = _is_journal(target, os.environ if environ is None else environ)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    if not journal:
        shared.append(structlog.processors.TimeStamper(fmt="iso", utc=True))
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _LogLine(as_json=format == "json", priority=journal),
        ],
    )
    log_handler = logging.StreamHandler(target)
    log_handler.setFormatter(formatter)
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old.formatter, structlog.stdlib.ProcessorFormatter):
            root.removeHandler(old)
    root.addHandler(log_handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("pyconfd").setLevel(level.upper())
    threading.excepthook = _log_crash
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _log_crash(crash: threading.ExceptHookArgs) -> None:
    """Log a thread that ended by a bug like anything else: one line or object, without secrets."""
    if crash.exc_value is None or crash.exc_type is SystemExit:
        return
    name = crash.thread.name if crash.thread else ""
    structlog.get_logger(__name__).error("thread.crashed", thread=name, exc_info=crash.exc_value)


def _is_journal(stream: TextIO | TextIOBase, environ: Mapping[str, str]) -> bool:
    """Return whether ``stream`` is the journal's: systemd gives its device and inode. Source: systemd.exec(5)."""
    named = environ.get("JOURNAL_STREAM", "")
    if not named:
        return False
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return named == f"{found.st_dev}:{found.st_ino}"


class _LogLine:
    """The last processor: an event as text, secrets taken out."""

    def __init__(self, *, as_json: bool, priority: bool) -> None:
        self._as_json = as_json
        self._priority = priority

    def __call__(self, _logger: "WrappedLogger", _method: str, event: MutableMapping[str, Any]) -> str:
        public = {key: value if key in _WHOLE else _cut(value) for key, value in public_value(event).items()}
        level = str(public.get("level", "info"))
        text = _json_line(public) if self._as_json else _text_line(public)
        if not self._priority:
            return text
        prefix = f"<{_PRIORITY.get(level, 6)}>"
        return "\n".join(prefix + line for line in text.split("\n"))


def _cut(value: Any) -> Any:
    """Shorten texts: a name of a stranger may be as long as an object."""
    if isinstance(value, str):
        return value if len(value) <= _MOST else f"{value[:_MOST]}... ({len(value):,} characters)"
    if isinstance(value, Mapping):
        return {key: _cut(held) for key, held in value.items()}
    return [_cut(held) for held in value] if isinstance(value, list) else value


def _json_line(event: Mapping[str, Any]) -> str:
    ordered = {key: event[key] for key in _FIRST if key in event}
    return escaped_json(json.dumps(ordered | dict(event), ensure_ascii=False))


def _text_line(event: Mapping[str, Any]) -> str:
    words = [str(event["timestamp"])] if "timestamp" in event else []
    words += [str(event.get("level", "info")).upper().ljust(7), _escaped(str(event.get("event", "")))]
    words += [f"{key}={_value(value)}" for key, value in event.items() if key not in (*_FIRST, "stack")]
    line = " ".join(words)
    details = [str(event[key]) for key in ("stack", "exception") if event.get(key)]
    return "\n".join([line, *("    " + row for detail in details for row in detail.splitlines())])


def _value(value: object) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if text and text.isprintable() and not any(char in ' "=' for char in text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _escaped(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]
