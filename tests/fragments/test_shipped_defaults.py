"""What the sections of the shipped fragments inherit, also beside fragments that an operator copied from older ones."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from pyconfd.fragments import directory
from pyconfd.haproxy.config.text import Section, parse
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.fragments.shipped import GOLDEN, HAPROXY, context_of, read_context, write_rendering

DEFAULTS = "01-defaults.conf"
SHIPPED = (Path(directory()) / DEFAULTS).read_text()
OLDER = SHIPPED.replace("\ndefaults base\n", "\ndefaults\n").partition("\n# What the backends of domains")[0] + "\n"
"""As it was shipped before there were backends that are ``from`` a section: one section without a name."""

OWN = """
frontend own-in
    bind 127.0.0.1:1
    option httplog
    default_backend own
backend own
    server a 127.0.0.1:2
backend mine from base
    timeout server 5m
    server a 127.0.0.1:2
listen own-tcp
    mode tcp
    no option idle-close-on-response
    bind 127.0.0.1:3
    option tcplog
    server a 127.0.0.1:2
"""
"""An operator's own fragment, after the shipped ones."""

CASES = sorted(path.name for path in GOLDEN.iterdir())

Effective = tuple[Mapping[tuple[str, ...], tuple[str, ...]], tuple[tuple[str, ...], ...]]


def render(defaults: str, case: str, files_dir: str, own: str = OWN) -> Rendering:
    """Render the shipped fragments with ``defaults`` in the place of theirs."""
    domains, variables = read_context(GOLDEN / case / "context.json")
    shipped = read_fragments(directory())
    fragments = [Fragment(each.name, defaults if each.name == DEFAULTS else each.text) for each in shipped.fragments]
    everything = FragmentSet((*fragments, Fragment("10-own.conf", own)), shipped.includable)
    renderer = Renderer(everything, RenderOptions(files_dir, variables=variables))
    return renderer.render(context_of(domains, files_dir), curdate="").rendering


def effective(text: str) -> dict[str, Effective]:
    """Return what holds in each section: settings, of which the last counts, and all other lines in order."""
    nothing: Effective = ({}, ())
    last, named, found = nothing, {"": nothing}, dict[str, Effective]()
    for section in parse(text):
        base = nothing if section.keyword in {"defaults", "global"} else last
        if section.options[:1] == ("from",):
            base = named[section.options[1]]
        own = _with(base, section)
        if section.keyword == "defaults":
            last = named[section.name] = own
        else:
            title = section.title.partition(" from ")[0]
            found[title] = own if section.keyword != "global" else _with(found.get(title, nothing), section)
    return found


def _with(base: Effective, section: Section) -> Effective:
    settings, others = dict(base[0]), list(base[1])
    for line in section.lines:
        words = line.words[1:] if line.words[0] == "no" else line.words
        if words[0] in {"server", "bind", "http-request", "tcp-request", "tcp-check", "use_backend", "stats"}:
            others.append(line.words)
        else:
            settings[words[: 2 if words[0] in {"option", "timeout"} else 1]] = line.words
    return settings, tuple(others)


def test_the_older_file_has_one_section_without_a_name() -> None:
    (only,) = (section for section in parse(OLDER) if section.keyword == "defaults")
    assert (only.name, only.options) == ("", ())


@pytest.mark.parametrize("case", CASES)
def test_every_section_inherits_what_it_did(case: str) -> None:
    now = effective(render(SHIPPED, case, "/files").text)
    before = effective(render(OLDER, case, "/files", OWN.replace(" from base", "")).text)
    assert now == before
    assert before["backend own"][0][("mode",)] == ("mode", "http")


def test_the_backends_of_domains_need_no_lines_of_their_own() -> None:
    sections = parse(render(SHIPPED, "every-proto", "/files").text)
    found = {section.options: {line.words[0] for line in section.lines} for section in sections if section.options}
    assert found["from", "http-service"] == found["from", "https-service"] == {"mode", "server"}


@pytest.mark.parametrize("case", CASES)
def test_with_the_operators_older_defaults_the_templates_give_what_they_gave(case: str) -> None:
    text = render(OLDER, case, "/files", "").text
    assert " from " not in "".join(
        f"{line}\n" for line in text.splitlines() if line.startswith(("backend", "defaults"))
    )
    for section in parse(text):
        if section.title.startswith("backend be-"):
            assert [line.words for line in section.lines][1] == ("balance", "roundrobin")


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
@pytest.mark.parametrize("age", ["shipped", "older"])
@pytest.mark.parametrize("case", CASES)
def test_haproxy_warns_of_nothing_beside_an_operators_own_sections(case: str, age: str, tmp_path: Path) -> None:
    own = OWN if age == "shipped" else OWN.replace(" from base", "")
    rendering = render(SHIPPED if age == "shipped" else OLDER, case, str(tmp_path), own)
    write_rendering(rendering, tmp_path / "haproxy.cfg")
    done = subprocess.run(
        [HAPROXY, "-c", "-f", str(tmp_path / "haproxy.cfg")], capture_output=True, check=False, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Warning" not in done.stdout


def test_the_golden_plans_are_of_the_shipped_defaults() -> None:
    plans = sorted((GOLDEN.parent / "live").glob("shipped-*/*.cfg"))
    assert plans
    for path in plans:
        assert SHIPPED in path.read_text(), path
