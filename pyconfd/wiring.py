"""Turn settings into the parts that the daemon and the commands are made of; part of the composition root."""

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, collapse_addresses, ip_address
from pathlib import Path
from typing import Any

import structlog

from pyconfd.daemon.installed_certificates import InstalledCertificates
from pyconfd.daemon.limited import LimitedRenderer
from pyconfd.daemon.protection import hold_file
from pyconfd.errors import Problem, PyconfdError, TransientError
from pyconfd.haproxy.config.certificates import CertificateFiles
from pyconfd.haproxy.config.text import binds
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.haproxy.process.host import gather_addresses, has_ipv6
from pyconfd.haproxy.process.layout import files_dir_of
from pyconfd.haproxy.process.prerequisites import idle_close_note
from pyconfd.model.context import Context, PresetName, Refusal
from pyconfd.model.listener import NOBODY, Listener, Listeners
from pyconfd.model.rendering import SECRETS_FOLDER, FragmentSet, Rendering, order_differs
from pyconfd.model.snapshot import HostFacts, Key, Named, Resource, Snapshot
from pyconfd.predecessors import cluster_templates
from pyconfd.predecessors import presets as predecessors
from pyconfd.predecessors.options import PASSWORD_VARIABLE, options_of
from pyconfd.predecessors.sandbox.background import BackgroundTemplates
from pyconfd.predecessors.targets.target import Target
from pyconfd.predecessors.targets.worker import NoBalancer, Targets, TargetWorker
from pyconfd.presets import registry
from pyconfd.presets.addresses import AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.policies.words import size_of
from pyconfd.presets.policy import ClaimOptions, PolicyBounds, Rule, network
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.settings import ApplySettings, BackendTarget, Enabled, Settings, TargetSettings, UndefinedMode
from pyconfd.settings.inputs import credential_files, secret_values
from pyconfd.settings.sections import PolicySettings, RuleSettings
from pyconfd.settings.values import port_ranges
from pyconfd.sources.file import read_snapshot
from pyconfd.sources.fragments import read_fragments
from pyconfd.sources.host import HostAwareSource
from pyconfd.sources.kubernetes.resources import Rights, reads
from pyconfd.sources.kubernetes.server_addresses import ServerAddresses
from pyconfd.status.listen import parse_listen
from pyconfd.system.clock import SystemClock
from pyconfd.system.secrecy import hide
from pyconfd.vip.topology import stick_peers

log = structlog.get_logger(__name__)

registry.register(*predecessors.PRESETS)

ONCE_TIMEOUT_S = 30.0
"""How long a command waits for a whole view of the cluster."""


def resources(settings: Settings) -> frozenset[Resource]:
    """Return what has to be read from the cluster, and may be: nothing else."""
    return registry.resources_of(settings.presets.names, secrets=bool(settings.kubernetes.secret_namespaces))


def rights(settings: Settings) -> Rights:
    """Return what the account of these settings has to be allowed."""
    own = settings.cluster_status
    return Rights(
        reads(settings.kubernetes, resources(settings), named(settings)),
        _statuses(settings),
        # Of several producers that publish, etcd elects one.
        lease=(own.lease_namespace, own.lease_name) if serves_haproxy(settings) else ("", ""),
        events=settings.events.enabled,
        owners=own.enabled and serves_haproxy(settings),
        services=makes_services(settings),
    )


def _statuses(settings: Settings) -> frozenset[Resource]:
    if not (settings.cluster_status.enabled and serves_haproxy(settings)):
        return frozenset()
    found = registry.statuses_of(settings.presets.names)
    return found | {Resource.SERVICES} if makes_services(settings) else found


def makes_services(settings: Settings) -> bool:
    """Return whether Gateways have Services."""
    own = settings.cluster_status
    return (
        own.enabled
        and own.gateway_services
        and serves_haproxy(settings)
        and Resource.GATEWAYS in registry.statuses_of(settings.presets.names)
    )


def serves_haproxy(settings: Settings) -> bool:
    """Return whether haproxy is served: unless that is switched off, or ``[target]`` names what is served instead."""
    return settings.haproxy.enabled is Enabled.YES or (
        settings.haproxy.enabled is Enabled.AUTO and not settings.target.template
    )


def targets(settings: Settings) -> tuple[Target, ...]:
    """Return the load balancers beside haproxy, or instead of it; ``[target]`` first."""
    single = settings.target
    first = (
        (TargetSettings("target", single.template, single.output, single.notify, single.check, single.timeout_s),)
        if single.template
        else ()
    )
    return tuple(
        Target(item, _render_options(settings, str(Path(item.output).parent)), settings.state_dir)
        for item in (*first, *settings.targets)
    )


def workers(settings: Settings, found: tuple[Target, ...]) -> Targets:
    """Return the threads that apply the targets."""
    limits = settings.apply
    return Targets(
        tuple(TargetWorker(target, retry_min_s=limits.retry_min_s, retry_max_s=limits.retry_max_s) for target in found)
    )


def balancer(settings: Settings, found: tuple[Target, ...]) -> Balancer | NoBalancer:
    """Return haproxy, or its substitute where only targets are served."""
    if serves_haproxy(settings):
        return Balancer(settings.haproxy, settings.apply, settings.state_dir, keep_for_s=settings.history.keep_for_s)
    return NoBalancer(settings.state_dir, found)


def fragments(settings: Settings) -> FragmentSet:
    """Read the template directory, nothing where haproxy is not served; raises TransientError."""
    if not serves_haproxy(settings):
        return FragmentSet(())
    try:
        return read_fragments(
            settings.templates.dir,
            may_be_empty=cluster_templates.is_allowed(settings),
            credentials=credential_files(settings),
        )
    except TransientError as error:
        if not cluster_templates.is_switched_off(settings):
            raise
        remedy = "write fragments; or set it to true, which trusts the author of that template like theirs"
        off = Problem(registry.SWITCH, "is false, so the template of the cluster is not rendered", remedy)
        raise TransientError(*error.problems, off) from error


def named(settings: Settings) -> frozenset[Named]:
    """Return the single objects that the presets read beside these resources."""
    return registry.named_of(settings.presets.names, base_options(settings))


def apply_settings(settings: Settings) -> ApplySettings:
    """Return when changes are applied; the preset ``hosts`` may ask for a longer quiet time, its ``damper_s``."""
    damper_s = settings.hosts.damper_s if PresetName.HOSTS in settings.presets.names else 0.0
    own = settings.apply
    return replace(own, quiet_s=max(own.quiet_s, damper_s), cap_s=max(own.cap_s, damper_s))


def renderer(
    settings: Settings,
    found: FragmentSet,
    make: Callable[..., Renderer] = LimitedRenderer,
    *,
    inputs: str = "",
    templates: BackgroundTemplates | None = None,
) -> Renderer:
    """Compile the fragments, into what ``make`` gives; raises RejectedInput.

    Without ``templates`` a rendering waits for the templates from the cluster.
    """
    options = replace(_render_options(settings, files_dir_of(settings.haproxy)), inputs=inputs)
    return make(found, options, (templates or cluster_templates.shared(settings)).render)


def _render_options(settings: Settings, files_dir: str) -> RenderOptions:
    return RenderOptions(
        files_dir=files_dir,
        lenient=settings.templates.undefined is UndefinedMode.LENIENT,
        trim_blocks=settings.templates.trim_blocks,
        variables=variables(settings),
        spare_backends=settings.apply.spare_backends,
    )


def variables(settings: Settings) -> dict[str, Any]:
    """Return what fragments read as ``vars``."""
    return {
        "ipv6": has_ipv6(),
        "peers": stick_peers(settings.vip, socket.gethostname()),
        "trusted_networks": [str(network(each)) for each in settings.proxy.trusted_networks],
        "protocol_networks": [str(network(each)) for each in settings.proxy.protocol_networks],
        "pool_networks": _networks_of(settings.addresses.pool_addresses),
        **settings.templates.vars,
    }


def _networks_of(addresses: Iterable[str]) -> list[str]:
    """Return the fewest networks that have just these addresses."""
    parsed = [ip_address(each) for each in addresses]
    v4 = collapse_addresses(IPv4Network(each) for each in parsed if isinstance(each, IPv4Address))
    v6 = collapse_addresses(IPv6Network(each) for each in parsed if isinstance(each, IPv6Address))
    return [str(each) for each in (*v4, *v6)]


def preset_options(settings: Settings, compiled: Renderer) -> PresetOptions:
    """Return the options of the presets.

    Where the operator listens is where the fragments do for an empty cluster.
    """
    options = base_options(settings)
    try:
        text = render_empty_cluster(settings, compiled).text
    except PyconfdError:
        return options  # fragments that need objects bind nothing by themselves; the bind check remains
    bound = {listener: f"{bind.proxy} of the fragments" for bind in binds(text) for listener in bind.listeners()}
    return replace(options, reserved=Listeners(bound))


def render_empty_cluster(settings: Settings, compiled: Renderer) -> Rendering:
    """Render for a cluster that holds nothing; raises RejectedInput."""
    empty = registry.translate(Snapshot(), settings.presets.names, base_options(settings))
    return compiled.render(empty, curdate="").rendering


def option_note(settings: Settings, found: FragmentSet) -> str:
    """Return which listeners of the fragments lack an option that reloads need, or ""; raises PyconfdError."""
    return idle_close_note(render_empty_cluster(settings, renderer(settings, found)).text) if found.fragments else ""


def preset_notes(settings: Settings) -> tuple[str, ...]:
    """Return notes on the chosen presets: plain names that several of them define, templates that are switched off."""
    notes = registry.clashes({name: registry.PRESETS[name].gives for name in settings.presets.names})
    if cluster_templates.is_switched_off(settings):
        return (*notes, f"the template of the cluster is not rendered while {registry.SWITCH} is false")
    return notes


def source(settings: Settings) -> HostAwareSource:
    """Return what reads the cluster, and the facts about this host."""
    from pyconfd.sources.kubernetes.source import KubernetesSource  # noqa: PLC0415 - its library starts slowly

    cluster = KubernetesSource(settings.kubernetes, resources(settings), named=named(settings))
    certificates = InstalledCertificates(settings.state_dir, hold_file(settings.state_dir))
    return HostAwareSource(cluster, HostReader(settings).read, restored=certificates.restored)


def order_note(found: FragmentSet) -> str:
    """Return where the natural order of the fragments differs from python-confd's order by bytes, or ""."""
    names = [fragment.name for fragment in found.fragments]
    if not order_differs(names):
        return ""
    return f"fragments are taken in natural order ({', '.join(names)}); python-confd took them by bytes: " + ", ".join(
        sorted(names)
    )


def snapshot_once(
    settings: Settings, snapshot_files: tuple[str, ...], *, for_this_host: bool = True
) -> tuple[Snapshot, tuple[Refusal, ...]]:
    """Read files, or the cluster; raises ConfigurationError or TransientError.

    Files may be for another machine, so the facts about this host count only without them, and ``for_this_host``.
    """
    if snapshot_files:
        return read_snapshot(snapshot_files)
    from pyconfd.sources.kubernetes.source import read_once  # noqa: PLC0415 - files are read without its library

    snapshot, refused = read_once(settings.kubernetes, resources(settings), ONCE_TIMEOUT_S, named=named(settings))
    snapshot = replace(snapshot, host=HostReader(settings).read()) if for_this_host else snapshot
    return InstalledCertificates(settings.state_dir).restored(snapshot), refused


def render_targets(settings: Settings, context: Context) -> tuple[tuple[Target, str], ...]:
    """Render every target; raises RejectedInput or TransientError."""
    clock = SystemClock()
    curdate = clock.date(clock.now())
    return tuple((target, target.render(context, curdate=curdate)) for target in targets(settings))


# The options of presets, and the facts about this machine


def base_options(settings: Settings) -> PresetOptions:
    """Return what the settings alone give the presets; from now on the secrets among it are redacted everywhere."""
    hide(secrets_of(settings, os.environ))
    return PresetOptions(
        node_ports=settings.presets.backend_target is BackendTarget.NODE,
        node_address_types=settings.presets.node_address_types,
        listen_ports=port_ranges(settings.presets.listen_ports),
        listen_address=str(settings.templates.vars.get("tcp_address", "")),
        status_page=NOBODY.with_owner("the status page of pyconfd", _status_page(settings)),
        addresses=_address_options(settings),
        own=own_options(*options_of(settings, os.environ)),
        tls=TlsOptions(
            directory=f"{files_dir_of(settings.haproxy)}/{SECRETS_FOLDER}",
            namespaces=settings.kubernetes.secret_namespaces,
            default=_key(settings.tls.default_certificate),
            passwords=settings.kubernetes.password_secrets,
        ),
        claims=_claim_options(settings),
        cluster_templates=settings.cluster_templates.allow_configuration_from_cluster,
        ignored_annotations=settings.ingress.ignored_annotations,
        nginx_classes=settings.ingress.nginx_classes,
        gateway_services=makes_services(settings),
    )


def _key(path: str) -> Key | None:
    namespace, separator, name = path.partition("/")
    return Key(namespace, name) if separator else None


def _claim_options(settings: Settings) -> ClaimOptions:
    own, vip = settings.claims, settings.vip
    # Of all nodes, and not of the holder alone: each node refuses the same endpoints.
    of_nodes = (each for node in vip.nodes for each in node.addresses)
    given = _address_options(settings)
    addresses = frozenset((*own.own_addresses, *vip.floating, *of_nodes, *given.pool, *given.shared))
    return ClaimOptions(
        tuple(map(_rule, own.rules)),
        tuple(map(network, own.allow_endpoints)),
        addresses,
        tuple(map(network, own.endpoint_networks)),
        frozenset(own.shared_hosts),
        _policy_bounds(settings.policies),
        size_of(settings.ingress.nginx_body_size),
    )


def _policy_bounds(own: PolicySettings) -> PolicyBounds:
    times = own.max_timeout_s, own.auth_timeout_s
    return PolicyBounds(size_of(own.max_body_size or "0"), *(round(each * 1000) for each in times))


def _address_options(settings: Settings) -> AddressOptions:
    own = settings.addresses
    pool = own.pool_addresses
    shared = tuple(str(ip_address(each)) for each in own.shared) or tuple(
        each for each in settings.vip.listed if each not in pool
    )
    return AddressOptions(pool, shared, own.default_class, own.per_namespace)


def _rule(rule: RuleSettings) -> Rule:
    ports = None if rule.ports is None else port_ranges(rule.ports)
    addresses = tuple(map(network, rule.addresses))
    return Rule(rule.namespaces, rule.domains, rule.protocols, ports, addresses, rule.policies)


def _status_page(settings: Settings) -> Iterator[Listener]:
    if settings.status.listen:
        listen = parse_listen(settings.status.listen)
        yield Listener.at(listen.host, listen.port)


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Return the secrets that settings and environment hand to templates."""
    yield environ.get(PASSWORD_VARIABLE, "")
    yield from (environ[name] for name in settings.configmap.env if name in environ)
    yield from secret_values(settings)


class HostReader:
    """Gathers the facts about this machine that presets use."""

    def __init__(self, settings: Settings) -> None:
        self._pool = settings.addresses.pool_addresses
        self._api_servers = ServerAddresses(_api_server_urls(settings))
        self._certificates: CertificateFiles | None = None
        if PresetName.KUBEFIGURATOR in settings.presets.names:
            self._certificates = CertificateFiles(settings.kubefigurator.ssl_dir, (settings.kubefigurator.ca_file,))

    def read(self) -> HostFacts:
        """Return the facts as they are now."""
        certificates = self._certificates.read() if self._certificates else None
        hour, api_servers = int(SystemClock().now()) // 3600, self._api_servers.read()
        return replace(gather_addresses(self._pool), certificates=certificates, hour=hour, api_servers=api_servers)


def _api_server_urls(settings: Settings) -> tuple[str, ...]:
    own = settings.kubernetes
    if own.api_servers:
        return own.api_servers
    from pyconfd.sources.kubernetes.credentials import SERVICE_ACCOUNT_DIR, find_origin  # noqa: PLC0415 - starts slowly

    try:
        return find_origin(own, os.environ, SERVICE_ACCOUNT_DIR).urls
    except PyconfdError:
        return ()
