"""Keeps the compiled fragments current; a directory that vanishes does not take away what was read before."""

from collections.abc import Callable
from dataclasses import dataclass

from pyconfd.errors import Problem, PyconfdError
from pyconfd.model.rendering import FragmentSet
from pyconfd.presets.reading import PresetOptions
from pyconfd.render.engine import Renderer


@dataclass(frozen=True, slots=True)
class Compiled:
    """Fragments that parse, and the preset options that follow from them."""

    renderer: Renderer
    options: PresetOptions


class LiveFragments:
    """Reads the template directory whenever asked and compiles it when its contents changed.

    ``newest`` compiled last (None until one did); ``problems`` say why the directory as it is now cannot be used
    (empty where it can).
    """

    def __init__(
        self,
        read: Callable[[], FragmentSet],
        compile_: Callable[[FragmentSet], Renderer],
        options_for: Callable[[Renderer], PresetOptions],
    ) -> None:
        self._read = read
        self._compile = compile_
        self._options_for = options_for
        self._seen: FragmentSet | None = None
        self._proven: Compiled | None = None
        self.newest: Compiled | None = None
        self.problems: tuple[Problem, ...] = ()

    def refresh(self) -> bool:
        """Read the directory; give True if there is a new renderer."""
        try:
            found = self._read()
            # After a failure to read, the same contents coming back must clear the problem.
            if found == self._seen and not self.problems:
                return False
            self._seen = found
            renderer = self._compile(found)
        except PyconfdError as error:
            self.problems = error.problems
            return False
        self.newest = Compiled(renderer, self._options_for(renderer))
        self.problems = ()
        return True

    def prove(self) -> None:
        """Note that what ``newest`` gave was applied."""
        self._proven = self.newest

    @property
    def former(self) -> Compiled | None:
        """The fragments that were applied last, where newer ones have not been; else None."""
        return None if self._proven is self.newest else self._proven
