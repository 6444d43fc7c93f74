"""The templates that came to serve last, over restarts."""

import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pyconfd.model.context import AcceptedTemplate
from pyconfd.sandbox.background import FILE, AcceptedTemplates

ONE = AcceptedTemplate("configmap lb/config", "listen {{ 'é' }}\n", "listen é\n")
TWO = AcceptedTemplate("service lb/x", None, "text\n")


def test_they_survive_a_restart_and_nobody_else_reads_them(tmp_path: Path) -> None:
    state = tmp_path / "state"
    kept = AcceptedTemplates(str(state))
    assert kept.known() == {}
    kept.keep((ONE, TWO))
    assert AcceptedTemplates(str(state)).known() == {ONE.name: ONE, TWO.name: TWO}
    assert stat.S_IMODE((state / FILE).stat().st_mode) == 0o600
    assert [path.name for path in state.iterdir()] == [FILE]
    kept.keep((TWO,))
    assert AcceptedTemplates(str(state)).known() == {TWO.name: TWO}


def test_what_is_kept_already_is_not_written_again(tmp_path: Path) -> None:
    AcceptedTemplates(str(tmp_path)).keep((ONE,))
    written = (tmp_path / FILE).stat().st_ino
    AcceptedTemplates(str(tmp_path)).keep((ONE,))
    assert (tmp_path / FILE).stat().st_ino == written
    AcceptedTemplates(str(tmp_path / "never")).keep(())
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("content", [b"{", b"[{}]", b"\xff", b"{}"])
def test_a_damaged_file_counts_as_empty_and_is_said_once(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    kept = AcceptedTemplates(str(tmp_path))
    with capture_logs() as logs:
        assert kept.known() == kept.known() == {}
    assert [line["event"] for line in logs] == ["state_file.unreadable"]
    kept.keep((ONE,))
    assert AcceptedTemplates(str(tmp_path)).known() == {ONE.name: ONE}


def test_a_directory_that_cannot_be_written_stops_nobody_and_is_tried_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("a file")
    kept = AcceptedTemplates(str(state))
    with capture_logs() as logs:
        kept.keep((ONE,))
        kept.keep((ONE,))
    assert [line["event"] for line in logs if line["event"].endswith("unwritable")] == ["state_file.unwritable"]
    assert kept.known() == {ONE.name: ONE}
    state.unlink()
    kept.keep((ONE,))
    assert AcceptedTemplates(str(state)).known() == {ONE.name: ONE}
