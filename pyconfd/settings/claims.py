"""``[claims]``: who may claim which names, protocols, ports and addresses, and where endpoints may be."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pyconfd.presets.claiming import Rule
from pyconfd.presets.places import network
from pyconfd.presets.values import address, host_name, protocol
from pyconfd.settings.kinds import Kind, Listing, NotAcceptedError, Seconds, port_range, shown
from pyconfd.settings.setting import Setting


def port_ranges(listed: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Return ranges of ports that were read by :func:`port_range` as numbers, both ends included."""
    pairs = [text.partition("-") for text in listed]
    return tuple((int(first), int(last)) for first, _, last in pairs)


def _network(text: str) -> str:
    try:
        return str(network(text))
    except ValueError:
        raise NotAcceptedError("a network or an address, like 127.0.0.0/8 or 192.0.2.7", text) from None


def _address(text: str) -> str:
    found = address(text)
    if found is None:
        raise NotAcceptedError("an IP address, like 192.0.2.7", text)
    return str(found)


def _namespaces(text: str) -> str:
    if not text or not set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789-*?[]!"):
        raise NotAcceptedError("names of namespaces, or patterns with * and ?", text)
    return text


def _domain(text: str) -> str:
    try:
        return host_name(text.removeprefix("*.").removeprefix("."))
    except ValueError:
        raise NotAcceptedError("domains like example.com, which allow what is below them too", text) from None


def _protocol(text: str) -> str:
    try:
        return protocol(text)
    except ValueError as error:
        raise NotAcceptedError(f"protocols ({error})", text) from None


_KINDS = {
    "namespaces": Listing(_namespaces),
    "domains": Listing(_domain),
    "protocols": Listing(_protocol),
    "ports": Listing(port_range),
    "addresses": Listing(_network),
}


@dataclass(frozen=True)
class Rules(Kind):
    """Rules in order: ``[[claims.rules]]`` in TOML; in text a JSON array of objects with the same keys."""

    metavar: str = "JSON"

    def parse(self, value: object) -> tuple[Rule, ...]:
        """Return the rules in order."""
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                raise NotAcceptedError("a JSON array of rules", value) from None
        if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
            raise NotAcceptedError("tables, each beginning with [[claims.rules]]", value)
        return tuple(_rule(item, number) for number, item in enumerate(value, 1))

    def text(self, value: Any) -> str:
        """Return the patterns of the namespaces that there are rules for."""
        return "; ".join(" ".join(rule.namespaces) for rule in value)


def _rule(item: Mapping[Any, Any], number: int) -> Rule:
    place = f"rule {number}"
    unknown = sorted(str(key) for key in item.keys() - _KINDS.keys())
    if unknown:
        raise NotAcceptedError(f"the keys {', '.join(_KINDS)} in {place}", unknown[0])
    parsed: dict[str, tuple[str, ...]] = {}
    for key, value in item.items():
        try:
            parsed[key] = _KINDS[key].parse([str(part) for part in value] if isinstance(value, list) else value)
        except NotAcceptedError as error:
            raise NotAcceptedError(f"good {key} in {place} ({error})", words=shown(value)) from None
    if not parsed.get("namespaces"):
        raise NotAcceptedError(f"namespaces in {place}", words="none")
    ports = parsed.get("ports")
    return Rule(
        parsed["namespaces"],
        parsed.get("domains"),
        parsed.get("protocols"),
        None if ports is None else port_ranges(ports),
        tuple(map(network, parsed.get("addresses", ()))),
    )


def rule_table(rule: Rule) -> dict[str, Any]:
    """Return a rule as a plain table, without what it does not limit."""
    ports = None if rule.ports is None else [f"{first}-{last}" for first, last in rule.ports]
    values = {"namespaces": rule.namespaces, "domains": rule.domains, "protocols": rule.protocols, "ports": ports}
    values |= {"addresses": tuple(map(str, rule.addresses))}
    return {key: list(value) for key, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ClaimSettings:
    """``[claims]``: who may claim what, for all presets."""

    rules: Annotated[
        tuple[Rule, ...],
        Setting(
            "who may claim what: tables [[claims.rules]] with namespaces (names, or patterns with * and ?) and maybe"
            " domains (what names must end with), protocols and ports; what of these a rule does not mention it does"
            " not limit, and an empty list allows nothing. Its addresses are the networks in which it may name an"
            " address of this balancer to listen on; a rule without them allows none. The first rule that names a"
            " namespace decides about it; where there are rules, a namespace that none names may claim nothing",
            Rules(),
            empty="everybody may claim anything",
        ),
    ] = ()
    reserve_s: Annotated[
        float,
        Setting(
            "how long a name or port stays with its namespace when its object is gone, so that a recreated one gets it"
            " back; 0: whoever waits gets it at once",
            Seconds(above=False),
        ),
    ] = 600.0
    allow_endpoints: Annotated[
        tuple[str, ...],
        Setting(
            "networks whose addresses may be endpoints though they are loopback, link-local, multicast, a cloud's"
            " metadata, or this balancer's own",
            Listing(_network, metavar="NETWORK,..."),
            empty="none",
        ),
    ] = ()
    own_addresses: Annotated[
        tuple[str, ...],
        Setting(
            "addresses of load balancers beside those of this one's interfaces and those in [vip], floating or of a"
            " node: no endpoint may be there",
            Listing(_address, metavar="ADDRESS,..."),
            empty="none",
        ),
    ] = ()
