"""The list of commands; each is imported when it is called."""

import gc
import importlib
import io
import sys
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from pyconfd import __version__
from pyconfd.cli.command import CONTEXT_SETTINGS, EXITS, CommandContext, teach, write_options
from pyconfd.cli.exits import Boundary, Exit
from pyconfd.cli.interrupts import fatal_interrupts
from pyconfd.cli.options import COMMON, CONFIG_OPTION, OPTIONS, with_values_for_booleans
from pyconfd.model.garbage import without_collector

COMMANDS = {
    "Look": {
        "status": ("status:status", "Show what the daemon does."),
        "top": ("top:top", "Show the first screen of the page in the terminal."),
        "watch": ("watch:watch", "Print each change as it is applied."),
        "logs": ("logs:logs", "Print requests as they end: who decided, which pod answered."),
        "explain": ("explain:explain", "Show whether a service is served, and why not."),
        "history": ("history:history", "List the generations: what changed, when and how."),
        "diff": ("history:diff", "Show what differs between two generations."),
    },
    "Before a change": {
        "plan": ("plan:plan", "Show what would change, and how."),
        "check": ("check:check", "Render and let HAProxy check."),
        "render": ("render:render", "Print what would be written; change nothing."),
        "test": ("test:test", "Test fragments."),
        "try": ("try_:try_", "Serve a file's objects on loopback, with stand-ins for pods."),
        "move": ("move:move", "Show what becomes of Ingresses of ingress-nginx."),
        "preflight": ("preflight:preflight", "Check everything that the daemon needs, or a new haproxy."),
    },
    "Operate": {
        "server": ("server:server", "Drain servers, or put them into maintenance."),
        "pause": ("pause:pause", "Freeze all applying."),
        "resume": ("pause:resume", "End a pause."),
        "allow": ("allow:allow", "Apply a held change once."),
        "adopt": ("adopt:adopt", "Replace a configuration that pyconfd did not write."),
        "rollback": ("rollback:rollback", "Go back to former fragments and settings, and pin them."),
        "unpin": ("rollback:unpin", "End a pin: take the fragments on disk again."),
        "reload": ("reload:reload", "Re-read the daemon's settings."),
        "vip": ("vip:vip", "The floating address of several load balancers."),
        "dns": ("dns:dns", "Publish this node's names in Route 53."),
    },
    "Run": {
        "run": ("run:run", "Run the daemon."),
        "publish": ("etcd:publish", "Render for many balancers: put it into etcd."),
        "consume": ("etcd:consume", "Apply what a producer put into etcd."),
    },
    "Set up": {
        "settings": ("settings:settings", "Show every setting, its value and where it is from."),
        "fragments": ("fragments:fragments", "Show or copy the shipped fragments."),
        "crd": ("crd:crd", "Print the CustomResourceDefinition of RoutePolicies."),
        "rbac": ("rbac:rbac", "Print the permissions that pyconfd needs."),
        "record": ("record:record", "Write what the cluster holds to a file."),
        "migrate": ("migrate:migrate", "Turn a predecessor's files into pyconfd's."),
        "completion": ("completion:completion", "Print a completion script for a shell."),
    },
}
"""The commands by the headings of the help: name to module and attribute, and one line about it."""

HIDDEN = {"view": "render:view", "apply": "etcd:apply"}
"""haproxy-kubefigurator's names."""

PLACES = {name: place for commands in COMMANDS.values() for name, (place, _) in commands.items()} | HIDDEN


def load(place: str) -> Any:
    """Import a command: ``module:attribute`` below :mod:`pyconfd.cli.commands`."""
    module, _, attribute = place.partition(":")
    # A thousand modules hold no garbage: looking for it meanwhile, and in each later round, would cost a sixth of
    # the time that the import takes.
    with without_collector(), fatal_interrupts():
        imported = importlib.import_module(f"pyconfd.cli.commands.{module}")
        gc.freeze()
    return getattr(imported, attribute)


class Program(click.Group):
    """The whole program; without a command's name it is ``run``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [*self.params, CONFIG_OPTION, *OPTIONS.values()]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, after boolean flags without a value were given one."""
        return super().parse_args(ctx, with_values_for_booleans(args))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands that the help shows."""
        del ctx
        return [name for commands in COMMANDS.values() for name in commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        del ctx
        return load(PLACES[cmd_name]) if cmd_name in PLACES else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; where there is none, the error names those that are spelled like it."""
        if not ctx.resilient_parsing and args[0] not in PLACES and not args[0].startswith("-"):
            raise click.NoSuchCommand(args[0], possibilities=self.list_commands(ctx), ctx=ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing any."""
        found = [
            CompletionItem(name, help=about)
            for commands in COMMANDS.values()
            for name, (_, about) in commands.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options that python-confd had."""
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, about) for name, (_, about) in commands.items()])
        write_options(ctx, formatter, "Common settings", [CONFIG_OPTION, *(OPTIONS[path] for path in COMMON)])
        version = [item for item in self.params if item.name == "version"]
        write_options(ctx, formatter, "Other options", [*version, self.get_help_option(ctx)])

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a command line and exit; what goes wrong becomes a message and an exit code, never a bare traceback."""
        kwargs["standalone_mode"] = False
        with Boundary():
            code = super().main(*args, **kwargs)
            sys.exit(code if isinstance(code, int) else 0)
        raise AssertionError("sys.exit returned")  # pragma: no cover - for the type checker


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings=CONTEXT_SETTINGS,
    help=teach(
        "Keep HAProxy in step with a Kubernetes cluster: watch services, render your fragments into haproxy.cfg,"
        " check it, apply it without losing a connection.\n\nWithout a command pyconfd runs as the daemon.",
        examples={
            "pyconfd --api-servers https://10.31.12.49:6443": "run, as python-confd was called",
            "pyconfd plan --config /etc/pyconfd/pyconfd.toml": "what would change, and how",
            "pyconfd status": "what the daemon does",
            "pyconfd settings": "every setting and where it comes from",
        },
        exits={
            **EXITS,
            Exit.FAILED: "failed; the running configuration is unchanged",
            Exit.BUG: "a bug in pyconfd",
        },
    ),
)
@click.version_option(__version__, prog_name="pyconfd")
@click.pass_context
def cli(ctx: click.Context, /, **_: object) -> int:
    """Run as the daemon where no command is named."""
    return int(load("run:daemon")(CommandContext(ctx).resolve())) if ctx.invoked_subcommand is None else Exit.OK


def main() -> NoReturn:
    """Run the command line of this process; output is UTF-8 whatever the locale says, as HAProxy's files are."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    cli.main(prog_name="pyconfd")


if __name__ == "__main__":
    main()
