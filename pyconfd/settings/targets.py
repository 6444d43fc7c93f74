"""Targets: load balancers beside or instead of haproxy, and how they are notified."""

import signal
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from pyconfd.settings.setting import Form, NotAcceptedError, setting
from pyconfd.settings.values import Command, Duration, FilePath, ItemName

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
    """Parse a notifier as kube2lb writes it.

    Raises:
        ValueError: it is none.
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
    raise NotAcceptedError(_EXPECTED, text)


def _signal(name: str) -> int:
    """Return the number of a signal by its name, with or without SIG, or by its number."""
    wanted = name.upper()
    for known in signal.Signals:
        if wanted in {known.name, known.name.removeprefix("SIG"), str(known.value)}:
            return int(known)
    raise NotAcceptedError("the name of a signal, like SIGHUP", name)


def _notifier(text: str) -> str:
    parse_notifier(text)
    return text


_EXPECTED = "command:SHELL, pid:SIGNAL:PID, pidfile:SIGNAL:PATH or debug:"
Notify = Annotated[str, Form("NOTIFIER", read=_notifier), Meta(description=_EXPECTED)]


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """One target: ``template`` gives ``output``; ``check`` (its path appended) judges it; ``notify`` has it loaded.

    ``notify`` is the text that :func:`parse_notifier` parses; ``timeout_s`` limits the check, and the notifier.
    """

    name: ItemName
    template: FilePath
    output: FilePath
    notify: Notify
    check: Command = ()
    timeout_s: Duration = DEFAULT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class SingleTargetSettings:
    """``[target]``: one balancer other than haproxy, as kube2lb's flags name it."""

    template: FilePath = setting(
        "", "template of the configuration of another load balancer", also=("--template",), empty="none"
    )
    output: FilePath = setting("", "file to generate from it", empty="none")
    check: Command = setting((), "command that checks it; the file's path is appended, no shell", empty="none")
    notify: Notify = setting(
        "",
        "how its balancer is notified: command:SHELL, pid:SIGNAL:PID, pidfile:SIGNAL:PATH or debug:",
        also=("--notify",),
        empty="none",
    )
    timeout_s: Duration = setting(
        DEFAULT_TIMEOUT_S, "longest time of its check, and of its notifier", also=("--update-timeout",)
    )
