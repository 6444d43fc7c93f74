"""Go templates whose text would be another one here, or that would stop: ``migrate`` names them with their line.

The forms were found by comparing some 2,900 of them with Go's own text/template.
"""

import pytest

from pyconfd.migrate.migration import migrate
from pyconfd.migrate.report import Effect, InputFile, System

SERVICE, PORT = "(index .Services 0)", "(index .Ports 0)"
OTHER_TEXT = [
    "{{ . }}",
    "{{ $ }}",
    "{{ print . }}",
    "{{ println . }}",
    "{{ html . }}",
    "{{ urlquery . }}",
    '{{ printf "%v" . }}',
    '{{ . | printf "%+v" }}',
    f'{{{{ printf "%#v" {SERVICE} }}}}',
    f'{{{{ printf "%.2v" {SERVICE} }}}}',
    f'{{{{ printf "%#q" {PORT} }}}}',
    f'{{{{ printf "% x" {PORT} }}}}',
    '{{ printf "%#v" .Services }}',
    '{{ printf "%40s" .Nodes }}',
    f'{{{{ printf "%9v" {SERVICE}.External }}}}',
    '{{ printf "%#v" .Domain }}',
    f"{{{{ print {PORT}.IP 1 }}}}",
    f"{{{{ print 1 {PORT}.IP }}}}",
]
STOPPED = [
    '{{ printf "%s" .Services }}',
    f'{{{{ printf "%d" {SERVICE} }}}}',
    f'{{{{ printf "%T" {PORT} }}}}',
    "{{ $x := index .Services 0 }}{{ $x = index (index .Services 0).Endpoints 0 }}{{ $x.Name }}",
    "{{ with (or (index .Services 0) (index .Ports 0)) }}{{ .Mode }}{{ end }}",
]
THE_SAME = [
    f"{{{{ {SERVICE} }}}} {{{{ print {PORT} }}}} {{{{ print .Nodes }}}}",
    f'{{{{ printf "%-9s %v %q" {PORT}.IP {SERVICE} .Domain }}}}',
    f'{{{{ printf "%05d" {PORT}.Port }}}} {{{{ print "at " {PORT}.IP }}}}',
    '{{ $x := "" }}{{ range .Services }}{{ $x = . }}{{ end }}{{ $x }}',
]


def left(text: str) -> list[tuple[int, str]]:
    files = [InputFile("haproxy.tpl", f"# a line\n{text}\n")]
    return [(each.line, each.message) for each in migrate(System.KUBE2LB, files).of(Effect.LEFT)]


@pytest.mark.parametrize("text", [*OTHER_TEXT, *STOPPED])
def test_what_gives_another_text_is_named(text: str) -> None:
    assert [line for line, _ in left(text)] == [2], left(text)


@pytest.mark.parametrize("text", THE_SAME)
def test_what_gives_the_same_is_translated(text: str) -> None:
    assert left(text) == []
