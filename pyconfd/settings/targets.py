"""Settings of targets (load balancers other than the main one) and of preset ``kube2lb``: their kinds of values."""

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pyconfd.presets.kube2lb_names import DEFAULT_SERVER_NAME, name_template
from pyconfd.presets.values import address, host_name
from pyconfd.settings.kinds import Command, Kind, NotAcceptedError, PathText, Seconds, Text, shown

NOTIFY_EXPECTED = "command:SHELL, pid:SIGNAL:PID, pidfile:SIGNAL:PATH or debug:"
DEFAULT_TIMEOUT_S = 10.0
"""Source: kube2lb's ``-update-timeout``."""


@dataclass(frozen=True, slots=True)
class CommandNotifier:
    """Run ``shell`` by ``/bin/sh -c``."""

    shell: str


@dataclass(frozen=True, slots=True)
class PidNotifier:
    """Send ``signal`` (its number) to the process ``pid``."""

    signal: int
    pid: int


@dataclass(frozen=True, slots=True)
class PidFileNotifier:
    """Send ``signal`` (its number) to the process whose number is in the file ``path``."""

    signal: int
    path: str


@dataclass(frozen=True, slots=True)
class DebugNotifier:
    """Log, and do nothing else."""


Notifier = CommandNotifier | PidNotifier | PidFileNotifier | DebugNotifier


def parse_notifier(text: str) -> Notifier:
    """Read a notifier as kube2lb writes it.

    Raises:
        NotAcceptedError: it is none.
    """
    kind, _, rest = text.partition(":")
    number, _, whom = rest.partition(":")
    match kind:
        case "command" if rest.strip():
            return CommandNotifier(rest)
        case "pid" if whom.isascii() and whom.isdigit() and int(whom[:9]) > 1:
            return PidNotifier(_signal(number), int(whom))
        case "pidfile" if whom:
            return PidFileNotifier(_signal(number), whom)
        case "debug" if not rest:
            return DebugNotifier()
    raise NotAcceptedError(NOTIFY_EXPECTED, text)


def _signal(name: str) -> int:
    """Give the number of a signal by its name, with or without SIG, or by its number."""
    wanted = name.upper()
    for known in signal.Signals:
        if wanted in {known.name, known.name.removeprefix("SIG"), str(known.value)}:
            return int(known)
    raise NotAcceptedError("the name of a signal, like SIGHUP", name)


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """One target: ``template`` gives ``output``; ``check`` (its path appended) judges it; ``notify`` has it loaded.

    ``notify`` is the text that :func:`parse_notifier` reads; ``timeout_s`` limits the check, and the notifier.
    """

    name: str
    template: str
    output: str
    notify: str
    check: tuple[str, ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S


@dataclass(frozen=True)
class Notify(Text):
    """A notifier as text, known to be readable."""

    metavar: str = "NOTIFIER"

    def parse(self, value: object) -> str:
        """Give the text as it is."""
        text = super().parse(value)
        if text:
            parse_notifier(text)
        return text


@dataclass(frozen=True)
class NameTemplates(Kind):
    """Server-name templates in Go's form: an array in TOML, parted by commas in text."""

    metavar: str = "TEMPLATE,..."

    def parse(self, value: object) -> tuple[str, ...]:
        """Give the templates in order; an empty text is kube2lb's default, as an empty flag was, [] is none."""
        if isinstance(value, str) and not value.strip():
            return (DEFAULT_SERVER_NAME,)
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise NotAcceptedError("an array of templates like {{ .Service.Name }}.example.com", value)
        found = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
        for text in found:
            try:
                name_template(text)
            except ValueError as error:
                raise NotAcceptedError(
                    f"a server name like {{{{ .Service.Name }}}}.example.com ({error})", text
                ) from None
        return found

    def text(self, value: Any) -> str:
        """Give the templates parted by commas."""
        return ",".join(value)


@dataclass(frozen=True)
class Domain(Text):
    """A domain, in lower case."""

    metavar: str = "DOMAIN"

    def parse(self, value: object) -> str:
        """Give the domain without a final dot."""
        text = super().parse(value)
        try:
            return host_name(text) if text else text
        except ValueError:
            raise NotAcceptedError("a domain like cluster.local", value) from None


@dataclass(frozen=True)
class Address(Text):
    """An IP address."""

    metavar: str = "ADDRESS"

    def parse(self, value: object) -> str:
        """Give the address in its usual spelling."""
        parsed = address(super().parse(value))
        if parsed is None:
            raise NotAcceptedError("an IP address like 0.0.0.0", value)
        return str(parsed)


_TARGET_KINDS: Mapping[str, Kind] = {
    "name": Text(what="a name of letters, digits, '.', '_' and '-'", pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"),
    "template": PathText(optional=False),
    "output": PathText(optional=False),
    "notify": Notify(optional=False, what=NOTIFY_EXPECTED),
    "check": Command(),
    "timeout_s": Seconds(),
}
_REQUIRED = ("name", "template", "output", "notify")


@dataclass(frozen=True)
class Targets(Kind):
    """Several targets: ``[[targets]]`` in TOML; in text a JSON array of objects with the same keys."""

    metavar: str = "JSON"

    def parse(self, value: object) -> tuple[TargetSettings, ...]:
        """Give the targets in order."""
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                raise NotAcceptedError("a JSON array of targets", value) from None
        if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
            raise NotAcceptedError("tables, each beginning with [[targets]]", value)
        found = tuple(_target(item, number) for number, item in enumerate(value, 1))
        for key in ("name", "output"):
            texts = [getattr(target, key) for target in found]
            if double := next((text for text in texts if texts.count(text) > 1), None):
                raise NotAcceptedError(f"each target with {key} of its own", double)
        return found

    def text(self, value: Any) -> str:
        """Give their names parted by commas."""
        return ", ".join(target.name for target in value)


def _target(item: Mapping[Any, Any], number: int) -> TargetSettings:
    place = f"target {number}"
    unknown = sorted(str(key) for key in item.keys() - _TARGET_KINDS.keys())
    if unknown:
        raise NotAcceptedError(f"the keys {', '.join(_TARGET_KINDS)} in {place}", unknown[0])
    missing = [key for key in _REQUIRED if not item.get(key)]
    if missing:
        raise NotAcceptedError(f"{missing[0]} in {place}", words="none")
    parsed = {}
    for key, value in item.items():
        try:
            parsed[key] = _TARGET_KINDS[key].parse(value)
        except NotAcceptedError as error:
            raise NotAcceptedError(f"a good {key} in {place} ({error})", words=shown(value)) from None
    return TargetSettings(**parsed)


def target_table(target: TargetSettings) -> dict[str, Any]:
    """Give a target as a plain table; its command as a list."""
    values = {item.name: getattr(target, item.name) for item in fields(target)}
    return values | {"check": list(target.check)}
