import os
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.haproxy.config.text import Word, split_words

HAPROXY = os.environ.get("HAPROXY") or shutil.which("haproxy", path="/usr/sbin:/usr/bin") or ""


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("", []),
        ("  # only a comment", []),
        ("  bind  *:80\t# comment", ["bind", "*:80"]),
        (r"reqadd X-Forwarded-Proto:\ http", ["reqadd", "X-Forwarded-Proto: http"]),
        (r"a\#b \\ \" \' \n\r\t\x41", ["a#b", "\\", '"', "'", "\n\r\tA"]),
        (r"^\.old$ \1", [r"^\.old$", r"\1"]),
        ('"a b"\'c d\'e ""', ["a bc de", ""]),
        (r'"\$a \" # \1"', [r'$a " # \1']),
        (r'"\\$a"', [r"\$a"]),
        (r"'a\ #$\''", ["a\\ #$\\'"]),
        ("ab#c", ["ab"]),
        ("a 'b", ["a", "'b"]),
    ],
)
def test_words_as_haproxy_reads_them(line: str, values: list[str]) -> None:
    assert [word.value for word in split_words(line)] == values


def test_words_keep_how_they_were_written() -> None:
    assert split_words(r"  a\ b 'c'  # d") == [Word("a b", r"a\ b"), Word("c", "'c'")]


@given(st.text())
def test_any_line_has_words(line: str) -> None:
    assert all(word.written in line for word in split_words(line))


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
@given(lines=st.lists(st.text(st.sampled_from("ab1 .\\\"'#$"), max_size=12), min_size=30, max_size=60))
@settings(max_examples=8, deadline=None)
def test_haproxy_reads_the_same_words(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    # Without variables, which are not expanded here, and without unmatched quotes, at which HAProxy gives up.
    kept = [f"<{line}>" for line in lines if line.count("'") % 2 == 0 and '"' not in line and "\\'" not in line]
    kept = [line for line in kept if len(split_words(line)) == 1 and "'" not in line.partition("#")[2]]
    path = tmp_path_factory.mktemp("words") / "t.cfg"
    path.write_text("".join(f".notice {line}\n" for line in kept))
    done = subprocess.run([HAPROXY, "-c", "-f", str(path)], capture_output=True, check=False, text=True)
    for number, line in enumerate(kept, 1):
        assert f"[{path}:{number}]: '{split_words(line)[0].value}'.\n" in done.stderr
