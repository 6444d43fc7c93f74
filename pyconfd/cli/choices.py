"""Options that several commands have."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print the data as JSON, for programs.")
"""The option of every command that reports something."""


def snapshot(what: str, *, required: bool = False) -> Callable[[_F], _F]:
    """Return the option that names files with objects; ``what`` is its help."""
    kind = click.Path(exists=True, dir_okay=False, allow_dash=True)
    return click.option(
        "--snapshot", "snapshots", multiple=True, required=required, metavar="FILE", type=kind, help=what
    )
