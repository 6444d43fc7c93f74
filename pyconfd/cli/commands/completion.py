"""``pyconfd completion``: a script that teaches a shell the commands."""

import click
from click.shell_completion import get_completion_class

from pyconfd.cli.command import command
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text


@command(
    examples={
        'eval "$(pyconfd completion bash)"': "in ~/.bashrc",
        'eval "$(pyconfd completion zsh)"': "in ~/.zshrc",
        "pyconfd completion fish > ~/.config/fish/completions/pyconfd.fish": "",
    },
    cls=click.Command,
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> int:
    """Print a completion script for a shell."""
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    print_text(found(ctx.find_root().command, {}, "pyconfd", "_PYCONFD_COMPLETE").source())
    return Exit.OK
