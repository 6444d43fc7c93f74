"""What has to be done to make a rendering serve. Pure: a Plan is data.

Three texts are compared: desired (rendered just now), applied (last proven good) and running (what the worker says
it loaded). Only when all three and the installed files agree is there nothing to do.
"""

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256

from pyconfd.haproxy.marker import mark
from pyconfd.haproxy.observation import NotRunning, Observation, Running
from pyconfd.haproxy.sections import Line, Section, parse
from pyconfd.model.plan import Noop, Plan, Reload, ReloadReason
from pyconfd.model.rendering import FileKind, OutputFile, Rendering

MAX_DETAILS = 50

Change = tuple[ReloadReason, str]


def plan(desired: Rendering, applied: Rendering | None, observed: Observation) -> Plan:
    """Give Noop, or a Reload whose reasons and details say everything that differs."""
    changes = [
        *_first(applied),
        *(_changes(applied, desired) if applied is not None else ()),
        *(_drift(applied, observed) if applied is not None else ()),
        *_behind(desired, applied, observed),
    ]
    if not changes:
        return Noop(verified=isinstance(observed.running, Running))
    details = list(dict.fromkeys(detail for _, detail in changes if detail))
    if len(details) > MAX_DETAILS:
        details[MAX_DETAILS:] = [f"and {len(details) - MAX_DETAILS} more"]
    return Reload(tuple(sorted({reason for reason, _ in changes})), tuple(details))


def _first(applied: Rendering | None) -> Iterator[Change]:
    if applied is None:
        yield ReloadReason.FIRST_CONFIGURATION, "the first configuration"


def _changes(applied: Rendering, desired: Rendering) -> Iterator[Change]:
    if applied.text != desired.text:
        changes = list(compare(applied.text, desired.text))
        yield from changes or [(ReloadReason.TEXT_CHANGED, "comments, blanks or the order of sections")]
    yield from _file_changes(applied.files, desired.files)


def _file_changes(old: tuple[OutputFile, ...], new: tuple[OutputFile, ...]) -> Iterator[Change]:
    before = {file.path: file for file in old}
    after = {file.path: file for file in new}
    for path in sorted(before.keys() | after.keys()):
        was, now = before.get(path), after.get(path)
        if was == now:
            continue
        kind = (now or was or new[0]).kind
        reason = ReloadReason.MAPS_CHANGED if kind is FileKind.MAP else ReloadReason.CERTIFICATES_CHANGED
        noun = "map" if kind is FileKind.MAP else "certificate"
        yield reason, f"{noun} {path} {'added' if was is None else 'removed' if now is None else 'changed'}"


def _drift(applied: Rendering, observed: Observation) -> Iterator[Change]:
    if observed.installed_text is None:
        yield ReloadReason.FILE_EDITED, "the installed configuration is gone"
    elif observed.installed_text != mark(applied.text, applied.digest):
        yield ReloadReason.FILE_EDITED, "the installed configuration is not the one that pyconfd wrote"
    for file in applied.files:
        found = observed.file_digests.get(file.path)
        if found is None:
            yield ReloadReason.FILE_EDITED, f"{file.path} is gone"
        elif not file.content and file.kind is FileKind.CERTIFICATE:
            continue  # out of the history, which keeps no keys: what it was is not known any more
        elif found != sha256(file.content.encode()).hexdigest():
            yield ReloadReason.FILE_EDITED, f"{file.path} is not the one that pyconfd wrote"


def _behind(desired: Rendering, applied: Rendering | None, observed: Observation) -> Iterator[Change]:
    """Compare the process; that it runs what was applied is no surprise when something else is desired."""
    if isinstance(observed.running, NotRunning):
        yield ReloadReason.PROCESS_BEHIND, "haproxy is not running"
    elif isinstance(observed.running, Running) and applied is not None:
        digest = observed.running.digest
        if digest is None:
            yield ReloadReason.PROCESS_BEHIND, "haproxy runs a configuration that pyconfd did not write"
        elif digest not in {applied.digest, desired.digest}:
            yield ReloadReason.PROCESS_BEHIND, f"haproxy runs another configuration ({digest[:12]})"
        elif digest != desired.digest and applied.digest == desired.digest:
            yield ReloadReason.PROCESS_BEHIND, f"haproxy still runs {digest[:12]}"


def compare(old: str, new: str) -> Iterator[tuple[ReloadReason, str]]:
    """Give what differs between two configurations, section by section, in the order of ``new`` and then of ``old``."""
    before, after = _by_key(parse(old)), _by_key(parse(new))
    for key, section in after.items():
        if key not in before:
            yield _whole_section(section, ReloadReason.SECTION_ADDED, "added")
        else:
            yield from _section_changes(before[key], section)
    for key, section in before.items():
        if key not in after:
            yield _whole_section(section, ReloadReason.SECTION_REMOVED, "removed")


def _by_key(sections: tuple[Section, ...]) -> dict[tuple[str, str, int], Section]:
    """Sections that share keyword and name (``global``, unnamed ``defaults``) are told apart by their position."""
    seen: Counter[tuple[str, str]] = Counter()
    keyed = {}
    for section in sections:
        key = (section.keyword, section.name)
        keyed[(*key, seen[key])] = section
        seen[key] += 1
    return keyed


def _whole_section(section: Section, reason: ReloadReason, verb: str) -> Change:
    if section.keyword in {"global", ""}:
        reason = ReloadReason.GLOBAL_CHANGED
    elif section.keyword == "defaults":
        reason = ReloadReason.DEFAULTS_CHANGED
    return reason, f"{section.title} {verb}"


def _section_changes(old: Section, new: Section) -> Iterator[Change]:
    if [line.words for line in old.lines] == [line.words for line in new.lines] and old.options == new.options:
        return
    if new.keyword in {"global", ""}:
        yield ReloadReason.GLOBAL_CHANGED, f"{new.title} changed"
        return
    if new.keyword == "defaults":
        yield ReloadReason.DEFAULTS_CHANGED, f"{new.title} changed"
        return
    parts = (
        (ReloadReason.SERVERS_CHANGED, "server", _named(old, "server"), _named(new, "server")),
        (ReloadReason.BINDS_CHANGED, "bind", _named(old, "bind"), _named(new, "bind")),
    )
    explained = False
    for reason, noun, before, after in parts:
        summary = _summary(noun, before, after)
        if summary:
            explained = True
            yield reason, f"{new.title}: {summary}"
    if not explained or _others(old) != _others(new) or old.options != new.options:
        yield ReloadReason.SECTION_CHANGED, f"{new.title} changed"


def _named(section: Section, keyword: str) -> dict[str, tuple[str, ...]]:
    lines = [line for line in section.lines if line.words[0] == keyword]
    return {_name(line): line.words for line in lines}


def _name(line: Line) -> str:
    return line.words[1] if len(line.words) > 1 else ""


def _others(section: Section) -> list[tuple[str, ...]]:
    return [line.words for line in section.lines if line.words[0] not in {"server", "bind"}]


def _summary(noun: str, old: dict[str, tuple[str, ...]], new: dict[str, tuple[str, ...]]) -> str:
    counts = (
        ("added", sum(name not in old for name in new)),
        ("removed", sum(name not in new for name in old)),
        ("changed", sum(name in old and old[name] != words for name, words in new.items())),
    )
    return ", ".join(f"{count} {noun}{'s' if count > 1 else ''} {verb}" for verb, count in counts if count)
