"""Why HAProxy does not run, from what can be known without it. Pure."""

import re
from collections.abc import Sequence

from pyconfd.errors import Problem

_ALERT = re.compile(r"\[ALERT\]\s*(?:\d+/\d+\s*)?\(\d+\)\s*:\s*(.*\S)")
"""A line of HAProxy's log at its start; 2.4 and older have a day and a time before the process number."""
_CONSEQUENCES = ("[haproxy.main()]", "Fatal errors found in configuration", "Error(s) found in configuration file")
"""Alerts that only say that others were fatal."""


def cause(faults: Sequence[Problem], journal: str, start: str, unit: str) -> Problem:
    """Return the cause and what to type.

    ``faults`` are what is wrong with the binds of the installed text; ``journal`` are the last lines of HAProxy's log,
    "" where they cannot be read; ``start`` is the command that starts it.
    """
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return Problem("haproxy", f"cannot {faults[0].message}{more}", f"{faults[0].remedy}; then: {start}")
    if message := last_alert(journal):
        return Problem("haproxy", message, f"correct that, then: {start}")
    remedy = f"why it ended: journalctl -u {unit or 'haproxy'}; it is started by: {start}"
    return Problem("haproxy", "does not run: nothing is served", remedy)


def last_alert(journal: str) -> str:
    """Return the alert that ended the last start, "" where the lines show none."""
    alerts = [found[1] for line in journal.splitlines() if (found := _ALERT.search(line))]
    return next((each for each in reversed(alerts) if not each.startswith(_CONSEQUENCES)), "")
