"""The whole of ``pyconfd migrate``: files of one predecessor in, texts and findings out."""

import errno
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from jinja2 import Environment, TemplateSyntaxError, nodes

from pyconfd.errors import ConfigurationError
from pyconfd.predecessors.gotemplate import GoTemplateError
from pyconfd.predecessors.migrate import keepalived
from pyconfd.predecessors.migrate.go_to_jinja import translate, untranslated
from pyconfd.predecessors.migrate.haproxy_text import begins_with_section, is_haproxy, upgrade
from pyconfd.predecessors.migrate.invocations import read
from pyconfd.predecessors.migrate.manifests import UnreadableManifestError, read_manifests
from pyconfd.predecessors.migrate.report import (
    Effect,
    Findings,
    InputFile,
    MigratedSetting,
    Migration,
    MigrationFinding,
    OutputText,
    System,
)
from pyconfd.predecessors.migrate.settings_file import SettingsCollector
from pyconfd.settings import resolve

SETTINGS_FILE = "pyconfd.toml"

_TEMPLATE_SUFFIXES = (".tmpl", ".tpl", ".j2", ".jinja", ".jinja2", ".gotmpl")
_HAPROXY_SUFFIXES = (".cfg", ".conf")
_MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
_CLUSTER_TEMPLATES = (System.KUBERNETES_HAPROXY, System.ADS_INFRA_HAPROXY)
_SWITCH = "cluster_templates.allow_configuration_from_cluster"
_RISK = "the author of that template is trusted as much as one of fragments (docs/security.md)"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SCRIPT = re.compile(r"#!(?!.*\bhaproxy\b)")
_GO_ACTION = re.compile(r"\{\{")
_PLACEHOLDER = re.compile(r"\b__[A-Z][A-Z0-9_]*__\b")
"""What the images of kube2lb's examples replace with sed before kube2lb reads the template."""


def migrate(system: System, files: Iterable[InputFile]) -> Migration:
    """Translate a predecessor's files.

    Never raises on any text: what cannot be translated is named and left marked.
    """
    run = _Run(system)
    for file in files:
        run.file(file)
    return run.result()


class _Run:
    def __init__(self, system: System) -> None:
        self._system = system
        self._collector = SettingsCollector(system)
        self._outputs: list[OutputText] = []
        self._findings: list[MigrationFinding] = []
        self._proposals: list[str] = []

    def result(self) -> Migration:
        outputs = list(self._outputs)
        findings = list(self._findings)
        if self._uses_cluster_template():
            self._collector.settings.append(MigratedSetting(_SWITCH, True, _RISK, 0))
            findings.append(MigrationFinding(SETTINGS_FILE, 0, Effect.NOTED, f"{_SWITCH} = true: {_RISK}"))
        if self._collector.settings or self._proposals:
            text, conflicts = self._collector.text()
            text = "\n".join([text, *self._proposals])
            outputs.append(OutputText(SETTINGS_FILE, text))
            findings += [*conflicts, *_judged(text)]
        return Migration(tuple(outputs), tuple(findings))

    def _uses_cluster_template(self) -> bool:
        """Return whether the predecessor took its configuration from the cluster."""
        paths = {setting.path for setting in self._collector.settings}
        if self._system is System.KUBERNETES_HAPROXY:
            return bool(paths or self._outputs)
        return "hosts.config" in paths

    def file(self, file: InputFile) -> None:
        """Translate one file."""
        # Go and Jinja would print the carriage return of CR LF, which is refused in haproxy.cfg.
        file = replace(file, text=file.text.replace("\r\n", "\n"))
        findings = Findings(file.name)
        lower = file.name.lower()
        if _SCRIPT.match(file.text) or lower.endswith(".sh"):
            self._script(file, findings)
        elif keepalived.is_keepalived(file.text):
            self._proposals.append(keepalived.propose(file.text, findings))
        elif lower.endswith(_MANIFEST_SUFFIXES) and not is_haproxy(file.text):
            self._manifest(file, findings)
        elif lower.endswith(_TEMPLATE_SUFFIXES) or (
            self._system is System.KUBE2LB and _GO_ACTION.search(file.text) and "kube2lb " not in file.text
        ):
            self._template(file.name, file.text, findings)
        elif begins_with_section(file.text) or lower.endswith(_HAPROXY_SUFFIXES):
            self._haproxy(file, findings)
        else:
            self._script(file, findings)
        self._findings += sorted(findings.found, key=lambda finding: finding.line)

    def _script(self, file: InputFile, findings: Findings) -> None:
        """Translate what starts a predecessor; a start script may write a first haproxy.cfg itself."""
        before = len(findings.found)
        self._collector.take(read(self._system, file.text), findings)
        if len(findings.found) == before and self._system is System.KUBEFIGURATOR:
            self._collector.consumer(file.text, findings)
        if len(findings.found) == before:
            findings.add(0, Effect.LEFT, f"nothing of {self._system} was found in it")
        elif is_haproxy(file.text):
            message = "it writes a first configuration of HAProxy, which is not needed: HAProxy has its own unit"
            findings.add(0, Effect.NOTED, message)

    def _haproxy(self, file: InputFile, findings: Findings) -> None:
        text = upgrade(file.text, findings)
        if not any(finding.effect is Effect.CHANGED for finding in findings.found):
            findings.add(0, Effect.TRANSLATED, "needs no change")
        name = _stem(file.name)
        if self._system is System.KUBEFIGURATOR and not name[:1].isdigit():
            # Its defaults are for what comes below, and that is 10-kubefigurator.tmpl.
            name = f"01-{name}"
        self._write(f"{name}.conf", text)

    def _template(self, name: str, text: str, findings: Findings, offset: int = 0) -> None:
        if self._system is System.KUBE2LB:
            text = _from_go(name, text, findings)
        else:
            _check_jinja(text, findings)
        if self._system is not System.KUBE2LB or is_haproxy(text):
            text = upgrade(text, findings)
        if self._system is System.KUBERNETES_HAPROXY:
            self._collector.environment(_variables_in(text), findings, offset)
        if self._system in _CLUSTER_TEMPLATES:
            message = (
                "belongs back into the cluster, where pyconfd reads it; as a fragment it would need"
                " templates.trim_blocks = false and templates.undefined = lenient"
            )
            findings.add(0, Effect.NOTED, message)
        if self._system is System.PYTHON_CONFD and not text.endswith("\n\n"):
            message = (
                "does not end with an empty line: python-confd glued the next fragment to its last line, pyconfd begins"
                " each on a new one"
            )
            findings.add(0, Effect.NOTED, message)
        if "curdate" in text:
            findings.add(0, Effect.NOTED, "uses extra.curdate: the date alone causes no reload any more")
        self._write(f"{_stem(name)}.tmpl", text)

    def _manifest(self, file: InputFile, findings: Findings) -> None:
        try:
            manifest = read_manifests(self._system, file.text)
        except UnreadableManifestError as error:
            findings.add(error.line, Effect.LEFT, str(error))
            return
        known = [self._collector.annotation(given, findings) for given in manifest.annotations]
        self._collector.take(manifest.given, findings)
        for embedded in manifest.texts:
            if not is_haproxy(embedded.text) and embedded.key != "template":
                continue
            if self._system is System.KUBERNETES_HAPROXY and embedded.key != "template":
                message = f"the key {embedded.key} is left as it is: pyconfd reads template, as kubernetes-haproxy did"
                findings.add(embedded.offset, Effect.NOTED, message)
                continue
            inner = Findings(file.name)
            text = embedded.text.replace("\r\n", "\n")
            self._template(f"{_stem(file.name)}-{embedded.key}", text, inner, embedded.offset)
            for one in inner.found:
                findings.add(one.line + embedded.offset if one.line else 0, one.effect, one.message)
        if not any(known) and not manifest.given and not manifest.texts:
            findings.add(0, Effect.NOTED, f"nothing of {self._system} was found in it")

    def _write(self, name: str, text: str) -> None:
        taken = {output.name for output in self._outputs} | {SETTINGS_FILE}
        stem, dot, suffix = name.rpartition(".")
        number = 2
        while name in taken:
            name, number = f"{stem}-{number}{dot}{suffix}", number + 1
        self._outputs.append(OutputText(name, text))


def _judged(text: str) -> Iterator[MigrationFinding]:
    """Return what pyconfd itself would say at its start to these settings; files that they name are not looked at."""

    def read(path: str) -> str:
        if path == SETTINGS_FILE:
            return text
        raise FileNotFoundError(errno.ENOENT, "is not looked at", path)

    try:
        resolve({"config": SETTINGS_FILE}, {}, read)
    except ConfigurationError as error:
        for problem in error.problems:
            place = problem.place.removeprefix(f"{SETTINGS_FILE}: ")
            remedy = f"; {problem.remedy}" if problem.remedy else ""
            yield MigrationFinding(SETTINGS_FILE, 0, Effect.LEFT, f"{place}: {problem.message}{remedy}")


def _stem(name: str) -> str:
    """Return a name without the ending that says it is a template or a configuration."""
    for suffix in (*_TEMPLATE_SUFFIXES, *_HAPROXY_SUFFIXES, *_MANIFEST_SUFFIXES):
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[: -len(suffix)]
    return name


def _from_go(name: str, text: str, findings: Findings) -> str:
    seen: set[str] = set()
    for found in _PLACEHOLDER.finditer(text):
        if found[0] not in seen:
            seen.add(found[0])
            message = f"{found[0]}: the container's start script put a value here; write the value, then migrate again"
            findings.add(text.count("\n", 0, found.start()) + 1, Effect.LEFT, message)
    try:
        translated = translate(text, name)
    except GoTemplateError as error:
        findings.add(error.line, Effect.LEFT, f"this template cannot be read: {error.message}")
        kept = text.replace("#}", "# }")
        return f"{{{{ {untranslated(f'{name} {error}')} }}}}\n{{#\n{kept}\n#}}\n"
    for remark in translated.remarks:
        findings.add(remark.line, Effect.LEFT if remark.is_problem else Effect.NOTED, remark.message)
    findings.add(0, Effect.TRANSLATED, f"{translated.actions} actions of Go are Jinja now")
    return translated.text


def _variables_in(text: str) -> dict[str, int]:
    """Return the variables of the environment that a template of Jinja looks at, each with its first line."""
    try:
        tree = _jinja().parse(text)
    except TemplateSyntaxError:
        return {}
    found: dict[str, int] = {}
    for node in tree.find_all((nodes.Getattr, nodes.Getitem, nodes.Call)):
        match node:
            case nodes.Call(
                node=nodes.Getattr(node=nodes.Name(name="env"), attr="get"), args=[nodes.Const(value=name), *_]
            ):
                pass
            case nodes.Getitem(node=nodes.Name(name="env"), arg=nodes.Const(value=name)):
                pass
            case nodes.Getattr(node=nodes.Name(name="env"), attr=name) if not hasattr(dict, name):
                pass
            case _:
                continue
        if isinstance(name, str) and _VARIABLE.fullmatch(name):
            found[name] = min(node.lineno, found.get(name, node.lineno))
    return dict(sorted(found.items()))


def _jinja() -> Environment:
    return Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"], autoescape=False)  # noqa: S701 - parses only


def _check_jinja(text: str, findings: Findings) -> None:
    try:
        _jinja().parse(text)
    except TemplateSyntaxError as error:
        findings.add(error.lineno, Effect.LEFT, f"is no Jinja: {error.message}")
    else:
        findings.add(0, Effect.TRANSLATED, "is Jinja already")
