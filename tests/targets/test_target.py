from pathlib import Path

import pytest

from pyconfd.errors import ApplyError, RejectedInput, TransientError
from pyconfd.model.context import Context
from pyconfd.model.outcome import Held
from pyconfd.predecessors.targets.target import AppliedTarget, Target
from tests.targets.fakes import context, target, told


def apply(one: Target, what: Context | None = None, *, protect: bool = False) -> AppliedTarget:
    outcome = one.apply(what or context(), curdate="now", now=1.0, protect=protect)
    assert isinstance(outcome, AppliedTarget)
    return outcome


def test_a_file_is_written_and_its_balancer_notified(tmp_path: Path) -> None:
    one = target(tmp_path)
    apply(one)

    assert (tmp_path / "web.conf").read_text() == "word one\n"
    assert (tmp_path / "web.conf").stat().st_mode & 0o777 == 0o644
    assert told(tmp_path) == 1


def test_unchanged_text_changes_nothing_even_after_a_restart(tmp_path: Path) -> None:
    apply(target(tmp_path))
    before = (tmp_path / "web.conf").stat()
    again = target(tmp_path)
    apply(again)
    apply(again)

    assert (tmp_path / "web.conf").stat().st_ino == before.st_ino
    assert told(tmp_path) == 1


def test_what_the_check_refuses_is_never_installed(tmp_path: Path) -> None:
    (tmp_path / "web.conf").write_text("former\n")
    one = target(tmp_path, check=("/bin/sh", "-c", 'echo "bad line in $0"; grep -q two "$0"'))
    with pytest.raises(RejectedInput) as caught:
        apply(one)

    assert "bad line in" in str(caught.value)
    assert ".pyconfd-" not in str(caught.value)
    assert (tmp_path / "web.conf").read_text() == "former\n"
    assert told(tmp_path) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["web.conf", "web.tpl"]
    apply(one, context("two"))
    assert told(tmp_path) == 1


def test_a_failed_notification_restores_the_former_file(tmp_path: Path) -> None:
    command = f"command:test ! -e {tmp_path}/down && echo told >> {tmp_path}/web.log"
    one = target(tmp_path, notify=command)
    apply(one)
    (tmp_path / "down").touch()
    with pytest.raises(ApplyError):
        apply(one, context("two"))
    assert (tmp_path / "web.conf").read_text() == "word one\n"

    (tmp_path / "down").unlink()
    apply(one)  # whether the balancer loaded the other text is not known
    assert told(tmp_path) == 2
    apply(one, context("two"))
    assert (tmp_path / "web.conf").read_text() == "word two\n"
    assert told(tmp_path) == 3


def test_the_first_file_stays_so_that_its_balancer_can_start(tmp_path: Path) -> None:
    one = target(tmp_path, notify="pidfile:HUP:/nowhere/balancer.pid")
    with pytest.raises(ApplyError):
        apply(one)

    assert (tmp_path / "web.conf").read_text() == "word one\n"
    assert one.applied() is None


@pytest.mark.parametrize("template", ["{% if %}", "{{ nothing }}", "{{ map_file('a', {'b': 'c'}) }}"])
def test_a_template_with_an_error_changes_nothing(tmp_path: Path, template: str) -> None:
    one = target(tmp_path)
    apply(one)
    (tmp_path / "web.tpl").write_text(template)
    with pytest.raises(RejectedInput):
        apply(one)

    assert (tmp_path / "web.conf").read_text() == "word one\n"
    assert told(tmp_path) == 1


def test_a_template_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    one = target(tmp_path)
    apply(one)
    (tmp_path / "web.tpl").unlink()

    assert one.template_changed()
    with pytest.raises(TransientError):
        apply(one)
    assert (tmp_path / "web.conf").exists()


def test_the_date_alone_is_no_change(tmp_path: Path) -> None:
    one = target(tmp_path)
    (tmp_path / "web.tpl").write_text("{{ extra.curdate }} {{ word }}")
    one.apply(context(), curdate="monday", now=1.0, protect=False)
    one.apply(context(), curdate="tuesday", now=2.0, protect=False)
    assert (tmp_path / "web.conf").read_text() == "monday one\n"

    one.apply(context("two"), curdate="wednesday", now=3.0, protect=False)
    assert (tmp_path / "web.conf").read_text() == "wednesday two\n"


def test_an_edit_of_the_output_is_repaired(tmp_path: Path) -> None:
    one = target(tmp_path)
    apply(one)
    (tmp_path / "web.conf").write_text("by hand\n")

    assert not one.is_in_place()
    apply(one)
    assert (tmp_path / "web.conf").read_text() == "word one\n"
    assert told(tmp_path) == 2


def test_losing_every_endpoint_is_held_where_guarded(tmp_path: Path) -> None:
    one = target(tmp_path)
    apply(one)
    held = one.apply(context("none", ready=0), curdate="", now=2.0, protect=True)

    assert isinstance(held, Held)
    assert (tmp_path / "web.conf").read_text() == "word one\n"
    apply(one, context("none", ready=0))
    assert (tmp_path / "web.conf").read_text() == "word none\n"


def test_check_leaves_nothing_behind(tmp_path: Path) -> None:
    target(tmp_path, check=("grep", "-q", "one")).check("word one\n")
    with pytest.raises(RejectedInput):
        target(tmp_path, check=("grep", "-q", "one")).check("word two\n")

    assert [path.name for path in tmp_path.iterdir()] == ["web.tpl"]
