"""Call the command line in this process."""

from unittest.mock import patch

from click.testing import CliRunner, Result

from pyconfd.cli.main import cli
from pyconfd.settings import Resolved


def invoke(*arguments: str, **environ: str) -> Result:
    """Call pyconfd as a process would, without a file of settings unless ``arguments`` or ``environ`` name one."""
    return CliRunner(env={"PYCONFD_CONFIG": None, **environ}).invoke(cli, arguments)


def daemon_settings(*arguments: str, command: str = "run.daemon", **environ: str) -> Resolved:
    """Return the settings with which such a call would run the daemon, or another function of the commands."""
    with patch(f"pyconfd.cli.commands.{command}", return_value=0) as called:
        done = invoke(*arguments, **environ)
    assert done.exit_code == 0, done.output
    (found,) = called.call_args.args[:1]
    assert isinstance(found, Resolved)
    return found
