"""What ``[dns]`` must have for the names that it keeps."""

from collections.abc import Iterator

from pyconfd.settings.dns import DnsSettings, name_of, names_of
from pyconfd.settings.dns_names import AddressSource, NameSettings

_LOOKS_AT_LEAST = 3
_NEEDED = {
    AddressSource.FIXED: ("dns.address", "dns.address6"),
    AddressSource.INTERFACE: ("dns.interface",),
}
Finding = tuple[str, str, str]
"""The path of the setting, what is wrong, and the path of the setting that mends it or what to do."""


def unsafe_dns(dns: DnsSettings) -> Iterator[Finding]:
    """Find what the settings lack for their names; without names nothing is asked for."""
    names = names_of(dns)
    seen: set[tuple[str, bool]] = set()
    for name in names:
        if (name.name, name.private) in seen:
            kind = "private" if name.private else "public"
            message = f"{name.name} is there twice, both times {kind}"
            yield "dns.records", message, "name it once in dns.names or [[dns.records]]"
        seen.add((name.name, name.private))
    of_annotation = (name_of(dns, ""),) if dns.annotation_suffixes else ()
    told: set[Finding] = set()
    for name in (*names, *of_annotation):
        own = name.name and name.name not in dns.names
        for path, message, remedy in _of_name(dns, name):
            finding = ("dns.records", f"{name.name}: {message}", remedy) if own else (path, message, remedy)
            if finding not in told:
                told.add(finding)
                yield finding
    if (names or of_annotation) and dns.reaper and dns.reap_after_s < _LOOKS_AT_LEAST * dns.interval_s:
        message = f"a node that lives needs longer than {dns.reap_after_s:g} s to say so: it reads each"
        yield "dns.reap_after_s", f"{message} {dns.interval_s:g} s", "give three times dns.interval_s at least"


def _of_name(dns: DnsSettings, name: NameSettings) -> Iterator[Finding]:
    needed = _NEEDED.get(name.address_source, ())
    if needed and not any(getattr(name, path.removeprefix("dns.")) for path in needed):
        message = f"the source is {name.address_source}, and there is none"
        yield "dns.address_source", message, needed[0]
    if name.mode == "vip" and not name.vip:
        yield "dns.mode", "mode vip, and no floating address", "dns.vip"
    alone = name.mode in {"shared", "vip"}
    for key in ("weight", "health_check_id"):
        if alone and getattr(name, key):
            message = f"one record for all nodes (mode {name.mode}) has none"
            yield f"dns.{key}", message, "leave it out, or multivalue"
    checked = name.mode == "multivalue" and name.health_check_id
    if name.mode in {"multivalue", "shared"} and not (checked or dns.reaper or dns.accept_dead_nodes):
        message = f"mode {name.mode} without a health check and without the reaper would answer a crashed node for ever"
        yield "dns.mode", message, "dns.reaper"
