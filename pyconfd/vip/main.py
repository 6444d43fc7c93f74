"""The program ``pyconfd-vip``: read the settings, then be the hook until a signal asks to stop."""

import gc
import os
import socket
import sys

from pyconfd.errors import ConfigurationError, Problem
from pyconfd.settings import Resolved, Settings, resolve, resolve_again
from pyconfd.vip.files import Log
from pyconfd.vip.hook import Hook
from pyconfd.vip.topology import Topology, topology

_USAGE, _CONFIGURATION, _TEMPORARY = 64, 78, 75
_HELP = """\
Usage: pyconfd-vip [--config FILE]

Watch haproxy, keepalived and the network for the floating address that [vip] describes, and tell keepalived whether
this node may hold it. It runs until SIGTERM, or until SIGHUP finds other settings; the address stays where it is then.
`pyconfd vip status` asks it.

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
        resolved = resolve(dict(zip(["config"], arguments[1:], strict=False)), os.environ)
        settings, found = _checked(resolved)
    except ConfigurationError as error:
        sys.stderr.write("pyconfd-vip cannot use its settings:\n")
        sys.stderr.writelines(f"  {problem}\n" for problem in error.problems)
        return _CONFIGURATION
    try:
        hook = Hook(settings, found, Log(settings.log.format), lambda: _checked(resolve_again(resolved))[0])
    except PermissionError as error:
        remedy = "it needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_KILL, and its directories; see pyconfd-vip.service"
        sys.stderr.write(f"pyconfd-vip: {Problem(error.filename or '', error.strerror or str(error), remedy)}\n")
        return _TEMPORARY
    gc.freeze()
    hook.run()
    return 0


def _checked(resolved: Resolved) -> tuple[Settings, Topology]:
    return resolved.settings, topology(resolved.settings.vip, socket.gethostname())


if __name__ == "__main__":
    sys.exit(main())
