"""Settings of targets (load balancers other than the main one) and of preset ``kube2lb``: their kinds of values."""

import signal
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pyconfd.presets.kube2lb_names import DEFAULT_SERVER_NAME, name_template
from pyconfd.presets.values import address, host_name
from pyconfd.settings.kinds import Command, Kind, NotAcceptedError, PathText, Seconds, Text
from pyconfd.settings.tables import Tables

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
    """Return the number of a signal by its name, with or without SIG, or by its number."""
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
        """Return the text as it is."""
        text = super().parse(value)
        if text:
            parse_notifier(text)
        return text


@dataclass(frozen=True)
class NameTemplates(Kind):
    """Server-name templates in Go's form: an array in TOML, parted by commas in text."""

    metavar: str = "TEMPLATE,..."

    def parse(self, value: object) -> tuple[str, ...]:
        """Return the templates in order; an empty text is kube2lb's default, as an empty flag was, [] is none."""
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
        """Return the templates parted by commas."""
        return ",".join(value)


@dataclass(frozen=True)
class Domain(Text):
    """A domain, in lower case."""

    metavar: str = "DOMAIN"

    def parse(self, value: object) -> str:
        """Return the domain without a final dot."""
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
        """Return the address in its usual spelling."""
        parsed = address(super().parse(value))
        if parsed is None:
            raise NotAcceptedError("an IP address like 0.0.0.0", value)
        return str(parsed)


TARGETS = Tables(
    name="targets",
    item="target",
    keys=MappingProxyType(
        {
            "name": Text(
                what="a name of letters, digits, '.', '_' and '-'", pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
            ),
            "template": PathText(optional=False),
            "output": PathText(optional=False),
            "notify": Notify(optional=False, what=NOTIFY_EXPECTED),
            "check": Command(),
            "timeout_s": Seconds(),
        }
    ),
    required=("name", "template", "output", "notify"),
    make=TargetSettings,
    unique=("name", "output"),
    title=lambda target: str(target.name),
)
