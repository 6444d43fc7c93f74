"""What the running process answers about servers, maps and certificates, against what it was told. Pure."""

import hashlib
import ipaddress
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyconfd.model.plan import (
    AddCertificate,
    AddMapEntries,
    AddServer,
    ChangeMapEntries,
    Command,
    RemoveMapEntries,
    RemoveServer,
    ReplaceMap,
    ServerState,
    SetState,
    SetWeight,
    UpdateCertificate,
)


@dataclass(frozen=True, slots=True)
class ServerNow:
    """A server as ``show servers state`` gives it. ``maint`` and ``drain`` are those that were asked for by command."""

    backend: str
    name: str
    address: str
    port: int
    weight: int
    maint: bool
    drain: bool
    id: int = 0
    initial_weight: int = 1
    operating: int = 2

    @property
    def target(self) -> str:
        """Address and port as a server line has them."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


_MAINT = 0x01
_DRAIN = 0x08
"""Forced maintenance and drain; 0x04 only remembers that a server began disabled, also when it is ready since.

Source: ``enum srv_admin`` in HAProxy 2.6 to 3.4.
"""

_COLUMNS = ("be_name", "srv_name", "srv_addr", "srv_port", "srv_uweight", "srv_admin_state")
_MORE_COLUMNS = ("srv_id", "srv_iweight", "srv_op_state")


def servers_now(answer: str) -> Iterator[ServerNow]:
    """Read ``show servers state``; raises ValueError where it is something else."""
    rows = answer.split("\n")
    header = next((row for row in rows if row.startswith("# be_id ")), None)
    if header is None:
        raise ValueError(answer.strip()[:200] or "an empty answer")
    names = header[2:].split(" ")
    places = [names.index(name) for name in (*_COLUMNS, *_MORE_COLUMNS)]
    for row in rows[rows.index(header) + 1 :]:
        fields = row.split(" ")
        if len(fields) >= len(names):
            backend, name, address, port, weight, admin, number, initial, operating = (fields[at] for at in places)
            state = int(admin)
            yield ServerNow(
                backend,
                name,
                address,
                int(port),
                int(weight),
                bool(state & _MAINT),
                bool(state & _DRAIN),
                int(number),
                int(initial),
                int(operating),
            )


def fingerprint(pem: str) -> str:
    """Give the SHA-1 of the first certificate, as ``show ssl cert`` prints it; "" where there is none."""
    found = re.search(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", pem, re.DOTALL)
    if found is None:
        return ""
    return hashlib.sha1(ssl.PEM_cert_to_DER_cert(found[0])).hexdigest().upper()  # noqa: S324 - what haproxy prints


def checks_of(commands: Sequence[Command]) -> list[str]:
    """Give the questions whose answers show whether ``commands`` took effect."""
    backends = dict.fromkeys(
        command.backend for command in commands if isinstance(command, AddServer | RemoveServer | SetWeight | SetState)
    )
    asked = [f"show servers state {backend}" for backend in backends]
    for command in commands:
        if isinstance(command, AddMapEntries | ChangeMapEntries):
            asked += [f"get map {command.path} {key}" for key, _ in command.entries]
        elif isinstance(command, RemoveMapEntries):
            asked += [f"get map {command.path} {key}" for key in command.keys]
        elif isinstance(command, ReplaceMap):
            asked.append("show map")
        elif isinstance(command, UpdateCertificate | AddCertificate):
            asked.append(f"show ssl cert {command.path}")
    return list(dict.fromkeys(asked))


def unfulfilled(commands: Sequence[Command], answers: Mapping[str, str]) -> str:
    """Give what is not as the commands wanted it, by the answers to :func:`checks_of`; "" where all is."""
    servers: dict[tuple[str, str], ServerNow] = {}
    try:
        for question, answer in answers.items():
            if question.startswith("show servers state"):
                servers |= {(one.backend, one.name): one for one in servers_now(answer)}
    except ValueError as error:
        return f"its state cannot be read: {error}"
    final: dict[tuple[str, str], dict[type, Command]] = {}
    for command in commands:
        if isinstance(command, AddServer | RemoveServer | SetWeight | SetState):
            final.setdefault((command.backend, command.server), {})[type(command)] = command
    for key, wanted in final.items():
        if why := _wrong_server(servers.get(key), wanted):
            return f"server {'/'.join(key)} {why}"
    return _wrong_file(commands, answers)


def _wrong_server(now: ServerNow | None, wanted: Mapping[type, Command]) -> str:
    if RemoveServer in wanted:
        return "" if now is None or now.drain or now.maint else "still takes traffic"
    if now is None:
        return "is not there"
    found = (_wrong_value(now, command, wanted) for command in wanted.values())
    return next((why for why in found if why), "")


def _wrong_value(now: ServerNow, command: Command, wanted: Mapping[type, Command]) -> str:
    """Judge one of the commands ``wanted`` for a server; a later one of another kind may have changed its effect."""
    if isinstance(command, AddServer) and (why := wrong_address(now, command.address)):
        return why
    if isinstance(command, AddServer) and SetState not in wanted and now.maint != command.disabled:
        return "is in maintenance" if now.maint else "is not in maintenance"
    if isinstance(command, SetState) and state_of(now) is not command.state:
        return f"is in the state {state_of(now)}"
    weight = command.weight if isinstance(command, SetWeight | AddServer) else now.weight
    if now.weight != weight and (isinstance(command, SetWeight) or SetWeight not in wanted):
        return f"has the weight {now.weight}"
    return ""


def state_of(now: ServerNow) -> ServerState:
    """Give the state that was asked for by command; what health checks found is none."""
    if now.maint:
        return ServerState.MAINT
    return ServerState.DRAIN if now.drain else ServerState.READY


def wrong_address(now: ServerNow, target: str) -> str:
    """Give "" where a server has the address of a server line, else which one it has."""
    host, _, port = target.rpartition(":")
    host = host.rpartition("@")[2].strip("[]")
    if (now.port, _canonical(now.address)) == (int(port) if port.isdigit() else 0, _canonical(host)):
        return ""
    return f"has the address {now.address}:{now.port}"


def _canonical(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address


def _wrong_file(commands: Sequence[Command], answers: Mapping[str, str]) -> str:
    for command in commands:
        if isinstance(command, AddMapEntries | ChangeMapEntries | RemoveMapEntries):
            why = _wrong_entries(command, answers)
        elif isinstance(command, ReplaceMap):
            why = _wrong_count(command, answers["show map"])
        elif isinstance(command, UpdateCertificate | AddCertificate):
            shown = answers[f"show ssl cert {command.path}"].replace(":", "").upper()
            why = "" if fingerprint(command.pem) in shown else f"certificate {command.path} is another one"
        else:
            continue
        if why:
            return why
    return ""


def _wrong_entries(command: AddMapEntries | ChangeMapEntries | RemoveMapEntries, answers: Mapping[str, str]) -> str:
    if isinstance(command, RemoveMapEntries):
        still = (key for key in command.keys if f'key="{key}"' in answers[f"get map {command.path} {key}"])
        return next((f"map {command.path} still has {key}" for key in still), "")
    for key, value in command.entries:
        if f'value="{value}"' not in answers[f"get map {command.path} {key}"]:
            return f"map {command.path} does not give {value} for {key}"
    return ""


def _wrong_count(command: ReplaceMap, answer: str) -> str:
    pattern = re.compile(rf"\({re.escape(command.path)}\).*?entry_cnt=(\d+)")
    found = pattern.search(answer)
    count = int(found[1]) if found else -1
    return "" if count == len(command.entries) else f"map {command.path} has {count} entries"
