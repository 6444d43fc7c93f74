"""``haproxy -c`` on a candidate, as HAProxy itself would read it: same flags, environment and identity.

HAProxy's messages are translated to fragments and lines, with the text there and what to do.
"""

import grp
import os
import pwd
import re
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from pyconfd.errors import Clues, Problem, RejectedInput, TransientError
from pyconfd.haproxy.config.removed import find_in_lines
from pyconfd.haproxy.config.text import (
    SECTION_KEYWORDS,
    certificate_lists,
    edit_lines,
    mark,
    passwords_in,
    sections_of,
    split_words,
)
from pyconfd.haproxy.process.unit import UnitFacts
from pyconfd.model.outcome import Step
from pyconfd.model.rendering import FileKind, OutputFile, Rendering
from pyconfd.render.invalid import did_you_mean
from pyconfd.settings import HaproxySettings
from pyconfd.system.command import CommandResult, run
from pyconfd.system.files import controlling_owner, problem_of, remove_tree, temporary_beside, write_new
from pyconfd.system.secrecy import without_secrets

_MESSAGE = re.compile(r"\[(?P<level>[A-Z]+)\]\s*(?:\S+\s+)?\(\d+\)\s*:\s*(?:config\s*:\s*)?(?P<text>.*)")
_NOISE = re.compile(
    r"Error\(s\) found in configuration file|Fatal errors found|Failed to initialize server\(s\) addr"
    r"|\[\S+\.main\(\)\] Some protocols failed to start|haproxy version is|path to executable is"
)
_HEADER = re.compile(r"^[ \t]*(?P<kind>frontend|backend|listen|defaults)[ \t]+(?P<name>[^ \t\n#]+)", re.MULTILINE)
_ACL = re.compile(r"^[ \t]*acl[ \t]+([^ \t\n]+)", re.MULTILINE)
_PROXY = re.compile(r"(?i:proxy|frontend|backend|listen|server) '?(?P<proxy>[A-Za-z0-9_.:-]+)'?")
_BESIDE = re.compile(r"(?<=already defined at )line (\d+)")
_SHOWN = 120
_ALERTS = frozenset({"ALERT", "EMERG", "CRIT", "ERROR"})


def explain_check_output(output: str, rendering: Rendering, path: str, *, warnings: bool = True) -> tuple[Problem, ...]:
    """Turn what ``haproxy -c`` or a failed start printed about the file ``path`` into problems, alerts first.

    ``place`` is the fragment and the line of what it rendered to; errors without a line are placed by the name of
    the proxy. The message shows that line. Repeated messages are given once. If HAProxy failed in words that are not
    understood, they are given as they are.
    """
    text = _Text(rendering, path)
    alerts: dict[Problem, None] = {}
    others: dict[Problem, None] = {}
    for level, message in _messages(output):
        if level in _ALERTS:
            alerts.setdefault(text.problem(message))
        elif level == "WARNING" and warnings:
            others.setdefault(text.problem(message))
    if not alerts and not others and "no listener" in output:
        alerts.setdefault(
            Problem("", "no section of the configuration has a bind", "add a fragment with a frontend and a bind")
        )
    return (*alerts, *others)


def _messages(output: str) -> Iterator[tuple[str, str]]:
    """Return level and text of each message; the lines that continue it (`` | ...``) are joined to it."""
    level, parts = "", [""]
    for line in output.split("\n"):
        if found := _MESSAGE.match(line):
            if parts[0]:
                yield level, " ".join(parts)
            level, parts = found["level"], [found["text"].strip()]
            if _NOISE.match(parts[0]) or level == "NOTICE":
                parts = [""]
        elif parts[0] and (continued := re.match(r"\s+\|\s?(.*)", line)):
            parts.append(continued[1].strip())
    if parts[0]:
        yield level, " ".join(parts)


class _Text:
    """A rendering as HAProxy read it from ``path``."""

    def __init__(self, rendering: Rendering, path: str) -> None:
        self.rendering = rendering
        self.lines = rendering.text.split("\n")
        self._passwords: frozenset[str] | None = None
        self._reference = re.compile(re.escape(path) + r":(\d+)")
        self._ends = list(accumulate(piece.text.count("\n") for piece in rendering.pieces))

    def problem(self, message: str) -> Problem:
        found = self._reference.search(message)
        number = int(found[1]) if found else self._line_by_name(message)
        line = self.lines[number - 1] if 0 < number <= len(self.lines) else ""
        clues = self._clues(number, message)
        prefix = rf"(?i:parsing |binding )?\[{self._reference.pattern}\]\s*:?\s*"
        message = re.sub(f"^{prefix}", "", message)
        shown_message = self._reference.sub(lambda one: self.place(int(one[1])), message)
        shown_message = _BESIDE.sub(lambda one: self.place(int(one[1])), shown_message)
        shown_message = shown_message.strip().rstrip(".")
        # Before it is cut: a part of a password is a secret too.
        shown_message, shown = self.public(shown_message), self.public(line.strip())
        shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
        return Problem(
            self.place(number) if line else "haproxy.cfg",
            f"{shown_message}: {shown}" if shown and shown not in shown_message else shown_message,
            self.public(self._remedy(message, line, number)),
            self._place_of(number)[0] if line else "",
            clues,
        )

    @cached_property
    def _removed(self) -> Mapping[int, str]:
        """What to write instead of directives that HAProxy no longer knows, by line: read once for all messages."""
        return {found.index + 1: str(found.replacement) for found in find_in_lines(self.lines)}

    def _clues(self, blamed: int, message: str) -> Clues:
        """Return the line that is blamed, then those that the message names beside it."""
        others = [int(found) for found in (*self._reference.findall(message), *_BESIDE.findall(message))]
        numbers = [number for number in dict.fromkeys((blamed, *others)) if 0 < number <= len(self.lines)]
        return Clues(lines=tuple(self._place_of(number) for number in numbers))

    def _place_of(self, number: int) -> tuple[str, int]:
        """Return what :meth:`Rendering.place_of` gives, fast enough for thousands of messages."""
        at = bisect_left(self._ends, number)
        if at == len(self._ends):
            return "", number
        return self.rendering.pieces[at].fragment, number - (self._ends[at - 1] if at else 0)

    def public(self, message: str) -> str:
        """Return a message without the passwords of the configuration."""
        if self._passwords is None:
            self._passwords = passwords_in(self.rendering.text)
        return without_secrets(message, self._passwords)

    def place(self, number: int) -> str:
        """Name the fragment and line that gave line ``number`` of the whole text."""
        fragment, line = self._place_of(number)
        if not fragment:
            return f"haproxy.cfg line {number}"
        return f"{fragment} {'' if fragment.endswith('.conf') else 'rendered '}line {line}"

    def names(self, *kinds: str) -> list[str]:
        """Return the names of the sections of these kinds."""
        return [found["name"] for found in _HEADER.finditer(self.rendering.text) if found["kind"] in kinds]

    def _line_by_name(self, message: str) -> int:
        """Return the line of the named proxy that has the quoted word, or its header; 0 if there is no such proxy."""
        named = _PROXY.search(message)
        if named is None:
            return 0
        wanted = set(re.findall(r"'([^']+)'", message)) - {named["proxy"]}
        inside, header, best, most = False, 0, 0, 0
        for number, line in enumerate(self.lines, 1):
            if found := _HEADER.match(line):
                inside = found["name"] == named["proxy"] and found["kind"] != "defaults"
                header = header or (number if inside else 0)
            elif inside and (count := len(wanted & {word.value for word in split_words(line)})) > most:
                best, most = number, count
        return best or header

    def _remedy(self, message: str, line: str, number: int) -> str:
        if removed := self._removed.get(number) if line else None:
            return removed
        for pattern, remedy in _HINTS:
            if found := pattern.search(message):
                return remedy if isinstance(remedy, str) else remedy(found, line, self)
        return ""


def _errorfile(_found: re.Match[str], line: str, _text: _Text) -> str:
    written = [word.written for word in split_words(line)]
    code, file = written[1:3] if len(written) > 2 else ("503", "FILE")
    return (
        f"write: http-error status {code} content-type text/html file {file}  (an errorfile must be a whole HTTP "
        f"response: its first line is 'HTTP/1.0 {code} ...', then headers, then an empty line)"
    )


def _close(names: Iterable[str], otherwise: str, name: str) -> str:
    hint = did_you_mean(name, names)
    return f"{hint} {otherwise}" if hint.startswith("did") else otherwise


def _missing_backend(found: re.Match[str], _line: str, text: _Text) -> str:
    return _close(text.names("backend", "listen"), f"add: backend {found[1]}", found[1])


def _missing_acl(found: re.Match[str], _line: str, text: _Text) -> str:
    known = _ACL.findall(text.rendering.text)
    return _close(known, f"define it above in the same section: acl {found[1]} ...", found[1])


def _file(found: re.Match[str], _line: str, _text: _Text) -> str:
    return f"does {found[1]} exist, and may HAProxy's user read it? map_file() and certificate_file() write such files"


_NO_FILE = (
    r"(?:error opening file|unable to stat|failed to open pattern file|open the ca-file|unable to load"
    r"|cannot open|unable to open)[^/]*(/[^\s'>]+)"
)
_Remedy = Callable[[re.Match[str], str, _Text], str]
"""Gets the match, the line that is blamed and the whole text."""
_HINTS: tuple[tuple[re.Pattern[str], str | _Remedy], ...] = tuple(
    (re.compile(pattern), remedy)
    for pattern, remedy in (
        (r"unable to parse headers|unable to load errorfile|errorfile.*invalid", _errorfile),
        (
            r"unable to load certificate|no start line|inconsistencies between private key and certificate",
            "the file must hold the certificate, its chain and the private key that belongs to it, in PEM",
        ),
        (_NO_FILE, _file),
        (r"unable to find required (?:use_backend|default_backend): '([^']+)'", _missing_backend),
        (
            r"unable to find (?:stick-table|table) '([^']+)'",
            "add a section of that name with a stick-table, or correct the name",
        ),
        (r"unable to find server '([^']+)'|unable to find required server", "correct the name, or add the server"),
        (r"unable to find required resolvers '([^']+)'", "add: resolvers NAME, with a nameserver"),
        (r"no such ACL : '([^']+)'", _missing_acl),
        (r"incompatible", "give both sections the same mode"),
        (r"unmatched quote", "write values from the cluster with the filter quote: {{ value | quote }}"),
        (r"another server named", "name servers with the filter server_name, or loop over {{ endpoints | servers }}"),
        (r"custom id \d+ already used", "take ids from server_ids(names) or from {{ endpoints | servers }}"),
        (r"has the same name as", "names of sections must differ: put a prefix before them, and use | identifier"),
        (r"is not permitted in|invalid character", "make names with the filter identifier"),
        (r"could not resolve address", "write an IP address, or add: init-addr last,libc,none  and resolvers"),
        (
            r"missing timeouts",
            "add a defaults section before it with timeout connect, timeout client and timeout server",
        ),
        (r"regex.*(?i:jit|no more memory)", "MemoryDenyWriteExecute=yes in the unit forbids them: set it to no"),
        (
            r"Address already in use\)? for \[.*?:(\d+)\]",
            lambda found, _line, _text: f"see who has the port: ss -ltnp 'sport = :{found[1]}'",
        ),
        (
            r"Cannot assign requested address",
            "no interface has it: see ip address and net.ipv4.ip_nonlocal_bind",
        ),
        (r"cannot bind socket \(Permission denied\)", "ports below 1024 need CAP_NET_BIND_SERVICE in HAProxy's unit"),
        (r"Cannot raise FD limit|Not enough FD", "raise LimitNOFILE in HAProxy's unit, or lower maxconn"),
        (r"verify is enabled by default but no CA file", "add ca-file FILE to the server line, or verify none"),
        (r"Missing LF on last line", "the file is not whole: is the disk full?"),
        (r"did you mean '([^']+)'", lambda found, _line, _text: f"did you mean {found[1]!r}?"),
        (r"unknown keyword '([^']+)'", "see the configuration manual of the installed version for this section"),
    )
)
"""The first pattern that is found in a message gives the remedy."""


_NOT_FOR_CHILDREN = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID"})
_NOTHING_TO_DO = 2
"""Exit code of ``haproxy -c`` for a configuration without a listener. Source: management manual, 3 (``-c``)."""

_BACKGROUND = 10
_OF_ROOT = "/run"
"""Only root can exchange what is in it."""
_DEFAULT_PATH = re.compile(r"""^([^\S\n]*default-path[^\S\n]+)["']?(config|parent)["']?(?!\S)""")

_NO_LISTENER = Problem(
    "",
    "the configuration has no section with a bind, so haproxy would listen nowhere",
    "add a fragment with a frontend; is the template directory the right one?",
)


def check(
    rendering: Rendering,
    *,
    settings: HaproxySettings,
    unit: UnitFacts,
    progress: Callable[[], None] = lambda: None,
    same_shape: bool = False,
) -> None:
    """Validate the rendering with ``haproxy -c``; nothing that is installed is touched.

    ``same_shape`` where it differs from a checked one by servers and entries alone: then only HAProxy is asked.

    A copy is checked in which the declared files, and only those, are read from beside it, since they are not
    installed yet. A certificate whose content is not known ("") is read from where it is.

    Raises:
        RejectedInput: HAProxy refuses it; each problem names fragment and line where HAProxy names a line.
        TransientError: the check could not be run, or did not end in time.
    """
    if not same_shape and not has_listener(rendering.text):
        raise RejectedInput(_NO_LISTENER, step=Step.CHECK)
    user = check_user(settings, unit)
    group = _group_id(unit.group, user) if user else None
    with _staged_copy(rendering, settings.conf, group) as (path, true_paths):
        argv = [*_command(settings, unit), path]
        result = run(
            argv,
            timeout_s=settings.check_timeout_s,
            env=_environment(unit.environment),
            user=user or None,
            group=group,
            # Nothing waits for the check of what runs already, and it takes a second of what haproxy needs itself.
            niceness=_BACKGROUND if same_shape else 0,
            progress=progress,
        )
        output = result.output
        for staged, true in true_paths.items():
            output = output.replace(staged, true)
    _judge(result, output, rendering, argv, settings)


def haproxy_version(binary: str) -> str:
    """Return the version of the haproxy program, "" where it does not say.

    Raises:
        TransientError: it cannot be run.
    """
    answer = run([binary, "-v"], timeout_s=10.0, env=_environment({}))
    found = re.search(r"version (\S+)", answer.output)
    return found.group(1) if found else ""


def haproxy_features(binary: str) -> frozenset[str]:
    """Return what the haproxy program was built with (``OPENSSL``, ``LUA``); nothing where it does not say.

    Raises:
        TransientError: it cannot be run.
    """
    answer = run([binary, "-vv"], timeout_s=10.0, env=_environment({}))
    listed = re.search(r"^Feature list : (.*)$", answer.output, re.MULTILINE)
    return frozenset(word[1:] for word in listed[1].split() if word.startswith("+")) if listed else frozenset()


_LISTEN_NOWHERE = frozenset({"backend", "defaults", "global"})


def has_listener(text: str) -> bool:
    """Return whether any section binds; with ``-W``, ``haproxy -c`` would accept one that listens nowhere."""
    sections = sections_of(text, *SECTION_KEYWORDS - _LISTEN_NOWHERE)
    return any(line.words[0] in {"bind", "dgram-bind"} for section in sections for line in section.lines)


def check_user(settings: HaproxySettings, unit: UnitFacts) -> str:
    """Return the user to check as: "" for pyconfd's own, the only choice where it is not root."""
    if os.geteuid() != 0:
        return ""
    user = settings.check_user or unit.user
    return "" if user == "root" else user


def usable_files(rendering: Rendering) -> tuple[OutputFile, ...]:
    """Return the declared files whose content is known; a certificate out of the history may have none."""
    return tuple(file for file in rendering.files if file.content or file.kind is not FileKind.CERTIFICATE)


def _command(settings: HaproxySettings, unit: UnitFacts) -> list[str]:
    if settings.chk_cmd:
        return list(settings.chk_cmd)
    return [settings.binary, unit.master_worker_flag or "-W", "-c", "-f"]


def _environment(of_unit: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_CHILDREN}
    return own | dict(of_unit)


def _group_id(group: str, user: str) -> int:
    try:
        return grp.getgrnam(group).gr_gid if group else pwd.getpwnam(user).pw_gid
    except KeyError as error:
        problem = Problem("haproxy.check_user", f"no such user or group: {user}:{group}", "correct the setting")
        raise TransientError(problem) from error


@contextmanager
def _staged_copy(rendering: Rendering, conf: str, group: int | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Return the path of the copy, and the true path of each staged one; ``group`` may read it (None: no other user).

    It stands in a directory of its own beside the installed configuration. Where pyconfd may not write there, or
    another user could exchange what root writes there, it is below ``/run`` or the directory for temporary files.
    """
    beside = Path(os.path.realpath(conf)).parent
    if os.geteuid() == 0:
        directory = Path(_OF_ROOT) if controlling_owner(conf) or not os.access(beside, os.W_OK) else beside
    else:
        directory = beside if os.access(beside, os.W_OK) else Path(tempfile.gettempdir())
    staging = Path(temporary_beside(str(directory / "x")))
    path = staging / "haproxy.cfg"
    files = usable_files(rendering)
    staged_paths = _staged_paths(files, staging)
    try:
        try:
            _make_directory(staging, group)
            _write_files(staging, files, staged_paths, lists=certificate_lists(rendering.text), group=group)
            text = mark(_relative_to(beside, _repointed(rendering.text, staged_paths)), rendering.digest)
            _write(path, text, group)
        except OSError as error:
            raise TransientError(problem_of(str(directory), error)) from error
        yield str(path), {str(path): conf} | {staged: true for true, staged in staged_paths.items()}
    finally:
        if staging.exists():
            remove_tree(staging)


def _staged_paths(files: tuple[OutputFile, ...], staging: Path) -> dict[str, str]:
    """Return where each file is staged: a directory for each of theirs, one within another where theirs are."""
    parents = sorted({Path(file.path).parent for file in files})
    roots = [
        parent for parent in parents if not any(parent.is_relative_to(other) for other in parents if other != parent)
    ]
    staged = {}
    for file in files:
        index = next(at for at, root in enumerate(roots) if Path(file.path).is_relative_to(root))
        staged[file.path] = str(staging / str(index) / Path(file.path).relative_to(roots[index]))
    return staged


def _write_files(
    staging: Path,
    files: tuple[OutputFile, ...],
    staged_paths: Mapping[str, str],
    *,
    lists: frozenset[str],
    group: int | None,
) -> None:
    made = {staging}
    for directory in sorted({Path(path).parent for path in staged_paths.values()}):
        for part in (*reversed(directory.relative_to(staging).parents), directory.relative_to(staging)):
            if staging / part not in made:
                _make_directory(staging / part, group)
                made.add(staging / part)
    for file in files:
        # What a list of certificates names is not installed yet either.
        content = _repointed(file.content, staged_paths) if file.path in lists else file.content
        _write(Path(staged_paths[file.path]), content, group)


def _make_directory(path: Path, group: int | None) -> None:
    """Create a directory that this user alone may write, and ``group`` may read."""
    path.mkdir(mode=0o700)
    if group is not None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchown(descriptor, -1, group)
            os.fchmod(descriptor, 0o750)
        finally:
            os.close(descriptor)


def _write(path: Path, text: str, group: int | None) -> None:
    write_new(str(path), text.encode(), mode=0o600 if group is None else 0o640, flush=False, group=group)


def _relative_to(directory: Path, text: str) -> str:
    """Resolve paths relative to the configuration as they will be once it is installed: the copy is elsewhere."""
    origin = {"config": directory, "parent": directory.parent}

    def edit(line: str) -> str:
        return _DEFAULT_PATH.sub(lambda found: f'{found[1]}origin "{origin[found[2]]}"', line)

    return edit_lines(text, "default-path", edit)


def _repointed(text: str, staged_paths: Mapping[str, str]) -> str:
    """Replace declared paths, and the directories that hold them where one stands alone (``crt /dir/``)."""
    wanted = dict(staged_paths)
    for true, staged in staged_paths.items():
        wanted.setdefault(str(Path(true).parent), str(Path(staged).parent))
    if not wanted:
        return text
    longest_first = sorted(wanted, key=len, reverse=True)
    pattern = re.compile(
        rf"(?<![\w./@-])({'|'.join(map(re.escape, longest_first))})(?=/?(?:[\s\"',)\]]|$))", re.MULTILINE
    )
    # Few lines name a path, and the expression tries every path at every character.
    common = os.path.commonpath(longest_first)
    return edit_lines(text, common, lambda line: pattern.sub(lambda found: wanted[found[1]], line))


def _judge(
    result: CommandResult, output: str, rendering: Rendering, argv: list[str], settings: HaproxySettings
) -> None:
    if result.ok:
        return
    if result.timed_out:
        raise TransientError(
            Problem(
                "haproxy.check_timeout_s",
                f"the check did not end within {settings.check_timeout_s:g} s and was killed: {' '.join(argv)}",
                "run it by hand to see what it waits for, or raise haproxy.check_timeout_s",
            )
        )
    if result.exit_code == _NOTHING_TO_DO:
        raise RejectedInput(_NO_LISTENER, step=Step.CHECK)
    problems = explain_check_output(output, rendering, settings.conf, warnings=False)
    if not problems:
        how = f"ended by signal {-result.exit_code}" if result.exit_code < 0 else f"ended with {result.exit_code}"
        said = without_secrets(output.strip(), passwords_in(rendering.text))[-2000:]
        problems = (Problem("haproxy -c", f"{how}: {said or 'it printed nothing'}"),)
    raise RejectedInput(*problems, step=Step.CHECK)
