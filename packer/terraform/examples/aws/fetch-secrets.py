#!/opt/pyconfd/bin/python3
"""Writes secrets of AWS Secrets Manager into files: fetch-secrets [LIST], by default /etc/pyconfd-secrets.json.

LIST is {"region": REGION, "files": {PATH: {"secret": ARN, "owner": "USER:GROUP", "reload": [UNIT]}}}. The instance's
role logs in. A file is replaced whole and only where its content is another one; units that it names are reloaded then,
if they run. What cannot be fetched stays as it is. Exit code 1 then.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError


def written(path: Path, content: bytes, owner: str) -> bool:
    """Replace the file where it differs; give whether it did."""
    if path.exists() and path.read_bytes() == content:
        return False
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        user, _, group = owner.partition(":")
        shutil.chown(file.fileno(), user, group or None)  # not by name: root does not own every directory
        os.fchmod(file.fileno(), 0o640)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    return True


def reloaded(units: set[str]) -> bool:
    """Have the units take new files; give whether all did."""
    done = [subprocess.run(["systemctl", "try-reload-or-restart", unit], check=False) for unit in sorted(units)]
    return not any(each.returncode for each in done)


def main() -> int:
    """Fetch everything; one secret that cannot be had does not keep back the others."""
    listed = json.loads(Path(sys.argv[1] if len(sys.argv) > 1 else "/etc/pyconfd-secrets.json").read_text())
    client = boto3.client("secretsmanager", region_name=listed["region"])
    failed, units = 0, set()
    for name, wanted in sorted(listed["files"].items()):
        try:
            answer = client.get_secret_value(SecretId=wanted["secret"])
            content = answer["SecretString"].encode() if "SecretString" in answer else answer["SecretBinary"]
            if not content.strip():
                raise ValueError("the secret is empty")  # noqa: TRY301 - told like the others
            if written(Path(name), content, wanted["owner"]):
                print(f"{name} is new")  # noqa: T201 - the journal
                units.update(wanted.get("reload", ()))
        except (BotoCoreError, ClientError, OSError, LookupError, ValueError) as error:
            print(f"<3>{name} stays as it is: {error}", file=sys.stderr)  # noqa: T201 - the journal
            failed = 1
    return failed if reloaded(units) else 1


if __name__ == "__main__":
    sys.exit(main())
