"""The command line as a process of its own: exit codes, streams, pipes, start-up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.invoking import invoke
from tests.world import forked


def pyconfd(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": os.environ["PATH"], "PYCONFD_CONFIG": "", **environ}
    return subprocess.run(
        [sys.executable, "-m", "pyconfd", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=clean,
    )


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "pyconfd.toml").write_text('[haproxy]\nconf = "/srv/ä.cfg"\n', encoding="utf-8")
    return str(tmp_path / "pyconfd.toml")


def test_version_and_help() -> None:
    version = pyconfd("--version")
    assert (version.returncode, version.stderr) == (0, "")
    assert version.stdout.startswith("pyconfd, version ")
    assert "Common settings:" in pyconfd("--help").stdout


def test_output_is_utf_8_whatever_the_locale_says(config: str) -> None:
    done = pyconfd("--config", config, "settings", PYTHONIOENCODING="ascii", LC_ALL="C", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "/srv/ä.cfg" in done.stdout


def test_bytes_that_are_no_utf_8_in_the_environment() -> None:
    done = pyconfd("settings", HAPROXY_CONF=os.fsdecode(b"/srv/\xff.cfg"))
    assert done.returncode == 78
    assert "environment HAPROXY_CONF: expected a path" in done.stderr


def test_a_reader_that_has_gone_away_is_no_error_to_talk_about() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pyconfd", "settings", "--defaults"],
            stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_in_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pyconfd", "settings", "--defaults"],
            stdout=full, stderr=subprocess.PIPE, timeout=60, check=False, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == b"Error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["settings", "--defaults"]])
def test_what_needs_no_cluster_loads_no_library_for_it(arguments: list[str]) -> None:
    heavy = ("pyconfd.app", "pyconfd.daemon", "kubernetes", "jinja2", "structlog", "urllib3", "boto3")
    script = (
        "import sys\nfrom pyconfd.cli.main import main\n"
        f"sys.argv = ['pyconfd', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = invoke("completion", shell)
    assert done.exit_code == 0
    assert "_PYCONFD_COMPLETE" in done.stdout


def test_completion_completes() -> None:
    done = forked.run([], {"_PYCONFD_COMPLETE": "bash_complete", "COMP_WORDS": "pyconfd plan --js", "COMP_CWORD": "2"})
    assert "plain,--json" in done.stdout
    commands = pyconfd(_PYCONFD_COMPLETE="bash_complete", COMP_WORDS="pyconfd re", COMP_CWORD="1")
    assert set(commands.stdout.split()) == {"plain,render", "plain,record", "plain,resume", "plain,reload"}


@pytest.mark.parametrize(
    ("command", "needs"),
    [
        ("status", set()),
        ("watch", set()),
        ("server", set()),
        ("history", set()),
        ("test", {"jinja2", "cryptography"}),
        ("vip", {"jinja2"}),
    ],
)
def test_a_command_does_not_wait_for_libraries_that_it_has_no_use_for(command: str, needs: set[str]) -> None:
    code = f"""
import gc, sys
from pyconfd.cli.main import PLACES, load
load(PLACES[{command!r}])
assert gc.isenabled()
heavy = ("jinja2", "kubernetes", "cryptography", "pyroute2", "boto3")
print(*(each for each in heavy if each in sys.modules))"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert set(found.stdout.split()) == needs


def test_each_command_can_be_the_first_that_is_imported() -> None:
    """The end-to-end tests start pyconfd with all of them imported: tests/world/forked.py."""
    # What is not pyconfd's own is imported once: cycles are among its own modules.
    code = """
import os
import boto3, botocore.session, cryptography.x509, jinja2, prometheus_client, psutil, pyroute2, structlog, urllib3, yaml
from pyconfd.cli.main import PLACES, load
for place in {place.partition(":")[0]: place for place in PLACES.values()}.values():
    pid = os.fork()
    if not pid:
        load(place)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        print(place)
        break"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (found.stdout, found.returncode) == ("", 0), found.stderr
