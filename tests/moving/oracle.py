"""Generated Ingresses of ingress-nginx, and what its documentation says of requests to them.

Nothing here knows pyconfd. How often an annotation is there is as in 44 public manifests, and so are its values.

Source: ingress-nginx 1.15, docs/user-guide (nginx-configuration/annotations.md and configmap.md, tls.md,
ingress-path-matching.md); what comes first of several, and what ``app-root`` and ``rewrite-target: /`` are for, is in
rootfs/etc/nginx/template/nginx.tmpl only. TLS is not passed through by a controller that was not started for it. GRPC
needs pods of its own, and is not asked; nor is the Strict-Transport-Security of hosts with TLS, which is a setting of
the controller here as there; buffering shows in no answer.
"""

import base64
import random
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

NUMBER = 300
OUT_OF = 44
PREFIX = "nginx.ingress.kubernetes.io/"
INSIDE = "192.0.2.9"
"""A client of the network that Ingresses allow."""
ORIGIN, OTHER_ORIGIN = "https://app.example.com", "https://evil.example.net"
SIGN_IN = "https://sign.example.com/start"
USER = f"Basic {base64.b64encode(b'alice:secret').decode()}"
STRANGER = f"Basic {base64.b64encode(b'alice:guess').decode()}"
SESSION = "session=good"
"""A cookie that the service for external authentication accepts."""
USERS = {
    "users-md5": "alice:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/",
    "users-bcrypt": "alice:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a",
}
"""Secrets with the key ``auth``, as ``htpasswd`` and ``htpasswd -B`` write them."""
SLOW_S = 1.5
"""How long a pod is silent that is asked for ``slow``."""
_DEFAULT_BODY = 1 << 20
_HEADERS = 'more_set_headers "X-Frame-Options: DENY";\nmore_set_headers "Referrer-Policy: same-origin";\n'
_CONDITION = "if ($http_x_forwarded_proto = 'http') {\n  return 301 https://$host$request_uri;\n}\n"
_METHOD = "if ($request_method = DELETE) {\n  return 405;\n}\n"

_PATHS = ("/app/one", "/APP", "/App/a/b", "/appendix", "/else/app/", "/app", "/app/")

Annotations = Mapping[str, str]


class Choice(NamedTuple):
    """In how many of the manifests something is there, and its values: each as often as it stands here."""

    often: int
    values: tuple[Annotations, ...]

    @property
    def name(self) -> str:
        """The annotation by which it is counted."""
        return next(iter(self.values[0]))


CHOICES = (
    Choice(12, ({"proxy-body-size": "0"}, {"proxy-body-size": "8m"}, {"proxy-body-size": "1k"})),
    Choice(9, ({"rewrite-target": "/$2"}, {"rewrite-target": "/"})),
    Choice(9, ({"backend-protocol": "HTTPS"}, {"backend-protocol": "HTTPS"}, {"backend-protocol": "HTTP"})),
    Choice(8, ({"ssl-redirect": "true"}, {"ssl-redirect": "false"})),
    Choice(7, ({"cert-manager.io/cluster-issuer": "letsencrypt"},)),
    Choice(5, ({"proxy-read-timeout": "300"}, {"proxy-read-timeout": "3600"}, {"proxy-read-timeout": "1"})),
    Choice(
        3,
        tuple({"auth-type": "basic", "auth-secret": each, "auth-realm": "Please sign in"} for each in USERS),
    ),
    Choice(3, ({"proxy-send-timeout": "300"},)),
    Choice(3, ({"ssl-passthrough": "true"},)),
    Choice(
        3,
        (
            {"enable-cors": "true"},
            {"enable-cors": "true", "cors-allow-origin": ORIGIN, "cors-allow-methods": "PUT, GET, POST, OPTIONS"},
        ),
    ),
    Choice(
        2,
        (
            {"affinity": "cookie"},
            {"affinity": "cookie", "session-cookie-name": "route", "session-cookie-max-age": "172800"},
        ),
    ),
    Choice(
        2,
        (
            {
                "auth-url": "http://auth.shop.svc.cluster.local/check",
                "auth-signin": f"{SIGN_IN}?rd=$scheme://$host$request_uri",
            },
        ),
    ),
    Choice(2, ({"use-regex": "true"},)),
    Choice(4, ({"proxy-buffering": "off"}, {"proxy-buffer-size": "16k"}, {"proxy-request-buffering": "off"})),
    # Of nine public ones, five have directives for headers only.
    Choice(3, tuple({"configuration-snippet": each} for each in (*[_HEADERS] * 5, *[_CONDITION] * 2, *[_METHOD] * 2))),
    Choice(1, ({"whitelist-source-range": "192.0.2.0/24"},)),
    Choice(1, ({"limit-rps": "2"},)),
    Choice(
        1,
        (
            {"canary": "true", "canary-by-header": "X-Canary"},
            {"canary": "true", "canary-weight": "100"},
            {"canary": "true", "canary-by-cookie": "canary"},
        ),
    ),
    Choice(1, ({"auth-tls-secret": "shop/ca"},)),
    Choice(1, ({"app-root": "/start"},)),
    Choice(1, ({"permanent-redirect": "https://new.example.com"},)),
    Choice(1, ({"from-to-www-redirect": "true"},)),
)


class Made(NamedTuple):
    """An Ingress; ``said`` are its annotations, those of ingress-nginx without their prefix."""

    number: int
    said: Annotations
    path: str
    kind: str
    has_tls: bool

    @property
    def name(self) -> str:
        """The name of the Ingress."""
        return f"h{self.number}"

    @property
    def host(self) -> str:
        """Its host, which is its own."""
        return f"{self.name}.example.com"

    @property
    def client(self) -> str:
        """A client of its own, so that nobody is counted for what is asked of others."""
        return f"198.51.{100 + self.number // 250}.{1 + self.number % 250}"

    @property
    def counted(self) -> tuple[str, ...]:
        """The names by which its annotations are counted."""
        return tuple(each.name for each in CHOICES if any(next(iter(value)) in self.said for value in each.values))

    @property
    def documents(self) -> Iterator[dict[str, Any]]:
        """Itself, and, of a canary, the Ingress that it is a canary of."""
        named = {name if "/" in name else f"{PREFIX}{name}": text for name, text in self.said.items()}
        is_canary = "canary" in self.said
        service = "canary" if is_canary else "secure" if self.said.get("backend-protocol") == "HTTPS" else "app"
        yield self._document(self.name, named, service)
        if is_canary:
            yield self._document(f"{self.name}-main", {}, "app")

    def _document(self, name: str, annotations: Annotations, service: str) -> dict[str, Any]:
        backend = {"service": {"name": service, "port": {"number": 443 if service == "secure" else 80}}}
        rules = [
            {"host": self.host, "http": {"paths": [{"path": self.path, "pathType": self.kind, "backend": backend}]}}
        ]
        tls = {"tls": [{"hosts": [self.host], "secretName": "web-tls"}]} if self.has_tls else {}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"name": name, "namespace": "shop", "annotations": dict(annotations)},
            "spec": {"ingressClassName": "nginx", "rules": rules, **tls},
        }


class Ask(NamedTuple):
    """A request, and what ingress-nginx answers.

    ``length`` is what a request says of its body, which is sent where it is to be let in. ``path`` is what the pod
    sees, and ``pod`` which one it is, where it answers 200. ``found`` are headers of the answer with a part of their
    value, ``missing`` those that are not there. ``times`` is how often it is asked, until the status is there.
    """

    url: str
    statuses: tuple[int, ...]
    host: str
    tls: bool = False
    method: str = "GET"
    client: str = ""
    headers: Annotations = MappingProxyType({})
    certificate: bool = False
    length: int = 0
    path: str = ""
    pod: str = ""
    found: Annotations = MappingProxyType({})
    missing: tuple[str, ...] = ()
    times: int = 1


def generated(seed: int, number: int = NUMBER) -> Iterator[Made]:
    """Return Ingresses, the same ones for a seed."""
    chance = random.Random(seed)
    for count in range(number):
        said: dict[str, str] = {}
        for choice in CHOICES:
            if chance.random() < choice.often / OUT_OF:
                said |= chance.choice(choice.values)
        is_canary = "canary" in said
        if said.get("rewrite-target") == "/$2" and not is_canary:
            path, kind = "/App(/|$)(.*)", "ImplementationSpecific"
        elif "use-regex" in said and not is_canary:
            path, kind = "/App/[a-z]+", "ImplementationSpecific"
        else:
            path, kind = chance.choice(("/", "/app")), chance.choice(("Prefix", "ImplementationSpecific"))
        # An issuer is there for a certificate, and a certificate of clients is shown over TLS only.
        has_tls = {"cert-manager.io/cluster-issuer", "auth-tls-secret"} & said.keys() or chance.random() < 1 / 2
        yield Made(count, said, path, kind, bool(has_tls))


def seen_by_pod(made: Made, path: str) -> str | None:
    """Return the path that a pod is asked for, None where no location is for it."""
    is_canary = "canary" in made.said
    target = "" if is_canary else made.said.get("rewrite-target", "")
    if target == made.path:
        target = ""
    if target or ("use-regex" in made.said and not is_canary):
        found = re.match(f"(?i){made.path}", path)
        if found is None:
            return None
        return re.sub(r"\$([1-9])", lambda each: found[int(each[1])] or "", target) if target else path
    if made.kind == "Prefix" and made.path != "/":
        return path if f"{path}/".startswith(f"{made.path}/") else None
    return path if path.startswith(made.path) else None


def documented(made: Made) -> Iterator[Ask]:
    """Return what the documentation of ingress-nginx says of requests to an Ingress."""
    return (ask if ask.client else ask._replace(client=made.client) for ask in _documented(made))


def _documented(made: Made) -> Iterator[Ask]:
    said, host = ({}, made.host) if "canary" in made.said else (made.said, made.host)
    redirects = made.has_tls and said.get("ssl-redirect") != "false"
    served = [each for each in _PATHS if seen_by_pod(made, each) is not None]
    if "permanent-redirect" in said:
        where = {"location": said["permanent-redirect"]}
        yield Ask(served[0], (301,), host, tls=made.has_tls, found=where)
        return
    if redirects:
        yield Ask(f"{served[0]}?x=1", (308,), host, found={"location": f"https://{host}{served[0]}?x=1"})
    if "from-to-www-redirect" in said:
        yield Ask("/app/one", (308,), f"www.{host}", found={"location": f"://{host}/app/one"})
    usual = Ask(served[0], (200,), host, tls=made.has_tls, **_let_in(said, made.client))
    if "app-root" in said:
        yield usual._replace(url="/", statuses=(302,), found={"location": f"://{host}{said['app-root']}"})
    if "canary" in made.said:
        yield from _canary(made.said, usual)
        return
    pod = "secure" if said.get("backend-protocol") == "HTTPS" else "app"
    for path in _PATHS:
        seen = seen_by_pod(made, path)
        if seen is not None:
            yield usual._replace(url=f"{path}?x=1", path=f"{seen}?x=1", pod=pod)
        else:
            yield usual._replace(url=path, statuses=(404,))
    if made.has_tls and not redirects:
        yield usual._replace(tls=False)
    yield from _restrictions(said, usual, made.client)
    yield from _answers(said, usual)
    yield from _bodies(said, usual)
    if "limit-rps" in said:
        # The documentation says: 503 beyond the limit and a burst of five times as many.
        yield usual._replace(statuses=(503,), times=40)


def _let_in(said: Annotations, client: str) -> dict[str, Any]:
    """Return what a request needs to be let in."""
    headers = {"Authorization": USER} if "auth-type" in said else {}
    headers |= {"Cookie": SESSION} if "auth-url" in said else {}
    client = INSIDE if "whitelist-source-range" in said else client
    return {"headers": headers, "client": client, "certificate": "auth-tls-secret" in said}


def _canary(said: Annotations, usual: Ask) -> Iterator[Ask]:
    if "canary-weight" in said:
        yield usual._replace(pod="canary")
        return
    for value, pod in (("always", "canary"), ("never", "app"), ("other", "app")):
        by_header = {"X-Canary": value} if "canary-by-header" in said else {"Cookie": f"canary={value}"}
        yield usual._replace(headers=by_header, pod=pod)
    yield usual._replace(pod="app")


def _restrictions(said: Annotations, usual: Ask, stranger: str) -> Iterator[Ask]:
    """Return who is not let in, each with all else that is needed."""
    if "whitelist-source-range" in said:
        yield usual._replace(client=stranger, statuses=(403,))
    if "auth-tls-secret" in said:
        yield usual._replace(certificate=False, statuses=(400,))
    if "auth-type" in said:
        without = {name: text for name, text in usual.headers.items() if name != "Authorization"}
        realm = {"www-authenticate": said["auth-realm"]}
        yield usual._replace(headers=without, statuses=(401,), found=realm)
        yield usual._replace(headers={**without, "Authorization": STRANGER}, statuses=(401,), found=realm)
    if "auth-url" in said:
        without = {name: text for name, text in usual.headers.items() if name != "Cookie"}
        yield usual._replace(headers=without, statuses=(302,), found={"location": SIGN_IN})
        yield usual._replace(
            headers={**without, "Cookie": "session=bad"}, statuses=(302,), found={"location": f"{SIGN_IN}?rd=http"}
        )


def _answers(said: Annotations, usual: Ask) -> Iterator[Ask]:
    """Return what is there in answers, and how long they may take."""
    if "enable-cors" in said:
        origin, allow = {"Origin": ORIGIN}, "access-control-allow-origin"
        yield usual._replace(headers={**usual.headers, **origin}, found={allow: ""})
        preflight = {**origin, "Access-Control-Request-Method": "PUT"}
        # A browser shows nothing of who its user is.
        yield usual._replace(
            method="OPTIONS", headers=preflight, statuses=(204,),
            found={allow: "", "access-control-allow-methods": "PUT"},
        )  # fmt: skip
        if "cors-allow-origin" in said:
            yield usual._replace(headers={**usual.headers, "Origin": OTHER_ORIGIN}, missing=(allow,))
    if "affinity" in said:
        cookie = f"{said.get('session-cookie-name', 'INGRESSCOOKIE')}="
        yield usual._replace(found={"set-cookie": cookie})
        if (age := said.get("session-cookie-max-age")) is not None:
            yield usual._replace(found={"set-cookie": f"Max-Age={age}"})
    if said.get("configuration-snippet") == _HEADERS:
        yield usual._replace(found={"x-frame-options": "DENY", "referrer-policy": "same-origin"})
    if said.get("configuration-snippet") == _METHOD:
        yield usual._replace(method="DELETE", statuses=(405,))
    if (timeout := said.get("proxy-read-timeout")) is not None:
        yield usual._replace(url=f"{usual.url}?slow", statuses=(504,) if int(timeout) < SLOW_S else (200,))


def _bodies(said: Annotations, usual: Ask) -> Iterator[Ask]:
    most = {"0": 0, "1k": 1 << 10, "8m": 8 << 20, "": _DEFAULT_BODY}[said.get("proxy-body-size", "")]
    small, large = (min(most, 2 * _DEFAULT_BODY) - 10, most + 1) if most else (2 * _DEFAULT_BODY, 0)
    yield usual._replace(method="POST", length=small)
    if large:
        yield usual._replace(method="POST", length=large, statuses=(413,))
