"""Which API servers there are and how to log in: from the settings, a kubeconfig, or the pod's service account.

:func:`find_origin` chooses one of the three, :class:`Credentials` loads what it names and loads it again when a file
changes. The library ``kubernetes`` reads kubeconfigs and runs their plugins; TLS contexts are made here, so that a
rotation that is half done is noticed before the former credentials are given up.
"""

import base64
import binascii
import grp
import hashlib
import os
import ssl
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import structlog
import urllib3
import yaml
from cryptography import x509
from kubernetes import config
from kubernetes.client import Configuration, rest
from kubernetes.config import ConfigException, incluster_config, kube_config

from pyconfd.errors import ConfigurationError, Problem, first_line
from pyconfd.model.status import CredentialState
from pyconfd.printable import clean
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.failures import ApiError, Failure
from pyconfd.system.clock import SystemClock
from pyconfd.system.secrecy import hide

DEFAULT_CA_FILE = "/etc/pyconfd/ca.pem"
SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Source: the Kubernetes manual, "Accessing the Kubernetes API from a Pod"."""
RENEW_EVERY_S = 30.0
"""A plugin is not run more often than this because a server said 401."""
RENEW_BEFORE_S = 60.0
"""The plugin that made a client certificate is run again this long before the certificate expires."""
_MAX_FILE_BYTES = 4 << 20
_CLIENT, _CA, _TOKEN, _LOGIN = "client certificate", "CA certificate", "token", "no token or client certificate"
_READ = "kubectl -n pyconfd get secret pyconfd-token -o jsonpath="
"""Prints what the account of ``pyconfd rbac`` has."""

log = structlog.get_logger(__name__)


class OriginKind(StrEnum):
    """The three ways to know an API server."""

    SETTINGS = "settings"
    KUBECONFIG = "kubeconfig"
    IN_CLUSTER = "in_cluster"


@dataclass(frozen=True, slots=True)
class CredentialOrigin:
    """Which servers, and from where their credentials are.

    ``files`` are read for the credentials although no loaded configuration names them; ``exec_command`` is the plugin
    of the kubeconfig's user, or "". ``overridden``: the settings name other servers than the kubeconfig, so its
    ``tls-server-name`` does not fit.
    """

    kind: OriginKind
    urls: tuple[str, ...]
    kubeconfig: str = ""
    context: str | None = None
    files: tuple[str, ...] = ()
    exec_command: str = ""
    overridden: bool = False


def find_origin(settings: KubernetesSettings, environ: Mapping[str, str], service_account_dir: str) -> CredentialOrigin:
    """Choose where servers and credentials come from; no plugin is run and no request sent.

    Raises:
        ConfigurationError: there is nothing to choose from, or it is not usable.
    """
    urls = tuple(dict.fromkeys(settings.api_servers))
    if settings.in_cluster:
        return _in_cluster(urls, environ, service_account_dir)
    if settings.kubeconfig:
        return _from_kubeconfig(settings, settings.kubeconfig, urls)
    if urls:
        return CredentialOrigin(OriginKind.SETTINGS, urls)
    if environ.get("KUBECONFIG"):
        return _from_kubeconfig(settings, environ["KUBECONFIG"], urls)
    default = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    if default.is_file():
        return _from_kubeconfig(settings, str(default), urls)
    if Path(service_account_dir, "token").is_file():
        return _in_cluster(urls, environ, service_account_dir)
    raise ConfigurationError(
        Problem(
            "kubernetes",
            "no API server is known: no kubernetes.api_servers, no kubeconfig, and this is not a pod",
            'set kubernetes.api_servers = ["https://host:6443"] or kubernetes.kubeconfig = "/path" in pyconfd.toml',
        )
    )


def _in_cluster(urls: tuple[str, ...], environ: Mapping[str, str], service_account_dir: str) -> CredentialOrigin:
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
    return CredentialOrigin(OriginKind.IN_CLUSTER, urls or (own,), files=files)


def _from_kubeconfig(settings: KubernetesSettings, path: str, urls: tuple[str, ...]) -> CredentialOrigin:
    place, remedy = f"kubeconfig {path}", "kubectl config view shows what is in it"
    try:
        merge: Any = kube_config.KubeConfigMerger
        merger = merge(path)
        if merger.config is None:
            raise ConfigurationError(Problem(place, "there is no such file", "look at kubernetes.kubeconfig"))
        node = merger.config
        context = node["contexts"].get_with_name(settings.context or node["current-context"])["context"]
        cluster = node["clusters"].get_with_name(context["cluster"])["cluster"]
        user = None
        if context.safe_get("user") and node.safe_get("users"):
            found = node["users"].get_with_name(context["user"], safe=True)
            user = found["user"] if found else None
        files, exec_command = list(merger.paths), ""
        if user is not None and user.safe_get("tokenFile"):
            base = Path(user.path).parent if user.path else Path()
            files.append(os.path.normpath(base / str(user["tokenFile"])))
        if user is not None and user.safe_get("exec"):
            exec_command = str(user["exec"].safe_get("command") or "")
        return CredentialOrigin(
            OriginKind.KUBECONFIG,
            urls or (str(cluster["server"]).rstrip("/"),),
            kubeconfig=path,
            context=settings.context or None,
            files=tuple(files),
            exec_command=exec_command,
            overridden=bool(urls),
        )
    except (ConfigException, yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(Problem(place, str(error), remedy)) from None
    except (AttributeError, KeyError, TypeError) as error:
        # What the library raises for a file that has another shape than a kubeconfig.
        message = f"this is not a kubeconfig ({type(error).__name__}: {error})"
        raise ConfigurationError(Problem(place, message, remedy)) from None


@dataclass(frozen=True, slots=True)
class _Loaded:
    """``fingerprint`` is each file's digest; connections have to be made again when ``tls_digest`` changes."""

    configuration: Configuration
    verify: bool
    ssl_context: ssl.SSLContext | None
    fingerprint: Mapping[str, str]
    tls_digest: str
    states: tuple[CredentialState, ...]
    renew_at: float


class Credentials:
    """The credentials of one cluster, the same for each of its API servers.

    Files that become unreadable or do not fit together leave the former credentials in use, with the problem shown.

    Raises:
        ConfigurationError: from the constructor: the settings name no server, or contradict themselves.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        clock: SystemClock,
        *,
        environ: Mapping[str, str] | None = None,
        service_account_dir: str = SERVICE_ACCOUNT_DIR,
        default_ca_file: str = DEFAULT_CA_FILE,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._environ = os.environ if environ is None else environ
        self._default_ca_file = default_ca_file
        self._origin = find_origin(settings, self._environ, service_account_dir)
        self._lock = threading.RLock()
        self._loaded: _Loaded | None = None
        self._tried: Mapping[str, str] = {}
        self._problem = ""
        self._refused: Mapping[str, str] = MappingProxyType({})
        """What servers answered with 401, by URL, until they accept the credentials."""
        self._token = ""
        self.loads = 0
        """How often they were loaded."""
        self._renewed_s = -RENEW_EVERY_S
        self._insecure_logged = False

    @property
    def urls(self) -> tuple[str, ...]:
        """The API servers in their order."""
        return self._origin.urls

    def states(self) -> tuple[CredentialState, ...]:
        """Return each certificate and token with its expiry; never waits for a plugin that is running."""
        loaded, problem, refused, now = self._loaded, self._problem, self._refused, self._clock.now()
        states = [_with_expiry(each, now) for each in (loaded.states if loaded else ())]
        if refused:
            url = min(refused)
            why = f"not accepted by {url} ({refused[url]}): revoked or expired; what was read stays as it is"
            at = max((at for at, each in enumerate(states) if each.name.startswith((_TOKEN, _CLIENT))), default=-1)
            if at < 0:
                states.append(CredentialState(_LOGIN, problem=why))
            else:
                states[at] = replace(states[at], problem=why)
        if problem:
            states.append(CredentialState("credentials", problem=problem))
        return tuple(states)

    def problems(self) -> tuple[Problem, ...]:
        """Return what is wrong with certificates and tokens, each with its file and what to type."""
        return tuple(Problem(each.name, each.problem, self._remedy(each)) for each in self.states() if each.problem)

    def accepted(self, url: str) -> None:
        """Record that a server took a request for that of somebody it knows."""
        if url in self._refused:
            self._refused = MappingProxyType({each: said for each, said in self._refused.items() if each != url})

    def refused(self, url: str, message: str) -> None:
        """Record that a server answered 401."""
        self._refused = MappingProxyType({**self._refused, url: message})

    def _remedy(self, state: CredentialState) -> str:
        path, origin = state.name.rpartition(" ")[2], self._origin
        if state.name.startswith(_CA):
            remedy = f"write the cluster's CA there, where kubectl works: {_READ}'{{.data.ca\\.crt}}' | base64 -d"
        elif state.name == f"{_TOKEN} {self._settings.token_file}":
            remedy = (
                "write a new one there, where kubectl works: kubectl apply -f rbac.yaml;"
                f" {_READ}{{.data.token}} | base64 -d"
            )
        elif not state.name.startswith((_TOKEN, _CLIENT, _LOGIN)):
            remedy = ""  # the message has it
        elif origin.exec_command:
            remedy = f"run {clean(origin.exec_command, 80)} by hand to see what it gives"
        elif origin.kubeconfig:
            remedy = f"kubectl --kubeconfig {origin.kubeconfig} auth whoami shows the same: renew what it names"
        elif state.name.startswith(_CLIENT):
            remedy = f"renew it: openssl x509 -noout -subject -enddate -in {path} shows whose it is"
        else:
            remedy = "set kubernetes.token_file; pyconfd rbac prints an account with a token, and how to get it"
        return remedy

    def pool_manager(self, url: str) -> urllib3.PoolManager:
        """Return a new pool of connections to this server.

        Raises:
            ApiError: of kind CREDENTIALS: a file is missing, unreadable, or does not fit the others.
        """
        with self._lock:
            # Files are looked at each time; a plugin may send requests of its own, so it is run less often.
            if self._loaded is None and (not self._problem or not self._origin.exec_command or self._may_renew()):
                self._load()
            loaded = self._loaded
            if loaded is None:
                raise ApiError(Failure.CREDENTIALS, "credentials", self._problem)
            pools: urllib3.PoolManager = rest.RESTClientObject(self._configuration_for(url, loaded)).pool_manager
            if url.startswith("https:"):
                pools.connection_pool_kw["ssl_context"] = loaded.ssl_context
            return pools

    def authorization(self) -> str:
        """Return the Authorization header for now, or ""; raises ApiError of kind CREDENTIALS."""
        with self._lock:
            if self._settings.token_file:
                # Read for each request: a rotated token counts at once, and one that vanished stays in use.
                try:
                    self._token = _read_token(self._settings.token_file)
                except ApiError:
                    if not self._token:
                        raise
                return f"Bearer {self._token}"
            return self._header_of(self._loaded.configuration) if self._loaded is not None else ""

    def refresh(self) -> bool:
        """Load again if the content of a file changed; return whether connections have to be made again."""
        with self._lock:
            loaded = self._loaded
            if loaded is None:
                return False
            due = loaded.renew_at and self._clock.now() >= loaded.renew_at
            if due:
                return self._may_renew() and self._load()
            return _fingerprint(loaded.fingerprint) != self._tried and self._load()

    def renew(self) -> bool:
        """Load again after a 401, not too often; return whether connections have to be made again."""
        with self._lock:
            return self._may_renew() and self._load()

    def _may_renew(self) -> bool:
        now_s = self._clock.monotonic()
        if now_s - self._renewed_s < RENEW_EVERY_S:
            return False
        self._renewed_s = now_s
        return True

    def _load(self) -> bool:
        former = self._loaded
        # Taken before anything is read: what changes meanwhile is noticed by the next refresh.
        tried = _fingerprint(former.fingerprint) if former is not None else {}
        try:
            loaded = self._read()
        except ApiError as failure:
            problem = first_line(failure.problems)
            if problem != self._problem:
                log.warning("credentials.rejected", problem=problem, kept=former is not None)
            self._problem, self._tried = problem, tried
            return False
        if former is not None and loaded.fingerprint != former.fingerprint:
            old, new = former.fingerprint, loaded.fingerprint
            changed = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
            log.info("credentials.changed", files=sorted(changed))
        self._problem, self._loaded, self._tried = "", loaded, loaded.fingerprint
        self.loads += 1
        return loaded.tls_digest != (former.tls_digest if former is not None else "")

    def _read(self) -> _Loaded:
        settings, origin = self._settings, self._origin
        configuration = self._read_configuration()
        verify, ca_file = self._trust(configuration)
        cert_file = settings.ssl_cert or configuration.cert_file or ""
        key_file = settings.ssl_key or ("" if settings.ssl_cert else configuration.key_file or "")
        watched = [*origin.files, settings.token_file, cert_file, key_file, ca_file]
        if origin.kind is OriginKind.SETTINGS and not settings.ssl_ca:
            watched.append(self._default_ca_file)
        fingerprint = _fingerprint(filter(None, watched))
        context = None
        if any(url.startswith("https:") for url in origin.urls):
            context = _ssl_context(verify=verify, ca_file=ca_file, cert_file=cert_file, key_file=key_file)
            if not verify:
                self._log_insecure()
        states: list[CredentialState] = []
        renew_at = 0.0
        if cert_file:
            validity = self._certificate(cert_file)
            renew_at = validity.ends - RENEW_BEFORE_S if origin.exec_command else 0.0
            states.append(_state(f"{_CLIENT} {cert_file}", validity))
        if verify and ca_file:
            states.append(_state(f"{_CA} {ca_file}", self._certificate(ca_file)))
        if settings.token_file:
            token = _read_token(settings.token_file)
            states.append(_state(f"{_TOKEN} {settings.token_file}", token_validity(token)))
        elif header := self._header_of(configuration):
            states.append(_state(_TOKEN, token_validity(header.partition(" ")[2])))
        tls = [f"{verify}", *(f"{path}={fingerprint[path]}" for path in (ca_file, cert_file, key_file) if path)]
        return _Loaded(configuration, verify, context, fingerprint, " ".join(tls), tuple(states), renew_at)

    def _read_configuration(self) -> Configuration:
        origin = self._origin
        # An empty proxy keeps the library from looking at the environment; a kubeconfig's proxy-url still counts.
        configuration = Configuration(host=origin.urls[0], proxy="", no_proxy="")
        try:
            if origin.kind is OriginKind.KUBECONFIG:
                load: Any = config.load_kube_config
                load(origin.kubeconfig, origin.context, configuration, persist_config=False)
            elif origin.kind is OriginKind.IN_CLUSTER:
                token_file, ca_file = origin.files
                # The loader wants both variables, also where the settings name the servers.
                where = {
                    incluster_config.SERVICE_HOST_ENV_NAME: "unused",
                    incluster_config.SERVICE_PORT_ENV_NAME: "443",
                    **self._environ,
                }
                loader: Any = incluster_config.InClusterConfigLoader
                loader(token_file, ca_file, environ=where).load_and_set(configuration)
        except (ConfigException, OSError, yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ApiError(Failure.CREDENTIALS, str(origin.kind), clean(str(error), 300)) from None
        if origin.exec_command and not configuration.api_key and not configuration.cert_file:
            # The library logs why and goes on without credentials.
            message = f"the plugin {clean(origin.exec_command, 80)} gave no credentials; run it by hand to see why"
            raise ApiError(Failure.CREDENTIALS, str(origin.kind), message)
        return configuration

    def _configuration_for(self, url: str, loaded: _Loaded) -> Configuration:
        proxy = loaded.configuration.proxy or ""
        if proxy or self._settings.ignore_proxy_env:
            configuration = Configuration(host=url, proxy=proxy, no_proxy="")
        else:
            configuration = Configuration(host=url)
        # The library sets a kubeconfig's values again with each token, so what overrides them is not left to it.
        configuration.verify_ssl = loaded.verify
        configuration.tls_server_name = None if self._origin.overridden else loaded.configuration.tls_server_name
        return configuration

    def _trust(self, configuration: Configuration) -> tuple[bool, str]:
        """Return whether servers are verified, and by which CA file ("" for the system's)."""
        ssl_ca = self._settings.ssl_ca
        if ssl_ca is False or (not ssl_ca and not configuration.verify_ssl):
            return False, ""
        if isinstance(ssl_ca, str) and ssl_ca:
            return True, ssl_ca
        if ssl_ca is True:
            return True, ""
        if self._origin.kind is OriginKind.SETTINGS:
            return True, self._default_ca_file if Path(self._default_ca_file).exists() else ""
        return True, configuration.ssl_ca_cert or ""

    def _log_insecure(self) -> None:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        if not self._insecure_logged:
            self._insecure_logged = True
            log.warning("api_server.verification_disabled", servers=self.urls)

    def _header_of(self, configuration: Configuration) -> str:
        try:
            # Runs the plugin again where its token has expired, and reads a service account's token again.
            settings: Mapping[str, Any] = configuration.auth_settings()
        except (ConfigException, OSError, ValueError) as error:
            raise ApiError(Failure.CREDENTIALS, str(self._origin.kind), clean(str(error), 300)) from None
        value = str(settings.get("BearerToken", {}).get("value") or "").strip()
        scheme, _, token = value.partition(" ")
        if value and not _is_token(token):
            raise ApiError(Failure.CREDENTIALS, str(self._origin.kind), "the token holds blanks or other characters")
        hide((token,))
        return f"{scheme.capitalize()} {token}" if value else ""

    def _certificate(self, path: str) -> "Validity":
        try:
            return certificate_validity(_read_file(path), self._clock.now())
        except ValueError as error:
            raise ApiError(Failure.CREDENTIALS, path, f"no certificate can be read: {clean(str(error), 80)}") from None


class Validity(NamedTuple):
    """From when to when something is valid, in seconds since the epoch; 0.0 where it does not say."""

    starts: float = 0.0
    ends: float = 0.0


class _TokenClaims(msgspec.Struct):
    exp: float = 0.0
    iat: float = 0.0
    nbf: float = 0.0


def certificate_validity(pem: bytes, now_s: float) -> Validity:
    """Return the validity of the first certificate to expire that is still valid; if none is, of the last one.

    A CA file may keep an expired certificate beside its successor; a client's file begins with its own.

    Raises:
        ValueError: there is no certificate in it.
    """
    found = sorted(
        (
            Validity(each.not_valid_before_utc.timestamp(), each.not_valid_after_utc.timestamp())
            for each in x509.load_pem_x509_certificates(pem)
        ),
        key=lambda each: each.ends,
    )
    return next((each for each in found if each.ends > now_s), found[-1])


def token_validity(token: str) -> Validity:
    """Return from when (``iat`` or ``nbf``) to when (``exp``) a JSON Web Token is valid; for other tokens nothing.

    Nothing is verified: that is the API server's business.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return Validity()
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = msgspec.json.decode(text, type=_TokenClaims)
    except (binascii.Error, ValueError, RecursionError):
        return Validity()
    return Validity(claims.iat or claims.nbf, claims.exp)


def _state(name: str, validity: Validity) -> CredentialState:
    return CredentialState(name, validity.ends, issued_at=validity.starts)


def _with_expiry(state: CredentialState, now: float) -> CredentialState:
    """Return a state with its expiry as a problem, once that is over."""
    if not 0.0 < state.expires_at <= now:
        return state
    return replace(state, problem=f"expired at {datetime.fromtimestamp(state.expires_at, UTC):%Y-%m-%d %H:%M:%S} UTC")


def _read_file(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX_FILE_BYTES)
    except OSError as error:
        message = f"cannot be read: {error.strerror}; {_file_remedy(path, error)}"
        raise ApiError(Failure.CREDENTIALS, path, message) from None


def _file_remedy(path: str, error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return "put it there (`pyconfd rbac` says where it comes from), or correct the setting that names it"
        case IsADirectoryError():
            return "name the file in it"
        case PermissionError():
            with suppress(KeyError):  # a group without a name
                return f"as root: chgrp {grp.getgrgid(os.getegid()).gr_name} {path} && chmod 0640 {path}"
    return "the user of pyconfd has to read it"


def _fingerprint(paths: Iterable[str]) -> dict[str, str]:
    """Return the digest of each file's content; "" where it cannot be read."""
    digests = dict.fromkeys(paths, "")
    for path in digests:
        with suppress(ApiError):
            digests[path] = hashlib.sha256(_read_file(path)).hexdigest()
    return digests


def _read_token(path: str) -> str:
    token = _read_file(path).decode("utf-8", "replace").strip()
    if not _is_token(token):
        message = "the file holds no token (one word of printable ASCII)" if token else "the file is empty"
        raise ApiError(Failure.CREDENTIALS, path, message)
    hide((token,))
    return token


def _is_token(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text and bool(text)


def _ssl_context(*, verify: bool, ca_file: str, cert_file: str, key_file: str) -> ssl.SSLContext:
    """Load all files now, so that a file which vanishes later does not matter before the next change."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_file:
        try:
            context.load_verify_locations(cadata=_read_file(ca_file).decode("ascii", "ignore"))
        except (ssl.SSLError, ValueError) as error:
            raise ApiError(Failure.CREDENTIALS, ca_file, f"not a CA certificate in PEM form: {error}") from None
    else:
        context.load_default_certs()
    if cert_file:
        for path in filter(None, (cert_file, key_file)):
            _read_file(path)  # OpenSSL's own error names no file
        try:
            # An encrypted key must not ask for its password on a terminal.
            context.load_cert_chain(cert_file, key_file or None, password=lambda: "")
        except (OSError, ValueError) as error:
            message = f"certificate and key ({key_file or 'in the same file'}) cannot be used together: {error}"
            raise ApiError(Failure.CREDENTIALS, cert_file, message) from None
    return context
