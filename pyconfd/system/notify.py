"""The state of the daemon for systemd (the protocol of sd_notify); nothing is sent where systemd did not start it.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

import os
import socket
import time
from collections.abc import MutableMapping

import structlog

log = structlog.get_logger(__name__)

_ALIVE = "WATCHDOG"
_STATES = frozenset({"READY", "RELOADING", "MONOTONIC_USEC", "STOPPING"})


class SystemdNotifier:
    """Sends to the socket that systemd named in the environment.

    Takes ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` out of ``environ`` (default: the process's), so
    that no child process sends in this one's name. A message that cannot be delivered at once is logged once and goes
    with the next one, as far as it still holds: a systemd that does not listen never stops the daemon.
    """

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        environment = os.environ if environ is None else environ
        self._address = _address(environment.pop("NOTIFY_SOCKET", ""))
        usec, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        self.watchdog_interval_s = _interval_s(usec, pid) if self._address else 0.0
        """Call :meth:`watchdog` at least this often: half of the unit's WatchdogSec; 0.0 without a watchdog."""
        self._failed = False
        self._unsent: dict[str, str] = {}

    @property
    def enabled(self) -> bool:
        """True where systemd listens."""
        return bool(self._address)

    def ready(self, status: str = "") -> None:
        """Report that the start, or a reload of the settings, is over."""
        self._send("READY=1", *_status(status))

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self._send(*_status(text))

    def watchdog(self) -> None:
        """Report that the loop made progress."""
        self._send(f"{_ALIVE}=1")

    def reloading(self, status: str = "") -> None:
        """Report that the settings are read again; :meth:`ready` must follow."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", *_status(status))

    def stopping(self, status: str = "") -> None:
        """Report that the daemon stops on purpose."""
        self._send("STOPPING=1", *_status(status))

    def _send(self, *lines: str) -> None:
        if not self._address or not lines:
            return
        fields = _joined(self._unsent, dict(line.split("=", 1) for line in lines))
        try:
            text = "\n".join(f"{key}={value}" for key, value in fields.items())
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            if not self._failed:
                log.warning("systemd.unreachable", error=str(error))
            self._failed = True
            self._unsent = {key: value for key, value in fields.items() if key != _ALIVE}
        else:
            self._failed, self._unsent = False, {}


def _address(name: str) -> str:
    """Return the socket address: a path, or an abstract name with its leading NUL; "" for any other kind."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


def _interval_s(usec: str, pid: str) -> float:
    if pid and pid != str(os.getpid()):
        return 0.0
    return int(usec) / 2_000_000 if usec.isascii() and usec.isdigit() else 0.0


def _joined(unsent: dict[str, str], fields: dict[str, str]) -> dict[str, str]:
    """Return the fields with those not delivered before them; a newer state replaces a former one."""
    has_state = not _STATES.isdisjoint(fields)
    return {key: value for key, value in unsent.items() if not (has_state and key in _STATES)} | fields


def _status(text: str) -> tuple[str, ...]:
    line = " ".join(text.split())
    return (f"STATUS={line}",) if line else ()
