"""What must hold between settings, and what is worth saying about a combination that works."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any

from pyconfd.settings.dns import AddressSource, DnsSettings, NameSettings, name_of, names_of
from pyconfd.settings.sections import Enabled, ReadMode, ReloadMethod, Settings
from pyconfd.settings.table import TABLE, settings_in, value_of
from pyconfd.settings.values import MOST_ADDRESSES, is_loopback

ReadText = Callable[[str], str]
"""Returns the text of a file; raises OSError, or ValueError where it is not UTF-8."""

_NEEDED = MappingProxyType(
    {"presets.use": "auto", "presets.node_address_types": "InternalIP", "etcd.endpoints": "http://127.0.0.1:2379"}
)
"""Lists that must not be empty, and what is usual in them."""
_PAIRS = (("etcd.cert", "etcd.key"), ("etcd.user", "etcd.password_file"))
_BOUNDS = (("apply.quiet_s", "apply.cap_s"), ("apply.retry_min_s", "apply.retry_max_s"))
_LOOKS_AT_LEAST = 3
_UNIQUE = (
    ("targets", "name"),
    ("targets", "output"),
    ("vip.nodes", "name"),
    ("vip.nodes", "addresses"),
    ("vip.routers", "virtual_router_id"),
)


class SettingSource(StrEnum):
    """The kinds of places that values come from, weakest first."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """Where a value comes from; ``place`` is what to look for: a flag, a variable, a file with section and key."""

    source: SettingSource
    place: str = "default"

    def __str__(self) -> str:
        return self.place


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Settings that are each fine and do not go together; the problem is reported at the first of ``paths``."""

    paths: tuple[str, ...]
    message: str
    remedy: str


_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def contradictions(settings: Settings, given: AbstractSet[str], read: ReadText) -> Iterator[Contradiction]:
    """Find what is wrong between settings; ``given`` are the paths of those that have no default."""
    for low, high in _BOUNDS:
        least, most = _value(settings, low), _value(settings, high)
        if most < least:
            message = f"{high} ({most:g} s) is below {low} ({least:g} s)"
            paths = (high, low) if high in given else (low, high)
            yield Contradiction(paths, message, f"raise {high} or lower {low}")
    yield from _credentials(settings, read)
    if settings.haproxy.reload_method is ReloadMethod.COMMAND and not settings.haproxy.reload_cmd:
        paths = ("haproxy.reload_method", "haproxy.reload_cmd")
        yield Contradiction(paths, "the reload method is command, and there is no command", _set("haproxy.reload_cmd"))
    if "hosts" in settings.presets.names and not (settings.hosts.master or settings.hosts.selector):
        message = "the preset hosts does not know which pods are its targets"
        remedy = f"{_set('hosts.master')}, or hosts.selector"
        yield Contradiction(("hosts.master", "hosts.selector", "presets.use"), message, remedy)
    for path, usual in _NEEDED.items():
        if not _value(settings, path):
            yield Contradiction((path,), "at least one is needed", f"the usual one is {usual}")
    yield from _policies(settings)
    yield from _status_page(settings)
    yield from _tables(settings)
    yield from _targets(settings)
    yield from _addresses(settings)
    yield from _dns(settings)


def _credentials(settings: Settings, read: ReadText) -> Iterator[Contradiction]:
    kubernetes = settings.kubernetes
    certificate = ("kubernetes.ssl_key", "kubernetes.ssl_cert")
    if kubernetes.ssl_key and not kubernetes.ssl_cert:
        yield Contradiction(certificate, "a client key without its certificate", _set("kubernetes.ssl_cert"))
    if kubernetes.ssl_cert and not kubernetes.ssl_key and holds_key(kubernetes.ssl_cert, read) is False:
        remedy = f"{_set('kubernetes.ssl_key')}, or put the key into the same file"
        yield Contradiction(certificate[::-1], "a client certificate without its key", remedy)
    for one, other in (*_PAIRS, *(pair[::-1] for pair in _PAIRS)):
        if _value(settings, one) and not _value(settings, other):
            yield Contradiction((one, other), f"{one} without {other}", _set(other))
    if kubernetes.in_cluster and kubernetes.kubeconfig:
        paths = ("kubernetes.kubeconfig", "kubernetes.in_cluster")
        yield Contradiction(paths, "kubeconfig and in_cluster exclude each other", "leave one out")


def _policies(settings: Settings) -> Iterator[Contradiction]:
    """Refuse words that no policy has: a rule with them would allow none, and words that restrict then close paths."""
    asked = [(number, each) for number, rule in enumerate(settings.claims.rules, 1) for each in rule.policies or ()]
    if not asked:
        return
    from pyconfd.presets.policies.words import WORDS  # noqa: PLC0415 - starts slowly, and few rules have words

    for number, pattern in asked:
        if not any(fnmatchcase(word, pattern) for word in WORDS):
            message = f"table {number}, policies: {pattern} is no word of policies, and matches none"
            close = difflib.get_close_matches(pattern, list(WORDS), n=1)
            remedy = f"did you mean {close[0]}?" if close else "use words of docs/policies.md, or * for all"
            yield Contradiction(("claims.rules",), message, remedy)


def _status_page(settings: Settings) -> Iterator[Contradiction]:
    """Refuse a page for other machines that has neither a token nor TLS; with TLS alone everybody may read it."""
    status = settings.status
    host = status.listen.rpartition(":")[0]
    if not host or is_loopback(host) or status.token_file or status.tls_certificate:
        return
    message = f"{status.listen} can be reached from other machines, and everybody there could read the status page"
    remedy = (
        f"{_set('status.token_file')}, with status.tls_certificate so that nobody reads the token on its way;"
        " or listen on 127.0.0.1"
    )
    yield Contradiction(("status.listen", "status.token_file", "status.tls_certificate"), message, remedy)


def _tables(settings: Settings) -> Iterator[Contradiction]:
    for path, key in _UNIQUE:
        first: dict[object, int] = {}
        for number, table in enumerate(_value(settings, path), 1):
            held = getattr(table, key)
            for value in held if isinstance(held, tuple) else (held,):
                if first.setdefault(value, number) != number:
                    message = f"table {number} has the {key} of table {first[value]}: {value}"
                    yield Contradiction((path,), message, "change one of the two")


def _targets(settings: Settings) -> Iterator[Contradiction]:
    """``[target]`` needs three of its settings; two targets must not write one file."""
    target = settings.target
    needed = {"target.template": target.template, "target.output": target.output, "target.notify": target.notify}
    if given := next((path for path, value in needed.items() if value), ""):
        for path in (path for path, value in needed.items() if not value):
            yield Contradiction((path, *needed), f"is needed where {given} is given", _set(path))
    outputs = [("target.output", target.output)] if target.output else []
    outputs += [("targets", each.output) for each in settings.targets]
    if settings.haproxy.enabled is Enabled.YES or not target.template:
        outputs.insert(0, ("haproxy.conf", settings.haproxy.conf))
    first: dict[str, str] = {}
    for path, output in outputs:
        if output in first and first[output] != path:
            message = f"{output} is written by {first[output]} already"
            yield Contradiction((path, first[output]), message, "give each an output of its own")
        first.setdefault(output, path)


def _addresses(settings: Settings) -> Iterator[Contradiction]:
    """Find what is wrong with the pool: too many addresses, some that do not float with the others, shared ones."""
    pool, floating = settings.addresses.pool_addresses, settings.vip.floating
    if len(pool) > MOST_ADDRESSES:
        message = f"{len(pool):,} addresses are more than {MOST_ADDRESSES:,}"
        yield Contradiction(("addresses.pool",), message, "list fewer")
    outside = next((each for each in pool if each not in floating), "") if floating else ""
    if outside:
        message = f"{outside} is not a floating address, so it would be lost with the node that has it"
        remedy = "add it to vip.addresses or to a table [[vip.routers]], or take it out of the pool"
        yield Contradiction(("addresses.pool", "vip.addresses", "vip.routers"), message, remedy)
    both = next((each for each in settings.addresses.shared if str(ip_address(each)) in pool), "")
    if both:
        message = f"{both} is in the pool, so that a Gateway or a Service may have it for itself"
        yield Contradiction(("addresses.shared", "addresses.pool"), message, "take it out of one of the two")


def _dns(settings: Settings) -> Iterator[Contradiction]:
    """Find what the names of ``[dns]`` lack; without names nothing is needed."""
    dns = settings.dns
    names = names_of(dns)
    wanted = [(name.name, name.private) for name in names]
    for name, private in dict.fromkeys(each for each in wanted if wanted.count(each) > 1):
        message = f"{name} is there twice, both times {'private' if private else 'public'}"
        yield _in_dns("dns.records", message, "name it once in dns.names or [[dns.records]]")
    of_annotation = (name_of(dns, ""),) if dns.annotation_suffixes else ()
    found: dict[Contradiction, None] = {}
    for own in (*names, *of_annotation):
        for each in _dns_name(dns, own):
            in_table = own.name and own.name not in dns.names
            found[_in_dns("dns.records", f"{own.name}: {each.message}", each.remedy) if in_table else each] = None
    yield from found
    if (names or of_annotation) and dns.reaper and dns.reap_after_s < _LOOKS_AT_LEAST * dns.interval_s:
        message = f"{dns.reap_after_s:g} s are too short: a live node is only seen each {dns.interval_s:g} s"
        yield _in_dns("dns.reap_after_s", message, f"set {_LOOKS_AT_LEAST * dns.interval_s:g} or more")


def _dns_name(dns: DnsSettings, name: NameSettings) -> Iterator[Contradiction]:
    if name.address_source is AddressSource.FIXED and not (name.address or name.address6):
        yield _in_dns("dns.address_source", "address_source is fixed, and no address is set", _set("dns.address"))
    if name.address_source is AddressSource.INTERFACE and not name.interface:
        yield _in_dns(
            "dns.address_source", "address_source is interface, and no interface is set", _set("dns.interface")
        )
    if name.mode == "vip" and not name.vip:
        yield _in_dns("dns.mode", "mode is vip, and no floating address is set", _set("dns.vip"))
    for key in ("weight", "health_check_id"):
        if name.mode != "multivalue" and getattr(name, key) not in {"", None}:
            message = f"mode is {name.mode}, and its one record for all nodes has no {key}"
            yield _in_dns(f"dns.{key}", message, "leave it out, or set dns.mode to multivalue")
    checked = name.mode == "multivalue" and name.health_check_id
    if name.mode != "vip" and not (checked or dns.reaper or dns.accept_dead_nodes):
        message = f"mode {name.mode} without a health check and without the reaper would answer a crashed node for ever"
        others = "or dns.health_check_id (mode multivalue), or accept it: dns.accept_dead_nodes"
        yield _in_dns("dns.mode", message, f"{_set('dns.reaper')}, {others}")


def _in_dns(path: str, message: str, remedy: str) -> Contradiction:
    """Return a contradiction that is only reported where each setting of the section is fine by itself."""
    return Contradiction((path, *(each.path for each in settings_in("dns"))), message, remedy)


def remarks(settings: Settings, origins: Mapping[str, SettingOrigin]) -> Iterator[str]:
    """Return one sentence for each thing that works and may still not be what was meant."""
    kubernetes, etcd, dns = settings.kubernetes, settings.etcd, settings.dns
    if kubernetes.ssl_ca is False:
        yield f"{origins['kubernetes.ssl_ca']}: the API servers' certificates are not verified; anybody may answer"
    plain = [url for url in etcd.endpoints if url.startswith("http://") and "//127." not in url]
    if etcd.user and plain:
        yield f"{origins['etcd.endpoints']}: the password for etcd goes to {plain[0]} in clear text; use https"
    interval = origins["kubernetes.interval_s"]
    if interval.source is not SettingSource.DEFAULT and kubernetes.mode is ReadMode.WATCH:
        yield (
            f"{interval}: has no effect, since changes are watched as they happen;"
            f" to poll instead, set {TABLE['kubernetes.mode'].env}=poll"
        )
    for path, setting in TABLE.items():
        value = value_of(settings, setting)
        if setting.form.path and value and value[0] not in "/@~" and origins[path].source is SettingSource.FILE:
            yield (
                f"{origins[path]}: {value} is relative, so it depends on where pyconfd is started (by systemd: in /);"
                " write the whole path"
            )
    if (dns.names or dns.records or dns.annotation_suffixes) and not dns.frontends:
        yield "dns.frontends: none is named, so a node counts as serving as soon as haproxy answers on its socket"


def _value(settings: Settings, path: str) -> Any:
    return value_of(settings, TABLE[path])


def _set(path: str) -> str:
    return f"set {path} in pyconfd.toml, {TABLE[path].flags[0]} or {TABLE[path].env}"


def holds_authority(path: str, read: ReadText) -> bool:
    """Return whether the first certificate of a file is that of an authority, as in a CA bundle."""
    from cryptography import x509  # noqa: PLC0415 - half of the start of commands that need no certificate

    try:
        text = read(path)
        first = text[text.index(_BEGIN) : text.index(_END) + len(_END)]
        certificate = x509.load_pem_x509_certificate(first.encode())
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (OSError, ValueError, x509.ExtensionNotFound):
        return False


def holds_key(path: str, read: ReadText) -> bool | None:
    """Return whether a file has a private key; None where it cannot be read now."""
    try:
        return "PRIVATE KEY-----" in read(path)
    except (OSError, ValueError):
        return None
