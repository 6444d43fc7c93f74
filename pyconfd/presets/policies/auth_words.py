"""The words of external authentication: URLs with variables of ingress-nginx, methods, and names of headers."""

import re
from urllib.parse import urlsplit

from pyconfd.presets import values
from pyconfd.presets.policies import changes
from pyconfd.presets.policies.external_auth import AuthUrl

VARIABLES = ("escaped_request_uri", "host", "http_host", "request_uri", "scheme")
"""Variables of ingress-nginx that may stand in URLs."""

_URL = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+", re.ASCII)
_VARIABLE = re.compile(r"\$([A-Za-z0-9_]*)", re.ASCII)
_SIGN_IN = re.compile(r"(?:https?|\$scheme)://[^/?#]+(?:[/?].*)?|/(?!/).*", re.ASCII)
_PARAMETER = re.compile(r"[A-Za-z0-9._~-]{1,64}", re.ASCII)
_METHODS = ("GET", "HEAD", "POST")
_LONGEST_URL = 800
_LONGEST_REDIRECT = 300
_LONGEST_NAMES = 600
"""In characters. All of it is one value of a map, of less than 4,000 bytes (filters.MAX_VALUE_BYTES says why)."""
_MOST_NAMES = 16
_CLUSTER_DOMAIN = ".cluster.local"
_HOSTS_AS_ASKED = {"$host": "$host", "$http_host": "$http_host"}
_USUAL_PORTS = {"http": 80, "https": 443}


def auth_url(text: str) -> AuthUrl:
    """Parse the URL of a Service, or of a host that this load balancer serves.

    Raises:
        ValueError: it is neither, or has what cannot be asked for.
    """
    url = _url(text, _LONGEST_URL)
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _USUAL_PORTS or "#" in rest or "@" in rest.partition("/")[0]:
        raise ValueError("expected a URL such as http://SERVICE/path or https://auth.example.com/path, without a user")
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    path = rest[len(authority) :]
    path = path if path.startswith("/") else f"/{path}"
    if authority in _HOSTS_AS_ASKED:
        return AuthUrl(authority, path)
    if "$" in authority:
        raise ValueError("the host is $host, $http_host, or one without variables")
    parts = urlsplit(f"{scheme}://{authority}")
    port = parts.port or _USUAL_PORTS[scheme]  # raises ValueError for one beyond 65535
    host = values.host_name(parts.hostname or "")
    if values.address(host) is not None or host.startswith("*"):
        raise ValueError("no address and no wildcard: name a Service, which may have endpoints of its own")
    if service := _service(host):
        if scheme == "https":
            raise ValueError("a Service is asked without TLS, since nothing names the CA of its pods: write http://")
        return AuthUrl(host, path, service, port)
    if parts.port is not None and parts.port not in _USUAL_PORTS.values():
        raise ValueError("a host is asked where this load balancer serves it: leave the port out")
    return AuthUrl(host, path, port=port, is_plain=scheme == "http")


def _service(host: str) -> str:
    """Return NAME or NAME.NAMESPACE of a name that only a Service can have, "" for any other."""
    name, _, rest = host.removesuffix(_CLUSTER_DOMAIN).partition(".")
    namespace, _, svc = rest.partition(".")
    if not rest and not host.endswith(_CLUSTER_DOMAIN):
        return name
    return f"{name}.{namespace}" if svc == "svc" and namespace else ""


def method(text: str) -> str:
    """Parse the method of what is asked; raise ValueError."""
    wanted = text.strip()
    if wanted not in _METHODS:
        raise ValueError(f"expected one of {', '.join(_METHODS)}")
    return wanted


def names(text: str) -> tuple[str, ...]:
    """Parse names of headers, in lower case.

    Raises:
        ValueError: one of them is none, or belongs to the connection.
    """
    found = tuple(dict.fromkeys(each.name.lower() for each in changes.removed_headers(text)))
    if len(found) > _MOST_NAMES or len(",".join(found)) > _LONGEST_NAMES:
        raise ValueError(f"more than {_MOST_NAMES} names, or {_LONGEST_NAMES} characters")
    return found


def sign_in(text: str) -> str:
    """Parse where clients sign in.

    Raises:
        ValueError: it is no URL and no path.
    """
    url = _url(text, _LONGEST_URL)
    if not _SIGN_IN.fullmatch(url) or "#" in url:
        raise ValueError("expected a URL such as https://$host/oauth2/start, or a path")
    return url


def parameter(text: str) -> str:
    """Parse the name of a parameter of a URL; raise ValueError."""
    if not _PARAMETER.fullmatch(text.strip()):
        raise ValueError("expected the name of a parameter, such as rd")
    return text.strip()


def redirect(text: str) -> str:
    """Parse a value of X-Auth-Request-Redirect; raise ValueError."""
    return _url(text, _LONGEST_REDIRECT)


def _url(text: str, longest: int) -> str:
    url = text.strip()
    if not _URL.fullmatch(url) or len(url) > longest:
        raise ValueError(f"expected at most {longest} characters that may stand in a URL")
    for found in _VARIABLE.finditer(url):
        if found[1] not in VARIABLES:
            known = ", ".join(f"${each}" for each in VARIABLES)
            raise ValueError(f"{values.shortened(found[0])} is no variable that is known here; these are: {known}")
    return url
