"""``haproxy -c`` on a candidate, as HAProxy itself would read it: same flags, environment and identity."""

import grp
import os
import pwd
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.haproxy.explain import explain_check_output
from pyconfd.haproxy.marker import mark
from pyconfd.haproxy.passwords import passwords_in
from pyconfd.haproxy.removed import find_removed
from pyconfd.haproxy.sections import certificate_lists, parse
from pyconfd.haproxy.unit import UnitFacts
from pyconfd.model.outcome import Step
from pyconfd.model.rendering import FileKind, OutputFile, Rendering
from pyconfd.settings import HaproxySettings
from pyconfd.system.command import CommandResult, run
from pyconfd.system.files import controlling_owner, problem_of, remove_tree, temporary_beside, write_new
from pyconfd.system.secrecy import without_secrets

_NOT_FOR_CHILDREN = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID"})
_NOTHING_TO_DO = 2
"""Exit code of ``haproxy -c`` for a configuration without a listener. Source: management manual, 3 (``-c``)."""

_BACKGROUND = 10
_OF_ROOT = "/run"
"""Only root can exchange what is in it."""
_DEFAULT_PATH = re.compile(r"""^([^\S\n]*default-path[^\S\n]+)["']?(config|parent)["']?(?!\S)""", re.MULTILINE)

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
    """Let HAProxy judge the rendering; nothing that is installed is touched.

    ``same_shape`` where it differs from a checked one by servers and entries alone: then only HAProxy is asked.

    A copy is checked in which the declared files, and only those, are read from beside it, since they are not
    installed yet. A certificate whose content is not known ("") is read from where it is.

    Raises:
        RejectedInput: HAProxy refuses it; each problem names fragment and line where HAProxy names a line.
        TransientError: the check could not be run, or did not end in time.
    """
    if not same_shape:
        _judge_shape(rendering)
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
            # Nobody waits for the check of what runs already, and it takes a second of what haproxy needs itself.
            niceness=_BACKGROUND if same_shape else 0,
            progress=progress,
        )
        output = result.output
        for staged, true in true_paths.items():
            output = output.replace(staged, true)
    _judge(result, output, rendering, argv, settings)


def _judge_shape(rendering: Rendering) -> None:
    if not has_listener(rendering.text):
        raise RejectedInput(_NO_LISTENER, step=Step.CHECK)
    removed = find_removed(rendering)
    if removed:
        raise RejectedInput(*removed, step=Step.CHECK)


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


def has_listener(text: str) -> bool:
    """Return whether any section binds; with ``-W``, ``haproxy -c`` would accept one that listens nowhere."""
    keywords = {"bind", "dgram-bind"}
    return any(line.words[0] in keywords for section in parse(text) for line in section.lines)


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
    """Return the path of the copy and, for each staged path, the true one; ``group`` may read it, None for nobody else.

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
    """Make a directory that this user alone may write, and ``group`` may read."""
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
    """Let paths that are relative to the configuration, which the copy is not beside, mean what they will mean."""
    origin = {"config": directory, "parent": directory.parent}
    if "default-path" not in text:
        return text
    return _DEFAULT_PATH.sub(lambda found: f'{found[1]}origin "{origin[found[2]]}"', text)


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
    # Few lines name a path. The expression tries every path at every character, and holds the interpreter's lock for
    # the whole text meanwhile: 45 ms with 5,000 services.
    common = os.path.commonpath(longest_first)
    parts: list[str] = []
    done, at = 0, text.find(common)
    while at >= 0:
        begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = len(text) if end < 0 else end
        parts += [text[done:begin], pattern.sub(lambda found: wanted[found[1]], text[begin:end])]
        done, at = end, text.find(common, end)
    return "".join((*parts, text[done:]))


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
