"""Run in namespaces of our own: networks, mounts and processes, of which nothing is left when we end."""

import os
import subprocess
import sys

_INSIDE = "PYCONFD_CONFORMANCE_INSIDE"


def enter(module: str) -> None:
    """Start this command again in new namespaces, with a loopback interface; return there."""
    if _INSIDE in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    flags = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    argv = ["unshare", *flags, sys.executable, "-m", module, *sys.argv[1:]]
    os.execvpe("unshare", argv, {**os.environ, _INSIDE: "1"})
