"""``pyconfd vip``: keepalived's configuration for the floating address, and questions and orders to its hook."""

import socket
import time

import click
import jinja2

from pyconfd import keepalived
from pyconfd.cli.command import (
    CommandContext,
    command,
    command_group,
    exit_of_report,
    json_option,
)
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_json, print_text
from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.settings import Settings
from pyconfd.vip.control import ask
from pyconfd.vip.output import last_report
from pyconfd.vip.report import described, has_problem
from pyconfd.vip.topology import topology

_EXITS = {
    Exit.FAILED: "the hook refuses: this node does not hold the address, or there is no such router",
    Exit.TEMPORARY: "the hook does not answer",
}
_DONE = {
    "drain": "Drained",
    "undrain": "This node may hold the address again; it takes it when the holder gives it up.",
    "failover": "Handed over",
    "announce": "The address is announced again.",
}
_HANDED_OVER_S = 10.0
_POLL_S = 0.02

vip = command_group(
    "vip",
    "The floating address of several load balancers.\n\n"
    "They share it by keepalived and pyconfd-vip, as [vip] describes.",
    examples={
        "pyconfd vip status": "who holds it, and why",
        "pyconfd vip drain --reason 'new kernel'": "hand it over, and do not take it until undrain",
        "pyconfd vip config > /etc/keepalived/keepalived.conf": "keepalived's file for this node",
        "pyconfd vip config --nftables | nft -f -": "let only the peers' adverts in",
    },
    exits=_EXITS,
)


@command(
    examples={
        "pyconfd vip config > /etc/keepalived/keepalived.conf": "",
        "pyconfd vip config --vip-node lb2": "as another node has it",
        "pyconfd vip config --nftables | nft -f -": "the packet filter",
    },
    exits=_EXITS,
    group=vip,
)
@click.option("--nftables", is_flag=True, help="Print the rules of nftables instead.")
def config(context: CommandContext, *, nftables: bool) -> int:
    """Print keepalived's configuration for this node.

    Print keepalived's configuration for this node, or the rules of nftables for its adverts. Nothing is changed; let
    `keepalived -t -f FILE` check it before it is put in place.
    """
    print_text(vip_config(context.settings(), nftables=nftables), newline=False)
    return Exit.OK


def vip_config(settings: Settings, *, nftables: bool = False) -> str:
    """Return keepalived.conf for this node, or the rules of nftables that let only its peers' adverts in.

    Raises:
        ConfigurationError: the settings do not say enough, or contradict one another.
    """
    vip = settings.vip
    found = topology(vip, socket.gethostname())
    peers = {peer.address for router in found.routers for peer in router.peers}
    nodes = [node.addresses[0] for node in vip.nodes if node.name != found.node]
    environment = jinja2.Environment(  # noqa: S701 - no HTML
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    name = "vrrp.nft.tmpl" if nftables else "keepalived.conf.tmpl"
    text = (keepalived.directory() / name).read_text(encoding="utf-8")
    return environment.from_string(text).render(
        node=found.node,
        interface=vip.interface,
        advert=f"{vip.advert_s:g}",
        routers=found.routers,
        fifo=vip.fifo,
        heartbeat=vip.heartbeat,
        grace=int(vip.grace_s),
        haproxy_pid_file=vip.haproxy_pid_file,
        script_dir=vip.script_dir,
        peers4=sorted(peer for peer in peers if ":" not in peer),
        peers6=sorted(peer for peer in peers if ":" in peer),
        peers_port=vip.peers_port,
        nodes4=sorted(own for own in nodes if ":" not in own),
        nodes6=sorted(own for own in nodes if ":" in own),
    )


@command(
    exits={
        Exit.OK: "no fault and no alarm",
        Exit.FAILED: "it runs with a fault or an alarm",
        Exit.NOT_RUNNING: "the hook does not run; old values are shown as old",
    },
    group=vip,
)
@json_option
def status(context: CommandContext, *, as_json: bool) -> int:
    """Show who holds the address, and why.

    Show what the hook of this node knows: its role and since when, who holds the address by the adverts on the wire,
    which peers were heard, each check, and the last transitions with their causes.
    """
    settings, wrong = context.settings_or_defaults()
    try:
        document = ask(f"{settings.vip.runtime_dir}/control.sock", {"do": "status"})
    except (OSError, ValueError):
        document = last_report(settings.vip)
        text = "pyconfd-vip does not run. keepalived's own slow check decides in its place.\n"
        if document:
            text += "Its last report:\n\n" + described(document, document["transitions"], time.time())
        alive, code = False, Exit.NOT_RUNNING
    else:
        text = described(document, document["transitions"], time.time())
        alive, code = True, Exit.FAILED if has_problem(document) else Exit.OK
    if as_json:
        print_json({"alive": alive, "status": dict(document)})
    else:
        print_text(text, newline=False)
    return exit_of_report(code, alive=alive, wrong=wrong)


_ORDERS = {
    "drain": "Hand the address over, and do not take it again until `undrain`, also after restarts.\n\nFor maintenance."
    " If no other node takes it, this one takes it back and says so.",
    "undrain": "Let this node take the address again.\n\nNothing moves now: it takes it when the holder gives it up.",
    "failover": "Let the next node have the address, and stay ready to take it back from a dead one.",
    "announce": "Tell the network again where the address is.\n\nGratuitous ARP, unsolicited neighbour advertisement,"
    " until that was seen to leave.",
}


def _order_command(name: str, what: str) -> None:
    examples = {f"pyconfd vip {name}": "", f"pyconfd vip {name} --router 51": ""}

    @command(name, what, examples=examples, exits=_EXITS, group=vip)
    @click.option("--router", type=int, metavar="NUMBER", help="This virtual router only. [default: all]")
    @click.option("--reason", metavar="TEXT", default="", help="Why, for those who look at the status.")
    def order(context: CommandContext, router: int | None, reason: str) -> int:
        print_text(_order(context.settings(), name, router=router, reason=reason))
        return Exit.OK


for _name, _what in _ORDERS.items():
    _order_command(_name, _what)


def _order(settings: Settings, order: str, *, router: int | None, reason: str) -> str:
    """Send the hook an order (drain, undrain, failover, announce); return a sentence about what came of it.

    Raises:
        TransientError: the hook does not answer.
        RejectedInput: it refuses.
    """
    path = f"{settings.vip.runtime_dir}/control.sock"
    try:
        said = ask(path, {"do": order, "router": router, "reason": reason})
        if "error" in said:
            raise RejectedInput(Problem("vip", str(said["error"]), "pyconfd vip status shows who holds what"))
        if order not in {"drain", "failover"}:
            return _DONE[order]
        deadline = time.monotonic() + _HANDED_OVER_S
        while time.monotonic() < deadline:
            routers = [one for one in ask(path, {"do": "status"})["routers"] if one["id"] in said["routers"]]
            if all(one["holder"] and not one["holds"] for one in routers):
                holders = sorted({one["holder"] for one in routers})
                return f"{_DONE[order]}; {', '.join(holders)} has the address."
            time.sleep(_POLL_S)
    except (OSError, ValueError) as error:
        remedy = "systemctl status pyconfd-vip; the commands need root, or its group"
        raise TransientError(Problem(path, f"the hook does not answer: {error}", remedy)) from error
    return f"{_DONE[order]}, but no other node took the address: see pyconfd vip status on each."
