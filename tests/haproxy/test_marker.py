import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.haproxy.config.text import digest_in, digest_of, mark
from tests.haproxy.bench import Bench
from tests.world.haproxy import configuration

DIGEST = "ab" * 32


def test_the_text_stands_unchanged_before_the_marker() -> None:
    assert mark("global\n    maxconn 1\n", DIGEST).startswith("global\n    maxconn 1\n")
    assert mark("listen x", DIGEST).startswith("listen x\n")


def test_the_digest_is_found_again_in_the_text_and_in_the_field() -> None:
    assert digest_in(mark("", DIGEST)) == DIGEST
    assert digest_of(f"pyconfd:{DIGEST}") == DIGEST
    assert digest_of(f"the big one pyconfd:{DIGEST}") == DIGEST


@pytest.mark.parametrize(
    "description", ["", "lb one", "pyconfd:abc", f"pyconfd:{DIGEST} and more", f"xpyconfd:{DIGEST}"]
)
def test_other_descriptions_carry_no_digest(description: str) -> None:
    assert digest_of(description) is None


def test_a_description_under_a_condition_is_not_taken_over() -> None:
    text = "global\n.if defined(X)\n    description maybe\n.endif\n"
    assert "maybe" not in mark(text, DIGEST).removeprefix(text)


@given(st.text())
def test_any_text_can_be_marked(text: str) -> None:
    assert digest_in(mark(text, DIGEST)) == DIGEST or ".if" in text or '"' in text or "'" in text


@pytest.mark.haproxy
def test_a_worker_shows_the_marker_behind_the_operators_own_description(bench: Bench) -> None:
    lines = 'description "first \\"balancer\\"" of\\ two \'a\\b\''
    bench.conf.write_text(mark(configuration(bench.port, global_lines=lines), DIGEST))
    bench.haproxy.start()
    running = bench.haproxy.running()
    assert running is not None
    assert running.digest == DIGEST
