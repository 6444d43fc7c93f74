"""The commands of the floating address: ``pyconfd vip ...``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pyconfd.cli.calling import exit_of_look, outside, settings_of, settings_to_look_with
from pyconfd.cli.choices import as_json as _json
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_text
from pyconfd.cli.program import CONTEXT_SETTINGS, SettingsCommand, teach

if TYPE_CHECKING:
    from collections.abc import Callable

_EXITS = {
    Exit.OK: "done",
    Exit.FAILED: "the hook refuses: this node does not hold the address, or there is no such router",
    Exit.TEMPORARY: "the hook does not answer",
    Exit.USAGE: "the command line is wrong",
    Exit.CONFIGURATION: "settings are wrong; all problems are listed",
}


@click.group(
    context_settings=CONTEXT_SETTINGS,
    short_help="The floating address of several load balancers.",
    help=teach(
        "The floating address that several load balancers share by keepalived and pyconfd-vip, as [vip] describes it.",
        examples={
            "pyconfd vip status": "who holds it, and why",
            "pyconfd vip drain --reason 'new kernel'": "hand it over, and do not take it until undrain",
            "pyconfd vip config > /etc/keepalived/keepalived.conf": "keepalived's file for this node",
            "pyconfd vip config --nftables | nft -f -": "let only the peers' adverts in",
        },
        exits=_EXITS,
    ),
)
def vip() -> None:
    """Show and move the floating address."""


@vip.command(
    cls=SettingsCommand,
    short_help="Print keepalived's configuration for this node.",
    help=teach(
        "Print keepalived's configuration for this node, or the rules of nftables for its adverts. Nothing is changed;"
        " let `keepalived -t -f FILE` check it before it is put in place.",
        examples={
            "pyconfd vip config > /etc/keepalived/keepalived.conf": "",
            "pyconfd vip config --vip-node lb2": "as another node has it",
            "pyconfd vip config --nftables | nft -f -": "the packet filter",
        },
        exits=_EXITS,
    ),
)
@click.option("--nftables", is_flag=True, help="Print the rules of nftables instead.")
@click.pass_context
def config(ctx: click.Context, /, *, nftables: bool, **_: object) -> int:
    """Print the configuration."""
    print_text(outside(ctx).app().vip_config(settings_of(ctx), nftables=nftables), newline=False)
    return Exit.OK


@vip.command(
    cls=SettingsCommand,
    short_help="Show who holds the address, and why.",
    help=teach(
        "Show what the hook of this node knows: its role and since when, who holds the address by the adverts on the"
        " wire, which peers were heard, each check, and the last transitions with their causes.",
        examples={"pyconfd vip status": "", "pyconfd vip status --json": "for programs"},
        exits={
            Exit.OK: "no fault and no alarm",
            Exit.FAILED: "it runs with a fault or an alarm",
            Exit.NOT_RUNNING: "the hook does not run; old values are shown as old",
            Exit.USAGE: "the command line is wrong",
            Exit.CONFIGURATION: "settings are wrong; all problems are listed",
        },
    ),
)
@_json
@click.pass_context
def status(ctx: click.Context, /, *, as_json: bool, **_: object) -> int:
    """Print the status."""
    settings, wrong = settings_to_look_with(ctx)
    report = outside(ctx).app().vip_status(settings)
    if as_json:
        print_json({"alive": report.alive, "status": dict(report.document)})
    else:
        print_text(report.text, newline=False)
    return exit_of_look(report, wrong=wrong)


def _ordering(order: str, short: str, what: str) -> None:
    @click.option("--router", type=int, metavar="NUMBER", help="This virtual router only. [default: all]")
    @click.option("--reason", metavar="TEXT", default="", help="Why, for those who look at the status.")
    @click.pass_context
    def command(ctx: click.Context, /, router: int | None, reason: str, **_: object) -> int:
        print_text(outside(ctx).app().vip_order(settings_of(ctx), order, router=router, reason=reason))
        return Exit.OK

    make: Callable[..., click.Command] = vip.command(
        order,
        cls=SettingsCommand,
        short_help=short,
        help=teach(what, examples={f"pyconfd vip {order}": "", f"pyconfd vip {order} --router 51": ""}, exits=_EXITS),
    )
    make(command)


_ordering(
    "drain",
    "Hand the address over and do not take it.",
    "Hand the address over, and do not take it again until `undrain`, also after restarts: for maintenance. If no other"
    " node takes it, this one takes it back and says so.",
)
_ordering(
    "undrain",
    "End a drain.",
    "Let this node take the address again. Nothing moves now: it takes it when the holder gives it up.",
)
_ordering(
    "failover",
    "Hand the address over once.",
    "Let the next node have the address, and stay ready to take it back from a dead one.",
)
_ordering(
    "announce",
    "Announce the address anew.",
    "Tell the network again where the address is (gratuitous ARP, unsolicited neighbour advertisement), until that was"
    " seen to leave.",
)
