"""Short forms of the figures of tests/bench/under_load.py and hashing.py: what clients notice of live changes."""

from pathlib import Path

import pytest

from tests.bench.hashing import add_and_reload
from tests.bench.under_load import bursts, replace_pods, rolling_update

pytestmark = pytest.mark.haproxy


def test_no_answer_comes_from_a_pod_whose_removal_was_acknowledged(tmp_path: Path) -> None:
    found = replace_pods(tmp_path, changes=20, clients=8)
    assert found.requests > 100
    assert (found.stale, found.failed, found.reloaded) == (0, 0, False)


def test_after_bursts_of_changes_the_process_and_the_file_are_what_was_rendered(tmp_path: Path) -> None:
    found = bursts(tmp_path, services=60, each=5, answering=5, changes=600, burst=50)
    assert found.requests > 100
    assert (found.failed, found.unlike) == ([], [])
    assert (found.reloaded, found.file_unlike) == (False, False)


def test_no_request_fails_while_all_pods_are_replaced_one_after_the_other(tmp_path: Path) -> None:
    found = rolling_update(tmp_path, services=5, each=2, clients=10)
    assert found.requests > 100
    assert (found.failed, found.unlike) == ([], [])
    assert (found.answered, found.reloaded) == (10, False)


def test_a_reload_moves_no_key_of_a_consistent_hash(tmp_path: Path) -> None:
    found = add_and_reload(tmp_path, servers=5, keys=2000)
    assert 0 < found.by_addition < found.keys / 2
    assert (found.by_reload, found.elsewhere) == (0, 0)
