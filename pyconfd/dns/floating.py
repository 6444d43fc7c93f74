"""Who holds a floating address, by what the hook ``pyconfd-vip`` left behind; decides nothing by itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FRESH_S = 20.0
"""The hook writes each five seconds."""


@dataclass(frozen=True, slots=True)
class HookState:
    """``holding`` says of each address that the hook keeps why this node does not count as its holder, "" if it does.

    It is empty where the hook is dead: whether an order to drain stands is known even then.
    """

    holding: Mapping[str, str]
    drained: bool = False


def hook_state(document: Mapping[str, Any], now: float) -> HookState:
    """Read the hook's report; whatever is not as it should be is not known."""
    try:
        routers = [
            (bool(router["drained"]), [_instance(item) for item in router["instances"]])
            for router in document["routers"]
        ]
        fresh = abs(now - float(document["at"])) < FRESH_S
    except (KeyError, TypeError, ValueError):
        return HookState({})
    found = {address: why for _, instances in routers for addresses, why in instances for address in addresses}
    drained = bool(routers) and all(is_drained for is_drained, _ in routers)
    return HookState(found if fresh else {}, drained)


def _instance(item: Mapping[str, Any]) -> tuple[list[str], str]:
    addresses = [str(address).partition("/")[0] for address in item["addresses"]]
    if not item["holds"]:
        holder = f"{item['holder']} has it" if item.get("holder") else "nobody seems to have it"
        return addresses, f"the floating address {', '.join(addresses)} is elsewhere: {holder}"
    if item["rivals"]:
        return addresses, f"another node has the floating address {', '.join(addresses)} too"
    return addresses, ""
