"""What the commands ``pyconfd vip ...`` do: keepalived's configuration, and questions and orders to the hook."""

import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jinja2

from pyconfd import keepalived
from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.settings import Settings
from pyconfd.vip.control import ask
from pyconfd.vip.output import HookMemory, memory_file
from pyconfd.vip.report import described, has_problem
from pyconfd.vip.topology import topology


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
        interface=found.interface,
        advert=f"{found.advert_s:g}",
        routers=found.routers,
        fifo=found.fifo,
        heartbeat=found.heartbeat,
        grace=int(vip.grace_s),
        haproxy_pid_file=vip.haproxy_pid_file,
        script_dir=vip.script_dir,
        peers4=sorted(peer for peer in peers if ":" not in peer),
        peers6=sorted(peer for peer in peers if ":" in peer),
        peers_port=vip.peers_port,
        nodes4=sorted(own for own in nodes if ":" not in own),
        nodes6=sorted(own for own in nodes if ":" in own),
    )


@dataclass(frozen=True, slots=True)
class VipReport:
    """What the hook says, or what a dead one left behind (``alive`` False); ``document`` is ready for JSON."""

    alive: bool
    document: Mapping[str, Any]
    text: str
    exit_code: int


def vip_status(settings: Settings) -> VipReport:
    """Ask the hook how it is; exit code 0 fine, 1 with a problem, 3 where it does not run."""
    vip = settings.vip
    try:
        document = ask(f"{vip.runtime_dir}/control.sock", {"do": "status"})
    except (OSError, ValueError):
        left = memory_file(vip.state_dir).load() or HookMemory()
        text = "pyconfd-vip does not run. keepalived's own slow check decides in its place.\n"
        if left.status:
            text += "Its last report:\n\n" + described(left.status, left.transitions, time.time())
        return VipReport(alive=False, document=asdict(left), text=text, exit_code=3)
    text = described(document, document["transitions"], time.time())
    return VipReport(alive=True, document=document, text=text, exit_code=int(has_problem(document)))


def vip_order(settings: Settings, order: str, *, router: int | None = None, reason: str = "") -> str:
    """Return the hook an order (drain, undrain, failover, announce); give a sentence about what came of it.

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
            if all(one["holder"] and not one["holds"] for router_ in routers for one in router_["instances"]):
                holders = sorted({one["holder"] for router_ in routers for one in router_["instances"]})
                return f"{_DONE[order]}; {', '.join(holders)} has the address."
            time.sleep(_LOOK_S)
    except (OSError, ValueError) as error:
        remedy = "systemctl status pyconfd-vip; the commands need root, or its group"
        raise TransientError(Problem(path, f"the hook does not answer: {error}", remedy)) from error
    return f"{_DONE[order]}, but no other node took the address: see pyconfd vip status on each."


_DONE = {
    "drain": "Drained",
    "undrain": "This node may hold the address again; it takes it when the holder gives it up.",
    "failover": "Handed over",
    "announce": "The address is announced again.",
}
_HANDED_OVER_S = 10.0
_LOOK_S = 0.02
