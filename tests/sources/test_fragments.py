import os
from pathlib import Path

import pytest

from pyconfd.errors import Problem, TransientError
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.sources.fragments import SettledFragments, read_fragments


def names(fragments: tuple[Fragment, ...]) -> list[str]:
    return [fragment.name for fragment in fragments]


def problems(directory: Path) -> tuple[Problem, ...]:
    with pytest.raises(TransientError) as caught:
        read_fragments(str(directory))
    assert all(problem.place and problem.remedy for problem in caught.value.problems)
    return caught.value.problems


def config_map(mount: Path, generation: str, texts: dict[str, str]) -> None:
    """Write what the kubelet does for a mounted ConfigMap, the first time and at each update."""
    folder = mount / generation
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
        if not (mount / name).is_symlink():
            (mount / name).symlink_to(f"..data/{name}")
    (mount / "..data_tmp").symlink_to(generation)
    (mount / "..data_tmp").rename(mount / "..data")


def test_fragments_come_in_natural_order_with_their_texts(tmp_path: Path) -> None:
    (tmp_path / "10-stats.conf").write_text("ten\n")
    (tmp_path / "9-tcp.tmpl").write_bytes(b"\xef\xbb\xbfnine\n")  # with a byte order mark
    found = read_fragments(str(tmp_path))
    assert found.fragments == (Fragment("9-tcp.tmpl", "nine\n"), Fragment("10-stats.conf", "ten\n"))
    assert [fragment.is_template for fragment in found.fragments] == [True, False]


def test_other_texts_below_the_directory_are_includable_by_relative_name(tmp_path: Path) -> None:
    (tmp_path / "01.conf").write_text("")
    (tmp_path / "macros.j2").write_text("{% macro m() %}{% endmacro %}")
    (tmp_path / "lib" / "deep").mkdir(parents=True)
    (tmp_path / "lib" / "deep" / "x.tmpl").write_text("x")
    (tmp_path / "lib" / "y.conf").write_text("y")
    found = read_fragments(str(tmp_path))
    assert names(found.fragments) == ["01.conf"]
    assert names(found.includable) == ["lib/deep/x.tmpl", "lib/y.conf", "macros.j2"]


@pytest.mark.parametrize(
    "name",
    ["tls.pem", "TLS.KEY", "ca.crt", "store.p12", "pyconfd.toml", "token", "kubeconfig", "notes.txt", "a.j2.old"],
)
def test_only_files_of_templates_are_includable(tmp_path: Path, name: str) -> None:
    (tmp_path / "01.conf").write_text("")
    (tmp_path / name).write_text("secret")
    (tmp_path / "innocent.j2").symlink_to(name)
    assert read_fragments(str(tmp_path)).includable == ()


def test_what_settings_name_as_credentials_is_not_includable(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to("t")
    (tmp_path / "t" / "01.conf").write_text("")
    (tmp_path / "t" / "token.j2").write_text("secret")
    (tmp_path / "t" / "other.j2").symlink_to("token.j2")
    credentials = frozenset({str(tmp_path / "link" / "token.j2")})
    assert read_fragments(str(tmp_path / "t"), credentials=credentials).includable == ()


@pytest.mark.parametrize("name", ["token.conf", "linked.conf"])
def test_credentials_as_a_fragment_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "01.conf").write_text("")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "token").write_text("secret")
    (tmp_path / name).symlink_to("lib/token")
    with pytest.raises(TransientError) as caught:
        read_fragments(str(tmp_path), credentials=frozenset({str(tmp_path / "lib" / "token")}))
    (found,) = caught.value.problems
    assert found.place == name
    assert "secret" not in str(found)


@pytest.mark.parametrize("name", [".env", ".git/config", "#a#", "a~", "a.swp", "a.dpkg-old"])
def test_hidden_files_and_backups_are_not_includable(tmp_path: Path, name: str) -> None:
    (tmp_path / "01.conf").write_text("")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("left out")
    assert read_fragments(str(tmp_path)).includable == ()


def test_hidden_and_backup_fragments_are_no_fragments(tmp_path: Path) -> None:
    for name in ("01.conf", ".#01.conf", ".01.conf.swp", "01.conf~", "01.conf.dpkg-new", "#01.conf"):
        (tmp_path / name).write_text("")
    assert names(read_fragments(str(tmp_path)).fragments) == ["01.conf"]


def test_binary_and_large_files_are_not_includable(tmp_path: Path) -> None:
    (tmp_path / "01.conf").write_text("")
    (tmp_path / "logo.j2").write_bytes(b"\x89PNG\xff")
    (tmp_path / "large.j2").write_text("x" * (1024 * 1024 + 1))
    (tmp_path / "fits.j2").write_text("x" * 1024 * 1024)
    assert names(read_fragments(str(tmp_path)).includable) == ["fits.j2"]


def test_a_config_map_mount_is_read_and_its_swap_is_seen(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    (tmp_path / "link").symlink_to("mount")
    config_map(mount, "..2026_01", {"01.conf": "old\n", "m.j2": "old"})
    assert read_fragments(str(mount)).fragments == (Fragment("01.conf", "old\n"),)
    config_map(mount, "..2026_02", {"01.conf": "new\n", "m.j2": "new"})
    found = read_fragments(str(tmp_path / "link"))
    assert found.fragments == (Fragment("01.conf", "new\n"),)
    assert found.includable == (Fragment("m.j2", "new"),)


def test_a_fragment_that_links_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("root:x:0:0\n")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "01.conf").symlink_to("../outside")
    (found,) = problems(tmp_path / "t")
    assert found.place == "01.conf"
    assert str(tmp_path / "outside") in found.message


def test_includables_that_link_out_of_the_directory_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.j2").write_text("secret")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "01.conf").write_text("")
    (tmp_path / "t" / "dir").symlink_to("../outside")
    (tmp_path / "t" / "file.j2").symlink_to("../outside/secret.j2")
    (tmp_path / "t" / "prefix").symlink_to(tmp_path / "t-other")
    assert read_fragments(str(tmp_path / "t")).includable == ()


def test_loops_of_links_end(tmp_path: Path) -> None:
    (tmp_path / "01.conf").write_text("")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.j2").write_text("x")
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "a" / "self").symlink_to("self")
    (tmp_path / "b").symlink_to("a")
    assert names(read_fragments(str(tmp_path)).includable) == ["a/x.j2", "b/x.j2"]


@pytest.mark.parametrize(
    ("name", "message", "remedy"),
    [
        ("gone", "does not exist", "mount it again"),
        ("file", "is a file", "--template-dir"),
        ("empty", "there is no fragment", "pyconfd fragments --copy-to"),
    ],
)
def test_what_is_no_template_directory(tmp_path: Path, name: str, message: str, remedy: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README").write_text("")
    (found,) = problems(tmp_path / name)
    assert found.place == str(tmp_path / name)
    assert message in found.message
    assert remedy in found.remedy


def test_every_bad_fragment_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "01.conf").write_text("")
    (tmp_path / "02.conf").write_bytes(b"global\n # caf\xe9\n")
    (tmp_path / "03.conf").mkdir()
    (tmp_path / "04.tmpl").symlink_to("gone")
    os.mkfifo(tmp_path / "05.tmpl")
    found = problems(tmp_path)
    assert [problem.place for problem in found] == ["02.conf line 2", "03.conf", "04.tmpl", "05.tmpl"]
    assert "0xe9" in found[0].message
    assert "directory" in found[1].message
    assert "does not exist" in found[2].message


def test_a_tree_that_is_no_template_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "01.conf").write_text("")
    for number in range(2001):
        (tmp_path / f"{number}.j2").touch()
    (found,) = problems(tmp_path)
    assert "2000 files" in found.message


def test_a_directory_that_may_be_empty_is_settled_too(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="no fragment"):
        SettledFragments(lambda: read_fragments(str(tmp_path)), lambda: None).read()
    path = tmp_path / "01-a.conf"
    steps = iter(["", "half", "whole"])

    def go_on() -> None:
        path.write_text(next(steps, "whole"))

    def read() -> FragmentSet:
        return read_fragments(str(tmp_path), may_be_empty=True)

    assert SettledFragments(read, go_on).read().fragments[0].text == "whole"
    path.unlink()
    fragments = SettledFragments(read, lambda: None)
    assert fragments.read().fragments == ()
    path.write_bytes(b"\xe9")
    with pytest.raises(TransientError, match="0xe9"):
        fragments.read()
    path.unlink()
    assert fragments.read().fragments == ()
