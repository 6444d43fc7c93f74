"""What systemd knows about HAProxy's unit: with which flags, environment and identity it runs."""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pyconfd.errors import Problem, TransientError
from pyconfd.settings import HaproxySettings
from pyconfd.system.command import run

SYSTEMD_RUNS = "/run/systemd/system"
"""Exists when systemd is the service manager. Source: sd_booted(3)."""

PROPERTIES = "LoadState,User,Group,Environment,EnvironmentFiles,ExecStart,AmbientCapabilities,MainPID"
_ROOT = frozenset({"", "root", "0"})


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """``found`` is False where there is no systemd or no such unit; then the rest is empty.

    ``user`` is "" for root; ``configurations`` are the ``-f`` arguments of ``ExecStart`` with its variables put in;
    ``low_ports`` tells whether it may bind ports below 1024; ``main_pid`` was its process when it was asked.
    """

    name: str = ""
    found: bool = False
    user: str = ""
    group: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    configurations: tuple[str, ...] = ()
    master_worker_flag: str = ""
    master_socket: str = ""
    pid_file: str = ""
    low_ports: bool = True
    main_pid: int = 0


def gather(name: str) -> UnitFacts:
    """Ask systemd about the unit ``name``; a host without systemd gives empty facts."""
    if not name or not Path(SYSTEMD_RUNS).is_dir() or not shutil.which("systemctl"):
        return UnitFacts(name)
    try:
        result = run(["systemctl", "show", name, "--property", PROPERTIES], timeout_s=10.0)
    except TransientError:
        return UnitFacts(name)
    return parse(name, result.output, _read_environment_file) if result.ok else UnitFacts(name)


def _read_environment_file(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""


def parse(name: str, shown: str, read: Callable[[str], str]) -> UnitFacts:
    """Understand what ``systemctl show`` printed; ``read`` gives the text of an environment file, "" if unreadable."""
    properties: dict[str, list[str]] = {}
    for line in shown.splitlines():
        key, found, value = line.partition("=")
        if found:
            properties.setdefault(key, []).append(value)
    if properties.get("LoadState") != ["loaded"]:
        return UnitFacts(name)
    environment = dict(_assignments(_words(" ".join(properties.get("Environment", [])))))
    for value in properties.get("EnvironmentFiles", []):
        environment.update(environment_file(read(value.partition(" (")[0])))
    argv = _command(properties.get("ExecStart", []), environment)
    user = next(iter(properties.get("User", [])), "")
    capabilities = " ".join(properties.get("AmbientCapabilities", []))
    main_pid = next(iter(properties.get("MainPID", [])), "")
    return UnitFacts(
        name,
        found=True,
        user="" if user in _ROOT else user,
        group=next(iter(properties.get("Group", [])), ""),
        environment=MappingProxyType(environment),
        configurations=tuple(_values(argv, "-f")),
        master_worker_flag=next((word for word in argv if word in {"-W", "-Ws"}), ""),
        master_socket=next(_values(argv, "-S"), "").partition(",")[0].removeprefix("unix@"),
        pid_file=next(_values(argv, "-p"), ""),
        low_ports=user in _ROOT or "cap_net_bind_service" in capabilities.lower(),
        main_pid=int(main_pid) if main_pid.isdecimal() else 0,
    )


def environment_file(text: str) -> dict[str, str]:
    """Read the assignments of an ``EnvironmentFile=``; comments, quotes and continued lines as systemd has them."""
    found: dict[str, str] = {}
    for line in text.replace("\\\n", "").splitlines():
        if not line.lstrip().startswith(("#", ";")):
            key, equals, value = line.strip().partition("=")
            if equals and key.isidentifier():
                found[key] = " ".join(_words(value))
    return found


def problems(settings: HaproxySettings, facts: UnitFacts) -> tuple[Problem, ...]:
    """Return where the unit and the settings disagree, so that what pyconfd writes would never be loaded."""
    if not facts.found or not facts.configurations:
        return ()
    conf = os.path.realpath(settings.conf)
    for loaded in facts.configurations:
        real = os.path.realpath(loaded)
        if conf == real or (Path(real).is_dir() and Path(conf).parent == Path(real)):
            return ()
    return (
        Problem(
            facts.name,
            f"loads {' '.join(facts.configurations)} but pyconfd writes {settings.conf}",
            f"put CONFIG={settings.conf} in /etc/default/haproxy and restart {facts.name}, or set haproxy.conf",
        ),
    )


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _assignments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            yield key, value


def _command(exec_start: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the words of the first command; ``$NAME`` alone becomes several words, ``${NAME}`` stays one."""
    found = re.search(r"argv\[\]=(.*?) ;", exec_start[0]) if exec_start else None
    argv: list[str] = []
    for word in _words(found[1]) if found else []:
        if whole := re.fullmatch(r"\$(\w+)", word):
            argv += _words(environment.get(whole[1], ""))
        else:
            argv.append(re.sub(r"\$\{(\w+)\}", lambda name: environment.get(name[1], ""), word))
    return argv


def _values(argv: Sequence[str], option: str) -> Iterator[str]:
    for position, word in enumerate(argv[:-1]):
        if word == option:
            yield argv[position + 1]
