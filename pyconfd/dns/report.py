"""The service's report: a document for ``pyconfd dns status``, and metrics for the node exporter."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import structlog

from pyconfd.dns.agent import NameState
from pyconfd.errors import TransientError, first_line
from pyconfd.settings import Settings
from pyconfd.system.files import replace_shared
from pyconfd.system.textfile import exposition

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
    names = [
        (f'name="{each["name"]}",zone="{"private" if each["private"] else "public"}"', each)
        for each in document["names"]
    ]
    families: dict[str, list[tuple[str, object]]] = {
        "report_timestamp_seconds": [("", f"{document['at']:.3f}")],
        "active": [("", int(document["active"] is True))],
        "withdrawn_by_command": [("", int(document["withdrawn_by_command"]))],
        "troubles": [("", int(bool(document["problem"])))],
        "names": [("", len(names))],
        "refused_names": [("", len(document["refused"]))],
        "requests_total": [("", document["requests_total"])],
        "name_active": [(of, int(each["active"] is True)) for of, each in names],
        "name_in_step": [(of, int(each["in_step"])) for of, each in names],
        "name_stuck": [(of, int(bool(each["problem"]))) for of, each in names],
        "name_kept": [(of, int(bool(each["kept"]))) for of, each in names],
        "name_read_timestamp_seconds": [(of, f"{each['read_at']:.3f}") for of, each in names],
        "name_changed_timestamp_seconds": [(of, f"{each['changed_at']:.3f}") for of, each in names],
        "changes_total": [(of, each["changes_total"]) for of, each in names],
        "failures_total": [(of, each["failures_total"]) for of, each in names],
        "forgotten_nodes_total": [(of, each["forgotten_total"]) for of, each in names],
    }
    return exposition("pyconfd_dns", families)
