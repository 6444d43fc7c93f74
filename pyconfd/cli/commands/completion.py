"""``pyconfd completion``: a script that teaches a shell the commands."""

import click
from click.shell_completion import get_completion_class

from pyconfd.cli.command import CONTEXT_SETTINGS, teach
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text


@click.command(
    "completion",
    context_settings=CONTEXT_SETTINGS,
    help=teach(
        "Print a completion script for a shell.",
        examples={
            'eval "$(pyconfd completion bash)"': "in ~/.bashrc",
            'eval "$(pyconfd completion zsh)"': "in ~/.zshrc",
            "pyconfd completion fish > ~/.config/fish/completions/pyconfd.fish": "",
        },
        exits={Exit.OK: "printed", Exit.USAGE: "the command line is wrong"},
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> int:
    """Print a completion script."""
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    print_text(found(ctx.find_root().command, {}, "pyconfd", "_PYCONFD_COMPLETE").source())
    return Exit.OK
