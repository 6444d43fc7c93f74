"""A renderer whose configurations are moved to loopback."""

import hashlib
import os
from collections import Counter
from dataclasses import replace
from typing import Any

from pyconfd.errors import RejectedInput, TransientError
from pyconfd.haproxy.sections import parse
from pyconfd.model.context import Context
from pyconfd.model.rendering import FragmentSet, Piece, Rendering
from pyconfd.render.engine import Rendered, Renderer
from pyconfd.render.fallback import Fallback
from pyconfd.trying.loopback import Loopback
from pyconfd.trying.relocate import relocate


class Shown:
    """What was rendered last, for whoever tells of it: the Context, the text on loopback, what differs from the own."""

    def __init__(self) -> None:
        self.last: tuple[Context, Rendering] | None = None
        self.notes: tuple[str, ...] = ()
        self._moved: set[bytes] = set()

    def move(self, rendering: Rendering, loopback: Loopback) -> Rendering:
        """Move what was not moved yet: a template of the cluster may be replaced by what it gave before."""
        pieces_to_move = tuple(piece for piece in rendering.pieces if _digest(piece) not in self._moved)
        own = Rendering(pieces_to_move, rendering.files)
        moved, self.notes = relocate(own, loopback, os.environ)
        pieces = iter(moved.pieces)
        result = tuple(piece if _digest(piece) in self._moved else next(pieces) for piece in rendering.pieces)
        for piece, written in zip(moved.pieces, own.pieces, strict=True):
            if piece != written:
                self._moved.add(_digest(piece))
        return Rendering(result, rendering.files)


class RelocatingRenderer(Renderer):
    """Renders as the templates say, and moves the text to ``loopback``; ``found`` are the fragments."""

    def __init__(self, found: FragmentSet, *arguments: Any, loopback: Loopback, shown: Shown) -> None:
        super().__init__(found, *arguments)
        self.found = found
        self._loopback = loopback
        self._shown = shown

    def render(self, context: Context, *, curdate: str, fallback: Fallback | None = None) -> Rendered:
        """Do what Renderer does; that a port cannot be had is a RejectedInput too."""
        rendered = super().render(context, curdate=curdate, fallback=fallback)
        try:
            moved = self._shown.move(rendered.rendering, self._loopback)
        except TransientError as error:
            raise RejectedInput(*error.problems) from error
        self._shown.last = context, moved
        return replace(rendered, rendering=moved)


def pods_behind(text: str, loopback: Loopback) -> Counter[str]:
    """Return how many stand-ins of each Service a configuration on loopback names."""
    servers = (line.words for section in parse(text) for line in section.lines if line.words[0] == "server")
    there = {words[2] for words in servers if len(words) > 2}
    names = {f"{host}:{port}": name for name, (host, port) in loopback.addresses.items()}
    found = (loopback.owners[names[address]] for address in there if address in names)
    return Counter(service for owner in found for service in owner.services)


def _digest(piece: Piece) -> bytes:
    return hashlib.sha256(piece.text.encode()).digest()
