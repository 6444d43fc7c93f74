"""Old options to values of pyconfd.toml, checked as pyconfd itself reads them, and written as TOML."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pyconfd.migrate.invocations import Given
from pyconfd.migrate.options import ANNOTATIONS, COMMANDS, OPTIONS, Form, Option, option_for_flag, option_for_variable
from pyconfd.migrate.report import PRESETS, Effect, Finding, Findings, Setting, System
from pyconfd.settings.kinds import NotAcceptedError
from pyconfd.settings.table import TABLE

Value = str | float | bool | tuple[str, ...]

_LEVELS = ("ERROR", "WARNING", "INFO", "INFO", "DEBUG")
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)(h|m|s|ms))+")
_RESTARTS = re.compile(r"\brestart\b")
_FALSE_WORDS = frozenset({"false", "no", "off", "0"})
_REPEATED = frozenset(option.path for options in OPTIONS.values() for option in options if option.form is Form.REPEATED)


@dataclass(slots=True)
class SettingsCollector:
    """Gathers the settings of all files of one system."""

    system: System
    settings: list[Setting] = field(default_factory=list)

    def take(self, given: Iterable[Given], findings: Findings) -> None:
        """Add what a file gave, and say what became of each option."""
        for one in given:
            match one.kind:
                case "flag":
                    self._option(one, option_for_flag(self.system, one.name), findings)
                case "variable":
                    self._variable(one, findings)
                case "command":
                    now = COMMANDS[self.system][one.name]
                    findings.add(one.line, Effect.TRANSLATED, f"the command {one.name} is now: {now}")
                case "unreadable":
                    findings.add(one.line, Effect.LEFT, f"{one.name}: cannot be read as words ({one.value})")
                case _ if one.name in {"EnvironmentFile", "--env-file"}:
                    message = f"{one.name} {one.value}: give that file to pyconfd migrate too"
                    findings.add(one.line, Effect.NOTED, message)
                case _:
                    findings.add(one.line, Effect.LEFT, f"{one.name!r} is no option of {self.system}")

    def _variable(self, given: Given, findings: Findings) -> None:
        option = option_for_variable(self.system, given.name)
        if option is None:
            if given.name.startswith("KONTROL_") and self.system is System.ADS_INFRA_HAPROXY:
                findings.add(given.line, Effect.LEFT, f"{given.name} is no variable that is known of {self.system}")
            else:
                findings.add(given.line, Effect.NOTED, f"{given.name} is no option of {self.system}; left out")
            return
        self._option(given, option, findings)

    def _option(self, given: Given, option: Option | None, findings: Findings) -> None:
        if option is None:
            findings.add(given.line, Effect.LEFT, f"{given.name} is no option of {self.system}")
            return
        note = f"; {option.note}" if option.note else ""
        if not option.path:
            effect = Effect.NOTED if option.still_works else Effect.CHANGED
            findings.add(given.line, effect, f"{given.name}: {option.note}")
            return
        if not given.value.strip() and option.form not in (Form.COUNT, Form.NOTHING):
            findings.add(given.line, Effect.NOTED, f"{given.name} has no value, so the default counts")
            return
        values = self._values(given, option, findings)
        if values is None:
            return
        self.settings += [Setting(path, value, findings.file, given.line) for path, value in values]
        now = ", ".join(f"{path} = {_toml(value)}" for path, value in values)
        findings.add(given.line, Effect.TRANSLATED, f"{given.name} -> {now}{note}")

    def _values(self, given: Given, option: Option, findings: Findings) -> list[tuple[str, Value]] | None:
        path = option.path
        if path == "haproxy.reload_cmd" and self.system is System.KUBEFIGURATOR and _RESTARTS.search(given.value):
            message = f"{given.name} {given.value!r}: dropped; a restart drops connections, pyconfd reloads by itself"
            findings.add(given.line, Effect.CHANGED, message)
            return None
        try:
            value = _parsed(option.form, given.value)
            row = TABLE.get(path)
            if row is not None:
                row.kind.parse(list(value) if isinstance(value, tuple) else value)
        except (NotAcceptedError, ValueError) as error:
            findings.add(given.line, Effect.LEFT, f"{given.name}={given.value}: {error}")
            return None
        if path == "targets.template" and isinstance(value, str):
            value = f"{value.removesuffix('.tpl').removesuffix('.tmpl')}.tmpl"
        values: list[tuple[str, Value]] = [(path, value)]
        if given.name == "KONTROL_DAMPER" and isinstance(value, int | float):
            values.append(("apply.cap_s", max(2.0, 3 * float(value))))
        return values

    def annotation(self, name: str, line: int, findings: Findings) -> bool:
        """Say what becomes of an annotation; tell whether it is one of the system's."""
        for known, fate in ANNOTATIONS[self.system].items():
            if name == known or (known.endswith(".") and name.startswith(known)):
                effect = Effect.CHANGED if fate.startswith("no longer") else Effect.TRANSLATED
                findings.add(line, effect, f"annotation {name}: {fate}")
                return True
        return False

    def text(self) -> tuple[str, list[Finding]]:
        """Give pyconfd.toml, and a finding for each setting that files disagree about."""
        findings: list[Finding] = []
        tables: dict[str, dict[str, Setting]] = {}
        for setting in self.settings:
            section, _, key = setting.path.partition(".")
            former = tables.setdefault(section, {}).get(key)
            if former and setting.path in _REPEATED and former.file == setting.file:
                tables[section][key] = _both(former, setting)
                continue
            if former and former.value != setting.value:
                message = f"{setting.path} is {_toml(setting.value)} here and {_toml(former.value)} in {former.file}"
                findings.append(Finding(setting.file, setting.line, Effect.LEFT, f"{message}; the latter was kept"))
                continue
            tables[section][key] = setting
        return "\n".join(self._lines(tables)) + "\n", findings

    def _lines(self, tables: dict[str, dict[str, Setting]]) -> Iterator[str]:
        yield f"# Written by pyconfd migrate {self.system}. `pyconfd settings` shows what counts in the end."
        yield ""
        yield "[presets]"
        yield f"use = [{_toml(PRESETS[self.system])}]"
        for section in sorted(tables, key=lambda name: (name == "targets", name)):
            yield ""
            yield f"[[{section}]]" if section == "targets" else f"[{section}]"
            for key, setting in tables[section].items():
                yield f"{key} = {_toml(setting.value)}  # {setting.file} line {setting.line}"


def _both(first: Setting, second: Setting) -> Setting:
    """Give one setting with the items of two."""
    items = [item for one in (first, second) if isinstance(one.value, tuple) for item in one.value]
    return Setting(first.path, tuple(dict.fromkeys(items)), first.file, first.line)


def _parsed(form: Form, text: str) -> Value:
    """Give a value as TOML has it.

    Raises:
        ValueError: it is not of the form.

    """
    value = text.strip()
    match form:
        case Form.LIST | Form.REPEATED:
            return tuple(part.strip() for part in value.split(",") if part.strip())
        case Form.COMMAND:
            return tuple(shlex.split(value))
        case Form.SECONDS:
            return _seconds(value)
        case Form.BOOLEAN:
            return value.lower() not in _FALSE_WORDS
        case Form.CA:
            return False if value.lower() == "false" else value
        case Form.COUNT:
            value = _LEVELS[min(int(value), len(_LEVELS) - 1)]
    return value


def _seconds(text: str) -> float:
    if re.fullmatch(r"\d+", text):
        return int(text)
    if not _DURATION.fullmatch(text):
        return float(text)
    factors = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    return sum(float(number) * factors[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s)", text))


def _toml(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)
