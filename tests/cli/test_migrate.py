"""``pyconfd migrate`` on the command line: what is printed, written and ended with."""

from pathlib import Path

import pytest

from tests.cli.invoking import invoke


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "web.tpl"
    path.write_text("{{ range .Services }}{{ .Name }} {{ end }}\n")
    return path


def test_one_file_is_printed_alone_and_reported_on_standard_error(template: Path) -> None:
    result = invoke("migrate", "kube2lb", str(template))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("{% for service in services %}{{ service.name }} {% endfor")
    assert "# ---" not in result.stdout
    assert "Everything was translated" in result.stderr


def test_several_files_are_printed_with_their_names(template: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("kube2lb -domain cluster.local\n")
    result = invoke("migrate", "kube2lb", str(template), str(script))
    assert "# --- web.tmpl\n" in result.stdout
    assert "# --- pyconfd.toml\n" in result.stdout


def test_files_are_written_and_never_overwritten_unless_forced(template: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    assert invoke("migrate", "kube2lb", str(template), "--output-dir", str(target)).exit_code == 0
    [written] = target.iterdir()
    assert written.name == "web.tmpl"
    written.write_text("mine")
    refused = invoke("migrate", "kube2lb", str(template), "--output-dir", str(target))
    assert refused.exit_code == 78
    assert "--force" in refused.stderr
    assert written.read_text() == "mine"
    assert invoke("migrate", "kube2lb", str(template), "--output-dir", str(target), "--force").exit_code == 0
    assert "service.name" in written.read_text()
    assert [path.name for path in target.iterdir()] == ["web.tmpl"]
    assert written.stat().st_mode & 0o777 == 0o644


def test_what_is_not_translated_is_named_and_ends_with_1(tmp_path: Path) -> None:
    path = tmp_path / "web.tpl"
    path.write_text("a\n{{ js .Domain }}\n")
    result = invoke("migrate", "kube2lb", str(path))
    assert result.exit_code == 1
    assert "line 2" in result.stderr
    assert "1 thing was not translated" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("kube2lb",), ("nginx", "x"), ("kube2lb", "/does/not/exist")])
def test_a_wrong_command_line_ends_with_64(arguments: tuple[str, ...]) -> None:
    assert invoke("migrate", *arguments).exit_code == 64


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "web.tpl"
    path.write_bytes(b"\xff\xfe")
    result = invoke("migrate", "kube2lb", str(path))
    assert result.exit_code == 78
    assert "UTF-8" in result.stderr
