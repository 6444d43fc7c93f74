"""The commands that share one rendering over etcd, and the names that haproxy-kubefigurator had for them."""

import click

from pyconfd.cli.calling import outside, resolved, settings_of
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_notes, print_refused, print_text
from pyconfd.cli.program import SettingsCommand, teach

_DAEMON = {
    Exit.OK: "it was asked to stop",
    Exit.USAGE: "the command line is wrong",
    Exit.CONFIGURATION: "settings are wrong; all problems are listed",
    Exit.BUG: "a bug; systemd starts it again",
}
_ONCE = {
    Exit.OK: "published, or published already",
    Exit.FAILED: "it cannot be rendered, HAProxy refuses it, or etcd did not take it",
    Exit.TEMPORARY: "no API server or etcd answered, or another producer publishes; trying again may help",
    Exit.USAGE: "the command line is wrong",
    Exit.CONFIGURATION: "settings are wrong; all problems are listed",
}


def publishing(ctx: click.Context, *, once: bool) -> int:
    """Publish to etcd, once or until it is asked to stop."""
    if once:
        print_text(outside(ctx).app().publish_once(settings_of(ctx)))
        return Exit.OK
    return outside(ctx).app().publish(resolved(ctx))


@click.command(
    cls=SettingsCommand,
    short_help="Render for many balancers: put it into etcd.",
    help=teach(
        "Watch the cluster, render, let HAProxy check, and put the result into etcd, from where `pyconfd consume`"
        " takes it on each balancer. Private keys stay here. Of several producers one publishes; when it ends, the"
        " next takes over.",
        examples={
            "pyconfd publish --etcd-endpoints https://a:2379,https://b:2379": "until it is asked to stop",
            "pyconfd publish --once": "one rendering, for a job or a test",
        },
        exits={**_ONCE, **_DAEMON},
    ),
)
@click.option("--once", is_flag=True, help="Publish what the cluster asks for now, and end.")
@click.pass_context
def publish(ctx: click.Context, /, *, once: bool, **_: object) -> int:
    """Publish to etcd."""
    return publishing(ctx, once=once)


@click.command(
    cls=SettingsCommand,
    short_help="Apply what a producer put into etcd.",
    help=teach(
        "Watch etcd and apply what `pyconfd publish` put there: verified, checked by HAProxy here, without losing a"
        " connection. Needs no access to Kubernetes. Without etcd, what serves goes on serving.",
        examples={"pyconfd consume --etcd-endpoints https://a:2379,https://b:2379": "until it is asked to stop"},
        exits=_DAEMON,
    ),
)
@click.pass_context
def consume(ctx: click.Context, /, **_: object) -> int:
    """Apply what is published in etcd."""
    return outside(ctx).app().consume(resolved(ctx))


@click.command(
    cls=SettingsCommand,
    hidden=True,
    short_help="haproxy-kubefigurator's name for render.",
    help=teach(
        "What haproxy-kubefigurator called `pyconfd render`.",
        examples={"pyconfd view": "prints the configuration"},
        exits=_ONCE,
    ),
)
@click.pass_context
def view(ctx: click.Context, /, **_: object) -> int:
    """Print the rendering."""
    settings = settings_of(ctx)
    print_notes(("view is `pyconfd render` now",))
    rendered = outside(ctx).app().render_once(settings, ())
    print_notes(rendered.notes)
    print_refused(rendered.refused)
    print_text(rendered.text, newline=False)
    return Exit.OK


@click.command(
    cls=SettingsCommand,
    hidden=True,
    short_help="haproxy-kubefigurator's name for publish --once.",
    help=teach(
        "What haproxy-kubefigurator called `pyconfd publish --once`.",
        examples={"pyconfd apply --etcd-host https://a:2379": "publishes once"},
        exits=_ONCE,
    ),
)
@click.pass_context
def apply(ctx: click.Context, /, **_: object) -> int:
    """Publish once."""
    print_notes(("apply is `pyconfd publish --once` now",))
    return publishing(ctx, once=True)


COMMANDS: tuple[click.Command, ...] = (publish, consume, view, apply)
