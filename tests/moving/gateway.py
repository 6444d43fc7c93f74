"""The output of ingress2gateway for generated Ingresses, by a real HAProxy, against what ingress-nginx documents.

The tool is fetched as a module of Go and compiled the first time. It says of most annotations that its output does not
have them; requests are asked of Ingresses that have none of these. A Gateway has 64 listeners at most, and the tool
puts all hosts into one: so it is given some Ingresses at a time. What it makes of ``ssl-passthrough`` on a host with a
certificate is two listeners with one port and hostname, which no Gateway may have, and its redirects to and from www
name listeners that it does not make.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from pyconfd.model.context import Context
from tests.moving.__main__ import Result, judged, report
from tests.moving.oracle import Ask, Made, documented, generated
from tests.moving.stage import GATEWAY_ADDRESS, MovingStage, moving_stage

_MODULE = "github.com/kubernetes-sigs/ingress2gateway"
_VERSION = "v1.2.0"
_TOOL = Path(".cache/ingress2gateway")
_AT_A_TIME = 25
_CARRIED = frozenset(
    {
        "app-root", "canary", "cert-manager.io/cluster-issuer", "cors-allow-methods", "cors-allow-origin",
        "enable-cors", "permanent-redirect", "proxy-buffer-size", "proxy-buffering", "proxy-request-buffering",
        "proxy-send-timeout", "rewrite-target", "ssl-redirect", "use-regex", "canary-by-header", "canary-weight",
    }
)  # fmt: skip
"""Annotations that its output has, and those that show in no answer."""
_CLASS = """
kind: GatewayClass
metadata: {name: nginx}
spec: {controllerName: pyconfd.io/gateway}
"""


def tool() -> Path:
    """Return the program, compiled if it is not there."""
    path = _TOOL.absolute()
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        said = subprocess.run(
            ["go", "mod", "download", "-json", f"{_MODULE}@{_VERSION}"], check=True, capture_output=True
        )
        folder = json.loads(said.stdout)["Dir"]
        subprocess.run(["go", "build", "-o", str(path), "."], cwd=folder, check=True)
    return path


def converted(ingresses: Sequence[Made], folder: Path) -> list[dict[str, Any]]:
    """Return what the tool makes of Ingresses."""
    path = folder / "ingresses.yaml"
    path.write_text(yaml.safe_dump_all(each for made in ingresses for each in made.documents))
    said = subprocess.run(
        [str(tool()), "print", "--providers=ingress-nginx", "--input-file", str(path), "-A"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [each for each in yaml.safe_load_all(said.stdout) if each]


def carried(made: Made) -> bool:
    """Return whether the output has all of an Ingress that shows in answers."""
    return made.said.keys() <= _CARRIED and made.said.get("rewrite-target") not in {"/$2", made.path}


def asked(made: Made) -> Iterator[Ask]:
    """Return what can be asked: its paths are prefixes by elements or expressions, and it has no limit of bodies."""
    return (each for each in documented(made._replace(kind="Prefix")) if 413 not in each.statuses)


def not_accepted(context: Context) -> list[str]:
    """Return what is refused, in words."""
    return [
        f"{each.ref.kind} {each.field}: {each.detail}"
        for each in context.refused
        if not each.reason.is_note and each.ref.kind in {"Gateway", "HTTPRoute"}
    ]


def main(stage: MovingStage, folder: Path, seed: int) -> int:
    """Print the table, and what is refused; return 1 where something is another."""
    results: list[Result] = []
    refused: list[str] = []
    routes = expressions = 0
    stage.address = GATEWAY_ADDRESS
    ingresses = list(generated(seed))
    for start in range(0, len(ingresses), _AT_A_TIME):
        some = ingresses[start : start + _AT_A_TIME]
        objects = converted(some, folder)
        routes += sum(each["kind"] == "HTTPRoute" for each in objects)
        text = yaml.safe_dump_all(objects)
        expressions += text.count("(?i)")
        context = stage.serving(*stage.beside, _CLASS, text)
        refused += not_accepted(context)
        results += [judged(stage, made, "", asked(made)) for made in some if carried(made)]
    report(results)
    sys.stdout.write(f"{routes} HTTPRoutes with {expressions} expressions of (?i); refused are:\n")
    for reason, count in Counter(re.sub(r"h\d+-\S+", "*", each) for each in refused).items():
        sys.stdout.write(f"{count:4}  {reason}\n")
    return 1 if any(each.verdict != "same" for each in results) else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_, moving_stage(Path(folder_)) as stage_:
        sys.exit(main(stage_, Path(folder_), int(sys.argv[1]) if len(sys.argv) > 1 else 1))
