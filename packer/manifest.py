"""What this machine is made of, as JSON: ``python3 packer/manifest.py --wheelhouse FOLDER --output FILE``."""

import argparse
import hashlib
import json
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

VENV = Path("/opt/pyconfd")
OWN = (
    "/etc/apt/apt.conf.d/52pyconfd",
    "/etc/sysctl.d/60-pyconfd.conf",
    "/etc/systemd/journald.conf.d/pyconfd.conf",
    "/etc/systemd/system/haproxy.service.d/*.conf",
    "/etc/systemd/system/keepalived.service.d/pyconfd.conf",
    "/etc/systemd/system/pyconfd*.service",
    "/etc/systemd/system/ssh-host-keys.service",
    "/opt/pyconfd/libexec/*",
    "/usr/lib/sysusers.d/pyconfd.conf",
    "/usr/lib/tmpfiles.d/pyconfd.conf",
)
"""Files that the provisioning put there, beside the virtual environment."""


def sha256(path: Path) -> str:
    """Give the digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def packages() -> list[dict[str, str]]:
    """Give name, version and architecture of each Debian package that is installed."""
    form = "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\n"
    shown = subprocess.run(
        ["/usr/bin/dpkg-query", "--show", f"--showformat={form}"], capture_output=True, text=True, check=True
    ).stdout
    rows = sorted(line.split("\t")[1:] for line in shown.splitlines() if line.startswith("installed\t"))
    return [dict(zip(("name", "version", "architecture"), row, strict=True)) for row in rows]


def distributions() -> list[dict[str, str]]:
    """Give name and version of each Python distribution in the virtual environment."""
    code = "import importlib.metadata as m, json; print(json.dumps([[d.name, d.version] for d in m.distributions()]))"
    shown = subprocess.run([str(VENV / "bin/python"), "-c", code], capture_output=True, text=True, check=True).stdout
    return [{"name": name, "version": version} for name, version in sorted(map(tuple, json.loads(shown)))]


def own_files() -> Iterator[tuple[str, str]]:
    """Give path and digest of each file of the appliance's own."""
    for pattern in OWN:
        for path in sorted(Path("/").glob(pattern.lstrip("/"))):
            yield str(path), sha256(path)


def main() -> None:
    """Write the manifest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheelhouse", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    found = {
        "system": platform.freedesktop_os_release()["PRETTY_NAME"],
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "packages": packages(),
        "distributions": distributions(),
        "wheels": {path.name: sha256(path) for path in sorted(options.wheelhouse.glob("*.whl"))},
        "files": dict(own_files()),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
