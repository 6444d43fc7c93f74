"""``pyconfd record``: write what the cluster holds to a file, without secrets."""

import os

import click

from pyconfd import wiring
from pyconfd.cli.command import CommandContext, command
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text
from pyconfd.errors import Problem, RejectedInput
from pyconfd.haproxy.config.text import without_passwords
from pyconfd.model.snapshot import Resource
from pyconfd.sources.file import write_snapshot


@command(
    examples={
        "pyconfd record cluster.yaml": "for a bug report, or a test",
        "pyconfd render --snapshot cluster.yaml": "offline from then on",
    },
    exits={Exit.FAILED: "it could not be written"},
)
@click.argument("path", metavar="FILE", type=click.Path(dir_okay=False))
def record(context: CommandContext, path: str) -> int:
    """Write what the cluster holds to a file.

    Write the objects that pyconfd reads to a file for --snapshot; the content of Secrets is left out.
    """
    snapshot, refused = wiring.snapshot_once(context.settings(), ())
    try:
        with open(path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(write_snapshot(snapshot, without_passwords))
    except OSError as error:
        raise RejectedInput(Problem(path, f"cannot be written: {error.strerror}", "name another file")) from error
    count = sum(len(getattr(snapshot, resource.field)) for resource in Resource)
    left_out = f"; {len(refused)} unreadable objects were left out" if refused else ""
    print_text(f"{count} objects written to {path}, Secrets redacted, and what looks like a credential{left_out}.")
    return Exit.OK
