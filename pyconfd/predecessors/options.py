"""Turn settings into the options of the predecessors' presets."""

from collections.abc import Mapping

from pyconfd.haproxy.process.layout import files_dir_of
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.rendering import FileKind
from pyconfd.predecessors.configmap import ConfigmapOptions
from pyconfd.predecessors.hosts import HostsOptions
from pyconfd.predecessors.kube2lb.names import Kube2lbOptions
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.settings import BackendTarget, Settings
from pyconfd.settings.values import port_ranges

PASSWORD_VARIABLE = "STATISTICS_PASSWORD"  # noqa: S105 - the name of a variable, kubernetes-haproxy's


def options_of(settings: Settings, environ: Mapping[str, str]) -> tuple[object, ...]:
    """Return the options of each preset."""
    kube2lb, kubefigurator = settings.kube2lb, settings.kubefigurator
    return (
        Kube2lbOptions(
            kube2lb.domain,
            kube2lb.default_lb_ip,
            kube2lb.default_port_mode,
            kube2lb.server_name_templates,
            listen_ports=port_ranges(kube2lb.listen_ports),
        ),
        KubefiguratorOptions(
            cluster=kubefigurator.cluster or settings.kubernetes.cluster,
            ssl_dir=kubefigurator.ssl_dir,
            ca_file=kubefigurator.ca_file,
            node_ports=kubefigurator.backend_target is BackendTarget.NODE,
            listen_ports=port_ranges(kubefigurator.listen_ports),
        ),
        _configmap_options(settings, environ),
        _hosts_options(settings),
    )


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
