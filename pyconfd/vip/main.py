"""The program ``pyconfd-vip``: read the settings, then be the hook until a signal asks to stop."""

import gc
import os
import socket
import sys

from pyconfd.errors import ConfigurationError, Problem
from pyconfd.settings import resolve
from pyconfd.vip.files import Log
from pyconfd.vip.hook import Hook
from pyconfd.vip.topology import topology

_USAGE, _CONFIGURATION, _TEMPORARY = 64, 78, 75
_HELP = """\
Usage: pyconfd-vip [--config FILE]

Watch haproxy, keepalived and the network for the floating address that [vip] describes, and tell keepalived whether
this node may hold it. It runs until SIGTERM; the address stays where it is then. `pyconfd vip status` asks it.

Exit codes: 0 asked to stop, 64 the command line is wrong, 75 not permitted here, 78 settings are wrong
"""


def main() -> int:
    """Run; give the exit code."""
    arguments = sys.argv[1:]
    if arguments in (["-h"], ["--help"]):
        sys.stdout.write(_HELP)
        return 0
    if arguments and (len(arguments) != 2 or arguments[0] != "--config"):
        sys.stderr.write(_HELP)
        return _USAGE
    try:
        settings = resolve(dict(zip(["config"], arguments[1:], strict=False)), os.environ).settings
        found = topology(settings.vip, socket.gethostname())
    except ConfigurationError as error:
        sys.stderr.write("pyconfd-vip cannot use its settings:\n")
        sys.stderr.writelines(f"  {problem}\n" for problem in error.problems)
        return _CONFIGURATION
    try:
        hook = Hook(settings, found, Log(settings.log.format))
    except PermissionError as error:
        remedy = "it needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_KILL, and its directories; see pyconfd-vip.service"
        sys.stderr.write(f"pyconfd-vip: {Problem(error.filename or '', error.strerror or str(error), remedy)}\n")
        return _TEMPORARY
    gc.freeze()
    hook.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
