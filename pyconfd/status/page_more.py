"""What the page shows on request only, out of the status: bounded, whatever the cluster has."""

from typing import Any

from pyconfd.model.hold import command_of
from pyconfd.model.status import Status
from pyconfd.status.redaction import public_value

SHOWN = 100
"""Of each list."""


def more_of(status: Status) -> dict[str, Any]:
    """Return held changes, quarantine, former workers, API servers, names in DNS, targets and certificates."""
    former, hold = status.applying.former, status.hold
    names = status.dns_names or ()
    certificates = sorted(status.certificates, key=lambda each: each.not_after or float("inf"))
    document = {
        "held": [{"text": str(hold.problem) if hold else "a change is held", "command": command_of(status.hold_id)}]
        if status.hold_id
        else [],
        "quarantine": [
            {"about": str(each.ref), "text": each.detail, "since": round(each.since)}
            for each in status.quarantine.now[:SHOWN]
        ],
        "quarantine_total": len(status.quarantine.now),
        "former_workers": {
            "count": former.count,
            "connections": former.connections,
            "oldest_since": round(former.oldest_since),
            "last_ends_at": round(former.last_ends_at),
            "ended": status.applying.last_ended.words if status.applying.last_ended else "",
        },
        "api_servers": [
            {
                "url": each.url,
                "in_use": each.in_use,
                "healthy": each.healthy,
                "last_ok_at": round(each.last_ok_at),
                "error": each.last_error,
            }
            for each in (*status.source.api_servers, *status.source.etcd)
        ],
        "dns_names": list(names[:SHOWN]),
        "dns_names_total": None if status.dns_names is None else len(names),
        "targets": [
            {
                "name": each.name,
                "phase": each.phase.value,
                "applied_at": round(each.applied_at),
                "problems": list(each.problems[:3]),
            }
            for each in status.targets[:SHOWN]
        ],
        "certificates": [
            {"host": each.host, "of": f"{each.namespace}/{each.secret}", "not_after": each.not_after}
            for each in certificates[:SHOWN]
        ],
        "certificates_total": len(certificates),
    }
    public: dict[str, Any] = public_value(document)
    return public
