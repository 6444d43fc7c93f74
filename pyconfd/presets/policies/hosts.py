"""Words by which an Ingress has more hosts than its rules name. Each is claimed as a host of a rule is."""

import re
from typing import NamedTuple

import msgspec

from pyconfd.model.ingress import Ingress, IngressHttp, IngressRule, IngressTls
from pyconfd.presets import values

_MOST_ALIASES = 64
_SEPARATORS = re.compile(r"[\s,]+")
_WWW = "www."


class AskedHosts(NamedTuple):
    """The ``aliases`` have all rules of the Ingress; ``www``: the other one of X and www.X is redirected."""

    aliases: tuple[str, ...] = ()
    www: bool = False


NO_HOSTS = AskedHosts()


def aliases(text: str) -> tuple[str, ...]:
    """Parse hosts, separated by commas; raise ValueError."""
    found = []
    for each in filter(None, _SEPARATORS.split(text)):
        if each.startswith("~"):
            raise ValueError(
                "regular expressions of hosts are not taken: name them, or a wildcard such as *.example.com"
            )
        name = values.host_name(each)
        if values.address(name) is not None:
            raise ValueError(f"{values.shortened(each)} is an address, and no host")
        found.append(name)
    if not 0 < len(found) <= _MOST_ALIASES:
        raise ValueError(f"expected 1 to {_MOST_ALIASES} hosts, such as shop.example.org, separated by commas")
    return tuple(dict.fromkeys(found))


def with_aliases(ingress: Ingress, names: tuple[str, ...]) -> Ingress:
    """Return an Ingress as if its rules, and their certificates, were for these hosts too."""
    rules = ingress.spec.rules or ()
    if not names or not rules:
        return ingress
    paths = IngressHttp(tuple(path for rule in rules if rule.http is not None for path in rule.http.paths))
    more = tuple(IngressRule(name, paths) for name in names)
    known = {rule.host for rule in rules}
    tls = tuple(
        IngressTls((*each.hosts, *names), each.secret_name) if each.hosts and known & {*each.hosts} else each
        for each in ingress.spec.tls or ()
    )
    spec = msgspec.structs.replace(ingress.spec, rules=(*rules, *more), tls=tls)
    return msgspec.structs.replace(ingress, spec=spec)


def other_www(host: str) -> str:
    """Return the other one of X and www.X, "" for a host that has none."""
    if "." not in host or host.startswith("*"):
        return ""
    return host.removeprefix(_WWW) if host.startswith(_WWW) else f"{_WWW}{host}"
