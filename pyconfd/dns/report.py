"""The service's report: a document for ``pyconfd dns status``, and metrics for the node exporter."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import structlog

from pyconfd.dns.agent import NameState
from pyconfd.errors import TransientError, first_line
from pyconfd.settings import Settings
from pyconfd.system.files import replace_shared

log = structlog.get_logger(__name__)

REPORT = "dns-status.json"
METRICS = "dns.prom"
"""Names of files in the runtime directory."""
REPORT_EVERY_S = 10.0


def write_report(runtime_dir: str, document: Mapping[str, Any]) -> None:
    """Write the report and the metrics; a full disk is logged, and stops nothing."""
    text = json.dumps(document, indent=2) + "\n"
    # The collector of metrics is neither this user nor of its group.
    for name, content, mode in ((REPORT, text, 0o640), (METRICS, metrics(document), 0o644)):
        try:
            replace_shared(str(Path(runtime_dir) / name), content.encode(), mode=mode)
        except TransientError as error:
            log.warning("file.refused", problem=first_line(error.problems))


def report(settings: Settings) -> dict[str, Any]:
    """Return the last report, and as ``running`` whether the service lives and wrote it lately."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        values = json.loads((Path(settings.runtime_dir) / REPORT).read_text())
        # A turn that hangs in Route 53 takes no longer than its requests.
        fresh = abs(time.time() - values["at"]) < 3 * (REPORT_EVERY_S + settings.dns.timeout_s)
        return {**values, "running": fresh and psutil.pid_exists(values["pid"])}
    return {"running": False}


def name_values(state: NameState) -> dict[str, Any]:
    """Return the report of one name."""
    node = state.want.node
    return {
        "name": state.spec.name,
        "private": state.spec.private,
        "in_step": state.plan is not None and state.plan.in_step and state.problem is None,
        "kept": list(state.plan.kept) if state.plan else [],
        "problem": str(state.problem or ""),
        "addresses": [address for address in (node.v4, node.v6) if address],
        "read_at": state.read_at,
        "changed_at": state.changed_at,
        "changes_total": state.changes_total,
        "failures_total": state.failures_total,
        "forgotten_total": state.forgotten_total,
    }


def line(document: Mapping[str, Any]) -> str:
    """Return a report in one line, for ``systemctl status``."""
    names = document["names"]
    stuck = [f"{item['name']}: {item['problem']}" for item in names if item["problem"]]
    if document["withdrawn_by_command"]:
        where = "withdrawn by command"
    else:
        words = {True: "in", False: "out", None: "not decided yet"}
        where = "; ".join([words[document["active"]], *document["reasons"]])
    in_step = sum(item["in_step"] for item in names)
    return "; ".join([f"{where}; {in_step} of {len(names)} names in step", *stuck[:1]])


def metrics(document: Mapping[str, Any]) -> str:
    """Return a report in Prometheus' text format."""
    return "\n".join(_metrics(document)) + "\n"


_OF_NODE = (
    ("report_timestamp_seconds", "gauge", lambda it: f"{it['at']:.3f}"),
    ("active", "gauge", lambda it: int(it["active"] is True)),
    ("withdrawn_by_command", "gauge", lambda it: int(it["withdrawn_by_command"])),
    ("troubles", "gauge", lambda it: int(bool(it["problem"]))),
    ("names", "gauge", lambda it: len(it["names"])),
    ("refused_names", "gauge", lambda it: len(it["refused"])),
    ("requests_total", "counter", lambda it: it["requests_total"]),
)
_OF_NAME = (
    ("name_active", "gauge", lambda it: int(it["active"] is True)),
    ("name_in_step", "gauge", lambda it: int(it["in_step"])),
    ("name_stuck", "gauge", lambda it: int(bool(it["problem"]))),
    ("name_kept", "gauge", lambda it: int(bool(it["kept"]))),
    ("name_read_timestamp_seconds", "gauge", lambda it: f"{it['read_at']:.3f}"),
    ("name_changed_timestamp_seconds", "gauge", lambda it: f"{it['changed_at']:.3f}"),
    ("changes_total", "counter", lambda it: it["changes_total"]),
    ("failures_total", "counter", lambda it: it["failures_total"]),
    ("forgotten_nodes_total", "counter", lambda it: it["forgotten_total"]),
)


def _metrics(document: Mapping[str, Any]) -> Iterator[str]:
    for metric, kind, value in _OF_NODE:
        yield f"# TYPE pyconfd_dns_{metric} {kind}"
        yield f"pyconfd_dns_{metric} {value(document)}"
    for metric, kind, value in _OF_NAME:
        yield f"# TYPE pyconfd_dns_{metric} {kind}"
        for item in document["names"]:
            zone = "private" if item["private"] else "public"
            yield f'pyconfd_dns_{metric}{{name="{item["name"]}",zone="{zone}"}} {value(item)}'
