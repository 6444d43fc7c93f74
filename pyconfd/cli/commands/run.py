"""``pyconfd run``: the daemon."""

from pyconfd.app.daemon import run as daemon
from pyconfd.cli.command import CommandContext, command
from pyconfd.cli.exits import Exit


@command(
    examples={
        "pyconfd run": "with the file and the environment",
        "pyconfd run --kubeconfig /etc/pyconfd/kubeconfig": "",
        "pyconfd run --api-servers https://a:6443,https://b:6443 --ssl-ca ca.pem --token-file token": "",
    },
    exits={Exit.OK: "it was asked to stop", Exit.BUG: "a bug; systemd starts it again"},
    shows_settings=True,
)
def run(context: CommandContext) -> int:
    """Run the daemon.

    Run the daemon: watch the cluster and keep HAProxy in step until it is asked to stop.

    SIGTERM ends it (HAProxy goes on serving); SIGHUP reads the settings and the fragments again.
    """
    return daemon(context.resolve())
