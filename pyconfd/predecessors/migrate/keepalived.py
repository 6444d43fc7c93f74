"""keepalived.conf of a predecessor to a proposal for ``[vip]``."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pyconfd.predecessors.migrate.report import Effect, Findings

_NUMBER = re.compile(r"\d+")


@dataclass(slots=True)
class KeepalivedBlock:
    """``words`` before the brace, its lines (words and line number), and the blocks in it."""

    words: tuple[str, ...]
    line: int
    lines: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    blocks: list["KeepalivedBlock"] = field(default_factory=list)

    def value(self, name: str) -> str:
        """Return the word after ``name``; "" if there is none."""
        return next((words[1] for words, _line in self.lines if words[0] == name and len(words) > 1), "")

    def line_of(self, name: str) -> int:
        """Return the line of ``name``; that of the block if it has none."""
        return next((line for words, line in self.lines if words[0] == name), self.line)

    def block(self, name: str) -> "KeepalivedBlock | None":
        """Return the block of a name."""
        return next((block for block in self.blocks if block.words[:1] == (name,)), None)


def is_keepalived(text: str) -> bool:
    """Return whether a text is a configuration of keepalived."""
    return bool(re.search(r"^\s*(vrrp_instance|global_defs|vrrp_script)\b", text, re.MULTILINE))


def parse(text: str) -> KeepalivedBlock:
    """Return the blocks; braces that do not match end with the text."""
    root = KeepalivedBlock((), 0)
    stack = [root]
    for number, line in enumerate(text.splitlines(), start=1):
        bare = re.split(r"[#!]", line, maxsplit=1)[0]
        for part in filter(None, (piece.strip() for piece in re.split(r"([{}])", bare))):
            if part == "{":
                last = stack[-1].lines.pop() if stack[-1].lines else ((), number)
                block = KeepalivedBlock(last[0], last[1])
                stack[-1].blocks.append(block)
                stack.append(block)
            elif part == "}":
                del stack[max(1, len(stack) - 1) :]
            else:
                stack[-1].lines.append((tuple(part.split()), number))
    return root


def propose(text: str, findings: Findings) -> str:
    """Return a commented-out ``[vip]`` for each instance, and say what differs."""
    instances = [block for block in parse(text).blocks if block.words[:1] == ("vrrp_instance",)]
    if not instances:
        findings.add(0, Effect.LEFT, "there is no vrrp_instance in it")
        return ""
    lines = [
        f"# From {findings.file}: a proposal for [vip]. It is commented out, since the nodes' own names and addresses",
        "# have to be filled in; `pyconfd vip config` then prints keepalived's file for each node.",
    ]
    for instance in instances:
        lines += ["", *(f"# {line}" for line in _proposal(instance))]
        _remarks(instance, findings)
    return "\n".join(lines) + "\n"


def _proposal(instance: KeepalivedBlock) -> Iterator[str]:
    addresses = instance.block("virtual_ipaddress")
    peers = instance.block("unicast_peer")
    yield "[vip]"
    yield f"interface = {json.dumps(instance.value('interface'))}"
    yield f"virtual_router_id = {_number(instance.value('virtual_router_id'))}"
    yield f"addresses = {json.dumps([words[0] for words, _line in addresses.lines] if addresses else [])}"
    own = instance.value("unicast_src_ip")
    others = [words[0] for words, _line in peers.lines] if peers else []
    yield f"# the nodes in the order in which they shall hold it (priority here: {_number(instance.value('priority'))})"
    for number, address in enumerate([own, *others] if others else [own, ""], start=1):
        yield "[[vip.nodes]]"
        yield f'name = "node-{number}"'
        yield f"addresses = {json.dumps([address] if address else [])}"


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0


def _remarks(instance: KeepalivedBlock, findings: Findings) -> None:
    if instance.value("state").upper() == "MASTER":
        message = (
            "state MASTER: with it on both nodes they fight for the address at start; all nodes begin as BACKUP now,"
            " the order of nodes decides"
        )
        findings.add(instance.line_of("state"), Effect.CHANGED, message)
    if instance.value("priority"):
        message = "priority: becomes the place in nodes; two equal ones leave it to the higher IP address"
        findings.add(instance.line_of("priority"), Effect.CHANGED, message)
    if authentication := instance.block("authentication"):
        message = (
            "authentication: VRRP version 3 has none, and the PASS of version 2 was readable on the wire; let protocol"
            " 112 in from the peers only"
        )
        findings.add(authentication.line, Effect.CHANGED, message)
    if not instance.block("track_script") and not instance.block("track_process"):
        message = "no track_script: the death of HAProxy did not move the address; pyconfd's hook watches it"
        findings.add(instance.line, Effect.CHANGED, message)
    for name in ("notify", "notify_master", "notify_backup", "notify_fault"):
        if instance.value(name):
            message = f"{name} {instance.value(name)}: not called any more; the predecessor's script did nothing"
            findings.add(instance.line_of(name), Effect.CHANGED, message)
    _missing(instance, findings)


def _missing(instance: KeepalivedBlock, findings: Findings) -> None:
    for name in ("interface", "virtual_router_id"):
        value = instance.value(name)
        if not value or "<" in value:
            findings.add(instance.line_of(name), Effect.LEFT, f"{name} {value or 'is missing'}: fill it in")
    addresses = instance.block("virtual_ipaddress")
    if addresses is None or not addresses.lines:
        findings.add(instance.line, Effect.LEFT, "virtual_ipaddress is missing: fill in addresses")
    elif any("<" in words[0] for words, _line in addresses.lines):
        findings.add(addresses.line, Effect.LEFT, "virtual_ipaddress has a placeholder: fill in addresses")
