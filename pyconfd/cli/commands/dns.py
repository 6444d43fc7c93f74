"""``pyconfd dns``: names in Route 53 that follow the nodes that can serve. It needs nothing of the daemon."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from pyconfd.cli.command import CommandContext, command, command_group, json_option
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import aligned, print_json, print_text
from pyconfd.dns import commands, service
from pyconfd.dns.commands import PlannedName
from pyconfd.errors import RejectedInput, TransientError

_EXITS = {
    Exit.OK: "done, or there was nothing to do",
    Exit.FAILED: "a record that pyconfd did not write is in the way, or a last record stays",
    Exit.TEMPORARY: "Route 53 or the source of this node's address does not answer",
}


dns = command_group(
    "dns",
    "Publish this node's names in Route 53.\n\n"
    "They point at exactly the nodes that can serve. Never the last record is taken out, never a"
    " record that pyconfd did not write is touched. The settings are in [dns]; docs/route53.md says what AWS needs.",
    examples={
        "pyconfd dns plan": "what would be changed now",
        "pyconfd dns status": "whose records are there",
        "pyconfd dns withdraw --wait": "before this node is stopped",
    },
    exits=_EXITS,
)

dns_command = partial(command, group=dns, exits=_EXITS)


@command(
    examples={"pyconfd dns run": "what pyconfd-dns.service runs"},
    exits={
        Exit.OK: "it was asked to stop",
        Exit.TEMPORARY: "another process keeps the names of this node",
        Exit.BUG: "a bug; systemd starts it again",
    },
    group=dns,
)
@click.option("--child-of", type=int, default=0, hidden=True)
def run(context: CommandContext, child_of: int) -> int:
    """Keep the names in step with this node until asked to stop, which changes nothing; SIGHUP reads the settings."""
    return service.run(context.resolve(), child_of=child_of)


@command(
    exits={
        Exit.OK: "the same",
        Exit.CHANGES: "it differs",
        Exit.FAILED: "a name is blocked, or Route 53 does not answer",
    },
    group=dns,
)
@json_option
def plan(context: CommandContext, *, as_json: bool) -> int:
    """Print what the service would change now, name by name; change nothing."""
    found = commands.plan_names(context.settings())
    _print(found, as_json=as_json)
    try:
        _demand(found)
    except TransientError as error:  # 1 is an error here, whatever may help
        raise RejectedInput(*error.problems) from error
    states = {item.state for item in found}
    if "blocked" in states:
        return Exit.FAILED
    return Exit.CHANGES if "changes" in states else Exit.OK


@command(
    exits={
        Exit.OK: "this node is in, or out on purpose",
        Exit.FAILED: "it cannot serve, or a name is stuck",
        Exit.NOT_RUNNING: "the service does not run",
        Exit.TEMPORARY: "Route 53 does not answer",
    },
    group=dns,
)
@json_option
def status(context: CommandContext, *, as_json: bool) -> int:
    """Print whose records are there, and what this node thinks.

    The records of each name with the node of each, and whether this node can serve.
    """
    found, error = commands.status(context.settings())
    known = found["service"]
    if as_json:
        print_json(found)
    else:
        for line in _status_lines(found):
            print_text(line)
    if error:
        raise error
    if not known["running"]:
        return Exit.NOT_RUNNING
    stuck = bool(known["refused"]) or any(item["problem"] for item in known["names"])
    out = not known["active"] and not known["withdrawn_by_command"]
    return Exit.FAILED if stuck or out else Exit.OK


@dns_command(
    examples={
        "pyconfd dns withdraw --wait": "returns when no resolver has the address any more",
        "pyconfd dns withdraw --wait --until-boot": "what the unit does at shutdown",
    },
)
@click.option("--wait", is_flag=True, help="Wait for as long as an answer may be kept (dns.ttl_s, or a name's own).")
@click.option("--until-boot", is_flag=True, help="Only until the next boot.")
@json_option
def withdraw(context: CommandContext, *, as_json: bool, wait: bool, until_boot: bool) -> int:
    """Remove this node's records until `pyconfd dns publish`.

    They are removed from every name, and stay away after a reboot too. The last records of a name stay.
    """
    found = commands.withdraw(context.settings(), until_boot=until_boot)
    _print(found, as_json=as_json)
    if wait:
        # Somebody, the service say, may have withdrawn it a moment ago: an answer of then counts too.
        out = (item.ttl_s for item in found if item.state in {"in step", "changes"})
        time.sleep(max(out, default=0))
    return _outcome(found)


@dns_command()
@json_option
def publish(context: CommandContext, *, as_json: bool) -> int:
    """Publish this node again, at once where it can serve."""
    found = commands.publish(context.settings())
    return _report(found, as_json=as_json)


@dns_command(examples={"pyconfd dns adopt lb.example.com": ""})
@click.argument("name", metavar="NAME")
@json_option
def adopt(context: CommandContext, name: str, *, as_json: bool) -> int:
    """Adopt the records that are at a name.

    These are plain address records that are there already; or change the name's mode. Every address stays in the answer
    until its node publishes it, or `pyconfd dns forget adopted:ADDRESS` takes it out.
    """
    found = commands.adopt(context.settings(), name)
    return _report(found, as_json=as_json)


@dns_command(examples={"pyconfd dns drop old.example.com": ""})
@click.argument("name", metavar="NAME")
@json_option
def drop(context: CommandContext, name: str, *, as_json: bool) -> int:
    """Delete all records of a name that is no longer kept.

    Every record that pyconfd has there, the last one too: the name is answered no more. Refused while the settings or
    the annotation of this node have it. A name that had settings of its own is found with the same: --dns-owner,
    --dns-zone-id, --dns-private.
    """
    found = (commands.drop(context.settings(), name),)
    return _report(found, as_json=as_json)


@dns_command(examples={"pyconfd dns forget lb-3": "a node that was thrown away"})
@click.argument("node", metavar="NODE")
@json_option
def forget(context: CommandContext, node: str, *, as_json: bool) -> int:
    """Delete the records of a node that will not come back.

    They are deleted from every name. A node that runs publishes them again: there, use withdraw.
    """
    found = commands.forget(context.settings(), node)
    return _report(found, as_json=as_json)


def _demand(found: Sequence[PlannedName]) -> None:
    """Raise the first error, once all that is known was printed."""
    for item in found:
        if item.error:
            raise item.error


def _report(found: Sequence[PlannedName], *, as_json: bool) -> Exit:
    _print(found, as_json=as_json)
    return _outcome(found)


def _outcome(found: Sequence[PlannedName]) -> Exit:
    _demand(found)
    return Exit.FAILED if any(item.state in {"blocked", "kept"} for item in found) else Exit.OK


def _print(found: Sequence[PlannedName], *, as_json: bool) -> None:
    if as_json:
        print_json([item.values for item in found])
        return
    for line in aligned([("NAME", "ZONE", "STATE"), *((item.name, item.zone_id, item.state) for item in found)]):
        print_text(line)
    for item in found:
        for text in item.lines:
            print_text(f"  {item.name}: {text}")


def _status_lines(found: Mapping[str, Any]) -> list[str]:
    rows = [("NAME", "TYPE", "ADDRESS", "NODE", "TTL")]
    for name in found["names"]:
        for record in name["records"]:
            doubt = name["doubts"].get(record["node"])
            node = record["node"] or f"not pyconfd's {record['identifier']}".rstrip()
            whose = f"{node} (doubted by {doubt})" if doubt else node
            rows.append((name["name"], record["type"], record["value"], whose, str(record["ttl_s"] or "")))
        if not name["records"]:
            rows.append((name["name"], "", "(not known)" if name["problem"] else "(no address)", "", ""))
    not_taken = ", ".join(found["not_taken"])
    hint = [f"The annotation asks for {not_taken}: not taken, since dns.annotation_suffixes is empty"]
    lines = [_service_line(found["service"]), "", *aligned(rows), *_troubles(found["service"])]
    lines += [f"{name['name']}: {name['problem']}" for name in found["names"] if name["problem"]]
    return [*lines, *(["", *hint] if not_taken else [])]


def _service_line(service: Mapping[str, Any]) -> str:
    if not service["running"]:
        return f"The service does not run: systemctl status {service['unit']}"
    if service["withdrawn_by_command"]:
        return f"{service['node']}: withdrawn by command; pyconfd dns publish lets it in"
    addresses = dict.fromkeys(address for item in service["names"] for address in item["addresses"])
    why = f": {'; '.join(service['reasons'])}" if service["reasons"] else ""
    return f"{service['node']} ({', '.join(addresses)}): {_IS[service['active']]}{why}"


_IS = {True: "in", False: "out", None: "not decided yet"}


def _troubles(service: Mapping[str, Any]) -> list[str]:
    """Return what is other than the first line says, and what is stuck."""
    if not service["running"]:
        return []
    found = [service["problem"]] if service["problem"] else []
    for item in service["names"]:
        more = [why for why in item["reasons"] if why not in service["reasons"]]
        said = [f"{_IS[item['active']]}: {'; '.join(more)}"] if more else []
        said += ["the annotation has it no more"] if item["dropped"] else []
        found += [f"{item['name']}: {text}" for text in (*said, item["problem"], *item["kept"]) if text]
    found += [f"{name}: refused: {why}" for name, why in service["refused"].items()]
    return ["", *found] if found else []
