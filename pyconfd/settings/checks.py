"""What must hold between settings, and what is worth saying about a combination that works."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyconfd.errors import Problem
from pyconfd.settings.dns import DnsSettings
from pyconfd.settings.dns_checks import unsafe_dns
from pyconfd.settings.kinds import PathText
from pyconfd.settings.sources import Origin, ReadText, Source
from pyconfd.settings.table import TABLE, rows_of
from pyconfd.settings.tree import Enabled, ReadMode, ReloadMethod

_MANY_CERTIFICATES = 8
"""More than any client certificate brings as its chain: a bundle of authorities."""


@dataclass(frozen=True, slots=True)
class _Sound:
    """The values that are fine by themselves, and where they come from."""

    values: Mapping[str, Any]
    origins: Mapping[str, Origin]

    def get(self, *paths: str) -> tuple[Any, ...] | None:
        """Return the values of settings, None if one of them is not fine."""
        return tuple(self.values[path] for path in paths) if all(path in self.values for path in paths) else None

    def is_given(self, path: str) -> bool:
        return self.origins[path].source is not Source.DEFAULT

    def problem(self, path: str, message: str, remedy: str) -> Problem:
        return Problem(self.origins[path].place if self.is_given(path) else path, message, remedy)


def contradictions(values: Mapping[str, Any], origins: Mapping[str, Origin], read: ReadText) -> Iterator[Problem]:
    """Return what is wrong between settings that are each fine; ``values`` lacks those that are not."""
    sound = _Sound(values, origins)
    yield from _reversed_bounds(sound)
    yield from _half_a_client_certificate(sound, read)
    yield from _half_an_etcd_credential(sound)
    if sound.get("kubernetes.in_cluster") == (True,) and (sound.get("kubernetes.kubeconfig") or ("",))[0]:
        yield sound.problem("kubernetes.kubeconfig", "kubeconfig and in_cluster exclude each other", "leave one out")
    if sound.get("haproxy.reload_method", "haproxy.reload_cmd") == (ReloadMethod.COMMAND, ()):
        message = "the reload method is command, and there is no command"
        yield sound.problem("haproxy.reload_method", message, _set("haproxy.reload_cmd"))
    yield from _half_a_target(sound)
    yield from _unsafe_dns(sound)
    if "hosts" in (sound.get("presets.use") or ((),))[0] and sound.get("hosts.master", "hosts.selector") == ("", ()):
        message = "the preset hosts does not know which pods are its targets"
        yield sound.problem("hosts.master", message, f"{_set('hosts.master')}, or hosts.selector")
    for path, usual in (("presets.use", "domains"), ("presets.node_address_types", "InternalIP")):
        if sound.get(path) == ((),):
            yield sound.problem(path, "at least one is needed", f"the usual one is {usual}")


def _half_a_target(sound: _Sound) -> Iterator[Problem]:
    """``[target]`` needs three of its settings; two targets must not write one file."""
    needed = ("target.template", "target.output", "target.notify")
    given = sound.get(*needed)
    if given and any(given) and not all(given):
        missing = [path for path, value in zip(needed, given, strict=True) if not value]
        yield sound.problem(missing[0], f"is needed where {_other(needed, missing)} is given", _set(missing[0]))
    outputs = [("haproxy.conf", value) for value in sound.get("haproxy.conf") or ()]
    outputs += [("target.output", value) for value in sound.get("target.output") or () if value]
    outputs += [("targets", target.output) for targets in sound.get("targets") or () for target in targets]
    haproxy_off = (sound.get("haproxy.enabled") or (Enabled.AUTO,))[0] is not Enabled.YES
    seen: set[str] = set()
    for path, output in outputs[1:] if haproxy_off and given and given[0] else outputs:
        if output in seen:
            yield sound.problem(path, f"{output} is written by somebody else already", "give each an output of its own")
        seen.add(output)


def _other(needed: tuple[str, ...], missing: list[str]) -> str:
    return next(path for path in needed if path not in missing)


def _reversed_bounds(sound: _Sound) -> Iterator[Problem]:
    for low, high in (("apply.quiet_s", "apply.cap_s"), ("apply.retry_min_s", "apply.retry_max_s")):
        bounds = sound.get(low, high)
        if bounds and bounds[1] < bounds[0]:
            message = f"{high} ({bounds[1]:g} s) is below {low} ({bounds[0]:g} s)"
            yield sound.problem(high if sound.is_given(high) else low, message, f"raise {high} or lower {low}")


def _half_a_client_certificate(sound: _Sound, read: ReadText) -> Iterator[Problem]:
    key, certificate = sound.get("kubernetes.ssl_key", "kubernetes.ssl_cert") or ("", "")
    if key and not certificate:
        yield sound.problem("kubernetes.ssl_key", "a client key without its certificate", _set("kubernetes.ssl_cert"))
    if certificate and not key and _holds_key(certificate, read) is False:
        remedy = f"{_set('kubernetes.ssl_key')}, or put the key into the same file"
        yield sound.problem("kubernetes.ssl_cert", "a client certificate without its key", remedy)


def _half_an_etcd_credential(sound: _Sound) -> Iterator[Problem]:
    pairs = (("etcd.cert", "etcd.key"), ("etcd.user", "etcd.password_file"))
    for one, other in (*pairs, *((other, one) for one, other in pairs)):
        values = sound.get(one, other)
        if values and values[0] and not values[1]:
            yield sound.problem(one, f"{one} without {other}", _set(other))
    if sound.get("etcd.endpoints") == ((),):
        yield sound.problem("etcd.endpoints", "at least one is needed", "the usual one is http://127.0.0.1:2379")


def _unsafe_dns(sound: _Sound) -> Iterator[Problem]:
    values: dict[str, Any] = {row.key: sound.values.get(row.path) for row in rows_of("dns")}
    if None in values.values():
        return  # what is wrong by itself is told first
    for path, message, mends in unsafe_dns(DnsSettings(**values)):
        remedy = _set(mends) if mends in TABLE else mends
        if mends == "dns.reaper":
            remedy += ", or dns.health_check_id (mode multivalue), or accept it: dns.accept_dead_nodes"
        yield sound.problem(path, message, remedy)


def remarks(values: Mapping[str, Any], origins: Mapping[str, Origin], read: ReadText) -> Iterator[str]:
    """Return one sentence for each thing that works and may still not be what was meant."""
    if values["kubernetes.ssl_ca"] is False:
        yield f"{origins['kubernetes.ssl_ca']}: the API servers' certificates are not verified; anybody may answer"
    plain = [url for url in values["etcd.endpoints"] if url.startswith("http://") and "//127." not in url]
    if values["etcd.user"] and plain:
        yield f"{origins['etcd.endpoints']}: the password for etcd goes to {plain[0]} in clear text; use https"
    interval = origins["kubernetes.interval_s"]
    if interval.source is not Source.DEFAULT and values["kubernetes.mode"] is ReadMode.WATCH:
        yield (
            f"{interval}: has no effect, since changes are watched as they happen;"
            f" to poll instead, set {TABLE['kubernetes.mode'].env}=poll"
        )
    yield from _relative_paths(values, origins)
    named = any(values[f"dns.{key}"] for key in ("names", "records", "annotation_suffixes"))
    if named and not values["dns.frontends"]:
        yield "dns.frontends: none is named, so a node counts as serving as soon as haproxy answers on its socket"
    certificate = origins["kubernetes.ssl_cert"]
    if certificate.place == "environment SSL_CERT_FILE":
        why = _no_client_certificate(values["kubernetes.ssl_cert"], read)
        if why:
            yield (
                f"{certificate}: used as the client certificate, as python-confd did, but {why};"
                " OpenSSL reads a CA bundle from the same variable; prefer PYCONFD_SSL_CERT"
            )


def _relative_paths(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> Iterator[str]:
    """Tell of paths in the file that mean another place for each directory that somebody stands in."""
    for path, row in TABLE.items():
        value = values[path]
        is_path = isinstance(row.kind, PathText) and isinstance(value, str) and value and value[0] not in "/@~"
        if is_path and origins[path].source is Source.FILE:
            yield (
                f"{origins[path]}: {value} is relative, so it depends on where pyconfd is started (by systemd: in /);"
                " write the whole path"
            )


def _set(path: str) -> str:
    row = TABLE[path]
    return f"set {row.flags[0]} or {row.env}"


def _holds_key(path: str, read: ReadText) -> bool | None:
    """Return whether a file has a private key; None where it cannot be read now."""
    try:
        return "PRIVATE KEY-----" in read(path)
    except (OSError, ValueError):
        return None


def holds_key(path: str, read: ReadText) -> bool:
    """Return whether a file certainly has a private key."""
    return _holds_key(path, read) is True


def _no_client_certificate(path: str, read: ReadText) -> str:
    """Return why a file does not look like a client certificate; "" where it does."""
    try:
        count = read(path).count("-----BEGIN CERTIFICATE-----")
    except OSError as error:
        return f"the file cannot be read ({error.strerror or 'unknown error'})"
    except ValueError:
        return "the file is not PEM"
    if count > _MANY_CERTIFICATES:
        return f"the file has {count} certificates, like a CA bundle"
    return "" if count else "the file has no certificate in PEM"
