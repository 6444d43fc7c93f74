"""No value that a stranger can set adds a word, a condition, a variable, a line, a directive or a section.

The structure of what is rendered for a hostile value is compared with that for sound ones: it is the same, or the
object is refused by name and what is left is what there would be without the value.
"""

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyconfd.model.rendering import Rendering
from tests.presets.smuggling import (
    BENIGN,
    FILES,
    GONE,
    OTHER,
    SCENES,
    crowd,
    fields_of,
    refused_objects,
    rendered,
    shape,
    snapshot,
    sound_shapes,
)
from tests.world.haproxy import BINARY

pytestmark = pytest.mark.timeout(400)

ATTACKS = (
    "a.com } || { always_true",
    "a.com } or { always_true",
    "a\n    http-request deny",
    "a\nbackend evil\n    server e 192.0.2.66:80",
    "a\r\nglobal\n  lua-load /tmp/x",
    "a if TRUE",
    "a unless FALSE",
    "or",
    "if",
    "unless",
    "||",
    "{",
    "}",
    "!",
    "-f",
    "-i",
    "--",
    "a -f /etc/shadow",
    "%[env(HOME)]",
    "%ci",
    "${HOME}",
    "$HOME",
    '"${HOME}"',
    '"',
    "'",
    "a' 'b",
    "\\",
    "a\\ b",
    "#",
    "a#b",
    "a\tb",
    "a\0b",
    "a\x0bb",
    "a\u2028b",
    "a\u00a0b",
    "{{ 7 * 7 }}",
    "{% raw %}",
    "fe80::1%x\nfrontend evil",
    "::1%lo } || { always_true",
    "https",
    "^(a|b)$",
    "^a} || { always_true",
    "~^a } || { always_true$",
    "~^${HOME}$",
    '{"web": "tcp if TRUE"}',
    '{"web": 1, "web\\n": 2}',
    '{"or": "tcp"}',
    "hdr(x) if TRUE",
    "uri whole\nserver x",
    "../../etc/shadow",
    "/etc/shadow",
    "fd@1",
    "0.0.0.0:22",
    "*",
    "be-fine",
    "fine",
    "fine.example.com",
    "",
    " ",
    "." * 300,
    "a" * 300,
)
EVERY = 1 if "PYCONFD_FUZZ_CASES" in os.environ else 5
"""Each field gets every fifth attack, the next one others; ``make fuzz`` has all of them."""
PIECES = st.sampled_from([*ATTACKS, *BENIGN.values(), *(text for each in OTHER.values() for text in each)])
VALUES = st.one_of(
    PIECES,
    st.lists(st.one_of(PIECES, st.text(max_size=6)), min_size=2, max_size=3).map("".join),
    st.text(st.characters(codec="utf-8"), max_size=30),
).filter(lambda text: text != GONE and GONE not in text)


BY_HAPROXY = [name for name in SCENES if name not in {"python-confd", "hosts"}]
"""Those of python-confd ask for keywords that HAProxy 2.1 removed; labels with a slash never pass an API server."""


@cache
def sound(scene: str) -> Rendering:
    """Return what is rendered where nobody attacks."""
    return rendered(scene, snapshot({}))[0]


def judged(scene: str, field: str, value: str) -> None:
    seen = snapshot({field: value})
    rendering, context = rendered(scene, seen)
    found = shape(rendering)
    lines = set(sound(scene).text.split("\n"))
    other = "\n".join(line for line in rendering.text.split("\n") if line not in lines)
    assert found in sound_shapes(scene, field), f"{field}={value!r}; lines that differ:\n{other}"
    assert all(str(refusal).isprintable() for refusal in context.refused)
    if found != shape(sound(scene)) and value not in OTHER.get(field, ()):
        assert refused_objects(context) or found in sound_shapes(scene, field)


@pytest.mark.parametrize("scene", SCENES)
def test_the_object_of_a_scene_is_served_while_nobody_attacks(scene: str) -> None:
    """A scene in which its preset refuses or ignores the object would pass whatever the fragments do."""
    assert all(name in sound(scene).text for name in ("victim", "fine"))


@pytest.mark.parametrize("scene", SCENES)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), VALUES)
def test_nothing_is_added(scene: str, data: st.DataObject, value: str) -> None:
    judged(scene, data.draw(st.sampled_from(fields_of(scene))), value)


@pytest.mark.parametrize("scene", SCENES)
def test_no_known_attack_adds_anything_anywhere(scene: str) -> None:
    for at, field in enumerate(fields_of(scene)):
        for value in ATTACKS[at % EVERY :: EVERY]:
            judged(scene, field, value)


@pytest.mark.haproxy
@pytest.mark.parametrize("scene", BY_HAPROXY)
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_haproxy_takes_what_is_left_of_a_crowd_of_attacks(scene: str, data: st.DataObject) -> None:
    """One value that HAProxy refuses would stop everybody."""
    pairs = st.tuples(st.sampled_from(fields_of(scene)), VALUES)
    # The template of the scene has one line for all certificates, and HAProxy takes 64 words.
    rendering, _ = rendered(scene, crowd(data.draw(st.lists(pairs, min_size=10, max_size=25))))
    assert "fine" in rendering.text
    assert complaint(rendering) == ""


@pytest.mark.haproxy
@pytest.mark.parametrize("scene", BY_HAPROXY)
def test_haproxy_takes_what_is_left_of_all_known_attacks_at_once(scene: str) -> None:
    pairs = [(field, value) for field in fields_of(scene) for value in ATTACKS]
    at_once = 20 if scene == "configmap" else 200  # HAProxy takes 64 words in a line of certificates
    for first in range(0, len(pairs), at_once):
        rendering, _ = rendered(scene, crowd(pairs[first : first + at_once]))
        assert complaint(rendering) == "", pairs[first : first + at_once]


def complaint(rendering: Rendering) -> str:
    """Return what HAProxy has against a rendering, with its files in place."""
    with tempfile.TemporaryDirectory() as folder:
        for file in rendering.files:
            path = Path(folder + file.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file.content, encoding="utf-8")
        text = rendering.text.replace(FILES, f"{folder}{FILES}").replace("/run/haproxy/pyconfd.sock", f"{folder}/sock")
        conf = Path(folder, "haproxy.cfg")
        conf.write_text(text, encoding="utf-8")
        done = subprocess.run([BINARY, "-c", "-f", conf], capture_output=True, text=True, check=False)
        return f"{done.stderr}\n{text}" if done.returncode else ""
