"""Turn settings into the options of presets, and gather the facts about this machine; part of the composition root."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pyconfd.haproxy.config.certificates import CertificateFiles
from pyconfd.haproxy.process.host import gather_addresses
from pyconfd.haproxy.process.layout import files_dir_of
from pyconfd.model.context import PresetName
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.listener import NOBODY, Listener
from pyconfd.model.rendering import FileKind
from pyconfd.model.snapshot import HostFacts
from pyconfd.presets.kube2lb.names import Kube2lbOptions
from pyconfd.presets.policy import ClaimOptions, Rule, network
from pyconfd.presets.preset import ConfigmapOptions, HostsOptions, KubefiguratorOptions, PresetOptions
from pyconfd.settings import BackendTarget, Settings
from pyconfd.settings.inputs import secret_values
from pyconfd.settings.sections import RuleSettings
from pyconfd.settings.values import port_ranges
from pyconfd.status.listen import parse_listen
from pyconfd.system.secrecy import hide

PASSWORD_VARIABLE = "STATISTICS_PASSWORD"  # noqa: S105 - the name of a variable, kubernetes-haproxy's


def base_options(settings: Settings) -> PresetOptions:
    """Return what the settings alone give the presets; from now on the secrets among it are redacted everywhere."""
    hide(secrets_of(settings, os.environ))
    kube2lb, kubefigurator = settings.kube2lb, settings.kubefigurator
    return PresetOptions(
        node_ports=settings.presets.backend_target is BackendTarget.NODE,
        node_address_types=settings.presets.node_address_types,
        listen_ports=port_ranges(settings.presets.listen_ports),
        listen_address=str(settings.templates.vars.get("tcp_address", "")),
        reserved=NOBODY.with_owner("the status page of pyconfd", _status_page(settings)),
        kube2lb=Kube2lbOptions(
            kube2lb.domain,
            kube2lb.default_lb_ip,
            kube2lb.default_port_mode,
            kube2lb.server_name_templates,
            listen_ports=port_ranges(kube2lb.listen_ports),
        ),
        kubefigurator=KubefiguratorOptions(
            cluster=kubefigurator.cluster or settings.kubernetes.cluster,
            ssl_dir=kubefigurator.ssl_dir,
            ca_file=kubefigurator.ca_file,
            node_ports=kubefigurator.backend_target is BackendTarget.NODE,
            listen_ports=port_ranges(kubefigurator.listen_ports),
        ),
        configmap=_configmap_options(settings, os.environ),
        hosts=_hosts_options(settings),
        claims=_claim_options(settings),
        cluster_templates=settings.cluster_templates.allow_configuration_from_cluster,
    )


def _claim_options(settings: Settings) -> ClaimOptions:
    own, vip = settings.claims, settings.vip
    # Whoever holds an address at present: each node refuses the same endpoints.
    of_nodes = (each for node in vip.nodes for each in node.addresses)
    addresses = frozenset((*own.own_addresses, *vip.floating, *of_nodes))
    return ClaimOptions(tuple(map(_rule, own.rules)), tuple(map(network, own.allow_endpoints)), addresses)


def _rule(rule: RuleSettings) -> Rule:
    ports = None if rule.ports is None else port_ranges(rule.ports)
    return Rule(rule.namespaces, rule.domains, rule.protocols, ports, tuple(map(network, rule.addresses)))


def _status_page(settings: Settings) -> Iterator[Listener]:
    if settings.status.listen:
        listen = parse_listen(settings.status.listen)
        yield Listener.at(listen.host, listen.port)


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Return the secrets that settings and environment hand to templates."""
    yield environ.get(PASSWORD_VARIABLE, "")
    yield from (environ[name] for name in settings.configmap.env if name in environ)
    yield from secret_values(settings)


def _configmap_options(settings: Settings, environ: Mapping[str, str]) -> ConfigmapOptions:
    own = settings.configmap
    return ConfigmapOptions(
        namespace=own.namespace,
        services=own.services,
        certificates=own.certificates,
        keys=own.keys,
        config=own.config,
        template_key=own.template_key,
        ssldir=f"{files_dir_of(settings.haproxy)}/{FileKind.CERTIFICATE.value}",
        stats_password=environ.get(PASSWORD_VARIABLE, ""),
        env={name: environ[name] for name in own.env if name in environ},
        ignored_fields=frozenset(own.ignored_fields),
    )


def _hosts_options(settings: Settings) -> HostsOptions:
    own = settings.hosts
    kind, _, path = own.config.partition("/")
    namespace, _, name = path.partition("/")
    return HostsOptions(
        master=own.master,
        selector=dict(label.split("=", 1) for label in own.selector),
        config=ObjectRef(kind.capitalize(), namespace, name) if own.config else None,
        own_app=own.own_app,
        dns_suffixes=settings.dns.annotation_suffixes,
    )


class HostReader:
    """Gathers the facts about this machine that presets use."""

    def __init__(self, settings: Settings) -> None:
        self._certificates: CertificateFiles | None = None
        if PresetName.KUBEFIGURATOR in settings.presets.use:
            self._certificates = CertificateFiles(settings.kubefigurator.ssl_dir, (settings.kubefigurator.ca_file,))

    def read(self) -> HostFacts:
        """Return the facts as they are now."""
        return replace(gather_addresses(), certificates=self._certificates.read() if self._certificates else None)
