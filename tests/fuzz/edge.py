"""Judges what a client gets past the edge: headers of proxies, the connection of one host for another, and targets."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise, product
from random import Random

from tests.fuzz.clusters import FORBIDDEN, HOSTS, PATHS, SHARED_ADDRESS, Document, Slot, listeners_at, namespace_of
from tests.fuzz.haproxy_model import Config, Request, answering, chosen, is_inner, passed_headers, route, shared_tls

TRUSTED = ("198.51.100.0/25",)
"""Networks of proxies in front."""
_PROXY, _CLIENT = "198.51.100.1", "198.51.100.200"
_FORGED = "forged"
_ALWAYS_REPLACED = frozenset({"x-forwarded-for", "x-real-ip", "proxy"})
"""What even a trusted proxy does not say to pods: HAProxy says it."""
_PROXY_HEADERS = (
    *("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-client-cert"),
    *("x-forwarded-user", "forwarded", "x-real-ip", "x-ssl-client-dn", "x-ssl-client-verify", "x-ssl-cert", "proxy"),
    "x-request-id",
)
_OWN_HEADERS = (("authorization", "secret"), ("x-forwarding", "kept"), ("proxied", "kept"))
_NAMES = (*(host.replace("*", "z") for host in HOSTS), "q.p.x.test", "other.test")


def headers(config: Config, trusted: tuple[str, ...], rng: Random) -> Iterator[str]:
    """Return the forged headers that reach pods, and those of clients that do not."""
    sent = [_spelled(name, rng) for name in _PROXY_HEADERS]
    connection = rng.choice(("keep-alive, X-Forwarded-For, Authorization", "X-Real-IP", "close"))
    for section, _ in config.frontends:
        leads_on = any(line[0] in {"use_backend", "default_backend"} for line in section.lines)
        # A question has what the first frontend left of a client's headers.
        if ("mode", "http") not in section.lines or not leads_on or is_inner(section):
            continue
        for source in (_PROXY, _CLIENT):
            is_trusted = bool(trusted) and source == _PROXY
            forged = tuple((name, _FORGED) for name in sent)
            request = Request("", 80, "app.x.test", source=source, headers=(*forged, *_OWN_HEADERS))
            passed = passed_headers(config, section, _with(request, ("connection", connection)))
            for name, value in passed:
                is_known = is_trusted and name.replace("_", "-") not in _ALWAYS_REPLACED
                if (value == _FORGED and not is_known) or (name == "connection" and value != "upgrade"):
                    yield f"{section.name} passes {name}: {value} of {source}"
            if missing := {*_OWN_HEADERS} - {*passed}:
                yield f"{section.name} does not pass {sorted(missing)}"


def _spelled(name: str, rng: Random) -> str:
    return "".join(rng.choice("-_") if letter == "-" else letter for letter in name)


def _with(request: Request, header: tuple[str, str]) -> Request:
    return Request(request.address, 80, request.host, source=request.source, headers=(*request.headers, header))


def misdirected(config: Config, owners_of: Callable[[str], frozenset[str]], rng: Random) -> Iterator[str]:
    """Return the pods that a connection for a host of another namespace reaches at the shared frontends.

    ``owners_of`` returns who may have the requests for a name.
    """
    entry = shared_tls(config)
    if entry is None:
        return
    for name, host in rng.sample([*product(_NAMES, _NAMES)], 12):
        has, asked = owners_of(name), owners_of(host)
        request = Request(SHARED_ADDRESS, 443, host, rng.choice(PATHS), name)
        goes_through = entry.name == "https-in" and chosen(config, entry, request) not in {"", "to-https-terminate"}
        if has and asked and not has & asked and not goes_through:
            for server in route(config, request).servers:
                if namespace_of(server) in has:
                    continue
                yield f"a connection for {name} of {sorted(has)} reaches {server} for {host} of {sorted(asked)}"


def misdirected_at_gateways(config: Config, objects: Mapping[Slot, Document], rng: Random) -> Iterator[str]:
    """Return the pods that a connection for the name of one listener reaches with a host of another one."""
    for section, binds in config.frontends:
        if not section.name.startswith("gw_") or not binds or binds[0].port != 443:
            continue
        _, namespace, name, _ = section.name.split("_")
        inner = [each for each, _ in config.frontends if each.name == f"{section.name}.https"]
        words = {pair for each in inner for line in each.lines if line[0] == "bind" for pair in pairwise(line)}
        known = [(id_, each) for _, id_, each in listeners_at(objects, namespace, name) if ("name", id_) in words]
        served = [each.get("hostname", "") for _, each in known]
        for hello, host in product(_NAMES, _NAMES) if len(served) > 1 else ():
            request = Request(binds[0].address.strip("[]"), 443, host, rng.choice(PATHS), hello)
            if _listener(served, hello) == _listener(served, host) or config.backend(
                chosen(config, section, request)
            ) not in map(config.backend, (f"{section.name}:{id_}" for id_, _ in known)):
                continue
            for server in route(config, request).servers:
                yield f"a connection to {section.name} for {hello} reaches {server} for {host}"


def _listener(hostnames: list[str], name: str) -> str | None:
    """Return the hostname of the listener that a name belongs to."""
    fitting = (each for each in hostnames if each in {"", name} or (each[:1] == "*" and name.endswith(each[1:])))
    return max(fitting, key=lambda each: (each == name, len(each)), default=None)


def questions(config: Config, rng: Random) -> Iterator[str]:
    """Return the pods that a question of external authentication reaches, and no client by the same name and path."""
    for section, _ in config.frontends:
        if not is_inner(section) or section.name == "auth-services":
            continue
        port = section.name.removesuffix(".auth")
        places = {(each.strip("[]"), number) for each, number in _binds_of(config, port)}
        for host, path in rng.sample([*product(_NAMES, PATHS)], 12):
            question = Request("", 0, host, path, source=_CLIENT, listener="_auth")
            reached = answering(config, section, question)
            for address, number in places if reached else ():
                reached -= route(config, Request(address, number, host, path, source=_CLIENT)).servers
            for server in sorted(reached):
                yield f"a question at {section.name} for {host}{path} reaches {server}, and no client does"


def _binds_of(config: Config, port: str) -> Iterator[tuple[str, int]]:
    if port == "auth-hosts":
        yield from ((SHARED_ADDRESS, number) for number in (80, 443))
    for section, binds in config.frontends:
        if section.name in {port, f"{port}.https"}:
            yield from ((bind.address, bind.port) for bind in binds)


def targets(config: Config) -> Iterator[str]:
    """Return the servers at addresses where no endpoint may be, and at sockets of the script."""
    frontends = [section for section, _ in config.frontends if is_inner(section)]
    inner = {line[1] for section in frontends for line in section.lines if line[0] == "bind"}
    for section in config.sections:
        for line in section.lines:
            if line[0] == "server" and (line[2].rpartition(":")[0].strip("[]") in FORBIDDEN or line[2] in inner):
                yield f"{section.name} has the server {line[2]}"
