"""Looks at the HAProxy of this machine before anything is started; changes nothing."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from pyconfd.haproxy.config.certificates import expiry_of, fault_of, leaf_expiry
from pyconfd.haproxy.config.index import index_of
from pyconfd.haproxy.config.text import certificate_lists, sections_of, stats_sockets
from pyconfd.haproxy.process import unit as systemd
from pyconfd.haproxy.process.check import haproxy_features, haproxy_version
from pyconfd.haproxy.process.haproxy_process import HaproxyProcess
from pyconfd.haproxy.process.layout import Layout
from pyconfd.haproxy.process.observation import NotRunning, Running, RunningState
from pyconfd.haproxy.runtime.runtime import Runtime
from pyconfd.model.finding import Finding, Level, findings_of
from pyconfd.model.rendering import FileKind, Rendering
from pyconfd.settings import HaproxySettings, ReloadMethod
from pyconfd.system.files import READ_ONLY_REMEDY, exists, is_directory, is_read_only

LIVE_SINCE = (2, 6)
"""The first version whose servers can be added and removed while it runs."""

EXPIRY_WARNING_S = 30 * 86400.0
FIRST_START = "# pyconfd: nothing to serve yet."
"""How the text of pyconfd-haproxy-prestart begins; the runtime socket comes with the first configuration."""
_LEAST_FREE_BYTES = 64 << 20
_IDLE_CLOSE = "idle-close-on-response"
_SHOWN_FEATURES = ("OPENSSL", "OPENSSL_AWSLC", "OPENSSL_WOLFSSL", "LUA", "PCRE2", "PCRE2_JIT", "PCRE", "QUIC", "THREAD")


def program(settings: HaproxySettings) -> Iterator[Finding]:
    """Check the program, its version and its features; raises TransientError."""
    version, features = haproxy_version(settings.binary), haproxy_features(settings.binary)
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not number:
        what = f"{settings.binary} does not say a version"
        yield Finding(Level.FAILURE, "haproxy", "haproxy.binary", what, "is it HAProxy?")
        return
    shown = ", ".join(name for name in _SHOWN_FEATURES if name in features) or "none that is known"
    yield Finding.ok("haproxy", settings.binary, f"version {version}; features: {shown}")
    if number < LIVE_SINCE:
        what = f"version {version} cannot be changed while it runs: each change is a reload"
        yield Finding(Level.WARNING, "haproxy", settings.binary, what, "install HAProxy 2.6 or later")
    if features and not any(name.startswith("OPENSSL") for name in features):
        what = "it was built without TLS"
        yield Finding(Level.WARNING, "haproxy", settings.binary, what, "install a build with OpenSSL")


def process(settings: HaproxySettings, unit: systemd.UnitFacts, text: str) -> Iterator[Finding]:
    """Check what runs, and the ways to change and to reload it; ``text`` is the configuration that it has.

    Raises:
        ApplyError: there is no way to reload it.
    """
    balancer = HaproxyProcess(settings, unit)
    running = balancer.observe([text] if text else [])
    yield _running(running, settings, unit)
    wrong = (*systemd.problems(settings, unit), *balancer.problems())
    yield from findings_of(Level.FAILURE, "haproxy", wrong)
    if not wrong and unit.found:
        yield Finding.ok("haproxy", unit.name, f"loads {settings.conf}")
    if not isinstance(running, NotRunning) and not text.startswith(FIRST_START):
        yield _live(settings, text)
    yield _reloads(balancer.method(running), balancer)


def _running(running: RunningState, settings: HaproxySettings, unit: systemd.UnitFacts) -> Finding:
    if isinstance(running, Running):
        version = f", version {running.version}" if running.version else ""
        return Finding.ok("haproxy", "process", f"it runs (pid {running.worker_pid}{version})")
    if isinstance(running, NotRunning):
        how = f"start it with -W -S {settings.master_socket or 'PATH'},mode,660 -f {settings.conf}"
        what = "it does not run yet"
        if unit.found:
            # A haproxy with the unit's former command line may run: to start it would do nothing.
            how, what = f"systemctl restart {unit.name}", f"none runs that loads {settings.conf}"
        message = f"{what}; pyconfd writes the first configuration without it"
        return Finding(Level.WARNING, "haproxy", "process", message, f"{how}, as soon as there is one")
    remedy = "open the master socket to pyconfd's group: -S PATH,mode,660,group,GROUP"
    return Finding(Level.FAILURE, "haproxy", "process", f"it runs and cannot be asked: {running.why}", remedy)


def _reloads(method: ReloadMethod, balancer: HaproxyProcess) -> Finding:
    """Return how reloads go, and whether this user may."""
    what, how = "haproxy.reload_method", f"reloads go by {method.value}"
    socket = "let haproxy open its master socket to pyconfd's group: -S PATH,mode,660,group,GROUP"
    if os.geteuid() != 0 and method is ReloadMethod.SYSTEMD:
        if problem := balancer.not_restarted():
            return Finding.of(Level.WARNING, "reload", problem)
        return Finding(Level.WARNING, "reload", what, f"{how}, which needs root or a rule of polkit", socket)
    if os.geteuid() != 0 and method is ReloadMethod.SIGNAL and not _is_own(balancer.pids()):
        return Finding(Level.FAILURE, "reload", what, f"{how}, and this user may not send haproxy one", socket)
    return Finding.ok("reload", what, how)


def _is_own(pids: Iterable[int]) -> bool:
    with suppress(psutil.Error):
        return any(psutil.Process(pid).uids().real == os.geteuid() for pid in pids)
    return False


def _live(settings: HaproxySettings, text: str) -> Finding:
    paths = stats_sockets(text, settings.runtime_socket)
    runtime = Runtime()
    try:
        abilities = runtime.connect(paths)
    finally:
        runtime.close()
    if abilities.runtime:
        return Finding.ok("reload", paths[0], "most changes are applied without a reload")
    message = "every change takes a reload: the runtime socket cannot be used"
    return Finding(Level.WARNING, "reload", "runtime socket", message, abilities.why)


def directories(
    settings: HaproxySettings, unit: systemd.UnitFacts, own: Sequence[tuple[str, str]]
) -> Iterator[Finding]:
    """Check the directories that are written: HAProxy's, and ``own``, pairs of setting and path."""
    layout = Layout(settings, unit)
    wrong = layout.problems()
    yield from findings_of(Level.FAILURE, "directories", wrong)
    written = [*own, ("haproxy.files_dir", layout.files_dir)]
    if not wrong:
        written.append(("haproxy.conf", str(Path(os.path.realpath(settings.conf)).parent)))
    yield from (writable(name, path) for name, path in written)


def writable(name: str, path: str) -> Finding:
    """Return whether this user may write in a directory, or make it where it is missing."""
    place = Path(path)
    missing = not exists(place)
    while not exists(place) and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return Finding(Level.FAILURE, "directories", name, f"{place} is no directory", f"move it away, or set {name}")
    if is_read_only(place):
        message = f"{path} is on a file system that is read-only"
        return Finding(Level.FAILURE, "directories", name, message, READ_ONLY_REMEDY)
    if not os.access(place, os.W_OK | os.X_OK, effective_ids=True):
        what = f"cannot make {path}: {place} is" if missing else f"{path} is"
        give = f"install -d -o $(id -un {os.geteuid()}) {path}"
        return Finding(Level.FAILURE, "directories", name, f"{what} not writable for this user", give)
    scarce = shortage(name, path, os.statvfs(place))
    return scarce or Finding.ok("directories", name, f"{path} {'can be made' if missing else 'is writable'}")


def shortage(name: str, path: str, room: os.statvfs_result) -> Finding | None:
    """Return a finding if little space is left there, or none: then the next change fails."""
    free = room.f_bavail * room.f_frsize
    no_files = bool(room.f_files) and not room.f_favail
    if free >= _LEAST_FREE_BYTES and not no_files:
        return None
    level = Level.FAILURE if free < 1 << 20 or no_files else Level.WARNING
    message = f"{path} has {free >> 20} MiB and {room.f_favail} files left"
    return Finding(level, "directories", name, message, "make room: changes cannot be written on a full disk")


def sockets(text: str) -> Iterator[Finding]:
    """Check whether HAProxy will be able to open its sockets."""
    for path in stats_sockets(text):
        if not is_directory(Path(path).parent):
            message = f"stats socket {path}: its directory does not exist, haproxy cannot start"
            yield Finding(Level.FAILURE, "haproxy", path, message, "create it for haproxy's user")


def certificates(rendering: Rendering, now: float) -> Iterator[Finding]:
    """Check the certificates that a rendering brings, and those on disk that its binds name."""
    declared = {file.path: file.content for file in rendering.files if file.kind is FileKind.CERTIFICATE}
    for path, content in sorted(declared.items()):
        if content:
            yield _judge_certificate(path, content.encode(), now)
    lists = certificate_lists(rendering.text)
    named = index_of(rendering.text).certificate_words() - lists
    listed = {word for path in lists for word in _listed(path, {file.path: file.content for file in rendering.files})}
    for path in sorted(set(_on_disk(named | listed, declared))):
        try:
            fault = fault_of(path)
        except PermissionError:
            message = "this user may not read it; haproxy reads it as root"
            yield Finding(Level.WARNING, "certificates", path, message, "look at its expiry by hand")
            continue
        except OSError as error:
            yield Finding(Level.FAILURE, "certificates", path, f"cannot be read: {error.strerror}", "put it in place")
            continue
        if fault:
            yield Finding(Level.FAILURE, "certificates", path, fault, "put certificate and key there")
        else:
            yield _judge_certificate(path, None, now)


def _judge_certificate(path: str, pem: bytes | None, now: float) -> Finding:
    """Return when a certificate ends; ``pem`` None: it is read from ``path``."""
    try:
        ends = expiry_of(path) if pem is None else leaf_expiry(pem)
    except (OSError, ValueError) as error:
        return Finding(
            Level.FAILURE, "certificates", path, f"cannot be read: {error}", "put a certificate in PEM there"
        )
    return Finding.of_expiry("certificates", path, ends - now, due=ends - now < EXPIRY_WARNING_S)


def _on_disk(words: Iterable[str], declared: Iterable[str]) -> Iterator[str]:
    """Return the files that ``crt`` words name; what pyconfd writes itself is none of them."""
    own = {*declared, *(str(Path(path).parent) for path in declared)}
    for word in words:
        path = Path(word)
        if not path.is_absolute() or str(path).rstrip("/") in own:
            continue
        if is_directory(path) and os.access(path, os.R_OK | os.X_OK, effective_ids=True):
            yield from (str(each) for each in path.iterdir() if each.is_file() and _is_certificate(each))
        else:
            yield word


def _listed(path: str, contents: Mapping[str, str]) -> Iterator[str]:
    """Return the certificates of a list for ``crt-list``; one that cannot be read is the check's business."""
    text = contents.get(path, "")
    with suppress(OSError):
        text = text or Path(path).read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines():
        if (words := line.split()) and not words[0].startswith("#"):
            yield words[0]


def _is_certificate(path: Path) -> bool:
    """Leave out what HAProxy leaves out of a directory, and keys beside certificates."""
    return not path.name.startswith(".") and path.suffix not in {".issuer", ".ocsp", ".sctl", ".key"}


def idle_close_note(text: str) -> str:
    """Return which HTTP listeners lack ``option idle-close-on-response`` and what to do, or "" where none does.

    Source: HAProxy configuration manual, 4.2. Measured over 40 reloads: 1,084 of 47,855 requests on reused
    connections met an end of file without it, none with it.
    """
    lacking = _lacking_idle_close(text)
    if not lacking:
        return ""
    more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
    return (
        f"{', '.join(lacking[:3])}{more}: a reload closes idle keep-alive connections, and some clients' next request"
        f" fails; write `option {_IDLE_CLOSE}` into the defaults section"
    )


def _lacking_idle_close(text: str) -> list[str]:
    """Return the frontends and listens in HTTP mode that hold connections open and lack the option, in order."""
    last, named = (False, False), dict[str, tuple[bool, bool]]()
    lacking = []
    for section in sections_of(text, "defaults", "frontend", "listen"):
        http, kept = last
        if section.options[:1] == ("from",) and len(section.options) > 1:
            http, kept = named.get(section.options[1], (False, False))
        elif section.keyword == "defaults":
            http, kept = False, False
        for line in section.lines:
            if line.words[0] == "mode":
                http = line.words[1:2] == ("http",)
            elif line.words[:2] in {("option", _IDLE_CLOSE), ("option", "httpclose")}:
                kept = True
            elif line.words[:3] == ("no", "option", _IDLE_CLOSE):
                kept = False
        if section.keyword == "defaults":
            last = named[section.name] = http, kept
        elif section.keyword in {"frontend", "listen"} and http and not kept:
            lacking.append(section.title)
    return lacking
