"""Reads the fenced blocks of a Markdown page, and renders those of docs/templates.md as pyconfd itself would.

On the page, ``yaml cluster`` holds the objects of the example cluster. ``jinja`` is a template; ``text`` or ``error``
right behind it is what it gives. A template's line that ends in ``{# gives: ... #}`` stands alone and gives just that.
``file=NAME`` behind ``jinja`` makes the block includable by that name; ``lenient`` renders it leniently.
"""

import dataclasses
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyconfd.errors import RejectedInput
from pyconfd.model.context import Context
from pyconfd.model.kubernetes import Secret
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.model.snapshot import Key
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import translate
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.file import read_snapshot
from tests.world.pki import CertificateAuthority

ROOT = Path(__file__).parents[2]
FRAGMENT = "06-mine.tmpl"
VARIABLES = {"team": "web", "http_bind": ["192.0.2.10:80", "[2001:db8::10]:80"]}

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_GIVES = re.compile(r"(?P<template>.*?)\s*\{# gives: (?P<output>.*) #\}")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; ``info`` are the words behind the fence, ``line`` is where it begins."""

    info: tuple[str, ...]
    body: str
    line: int

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""


@dataclass(frozen=True, slots=True)
class Example:
    """``output`` is what ``template`` gives, or the error with ``fails``."""

    template: str
    output: str
    line: int
    fails: bool = False
    lenient: bool = False


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(tuple(found["info"].split()), found["body"], text.count("\n", 0, found.start()) + 1)
        for found in _FENCE.finditer(text)
    ]


def includables(blocks: list[Block]) -> tuple[Fragment, ...]:
    return tuple(
        Fragment(word.removeprefix("file="), block.body)
        for block in blocks
        for word in block.info
        if word.startswith("file=")
    )


def examples(blocks: list[Block]) -> Iterator[Example]:
    for block, following in zip(blocks, [*blocks[1:], Block((), "", 0)], strict=True):
        if block.language != "jinja" or any(word.startswith("file=") for word in block.info):
            continue
        if following.language in ("text", "error"):
            fails, lenient = following.language == "error", "lenient" in block.info
            yield Example(block.body, following.body, block.line, fails=fails, lenient=lenient)
            continue
        for number, line in enumerate(block.body.splitlines(), block.line + 1):
            found = _GIVES.fullmatch(line)
            if found is None:
                raise AssertionError(f"line {number}: nothing says what {line!r} gives")
            yield Example(found["template"], f"{found['output']}\n", number)


def cluster(blocks: list[Block], folder: Path) -> Context:
    """The cluster of the page, with the Secret whose key must not be printed on it."""
    objects = folder / "objects.yaml"
    objects.write_text("".join(block.body for block in blocks if block.info == ("yaml", "cluster")), encoding="utf-8")
    snapshot, refused = read_snapshot(objects)
    assert not refused
    pair = CertificateAuthority(folder).server("shop.example.com")
    data = {"tls.crt": pair.cert, "tls.key": pair.key}
    secret = Secret(
        metadata=ObjectMeta(name="shop-tls", namespace="default"),
        type="kubernetes.io/tls",
        data={name: b64encode(Path(path).read_bytes()).decode() for name, path in data.items()},
    )
    snapshot = dataclasses.replace(snapshot, secrets={Key("default", "shop-tls"): secret})
    return translate(snapshot, ["domains"], PresetOptions())


def render(example: Example, context: Context, files: tuple[Fragment, ...]) -> Rendering:
    fragments = FragmentSet((Fragment(FRAGMENT, example.template),), files)
    options = RenderOptions(files_dir="/etc/haproxy/generated/files", lenient=example.lenient, variables=VARIABLES)
    return Renderer(fragments, options).render(context, curdate="2026-11-09 12:00:00.000000").rendering


def outcome(example: Example, context: Context, files: tuple[Fragment, ...]) -> str:
    """The text that the example gives, or the problems."""
    try:
        return render(example, context, files).text
    except RejectedInput as error:
        if not example.fails:
            raise
        return f"{error}\n"
