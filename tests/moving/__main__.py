"""Generated Ingresses of ingress-nginx, served by a real HAProxy, against what its documentation says of each request.

The oracle knows the annotations and nothing of pyconfd. How often annotations are there is as in 44 public manifests.
What only TLS, time or another host shows is not asked: timeouts, buffering, from-to-www-redirect.
"""

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pyconfd.presets.policies.nginx import PREFIX
from tests.presets.policies.stage import CLIENT, Answer, PolicyStage, policy_stage

NUMBER = 300
OUT_OF = 44
CHOICES: tuple[tuple[int, Mapping[str, str]], ...] = (
    (12, {"proxy-body-size": "1k"}),
    (9, {"rewrite-target": "/$2"}),
    (9, {"backend-protocol": "HTTP"}),
    (8, {"ssl-redirect": "false"}),
    (7, {"cert-manager.io/cluster-issuer": "letsencrypt"}),
    (5, {"proxy-read-timeout": "300"}),
    (3, {"auth-type": "basic", "auth-secret": "users", "auth-realm": "Please"}),
    (3, {"proxy-send-timeout": "300"}),
    (3, {"ssl-passthrough": "false"}),
    (3, {"enable-cors": "true"}),
    (2, {"affinity": "cookie"}),
    (2, {"auth-url": "http://127.0.0.1:1/", "auth-signin": "https://sign.example.com"}),
    (2, {"use-regex": "true"}),
    (4, {"proxy-buffering": "off"}),
    (3, {"configuration-snippet": 'more_set_headers "X-Snippet: yes";'}),
    (1, {"whitelist-source-range": "192.0.2.0/24"}),
    (1, {"limit-rps": "50"}),
    (1, {"canary": "true"}),
    (1, {"auth-tls-secret": "shop/ca"}),
    (1, {"app-root": "/start"}),
    (1, {"permanent-redirect": "https://new.example.com"}),
    (1, {"from-to-www-redirect": "true"}),
)


class Ask(NamedTuple):
    """A request, and what ingress-nginx answers: a status and, of 200, what the pod sees; ``header`` is there too."""

    path: str
    status: int
    pod: str = ""
    header: str = ""
    body: str | None = None


def generated(seed: int) -> Iterator[tuple[str, dict[str, str], str, str]]:
    """Return host, annotations, path and its type."""
    chance = random.Random(seed)
    for number in range(NUMBER):
        annotations: dict[str, str] = {}
        for often, each in CHOICES:
            if chance.random() < often / OUT_OF:
                annotations |= {name if "/" in name else f"{PREFIX}{name}": text for name, text in each.items()}
        is_regex = f"{PREFIX}rewrite-target" in annotations or f"{PREFIX}use-regex" in annotations
        path = "/App(/|$)(.*)" if is_regex else chance.choice(("/", "/app"))
        kind = "ImplementationSpecific" if is_regex else chance.choice(("Prefix", "ImplementationSpecific"))
        yield f"h{number}.example.com", annotations, path, kind


def documented(annotations: Mapping[str, str], path: str, kind: str) -> Iterator[Ask]:
    """Return what the documentation of ingress-nginx says of requests to an Ingress."""
    said = {name.removeprefix(PREFIX): text for name, text in annotations.items()}
    if "canary" in said:
        yield Ask("/app", 404)
        return
    status = next(
        (
            code
            for name, code in (
                ("permanent-redirect", 301), ("whitelist-source-range", 403), ("auth-tls-secret", 403),
                ("auth-type", 401), ("auth-url", 500),
            )
            if name in said
        ),
        200,
    )  # fmt: skip
    header = "access-control-allow-origin" if "enable-cors" in said else "set-cookie" if "affinity" in said else ""
    header = "x-snippet" if "configuration-snippet" in said else header
    header = header if status == 200 else ""
    if "App" in path:
        for asked, rest in (("/app/one", "/one"), ("/APP", "/"), ("/App/a/b", "/a/b")):
            yield Ask(asked, status, rest if "rewrite-target" in said else asked, header)
        yield Ask("/else/app/", 404)
        yield Ask("/appendix", 404)
    else:
        yield Ask("/app/x", status, "/app/x", header)
        yield Ask("/appendix", 404 if path == "/app" and kind == "Prefix" else status, "/appendix", "")
        if path == "/app":
            yield Ask("/else", 404)
    if "app-root" in said:
        yield Ask("/", 302)
    if status == 200:
        yield Ask("/app/body", 413 if "proxy-body-size" in said else 200, body="x" * 2000)


def document(host: str, annotations: Mapping[str, str], path: str, kind: str) -> str:
    """Return the Ingress."""
    backend = {"service": {"name": "app", "port": {"number": 80}}}
    rules = [{"host": host, "http": {"paths": [{"path": path, "pathType": kind, "backend": backend}]}}]
    found: dict[str, Any] = {
        "kind": "Ingress",
        "metadata": {"name": host.partition(".")[0], "annotations": dict(annotations)},
        "spec": {"ingressClassName": "nginx", "rules": rules},
    }
    return yaml.safe_dump(found)


def differs(ask: Ask, answer: Answer) -> str:
    """Return in what an answer is another one, "" for nothing."""
    if answer.status != ask.status:
        return f"{ask.status} is {answer.status}"
    if answer.status == 200 and ask.pod and answer.echo["path"] != ask.pod:
        return "the pod sees another path"
    return f"no header {ask.header}" if ask.header and ask.header not in answer.headers else ""


def main(stage: PolicyStage, seed: int) -> int:
    """Print the table; return 1 where something is open that was closed."""
    ingresses = list(generated(seed))
    stage.nginx_classes = ("nginx",)
    context = stage.serving(*(document(*each) for each in ingresses))
    told: dict[str, str] = {}
    for each in context.refused:
        if each.reason.value != "ignored_annotation":
            told.setdefault(each.ref.name, f"{each.field.removeprefix('annotation ')}: {each.reason.value}")
    verdicts, reasons, opened, requests = Counter[str](), Counter[str](), 0, 0
    for host, annotations, path, kind in ingresses:
        found = set()
        for ask in documented(annotations, path, kind):
            method = "POST" if ask.body is not None else "GET"
            answer = stage.request("ingress", ask.path, method=method, body=ask.body, client=CLIENT, host=host)
            requests += 1
            if wrong := differs(ask, answer):
                found.add(wrong)
            opened += answer.status < 300 and ask.status in {401, 403, 404, 413, 500}
        why = told.get(host.partition(".")[0])
        verdict = "refused" if found and why else "different" if found else "same"
        verdicts[verdict] += 1
        reasons.update({f"{verdict}: {each}" for each in ({why} if verdict == "refused" else found)})
    for reason, count in reasons.most_common():
        sys.stdout.write(f"{count:4}  {reason}\n")
    total = ", ".join(f"{verdicts[each]} {each}" for each in ("same", "different", "refused"))
    share = 100 * verdicts["same"] / len(ingresses)
    sys.stdout.write(f"{len(ingresses)} Ingresses, {requests} requests: {total} ({share:.1f} % same); ")
    sys.stdout.write(f"{opened} open that were closed\n")
    return 1 if opened else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, policy_stage(Path(folder)) as stage_:
        sys.exit(main(stage_, int(sys.argv[1]) if len(sys.argv) > 1 else 1))
