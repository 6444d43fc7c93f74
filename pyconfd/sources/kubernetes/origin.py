"""Where the credentials come from: the settings alone, a kubeconfig, or the pod's service account."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml
from kubernetes.config import ConfigException, incluster_config, kube_config

from pyconfd.errors import ConfigurationError, Problem
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.addresses import api_server_urls

SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Source: the Kubernetes manual, "Accessing the Kubernetes API from a Pod"."""


class OriginKind(StrEnum):
    """The three ways to know an API server."""

    SETTINGS = "settings"
    KUBECONFIG = "kubeconfig"
    IN_CLUSTER = "in_cluster"


@dataclass(frozen=True, slots=True)
class Origin:
    """Which servers, and from where their credentials are.

    ``files`` are the files that the credentials are read from although no loaded configuration names them;
    ``exec_command`` is the plugin of a kubeconfig's user, or "".
    """

    kind: OriginKind
    urls: tuple[str, ...]
    kubeconfig: str = ""
    context: str | None = None
    files: tuple[str, ...] = ()
    exec_command: str = ""
    overridden: bool = False
    """The settings name other servers than the kubeconfig, so its ``tls-server-name`` does not fit."""


def find_origin(
    settings: KubernetesSettings, environ: Mapping[str, str], service_account_dir: str = SERVICE_ACCOUNT_DIR
) -> Origin:
    """Choose where servers and credentials come from; no plugin is run and no server asked.

    Raises:
        ConfigurationError: there is nothing to choose from, or it is not usable.
    """
    if settings.ssl_key and not settings.ssl_cert:
        raise ConfigurationError(
            Problem("kubernetes.ssl_key", "a key without a certificate", "set kubernetes.ssl_cert as well")
        )
    urls = api_server_urls(settings.api_servers)
    if settings.in_cluster and settings.kubeconfig:
        raise ConfigurationError(
            Problem("kubernetes", "kubeconfig and in_cluster exclude each other", "take one of them out")
        )
    if settings.in_cluster:
        return _in_cluster(urls, environ, service_account_dir)
    if settings.kubeconfig:
        return _of_kubeconfig(settings, settings.kubeconfig, urls)
    if urls:
        return Origin(OriginKind.SETTINGS, urls)
    if environ.get("KUBECONFIG"):
        return _of_kubeconfig(settings, environ["KUBECONFIG"], urls)
    default = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    if default.is_file():
        return _of_kubeconfig(settings, str(default), urls)
    if Path(service_account_dir, "token").is_file():
        return _in_cluster(urls, environ, service_account_dir)
    raise ConfigurationError(
        Problem(
            "kubernetes",
            "no API server is known: no kubernetes.api_servers, no kubeconfig, and this is not a pod",
            'set kubernetes.api_servers = ["https://host:6443"] or kubernetes.kubeconfig = "/path" in pyconfd.toml',
        )
    )


def _in_cluster(urls: tuple[str, ...], environ: Mapping[str, str], service_account_dir: str) -> Origin:
    host = environ.get(incluster_config.SERVICE_HOST_ENV_NAME, "")
    port = environ.get(incluster_config.SERVICE_PORT_ENV_NAME, "")
    if not urls and not (host and port):
        raise ConfigurationError(
            Problem(
                "kubernetes.in_cluster",
                "the environment does not say where the API server is (KUBERNETES_SERVICE_HOST and _PORT)",
                "this only works in a pod; elsewhere set kubernetes.api_servers or kubernetes.kubeconfig",
            )
        )
    files = tuple(str(Path(service_account_dir, name)) for name in ("token", "ca.crt"))
    own = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Origin(OriginKind.IN_CLUSTER, urls or api_server_urls([own]), files=files)


def _of_kubeconfig(settings: KubernetesSettings, path: str, urls: tuple[str, ...]) -> Origin:
    place = f"kubeconfig {path}"
    try:
        merge: Any = kube_config.KubeConfigMerger
        merger = merge(path)
        if merger.config is None:
            raise ConfigurationError(Problem(place, "there is no such file", "look at kubernetes.kubeconfig"))
        server, user = _server_and_user(merger.config, settings.context)
        found = urls or api_server_urls([server])
        return Origin(
            OriginKind.KUBECONFIG,
            found,
            kubeconfig=path,
            context=settings.context or None,
            files=(*merger.paths, *_token_files(user)),
            exec_command=_exec_command(user),
            overridden=bool(urls),
        )
    except (ConfigException, yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(Problem(place, str(error), "kubectl config view shows what is in it")) from None
    except (AttributeError, KeyError, TypeError) as error:
        # What the library raises for a file that has another shape than a kubeconfig.
        message = f"this is not a kubeconfig ({type(error).__name__}: {error})"
        raise ConfigurationError(Problem(place, message, "kubectl config view shows what is in it")) from None


def _server_and_user(node: Any, context_name: str) -> tuple[str, Any]:
    context = node["contexts"].get_with_name(context_name or node["current-context"])["context"]
    cluster = node["clusters"].get_with_name(context["cluster"])["cluster"]
    user = None
    if context.safe_get("user") and node.safe_get("users"):
        found = node["users"].get_with_name(context["user"], safe=True)
        user = found["user"] if found else None
    return str(cluster["server"]), user


def _token_files(user: Any) -> tuple[str, ...]:
    if user is None or not user.safe_get("tokenFile"):
        return ()
    base = Path(user.path).parent if user.path else Path()
    return (os.path.normpath(base / str(user["tokenFile"])),)


def _exec_command(user: Any) -> str:
    if user is None or not user.safe_get("exec"):
        return ""
    return str(user["exec"].safe_get("command") or "")
