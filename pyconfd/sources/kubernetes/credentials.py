"""From the settings to what a connection needs, read again when a file changes."""

import grp
import hashlib
import os
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
import urllib3
import yaml
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.config import ConfigException, incluster_config

from pyconfd.errors import first_line
from pyconfd.model.status import CredentialState
from pyconfd.settings import KubernetesSettings
from pyconfd.sources.kubernetes.certificates import Validity, certificate_validity, token_validity
from pyconfd.sources.kubernetes.clock import Clock
from pyconfd.sources.kubernetes.failures import ApiError, Failure, shown
from pyconfd.sources.kubernetes.origin import SERVICE_ACCOUNT_DIR, OriginKind, find_origin
from pyconfd.system.secrecy import hide

DEFAULT_CA_FILE = "/etc/pyconfd/ca.pem"
RENEW_EVERY_S = 30.0
"""A plugin is not run more often than this because a server said 401."""
RENEW_BEFORE_S = 60.0
"""A client certificate from a plugin is fetched anew this long before it expires."""
_MAX_FILE_BYTES = 4 << 20

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """What a connection to one server needs; ``authorization`` gives the header's value for now, or ""."""

    url: str
    configuration: Configuration
    ssl_context: ssl.SSLContext | None
    authorization: Callable[[], str]


@dataclass(frozen=True, slots=True)
class _Loaded:
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
        clock: Clock,
        *,
        environ: Mapping[str, str] | None = None,
        service_account_dir: str = SERVICE_ACCOUNT_DIR,
        default_ca_file: str = DEFAULT_CA_FILE,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._environ = os.environ if environ is None else environ
        self._default_ca_file = default_ca_file
        self._service_account_dir = service_account_dir
        self._origin = find_origin(settings, self._environ, service_account_dir)
        self._lock = threading.RLock()
        self._loaded: _Loaded | None = None
        self._tried: Mapping[str, str] = {}
        self._problem = ""
        self._token = ""
        self._renewed_s = -RENEW_EVERY_S
        self._insecure_said = False

    @property
    def urls(self) -> tuple[str, ...]:
        """The API servers in their order."""
        return self._origin.urls

    @property
    def tls_digest(self) -> str:
        """What changes when connections have to be made anew; "" before anything was loaded."""
        loaded = self._loaded
        return loaded.tls_digest if loaded else ""

    def states(self) -> tuple[CredentialState, ...]:
        """Return each certificate and token with its expiry; never waits for a plugin that is running."""
        loaded, problem = self._loaded, self._problem
        states = loaded.states if loaded else ()
        return (*states, CredentialState("credentials", problem=problem)) if problem else states

    def access(self, url: str) -> Access:
        """Return what a connection to this server needs.

        Raises:
            ApiError: of kind CREDENTIALS: a file is missing, unreadable, or does not fit the others.
        """
        with self._lock:
            # Files are looked at again each time; a plugin may ask somebody who counts.
            if self._loaded is None and (not self._problem or not self._origin.exec_command or self._may_renew()):
                self._load()
            loaded = self._loaded
            if loaded is None:
                raise ApiError(Failure.CREDENTIALS, "credentials", self._problem)
            return Access(
                url,
                self._configuration_for(url, loaded),
                loaded.ssl_context if url.startswith("https:") else None,
                self._authorization,
            )

    def refresh(self) -> bool:
        """Read the files again if their content changed; tell whether connections have to be made anew."""
        with self._lock:
            loaded = self._loaded
            if loaded is None:
                return False
            current = _fingerprint(loaded.fingerprint)
            due = loaded.renew_at and self._clock.time() >= loaded.renew_at
            if (current == self._tried and not due) or (due and not self._may_renew()):
                return False
            before = loaded.tls_digest
            self._load()
            return self.tls_digest != before

    def renew(self) -> bool:
        """Read everything again because a server did not accept it; tell whether connections have to be made anew."""
        with self._lock:
            if not self._may_renew():
                return False
            before = self.tls_digest
            self._load()
            return self.tls_digest != before

    def _may_renew(self) -> bool:
        now_s = self._clock.monotonic()
        if now_s - self._renewed_s < RENEW_EVERY_S:
            return False
        self._renewed_s = now_s
        return True

    def _load(self) -> None:
        # Taken before anything is read: what changes meanwhile is seen by the next refresh.
        tried = _fingerprint(self._loaded.fingerprint) if self._loaded is not None else {}
        try:
            loaded = self._read()
        except ApiError as failure:
            problem = first_line(failure.problems)
            if problem != self._problem:
                log.warning("credentials.refused", problem=problem, kept=self._loaded is not None)
            self._problem = problem
            self._tried = tried
            return
        if self._loaded is not None and loaded.fingerprint != self._loaded.fingerprint:
            log.info("credentials.changed", files=sorted(_changed(self._loaded.fingerprint, loaded.fingerprint)))
        self._problem = ""
        self._loaded = loaded
        self._tried = loaded.fingerprint

    def _read(self) -> _Loaded:
        settings, origin = self._settings, self._origin
        configuration = self._configuration()
        verify, ca_file = self._trust(configuration)
        cert_file = settings.ssl_cert or configuration.cert_file or ""
        key_file = settings.ssl_key or ("" if settings.ssl_cert else configuration.key_file or "")
        watched = [*origin.files, settings.token_file, cert_file, key_file, ca_file]
        if origin.kind is OriginKind.SETTINGS and not settings.ssl_ca:
            watched.append(self._default_ca_file)
        fingerprint = _fingerprint(dict.fromkeys(filter(None, watched), ""))
        context = None
        if any(url.startswith("https:") for url in origin.urls):
            context = _ssl_context(verify=verify, ca_file=ca_file, cert_file=cert_file, key_file=key_file)
            self._say_insecure(verify=verify)
        states, certificate_end = self._expiries(configuration, cert_file, ca_file if verify else "")
        tls = [f"{verify}", *(f"{path}={fingerprint[path]}" for path in (ca_file, cert_file, key_file) if path)]
        return _Loaded(
            configuration,
            verify,
            context,
            fingerprint,
            " ".join(tls),
            states,
            certificate_end - RENEW_BEFORE_S if origin.exec_command and certificate_end else 0.0,
        )

    def _configuration(self) -> Configuration:
        origin = self._origin
        # An empty proxy keeps the library from looking at the environment; a kubeconfig's proxy-url still counts.
        configuration = Configuration(host=origin.urls[0], proxy="", no_proxy="")
        try:
            if origin.kind is OriginKind.KUBECONFIG:
                load: Any = config.load_kube_config
                load(origin.kubeconfig, origin.context, configuration, persist_config=False)
            elif origin.kind is OriginKind.IN_CLUSTER:
                token_file, ca_file = origin.files
                where = {
                    incluster_config.SERVICE_HOST_ENV_NAME: "unused",
                    incluster_config.SERVICE_PORT_ENV_NAME: "443",
                    **self._environ,
                }
                loader: Any = incluster_config.InClusterConfigLoader
                loader(token_file, ca_file, environ=where).load_and_set(configuration)
        except (ConfigException, OSError, yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ApiError(Failure.CREDENTIALS, str(origin.kind), shown(str(error), 300)) from None
        if origin.exec_command and not configuration.api_key and not configuration.cert_file:
            message = f"the plugin {shown(origin.exec_command)} gave no credentials; run it by hand to see why"
            raise ApiError(Failure.CREDENTIALS, str(origin.kind), message)
        return configuration

    def _configuration_for(self, url: str, loaded: _Loaded) -> Configuration:
        of_kubeconfig = loaded.configuration.proxy or None
        from_environment = not of_kubeconfig and not self._settings.ignore_proxy_env
        configuration = (
            Configuration(host=url)
            if from_environment
            else Configuration(host=url, proxy=of_kubeconfig or "", no_proxy="")
        )
        # The library sets a kubeconfig's values anew with each token, so what overrides them is not left to it.
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

    def _say_insecure(self, *, verify: bool) -> None:
        if verify:
            return
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        if not self._insecure_said:
            self._insecure_said = True
            log.warning("api_server.verification_disabled", servers=self.urls)

    def _authorization(self) -> str:
        with self._lock:
            if self._settings.token_file:
                return f"Bearer {self._token_or_former()}"
            if self._loaded is None:
                return ""
            return self._header_of(self._loaded.configuration)

    def _token_or_former(self) -> str:
        # Read for each request: a token that was rotated counts at once.
        try:
            self._token = _token_of(self._settings.token_file)
        except ApiError:
            if not self._token:
                raise
        return self._token

    def _header_of(self, configuration: Configuration) -> str:
        try:
            settings: Mapping[str, Any] = configuration.auth_settings()
        except (ConfigException, OSError, ValueError) as error:
            raise ApiError(Failure.CREDENTIALS, str(self._origin.kind), shown(str(error), 300)) from None
        value = str(settings.get("BearerToken", {}).get("value") or "").strip()
        scheme, _, token = value.partition(" ")
        if value and not _is_token(token):
            raise ApiError(Failure.CREDENTIALS, str(self._origin.kind), "the token holds blanks or other characters")
        hide((token,))
        return f"{scheme.capitalize()} {token}" if value else ""

    def _expiries(
        self, configuration: Configuration, cert_file: str, ca_file: str
    ) -> tuple[tuple[CredentialState, ...], float]:
        states: list[CredentialState] = []
        certificate_end = 0.0
        if cert_file:
            validity = self._validity_of(cert_file)
            certificate_end = validity.ends
            states.append(_state(f"client certificate {cert_file}", validity))
        if ca_file:
            states.append(_state(f"CA certificate {ca_file}", self._validity_of(ca_file)))
        if self._settings.token_file:
            token = _token_of(self._settings.token_file)
            states.append(_state(f"token {self._settings.token_file}", token_validity(token)))
        elif header := self._header_of(configuration):
            states.append(_state("token", token_validity(header.partition(" ")[2])))
        return tuple(states), certificate_end

    def _validity_of(self, path: str) -> Validity:
        try:
            return certificate_validity(_content(path), self._clock.time())
        except ValueError as error:
            raise ApiError(Failure.CREDENTIALS, path, f"no certificate can be read: {shown(str(error))}") from None


def _state(name: str, validity: Validity) -> CredentialState:
    return CredentialState(name, validity.ends, issued_at=validity.starts)


def _content(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX_FILE_BYTES)
    except OSError as error:
        raise ApiError(
            Failure.CREDENTIALS, path, f"cannot be read: {error.strerror}; {_file_remedy(path, error)}"
        ) from None


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


def _fingerprint(paths: Mapping[str, str]) -> dict[str, str]:
    prints: dict[str, str] = {}
    for path in paths:
        try:
            prints[path] = hashlib.sha256(_content(path)).hexdigest()
        except ApiError:
            prints[path] = ""
    return prints


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> set[str]:
    return {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


def _token_of(path: str) -> str:
    token = _content(path).decode("utf-8", "replace").strip()
    if not _is_token(token):
        message = "the file holds no token (one word of printable ASCII)" if token else "the file is empty"
        raise ApiError(Failure.CREDENTIALS, path, message)
    hide((token,))
    return token


def _is_token(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text and bool(text)


def _ssl_context(*, verify: bool, ca_file: str, cert_file: str, key_file: str) -> ssl.SSLContext:
    """Load all files now, so that a file which vanishes later does not matter before it is needed anew."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_file:
        try:
            context.load_verify_locations(cadata=_content(ca_file).decode("ascii", "ignore"))
        except (ssl.SSLError, ValueError) as error:
            raise ApiError(Failure.CREDENTIALS, ca_file, f"not a CA certificate in PEM form: {error}") from None
    else:
        context.load_default_certs()
    if cert_file:
        for path in filter(None, (cert_file, key_file)):
            _content(path)
        try:
            # An encrypted key must not ask for its password on a terminal.
            context.load_cert_chain(cert_file, key_file or None, password=lambda: "")
        except (OSError, ValueError) as error:
            message = f"certificate and key ({key_file or 'in the same file'}) cannot be used together: {error}"
            raise ApiError(Failure.CREDENTIALS, cert_file, message) from None
    return context
