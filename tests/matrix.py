"""The live tests against every HAProxy that Debian carries: ``make test-matrix``.

Each version is a tree of its own that mmdebstrap makes from the apt sources of this machine, kept in a cache. HAProxy
runs in it through chroot, in a mount namespace where the directory of temporary files is the one of this machine: so
its master can execute itself again by its path, and the tests see its sockets and files.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.world.haproxy import BINARY_VARIABLE

SUITES = {"2.6": "bookworm", "3.0": "trixie", "3.2": "sid", "3.4": "experimental"}
"""Which suite of Debian carries which HAProxy."""

BASE_SUITES = {"experimental": "sid"}
"""A suite that is no distribution by itself, and the one that it adds to."""

TESTS = (
    "tests/fragments/test_client_headers.py",
    "tests/fragments/test_dead_pods_live.py",
    "tests/fragments/test_foreign_tls.py",
    "tests/fragments/test_misdirected_requests.py",
    "tests/fragments/test_shipped_defaults.py",
    "tests/fragments/test_shipped_golden.py",
    "tests/fragments/test_takeover.py",
    "tests/docs/test_certificates.py",
    "tests/e2e/test_gateway_hosts.py",
    "tests/e2e/test_loadbalancer.py",
    "tests/e2e/test_tls.py",
    "tests/presets/test_allowed_fuzz.py",
    *(f"tests/presets/gateway/test_{name}_live.py" for name in ("changes", "hosts", "http", "mirror", "shares", "tls")),
    *(
        f"tests/presets/policies/test_{name}_live.py"
        for name in (
            "balancing",
            "canary",
            "changes",
            "external_auth",
            "handling",
            "hosts",
            "limits",
            "mirror",
            "words",
        )
    ),
    "tests/presets/policies/test_nginx_paths.py",
    *(
        f"tests/haproxy/test_{name}.py"
        for name in (
            "runtime",
            "runtime_files",
            "runtime_leaving",
            "runtime_faults",
            "live_default_certificate",
            "live_real",
            "live_golden",
            "balancer",
            "balancer_live",
            "full_disk",
            "balancer_reload",
            "balancer_start",
            "drift",
            "reloads_under_load",
            "spares_live",
        )
    ),
)
"""Where HAProxy itself is changed or reloaded."""

EXAMPLES = "40"
"""Sequences of renderings for each version, where the suite has fewer."""

_WRAPPER = """#!/bin/sh
# Written by tests/matrix.py: HAProxy {version}, in a tree of its own.
exec unshare {flags}--mount -- /bin/sh -c '
    for shared in /dev /proc /run {shared}; do mount --rbind "$shared" {tree}"$shared" || exit 125; done
    exec chroot {tree} /usr/sbin/haproxy "$@"
' haproxy "$@"
"""


class Unavailable(Exception):  # noqa: N818 - it says what happened
    """A version of HAProxy could not be had."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests said about one version."""

    version: str
    found: str
    tests: int
    failed: int
    skipped: int

    @property
    def good(self) -> bool:
        """Whether every test ran, and passed, against the version that was wanted."""
        return self.tests > 0 and not self.failed and not self.skipped and _is(self.found, self.version)


def cache() -> Path:
    """Return the directory in which the trees are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "pyconfd" if base else Path(__file__).parents[1] / ".cache"


def mirror() -> str:
    """Return the address of the Debian archive that this machine's apt uses.

    Raises:
        Unavailable: its sources name none.
    """
    asked = ["apt-get", "indextargets", "--format", "$(LABEL) $(CODENAME) $(REPO_URI)", "Created-By: Packages"]
    for line in output(asked).splitlines():
        label, codename, address = line.split(" ", 2)
        if label == "Debian" and "-" not in codename:
            return address
    raise Unavailable("the apt sources of this machine name no Debian archive (is `apt-get update` to be run?)")


def binary(version: str, suite: str) -> Path:
    """Return a command that runs HAProxy of ``suite``; its tree is made where it is not there yet.

    Raises:
        Unavailable: it cannot be made, or carries another version than ``version``.
    """
    tree = cache() / "matrix" / suite
    if not (tree / "usr/sbin/haproxy").exists():
        _make(tree, suite)
    wrapper = tree.with_name(f"haproxy-{version}")
    shared = tempfile.gettempdir()
    (tree / shared.lstrip("/")).mkdir(parents=True, exist_ok=True)
    # A tree that was only extracted knows no names: a server of the tests is called localhost.
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
    flags = "" if os.geteuid() == 0 else "--map-root-user "
    text = _WRAPPER.format(version=version, flags=flags, shared=shlex.quote(shared), tree=shlex.quote(str(tree)))
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    return wrapper


def _make(tree: Path, suite: str) -> None:
    print(f"making a tree of {suite} ...", flush=True)
    base = BASE_SUITES.get(suite, suite)
    address = mirror()
    sources = [f"deb {address} {one} main" for one in dict.fromkeys((base, suite))]
    fresh = tree.with_name(f"{suite}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    tree.parent.mkdir(parents=True, exist_ok=True)
    # Nothing of it runs but HAProxy: the packages are extracted, not installed. base-files brings /lib and /lib64.
    packages = ["--variant=extract", "--include=haproxy,base-files"]
    newest = [] if base == suite else [f'--aptopt=APT::Default-Release "{suite}"']
    options = [f"--aptopt={line}" for line in apt_options()]
    output(["mmdebstrap", "--quiet", *packages, *options, *newest, base, str(fresh), *sources])
    shutil.rmtree(tree, ignore_errors=True)
    fresh.rename(tree)


def apt_options() -> list[str]:
    """Return what the apt of this machine is told about fetching: mmdebstrap's would not know its proxies."""
    wanted = ("Acquire::Check-Valid-Until ", "Acquire::http::Proxy", "Acquire::https::Proxy")
    return [line for line in output(["apt-config", "dump"]).splitlines() if line.startswith(wanted)]


def version_of(command: Path) -> str:
    """Return the version that ``command`` says it is. Raises: Unavailable: it does not run."""
    found = re.search(r"version (\S+)", output([str(command), "-v"]))
    return found[1] if found else ""


def _is(found: str, version: str) -> bool:
    return found.startswith((f"{version}.", f"{version}-"))


def output(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=900)
    except FileNotFoundError as error:
        raise Unavailable(f"{argv[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{shlex.join(argv)}: {error.stderr.strip()[-800:]}") from error
    return done.stdout


def tried(version: str, suite: str, more: Sequence[str]) -> Outcome:
    """Run the tests against one version. Raises: Unavailable: there is none to be had."""
    command = binary(version, suite)
    found = version_of(command)
    if not _is(found, version):
        raise Unavailable(f"{suite} carries HAProxy {found or '?'}, not {version}; see SUITES in {__file__}")
    print(f"\n== HAProxy {found} ({suite})", flush=True)
    with tempfile.TemporaryDirectory(prefix="matrix-") as scratch:
        report = Path(scratch) / "report.xml"
        argv = [sys.executable, "-m", "pytest", "-q", "-n", "2", f"--junitxml={report}", *TESTS, *more]
        environment = {**os.environ, BINARY_VARIABLE: str(command), "PYCONFD_TEST_SEQUENCES": EXAMPLES}
        subprocess.run(argv, env=environment, check=False)
        suites = list(ET.parse(report).getroot().iter("testsuite")) if report.exists() else []
    counts = {name: sum(int(one.get(name, 0)) for one in suites) for name in ("tests", "failures", "errors", "skipped")}
    return Outcome(version, found, counts["tests"], counts["failures"] + counts["errors"], counts["skipped"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all versions, or those that are named; 0 where every test passed against each."""
    parser = ArgumentParser(prog="python -m tests.matrix", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--only", action="append", choices=sorted(SUITES), help="a version; may be repeated")
    parser.add_argument("--prepare", action="store_true", help="make the trees, run nothing but `haproxy -v`")
    options, more = parser.parse_known_args(arguments)
    good = True
    lines = []
    for version in options.only or SUITES:
        try:
            if options.prepare:
                lines.append(f"HAProxy {version_of(binary(version, SUITES[version])):<22} {SUITES[version]}")
                continue
            outcome = tried(version, SUITES[version], more)
        except Unavailable as error:
            lines.append(f"HAProxy {version:<22} could not be had: {error}")
            good = False
            continue
        good = good and outcome.good
        counts = f"{outcome.tests} tests, {outcome.failed} failed, {outcome.skipped} skipped"
        lines.append(f"HAProxy {outcome.found:<22} {counts}{'' if outcome.good else '  <- not good'}")
    print("\n" + "\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
