"""Old options to values of pyconfd.toml, checked as pyconfd itself reads them, and written as TOML."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pyconfd.predecessors.migrate.invocations import GivenOption, expanded, logical_lines
from pyconfd.predecessors.migrate.manifests import Annotation
from pyconfd.predecessors.migrate.options import (
    ANNOTATIONS,
    COMMANDS,
    OPTIONS,
    OWN_HAPROXY,
    Option,
    OptionForm,
    option_for_flag,
    option_for_variable,
)
from pyconfd.predecessors.migrate.report import PRESETS, Effect, Findings, MigratedSetting, MigrationFinding, System
from pyconfd.settings.setting import FALSE_WORDS, NotAcceptedError
from pyconfd.settings.show import toml_value
from pyconfd.settings.table import TABLE

Value = str | float | bool | tuple[str, ...]

_LEVELS = ("ERROR", "WARNING", "INFO", "INFO", "DEBUG")
_ENDPOINTS = re.compile(r"--endpoints?[= ]([^\s\"']+)")
_WATCHED = re.compile(r"\bwatch\s+(/[^\s\"']+)")
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)(h|m|s|ms))+")
_RESTARTS = re.compile(r"\brestart\b")
_OTHER_OWNER = {
    "hosts.config": "; put its annotations on a Service or Deployment too, and name that one: service/NAMESPACE/NAME"
}
_REPEATED = frozenset(
    option.path for options in OPTIONS.values() for option in options if option.form is OptionForm.REPEATED
)


@dataclass(slots=True)
class SettingsCollector:
    """Gathers the settings of all files of one system."""

    system: System
    settings: list[MigratedSetting] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    """What files assigned so far: scripts name it again as ``$NAME``."""

    def take(self, given: Iterable[GivenOption], findings: Findings) -> None:
        """Add what a file gave, and say what became of each option."""
        for raw in given:
            value, missing = expanded(raw.value, self.variables)
            one = replace(raw, value=value)
            if missing and one.kind in {"flag", "variable"} and self._option_of(one):
                message = f"{one.name}={value}: nothing here says what {missing} is; write its value, or give the"
                findings.add(one.line, Effect.LEFT, f"{message} file that has it to pyconfd migrate before this one")
                continue
            if one.kind == "variable":
                self.variables[one.name] = one.value
            match one.kind:
                case "flag":
                    self._option(one, option_for_flag(self.system, one.name), findings)
                case "variable":
                    self._variable(one, findings)
                case "sourced":
                    self._sourced(one, findings)
                case "command":
                    now = COMMANDS[self.system][one.name]
                    findings.add(one.line, Effect.TRANSLATED, f"the command {one.name} is now: {now}")
                case "unreadable":
                    findings.add(one.line, Effect.LEFT, f"{one.name}: cannot be read as words ({one.value})")
                case _ if elsewhere := _elsewhere(raw):
                    findings.add(one.line, Effect.NOTED, elsewhere)
                case _:
                    findings.add(one.line, Effect.LEFT, f"{one.name!r} is no option of {self.system}")

    def _option_of(self, given: GivenOption) -> Option | None:
        find = option_for_flag if given.kind == "flag" else option_for_variable
        return find(self.system, given.name)

    def _variable(self, given: GivenOption, findings: Findings) -> None:
        option = option_for_variable(self.system, given.name)
        if option is None:
            if given.name.startswith("KONTROL_") and self.system is System.ADS_INFRA_HAPROXY:
                findings.add(given.line, Effect.LEFT, f"{given.name} is no variable that is known of {self.system}")
            else:
                findings.add(
                    given.line, Effect.NOTED, f"{given.name} is no option of {self.system}; {self._left_out()}"
                )
            return
        self._option(given, option, findings)

    def _left_out(self) -> str:
        if self.system is System.KUBERNETES_HAPROXY:
            return "left out; where the template looks at it, keep it in pyconfd's environment, /etc/default/pyconfd"
        return "left out"

    def _sourced(self, given: GivenOption, findings: Findings) -> None:
        """Report what becomes of a variable whose value stands in another object."""
        option = option_for_variable(self.system, given.name)
        if not given.name:
            message = (
                f"variables come from {given.value}: give what stands there to pyconfd migrate as NAME=VALUE lines"
            )
            findings.add(given.line, Effect.LEFT, message)
        elif option is not None and option.path:
            message = f"{given.name}: its value comes from {given.value}; write it into {option.path}"
            findings.add(given.line, Effect.LEFT, message)
        else:
            self._variable(given, findings)

    def consumer(self, text: str, findings: Findings) -> None:
        """Translate a loop around etcdctl, which is what the README has as the consumer."""
        for number, line in logical_lines(text):
            if "etcdctl" not in line:
                continue
            message = "the loop around etcdctl is now `pyconfd consume`, for etcd v3 (docs/etcd.md)"
            findings.add(number, Effect.CHANGED, message)
            hosts, path = _ENDPOINTS.search(line), _WATCHED.search(line)
            given = [GivenOption("flag", "--etcd-host", hosts[1], number)] if hosts else []
            given += [GivenOption("flag", "--etcd-path", path[1], number)] if path else []
            self.take(given, findings)
            return

    def environment(self, names: Mapping[str, int], findings: Findings, offset: int) -> None:
        """Add the variables that a template looks at, by their first line, ``offset`` lines into the file."""
        for name, line in names.items():
            self.settings.append(MigratedSetting("configmap.env", (name,), findings.file, line + offset))
            message = f"env.{name} -> configmap.env; its value has to be in pyconfd's environment, /etc/default/pyconfd"
            findings.add(line, Effect.TRANSLATED, message)

    def _option(self, given: GivenOption, option: Option | None, findings: Findings) -> None:
        if option is None:
            findings.add(given.line, Effect.LEFT, f"{given.name} is no option of {self.system}")
            return
        note = f"; {option.note}" if option.note else ""
        if not option.path:
            effect = Effect.NOTED if option.still_works else Effect.CHANGED
            findings.add(given.line, effect, f"{given.name}: {option.note}")
            return
        if not given.value.strip() and option.form not in (OptionForm.COUNT, OptionForm.NOTHING):
            findings.add(given.line, Effect.NOTED, f"{given.name} has no value, so the default counts")
            return
        value = self._value(given, option, findings)
        if value is None:
            return
        self.settings.append(MigratedSetting(option.path, value, findings.file, given.line))
        findings.add(given.line, Effect.TRANSLATED, f"{given.name} -> {option.path} = {toml_value(value)}{note}")
        if option.path == "target.notify" and "haproxy" in given.value:
            findings.add(given.line, Effect.NOTED, OWN_HAPROXY)

    def _value(self, given: GivenOption, option: Option, findings: Findings) -> Value | None:
        path = option.path
        if path == "haproxy.reload_cmd" and self.system is System.KUBEFIGURATOR and _RESTARTS.search(given.value):
            message = f"{given.name} {given.value!r}: dropped; a restart drops connections, pyconfd reloads by itself"
            findings.add(given.line, Effect.CHANGED, message)
            return None
        try:
            value = _parsed(option.form, given.value)
            TABLE[path].accept(list(value) if isinstance(value, tuple) else value)
        except (NotAcceptedError, ValueError) as error:
            findings.add(given.line, Effect.LEFT, f"{given.name}={given.value}: {error}")
            return None
        if path == "target.template" and isinstance(value, str):
            value = f"{value.removesuffix('.tpl').removesuffix('.tmpl')}.tmpl"
        return value

    def annotation(self, given: Annotation, findings: Findings) -> bool:
        """Return what becomes of an annotation; tell whether it is one of the system's."""
        name = given.name
        for known, fate in ANNOTATIONS[self.system].items():
            if name == known or (known.endswith(".") and name.startswith(known)):
                effect = Effect.CHANGED if fate.startswith("no longer") else Effect.TRANSLATED
                findings.add(given.line, effect, f"annotation {name}: {fate}")
                self._from_annotation(given, findings)
                return True
        return False

    def _from_annotation(self, given: Annotation, findings: Findings) -> None:
        """Add the setting that names the object or the value of an annotation."""
        path, value = {
            "kontrol.unity3d.com/master": ("hosts.master", given.value.strip()),
            "haproxy.unity3d.com/config": ("hosts.config", given.owner.replace("//", "/default/")),
        }.get(given.name, ("", ""))
        if not path or not value:
            return
        try:
            TABLE[path].accept(value)
        except NotAcceptedError as error:
            findings.add(given.line, Effect.LEFT, f"{path} = {toml_value(value)}: {error}{_OTHER_OWNER.get(path, '')}")
            return
        if "//" in given.owner and path == "hosts.config":
            message = (
                f"its manifest names no namespace: {path} is {toml_value(value)}; write the namespace that it is in"
            )
            findings.add(given.line, Effect.NOTED, message)
        self.settings.append(MigratedSetting(path, value, findings.file, given.line))
        findings.add(given.line, Effect.TRANSLATED, f"annotation {given.name} -> {path} = {toml_value(value)}")

    def text(self) -> tuple[str, list[MigrationFinding]]:
        """Return pyconfd.toml, and a finding for each setting that files disagree about."""
        findings: list[MigrationFinding] = []
        tables: dict[str, dict[str, MigratedSetting]] = {}
        for setting in self.settings:
            section, _, key = setting.path.partition(".")
            former = tables.setdefault(section, {}).get(key)
            if former and (setting.path == "configmap.env" or self._is_repeated(setting, former)):
                tables[section][key] = _both(former, setting)
                continue
            if former and former.value != setting.value:
                here, there = toml_value(setting.value), toml_value(former.value)
                message = f"{setting.path} is {here} here and {there} in {former.file}"
                other = "; a second load balancer is written as [[targets]]" if section == "target" else ""
                message = f"{message}; the latter was kept{other}"
                findings.append(MigrationFinding(setting.file, setting.line, Effect.LEFT, message))
                continue
            tables[section][key] = setting
        return "\n".join(self._lines(tables)) + "\n", findings

    @staticmethod
    def _is_repeated(setting: MigratedSetting, former: MigratedSetting) -> bool:
        return setting.path in _REPEATED and former.file == setting.file

    def _lines(self, tables: dict[str, dict[str, MigratedSetting]]) -> Iterator[str]:
        yield f"# Written by pyconfd migrate {self.system}. `pyconfd settings` shows what counts in the end."
        yield ""
        yield "[presets]"
        yield f"use = [{toml_value(PRESETS[self.system])}]"
        for section in sorted(tables):
            yield ""
            yield f"[{section}]"
            for key, setting in tables[section].items():
                place = f" line {setting.line}" if setting.line else ""
                yield f"{key} = {toml_value(setting.value)}  # {setting.file}{place}"


def _elsewhere(given: GivenOption) -> str:
    """Return which file a word stands for whose options it brings; "" for other words."""
    if given.name in {"EnvironmentFile", "--env-file"}:
        return f"{given.name} {given.value}: give that file to pyconfd migrate too"
    if given.name in {"$@", "$*", "${@}", "${*}"}:
        return f"{given.name}: the script's own arguments; give the command that calls it to pyconfd migrate too"
    return ""


def _both(first: MigratedSetting, second: MigratedSetting) -> MigratedSetting:
    """Return one setting with the items of two."""
    items = [item for one in (first, second) if isinstance(one.value, tuple) for item in one.value]
    return MigratedSetting(first.path, tuple(dict.fromkeys(items)), first.file, first.line)


def _parsed(form: OptionForm, text: str) -> Value:
    """Return a value as TOML has it.

    Raises:
        ValueError: it is not of the form.

    """
    value = text.strip()
    match form:
        case OptionForm.LIST | OptionForm.REPEATED:
            return tuple(part.strip() for part in value.split(",") if part.strip())
        case OptionForm.COMMAND:
            return tuple(shlex.split(value))
        case OptionForm.SECONDS:
            return _seconds(value)
        case OptionForm.BOOLEAN:
            return value.lower() not in FALSE_WORDS
        case OptionForm.CA:
            return False if value.lower() == "false" else value
        case OptionForm.COUNT:
            value = _LEVELS[min(int(value), len(_LEVELS) - 1)]
    return value


def _seconds(text: str) -> float:
    if re.fullmatch(r"\d+", text):
        return int(text)
    if not _DURATION.fullmatch(text):
        return float(text)
    factors = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    return sum(float(number) * factors[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s)", text))
