"""Options that several commands have."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

output = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="For people or programs."
)
"""The choice between text and JSON."""


def snapshot(what: str, *, required: bool = False) -> Callable[[_F], _F]:
    """Give the option that names files with objects; ``what`` is its help."""
    kind = click.Path(exists=True, dir_okay=False, allow_dash=True)
    return click.option(
        "--snapshot", "snapshots", multiple=True, required=required, metavar="FILE", type=kind, help=what
    )
